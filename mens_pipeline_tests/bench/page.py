"""One page about a GPU that somebody has and the project has not: what the tests and benches said there.

Each part of `make gpu-check` writes its own into `build/gpu-report.md`, to be attached to an issue.
`python -m mens_pipeline_tests.bench.page TITLE MODULE ...` runs a module and keeps what it prints, to the end or until
it is interrupted.
"""

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.training.preflight import LINEAR, kernels_found
from mens_pipeline.training.prepare import library_versions
from mens_pipeline_tests.bench.machine import machine_name

PAGE: Final = PROJECT_ROOT / "build" / "gpu-report.md"
TESTS: Final = "pytest -m gpu"
_PART: Final = re.compile(r"^## ", re.MULTILINE)


def main() -> None:
    title, *command = sys.argv[1:]
    done = subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True)
    lines: list[str] = []
    try:
        for line in done.stdout or ():
            print(line, end="", flush=True)
            lines.append(line.replace(str(PROJECT_ROOT), "."))  # what is attached to an issue names no folder
    except KeyboardInterrupt:
        done.terminate()
    code = done.wait()
    ending = f"\nended with exit code {code}\n" if code else ""
    write_part(PAGE, title, f"```text\n{''.join(lines)}{ending}```\n")
    print(f"kept in {PAGE}", file=sys.stderr)
    sys.exit(code)


def write_part(page: Path, title: str, text: str) -> None:
    """Write a part of a page, made where need be, again, behind what the machine is; other parts stay."""
    found = _PART.split(page.read_text(encoding="utf-8"))[1:] if page.is_file() else []
    parts = dict(part.partition("\n")[::2] for part in found)
    parts |= {"The machine": f"\n{_machine()}\n", title: f"\n{text}\n"}
    page.parent.mkdir(parents=True, exist_ok=True)
    whole = "".join(f"## {name}\n{part.rstrip()}\n\n" for name, part in parts.items())
    page.write_text(f"# What a GPU said\n\n{whole}", encoding="utf-8")


def outcome_table(outcomes: Iterable[tuple[str, str, float, str]]) -> str:
    """The tests as a table: name, outcome, seconds, and figures or the reason."""
    rows = [f"| `{name}` | {outcome} | {seconds:.1f} | {details} |" for name, outcome, seconds, details in outcomes]
    head = ["| test | outcome | seconds | figures |", "|---|---|---|---|"]
    return "\n".join((*head, *rows)) if rows else "No test of a GPU was found."


def _machine() -> str:
    import torch

    lines = [machine_name()]
    for number in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(number)
        lines.append(f"{card.name}, {card.total_memory / 2**30:.1f} GiB, compute capability {card.major}.{card.minor}")
    if not torch.cuda.is_available():
        lines.append("no CUDA device")
    lines += [f"CUDA {torch.version.cuda}, driver {_driver()}"]
    lines += [", ".join(f"{name} {version}" for name, version in library_versions().items())]
    capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else (0, 0)
    found = kernels_found({"layer_types": [LINEAR]}, capability)
    lines += [", ".join(f"{name}: {'yes' if is_there else 'no'}" for name, is_there in found.items())]
    return "\n".join(f"- {line}" for line in lines)


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.split("\n", maxsplit=1)[0].strip()


if __name__ == "__main__":
    main()
