"""The code version of a stage changes with the code that its output depends on, and with no other code."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import mens_pipeline
from mens_pipeline.storage.code_version import _load_versions, code_version, trace_code

_PACKAGE: Final = Path(mens_pipeline.__file__).parent
_STAGES: Final = {
    "extraction": ("mens_pipeline.corpus.extract.extracted_corpus",),
    "synthesis": ("mens_pipeline.corpus.synthesis.synthetic_corpus",),
    "pairs": ("mens_pipeline.corpus.curate.validated_pairs",),
    "split": ("mens_pipeline.corpus.curate.heldout_split",),
    "mix": ("mens_pipeline.corpus.curate.mixed_train_set",),
    "training": ("mens_pipeline.training.train",),
    "scratch": ("mens_pipeline.scratch.train",),
    "generation": ("mens_pipeline.inference.generate",),
    "evaluation": ("mens_pipeline.evaluation.eval_results",),
    "gate": ("mens_pipeline.promotion.benchmark_gate",),
    "merge": (
        *(f"mens_pipeline.delivery.merge:{name}" for name in ("prepare_merge", "write_merged_model")),
        "mens_pipeline.delivery.merged_model",
    ),
    "hand-off": ("mens_pipeline.delivery.serving_handoff",),
}


_EDITS: Final[tuple[tuple[str, str, str, set[str]], ...]] = (
    ("corpus/telemetry/redaction.py", 'f"REDACTED_{', 'f"CUT_{', {"extraction", "mix"}),
    ("corpus/telemetry/table.py", "_STEPS: Final = 1_000_000", "_STEPS: Final = 2_000_000", {"extraction"}),
    ("promotion/report/page.html.jinja", "<title>", "<title>The ", {"gate"}),
    ("promotion/report/style.css", "#1c2024", "#000000", {"gate"}),
    ("promotion/report/filter.js", "querySelectorAll", "querySelector", {"gate"}),
    ("models/card.md.jinja", "#", "# The", {"hand-off"}),
    ("models/card.py", "autoescape=False", "autoescape=True", {"hand-off"}),
    ("evaluation/judge.py", "def judge(", "def judge(*, ", {"evaluation", "merge"}),
    ("inference/kv_cache.py", "room.new_zeros(", "room.new_ones(", {"generation", "merge"}),
    ("training/common_trainer.py", "IGNORED: Final = -100", "IGNORED: Final = -101", {"training", "scratch"}),
    ("corpus/curate/mix.py", "{config.seed}:", "{config.seed};", {"mix"}),
    ("corpus/synthesis/words.yaml", "name: Book", "name: Novel", {"synthesis"}),
    ("corpus/synthesis/phrasing.yaml", "Just the code.", "Code.", {"synthesis"}),
    ("corpus/synthesis/families/tables.vox.jinja", "columns that may be", "fields that may be", {"synthesis"}),
    ("corpus/synthesis/families/views_banks.yaml", "Loading", "Fetching", {"synthesis"}),
    ("corpus/synthesis/tasks/loop_atoms.yaml", "level: 2", "level: 1", {"synthesis", "split"}),
    # Workers are started by the name of their module, so their code is followed too. The tables of the interpreter
    # define the names that programs know, so stages that check names depend on it as well.
    (
        "language/interpreter/values.py",
        "left: Value, right: Value, level: int = 0",
        "left: Value, right: Value, level: int = 1",
        {"synthesis", "pairs", "split", "evaluation", "merge", "generation"},
    ),
    # An unused name, and the code that stores artifacts.
    ("training/qlora.py", "def lora_config", "_UNUSED = 1\n\n\ndef lora_config", set()),
    ("storage/store.py", "indent=2", "indent=3", set()),
)
"""A file, an edit of it, and the stages that depend on it."""


def _copy(folder: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", "cli", "orchestration")
    return Path(shutil.copytree(_PACKAGE, folder / "mens_pipeline", ignore=ignored))


def _find_changed_files(copy: Path, stage: str) -> set[str]:
    """Return the files of a stage that differ between a copy and the package; Python files without their suffix."""
    ours, theirs = (set(trace_code(_STAGES[stage], (), root).items()) for root in (_PACKAGE, copy))
    return {name.partition(":")[0].removeprefix("mens_pipeline.").replace(".", "/") for name, _ in ours ^ theirs}


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Return the edited files that change the code version of each stage."""
    copy = _copy(tmp_path_factory.mktemp("edited"))
    for file, old, new, _ in _EDITS:
        text = (copy / file).read_text(encoding="utf-8")
        assert old in text
        (copy / file).write_text(text.replace(old, new, 1), encoding="utf-8")
    return {stage: _find_changed_files(copy, stage) for stage in _STAGES}


@pytest.mark.parametrize(("file", "stages"), [(file, stages) for file, _, _, stages in _EDITS])
def test_an_edit_changes_only_the_stages_that_depend_on_it(
    edited: dict[str, set[str]], file: str, stages: set[str]
) -> None:
    name = file.removesuffix(".py")
    name = name if name != file else file.replace(".", "/")

    assert {stage for stage, files in edited.items() if name in files} == stages


def test_a_version_covers_all_reachable_code(tmp_path: Path) -> None:
    copy = _copy(tmp_path)
    entry = _STAGES["mix"][0]
    same = code_version(entry, root=copy)
    other = _copy(tmp_path / "other")
    mix = other / "corpus" / "curate" / "mix.py"
    mix.write_text(mix.read_text(encoding="utf-8").replace("{config.seed}:", "{config.seed};"), encoding="utf-8")

    assert same == code_version(entry)
    assert len(bytes.fromhex(same)) == 32
    assert code_version(entry, root=other) != same


