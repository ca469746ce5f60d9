"""Measure the size, names and reach of the package from its code.

`python -m mens_pipeline_tests.bench.structure`; `--list NAME` prints the items of a count. `--write` writes
`weight.tsv`, the table that a test compares the code with.
"""

import argparse
import ast
import importlib
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from mens_pipeline.storage.code_version import trace_code
from mens_pipeline.storage.stage import Stage

_PACKAGE: Final = "mens_pipeline"
_PROJECT: Final = Path(__file__).parents[2]
_ROOT: Final = _PROJECT / _PACKAGE
WEIGHTS: Final = Path(__file__).parents[1] / "weight.tsv"
_HEADER: Final = "what\tlines or number\tmodules"
_TOP: Final = "top"
"""Row of the modules outside of folders."""

_APART: Final = (f"{_PACKAGE}.language", f"{_PACKAGE}.corpus.synthesis")
"""Packages that the count of modules leaves out: the language, and synthetic rows."""

_ROAD: Final = (
    "workspace_snapshot",
    "extracted_corpus",
    "synthetic_corpus",
    "validated_pairs",
    "heldout_split",
    "heldout_overlap",
    "mixed_train_set",
    "base_model",
    "qlora_adapter",
    "generations",
    "eval_results",
    "benchmark_gate",
)
"""Kinds of the stages that a pair passes through; promotion is not a stage."""

_WALK: Final = f"{_PACKAGE}.orchestration.defs.promotion:promoted_adapter"

_IRREGULAR: Final = re.compile(
    "told|untold|kept|made|found|held|shown|written|taken|given|drawn|left|lost|sent|met|built|begun|done|known|seen|said|thrown|"
    "chosen|laid|bound|brought|spent|sold|spoken|torn|worn|won|understood|gone|grown|hidden|meant|paid|broken|driven|fallen|"
    "forgotten|borne|caught|dealt|fed|felt|fought|hung|heard|lent|lit|proven|sat|stood|stuck|swept|taught|thought|overridden|led"
)
_NO_PARTICIPLE: Final = re.compile("need|feed|embed|seed|speed|exceed|proceed|succeed|breed")
_JOINED: Final = re.compile(r"\.path / _?[A-Z][A-Z_]+")


