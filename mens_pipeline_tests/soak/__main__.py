"""Run every part for its share of the time, and write the results into docs/reliability.md."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.bench.machine import machine_name
from mens_pipeline_tests.soak import calls, clients, full_disks, fuzz, kills, terminations
from mens_pipeline_tests.soak.figures import Budget, Figure

PAGE: Final = PROJECT_ROOT / "docs" / "reliability.md"
HEADING: Final = "## Figures"

PARTS: Final[dict[str, tuple[Callable[[Budget, Path], list[Figure]], float, int]]] = {
    "front-end": (fuzz.front_end, 0.1, 1_000_000),
    "files": (fuzz.files, 0.1, 100_000),
    "clients": (clients.clients, 1 / 6, sys.maxsize),
    "full-disks": (full_disks.full_disks, 0.1, 30),
    "calls": (calls.calls, 0.05, sys.maxsize),
    "training": (kills.training, 0.16, 100),
    "graph": (kills.graph, 0.13, 100),
    "merging": (kills.merging, 0.06, 30),
    "serving": (kills.serving, 0.04, 30),
    "terminations": (terminations.terminations, 0.05, 100),
}
"""Part -> its function, its share of the time, and a sufficient number of tries."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--only", choices=PARTS, action="append", help="Run only these parts; nothing is written.")
    options = parser.parse_args()
    begun, figures = time.monotonic(), list[Figure]()
    for name, (run, share, tries) in PARTS.items():
        if options.only and name not in options.only:
            continue
        with tempfile.TemporaryDirectory(prefix=f"soak-{name}-") as folder:
            found = run(Budget(60 * options.minutes * share, tries), Path(folder))
        figures += found
        print(f"{time.monotonic() - begun:.0f} s: {name}\n{table(found)}", flush=True)
    if not options.only:
        write(PAGE, figures, (time.monotonic() - begun) / 60)
    return int(any(figure.wrong for figure in figures))


def table(figures: list[Figure]) -> str:
    """Format figures as Markdown, and below them everything that was wrong."""
    rows = [f"| {figure.what} | {figure.value} | {len(figure.wrong)} |" for figure in figures]
    wrong = [f"- {figure.what}: `{line.replace('`', '')}`" for figure in figures for line in figure.wrong]
    text = "\n".join(("| what | figures | wrong |", "|---|---|---|", *rows))
    return text + ("\n\nWhat was wrong:\n\n" + "\n".join(" ".join(line.split()) for line in wrong) if wrong else "")


def write(page: Path, figures: list[Figure], minutes: float) -> None:
    """Replace the figures of a page; the text above them stays."""
    head, heading, _ = page.read_text(encoding="utf-8").partition(HEADING)
    if not heading:
        sys.exit(f"{page}: no heading `{HEADING}`. Restore the page.")
    when = time.strftime("%Y-%m-%d", time.gmtime())
    about = f"`make soak`, {when}, {minutes:.0f} minutes on {machine_name()}:"
    page.write_text(f"{head}{HEADING}\n\n{about}\n\n{table(figures)}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
