"""The mean of checkpoints, and folders that are refused."""

import json
from os import mkfifo
from pathlib import Path
from typing import Any

import pytest
import torch  # noqa: TID253 - weights are tensors

from mens_pipeline.errors import RefusedError, SourceNotFoundError
from mens_pipeline.jobs.protocol import CHECKPOINTS, COMPLETE
from mens_pipeline.scratch.recipe import Shape
from mens_pipeline.scratch.run import merge_scratch, scratch_sources
from mens_pipeline.scratch.tokenizer import transformers_tokenizer
from mens_pipeline.storage.store import digest_of

pytestmark = pytest.mark.filterwarnings("ignore")

_TINY = Shape(1, 2, 16, 16, 0.0, 32)


def _write_model(folder: Path, seed: int, shape: Shape = _TINY) -> Path:
    from mens_pipeline.scratch.train import build_model  # noqa: PLC0415 - loads the stack

    torch.manual_seed(seed)
    build_model(shape).save_pretrained(folder)
    transformers_tokenizer().save_pretrained(folder)
    return folder


def _write_run(folder: Path, *steps: int, final: int | None = None) -> Path:
    for step in steps:
        checkpoint = _write_model(folder / CHECKPOINTS / f"checkpoint-{step}", step)
        (checkpoint / "optimizer.pt").write_bytes(b"moments")
        (checkpoint / COMPLETE).write_text("{}")
    if final is not None:
        _write_model(folder / "model", final)
    return folder


def _load_weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file  # noqa: PLC0415 - comes with the deep learning stack

    tensors: dict[str, Any] = load_file(folder / "model.safetensors")
    return tensors


@pytest.mark.seed_row(22)
def test_merged_weights_are_the_mean(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    models = [_write_model(tmp_path / str(seed), seed) for seed in (1, 2, 3)]
    manifest = merge_scratch(scratch_sources(models, 1), tmp_path / "out")
    parts, mean = [_load_weights(model) for model in models], _load_weights(tmp_path / "out")
    loaded, tokenizer = (kind.from_pretrained(tmp_path / "out") for kind in (AutoModelForCausalLM, AutoTokenizer))

    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, torch.stack([part[name] for part in parts]).mean(0), rtol=1e-6, atol=1e-7)
    assert mean.keys() == parts[0].keys()
    assert torch.equal(loaded.state_dict()["lm_head.weight"], mean["lm_head.weight"])
    assert len(tokenizer) == 133
    assert json.loads((tmp_path / "out" / "merge_manifest.json").read_text()) == manifest.as_json()
    assert [source["sha256"] for source in manifest.sources] == [
        digest_of(model / "model.safetensors") for model in models
    ]


def test_a_run_contributes_its_newest_checkpoints(tmp_path: Path) -> None:
    run = _write_run(tmp_path / "run", 9, 10, 11, final=12)
    same = _write_run(tmp_path / "same", 9, 10, final=10)
    (run / CHECKPOINTS / "checkpoint-11" / COMPLETE).unlink()
    best = _write_model(same / CHECKPOINTS / "checkpoint-best", 7)  # without a number it has no place in the order
    (best / COMPLETE).write_text("{}")

    assert [path.name for path in scratch_sources([run], 2)] == ["checkpoint-10", "model"]
    assert [path.name for path in scratch_sources([same], 5)] == ["checkpoint-9", "checkpoint-10"]
    assert [path.name for path in scratch_sources([run, same], 1)] == ["model", "checkpoint-10"]
    assert scratch_sources([best], 1) == (best,)


def test_an_adapter_is_not_averaged(tmp_path: Path) -> None:
    run = tmp_path / "qlora"
    (run / "adapter").mkdir(parents=True)
    (run / "training_manifest.json").write_text('{"backend": "qlora"}')
    (run / "adapter" / "adapter_config.json").write_text("{}")
    for folder in (run, run / "adapter"):
        with pytest.raises(RefusedError, match=r"a QLoRA run; its adapter is merged into its base\. Run: mens merge"):
            scratch_sources([folder], 1)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    other = _write_model(tmp_path / "other", 1)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "model_type": "llama"}))

    with pytest.raises(SourceNotFoundError, match=r"missing: no such folder\. Name a run of `mens scratch train`"):
        scratch_sources([tmp_path / "missing"], 1)
    for folder in (tmp_path / "empty", other):
        with pytest.raises(RefusedError, match=r"no checkpoint of the scratch lane\. Name a run of `mens scratch tr"):
            scratch_sources([folder], 1)


