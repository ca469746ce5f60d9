"""Merging into a base in bfloat16, and the comparison of a merge for a small GPU."""

from pathlib import Path

import pytest

from mens_pipeline.delivery.agreement import STRICT
from mens_pipeline.delivery.merge import build_merged_model, manifest_in, report_in
from mens_pipeline.inference import prepare as preparing
from mens_pipeline.inference.prepare import evaluated_model
from mens_pipeline.jobs.device import Device, DeviceChoice, resolve_device
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.delivery.delivered import HELDOUT, prepare, trained_run
from mens_pipeline_tests.jobs.processes import do_here

pytestmark = pytest.mark.slow


def _merge(trained: Path, device: Device) -> Path:
    store = ArtifactStore(trained.parent / "store")
    prepared = prepare(trained, store, device, heldout=trained.parent / HELDOUT)
    return build_merged_model(prepared, store, do_here)[0].path


def test_an_adapter_of_a_base_in_bfloat16_is_merged_into_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from safetensors.torch import load_file  # noqa: PLC0415 - loads torch

    monkeypatch.setattr(preparing, "computed_in", lambda _device: "bfloat16")
    trained = trained_run(tmp_path, quantization="bf16", bnb_4bit_compute_dtype="auto")
    folder = _merge(trained, resolve_device(DeviceChoice.CPU))
    report, into = report_in(folder), manifest_in(folder).merged_into
    name = "model.layers.1.mlp.down_proj"
    base, merged = (load_file(path / "model.safetensors") for path in (trained.parent / "base", folder))
    adapter = load_file(trained / "adapter" / "adapter_model.safetensors")
    one, other = (adapter[f"base_model.model.{name}.lora_{half}.weight"] for half in "BA")
    expected = base[f"{name}.weight"].bfloat16().float() + one @ other * (8 / 4)

    assert (report.passed, report.demand, report.agreement.led_agreement) == (True, STRICT, 1.0)
    assert report.reference == "base as it came, adapter merged, bfloat16"
    assert (into.weights, into.quantization, into.double_quant) == ("own", "none", False)
    assert into.why == "The adapter was trained and evaluated on these weights."
    torch.testing.assert_close(merged[f"{name}.weight"].float(), expected, rtol=2**-7, atol=1e-4)
    assert not torch.allclose(merged[f"{name}.weight"].float(), base[f"{name}.weight"], rtol=2**-7, atol=1e-4)


def test_a_model_in_four_bits_on_a_small_gpu_is_compared_dense(tmp_path: Path) -> None:
    """The CPU computes both sides in the precision of the GPU, so other rounding in four bits rejects nothing."""
    trained = trained_run(tmp_path, bnb_4bit_compute_dtype="bfloat16")
    gpu = Device("cuda", "a small GPU", 1.0, has_bfloat16=True)
    report = report_in(_merge(trained, gpu))

    assert evaluated_model("adapter", Adapter.open(trained), gpu).held == "nf4"
    assert report.reference == "base in nf4 restored, adapter merged, bfloat16"
    assert (report.computed_on, report.demand) == (("cpu", "bfloat16"), STRICT)
    assert (report.passed, report.agreement.led_agreement) == (True, 1.0)
