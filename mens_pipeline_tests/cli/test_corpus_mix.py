"""`mens corpus mix` and `mens corpus stats`."""

import json
from pathlib import Path

import pytest
from typer.testing import Result

from mens_pipeline.corpus.curate.heldout_split import is_held_out
from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.corpus.schema.records import Lane, read_pairs
from mens_pipeline.settings import PIPELINE_CONFIG
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline_tests.cli.invoking import invoke, run_main
from mens_pipeline_tests.corpus.rows import pair_at
from mens_pipeline_tests.evaluation.benches import task, write_bench

_POLICY = load_pipeline_config(PIPELINE_CONFIG).split
_PATHS = [f"{number}.vox" for number in range(60)]
_SHARES = (_POLICY.model_copy(update={"heldout_share": number / 1000}) for number in range(1001))
_FIRST = ([path for path in _PATHS if is_held_out(path, policy)] for policy in _SHARES)
_HELD = next(paths for paths in _FIRST if len(paths) == _POLICY.max_heldout_share * len(_PATHS))
"""As many of the files as may be held out."""
_PROGRAM = "fn f{0}(a{0}: int) to int {{ return g{0}(a{0}, {0}) + h{0}(a{0}, k{0}(a{0}), m{0}({0}, a{0})) }}\n"
_MIX = """
sources:
  - path: pairs.jsonl
    weight: 3
  - path: told.jsonl
    optional: true
include_lanes: [vox_codegen]
output: out/train.jsonl
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sixty pairs of as many files, one of prose, a mix of them, and a small benchmark."""
    pairs = [pair_at(path, f"Write f{n}.", _PROGRAM.format(n)) for n, path in enumerate(_PATHS)]
    prose = pair_at("q.md", "What is it?", "Prose.").model_copy(update={"lane": Lane.DOCS_QA})
    write_jsonl(tmp_path / "pairs.jsonl", [*pairs, pairs[0], prose.model_copy(update={"response_mode": "prose_only"})])
    (tmp_path / "mix.yaml").write_text(_MIX)
    monkeypatch.setenv("VOX_BENCHMARK_DIR", str(write_bench(tmp_path / "bench", task())))
    return tmp_path


def _mix(folder: Path, *options: str) -> Result:
    return invoke("corpus", "mix", "--config", folder / "mix.yaml", "--data-dir", folder, *options)


@pytest.mark.slow
def test_mix_writes_the_train_set_and_reports_its_sources(folder: Path) -> None:
    result = _mix(folder)
    output = folder / "out" / "train.jsonl"
    num_train = 60 - len(_HELD)

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"held out {len(_HELD)}/61 ({100 * len(_HELD) / 61:.1f} %) source files",
        f"held out {len(_HELD)} pairs; set aside:",
        "     1  duplicate",
        f"pairs.jsonl              {num_train} distinct, share 1.000 of 1.000 requested",
        "     1  lane_not_trained",
        "told.jsonl                0 distinct, share 0.000 of 0.000 requested  missing_file_optional",
        f"{num_train} rows in {output}, {num_train} of them distinct",
    ]
    found = f"{len(_HELD)} programs from {len(_HELD)} files, expected 160 from 30"
    assert result.stderr.startswith(
        f"A small eval suite: {found}; {len(_HELD)} of 61 files are held out. Add programs, or "
    )
    scored = [pair.source and pair.source.path for pair in read_pairs(output.with_name("heldout.jsonl"))]
    trained = [pair.source and pair.source.path for pair in read_pairs(output)]
    assert sorted(scored, key=str) == sorted(_HELD)
    assert sorted([*scored, *trained], key=str) == sorted(_PATHS)
    assert json.loads((folder / "out" / "aside.jsonl").read_text())["reason"] == "duplicate"
    assert {path.name for path in output.parent.iterdir()} == {
        *("train.jsonl", "train.parquet", "train.mix_report.json", "heldout.jsonl", "aside.jsonl"),
        "families.jsonl",
    }


@pytest.mark.slow
def test_infill_cuts_holes_that_mix_adds_to_the_train_set(folder: Path) -> None:
    _mix(folder)
    before = (folder / "out" / "train.jsonl").read_bytes()
    cut = invoke("corpus", "infill", folder / "pairs.jsonl", "-o", folder / "rows.jsonl", "--per-file", "2")
    report = json.loads(_mix(folder, "--infill-share", "0.25", "--json").stdout)
    rows = list(read_pairs(folder / "out" / "train.jsonl"))

    assert cut.exit_code == 0
    assert "line " in cut.stdout
    assert "     1  no_program" in cut.stdout
    assert all(row.infill is not None for row in read_pairs(folder / "rows.jsonl"))
    assert report["infill"]["num_rows"] >= report["sources"][-1]["emitted_lines"]
    assert report["sources"][-1]["path"] == "infill.jsonl"
    assert sum(row.infill is not None for row in rows) == round(0.25 * len(rows))
    held = {row.source and row.source.path for row in read_pairs(folder / "out" / "heldout.jsonl")}
    assert not {row.source and row.source.path for row in rows} & held
    _mix(folder, "--infill-share", "0")
    assert (folder / "out" / "train.jsonl").read_bytes() == before