def test_comments_and_docstrings_do_not_change_a_version(tmp_path: Path) -> None:
    """Nor do line breaks and imports for type checkers."""
    copy = _copy(tmp_path)
    for path in sorted(copy.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if text.startswith('"""'):
            rest = text[3:].partition('"""')[2].replace("(\n", "(  # why\n\n")
            types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import nothing_of_ours\n"
            path.write_text(f'"""Another docstring,\nlonger."""\n\n# A comment.\n{rest}\n{types}', encoding="utf-8")

    assert {stage: _find_changed_files(copy, stage) for stage in _STAGES} == {stage: set() for stage in _STAGES}


def test_modules_can_be_left_out() -> None:
    """Generation without constraints does not depend on the language, and training never does."""
    trained, free, language = _STAGES["training"], _STAGES["generation"], "mens_pipeline.language"

    assert not any(name.startswith(language) for name in trace_code(trained))
    assert any(name.startswith(language) for name in trace_code(free))
    assert not any(name.startswith(language) for name in trace_code(free, (language,)))
    unnamed = trace_code(free, ("mens_pipeline.language.semantics",))
    assert not any(name.startswith("mens_pipeline.language.interpreter") for name in unnamed)
    assert any(name.startswith("mens_pipeline.language.viability") for name in unnamed)
    assert code_version(*free, without=(language,)) != code_version(*free)


def _write(folder: Path, files: dict[str, str]) -> Path:
    root = folder / "mens_pipeline"
    for name, text in {"__init__.py": "", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_every_way_to_use_a_definition_is_followed(tmp_path: Path) -> None:
    """In functions, through packages, as attributes of modules, for side effects; unused definitions are left out."""
    root = _write(
        tmp_path,
        {
            "part/__init__.py": "from mens_pipeline.part.inner import reexported\nRULES = {}\nRULES['a'] = 1\n",
            "part/inner.py": "def reexported(): ...\ndef unused(): ...\n",
            "part/whole.py": "import os\nX = Y = os.sep\nclass C: ...\nasync def run(): ...\n",
            "part/late.py": "def late(): ...\nfor number in range(3):\n    late()\n",
            "other.py": "def first(): ...\ndef second(): ...\n",
            "entry.py": (
                "import mens_pipeline.part.whole\n"
                "from mens_pipeline import other\nfrom mens_pipeline.part import late\n"
                "def entry():\n    from mens_pipeline.part import reexported\n    import json\n"
                "    return json, reexported, other.first(), late.number, mens_pipeline.part.whole.C, unknown\n"
                "def alike(entry, *, other: late.number = 1):\n"
                "    return entry, other.second, lambda late: late.late()\n"
                "names = [entry for entry in 'ab']\n"
            ),
        },
    )
    found = {name.removeprefix("mens_pipeline.") for name in trace_code(("mens_pipeline.entry:entry",), (), root)}

    assert found == {
        *("entry:entry", "other:first", "part.inner:reexported", "part:#0", "part:RULES", "part.late:late"),
        *("part.late:number", "part.whole:X", "part.whole:C", "part.whole:run"),
    }
    assert trace_code(("mens_pipeline.other:second",), (), root).keys() == {"mens_pipeline.other:second"}
    # A parameter or the variable of a comprehension is not the definition of that name.
    for name in ("alike", "names"):
        alike = trace_code((f"mens_pipeline.entry:{name}",), (), root)
        assert "mens_pipeline.entry:entry" not in alike
        assert ("mens_pipeline.part.late:number" in alike) is (name == "alike")
        assert "mens_pipeline.other:second" not in alike


@pytest.mark.parametrize("entry", ["mens_pipeline.nothing", "json", "mens_pipeline.storage.store:nothing"])
def test_a_missing_entry_is_an_error(entry: str) -> None:
    with pytest.raises(LookupError, match=f"{entry}: no such module or definition"):
        code_version(entry)


@pytest.mark.parametrize("spoilt", ["not JSON", "[]", '{"package": "of before", "asked": "1"}'])
def test_versions_are_cached_until_the_package_changes(tmp_path: Path, spoilt: str) -> None:
    root = _write(tmp_path, {"entry.py": "def entry(): ...\n"})
    entry = "mens_pipeline.entry"
    first = code_version(entry, root=root)
    cache = root / "__pycache__" / "code_versions.json"
    read = json.loads(cache.read_text())
    cache.write_text(json.dumps({**read, repr(((entry,), ())): "kept"}))
    _load_versions.cache_clear()
    reread = code_version(entry, root=root)
    cache.write_text(spoilt)
    _load_versions.cache_clear()
    again = code_version(entry, root=root)
    cache.write_text(json.dumps({**read, repr(((entry,), ())): "kept"}))
    (root / "other.py").write_text("X = 1\n")
    _load_versions.cache_clear()

    assert (reread, again, code_version(entry, root=root)) == ("kept", first, first)
    nowhere = _write(tmp_path / "other", {"entry.py": "def entry(): ...\n", "__pycache__": "a file"})
    assert code_version(entry, root=nowhere) == code_version(entry, root=nowhere) == first


def test_versions_are_computed_quickly_and_without_heavy_imports() -> None:
    """All versions take less time than eight parses of the package."""
    program = f"""import ast, sys
from pathlib import Path
from mens_pipeline.storage.code_version import code_version
from mens_pipeline_tests.speed import assert_below
def versions():
    for entries in {sorted(_STAGES.values())}:
        code_version(*entries)
def parses():
    for path in Path({str(_PACKAGE)!r}).rglob("*.py"):
        ast.parse(path.read_bytes())
assert_below(versions, 8, parses)
print(*(name for name in ("torch", "dagster", "pydantic") if name in sys.modules))"""
    environment = {**os.environ, "PYTHONPATH": str(_PACKAGE.parent)}
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )

    assert result.stdout.split() == []
