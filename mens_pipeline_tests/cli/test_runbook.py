"""The commands of upstream's pages, word for word; only `vox mens` is `mens`.

If a page sets `$env:NAME="value"` in PowerShell and starts `vox.exe`, it is `NAME=value vox` here.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mens_pipeline import settings
from mens_pipeline.corpus.schema.records import SourceKind, read_pairs, read_records
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.jsonl import open_rows
from mens_pipeline_tests.cli.invoking import run_main
from mens_pipeline_tests.e2e.whole_graph import write_config
from mens_pipeline_tests.jobs.processes import do_here
from mens_pipeline_tests.training.runs import FAST
from mens_pipeline_tests.training.tiny_base import write_tiny_base

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

_LINES: tuple[str, ...] = (
    "vox generate-data --limit {limit} --output mens/data/train.jsonl",
    "vox mens corpus extract examples/golden/ -o mens/data/validated.jsonl",
    "vox mens corpus extract docs/ -o mens/data/validated.jsonl",
    "vox mens corpus validate mens/data/validated.jsonl --no-recheck -o mens/data/validated.jsonl",
    (
        "vox mens corpus pairs mens/data/validated.jsonl -o target/dogfood/train.jsonl "
        "--docs docs/src/ --docs docs/src/research/ --docs docs/src/adr/"
    ),
    "VOX_BACKEND=cpu vox mens train --data-dir target/dogfood --output-dir target/dogfood/run",
    "vox mens corpus eval target/dogfood/validated_mixed.jsonl -o mens/runs/latest/eval_results.json",
    "VOX_BACKEND=cpu vox train --data-dir target/dogfood --output-dir mens/runs/v1",
    (
        "vox mens eval-local --model target/dogfood/run --bench mens/data/heldout_bench --max-tokens 128 "
        "--temperature 0.0 --samples 1 --seed-base 1337"
    ),
    "vox mens corpus mix --config mens/config/mix.yaml",
)
"""In the order of the pages; each works, and later ones read files of earlier ones. The pages generate 500 rows."""

_REFUSED: tuple[tuple[str, int, str], ...] = (
    ("vox mens train --device cuda --data-dir target/dogfood --output-dir target/dogfood/run", 1, "--device cpu"),
    ("vox mens train --device cuda --data-dir target/dogfood --output-dir mens/runs/latest", 1, "--device cpu"),
    ("vox mens train --preset qwen_4080_16g --device cuda", 1, "--device cpu"),
    ("vox mens train --backend lora", 1, "Use --backend qlora"),
    ("vox mens train --qlora-allow-partial-proxy-stack", 1, "All targeted layers are always trained"),
    ("vox train --provider local", 1, "Run: mens train --backend qlora"),
    ("vox train --provider together", 1, "no remote service trains"),
    ("vox train --native", 1, "mens training native"),
    (
        "vox training native --data-dir target/dogfood --output-dir target/dogfood/run",
        2,
        "Name a readable file of JSON",
    ),
    ("vox mens merge-weights mens/runs/v1 --output-dir mens/runs/mean", 2, "Name a run of `mens scratch train`"),
    ("vox mens serve --model target/dogfood/run --port 11434", 1, "needs config.json, tokenizer.json and weights"),
    ("vox mens serve --run-dir target/dogfood/run", 1, "Name the folder of a complete run"),
    ("vox mens corpus merge", 2, "Use `mens corpus mix`"),
    ("vox mens corpus extract-docs docs/src", 2, "Use `mens corpus extract DIR -o FILE`"),
    ("vox mens corpus evol mens/data/train.jsonl -o target/dogfood/evolved.jsonl", 1, "Set EVOL_GATE=1"),
    ("vox mens eval-gate --run-dir target/dogfood/run --policy mens/config/eval-gates.yaml", 2, "Use `mens gate"),
)
"""A line, its exit code and its advice, on a machine without a GPU."""

_MIX = """
sources:
  - path: target/dogfood/train.jsonl
    weight: 6.0
  - path: target/dogfood/vox_corpus_extract_pkg.jsonl
    weight: 2.0
    optional: true
  - path: mens/data/train.jsonl
    weight: 0.5
    sample_rate: 0.5
  - path: mens/data/tool_traces.jsonl
    weight: 4.0
    record_format: tool_trace
    optional: true
output: mens/data/train_mixed.jsonl
include_lanes: [vox_codegen, vox_tooling, vox_docs_qa, vox_lang_tier_b]
exclude_lanes: [vox_speech, vox_rust_expert_cross]
"""
"""Upstream's keys; a file that nothing here writes is optional."""

_PAGE = (
    "---\ntitle: {0}\ntraining_eligible: {1}\n---\n\n## {0}\n\nWrite {0}.\n\n"
    "```vox\nfn {0}(a: int) to int {{\n    return a\n}}\n```\n"
)
_BENCH = "mens/data/heldout_bench"
_BENCH_TASKS = 3


