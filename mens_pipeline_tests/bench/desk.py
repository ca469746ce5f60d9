"""Count completions in the windows and broken files that editors send: shown, exact, silent, and their latency.

`python -m mens_pipeline_tests.bench.desk --programs DIR` counts the cursors that can get an answer. With `--heldout
FILE` it sends requests to `mens serve` (`--server URL`) at cursors of programs outside the train set.

A cursor has an answer if its own line is accepted in the text that a client sends with its default settings.
"""

import argparse
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final

import httpx

from mens_pipeline.corpus.infill.views import WINDOWS, View
from mens_pipeline.corpus.schema.records import SourceKind, read_pairs
from mens_pipeline.evaluation.infill import draw_silent
from mens_pipeline.language import analyze
from mens_pipeline.language.surroundings import read_surroundings
from mens_pipeline_tests.bench.machine import machine_name

_LINE_TOKENS: Final = 32
_SEED: Final = 7


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a line: the text before it, the rest of the line, and the text after the line."""

    prefix: str
    rest: str
    suffix: str


def _keep_all(before: str, after: str) -> tuple[str, str]:
    return before, after


_CLIENTS: Final = {"the whole file": _keep_all, **WINDOWS}


def _apply(at: Cursor, view: View) -> Cursor:
    before, after = view(at.prefix, at.suffix)
    return Cursor(before, at.rest, after)


def draw_cursors(program: str, number: int, dice: Random) -> Iterator[Cursor]:
    """Draw places at the start of a line's text or after a space in it; comment lines are skipped."""
    lines = [line for line in re.finditer(r"^([ \t]*)(\S.*)$", program, re.MULTILINE) if line[2][0] not in "/#"]
    for line in sorted(dice.sample(lines, min(number, len(lines))), key=lambda found: found.start()):
        spaces = [line.start(2) + space.end() for space in re.finditer(" ", line[2])]
        place = dice.choice([line.start(2), *spaces])
        yield Cursor(program[:place], program[place : line.end()], program[line.end() :])


def break_above(at: Cursor) -> Cursor | None:
    """Insert a line with an error into the function before the cursor's function; None if there is no such function."""
    functions = [found.end() for found in re.finditer(r"^fn .*\{\n", at.prefix, re.MULTILINE)]
    if len(functions) < 2:
        return None
    place = functions[-2]
    return Cursor(f"{at.prefix[:place]}    let x = )\n{at.prefix[place:]}", at.rest, at.suffix)


def count_answers(cursors: Sequence[Cursor], view: View) -> str:
    """Format the number of cursors that have an answer in the view of a client, and the milliseconds per check."""
    begin, num = time.perf_counter(), 0
    for at in (_apply(at, view) for at in cursors):
        num += read_surroundings(at.prefix, at.suffix).accept(at.rest)
    milliseconds = 1_000 * (time.perf_counter() - begin) / max(1, len(cursors))
    return f"{num}/{len(cursors)} ({num / max(1, len(cursors)):.1%}), {milliseconds:.1f} ms each"


def _print_reach(folder: Path, number: int) -> None:
    dice = Random(_SEED)  # noqa: S311 - a reproducible draw
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in sorted(folder.rglob("*.vox"))]
    accepted = [text for text in texts if analyze(text).ok]
    cursors = [at for text in accepted for at in draw_cursors(text, number, dice)]
    print(f"{folder}: {len(accepted)} of {len(texts)} files parse")
    for name, view in _CLIENTS.items():
        print(f"  {name:<36} {count_answers(cursors, view)}")
    broken = [found for at in cursors if (found := break_above(at)) is not None]
    print(f"  {'an error in another function':<36} {count_answers(broken, _keep_all)}")


def _ask(url: str, at: Cursor) -> tuple[dict[str, Any], float]:
    body = {"input_prefix": at.prefix, "prompt": "", "input_suffix": at.suffix, "n_predict": _LINE_TOKENS}
    begin = time.monotonic()
    reply = httpx.post(f"{url}/infill", json=body | {"stop": ["\n"], "temperature": 0}, timeout=600).raise_for_status()
    return reply.json(), time.monotonic() - begin


def _print_answers(url: str, cursors: Sequence[Cursor], view: View, name: str) -> None:
    replies = [_ask(url, _apply(at, view)) for at in cursors]
    pieces = [str(reply["content"]) for reply, _ in replies]
    shown = [(at, piece) for at, piece in zip(cursors, pieces, strict=True) if piece]
    exact = sum(piece.split() == at.rest.split() for at, piece in shown)
    parses = sum(read_surroundings(at.prefix, at.suffix).accept(piece) for at, piece in shown)
    seconds = sorted(second for _, second in replies)
    reasons = [reply.get("withheld", "empty") for reply, _ in replies if not reply["content"]]
    why = ", ".join(f"{reasons.count(reason)} {reason}" for reason in sorted(set(reasons)))
    share, late = exact / max(1, len(shown)), seconds[int(0.95 * len(seconds))]
    print(
        f"  {name:<36} shown {len(shown)}/{len(cursors)}; exact {exact}, of those shown {share:.1%}; fit {parses}; "
        f"p50 {median(seconds):.2f} s, p95 {late:.2f} s; {why}"
    )


def _print_desk(url: str, heldout: Path, number: int) -> None:
    dice = Random(_SEED)  # noqa: S311 - a reproducible draw
    pairs = [pair for pair in read_pairs(heldout) if pair.source is not None]
    programs = sorted({pair.response for pair in pairs if pair.source and pair.source.kind is SourceKind.VOX_FILE})
    programs = [program for program in programs if analyze(program).ok]
    cursors = [at for program in programs for at in draw_cursors(program, 8, dice)]
    cursors = dice.sample(cursors, min(number, len(cursors)))
    while httpx.get(f"{url}/ready", timeout=60).is_error:
        time.sleep(1)
    print(f"{heldout}: {len(cursors)} cursors in {len(programs)} programs")
    for name, view in _CLIENTS.items():
        _print_answers(url, cursors, view, name)
    silent = [
        (kind, Cursor(program[:place], "", program[place:]))
        for program in programs
        for kind, place in draw_silent(program, dice)
    ]
    silent = dice.sample(silent, min(number, len(silent)))
    for kind in sorted({kind for kind, _ in silent}):
        own = [_ask(url, at)[0]["content"] for found, at in silent if found == kind]
        print(f"  {'silent: ' + kind:<36} {own.count('')}/{len(own)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, action="append", default=[], help="a folder, to count cursors in")
    parser.add_argument("--heldout", type=Path, help="`heldout.jsonl` of a run, for cursors to request")
    parser.add_argument("--server", default="http://127.0.0.1:8080", help="address of `mens serve`")
    parser.add_argument("--cursors", type=int, default=60, help="number of cursors to request")
    options = parser.parse_args()
    print(machine_name())
    for folder in options.programs:
        _print_reach(folder, 3)
    if options.heldout is not None:
        _print_desk(options.server, options.heldout, options.cursors)


if __name__ == "__main__":
    main()
