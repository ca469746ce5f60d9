"""Count what the package consists of, from its own code.

`python -m mens_pipeline_tests.bench.structure`; `--list NAME` prints what a count is made of: `participles`, `wide`,
`look-ups`, `single`, `repeated`, `named`, `renamed`, `joined`, `road`, `walk`. `--write` writes `weight.tsv`, the table
that a test compares the code with.
"""

import argparse
import ast
import importlib
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
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
"""The row of modules that are in no folder."""

_APART: Final = (f"{_PACKAGE}.language", f"{_PACKAGE}.corpus.synthesis")
"""What a reader of the road may take for granted: the language, and rows that nobody wrote."""

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
"""Kinds of the stages that lie on it; promoting is none of them."""

_WALK: Final = f"{_PACKAGE}.orchestration.defs.promotion:promoted_adapter"
_MOST_PARAMETERS: Final = 12

_IRREGULAR: Final = re.compile(
    "told|untold|kept|made|found|held|shown|written|taken|given|drawn|left|lost|sent|met|built|begun|done|known|seen|said|thrown|"
    "chosen|laid|bound|brought|spent|sold|spoken|torn|worn|won|understood|gone|grown|hidden|meant|paid|broken|driven|fallen|"
    "forgotten|borne|caught|dealt|fed|felt|fought|hung|heard|lent|lit|proven|sat|stood|stuck|swept|taught|thought|overridden|led"
)
_NO_PARTICIPLE: Final = re.compile("need|feed|embed|seed|speed|exceed|proceed|succeed|breed")
_MANIFEST: Final = re.compile(r"manifest", re.IGNORECASE)
_JOINED: Final = re.compile(r"\.path / _?[A-Z][A-Z_]+")


@dataclass(frozen=True)
class Module:
    """A file of the package."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax."""
        return ast.parse(self.text)

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """All functions, methods and inner functions."""
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

    def count_lines(self) -> Counter[str]:
        """Count lines by what stands on them: `docstring` wins over `code`, `code` over `comment`."""
        kinds = dict.fromkeys(range(1, len(self.text.splitlines()) + 1), "blank")
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                kinds[token.start[0]] = "comment" if kinds[token.start[0]] == "blank" else kinds[token.start[0]]
            elif token.type not in {
                tokenize.NL,
                tokenize.NEWLINE,
                tokenize.INDENT,
                tokenize.DEDENT,
                tokenize.ENDMARKER,
            }:
                kinds.update(dict.fromkeys(range(token.start[0], token.end[0] + 1), "code"))
        for node in ast.walk(self.tree):
            match node:
                case ast.Expr(value=ast.Constant(value=str()), lineno=first, end_lineno=int(last)):
                    kinds.update(dict.fromkeys(range(first, last + 1), "docstring"))
                case _:
                    pass
        return Counter(kinds.values())


def read_modules() -> dict[str, Module]:
    """Return the modules of the package by name."""
    found = {}
    for path in sorted(_ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(_ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
        found[name] = Module(name, path.read_text(encoding="utf-8"))
    return found


def find_imported_once(modules: dict[str, Module]) -> list[str]:
    """Return modules that exactly one other module imports, with that one; packages are left out."""
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    importers[whole if whole in modules else node.module].add(module.name)
    packages = {name.rpartition(".")[0] for name in modules}
    return [
        f"{name} <- {next(iter(importers[name]))}"
        for name in modules
        if len(importers[name]) == 1 and name not in packages
    ]


def find_participles(modules: dict[str, Module]) -> list[str]:
    """Return functions whose whole name is a participle (`details`, `_asked`); a property names a value and may."""
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


def find_wide(modules: dict[str, Module]) -> list[str]:
    """Return functions with more parameters than a reader can hold, widest first."""
    counted = [
        (sum(map(len, (node.args.posonlyargs, node.args.args, node.args.kwonlyargs))), module.name, node.name)
        for module in modules.values()
        for node in module.functions
    ]
    return [f"{module}:{name} {num}" for num, module, name in sorted(counted, reverse=True) if num > _MOST_PARAMETERS]


def find_look_ups(modules: dict[str, Module]) -> list[str]:
    """Return places that read a manifest by a string: `manifest["recipe"]["rank"]` counts for two."""
    return [
        f"{module.name}:{node.lineno} {ast.unparse(node)}"
        for module in modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.expr) and (looked_up := _looked_up_in(node)) is not None and _is_manifest(looked_up)
    ]


def _looked_up_in(node: ast.expr) -> ast.expr | None:
    match node:
        case ast.Subscript(value=value, slice=ast.Constant(value=str()), ctx=ast.Load()):
            return value
        case ast.Call(func=ast.Attribute(value=value, attr="get"), args=[ast.Constant(value=str()), *_]):
            return value
        case _:
            return None


def _is_manifest(node: ast.expr) -> bool:
    while (inner := _looked_up_in(node)) is not None:
        node = inner
    if isinstance(node, ast.Call):
        node = node.func
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return _MANIFEST.search(name) is not None


def find_repeated_classes(modules: dict[str, Module]) -> list[str]:
    """Return names that more than one class has, with how many have it."""
    names = Counter(
        node.name for module in modules.values() for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)
    )
    return [f"{name} {num}" for name, num in names.most_common() if num > 1]


