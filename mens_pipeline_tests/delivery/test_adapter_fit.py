"""An adapter of another base, or none at all, is told before any weight is loaded."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from mens_pipeline.delivery.merge_source import refuse_misfit
from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.prepare import WEIGHTS
from mens_pipeline.training.base_model import digest_of_folder
from mens_pipeline.training.safetensors_header import shapes_in
from mens_pipeline_tests.training.small_folder import write_folder

_LAYER = "model.layers.0.self_attn.q_proj"
_A, _B = (f"base_model.model.{_LAYER}.lora_{half}.weight" for half in "AB")
_FITTING: dict[str, tuple[int, ...]] = {_A: (2, 8), _B: (6, 2)}


def _save(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    save_file({name: np.zeros(shape, np.float32) for name, shape in shapes.items()}, path)


def _run(folder: Path, adapter: dict[str, tuple[int, ...]], base: str = f"{_LAYER}.weight", **config: Any) -> Any:
    """An adapter and its base of one layer; the folder of the one, the manifest that names the other."""
    write_folder(folder / "base")
    _save(folder / "base" / "model.safetensors", {base: (6, 8)})
    (folder / "adapter").mkdir()
    _save(folder / "adapter" / WEIGHTS, adapter)
    (folder / "adapter" / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, **config}))
    sha256 = digest_of_folder(folder / "base")
    return folder / "adapter", {
        "base_model": {"num_values": 0, "name": "tiny", "path": str(folder / "base"), "sha256": sha256}
    }


@pytest.mark.parametrize("base", [f"{_LAYER}.weight", f"model.language_model.{_LAYER[6:]}.weight"])
def test_what_fits_is_taken(tmp_path: Path, base: str) -> None:
    """Also where the file of the base puts another word before the layers."""
    adapter, manifest = _run(tmp_path, _FITTING, base)
    refuse_misfit(adapter, manifest)

    assert shapes_in(adapter / WEIGHTS) == _FITTING


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({_A: (2, 9), _B: (6, 2)}, r"q_proj is \(6, 8\), the adapter has \(6, 2\) by \(2, 9\), of rank 2"),
        ({_A: (2, 8), _B: (6, 4)}, "of rank 2"),
        ({_A: (2, 8)}, "q_proj has one matrix of two"),
        ({_A.replace("0", "7"): (2, 8), _B.replace("0", "7"): (6, 2)}, r"the base has no model\.layers\.7"),
        ({**_FITTING, "base_model.model.lm_head.weight": (1, 1)}, r"lm_head\.weight is no LoRA matrix"),
        ({}, "it holds no LoRA matrix at all"),
    ],
    ids=["shape", "rank", "half", "layer", "more", "empty"],
)
def test_a_foreign_adapter_is_refused(tmp_path: Path, shapes: dict[str, tuple[int, ...]], message: str) -> None:
    """The message says what does not fit, and where to look."""
    adapter, manifest = _run(tmp_path, shapes)

    with pytest.raises(RefusedError, match=f"(?s)does not fit tiny: .*{message}.*Name the run that it was trained in"):
        refuse_misfit(adapter, manifest)


def test_many_misfits_are_counted(tmp_path: Path) -> None:
    """Three are shown."""
    shapes: dict[str, tuple[int, ...]] = {
        f"base_model.model.model.layers.{n}.x.lora_A.weight": (2, 8) for n in range(1, 6)
    }
    adapter, manifest = _run(tmp_path, shapes)

    with pytest.raises(RefusedError, match=r"and 2 more\. Name the run"):
        refuse_misfit(adapter, manifest)


def test_another_kind_of_adapter_is_refused(tmp_path: Path) -> None:
    """Only LoRA can be added to weights."""
    adapter, manifest = _run(tmp_path, _FITTING, peft_type="PREFIX_TUNING")

    with pytest.raises(RefusedError, match=r"is PREFIX_TUNING, expected LORA\. Only LoRA adapters are merged"):
        refuse_misfit(adapter, manifest)


@pytest.mark.parametrize(("content", "found"), [(None, "No such file"), ("[", "no JSON")])
def test_an_adapter_that_says_nothing_of_itself_is_refused(tmp_path: Path, content: str | None, found: str) -> None:
    """Weights alone do not tell what they are."""
    adapter, manifest = _run(tmp_path, _FITTING)
    path = adapter / "adapter_config.json"
    path.unlink() if content is None else path.write_text(content)

    with pytest.raises(RefusedError, match=rf"{found}.*Name the run that it was trained in"):
        refuse_misfit(adapter, manifest)


def test_weights_that_are_none_are_refused(tmp_path: Path) -> None:
    """A file of another kind under the right name."""
    adapter, manifest = _run(tmp_path, _FITTING)
    (adapter / WEIGHTS).write_bytes(b"\x08\0\0\0\0\0\0\0no json!")

    with pytest.raises(RefusedError, match=r"no safetensors file\. Fetch or write"):
        refuse_misfit(adapter, manifest)


@pytest.mark.parametrize("is_there", [True, False])
def test_another_base_is_refused(tmp_path: Path, *, is_there: bool) -> None:
    """Changed since, or gone."""
    adapter, manifest = _run(tmp_path, _FITTING)
    if is_there:
        (tmp_path / "base" / "config.json").write_text("{ }")
    else:
        manifest["base_model"]["path"] = str(tmp_path / "elsewhere")

    with pytest.raises(
        RefusedError, match=f"is {'changed' if is_there else 'gone'}. Restore it, put it below MENS_CACHE_ROOT"
    ):
        refuse_misfit(adapter, manifest)