def test_mix_prints_its_report_for_machines(folder: Path) -> None:
    report = json.loads(_mix(folder, "--json").stdout)

    assert report == json.loads((folder / "out" / "train.mix_report.json").read_text())
    assert report["config_path"] == str(folder / "mix.yaml")
    assert report["output_path"] == str(folder / "out" / "train.jsonl")
    assert report["config"]["include_lanes"] == ["vox_codegen"]
    assert report["split"]["heldout"] == len(_HELD)
    assert report["sources"][0]["dropped"]["lane_not_trained"] == 1


def test_mix_gives_the_same_bytes_twice(folder: Path) -> None:
    _mix(folder)
    first = {path.name: path.read_bytes() for path in (folder / "out").iterdir()}
    _mix(folder)

    assert {path.name: path.read_bytes() for path in (folder / "out").iterdir()} == first


def test_a_source_of_weight_zero_hides_nothing(folder: Path) -> None:
    (folder / "zero.jsonl").write_bytes((folder / "pairs.jsonl").read_bytes())
    (folder / "mix.yaml").write_text(_MIX.replace("sources:", "sources:\n  - path: zero.jsonl\n    weight: 0"))
    report = json.loads(_mix(folder, "--json").stdout)

    assert report["split"]["aside"]["duplicate"] == 1
    assert report["split"]["heldout"] == len(_HELD)
    assert report["sources"][0]["skipped_reason"] == "weight_zero"


def test_the_mix_of_the_project_is_used_when_none_is_named(folder: Path) -> None:
    result = invoke("corpus", "mix", "--data-dir", folder)

    assert result.exit_code == 0
    assert result.stdout.endswith("of them distinct\n")
    assert (folder / "train.jsonl").is_file()


def test_mix_refuses_a_source_that_is_missing(folder: Path) -> None:
    (folder / "pairs.jsonl").unlink()
    done = run_main("corpus", "mix", "--config", "mix.yaml", folder=folder)

    assert done.returncode == 1
    assert done.stderr.startswith("mens: pairs.jsonl: the file is missing. ")
    assert done.stderr.count("\n") == 1
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("sources: [", "not YAML"),
        ("sources: 3\n", "sources: Input should be"),
        ("sources: [{path: a, weigth: 2}]\n", "sources.0.weigth: unknown"),
        ("sources: [{path: .}]\n", "expected a path below the data folder"),
        ("sources: [{path: rows}]\n", "Name a readable file of JSON lines"),
    ],
)
def test_an_invalid_mix_is_misuse(folder: Path, content: str, problem: str) -> None:
    (folder / "mix.yaml").write_text(content)
    (folder / "rows").mkdir()
    done = run_main("corpus", "mix", "--config", "mix.yaml", folder=folder)

    assert done.returncode == 2
    assert problem in done.stderr


def test_stats_print_the_figures_of_a_file(folder: Path) -> None:
    with (folder / "pairs.jsonl").open("a") as rows:
        rows.write("nope\n")
    lines = invoke("corpus", "stats", folder / "pairs.jsonl").stdout.splitlines()

    assert lines[:2] == ["rows 62, distinct 61/62 (98.4 %)", "source files 61, unreadable rows 1"]
    assert lines[2].startswith("prompt characters: median 10, 95 % 10, longest 11")
    assert lines[3].startswith("response characters: median ")
    assert lines[4:7] == ["lane", "      61  vox_codegen", "       1  vox_docs_qa"]


def test_stats_print_one_document_for_machines(folder: Path) -> None:
    figures = json.loads(invoke("corpus", "stats", folder / "pairs.jsonl", "--json").stdout)

    assert (figures["num_rows"], figures["num_distinct"], figures["num_sources"]) == (62, 61, 61)
    assert figures["counts"]["lane"] == {"vox_codegen": 61, "vox_docs_qa": 1}


def test_stats_accept_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").touch()
    result = invoke("corpus", "stats", tmp_path / "rows.jsonl")

    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == "rows 0, distinct 0/0"
