"""Read `telemetry.jsonl`, the log of a training run: steps, totals, and the loss as a curve."""

import json
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from mens_pipeline.errors import RefusedError

_ADVICE: Final = "Remove the line, or start over with --force-restart."
_NUMBERS: Final = ("seconds", "num_updates", "num_tokens")
_FEW_MINUTES: Final = 5
_MOST_STEPS: Final = 2**63
_MOST_LOSSES: Final = 200_000
"""Most points of a curve, an even number: more than pixels, and only some megabytes."""


def steps_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the payload of each step once, in order; a resumed run replaces the steps after its checkpoint.

    It keeps the offset of each step rather than its line, since the lines of a long run may not fit in memory.
    `RefusedError` if a line is not an event.
    """
    numbers, starts = array("q"), array("q")
    for start, event in _events(path):
        if event["event"] == "train_start":
            end = bisect_right(numbers, step_of(event["payload"]["resumed_from"]))
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
    """Return step -> loss for curves; in a long run, means of equal groups of steps, at the last of each."""
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
    """Return the seconds that all processes of a run have trained, including steps that a resumed run replaced."""
    if not path.is_file():
        return 0.0
    try:
        return max((event["payload"]["seconds"] for _, event in _events(path) if event["event"] == "step"), default=0.0)
    except KeyError as error:
        raise RefusedError(f"{path}: a step has no `seconds`. {_ADVICE}") from error


def compute_totals(path: Path) -> dict[str, Any]:
    """Return mean `train_loss` and `trained_tokens` of a run of at least one step, over all its processes."""
    loss, num_steps, num_tokens = 0.0, 0, 0
    for step in steps_of(path):
        loss += step["loss"] * step["num_updates"]
        num_steps += step["num_updates"]
        num_tokens += step["num_tokens"]
    return {"train_loss": loss / num_steps, "trained_tokens": num_tokens}


def step_of(checkpoint: str | None) -> int:
    """Return the step of a checkpoint: 40 for `checkpoint-40`, 0 for none."""
    return 0 if checkpoint is None else int(checkpoint.rsplit("-", 1)[1])


def format_plan(plan: Mapping[str, Any]) -> str:
    """Format a `plan` event: `118 of 150 steps, about 20 min; budget 20 min: 150 steps would take ...`."""
    planned, target, budget = plan["num_steps"], plan["target_steps"], plan["budget_seconds"]
    steps = f"{planned} steps" if planned == target else f"{planned} of {target} steps"
    limit = "" if budget is None else f"; budget {_minutes(budget)} min"
    reason = "" if plan["reason"] is None else f": {plan['reason']}"
    return f"{steps}, about {_minutes(plan['end_seconds'])} min{limit}{reason}"


def _minutes(seconds: float) -> str:
    minutes = seconds / 60
    return f"{minutes:.1f}" if minutes < _FEW_MINUTES else f"{minutes:.0f}"


def _events(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the offset and the event of each whole line."""
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
        raise RefusedError(f"{place}: not a training event. {_ADVICE}") from error
    return event


def _check(kind: str, payload: dict[str, Any]) -> None:
    if kind == "train_start":
        step_of(payload["resumed_from"])
    elif kind == "step":
        types = {type(payload["loss"]), *(type(payload.get(name, 0)) for name in _NUMBERS)}
        if type(payload["step"]) is not int or abs(payload["step"]) >= _MOST_STEPS or types - {int, float}:
            raise TypeError("a step consists of numbers")
