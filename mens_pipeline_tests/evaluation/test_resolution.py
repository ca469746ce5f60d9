"""Whether an answer resolves beside what its task has already."""

from typing import Any

import pytest

from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.evaluation.judge import Judgement, judge
from mens_pipeline.evaluation.resolution import first_semantic_error
from mens_pipeline.evaluation.tasks import benchmark_tasks
from mens_pipeline.language import Mode
from mens_pipeline_tests.evaluation.benches import SHIPPED
from mens_pipeline_tests.evaluation.humaneval import HUMANEVAL
from mens_pipeline_tests.evaluation.judged import answer, needs, task

_GIVEN = "type Point {\n    x: int\n}\n\nfn twice(n: int) to int {\n    return n * 2\n}"


def _judged(program: str, **changes: Any) -> Judgement:
    asked = task(**changes)
    return judge(asked, answer(program, asked))


def test_every_reference_of_the_benchmarks_resolves() -> None:
    """Of both; what is found in an answer is a mistake, not a gap of the context."""
    tasks = [*benchmark_tasks(load_benchmark(SHIPPED)), *benchmark_tasks(HUMANEVAL)]
    judged = [judge(asked, answer(asked.reference, asked)) for asked in tasks]

    assert [(judgement.task, judgement.semantic_error) for judgement in judged if not judgement.resolves] == []
    assert len(judged) == 250


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("fn add(p: Point) to int { return twice(p.x) }", None),
        (f"{_GIVEN}\n\nfn add(p: Point) to int {{ return twice(p.x) }}", None),
        ("fn add(p: Point) to int {\n    return p.y\n}", "2:13: unknown-field: `Point` has no field `y`"),
        ("fn add() to int { return thrice(2) }", "1:25: unknown-name: no name `thrice` is known here"),
        ("fn twice() to int { return 1 }\nfn add() to int { return twice() }", None),
    ],
    ids=["relies on it", "repeats it", "wrong of it", "not there", "has one of its own"],
)
def test_what_is_given_is_known(program: str, error: str | None) -> None:
    """With its types; places are those of the answer itself, and what is given is not judged."""
    judgement = _judged(program, given=_GIVEN + "\n\nfn wrong() to int { return nothing }")

    assert (judgement.resolves, judgement.semantic_error) == (error is None, error)
    assert judgement.semantic_code == (error.split(": ")[1] if error is not None else None)


@pytest.mark.parametrize(
    ("prompt", "resolves"),
    [
        ("Write `add`, which calls `helper`.", True),
        ("Write a function `add` in Vox.\n\nThis is there already:\n\nfn helper() to int { return 1 }", True),
        ("Write add_all beside ```\nfn helper() { }\n```", True),
        ("Write a function that is a helper.", False),
    ],
    ids=["backticks", "code behind a blank line", "fence", "prose"],
)
def test_what_the_request_mentions_is_there(prompt: str, *, resolves: bool) -> None:
    """A word of prose is no mention of code."""
    assert _judged("fn add() to int { return helper() }", prompt=prompt).resolves is resolves


def test_what_is_asked_for_is_not_there_yet() -> None:
    """Neither the name of the prompt nor what a benchmark requires: a call of it needs its declaration."""
    prompt = "Write `add` and `minus`; `plus` is there."
    changes = {"prompt": prompt, "requires": (needs("function", name="minus"), needs("function"))}

    assert _judged("fn f() { plus() }", **changes).resolves
    assert not _judged("fn f() { add() }", **changes).resolves
    assert not _judged("fn f() { minus() }", **changes).resolves


def test_what_the_reference_relies_on_is_there() -> None:
    """A prompt need not say what the file has from which it was cut."""
    reference = "fn add(p: Pair) to int { match p { Both(a, b) => a + b, Neither => nothing } }"
    program = "fn add(p: Pair) to int { match p { Both(a, b) => a, Neither => nothing } }"

    assert _judged(program, reference=reference).resolves
    assert not _judged(program).resolves


def test_what_does_not_parse_does_not_resolve() -> None:
    """Nor does what declares nothing; neither has an error in names and types."""
    for program in ("fn add(", "// nothing"):
        judgement = _judged(program)
        assert (judgement.parses, judgement.resolves, judgement.semantic_error) == (False, False, None)


def test_what_cannot_be_known_is_not_wrong() -> None:
    """A script is rejected together with what is given, if that cannot stand in a script."""
    given = "@pure fn twice(n: int) to int { return n * 2 }"

    assert first_semantic_error(task(given=given, mode=Mode.SCRIPT), "print(missing)") is None
    impure = task(given=given.removeprefix("@pure "), mode=Mode.SCRIPT)
    assert first_semantic_error(impure, "print(missing)") is not None
