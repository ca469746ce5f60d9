"""The log of a run, while it is written and afterwards."""

import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.progress import Follower, TelemetryLog
from mens_pipeline.training import telemetry_log
from mens_pipeline.training.telemetry_log import compute_totals, format_plan, losses_of, seconds_trained, steps_of


def _line(number: int, **payload: Any) -> str:
    return json.dumps({"ts_ms": 1, "event": "step", "payload": {"step": number, "loss": 1.0, **payload}}) + "\n"


def _start(checkpoint: str | None) -> str:
    return json.dumps({"ts_ms": 1, "event": "train_start", "payload": {"resumed_from": checkpoint}}) + "\n"


def test_each_event_is_written_at_once(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    log, follower = TelemetryLog(tmp_path / "log"), Follower(tmp_path / "log", events.append)
    follower.poll()
    before = time.time_ns() // 1_000_000
    log.write("train_start", {"num_rows": 3})
    first = (tmp_path / "log").read_text()
    log.write("step", {"step": 1, "note": "a\nb"})
    lines = (tmp_path / "log").read_text().splitlines()
    follower.poll()

    assert first == lines[0] + "\n"
    assert [json.loads(line) for line in lines] == events
    assert events[0] == {"ts_ms": events[0]["ts_ms"], "event": "train_start", "payload": {"num_rows": 3}}
    assert before <= events[0]["ts_ms"] <= events[1]["ts_ms"] <= time.time_ns() // 1_000_000


def test_half_a_line_does_not_spoil_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(_line(1) + _line(2)[:9])
    TelemetryLog(path).write("step", {"step": 2, "loss": 1.0})

    assert [step["step"] for step in steps_of(path)] == [1, 2]


_MALFORMED_EVENTS = (
    *("\0\0\0\n", "[]\n", '{"event": "step"}\n', '"step"\n', '{"event": "step", "payload": []}\n'),
    '{"event": "step", "payload": {"step": 2, "loss": "low"}}\n',
    '{"event": "step", "payload": {"step": "2", "loss": 1.0}}\n',
    f'{{"event": "step", "payload": {{"step": {2**63}, "loss": 1.0}}}}\n',
    '{"event": "step", "payload": {"step": 2, "loss": 1.0, "seconds": null}}\n',
    '{"event": "train_start", "payload": {"resumed_from": "checkpoint"}}\n',
)


@pytest.mark.parametrize("line", [*_MALFORMED_EVENTS, "[" * 5_000 + "\n"])
def test_an_error_names_a_line_without_an_event(tmp_path: Path, line: str) -> None:
    path = tmp_path / "log"
    path.write_text(_line(1, seconds=1.0) + line + _line(2, seconds=2.0))
    for read in (lambda: list(steps_of(path)), lambda: seconds_trained(path)):
        with pytest.raises(RefusedError, match=r"log:2: not a training event\. Remove the line, or start over"):
            read()
    path.write_text(_line(1))
    with pytest.raises(RefusedError, match="log: a step has no `seconds`"):
        seconds_trained(path)


@pytest.mark.parametrize("beginning", ["", _line(2)[:9]])
def test_a_follower_reads_added_events(tmp_path: Path, beginning: str) -> None:
    """The next run drops half a line of a dead run, and the follower reads the new line whole."""
    path = tmp_path / "log"
    path.write_text(_line(1) + beginning)
    events: list[dict[str, Any]] = []
    follower = Follower(path, events.append)
    follower.poll()
    assert events == []
    log = TelemetryLog(path)
    log.write("step", {"step": 2, "loss": 1.0})
    follower.poll()
    follower.poll()
    log.write("step", {"step": 3, "loss": 1.0})
    log.write("train_complete", {})
    follower.poll()

    assert [(line["event"], line["payload"].get("step")) for line in events] == [
        ("step", 2),
        ("step", 3),
        ("train_complete", None),
    ]


@pytest.mark.parametrize("cut", [1, 20, -1])
def test_an_incomplete_line_waits(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "log"
    events: list[dict[str, Any]] = []
    follower = Follower(path, events.append)
    line = _line(2, note="größer")
    path.write_text(_line(1) + line[:cut])
    follower.poll()
    assert [entry["payload"]["step"] for entry in events] == [1]
    path.write_text(_line(1) + line)
    follower.poll()

    assert [entry["payload"]["step"] for entry in events] == [1, 2]


def test_a_repeated_step_counts_once(tmp_path: Path) -> None:
    """In its place, with its last figures; other events and half a line are skipped."""
    lines = [_line(number, loss=number / 10) for number in (1, 2, 3)]
    path = tmp_path / "log"
    path.write_text("".join([*lines, _start("checkpoint-1"), _line(2, loss=9.0), _line(3, loss=8.0), _line(4)[:-1]]))

    assert list(steps_of(path)) == [{"step": 1, "loss": 0.1}, {"step": 2, "loss": 9.0}, {"step": 3, "loss": 8.0}]
    # The last figures of a step also count if a process did not log its checkpoint.
    path.write_text("".join(_line(n, loss=float(at)) for at, n in enumerate((1, 4, 3, 2, 3))))
    assert [(step["step"], step["loss"]) for step in steps_of(path)] == [(1, 0.0), (2, 3.0), (3, 4.0), (4, 1.0)]


@pytest.mark.parametrize(("checkpoint", "left"), [("checkpoint-2", [1, 2]), (None, [])])
def test_steps_after_a_resumed_checkpoint_do_not_count(tmp_path: Path, checkpoint: str | None, left: list[int]) -> None:
    """They were trained and are lost; only their seconds count."""
    path = tmp_path / "log"
    path.write_text("".join([*(_line(number, seconds=float(number)) for number in (1, 2, 3)), _start(checkpoint)]))

    assert [step["step"] for step in steps_of(path)] == left
    assert seconds_trained(path) == 3.0
    assert seconds_trained(tmp_path / "none") == 0.0


def test_the_loss_of_a_run_is_the_mean_of_its_updates(tmp_path: Path) -> None:
    lines = [
        _start(None),
        _line(3, num_updates=3, loss=2.0, num_tokens=30),
        _line(4, num_updates=1, loss=9.0, num_tokens=10),
        _start("checkpoint-3"),
        _line(4, num_updates=1, loss=1.0, num_tokens=11),
    ]
    (tmp_path / "log").write_text("".join(lines))

    assert compute_totals(tmp_path / "log") == {"train_loss": 7 / 4, "trained_tokens": 41}


@pytest.mark.parametrize(
    "read", [TelemetryLog, lambda path: Follower(path, print), lambda path: sum(1 for _ in steps_of(path))]
)
def test_a_long_log_is_never_in_memory(tmp_path: Path, read: Callable[[Path], object]) -> None:
    """Neither its text nor its events; a last line without an end may be long as well."""
    path = tmp_path / "log"
    path.write_text("".join([*(_line(n, note="x" * 500) for n in range(10_000)), "half" * 50_000]))
    size = path.stat().st_size
    read(path)
    tracemalloc.start()
    read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 1_500_000 < size / 3


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (3, {1: 1.0, 2: 2.0, 3: 3.0}),
        (4, {2: 1.5, 4: 3.5}),
        (7, {2: 1.5, 4: 3.5, 6: 5.5, 7: 7.0}),
        (9, {4: 2.5, 8: 6.5, 9: 9.0}),
    ],
)
def test_a_curve_of_many_steps_is_thinned_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: dict[int, float]
) -> None:
    """To means of neighbours, whenever there are too many; the last one may be a mean of fewer."""
    monkeypatch.setattr(telemetry_log, "_MOST_LOSSES", 4)
    (tmp_path / "log").write_text("".join(_line(step, loss=float(step)) for step in range(1, number + 1)))

    assert losses_of(tmp_path / "log") == expected


def _event(**fields: Any) -> dict[str, Any]:
    usual = {"num_steps": 150, "target_steps": 150, "end_seconds": 540.0, "budget_seconds": 1200.0, "reason": None}
    return {**usual, **fields}


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"budget_seconds": None}, "150 steps, about 9 min"),
        ({}, "150 steps, about 9 min; budget 20 min"),
        ({"end_seconds": 90.0}, "150 steps, about 1.5 min; budget 20 min"),
        (
            {"num_steps": 118, "end_seconds": 1190.0, "reason": "too slow"},
            "118 of 150 steps, about 20 min; budget 20 min: too slow",
        ),
    ],
)
def test_formats_a_plan_with_steps_and_minutes(fields: dict[str, Any], line: str) -> None:
    assert format_plan(_event(**fields)) == line
