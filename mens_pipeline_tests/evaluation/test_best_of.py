"""Best-of-n beside pass@1."""

import pytest

from mens_pipeline.corpus.behaviour.wording import example_tests, stated_examples
from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.evaluation.best_of import best_of
from mens_pipeline.evaluation.evaluate import judge_all
from mens_pipeline.evaluation.execution import FEATURES
from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline.language.interpreter import run_with_tests
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.evaluation.judged import BROKEN, GOOD, answer, task

_WRONG = GOOD.replace("a + b", "a - b")
_TESTS = "@test fn hidden() { assert(add(1, 2) is 3) }\n"
_STATED = "Write a function `add` in Vox. For example, `add(1, 1)` is 2."


def test_the_chosen_answer_is_scored_and_compared_with_the_first() -> None:
    """Of three samples one passes; by the examples of one prompt it is found, by the votes of the other it is not."""
    stated = task(0, prompt=_STATED, tests=_TESTS)
    voted = task(1, Suite.BENCHMARK, tests=_TESTS)
    answers = [answer(text, to, n) for to in (stated, voted) for n, text in enumerate((BROKEN, _WRONG, GOOD, _WRONG))]
    found = best_of([stated, voted], answers, judge_all([stated, voted], answers))

    assert found is not None
    assert (found.n, found.steps) == (4, {"examples": 1, "outputs": 1})
    assert found.chosen == {stated.id: 2, voted.id: 1}
    assert found.overall.pass_rate.short.startswith("1/2")
    assert found.suites["heldout"].test_rate.value == 1
    assert found.suites["benchmark"].test_rate.value == 0
    assert (found.pass_difference.only_first, found.pass_difference.only_second) == (0, 1)


def test_hidden_tests_have_no_part_in_it() -> None:
    """The same answers are chosen with other hidden tests, or none."""
    texts = (BROKEN, _WRONG, GOOD, _WRONG)
    chosen = []
    for tests in (None, _TESTS, _TESTS.replace("3", "-1")):
        asked = task(0, tests=tests)
        answers = [answer(text, asked, n) for n, text in enumerate(texts)]
        found = best_of([asked], answers, judge_all([asked], answers))
        assert found is not None
        chosen.append(found.chosen)

    assert chosen == [{task().id: 1}] * 3


def test_the_likelihood_of_answers_counts() -> None:
    """Where nothing else tells them apart."""
    asked = task(0, prompt="Write a function.")
    answers = [
        answer(text, asked, n).model_copy(update={"likelihood": -1.0 / (n + 1)})
        for n, text in enumerate((GOOD, _WRONG))
    ]
    found = best_of([asked], answers, judge_all([asked], answers))

    assert found is not None
    assert (found.chosen, found.steps) == ({asked.id: 1}, {"likelihood": 1})


def test_one_answer_is_no_choice() -> None:
    """There is no figure then, and nothing that it depends on."""
    asked = task()

    assert best_of([asked], [answer()], judge_all([asked], [answer()])) is None


@pytest.mark.slow
def test_the_examples_of_humaneval_vox_are_read_as_they_are_meant() -> None:
    """The references pass them; one prompt speaks of a call with names for any values."""
    tasks = load_benchmark(PROJECT_ROOT / "data" / "heldout_bench" / "humaneval_vox").tasks
    stated = {one.id: (one.solution, examples) for one in tasks if (examples := stated_examples(one.spec.description))}
    failed = {
        name
        for name, (solution, examples) in stated.items()
        if not run_with_tests(solution, example_tests(examples), features=FEATURES).passed
    }

    assert len(stated) > 95
    assert failed == {"hev_070_sort_with"}
