"""Choice of the adapter to merge, and errors that name the problem."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from mens_pipeline.delivery.merge import choose_prompts, merge_source, read_lane, refuse_misfit
from mens_pipeline.errors import RefusedError
from mens_pipeline.models.adapter import MANIFEST, WEIGHTS, Adapter, TrainingManifest, adapter_digest
from mens_pipeline.models.base import digest_of_folder, shapes_in
from mens_pipeline.promotion.history import HISTORY, champion_key
from mens_pipeline.promotion.receipt import RECEIPT
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.delivery.delivered import HELDOUT, promoted_run, with_manifest
from mens_pipeline_tests.training.manifests import manifest_about
from mens_pipeline_tests.training.small_folder import described_base, write_folder

pytestmark = pytest.mark.slow


def _fits(_text: str) -> bool:
    return True


def test_the_default_is_the_champion(trained: Path, tmp_path: Path) -> None:
    run, store = promoted_run(trained, tmp_path)
    source = merge_source(None, store)

    assert source.promoted is not None
    assert source.adapter.path == source.promoted.path
    assert (source.promoted.key, source.adapter.digest) == (champion_key(store), adapter_digest(run))
    assert source.receipt is not None
    assert source.receipt.overall_passed
    assert source.verdict_sha256 == source.promoted.manifest["outputs"][RECEIPT]["sha256"]


def test_recognizes_a_promoted_run(trained: Path, tmp_path: Path) -> None:
    run, store = promoted_run(trained, tmp_path)
    log = store.root / Kind.PROMOTED_ADAPTER / HISTORY
    event = json.loads(log.read_text())
    after = hashlib.sha256(log.read_bytes().rstrip(b"\n")).hexdigest()

    assert merge_source(run, store).promoted is not None
    withdrawn = {**event, "action": "rollback", "adapter_sha256": "0" * 64, "withdrawn_sha256": adapter_digest(run)}
    with log.open("a", encoding="utf-8") as history:
        history.write(f"{json.dumps({**withdrawn, 'after_sha256': after})}\n")
    assert merge_source(run, store).promoted is None


def test_ignores_a_verdict_on_another_adapter(trained: Path, tmp_path: Path) -> None:
    run, store = promoted_run(trained, tmp_path)
    other = tmp_path / "other"
    shutil.copytree(run, other)
    receipt = json.loads((merge_source(None, store).adapter.path / RECEIPT).read_text())
    receipt["subject"]["adapter_sha256"] = "0" * 64
    (other / RECEIPT).write_text(json.dumps(receipt))

    assert merge_source(other, ArtifactStore(tmp_path / "none")).receipt is None


def test_a_run_without_an_evaluation_has_no_verdict(trained: Path, tmp_path: Path) -> None:
    run, store = Path(shutil.copytree(trained, tmp_path / "run")), ArtifactStore(tmp_path / "store")
    source = merge_source(run, store)
    (run / RECEIPT).write_text("{}")

    assert (source.promoted, source.receipt, source.verdict_sha256) == (None, None, None)
    with pytest.raises(RefusedError, match=r"no champion\. Promote an adapter, or name one with --run-dir"):
        merge_source(None, store)
    with pytest.raises(RefusedError, match=r"gate_receipt\.json: invalid receipt \(.*Run `mens gate` again"):
        merge_source(run, store)


@pytest.mark.parametrize("name", [MANIFEST, "manifest.json"])
@pytest.mark.parametrize("manifest", [{"lane": "scratch"}, {"kind": "scratch_model"}], ids=["lane", "kind"])
def test_recognizes_a_scratch_model_by_its_lane(tmp_path: Path, name: str, manifest: dict[str, Any]) -> None:
    (tmp_path / name).write_text(json.dumps(manifest))

    assert read_lane(tmp_path) == "scratch"
    with pytest.raises(RefusedError, match=r"a model of the scratch lane\. .*mens merge-weights"):
        merge_source(tmp_path, ArtifactStore(tmp_path))


@pytest.mark.parametrize("text", ["[]", '"scratch"', "3", "null", "[" * 100_000, "\udcff", "{"])
def test_rejects_a_damaged_manifest(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text, encoding="utf-8", errors="surrogateescape")

    with pytest.raises(RefusedError, match=rf"{MANIFEST}: .*Name the run that it was trained in"):
        read_lane(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "Name the folder of a complete run"),
        ("[", "not JSON"),
        ('{"backend": "lora"}', "backend is lora, expected qlora"),
        ("{}", "backend is nothing"),
    ],
)
def test_rejects_a_folder_that_is_not_a_run(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / MANIFEST).write_text(content)

    with pytest.raises(RefusedError, match=f"{message}.*"):
        merge_source(tmp_path, ArtifactStore(tmp_path))


def test_requests_are_those_of_the_evaluation(trained: Path, tmp_path: Path) -> None:
    _, store = promoted_run(trained, tmp_path)
    source = merge_source(None, store)
    found = choose_prompts(source, None, store, _fits, 2)
    (tmp_path / HELDOUT).write_text("another\n")
    split = store.root / "heldout_split" / "s"
    split.mkdir(parents=True)
    shutil.copy2(trained.parent / HELDOUT, split / HELDOUT)
    elsewhere = replace(with_manifest(source, train_file=tmp_path / "train.jsonl"), promoted=None)

    assert [task.id for task in found.tasks] == ["heldout/0000", "heldout/0002"]
    assert choose_prompts(elsewhere, None, store, _fits, 2) == found
    (split / HELDOUT).unlink()
    with pytest.raises(RefusedError, match=r"on which it was evaluated.*--heldout FILE"):
        choose_prompts(elsewhere, None, store, _fits, 2)


def test_requests_may_be_named(trained: Path, tmp_path: Path) -> None:
    source = merge_source(trained, ArtifactStore(tmp_path))
    lost = replace(
        with_manifest(source, train_file=tmp_path / "t.jsonl"), promoted=None, receipt=None, verdict_sha256=None
    )
    named = trained.parent / HELDOUT

    assert len(choose_prompts(lost, named, ArtifactStore(tmp_path), _fits, 9).tasks) == 4
    with pytest.raises(RefusedError, match=r"no held-out pairs next to the train set\. Name them with --heldout"):
        choose_prompts(lost, None, ArtifactStore(tmp_path), _fits, 9)
    with pytest.raises(RefusedError, match="no held-out code fits the token limit"):
        choose_prompts(lost, named, ArtifactStore(tmp_path), lambda _text: False, 9)


_LAYER = "model.layers.0.self_attn.q_proj"
_A, _B = (f"base_model.model.{_LAYER}.lora_{half}.weight" for half in "AB")
_FITTING: dict[str, tuple[int, ...]] = {_A: (2, 8), _B: (6, 2)}


def _save(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    save_file({name: np.zeros(shape, np.float32) for name, shape in shapes.items()}, path)


def _run(folder: Path, adapter: dict[str, tuple[int, ...]], base: str = f"{_LAYER}.weight") -> Adapter:
    write_folder(folder / "base")
    _save(folder / "base" / "model.safetensors", {base: (6, 8)})
    (folder / "adapter").mkdir()
    _save(folder / "adapter" / WEIGHTS, adapter)
    (folder / "adapter" / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2}))
    sha256 = digest_of_folder(folder / "base")
    about = described_base(folder / "base", name="tiny", sha256=sha256)
    return Adapter(folder, "", TrainingManifest.model_validate(manifest_about(about)))


@pytest.mark.parametrize("base", [f"{_LAYER}.weight", f"model.language_model.{_LAYER[6:]}.weight"])
def test_accepts_an_adapter_that_fits(tmp_path: Path, base: str) -> None:
    adapter = _run(tmp_path, _FITTING, base)
    refuse_misfit(adapter)

    assert shapes_in(adapter.weights) == _FITTING


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({_A: (2, 9), _B: (6, 2)}, r"q_proj is \(6, 8\), the adapter has \(6, 2\) by \(2, 9\), at rank 2"),
        ({_A: (2, 8), _B: (6, 4)}, "at rank 2"),
        ({_A: (2, 8)}, "q_proj has only one of its two matrices"),
        ({_A.replace("0", "7"): (2, 8), _B.replace("0", "7"): (6, 2)}, r"the base has no model\.layers\.7"),
        ({**_FITTING, "base_model.model.lm_head.weight": (1, 1)}, r"lm_head\.weight is not a LoRA matrix"),
        ({}, "it contains no LoRA matrix"),
        ({_A.replace("0", str(number)): (2, 8) for number in range(1, 6)}, r"and 2 more\. "),
    ],
    ids=["shape", "rank", "half", "layer", "more", "empty", "many"],
)
def test_a_foreign_adapter_is_refused(tmp_path: Path, shapes: dict[str, tuple[int, ...]], message: str) -> None:
    adapter = _run(tmp_path, shapes)

    with pytest.raises(RefusedError, match=f"(?s)does not fit tiny: .*{message}.*Name the run that it was trained in"):
        refuse_misfit(adapter)


_CONFIG = "adapter/adapter_config.json"


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        (
            _CONFIG,
            '{"peft_type": "PREFIX_TUNING", "r": 2}',
            r"is PREFIX_TUNING, expected LORA\. Only LoRA adapters are",
        ),
        (_CONFIG, None, r"No such file.*Name the run that it was trained in"),
        (_CONFIG, "[", r"not JSON.*Name the run that it was trained in"),
        (f"adapter/{WEIGHTS}", "\x08\0\0\0\0\0\0\0no json!", r"not a safetensors file\. Fetch or write"),
        ("base/config.json", "{ }", r"is changed\. Restore it, put it below MENS_CACHE_ROOT"),
        ("base", None, r"is gone\. Restore it, put it below MENS_CACHE_ROOT"),
    ],
)
def test_a_damaged_run_is_refused(tmp_path: Path, path: str, content: str | None, message: str) -> None:
    adapter = _run(tmp_path, _FITTING)
    if content is None:
        (tmp_path / path).rename(tmp_path / "elsewhere")
    else:
        (tmp_path / path).write_text(content)

    with pytest.raises(RefusedError, match=message):
        refuse_misfit(adapter)
