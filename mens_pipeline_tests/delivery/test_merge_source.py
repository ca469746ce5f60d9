"""Which adapter is merged, and what is refused by name."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.delivery.merge_prompts import prompts_of
from mens_pipeline.delivery.merge_source import lane_of, merge_source
from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.prepare import adapter_digest
from mens_pipeline.promotion.history import HISTORY, champion_key
from mens_pipeline.promotion.history import KIND as PROMOTED
from mens_pipeline.promotion.receipt import RECEIPT
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline.training.manifest import MANIFEST
from mens_pipeline_tests.delivery.delivered import HELDOUT, promoted_run

pytestmark = pytest.mark.slow


def _fits(_text: str) -> bool:
    return True


def test_without_a_run_it_is_the_champion(trained: Path, tmp_path: Path) -> None:
    """With its verdict."""
    run, store = promoted_run(trained, tmp_path)
    source = merge_source(None, store)

    assert source.promoted is not None
    assert source.run == source.promoted.path
    assert (source.promoted.key, source.adapter_sha256) == (champion_key(store), adapter_digest(run))
    assert source.receipt is not None
    assert source.receipt.overall_passed
    assert source.verdict_sha256 == source.promoted.manifest["outputs"][RECEIPT]["sha256"]


def test_a_run_that_was_promoted_is_known_again(trained: Path, tmp_path: Path) -> None:
    """By the hash of its weights; until a rollback takes it out of use."""
    run, store = promoted_run(trained, tmp_path)
    log = store.root / PROMOTED / HISTORY
    event = json.loads(log.read_text())
    after = hashlib.sha256(log.read_bytes().rstrip(b"\n")).hexdigest()

    assert merge_source(run, store).promoted is not None
    withdrawn = {**event, "action": "rollback", "adapter_sha256": "0" * 64, "withdrawn_sha256": adapter_digest(run)}
    with log.open("a", encoding="utf-8") as history:
        history.write(f"{json.dumps({**withdrawn, 'after_sha256': after})}\n")
    assert merge_source(run, store).promoted is None


def test_a_run_that_nobody_judged_has_no_verdict(trained: Path, tmp_path: Path) -> None:
    """It can be merged, and says so."""
    source = merge_source(trained, ArtifactStore(tmp_path))

    assert (source.promoted, source.receipt, source.verdict_sha256) == (None, None, None)


def test_a_verdict_on_another_adapter_is_none(trained: Path, tmp_path: Path) -> None:
    """Trained again since, in the same folder."""
    run, store = promoted_run(trained, tmp_path)
    other = tmp_path / "other"
    shutil.copytree(run, other)
    receipt = json.loads((merge_source(None, store).run / RECEIPT).read_text())
    receipt["subject"]["adapter_sha256"] = "0" * 64
    (other / RECEIPT).write_text(json.dumps(receipt))

    assert merge_source(other, ArtifactStore(tmp_path / "none")).receipt is None


def test_a_verdict_that_cannot_be_read_is_refused(trained: Path, tmp_path: Path) -> None:
    """Rather than taken for none."""
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    (run / RECEIPT).write_text("{}")

    with pytest.raises(RefusedError, match=r"gate_receipt\.json: cannot be read\. Run `mens gate"):
        merge_source(run, ArtifactStore(tmp_path / "store"))


def test_no_champion_is_no_merge(tmp_path: Path) -> None:
    """The message names both ways on."""
    with pytest.raises(RefusedError, match=r"no champion\. Promote an adapter, or name one with --run-dir"):
        merge_source(None, ArtifactStore(tmp_path))


@pytest.mark.parametrize("name", [MANIFEST, "manifest.json"])
@pytest.mark.parametrize("manifest", [{"lane": "scratch"}, {"kind": "scratch_model"}], ids=["lane", "kind"])
def test_a_scratch_model_is_told_by_its_lane(tmp_path: Path, name: str, manifest: dict[str, Any]) -> None:
    """Of a run, or of an artifact of the store."""
    (tmp_path / name).write_text(json.dumps(manifest))

    assert lane_of(tmp_path) == "scratch"
    with pytest.raises(RefusedError, match=r"a model of the scratch lane\. .*mens merge-weights"):
        merge_source(tmp_path, ArtifactStore(tmp_path))


@pytest.mark.parametrize("text", ["[]", '"scratch"', "3", "null", "[" * 100_000, "\udcff", "{"])
def test_a_manifest_that_is_none_names_no_lane(tmp_path: Path, text: str) -> None:
    """Whatever stands in it; it is refused by who reads it for more."""
    (tmp_path / MANIFEST).write_text(text, encoding="utf-8", errors="surrogateescape")

    assert lane_of(tmp_path) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "Name the folder of a complete run"),
        ("[", "no JSON"),
        ('{"backend": "lora"}', "backend is lora, expected qlora"),
        ("{}", "backend is nothing"),
    ],
)
def test_what_is_no_run_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    """No manifest, a broken one, one of something else."""
    if content is not None:
        (tmp_path / MANIFEST).write_text(content)

    with pytest.raises(RefusedError, match=f"{message}.*"):
        merge_source(tmp_path, ArtifactStore(tmp_path))


def test_requests_are_those_that_it_was_judged_by(trained: Path, tmp_path: Path) -> None:
    """Beside the train set, or in a split of the store; another file under the same name is not taken."""
    _, store = promoted_run(trained, tmp_path)
    source = merge_source(None, store)
    found = prompts_of(source, None, store, _fits, 2)
    moved = {**source.manifest, "train_file": str(tmp_path / "train.jsonl")}
    (tmp_path / HELDOUT).write_text("another\n")
    split = store.root / "heldout_split" / "s"
    split.mkdir(parents=True)
    shutil.copy2(trained.parent / HELDOUT, split / HELDOUT)
    elsewhere = type(source)(source.run, moved, source.adapter_sha256, None, source.receipt, source.receipt_path)

    assert [task.id for task in found.tasks] == ["heldout/0000", "heldout/0002"]
    assert prompts_of(elsewhere, None, store, _fits, 2) == found
    (split / HELDOUT).unlink()
    with pytest.raises(RefusedError, match=r"which it was judged by.*--heldout FILE"):
        prompts_of(elsewhere, None, store, _fits, 2)


def test_requests_may_be_named(trained: Path, tmp_path: Path) -> None:
    """Where nothing is beside the train set, or no answer fits."""
    source = merge_source(trained, ArtifactStore(tmp_path))
    lost = type(source)(trained, {**source.manifest, "train_file": str(tmp_path / "t.jsonl")}, "", None, None, None)
    named = trained.parent / HELDOUT

    assert len(prompts_of(lost, named, ArtifactStore(tmp_path), _fits, 9).tasks) == 4
    with pytest.raises(RefusedError, match=r"no held-out pairs beside the train set\. Name them with --heldout"):
        prompts_of(lost, None, ArtifactStore(tmp_path), _fits, 9)
    with pytest.raises(RefusedError, match="no held-out code whose answer fits"):
        prompts_of(lost, named, ArtifactStore(tmp_path), lambda _text: False, 9)