def _parse_line(line: str) -> tuple[list[str], dict[str, str]]:
    words = shlex.split(line)
    variables = dict(word.split("=", 1) for word in words if words.index(word) < words.index("vox"))
    words = words[words.index("vox") + 1 :]
    return words[1:] if words[0] == "mens" else words, variables


_RunLine = Callable[[str, Path], "subprocess.CompletedProcess[str]"]


def _write_workspace(folder: Path, programs: str) -> None:
    data = PROJECT_ROOT / "data"
    shutil.copytree(data / "golden" / programs, folder / "examples" / "golden")
    shutil.copytree(data / "docs", folder / "docs" / "src")
    roots = "golden_roots: [examples/golden]\nnegative_roots: [examples/parser-inventory]\ndoc_roots: [docs/src]\n"
    (folder / "examples" / "examples.ssot.v1.yaml").write_text(roots)
    for name, eligible in (("research", "true"), ("adr", "false")):
        (folder / "docs" / "src" / name).mkdir()
        (folder / "docs" / "src" / name / "page.md").write_text(_PAGE.format(f"f_{name}", eligible))
    (folder / "mens" / "config").mkdir(parents=True)
    (folder / "mens" / "config" / "mix.yaml").write_text(_MIX)
    bench = shutil.copytree(data / "heldout_bench", folder / _BENCH, ignore=shutil.ignore_patterns("humaneval_vox"))
    manifest = json.loads((bench / "manifest.json").read_text())
    (bench / "manifest.json").write_text(
        json.dumps({**manifest, "benchmarks": manifest["benchmarks"][:_BENCH_TASKS]}), encoding="utf-8"
    )


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A base that trains in seconds, a short eval suite, a separate store, no GPU."""
    folder = tmp_path_factory.mktemp("machine")
    recipe = {**FAST, "model_name_or_path": write_tiny_base(folder / "base"), "max_steps": 3, "max_length": 512}
    return {
        **os.environ,
        **{f"MENS_TRAIN_{name.upper()}": str(value) for name, value in recipe.items()},
        "MENS_STORE_ROOT": str(folder / "store"),
        "MENS_CACHE_ROOT": str(folder / "cache"),
        "MENS_CONFIG_ROOT": str(write_config(folder, {"syntax": "free"}, {"first_heldout_tasks": 6, "max_rounds": 1})),
        "MENS_NUM_WORKERS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "EVOL_GATE": "0",
    }


@pytest.fixture(scope="module", params=[("core", 60), pytest.param((".", 500), marks=pytest.mark.nightly)])
def size(request: pytest.FixtureRequest) -> tuple[str, int]:
    """The folder of golden programs that the workspace has, and how many rows are generated."""
    folder, limit = request.param
    return folder, limit


@pytest.fixture(scope="module")
def run_line(environment: dict[str, str], size: tuple[str, int]) -> Iterator[_RunLine]:
    """Run a line in this process, with its jobs; a nightly test starts a process, as people do."""

    def run(line: str, folder: Path) -> "subprocess.CompletedProcess[str]":
        arguments, variables = _parse_line(line)
        given = {**environment, **variables}
        if size[0] == "core":
            return run_main(*arguments, folder=folder, variables={**given, "VOX_BENCHMARK_DIR": _BENCH})
        command = [sys.executable, "-m", "mens_pipeline.cli", *arguments]
        return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, check=False, timeout=600)

    config = Path(environment["MENS_CONFIG_ROOT"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "EVALUATION", config / "evaluation.yaml")
        patch.setattr(settings, "GATE_POLICY", config / "gates.yaml")
        patch.setattr("mens_pipeline.cli.terminal.run_job", do_here)
        patch.setattr("torch.cuda.is_available", lambda: False)
        yield run


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, run_line: _RunLine, size: tuple[str, int]) -> Path:
    """A workspace in which all lines have run in order."""
    folder = tmp_path_factory.mktemp("workspace")
    programs, limit = size
    _write_workspace(folder, programs)
    for line in (line.format(limit=limit) for line in _LINES):
        done = run_line(line, folder)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return folder


@pytest.mark.seed_row(1)
def test_generates_the_requested_number_of_rows(workspace: Path, size: tuple[str, int]) -> None:
    assert len(list(read_pairs(workspace / "mens" / "data" / "train.jsonl"))) == size[1]


def _count_programs(workspace: Path) -> int:
    return len(list((workspace / "examples" / "golden").rglob("*.vox*")))


def test_both_extractions_are_in_one_file(workspace: Path) -> None:
    path = workspace / "mens" / "data" / "validated.jsonl"
    with open_rows(path) as lines:
        records = list(read_records(lines, path))
    paths = {record.source.path for record in records}

    assert {record.source.kind for record in records} == {
        *(SourceKind.VOX_FILE, SourceKind.VOX_DECLARATION, SourceKind.DOC_BLOCK, SourceKind.DOC_SECTION)
    }
    assert len({path for path in paths if path.startswith("examples/golden/")}) > 0.8 * _count_programs(workspace)
    assert "docs/src/research/page.md" in paths
    assert "docs/src/adr/page.md" not in paths


@pytest.mark.seed_row(7)
def test_pages_of_overlapping_folders_give_each_pair_once(workspace: Path) -> None:
    pairs = list(read_pairs(workspace / "target" / "dogfood" / "train.jsonl"))

    assert len({(pair.prompt, pair.response) for pair in pairs}) == len(pairs) > 3 * _count_programs(workspace)
    assert len([pair for pair in pairs if "fn f_research(" in pair.response]) == 1
    assert not [pair for pair in pairs if "fn f_adr(" in pair.response]


@pytest.mark.seed_row(8, 37)
def test_training_writes_the_input_of_the_next_step(workspace: Path) -> None:
    dogfood = workspace / "target" / "dogfood"
    mixed = dogfood / "validated_mixed.jsonl"
    report = json.loads(mixed.with_suffix(".mix_report.json").read_text())
    figures = json.loads((workspace / "mens" / "runs" / "latest" / "eval_results.json").read_text())
    heldout = {pair.prompt for pair in read_pairs(dogfood / "heldout.jsonl")}

    assert [source["path"] for source in report["sources"]] == ["train.jsonl", "infill.jsonl"]
    assert (
        report["total_emitted"] == len(list(read_pairs(mixed))) == figures["num_code_rows"] + figures["num_prose_rows"]
    )
    assert len(heldout) > 100
    assert not heldout & {pair.prompt for pair in read_pairs(mixed)}
    assert (figures["measured"], figures["gate_passed"], figures["min_parse_rate"]) == ("data", True, 0.7)


@pytest.mark.seed_row(9, 43)
def test_the_mix_accepts_upstreams_file(workspace: Path) -> None:
    report = json.loads((workspace / "mens" / "data" / "train_mixed.mix_report.json").read_text())

    assert [source["skipped_reason"] for source in report["sources"]] == [
        None,
        "missing_file_optional",
        None,
        "missing_file_optional",
    ]


@pytest.mark.seed_row(12, 18, 29, 36)
@pytest.mark.parametrize("folder", ["target/dogfood/run", "mens/runs/v1"])
def test_training_uses_the_given_folders_and_device(workspace: Path, folder: str) -> None:
    run = workspace / folder
    manifest = json.loads((run / "training_manifest.json").read_text())

    assert (run / "adapter" / "adapter_model.safetensors").is_file()
    assert manifest["result"]["device"] == "cpu"
    assert Path(manifest["train_file"]) == workspace / "target" / "dogfood" / "validated_mixed.jsonl"


@pytest.mark.seed_row(21)
def test_the_adapter_is_evaluated_on_the_named_benchmark(workspace: Path) -> None:
    report = json.loads((workspace / "target" / "dogfood" / "run" / "eval_local_report.json").read_text())

    assert (report["total"], report["k"], report["seed_base"], report["max_tokens"]) == (_BENCH_TASKS, 1, 1337, 128)
    assert report["bench"] == "heldout_bench"


@pytest.mark.seed_row(37)
def test_a_missing_file_names_the_command_that_writes_it(workspace: Path, run_line: _RunLine) -> None:
    gate = run_line("vox mens gate --run-dir mens/runs/latest", workspace)
    evaluation = run_line("vox mens eval-local --run-dir mens/runs/latest", workspace)

    assert (gate.returncode, evaluation.returncode) == (1, 1)
    assert "Run `mens eval-local --run-dir mens/runs/latest` first" in gate.stderr
    assert "`mens corpus eval` checks data, not a model" in gate.stderr
    assert "Name the folder of a complete run of `mens train`" in evaluation.stderr


def test_the_gate_refuses_random_weights(workspace: Path, run_line: _RunLine) -> None:
    done = run_line("vox mens gate --run-dir target/dogfood/run", workspace)

    assert done.returncode == 1
    assert (workspace / "target" / "dogfood" / "run" / "eval_gate_failed.json").is_file()


@pytest.mark.seed_row(25)
@pytest.mark.parametrize(("line", "code", "advice"), _REFUSED, ids=[line for line, _, _ in _REFUSED])
def test_a_refused_line_gives_advice(  # noqa: PLR0913, PLR0917 - a line, and where it is typed
    line: str, code: int, advice: str, tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)  # in any order of tests, on any machine
    arguments, variables = _parse_line(line)
    done = run_main(*arguments, folder=tmp_path, variables={**environment, **variables})

    assert done.returncode == code, done.stderr
    assert advice in done.stderr
    assert list(tmp_path.iterdir()) == []
