"""The device that was asked for, or a reason."""

from pathlib import Path

import pytest
import torch  # noqa: TID253 - asks what this machine has

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.device import DeviceChoice, resolve_device

_HAS = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}


def test_the_processor_is_always_there() -> None:
    """It has no memory of its own, and bfloat16 exactly where it has instructions for it."""
    device = resolve_device(DeviceChoice.CPU)
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")

    assert (device.kind, device.memory_gb) == ("cpu", None)
    assert device.has_bfloat16 is ("avx512_bf16" in flags or "amx_bf16" in flags)
    assert device.name.endswith(" threads")


@pytest.mark.seed_row(17, 27)
@pytest.mark.parametrize("choice", [DeviceChoice.CUDA, DeviceChoice.MPS])
def test_what_is_not_there_is_refused(choice: DeviceChoice) -> None:
    """Never another device in its place; the advice says what to ask for."""
    if _HAS[choice]:
        pytest.skip(f"this machine has {choice}")

    with pytest.raises(
        RefusedError, match=rf"device {choice}: this machine has none that torch can use\. Ask for --device cpu, or"
    ):
        resolve_device(choice)


@pytest.mark.seed_row(29)
@pytest.mark.parametrize("choice", [DeviceChoice.CUDA, DeviceChoice.MPS])
def test_the_environment_may_forbid_all_but_the_processor(choice: DeviceChoice) -> None:
    """`VOX_BACKEND=cpu` wins over what was asked for by refusing it."""
    with pytest.raises(RefusedError, match=rf"device {choice}: VOX_BACKEND=cpu allows the CPU alone\. Unset it"):
        resolve_device(choice, force_cpu=True)


@pytest.mark.seed_row(17)
def test_metal_is_the_name_of_apples_device() -> None:
    """As upstream's pages call it."""
    if _HAS["mps"]:
        pytest.skip("this machine has mps")

    with pytest.raises(RefusedError, match="device mps: this machine has none"):
        resolve_device(DeviceChoice("metal"))


@pytest.mark.parametrize("choice", [DeviceChoice.CPU, DeviceChoice.BEST])
def test_the_processor_is_what_the_environment_allows(choice: DeviceChoice) -> None:
    """Asked for by name, or as the best there may be."""
    assert resolve_device(choice, force_cpu=True) == resolve_device(DeviceChoice.CPU)


@pytest.mark.seed_row(17)
def test_best_takes_the_first_there_is() -> None:
    """CUDA, then Apple's, then the CPU."""
    expected = next((kind for kind, is_there in _HAS.items() if is_there), "cpu")

    assert resolve_device(DeviceChoice.BEST).kind == expected
