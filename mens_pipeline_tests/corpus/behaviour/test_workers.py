"""Untrusted functions are observed and tried in separate processes."""

import io
import json
import sys
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path

import pytest

from mens_pipeline.corpus.behaviour.observe import Behaviour, observe_behaviour
from mens_pipeline.corpus.behaviour.screening import TaskFunction, TaskStatus
from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers, ObservationJob, main
from mens_pipeline.corpus.schema.reasons import NoBehaviour

_TWICE = "fn twice(n: int) to int { return n * 2 }"
_TASK = TaskFunction(_TWICE, "@test fn a() { assert(twice(2) is 4) }\n@test fn b() { assert(twice(5) is 10) }", "twice")
_DEAF = (sys.executable, "-c", "pass")
_HUNGRY = """fn f(n: int) to bool {
    let re = std.regex.compile("(a+)+$").unwrap()
    return re.matches("a".repeat(60) + "b") or n > 3
}"""


def test_a_worker_observes_as_this_process_does(workers: BehaviourWorkers) -> None:
    sources = [_TWICE, _TWICE.replace("n * 2", "n"), _TWICE.replace("n * 2", "n + 7")]
    jobs = [ObservationJob(source, "twice", "", "s") for source in sources * 40]
    found = list(workers.observe(jobs))

    assert found == [observe_behaviour(source, "twice", seed="s") for source in sources] * 40
    assert isinstance(found[0], Behaviour)
    assert found[1] is NoBehaviour.IDENTITY


def test_given_declarations_go_into_the_tests(workers: BehaviourWorkers) -> None:
    given = "fn base(n: int) to int { return n + 1 }"
    (behaviour,) = workers.observe([ObservationJob("fn f(n: int) to int { return base(n) * 2 }", "f", given, "s")])
    back = "fn base(n: int) to int { if n > 0 { return f(n - 1) } return 3 }"
    (entangled,) = workers.observe([ObservationJob("fn f(n: int) to int { return base(n) * 2 + n }", "f", back, "s")])

    assert isinstance(behaviour, Behaviour)
    assert behaviour.tests.startswith(given)
    assert entangled is NoBehaviour.ENTANGLED


@pytest.mark.slow
def test_endless_programs_are_ended(workers: BehaviourWorkers) -> None:
    found = list(workers.observe([ObservationJob(_HUNGRY, "f", "", "s"), ObservationJob(_TWICE, "twice", "", "s")]))

    assert found[0] is NoBehaviour.DOES_NOT_END
    assert isinstance(found[1], Behaviour)


def test_functions_are_tried_on_tasks(workers: BehaviourWorkers) -> None:
    other = TaskFunction("fn f(n: int) to int { return n + 1 }", "@test fn t() { assert(f(1) is 2) }", "f")
    tried = [("fn add(a: int) to int { return a + a }", "add", [other, _TASK]), (_TWICE, "twice", [])]

    assert list(workers.statuses([_TASK, other])) == [TaskStatus.COMPARED, TaskStatus.TRIVIAL]
    assert list(workers.first_passed(tried)) == [0, None]
    assert list(workers.first_passed([(tried[0][0], "add", [_TASK])])) == [0]


def test_a_worker_that_dies_gives_a_failed_result() -> None:
    with BehaviourWorkers(1, command=_DEAF) as workers:
        assert list(workers.observe([ObservationJob(_TWICE, "twice", "", "s")])) == [NoBehaviour.STOPPED]
        assert list(workers.statuses([_TASK])) == [TaskStatus.FAILS]
        assert list(workers.first_passed([(_TWICE, "twice", [_TASK])])) == [None]


def test_workers_do_not_run_the_python_files_of_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executed = tmp_path / "executed"
    for name in ("json", "mens_pipeline", "dataclasses"):
        (tmp_path / f"{name}.py").write_text(f"open({str(executed)!r}, 'w')\nraise ImportError('of the workspace')")
    monkeypatch.chdir(tmp_path)
    with BehaviourWorkers(1) as workers:
        (found,) = workers.observe([ObservationJob(_TWICE, "twice", "", "s")])

    assert isinstance(found, Behaviour)
    assert not executed.exists()


@pytest.mark.parametrize(
    "source",
    [
        f"fn f(xs: {'List[' * 900}int{']' * 900}) to int {{ return len(xs) }}",
        f"fn f(n: int) to int {{ return {'(1 + ' * 600}n{')' * 600} }}",
        f"fn f(n: int) to int {{ {'if n > 1 { ' * 200}return 1 {'}' * 200} return 2 }}",
        "type T { " + " ".join(f"a{n}: List[T]" for n in range(60)) + " }\nfn f(t: T) to int { return len(t.a0) }",
    ],
    ids=["type", "expression", "blocks", "record"],
)
def test_programs_of_any_depth_do_not_stop_a_worker(workers: BehaviourWorkers, source: str) -> None:
    (found,) = workers.observe([ObservationJob(source, "f", "", "s")])

    assert found != NoBehaviour.STOPPED


def test_no_worker_is_started_without_jobs() -> None:
    with BehaviourWorkers(command=("/nowhere/at/all",)) as workers:
        assert list(workers.observe([])) == []


def _serve(*requests: Mapping[str, object]) -> list[object]:
    completions, given_up = io.BytesIO(), []

    def give_up(memory: int) -> None:
        given_up.append((memory, completions.getvalue()))

    main(
        1_000, io.BytesIO(b"".join(json.dumps(request).encode() + b"\n" for request in requests)), completions, give_up
    )
    assert given_up == [(1_000, b"")]
    return [json.loads(line) for line in completions.getvalue().splitlines()]


def test_a_worker_gives_up_its_rights_before_it_responds() -> None:
    base = "fn base(n: int) to int { if n > 0 { return f(n - 1) } return 3 }"
    observe = {"kind": "observe", "source": _TWICE, "function": "twice", "given": "", "seed": "s"}
    entangled = {**observe, "source": "fn f(n: int) to int { return base(n) * 2 + n }", "function": "f", "given": base}
    constant = {**observe, "source": _TWICE.replace("n * 2", "3")}
    tasks = [list(astuple(_TASK))]
    tried = {"kind": "try", "program": _TWICE, "function": "twice", "tasks": tasks}
    found, *others = _serve(observe, entangled, constant, {"kind": "status", "tasks": tasks}, tried)

    assert isinstance(found, dict)
    assert len(found["hidden"]) >= 5
    assert others == ["entangled", "constant", ["compared"], 0]
