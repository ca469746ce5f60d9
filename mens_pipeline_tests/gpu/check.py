"""All that a GPU machine is asked, in parts of at most ten minutes, on one page: `build/gpu-report.md`.

`make gpu-check`, or `make gpu-check PART=training`; without make `python3 -m mens_pipeline_tests.gpu.check training`.
It runs in an installed checkout, and in what `make gpu-bundle` packed: there the packages are unpacked first, beside
the torch of that machine. `--device cpu` tries this command: the same parts with a base of four small layers.

The training leaves a base of random weights in the shape of Qwen3.5-4B, and an adapter, which the other parts load.
"""

import argparse
import importlib.metadata
import importlib.util
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from mens_pipeline.jobs.device import is_triton_raising
from mens_pipeline.jobs.environment import own_environment

_ROOT: Final = Path(__file__).parents[2]
BUNDLE: Final = _ROOT / "build" / "gpu-bundle"
WHEELS: Final = "wheels"
TOKENIZER: Final = "tokenizer"
KERNELS: Final = ("fla-core", "flash-linear-attention")
"""Of linear attention."""
_WORK: Final = _ROOT / "build" / "gpu"
_PACKAGES: Final = _WORK / "site-packages"
"""By this name alone: dill, by which `datasets` hashes functions, takes modules of other folders for the user's own."""
_OWN: Final = ("torch", "transformers", "accelerate", "pandas", "pyarrow", "scipy", "jinja2", "yaml")
_BENCH: Final = "mens_pipeline_tests.bench"
_PRESETS: Final = {"cuda": ("qwen_4080_16g", "auto"), "cpu": ("tiny", "cpu_demo")}
PARTS: Final = ("tests", "training", "generation", "serving", "bench")
_SECONDS: Final = 570
_GRACE_SECONDS: Final = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} [default: all]")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--seconds", type=int, default=_SECONDS, help="of each part at most")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"{', '.join(sorted(unknown))}: choose of {', '.join(PARTS)}")
    if missing := [name for name in _OWN if importlib.util.find_spec(name) is None]:
        parser.error(f"{sys.executable} has no {', '.join(missing)}, which a GPU machine brings itself")
    _WORK.mkdir(parents=True, exist_ok=True)
    variables = {"PYTHONPATH": f"{_ROOT}:{_PACKAGES}", "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}
    if not _is_installed():
        unpack(BUNDLE / WHEELS, _PACKAGES, _capability())
    codes = {}
    for part in options.parts or PARTS:
        end = time.monotonic() + options.seconds
        print(f"== {part}", flush=True)
        for command in commands(part, options.device):
            codes[part] = run([sys.executable, "-m", *command], variables, end)
            if codes[part]:
                break
    failed = [part for part, code in codes.items() if code]
    print(f"written to {_ROOT / 'build' / 'gpu-report.md'}" + (f"; not well: {', '.join(failed)}" if failed else ""))
    sys.exit(bool(failed))


def _is_installed() -> bool:
    with suppress(importlib.metadata.PackageNotFoundError):
        return bool(importlib.metadata.version("mens-pipeline"))
    return False


def _capability() -> tuple[int, int]:
    import torch

    return torch.cuda.get_device_capability() if torch.cuda.is_available() else (0, 0)


def unpack(wheels: Path, target: Path, capability: tuple[int, int]) -> None:
    """Unpack wheels into a folder for `PYTHONPATH`, once; without pip, which not every machine has."""
    found = {path.stem for path in target.glob("*.dist-info")} if target.is_dir() else set()
    for wheel in sorted(wheels.glob("*.whl")):
        name, version = wheel.name.split("-")[:2]
        if f"{name}-{version}" in found:
            continue
        if name.replace("_", "-") in KERNELS and is_triton_raising(capability):
            print(
                f"{name} is left out: it raises on this GPU with Triton 3.4.0 to 3.7.0. Triton 3.7.1 or flash-qla helps"
            )
            continue
        with zipfile.ZipFile(wheel) as content:
            content.extractall(target)
    if not target.is_dir():
        sys.exit(f"{wheels}: no packages. Run make gpu-bundle where packages can be had, or make install here.")


def commands(part: str, device: str) -> Iterator[list[str]]:
    """Yield the modules of a part, each with its arguments."""
    if part == "tests":
        files = sorted(map(str, _ROOT.glob("mens_pipeline_tests/**/test_cuda*.py")))
        yield ["pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", "-W", "default", *files]
        return
    is_small = device == "cpu"
    base, runs, presets = _WORK / f"base-{device}", _WORK / f"runs-{device}", _PRESETS[device]
    if not (base / "config.json").is_file():
        shape = "tiny-hybrid" if is_small else "qwen3.5-4b"
        yield [f"{_BENCH}.random_base", shape, str(base), str(BUNDLE / TOKENIZER)]
    of_base = ["--base", str(base), "--device", device]
    train, heldout = str(BUNDLE / "train.jsonl"), str(BUNDLE / "heldout.jsonl")
    few = (
        ["--prompts", "4", "--batch", "4", "--max-new-tokens", "8"]
        if is_small
        else ["--prompts", "256", "--batch", "256"]
    )
    title, module, arguments = {
        "training": (
            "Training",
            "mens_pipeline_tests.gpu.training",
            [str(BUNDLE), str(runs), *of_base, "--presets", *presets],
        ),
        "generation": ("Generation", f"{_BENCH}.generation", [heldout, *of_base, *few]),
        "serving": (
            "Serving",
            "mens_pipeline_tests.gpu.serving",
            [heldout, str(runs / presets[-1]), "--device", device],
        ),
        "bench": ("Beside plain TRL", f"{_BENCH}.training", [train, *of_base, "--steps", "3" if is_small else "6"]),
    }[part]
    yield [f"{_BENCH}.page", title, module, *arguments]


def run(command: list[str], variables: dict[str, str], end: float) -> int:
    """Run a command in a session of its own until its time is over; return its exit code, 1 if it was ended.

    It is interrupted first, to write what it has.
    """
    # What a shell runs in the background ignores it, and so would the child.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    child = subprocess.Popen(command, cwd=_ROOT, env={**own_environment(), **variables}, start_new_session=True)
    try:
        return child.wait(max(1.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        print("its time is over", flush=True)
        child.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            child.wait(_GRACE_SECONDS)
        return 1
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


if __name__ == "__main__":
    main()
