"""Train a base with presets, by `mens train` as a user does: speed, memory beside its estimate, and loss.

`python -m mens_pipeline_tests.gpu.training DATA RUNS --base FOLDER --presets NAME NAME [--device cuda] [--steps 12]`
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Final

from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.training.recipe import PREFLIGHT
from mens_pipeline.training.telemetry_log import steps_of
from mens_pipeline_tests.bench.machine import machine_name

_WARM_STEPS: Final = 2
"""Steps that compile kernels, and do not count."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a folder with train.jsonl")
    parser.add_argument("runs", type=Path, help="where runs go, each in a folder with the name of its preset")
    parser.add_argument("--base", required=True)
    parser.add_argument("--presets", nargs="+", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    print(machine_name())
    for preset in options.presets:
        folder = options.runs / preset
        places = ["--data-dir", str(options.data), "--output-dir", str(folder), "--model", options.base]
        what = ["--preset", preset, "--device", options.device, "--max-steps", str(options.steps), "--force-restart"]
        start = time.monotonic()
        command = [sys.executable, "-m", "mens_pipeline.cli", "train", *places, *what]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)  # progress goes to stderr
        if done.returncode:
            sys.exit(f"{preset}: mens train ended with exit code {done.returncode}")
        print("\n".join(figures(preset, folder, time.monotonic() - start)), flush=True)


def figures(preset: str, run: Path, seconds: float) -> list[str]:
    """Describe a finished run, a line for each figure; the seconds are of the whole command, including loading."""
    preflight = json.loads((run / PREFLIGHT).read_text(encoding="utf-8"))
    steps = list(steps_of(run / TELEMETRY))
    rate = median(step["tokens_per_second"] for step in steps[_WARM_STEPS:] or steps)
    peak = max(step["peak_memory_mb"] for step in steps)
    losses = " ".join(f"{step['loss']:.3f}" for step in steps)
    return [
        f"{preset}: {len(steps)} steps, {seconds:.0f} s with loading",
        f"  {rate:.0f} tokens/s, the median of all steps but the first {_WARM_STEPS}",
        f"  {peak:.0f} MB at most, {preflight['memory_mb']['total']:.0f} estimated",
        f"  loss {losses}",
        *(f"  {note}" for note in preflight["notes"]),
    ]


if __name__ == "__main__":
    main()
