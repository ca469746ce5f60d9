"""The requested device, or a reason against it."""

import re
from pathlib import Path

import pytest
import torch  # noqa: TID253 - asks what this machine has

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs import device as devices
from mens_pipeline.jobs.device import DeviceChoice, explain_unusable, has_kernels, resolve_device

_HAS = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}


def test_the_cpu_is_always_available(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its own memory, and with bfloat16 and 8-bit products if it has instructions for them."""
    device = resolve_device(DeviceChoice.CPU)
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")

    assert (device.kind, device.memory_gb) == ("cpu", None)
    assert device.has_bfloat16 is ("avx512_bf16" in flags or "amx_bf16" in flags)
    assert device.has_int8 is ("avx2" in flags)
    assert device.name.endswith(" threads")
    monkeypatch.setattr(devices, "_OF_WINDOWS", tmp_path)
    assert resolve_device(DeviceChoice.CPU).name.endswith(" threads, not the GPU of Windows")


@pytest.mark.seed_row(17, 27)
@pytest.mark.parametrize("choice", [DeviceChoice.CUDA, DeviceChoice.MPS])
def test_a_missing_device_is_refused(choice: DeviceChoice) -> None:
    if _HAS[choice]:
        pytest.skip(f"this machine has {choice}")

    with pytest.raises(
        RefusedError, match=rf"device {choice}: torch finds no such device on this machine\. Use --device cpu, or"
    ):
        resolve_device(choice)


@pytest.mark.seed_row(29)
@pytest.mark.parametrize("choice", [DeviceChoice.CUDA, DeviceChoice.MPS])
def test_the_environment_may_allow_only_the_cpu(choice: DeviceChoice) -> None:
    """`VOX_BACKEND=cpu` refuses a request for another device."""
    with pytest.raises(RefusedError, match=rf"device {choice}: VOX_BACKEND=cpu allows only the CPU\. Unset it"):
        resolve_device(choice, force_cpu=True)
    for allowed in (DeviceChoice.CPU, DeviceChoice.BEST):
        assert resolve_device(allowed, force_cpu=True) == resolve_device(DeviceChoice.CPU)


@pytest.mark.seed_row(17)
def test_metal_is_a_name_of_the_device_of_apple() -> None:
    if _HAS["mps"]:
        pytest.skip("this machine has mps")

    with pytest.raises(RefusedError, match="device mps: torch finds no such device"):
        resolve_device(DeviceChoice("metal"))


@pytest.mark.seed_row(17)
def test_best_uses_the_first_available_device() -> None:
    expected = next((kind for kind, is_there in _HAS.items() if is_there), "cpu")

    assert resolve_device(DeviceChoice.BEST).kind == expected


def _write_machine(folder: Path, *files: str) -> Path:
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n")
    return folder


@pytest.mark.parametrize(
    ("files", "built", "said"),
    [
        ((), {}, None),
        (("dev/nvidiactl",), {}, None),
        (
            ("dev/nvidia0", "proc/driver/nvidia/version"),
            {"cuda": "13.0"},
            r"an NVIDIA GPU, driver 535\.183\.01, but torch \S+ for CUDA 13\.0 cannot use it\. Install a driver",
        ),
        (
            ("dev/nvidia0",),
            {"cuda": None},
            r"driver unknown, but torch \S+ is built without CUDA\. Install torch for CUDA",
        ),
        (("dev/kfd",), {"hip": None}, r"an AMD GPU, but torch \S+ is built without ROCm\. Install torch for ROCm"),
        (("dev/kfd",), {"hip": "7.1"}, None),
        (
            ("dev/dxg", "usr/lib/wsl/lib/libcuda.so.1"),
            {"cuda": None},
            r"an NVIDIA GPU, driver unknown, but torch \S+ is built without CUDA\. Install torch for CUDA",
        ),
        (("dev/dxg",), {"cuda": None}, None),
    ],
    ids=[
        *("no GPU", "a driver without a GPU", "an old driver", "torch for the CPU", "an AMD GPU", "torch for ROCm"),
        *("WSL2", "WSL2 with another GPU"),
    ],
)
def test_a_gpu_that_torch_cannot_use_is_named(
    files: tuple[str, ...],
    built: dict[str, str | None],
    said: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in built.items():
        monkeypatch.setattr(torch.version, name, value)
    found = explain_unusable(_write_machine(tmp_path, *files))

    assert found is None if said is None else re.search(said, found or "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert (explain_unusable(tmp_path) is None) is ("AMD" not in (said or "")), "a hidden NVIDIA GPU does not count"


@pytest.mark.skipif(any(_HAS.values()), reason="torch can use the GPU of this machine")
@pytest.mark.parametrize("choice", [DeviceChoice.BEST, DeviceChoice.CUDA])
def test_the_cpu_does_not_replace_an_unusable_gpu(choice: DeviceChoice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "explain_unusable", lambda: "this machine has a GPU. Install torch for it")

    with pytest.raises(RefusedError, match=rf"device {choice}: this machine has a GPU\. Install torch for it, or use"):
        resolve_device(choice)
    assert resolve_device(DeviceChoice.CPU).kind == "cpu"


@pytest.mark.parametrize(
    ("capability", "built_for", "runs"),
    [
        ((9, 0), ["sm_80", "sm_90"], True),
        ((8, 9), ["sm_80", "sm_86"], True),
        ((7, 0), ["sm_75", "sm_80", "sm_120"], False),
        ((12, 1), ["sm_90", "compute_90"], True),
        ((10, 3), ["sm_100a"], True),
    ],
    ids=["the same", "an older one of its generation", "Volta", "compiled from PTX", "with a letter"],
)
def test_kernels_depend_on_the_capability(capability: tuple[int, int], built_for: list[str], runs: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert has_kernels(capability, built_for) is runs
