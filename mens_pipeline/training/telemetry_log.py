"""`telemetry.jsonl`: what a run says of itself while it trains, one event a line, and its loss as a curve."""

import json
import os
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from mens_pipeline.errors import RefusedError

FILE: Final = "telemetry.jsonl"
_ADVICE: Final = "Take the line out, or begin the run anew with --force-restart."
_NUMBERS: Final = ("seconds", "num_updates", "num_tokens")
_MOST_STEPS: Final = 2**63
_MOST_LOSSES: Final = 200_000
"""Of a curve, an even number: more than its pixels, and some megabytes."""
_BLOCK: Final = 65_536
"""Bytes that are read at once when the end of a log is looked at."""


class TelemetryLog:
    """The log of a run; lines are written at once, so that a run that dies has told what it did."""

    def __init__(self, path: Path, listen: Callable[[dict[str, Any]], None]) -> None:
        """Append to a log; what a run that died left of a line is dropped."""
        self._path = path
        self._listen = listen
        if path.is_file():
            os.truncate(path, _whole(path))

    def write(self, event: str, payload: dict[str, Any]) -> None:
        """Add an event, such as `train_start`, `step` or `train_complete`, with its fields in JSON types."""
        line = {"ts_ms": time.time_ns() // 1_000_000, "event": event, "payload": payload}
        with self._path.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")
        self._listen(line)


class SilentLog(TelemetryLog):
    """The log of a process that trains together with others, of which the first one tells."""

    def __init__(self) -> None:
        """Write nothing, and tell nobody."""

    def write(self, event: str, payload: dict[str, Any]) -> None:
        """Leave it to the first process."""


class Follower:
    """Reads what is added to a log while another process writes it."""

    def __init__(self, path: Path, listen: Callable[[dict[str, Any]], None]) -> None:
        """Begin behind the last whole line."""
        self._path = path
        self._listen = listen
        self._position = _whole(path) if path.is_file() else 0

    def poll(self) -> None:
        """Pass on what was added; a line that is not whole waits."""
        if not self._path.is_file():
            return
        with self._path.open("rb") as log:
            log.seek(self._position)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._position += len(line)
                self._listen(json.loads(line))


def steps_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield each step of a run once, in order; steps that a resumed run took back are left out, redone ones count.

    What is kept meanwhile is where the line of each step begins: a long run has more lines than memory.

    Raises:
        RefusedError: Another line is no event.
    """
    numbers, starts = array("q"), array("q")
    for start, event in _events(path):
        if event["event"] == "train_start":
            end = bisect_right(numbers, update_of(event["payload"]["resumed_from"]))
            del numbers[end:], starts[end:]
        elif event["event"] == "step":
            number = event["payload"]["step"]
            place = bisect_left(numbers, number)
            if numbers[place : place + 1] == array("q", [number]):
                starts[place] = start
            else:
                numbers.insert(place, number)
                starts.insert(place, start)
    with path.open("rb") as log:
        for start in starts:
            log.seek(start)
            yield _event(log.readline(), f"{path}, byte {start}")["payload"]


def losses_of(path: Path) -> dict[int, float]:
    """Return step -> loss of a run, for curves; of a long one the mean of as many neighbours each, by the last of them.

    Raises:
        RefusedError: A line is no event.
    """
    losses: dict[int, float] = {}
    together: dict[int, float] = {}
    every = 1
    for step in steps_of(path):
        together[step["step"]] = step["loss"]
        if len(together) == every:
            losses[step["step"]] = fmean(together.values())
            together.clear()
        if len(losses) == _MOST_LOSSES:
            pairs = zip(list(losses.items())[::2], list(losses.items())[1::2], strict=True)
            losses = {last: (first_loss + last_loss) / 2 for (_, first_loss), (last, last_loss) in pairs}
            every *= 2
    if together:
        losses[max(together)] = fmean(together.values())
    return losses


def seconds_trained(path: Path) -> float:
    """Return seconds that the processes of a run have trained, what was taken back included.

    Raises:
        RefusedError: A line is no event, or a step does not say when it was.
    """
    if not path.is_file():
        return 0.0
    try:
        return max((event["payload"]["seconds"] for _, event in _events(path) if event["event"] == "step"), default=0.0)
    except KeyError as error:
        raise RefusedError(f"{path}: a step does not say after how many seconds. {_ADVICE}") from error


def totals_of(path: Path) -> dict[str, Any]:
    """Sum up a run of at least one step over all its processes: mean `train_loss`, and `trained_tokens`."""
    loss, num_steps, num_tokens = 0.0, 0, 0
    for step in steps_of(path):
        loss += step["loss"] * step["num_updates"]
        num_steps += step["num_updates"]
        num_tokens += step["num_tokens"]
    return {"train_loss": loss / num_steps, "trained_tokens": num_tokens}


def update_of(checkpoint: str | None) -> int:
    """Return the step after which a checkpoint was written: 40 of `checkpoint-40`, 0 of none."""
    return 0 if checkpoint is None else int(checkpoint.rsplit("-", 1)[1])


def _whole(path: Path) -> int:
    """Return how many bytes the complete lines have; only what stands behind them is read."""
    with path.open("rb") as log:
        start = log.seek(0, os.SEEK_END)
        while start:
            end, start = start, max(0, start - _BLOCK)
            log.seek(start)
            if found := log.read(end - start).rfind(b"\n") + 1:
                return start + found
    return 0


def _events(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each event of whole lines, and the byte that its line begins with."""
    start = 0
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.endswith(b"\n"):
                yield start, _event(line, f"{path}:{number}")
            start += len(line)


def _event(line: bytes, place: str) -> dict[str, Any]:
    try:
        event: dict[str, Any] = json.loads(line.decode(errors="replace"))
        _check(event["event"], event["payload"])
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise RefusedError(f"{place}: no event of a training. {_ADVICE}") from error
    return event


def _check(kind: str, payload: dict[str, Any]) -> None:
    """Raise unless an event has what is read of it."""
    if kind == "train_start":
        update_of(payload["resumed_from"])
    elif kind == "step":
        told = {type(payload["loss"]), *(type(payload.get(name, 0)) for name in _NUMBERS)}
        if type(payload["step"]) is not int or abs(payload["step"]) >= _MOST_STEPS or told - {int, float}:
            raise TypeError("a step is told in numbers")
