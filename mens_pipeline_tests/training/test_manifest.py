"""The manifest beside an adapter."""

import json
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.corpus.schema.records import HoleKind, InfillContext, TrainingPair
from mens_pipeline.models.card import DataSource, data_sources
from mens_pipeline.models.chat import IM_END, IM_START
from mens_pipeline.training.examples import open_examples
from mens_pipeline.training.preflight import LIBRARIES
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline.training.qlora_adapter import training_manifest
from mens_pipeline.training.recipe import Continued
from mens_pipeline_tests.corpus.rows import mix_report
from mens_pipeline_tests.training import manifests
from mens_pipeline_tests.training.encoded import continued_at
from mens_pipeline_tests.training.runs import prepare_fast
from mens_pipeline_tests.training.small_folder import FIM_MARKS, Encoder, write_folder

RESULT: dict[str, Any] = {
    **manifests.RESULT,
    "n_layers": 2,
    "n_heads": 4,
    "train_loss": 0.51239,
    "kinds": {
        "raw": {"share": 0.25, "tokens_shown": 3000, "epochs": 1.5},
        "task": {"share": 0.75, "tokens_shown": 9000, "epochs": 0.5},
    },
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> PreparedRun:
    """A run on a base of a few bytes."""
    folder = tmp_path_factory.mktemp("manifest")
    return prepare_fast(write_folder(folder / "base"), folder)


def _manifest(run: PreparedRun, vcs_sha: str | None = None, **result: Any) -> dict[str, Any]:
    return training_manifest(run, {**RESULT, **result}, vcs_sha).as_json()


@pytest.mark.seed_row(13, 15, 56, 58)
def test_the_manifest_contains_everything_that_determines_the_adapter(run: PreparedRun) -> None:
    manifest = _manifest(run)

    assert (manifest["manifest_schema_version"], manifest["backend"], manifest["tokenizer"]) == (8, "qlora", "hf")
    assert (manifest["adapter_method"], manifest["quant"]) == ("qlora", {"base_quant": "nf4", "double_quant": True})
    assert manifest["recipe"]["lora_r"] == 4
    assert (manifest["recipe_origins"]["lora_r"], manifest["recipe_origins"]["seed"]) == ("flag", "default")
    assert (manifest["preset"], manifest["domain"]) == (None, None)
    assert manifest["vox_backend"] is None
    assert training_manifest(run, RESULT, None, "cpu").vox_backend == "cpu"
    assert manifest["contract_digest"] == run.job.contract_digest
    assert manifest["train_sha256"] == run.contract["train_sha256"]
    assert manifest["base_model"]["sha256"] == run.base.sha256
    assert (manifest["n_layers"], manifest["n_heads"]) == (2, 4)
    assert set(manifest["libraries"]) == set(LIBRARIES)
    assert manifest["result"] == RESULT
    assert json.loads(json.dumps(manifest)) == manifest


def test_rows_at_a_cursor_have_the_order_of_the_pretraining(tmp_path: Path) -> None:
    """A base that was pretrained with the prefix first keeps it; a continued run keeps the order of the earlier one."""
    base = write_folder(tmp_path / "base", special=(IM_START, IM_END, *FIM_MARKS))
    holes = [
        TrainingPair(
            prompt=f"fn f{row}(n: int) to int {{\n    return ",
            response="n",
            infill=InfillContext(kind=HoleKind.LINE, suffix=f" + {row}\n}}\n"),
            category="function",
            difficulty=2,
        )
        for row in range(16)
    ]

    def manifest_and_first_ids(run: PreparedRun) -> tuple[str, set[int]]:
        rows = open_examples(run.job).train
        return training_manifest(run, RESULT, None).infill_order, {row.prompt[0] for row in rows}

    def run_after(before: Continued | None, name: str) -> PreparedRun:
        return prepare_fast(base, tmp_path / name, rows=holes, continues=before)

    prefix, suffix = (Encoder((IM_START, IM_END, *FIM_MARKS)).id_of(mark) for mark in FIM_MARKS[:2])
    assert manifest_and_first_ids(run_after(None, "new")) == ("prefix_first", {prefix})
    assert manifest_and_first_ids(run_after(continued_at(0), "further")) == ("suffix_first", {prefix, suffix})


@pytest.mark.seed_row(34, 44)
@pytest.mark.parametrize(("vcs_sha", "name"), [("0123abcd", "lora-adapter-0123abcd"), (None, "lora-adapter")])
def test_an_adapter_is_named_after_the_commit(run: PreparedRun, vcs_sha: str | None, name: str) -> None:
    manifest = _manifest(run, vcs_sha)

    assert (manifest["name"], manifest["vcs_sha"]) == (name, vcs_sha)


def test_reads_the_sources_of_a_train_set_from_the_report_beside_it(run: PreparedRun, tmp_path: Path) -> None:
    train = tmp_path / "train.jsonl"
    train.write_bytes(run.job.train_path.read_bytes())
    sources = [
        {"path": "pairs.jsonl", "distinct_lines": 12, "share_of_output": 0.75, "emitted_lines": 12},
        {"path": "telemetry.jsonl", "distinct_lines": 0, "share_of_output": 0.0, "emitted_lines": 0},
    ]
    (tmp_path / "train.mix_report.json").write_text(json.dumps(mix_report(*sources)))
    manifest = training_manifest(run, RESULT, None)
    beside = manifest.model_copy(update={"train_file": train})

    assert data_sources(beside) == (DataSource("pairs.jsonl", 12, 0.75),)
    assert data_sources(beside.model_copy(update={"train_sha256": "0" * 64})) == ()
    assert data_sources(manifest) == ()