def find_named_of(modules: dict[str, Module]) -> list[str]:
    """Return functions called `x_of`, which says neither whether they read, find, build nor compute."""
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
    """Return how often names and paths are what they should not be, and how much is written about the package."""
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
    """Return how much a pair meets on its road, and a promotion reaches. Imports the whole package."""
    road = find_road()
    return {
        "road of a pair: modules": (len(_find_modules(road)),),
        "road of a pair: definitions": (sum(":" in name for name in road),),
        "modules that a promotion reaches": (len(_find_modules(trace_code((_WALK,)))),),
    }


def read_weights() -> dict[str, tuple[int, ...]]:
    """Return the committed table: lines and modules of a folder, or the one figure of a name."""
    rows = (line.split("\t") for line in WEIGHTS.read_text(encoding="utf-8").splitlines()[1:])
    return {name: tuple(map(int, figures)) for name, *figures in rows}


def write_weights() -> None:
    modules = read_modules()
    weights = measure_folders(modules) | measure_reach() | measure_names(modules)
    rows = ["\t".join([name, *map(str, figures)]) for name, figures in weights.items()]
    WEIGHTS.write_text("\n".join([_HEADER, *rows, ""]), encoding="utf-8")


def find_road() -> dict[str, str]:
    """Return all definitions that a pair meets from the workspace to the champion, language and synthesis included."""
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


def _rows(modules: dict[str, Module]) -> Iterator[tuple[str, str, list[str]]]:
    lines = sum((module.count_lines() for module in modules.values()), Counter[str]())
    yield "lines", f"{lines.total():,}", []
    for kind in ("code", "docstring", "comment", "blank"):
        yield f"  {kind}", f"{lines[kind]:,}", []
    yield "modules", f"{len(modules):,}", []
    yield "  lines a module", f"{lines.total() / len(modules):.0f}", []
    functions = sum(len(module.functions) for module in modules.values())
    classes = sum(isinstance(node, ast.ClassDef) for module in modules.values() for node in ast.walk(module.tree))
    yield "functions", f"{functions:,}", []
    yield "classes", f"{classes:,}", []
    single = find_imported_once(modules)
    yield "single: modules that one other imports", f"{len(single):,}", single
    road = find_road()
    yield "road: modules of a pair's way to the champion", f"{len(_find_modules(road)):,}", _find_modules(road)
    yield "  definitions, with those of language and synthesis", f"{sum(':' in name for name in road):,}", []
    walk = _find_modules(trace_code((_WALK,)))
    yield "walk: modules that a promotion reaches", f"{len(walk):,}", walk
    participles = find_participles(modules)
    yield "participles: functions named by nothing else", f"{len(participles):,}", participles
    wide = find_wide(modules)
    yield f"wide: functions with more than {_MOST_PARAMETERS} parameters", f"{len(wide):,}", wide
    look_ups = find_look_ups(modules)
    yield "look-ups by string in manifests", f"{len(look_ups):,}", look_ups
    repeated = find_repeated_classes(modules)
    yield "repeated: class names used twice or more", f"{len(repeated):,}", repeated
    named = find_named_of(modules)
    yield "named x_of: functions", f"{len(named):,}", named
    renamed = find_renamed_kinds(modules)
    yield "renamed: imports of `KIND as`", f"{len(renamed):,}", renamed
    joined = find_joined_paths(modules)
    yield "joined: places with `.path / NAME`", f"{len(joined):,}", joined


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", metavar="NAME", help="print what a count is made of")
    parser.add_argument("--write", action="store_true", help=f"write {WEIGHTS.name}")
    given = parser.parse_args()
    if given.write:
        write_weights()
        return
    shown = given.list
    for what, figure, parts in _rows(read_modules()):
        if shown is None:
            print(f"{what:<52}{figure:>8}")
        elif what.startswith(shown):
            print(*parts, sep="\n")


if __name__ == "__main__":
    main()
