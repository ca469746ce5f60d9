"""All checks of a GPU machine in eight minutes, on one page: `build/gpu-report.md`.

`make gpu-check`, or `make gpu-check PART=training`; without make `python3 -m mens_pipeline_tests.gpu.check training`.
It runs in an installed checkout, and in a bundle of `make gpu-bundle`: there the packages are unpacked first, beside
the torch of that machine. `--device cpu` tries this command: the same parts with a base of four small layers.

The part `smoke` ends the rest if it fails. The training leaves a base of random weights in the shape of Qwen3.5-4B,
eight of its layers, and an adapter, which the other parts load.
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
"""It needs this name: dill, by which `datasets` hashes functions, treats modules of other folders as the user's."""
OWN: Final = ("torch", "transformers", "accelerate", "pandas", "pyarrow", "scipy", "jinja2", "yaml")
_BENCH: Final = "mens_pipeline_tests.bench"
_GPU: Final = "mens_pipeline_tests.gpu"
_PRESETS: Final = {"cuda": ["auto"], "cpu": ["cpu_demo"]}
SMOKE: Final = "smoke"
PARTS: Final = (SMOKE, "training", "bench", "serving", "tests", "generation")
_GRACE_SECONDS: Final = 20
_SECONDS: Final = 480 - _GRACE_SECONDS


def main() -> None:
    options = parse(sys.argv[1:])
    end = time.monotonic() + options.seconds
    if missing := [name for name in OWN if importlib.util.find_spec(name) is None]:
        sys.exit(f"{sys.executable} has no {', '.join(missing)}, which a GPU machine brings itself")
    _WORK.mkdir(parents=True, exist_ok=True)
    variables = {"PYTHONPATH": f"{_ROOT}:{_PACKAGES}", "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}
    if not _is_installed():
        unpack(BUNDLE / WHEELS, _PACKAGES, _capability())
    failed = []
    for part in options.parts:
        now = time.monotonic()
        # A part that hangs leaves half of the time to the others.
        until = end if part == options.parts[-1] else (now + end) / 2
        print(f"== {part}, {until - now:.0f} s at most", flush=True)
        if any(run([sys.executable, "-m", *command], variables, until) for command in commands(part, options)):
            failed.append(part)
            if part == SMOKE:
                break
    ending = "".join(f"; not well: {part}" + ", so the rest is left out" * (part == SMOKE) for part in failed)
    print(f"written to {_ROOT / 'build' / 'gpu-report.md'}{ending}")
    sys.exit(bool(failed))


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} [default: all but the last]")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--seconds", type=int, default=_SECONDS, help=f"of all parts; {_GRACE_SECONDS} more to end one")
    parser.add_argument("--presets", type=_split, help="of the training, such as auto,qwen_4080_16g [default: auto]")
    parser.add_argument("--variants", type=_split, default=["plain", "ours", "kept"], help="of the bench")
    parser.add_argument("--layers", type=int, default=8, help="of the 32 of the base, a multiple of four")
    parser.add_argument("--tests", default="hybrid or qwen3", help="-k of pytest")
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"{', '.join(sorted(unknown))}: choose from {', '.join(PARTS)}")
    options.parts = options.parts or PARTS[:-1]
    options.presets = options.presets or _PRESETS[options.device]
    return options


def _split(words: str) -> list[str]:
    return words.split(",")


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


def commands(part: str, options: argparse.Namespace) -> Iterator[list[str]]:
    """Yield the modules of a part, each with its arguments."""
    of_device, is_small = ["--device", options.device], options.device == "cpu"
    page = f"{_BENCH}.page"
    if part == "tests":
        files = sorted(map(str, _ROOT.glob("mens_pipeline_tests/**/test_cuda*.py")))
        yield ["pytest", "-m", "gpu", "-k", options.tests, "-q", "-p", "no:cacheprovider", "-W", "default", *files]
        return
    if part == SMOKE:
        yield [page]
        yield [page, "Smoke", f"{_GPU}.smoke", *of_device]
        return
    layers = 4 if is_small else options.layers
    base, runs = _WORK / f"base-{options.device}-{layers}", _WORK / f"runs-{options.device}"
    if not (base / "config.json").is_file():
        shape = "tiny-hybrid" if is_small else "qwen3.5-4b"
        yield [page, "The base", f"{_BENCH}.random_base", shape, str(base), str(BUNDLE / TOKENIZER), str(layers)]
    of_base = ["--base", str(base), *of_device]
    train, heldout = str(BUNDLE / "train.jsonl"), str(BUNDLE / "heldout.jsonl")
    prompts, new = ("4", "8") if is_small else ("256", "64")
    few = ["--prompts", prompts, "--batch", prompts, "--max-new-tokens", new, "--free"]
    steps = ["--steps", "3" if is_small else "6"]
    title, module, arguments = {
        "training": ("Training", f"{_GPU}.training", [str(BUNDLE), str(runs), *of_base, "--presets", *options.presets]),
        "bench": ("Beside plain TRL", f"{_BENCH}.training", [train, *of_base, *steps, "--variants", *options.variants]),
        "serving": ("Serving", f"{_GPU}.serving", [heldout, str(runs / options.presets[-1]), *of_device]),
        "generation": ("Generation", f"{_BENCH}.generation", [heldout, *of_base, *few]),
    }[part]
    yield [page, title, module, *arguments]


def run(command: list[str], variables: dict[str, str], end: float) -> int:
    """Run a command in a new session until its time is over; return its exit code, 1 if it was ended.

    It is interrupted first, so that it can write its results.
    """
    # A shell's background commands ignore the signal, and so would the child.
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
