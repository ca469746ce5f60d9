"""What is written beside an adapter."""

import json
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.training.contract import LIBRARIES
from mens_pipeline.training.manifest import card_of, training_manifest, write_manifest
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline_tests.training.runs import prepared, resolved
from mens_pipeline_tests.training.small_folder import write_folder

RESULT: dict[str, Any] = {
    "n_layers": 2,
    "n_heads": 4,
    "num_rows": 16,
    "num_train": 15,
    "longest": 77,
    "num_steps": 4,
    "trained_tokens": 1234,
    "seconds": 61.7,
    "train_loss": 0.51239,
    "validation_loss": None,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> PreparedRun:
    """A run on a base of a few bytes."""
    folder = tmp_path_factory.mktemp("manifest")
    return prepared(write_folder(folder / "base"), folder)


def _manifest(run: PreparedRun, vcs_sha: str | None = None, **result: Any) -> dict[str, Any]:
    return training_manifest(run, resolved(run.job.base_path), {**RESULT, **result}, vcs_sha)


def test_the_manifest_says_all_that_made_the_adapter(run: PreparedRun) -> None:
    """Recipe and where it came from, base, train set, versions, result."""
    manifest = _manifest(run)

    assert (manifest["manifest_schema_version"], manifest["backend"], manifest["tokenizer"]) == (5, "qlora", "hf")
    assert manifest["recipe"]["lora_r"] == 4
    assert (manifest["recipe_origins"]["lora_r"], manifest["recipe_origins"]["seed"]) == ("flag", "default")
    assert (manifest["preset"], manifest["domain"]) == (None, None)
    assert manifest["contract_digest"] == run.job.contract_digest
    assert manifest["train_sha256"] == run.contract["train_sha256"]
    assert manifest["base_model"]["sha256"] == run.base.sha256
    assert (manifest["n_layers"], manifest["n_heads"]) == (2, 4)
    assert set(manifest["libraries"]) == set(LIBRARIES)
    assert manifest["result"] == RESULT
    assert json.loads(json.dumps(manifest)) == manifest


@pytest.mark.parametrize(("vcs_sha", "name"), [("0123abcd", "lora-adapter-0123abcd"), (None, "lora-adapter")])
def test_an_adapter_is_named_after_the_commit(run: PreparedRun, vcs_sha: str | None, name: str) -> None:
    """Where there is one."""
    manifest = _manifest(run, vcs_sha)

    assert (manifest["name"], manifest["vcs_sha"]) == (name, vcs_sha)
    assert f"\n# {name}\n" in card_of(manifest)


def test_the_card_is_for_people(run: PreparedRun) -> None:
    """The head that the Hub reads, and a table of what counts."""
    card = card_of(_manifest(run))
    cells = [line.strip("| ").split(" | ") for line in card.splitlines() if line.startswith("| ")]
    rows = {cell[0]: cell[1] for cell in cells[1:]}
    head = card.split("---\n")[1]

    assert head == f"base_model: {run.base.name}\nlibrary_name: peft\ntags: [vox, qlora]\n"
    assert rows["licence of the base"] == "not stated"
    assert rows["method"] == "QLoRA: NF4 with double quantisation"
    assert rows["adapter"] == "rank 4, alpha 8, on all-linear"
    assert rows["rows"] == "15 of 16, longest 77 tokens"
    assert rows["updates"] == "4, 1234 tokens in 62 s"
    assert rows["loss"] == "0.5124 on average while training"
    assert rows["loss on other files"] == "not measured"
    assert rows["contract"] == f"`{run.job.contract_digest[:12]}`"
    assert run.job.system_prompt in card


def test_the_card_says_what_was_measured(run: PreparedRun) -> None:
    """The loss on files that did not train, the licence, and one quantisation where there was one."""
    manifest = _manifest(run, validation_loss=0.25)
    manifest["base_model"]["licence"] = "apache-2.0"
    manifest["recipe"]["bnb_4bit_use_double_quant"] = False
    card = card_of(manifest)

    assert "| loss on other files | 0.2500 |" in card
    assert "| licence of the base | apache-2.0 |" in card
    assert "| method | QLoRA: NF4 |" in card


def test_both_are_written_in_their_places(run: PreparedRun, tmp_path: Path) -> None:
    """The manifest in the folder of the run, the card beside the adapter."""
    (tmp_path / "adapter").mkdir()
    manifest = _manifest(run)
    write_manifest(tmp_path, manifest)

    assert json.loads((tmp_path / "training_manifest.json").read_text()) == manifest
    assert (tmp_path / "adapter" / "README.md").read_text() == card_of(manifest)
