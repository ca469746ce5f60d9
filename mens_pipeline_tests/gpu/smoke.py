"""A step of training in bf16 and one in NF4, on a hybrid of four layers, and the kernels that this machine lacks.

`python -m mens_pipeline_tests.gpu.smoke [--device cuda]`
"""

import argparse
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, Final

from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.models.base import configuration_of
from mens_pipeline.training.preflight import kernels_found
from mens_pipeline.training.telemetry_log import steps_of
from mens_pipeline_tests.training.runs import prepare_fast, train_here
from mens_pipeline_tests.training.tiny_base import write_tiny_hybrid

_SIZES: Final = {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "head_dim": 256,
    "linear_num_value_heads": 8,
    "linear_num_key_heads": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
}
"""Heads as wide as those of Qwen3.5-4B, for which kernels are compiled."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    device = resolve_device(DeviceChoice(parser.parse_args().device))
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        base = write_tiny_hybrid(Path(folder) / "base", None, **(_SIZES if device.kind == "cuda" else {}))
        found = kernels_found(configuration_of(base), device.capability)
        print(f"missing: {', '.join(name for name, is_there in found.items() if not is_there) or 'nothing'}")
        for quantization in ("bf16", "nf4"):
            try:
                print(_step(base, Path(folder) / quantization, device.kind, quantization), flush=True)
            except Exception as error:  # noqa: BLE001 - the other quantization may work
                traceback.print_exc()
                print(f"{quantization}: {type(error).__name__}: {error}", flush=True)
                failed = True
    sys.exit(failed)


def _step(base: Path, folder: Path, device: str, quantization: str) -> str:
    start = time.monotonic()
    fields: dict[str, Any] = {"max_steps": 1, "quantization": quantization, "bnb_4bit_compute_dtype": "auto"}
    run = prepare_fast(base, folder, 8, DeviceChoice(device), **fields)
    train_here(run)
    (step,) = steps_of(run.job.run_dir / TELEMETRY)
    notes = "".join(f"\n  {note}" for note in run.preflight["notes"])
    return f"{quantization}: a step, loss {step['loss']:.3f}, {time.monotonic() - start:.0f} s with loading{notes}"


if __name__ == "__main__":
    main()
