"""`mens train`: its flags, dry runs, warnings and folders."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mens_pipeline.cli.main import app
from mens_pipeline.cli.train import _summary
from mens_pipeline.models.adapter import Adapter, TrainingManifest
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline_tests.cli.invoking import invoke, refusal
from mens_pipeline_tests.evaluation.runs import training_manifest
from mens_pipeline_tests.training.runs import pairs


def test_an_unsupported_provider_names_the_command_with_given_folders() -> None:
    result = invoke("train", "--data-dir", "D", "--output-dir", "O", "--provider", "local")

    assert "Run: mens train --backend qlora --data-dir D --output-dir O --preset auto" in refusal(result)


def _dry_run(base: Path, folder: Path, *options: str, number: int = 60) -> Result:
    write_jsonl(folder / "train.jsonl", pairs(number))
    options = ("--model", str(base), "--device", "cpu", "--preset", "tiny", "--seq-len", "200", *options)
    places = ("--data-dir", str(folder), "--output-dir", str(folder / "run"))
    arguments = ["train", "--dry-run", "--fast-corpus", *places, *options]
    return CliRunner().invoke(app, arguments, env={"MENS_CACHE_ROOT": str(folder / "cache")})


@pytest.mark.slow
def test_a_dry_run_is_a_table_or_a_document(tiny_base: Path, tmp_path: Path) -> None:
    table, document = _dry_run(tiny_base, tmp_path), _dry_run(tiny_base, tmp_path, "--json")
    preflight = json.loads(document.stdout)

    assert "training rows                57 of 60\n" in table.stdout
    assert "max_length                   200  (--seq-len)\n" in table.stdout
    assert "lora_r                       4  (preset tiny)\n" in table.stdout
    assert preflight["recipe_origins"]["model_name_or_path"] == "--model"
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_an_error_names_its_flag(tiny_base: Path, tmp_path: Path) -> None:
    result = _dry_run(tiny_base, tmp_path, "--rank", "0", "--set", "max_grad_norm=-1")

    assert "lora_r: Input should be greater than or equal to 1 (--rank)" in str(result.exception)
    assert "max_grad_norm: Input should be greater than 0 (--set max_grad_norm)" in str(result.exception)


@pytest.mark.slow
def test_rows_that_are_too_long_are_reported_with_the_flag(tiny_base: Path, tmp_path: Path) -> None:
    result = _dry_run(tiny_base, tmp_path, "--seq-len", "133", number=160)

    assert re.search(r"longer than max_length, 133 tokens \(--seq-len\): vox_codegen \d+ rows \(\d+ %", result.stderr)


@pytest.mark.parametrize(("shown", "is_warned"), [(0, True), (9, False)])
def test_the_summary_warns_of_a_kind_that_was_never_shown(shown: int, *, is_warned: bool) -> None:
    document = training_manifest()
    kind = {"rows": 3, "rows_too_long": 1, "tokens_shown": shown, "share": 0.0, "epochs": 0.0}
    document["result"]["kinds"] = {"telemetry": kind}
    lines = _summary(TrainingManifest.model_validate(document), Path("run")).splitlines()

    assert lines[1].startswith("shown: telemetry ")
    assert ("warning: no rows were shown of telemetry (4 rows)" in lines) is is_warned


@pytest.mark.slow
@pytest.mark.usefixtures("jobs_here")
@pytest.mark.seed_row(38)
def test_a_run_is_stored_by_its_id_and_linked_as_latest(
    tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "train.jsonl", pairs(60))
    common = ["train", "--data-dir", ".", "--model", str(tiny_base), "--device", "cpu", "--preset", "tiny"]
    common += ["--seq-len", "200", "--max-steps", "1", "--json"]
    manifests = []
    for seed in ("1", "2", "1"):
        result = CliRunner().invoke(app, [*common, "--seed", seed], env={"MENS_CACHE_ROOT": str(tmp_path / "cache")})
        assert result.exit_code == 0, result.output
        manifests.append(Adapter.open(Path("runs/latest")).manifest)
    folders = sorted(path.name for path in Path("runs").iterdir() if not path.is_symlink())

    first, second, again = (manifest.contract_digest for manifest in manifests)
    assert first == again != second
    assert folders == sorted({first[:12], second[:12]})
    assert Path("runs/latest").readlink() == Path(first[:12])

    Path("runs/latest").unlink()
    Path("runs/latest").mkdir()
    result = CliRunner().invoke(app, [*common, "--seed", "1"], env={"MENS_CACHE_ROOT": str(tmp_path / "cache")})
    assert "a folder, but this name is for the link to the newest run" in str(result.exception)
