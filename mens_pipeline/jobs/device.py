"""The device of a job: what was asked for or nothing, never another one in its place; and one job at a time on it."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from mens_pipeline.errors import RefusedError

_POLL_SECONDS: Final = 0.5
_LONGEST: Final = 500
"""Characters of what a lock says of its holder."""


class DeviceChoice(StrEnum):
    """Devices that can be chosen."""

    CUDA = "cuda"
    CPU = "cpu"
    MPS = "mps"
    METAL = "metal"
    """Another name of `mps`."""
    BEST = "best"


@dataclass(frozen=True, slots=True)
class Device:
    """Device of a run.

    Attributes:
        kind: `cuda`, `mps` or `cpu`.
        name: What the machine calls it.
        memory_gb: Gigabytes of its own; None for the CPU.
        has_bfloat16: Whether it has instructions for bfloat16, and is faster with it than with float32.
        number: How many of them there are; one CPU, whatever its cores.
    """

    kind: str
    name: str
    memory_gb: float | None
    has_bfloat16: bool
    number: int = 1

    @property
    def preset_gb(self) -> float | None:
        """Gigabytes of its memory as presets count them, which compute in 16 bits; None for the CPU."""
        if self.memory_gb is None or self.has_bfloat16:
            return self.memory_gb
        return self.memory_gb / 2


def resolve_device(choice: DeviceChoice, *, force_cpu: bool = False) -> Device:
    """Return the device that was asked for; `best` takes the first there is of cuda, mps, cpu.

    Raises:
        RefusedError: It is not there, or the environment forbids it.
    """
    if choice is DeviceChoice.METAL:
        choice = DeviceChoice.MPS
    if force_cpu and choice not in {DeviceChoice.CPU, DeviceChoice.BEST}:
        raise RefusedError(f"device {choice}: VOX_BACKEND=cpu allows the CPU alone. Unset it, or ask for cpu.")
    if choice is DeviceChoice.CPU or force_cpu:
        return _cpu()
    found = _cuda() or _mps() if choice is DeviceChoice.BEST else {"cuda": _cuda, "mps": _mps}[choice]()
    if found is not None:
        return found
    if choice is DeviceChoice.BEST:
        return _cpu()
    advice = "Ask for --device cpu, or for --device best to take what there is."
    raise RefusedError(f"device {choice}: this machine has none that torch can use. {advice}")


def refuse_missing_devices(device: Device, asked: int) -> None:
    """Check that a machine has the devices that a recipe asks for; on a CPU any number of processes may run.

    Raises:
        RefusedError: It has fewer.
    """
    if device.kind != "cpu" and asked > device.number:
        advice = f"Ask for --devices {device.number}."
        raise RefusedError(f"devices {asked}: {device.number} {device.kind} device(s) can be seen here. {advice}")


def _cuda() -> Device | None:
    import torch

    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(0)
    has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
    memory_gb = properties.total_memory / 2**30
    return Device("cuda", properties.name, memory_gb, has_bfloat16, torch.cuda.device_count())


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
    return Device("cpu", f"{platform.machine()}, {torch.get_num_threads()} threads", None, has_bfloat16)


@contextmanager
def exclusive(path: Path, wait_seconds: float, holder: str = "a run") -> Iterator[None]:
    """Hold a lock on a device for as long as the block runs; the system frees it when the process dies.

    Another holder may take `wait_seconds` to end; `holder` is what others are told of this one.

    Raises:
        RefusedError: Another process holds it; the message says which.
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
