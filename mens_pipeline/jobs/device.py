"""Find the device of a job without a silent fallback, and run one job at a time on it.

A GPU that torch cannot use is an error: on the CPU, the job would train a different base, and take longer.
"""

import fcntl
import importlib.metadata
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.environment import own_environment

UNCOUNTED: Final = sys.maxsize
"""Number of devices if another system, such as a cluster, counts them."""

_DRIVER: Final = re.compile(r"\b(\d{3}\.[\d.]+)\b")
_OF_WINDOWS: Final = Path("/dev/dxg")
"""Device file of GPUs in WSL2; torch can use only NVIDIA GPUs."""

_POLL_SECONDS: Final = 0.5
_HOPPER: Final = 9
_LONGEST: Final = 500
"""Most characters of a lock file that an error message quotes."""


class DeviceChoice(StrEnum):
    """Devices that can be chosen."""

    CUDA = "cuda"
    CPU = "cpu"
    MPS = "mps"
    METAL = "metal"
    """Alias of `mps`."""
    BEST = "best"


@dataclass(frozen=True, slots=True)
class Device:
    """Device of a run, with the name that the machine reports.

    `memory_gb` is None for the CPU. `has_bfloat16` means that bfloat16 is supported and faster than float32. `number`
    counts devices of this kind; a CPU counts as 1, whatever its cores. `capability` is the compute capability of a GPU,
    (0, 0) for other devices. `has_int8` means that a CPU multiplies faster in eight bits.
    """

    kind: Literal["cuda", "mps", "cpu"]
    name: str
    memory_gb: float | None
    has_bfloat16: bool
    number: int = 1
    capability: tuple[int, int] = (0, 0)
    has_int8: bool = False

    @property
    def preset_gb(self) -> float | None:
        """Memory in gigabytes to choose a preset by: half of it without bfloat16, None for the CPU."""
        if self.memory_gb is None or self.has_bfloat16:
            return self.memory_gb
        return self.memory_gb / 2

    def lock_in(self, cache: Path) -> Path:
        """Return the path of the lock that a job holds while it uses the device."""
        return cache / f"{self.kind}.lock"


def resolve_device(choice: DeviceChoice, *, force_cpu: bool = False) -> Device:
    """Return the requested device; `best` is the first available of cuda, mps, cpu.

    Raise a `RefusedError` if it is unavailable, the environment forbids it, or torch cannot use the GPU of the machine.
    """
    if choice is DeviceChoice.METAL:
        choice = DeviceChoice.MPS
    if force_cpu and choice not in {DeviceChoice.CPU, DeviceChoice.BEST}:
        raise RefusedError(f"device {choice}: VOX_BACKEND=cpu allows only the CPU. Unset it, or use cpu.")
    if choice is DeviceChoice.CPU or force_cpu:
        return _cpu()
    found = _cuda() or _mps() if choice is DeviceChoice.BEST else {"cuda": _cuda, "mps": _mps}[choice]()
    if found is not None:
        return found
    if (unusable := None if choice is DeviceChoice.MPS else explain_unusable()) is not None:
        raise RefusedError(f"device {choice}: {unusable}, or use the CPU (--device cpu, VOX_BACKEND=cpu).")
    if choice is DeviceChoice.BEST:
        return _cpu()
    advice = "Use --device cpu, or --device best for the best available device."
    raise RefusedError(f"device {choice}: torch finds no such device on this machine. {advice}")


def explain_unusable(system: Path = Path("/")) -> str | None:
    """Return the GPU that torch cannot use on this machine, the cause, and the fix; None if there is no such GPU.

    `system` is the root of the file system. An empty CUDA_VISIBLE_DEVICES hides NVIDIA GPUs.
    """
    import torch

    built = f"torch {torch.__version__}"
    # WSL2 has no such device file, only the library of the Windows driver.
    is_nvidia = any(system.glob("dev/nvidia[0-9]*")) or any(system.glob("usr/lib/wsl/lib/libcuda.so*"))
    if is_nvidia and own_environment().get("CUDA_VISIBLE_DEVICES") != "":
        version = system / "proc/driver/nvidia/version"
        driver = _DRIVER.search(version.read_text(encoding="utf-8") if version.is_file() else "")
        name = f"an NVIDIA GPU, driver {driver[1] if driver else 'unknown'}"
        if torch.version.cuda is None:
            return f"this machine has {name}, but {built} is built without CUDA. Install torch for CUDA"
        advice = f"Install a driver for CUDA {torch.version.cuda}, or torch for this driver"
        return f"this machine has {name}, but {built} for CUDA {torch.version.cuda} cannot use it. {advice}"
    if (system / "dev/kfd").exists() and torch.version.hip is None:
        return f"this machine has an AMD GPU, but {built} is built without ROCm. Install torch for ROCm first"
    return None


