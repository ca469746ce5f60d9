"""The name of this machine, and its peak speed of matrix products."""

import platform
from pathlib import Path
from time import perf_counter
from typing import Final

_SIDES: Final = (1_024, 2_048, 4_096, 8_192, 16_384)
"""Sizes of the matrices to multiply, until a larger one is no faster."""
_RISE: Final = 1.03
_EMULATED: Final = 0.05
"""A dtype slower than this share of float32 is emulated, as bfloat16 on CPUs without its instructions."""
_PRODUCTS_SECONDS: Final = 0.02
"""Seconds of products between two waits for the GPU, so that launches and waits do not count."""


def machine_name() -> str:
    """Return the processor, as the system names it, and the interpreter."""
    return f"{_processor()}, {platform.python_implementation()} {platform.python_version()}"


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def peak_of_products(device: str) -> dict[str, float]:
    """Return the peak speed of matrix products in GFLOP/s, for `float32` and `bfloat16`.

    The matrices grow until the speed no longer rises.
    """
    peak = {}
    for dtype in ("float32", "bfloat16"):
        peak[dtype] = 0.0
        for side in _SIDES if device != "cpu" else _SIDES[:2]:
            rate, best = _rate_of_products(device, dtype, side), peak[dtype]
            peak[dtype] = max(rate, best)
            if rate < _RISE * best or rate < _EMULATED * peak["float32"]:  # larger emulated products take minutes
                break
    return peak


def _rate_of_products(device: str, dtype: str, side: int) -> float:
    import torch

    left, right = (torch.randn(side, side, device=device).to(getattr(torch, dtype)) for _ in range(2))

    def seconds_of(number: int) -> float:
        started = perf_counter()
        for _ in range(number):
            left @ right
        if device == "cuda":
            torch.cuda.synchronize()
        return (perf_counter() - started) / number

    if (first := seconds_of(1)) > 1 and device == "cpu":
        return float(2 * side**3 / first / 1e9)
    number = max(1, round(_PRODUCTS_SECONDS / seconds_of(1)))  # the first product also loads the kernels
    return float(2 * side**3 / min(seconds_of(number) for _ in range(3)) / 1e9)