def test_models_of_different_shapes_have_no_mean(tmp_path: Path) -> None:
    models = [_write_model(tmp_path / "a", 1), _write_model(tmp_path / "b", 1, Shape(1, 2, 16, 24, 0.0, 32))]

    with pytest.raises(RefusedError, match=r"b: not of the shape of .*a\. Only models of one --config have a mean"):
        merge_scratch(models, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.threat("M7")
def test_only_the_files_of_a_model_are_copied(tmp_path: Path) -> None:
    model = _write_model(tmp_path / "a", 1)
    for name in ("notes.txt", "modeling.py", "pytorch_model.bin", "optimizer.pt", COMPLETE):
        (model / name).write_text("{}")
    (model / "inner").mkdir()
    merge_scratch(scratch_sources([model], 1), tmp_path / "out")

    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("config.json", "generation_config.json", "model.safetensors", "merge_manifest.json"),
        *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"),
    }
    assert digest_of(tmp_path / "out" / "model.safetensors") == digest_of(model / "model.safetensors")


@pytest.mark.threat("M7")
def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """It could copy a file of this machine into a folder that is published; to read a pipe would block."""
    run = _write_run(tmp_path / "run", 5)
    checkpoint = run / CHECKPOINTS / "checkpoint-5"
    (tmp_path / "secret").write_text("x")
    (checkpoint / "chat_template.jinja").unlink()
    (checkpoint / "chat_template.jinja").symlink_to(tmp_path / "secret")
    piped = _write_model(tmp_path / "piped", 1)
    mkfifo(piped / "pipe")

    for folder in (run, checkpoint, piped):
        with pytest.raises(RefusedError, match=r"a link, a pipe or a device\. Replace it with the file itself"):
            scratch_sources([folder], 1)


@pytest.mark.parametrize("text", ["", "[]", "3", "[" * 100_000, " " * 1_048_577], ids=str.__len__)
@pytest.mark.parametrize("name", ["config.json", "training_manifest.json"])
def test_an_invalid_document_is_refused(tmp_path: Path, name: str, text: str) -> None:
    model = _write_model(tmp_path / "a", 1)
    (model / name).write_text(text)

    with pytest.raises(RefusedError, match=rf"a/{name}: .*Name a run of `mens scratch train`"):
        scratch_sources([model], 1)


def test_weights_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    none, cut = _write_model(tmp_path / "none", 1), _write_model(tmp_path / "cut", 1)
    (none / "model.safetensors").write_bytes(b"none")
    whole = (cut / "model.safetensors").read_bytes()
    (cut / "model.safetensors").write_bytes(whole[:-100])

    with pytest.raises(RefusedError, match=r"none/model\.safetensors: not a safetensors file"):
        merge_scratch([none], tmp_path / "out")
    with pytest.raises(RefusedError, match=r"cut/model\.safetensors: cannot be read .*Train the model again"):
        merge_scratch([cut], tmp_path / "out")


def test_nothing_is_overwritten_or_left_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _write_model(tmp_path / "a", 1)
    (tmp_path / "file").write_text("x")

    monkeypatch.setattr("safetensors.torch.save_file", lambda *_, **_kinds: pytest.fail("interrupted"))
    with pytest.raises(pytest.fail.Exception):
        merge_scratch([model], tmp_path / "new")
    assert not list((tmp_path / "new").iterdir())
    with pytest.raises(RefusedError, match=r"a: not empty\. Name a folder that is not there yet"):
        merge_scratch([model], model)
    for output in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(RefusedError, match=r"(File exists|Not a directory)\. Name a folder that is not there yet"):
            merge_scratch([model], output)
    assert (tmp_path / "file").read_text() == "x"
