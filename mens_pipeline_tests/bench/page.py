"""Write a page with results of tests and benches on a GPU that the project does not have.

Each part of `make gpu-check` writes its own section of `build/gpu-report.md`, to be attached to an issue.
`python -m mens_pipeline_tests.bench.page` starts the page with a description of the machine; with `TITLE MODULE ...` it
runs a module and writes each line at once, so that a killed run leaves the lines it printed.
"""

import re
import subprocess
import sys
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from threading import Thread
from typing import IO, Final

from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.training.preflight import LINEAR, kernels_found, library_versions
from mens_pipeline_tests.bench.machine import machine_name

PAGE: Final = PROJECT_ROOT / "build" / "gpu-report.md"
TESTS: Final = "pytest -m gpu"
MACHINE: Final = "The machine"
_LAST_WORDS: Final = 8
"""Maximum number of error lines on the page."""
_PART: Final = re.compile(r"^## ", re.MULTILINE)


def main() -> None:
    title, *command = sys.argv[1:] or [MACHINE]
    if title == MACHINE:
        write_part(PAGE, MACHINE, machine())
    else:
        sys.exit(keep(PAGE, title, [sys.executable, "-m", *command]))


def keep(page: Path, title: str, command: list[str]) -> int:
    """Run a command and write its output to the page, with its last errors if it fails; return its exit code."""
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, stdout=pipe, stderr=pipe, encoding="utf-8", errors="replace")
    assert child.stdout
    lines: list[str] = []
    errors: deque[str] = deque(maxlen=_LAST_WORDS)
    listener = Thread(target=_listen, args=(child.stderr, errors), daemon=True)
    listener.start()
    try:
        write_part(page, title, _as_text(["not ended\n"]))
        with child.stdout:
            for line in child.stdout:
                print(line, end="", flush=True)
                lines.append(line)
                write_part(page, title, _as_text([*lines, "not ended\n"]))
    except KeyboardInterrupt:
        child.terminate()
    code = child.wait()
    listener.join(1)  # a surviving process may hold the other end
    write_part(page, title, _as_text([*lines, *errors, f"ended with exit code {code}\n"] if code else lines))
    return code


def _listen(stream: IO[str], errors: deque[str]) -> None:
    with stream:
        for line in stream:
            sys.stderr.write(line)
            errors.append(line)


def _as_text(lines: list[str]) -> str:
    # The page is attached to an issue, so it names no folder.
    text = "".join(lines).replace(str(PROJECT_ROOT), ".").replace(str(Path.home()), "~")
    return f"```text\n{text}```\n"


def write_part(page: Path, title: str, text: str) -> None:
    """Replace a part of a page, or add it; the part about the machine starts a new page."""
    page.parent.mkdir(parents=True, exist_ok=True)
    whole = page.resolve()  # it may be a symbolic link
    found = _PART.split(whole.read_text(encoding="utf-8"))[1:] if whole.is_file() and title != MACHINE else []
    parts = dict(part.partition("\n")[::2] for part in found) | {title: f"\n{text}\n"}
    if MACHINE not in parts:
        parts = {MACHINE: f"\n{machine()}\n", **parts}
    content = "".join(f"## {name}\n{part.rstrip()}\n\n" for name, part in parts.items())
    draft = whole.with_suffix(".part")
    draft.write_text(f"# What a GPU said\n\n{content}", encoding="utf-8")
    draft.replace(whole)


def outcome_table(outcomes: Iterable[tuple[str, str, float, str]]) -> str:
    """Return the tests as a Markdown table: name, outcome, seconds, and figures or the reason."""
    rows = [f"| `{name}` | {outcome} | {seconds:.1f} | {details} |" for name, outcome, seconds, details in outcomes]
    head = ["| test | outcome | seconds | figures |", "|---|---|---|---|"]
    return "\n".join((*head, *rows)) if rows else "No test of a GPU was found."


def machine() -> str:
    """Describe GPU, driver, versions and kernels, one line each."""
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