def has_kernels(capability: tuple[int, int], built_for: Sequence[str]) -> bool:
    """Return whether a torch build runs on a GPU: by machine code for its generation (`sm_86`), or by older PTX.

    `capability` is the GPU's major and minor version; `built_for` is the result of `torch.cuda.get_arch_list`.
    """
    for name in built_for:
        kind, _, number = name.partition("_")
        major, minor = divmod(int("".join(filter(str.isdigit, number))), 10)
        is_own = kind == "sm" and major == capability[0] and minor <= capability[1]
        if is_own or (kind == "compute" and (major, minor) <= capability):
            return True
    return False


def is_triton_raising(capability: tuple[int, int]) -> bool:
    """Return whether flash-linear-attention raises in training: on a Hopper GPU (9.0), with Triton 3.4.0 to 3.7.0.

    False if flash-qla is installed, which replaces it.
    """
    try:
        version = tuple(map(int, re.findall(r"\d+", importlib.metadata.version("triton"))[:3]))
    except importlib.metadata.PackageNotFoundError:
        return False
    return capability[0] == _HOPPER and (3, 4, 0) <= version < (3, 7, 1) and find_spec("flash_qla") is None


def leave_out_kernels(device: str | int) -> None:
    """Block the import of flash-linear-attention if it raises on the device, as its Triton kernels do on a CPU.

    transformers uses it on any device if it can import it. Call this before transformers imports a model.
    """
    import torch

    if device in {"cpu", "mps"} or is_triton_raising(torch.cuda.get_device_capability(device)):
        sys.modules["fla"] = None  # type: ignore[assignment]


def refuse_missing_devices(device: Device, asked: int) -> None:
    """Raise a `RefusedError` if a recipe needs more devices than there are; a CPU runs any number of processes."""
    if device.kind != "cpu" and asked > device.number:
        found = f"only {device.number} of {device.kind} available ({device.name})"
        raise RefusedError(f"devices {asked}: {found}. Use --devices {device.number}.")


def _cuda() -> Device | None:
    import torch

    if not torch.cuda.is_available():
        return None
    properties, built_for = torch.cuda.get_device_properties(0), torch.cuda.get_arch_list()
    capability = (properties.major, properties.minor)
    if built_for and not has_kernels(capability, built_for):
        found = f"{properties.name} has compute capability {capability[0]}.{capability[1]}"
        advice = "Install a torch that is built for it, or use the CPU (--device cpu, VOX_BACKEND=cpu)."
        raise RefusedError(f"device cuda: {found}, but torch {torch.__version__} has no kernels for it. {advice}")
    has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
    memory_gb = properties.total_memory / 2**30
    return Device("cuda", properties.name, memory_gb, has_bfloat16, torch.cuda.device_count(), capability)


def _mps() -> Device | None:
    import torch

    if not torch.backends.mps.is_available():
        return None
    return Device("mps", "Apple GPU", torch.mps.recommended_max_memory() / 2**30, has_bfloat16=False)


def _cpu() -> Device:
    import platform  # noqa: PLC0415 - only this needs it

    import torch

    can = torch.cpu.get_capabilities()
    has_bfloat16 = bool(can.get("avx512_bf16") or can.get("amx_bf16"))
    unused = ", not the GPU of Windows" if _OF_WINDOWS.exists() else ""
    has_int8 = "fbgemm" in torch.backends.quantized.supported_engines  # on any CPU with AVX2
    name = f"{platform.machine()}, {torch.get_num_threads()} threads{unused}"
    return Device("cpu", name, None, has_bfloat16, has_int8=has_int8)


@contextmanager
def exclusive(path: Path, wait_seconds: float, holder: str = "a run") -> Iterator[None]:
    """Hold the lock of a device while the block runs; the system frees it when the process dies.

    Wait up to `wait_seconds` for another holder, then raise a `RefusedError` that names it. `holder` describes this
    process to others.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_seconds
    with path.open("a", encoding="utf-8") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    found = path.read_text(encoding="utf-8", errors="replace")[:_LONGEST] or "another process"
                    raise RefusedError(f"{path}: {found} holds this device. Wait for it to end, or stop it.") from None
                time.sleep(_POLL_SECONDS)
        handle.truncate(0)
        handle.write(f"process {os.getpid()} ({holder})")
        handle.flush()
        yield