@dataclass(frozen=True)
class Module:
    """A file of the package."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Syntax tree of the file."""
        return ast.parse(self.text)

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """All functions, methods and inner functions."""
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def read_modules() -> dict[str, Module]:
    """Return the modules of the package by name."""
    found = {}
    for path in sorted(_ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(_ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
        found[name] = Module(name, path.read_text(encoding="utf-8"))
    return found


def find_participles(modules: dict[str, Module]) -> list[str]:
    """Return functions whose whole name is a participle (`told`, `_asked`), except properties: they name a value."""
    return [
        f"{module.name}:{node.lineno} {node.name}"
        for module in modules.values()
        for node in module.functions
        if _is_participle(node.name.strip("_"))
        and not any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]


def _is_participle(name: str) -> bool:
    regular = name.isalpha() and name.endswith("ed") and not _NO_PARTICIPLE.fullmatch(name)
    return regular or _IRREGULAR.fullmatch(name) is not None


def find_repeated_classes(modules: dict[str, Module]) -> list[str]:
    """Return the names that several classes share, with their number."""
    names = Counter(
        node.name for module in modules.values() for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)
    )
    return [f"{name} {num}" for name, num in names.most_common() if num > 1]


def find_named_of(modules: dict[str, Module]) -> list[str]:
    """Return functions called `x_of`: the name does not say whether they read, find, build or compute."""
    return [
        f"{module.name}:{node.lineno} {node.name}"
        for module in modules.values()
        for node in module.functions
        if node.name.endswith("_of")
    ]


def find_renamed_kinds(modules: dict[str, Module]) -> list[str]:
    """Return imports that give a kind of artifact another name: `import KIND as SPLIT_KIND`."""
    return [
        f"{module.name}:{node.lineno} {alias.name} as {alias.asname}"
        for module in modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name.endswith("KIND") and alias.asname is not None
    ]


def find_joined_paths(modules: dict[str, Module]) -> list[str]:
    """Return places that append the name of a file to an artifact's path by hand: `artifact.path / NAME`."""
    return [
        f"{module.name}:{number} {line.strip()}"
        for module in modules.values()
        for number, line in enumerate(module.text.splitlines(), 1)
        for _ in _JOINED.findall(line)
    ]


def measure_folders(modules: dict[str, Module]) -> dict[str, tuple[int, ...]]:
    """Return lines and modules of each folder of the package."""
    weights: dict[str, tuple[int, ...]] = {}
    for module in modules.values():
        path = module.name.split(".")
        in_folder = len(path) > 1 and (_ROOT / path[1]).is_dir()
        folder = f"{path[1]}/" if in_folder else _TOP
        lines, num_modules = weights.get(folder, (0, 0))
        weights[folder] = lines + len(module.text.splitlines()), num_modules + 1
    return dict(sorted(weights.items(), key=lambda row: (row[0] == _TOP, row[0])))


def measure_names(modules: dict[str, Module]) -> dict[str, tuple[int, ...]]:
    """Return the counts of discouraged names and paths, lines of tests, and pages of docs."""
    tests = (path.read_text(encoding="utf-8") for path in (_PROJECT / f"{_PACKAGE}_tests").rglob("*.py"))
    return {
        "class names used twice or more": (len(find_repeated_classes(modules)),),
        "functions named x_of": (len(find_named_of(modules)),),
        "imports of KIND as": (len(find_renamed_kinds(modules)),),
        "places with .path / NAME": (len(find_joined_paths(modules)),),
        "lines of tests": (sum(len(text.splitlines()) for text in tests),),
        "pages of docs": (len(list((_PROJECT / "docs").glob("*.md"))),),
    }


def measure_reach() -> dict[str, tuple[int, ...]]:
    """Return the amount of code that a pair passes through and a promotion reaches. Imports the whole package."""
    road = find_road()
    return {
        "road of a pair: modules": (len(_find_modules(road)),),
        "road of a pair: definitions": (sum(":" in name for name in road),),
        "modules that a promotion reaches": (len(_find_modules(trace_code((_WALK,)))),),
    }


def read_weights() -> dict[str, tuple[int, ...]]:
    """Return the committed table: lines and modules of a folder, or the single figure of another row."""
    rows = (line.split("\t") for line in WEIGHTS.read_text(encoding="utf-8").splitlines()[1:])
    return {name: tuple(map(int, figures)) for name, *figures in rows}


def write_weights() -> None:
    modules = read_modules()
    weights = measure_folders(modules) | measure_reach() | measure_names(modules)
    rows = ["\t".join([name, *map(str, figures)]) for name, figures in weights.items()]
    WEIGHTS.write_text("\n".join([_HEADER, *rows, ""]), encoding="utf-8")


def find_road() -> dict[str, str]:
    """Return all definitions on the way of a pair from workspace to champion, language and synthesis included."""
    entries = [f"{_PACKAGE}.promotion.promote", f"{_PACKAGE}.training.preflight"]
    for module in read_modules().values():
        calls = any(isinstance(node, ast.Call) and ast.unparse(node.func) == "Stage" for node in ast.walk(module.tree))
        values = vars(importlib.import_module(module.name)).values() if calls else ()
        for stage in values:
            if isinstance(stage, Stage) and stage.kind in _ROAD:
                entries += stage.entries
    return trace_code(tuple(sorted(set(entries))))


def _find_modules(definitions: dict[str, str]) -> list[str]:
    names = {definition.partition(":")[0] for definition in definitions if ":" in definition}
    return sorted(name for name in names if not f"{name}.".startswith(tuple(f"{apart}." for apart in _APART)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", choices=_LISTS, help="print the items of a count")
    parser.add_argument("--write", action="store_true", help=f"write {WEIGHTS.name}")
    given = parser.parse_args()
    modules = read_modules()
    if given.list:
        print(*_LISTS[given.list](modules), sep="\n")
    elif given.write:
        write_weights()
    else:
        weights = measure_folders(modules) | measure_reach() | measure_names(modules)
        lines, num_modules = (sum(weights[folder][place] for folder in measure_folders(modules)) for place in (0, 1))
        for name, figures in {"all": (lines, num_modules), **weights}.items():
            print(f"{name:<44}", *(f"{figure:>8,}" for figure in figures))


_LISTS: Final[dict[str, Callable[[dict[str, Module]], list[str]]]] = {
    "participles": find_participles,
    "road": lambda _modules: _find_modules(find_road()),
    "walk": lambda _modules: _find_modules(trace_code((_WALK,))),
    "repeated": find_repeated_classes,
    "named": find_named_of,
    "renamed": find_renamed_kinds,
    "joined": find_joined_paths,
}


if __name__ == "__main__":
    main()
