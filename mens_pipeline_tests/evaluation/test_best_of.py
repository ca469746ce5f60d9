"""Best-of-n beside pass@1."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from mens_pipeline.corpus.behaviour.examples import example_tests, stated_examples
from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.evaluation.best_of import SampledText, Selection, Selector, Step, best_of, choose_insert
from mens_pipeline.evaluation.evaluate import score_completions
from mens_pipeline.evaluation.judge import FEATURES
from mens_pipeline.evaluation.results import BestOf
from mens_pipeline.evaluation.tasks import Suite, Task
from mens_pipeline.inference.generation import Completion
from mens_pipeline.language import Mode
from mens_pipeline.language.interpreter import run_with_tests
from mens_pipeline.language.surroundings import Surroundings
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.evaluation.scored import BROKEN, GOOD, completion, task

_WRONG = GOOD.replace("a + b", "a - b")
_TESTS = "@test fn hidden() { assert(add(1, 2) is 3) }\n"
_STATED = "Write a function `add` in Vox. For example, `add(1, 1)` is 2."


def _best_of(tasks: list[Task], completions: list[Completion]) -> BestOf:
    found = best_of(tasks, completions, score_completions(tasks, completions))
    assert found is not None
    return found


def test_the_chosen_completion_is_scored_and_compared_with_the_first() -> None:
    stated = task(0, prompt=_STATED, tests=_TESTS)
    voted = task(1, Suite.BENCHMARK, tests=_TESTS)
    completions = [
        completion(text, to, n) for to in (stated, voted) for n, text in enumerate((BROKEN, _WRONG, GOOD, _WRONG))
    ]
    found = _best_of([stated, voted], completions)

    assert (found.n, found.steps) == (4, {"examples": 1, "outputs": 1})
    assert found.chosen == {stated.id: 2, voted.id: 1}
    assert found.overall.pass_rate.short.startswith("1/2")
    assert found.suites["heldout"].test_rate.value == 1
    assert found.suites["benchmark"].test_rate.value == 0
    assert (found.pass_difference.only_first, found.pass_difference.only_second) == (0, 1)


@pytest.mark.parametrize("tests", [None, _TESTS, _TESTS.replace("3", "-1")])
def test_hidden_tests_do_not_affect_the_choice(tests: str | None) -> None:
    asked = task(0, tests=tests)
    completions = [completion(text, asked, n) for n, text in enumerate((BROKEN, _WRONG, GOOD, _WRONG))]

    assert _best_of([asked], completions).chosen == {task().id: 1}


def test_the_likelier_completion_is_chosen() -> None:
    asked = task(0, prompt="Write a function.")
    completions = [
        completion(text, asked, n).model_copy(update={"likelihood": -1.0 / (n + 1)})
        for n, text in enumerate((GOOD, _WRONG))
    ]
    found = _best_of([asked], completions)

    assert (found.chosen, found.steps) == ({asked.id: 1}, {"likelihood": 1})


def test_one_completion_has_no_best_of() -> None:
    asked = task()

    assert best_of([asked], [completion()], score_completions([asked], [completion()])) is None


@pytest.mark.slow
def test_the_examples_of_humaneval_vox_hold_for_its_solutions() -> None:
    tasks = load_benchmark(PROJECT_ROOT / "data" / "heldout_bench" / "humaneval_vox").tasks
    stated = {one.id: (one.solution, examples) for one in tasks if (examples := stated_examples(one.spec.description))}
    failed = {
        name
        for name, (solution, examples) in stated.items()
        if not run_with_tests(solution, example_tests(examples), features=FEATURES).passed
    }

    assert len(stated) > 95
    assert failed == {"hev_070_sort_with"}


_ALSO_ADD = "fn add(a: int, b: int) to int {\n    let sum = b + a\n    return sum\n}\n"
_MORE = "fn add(a: int, b: int) to int {\n    return a + b + 1\n}\n"
_HUNGRY = """fn add(a: int, b: int) to int {
    let re = std.regex.compile("(a+)+$").unwrap()
    if re.matches("a".repeat(60) + "b") { return 1 }
    return a + b
}
"""
_PROMPT = "Write a function `add` in Vox that adds two ints."
_WITH_EXAMPLES = f"{_PROMPT} For example, `add(1, 2)` is 3 and `add(0, 0)` is 0."


@pytest.fixture(scope="module")
def selector() -> Iterator[Selector]:
    """Processes for all tests of this file."""
    with Selector() as selector:
        yield selector


def _choose(selector: Selector, prompt: str, *texts: str, mode: Mode = Mode.SOURCE, **options: float) -> Selection:
    return selector.choose(prompt, mode, [SampledText(text, -float(n)) for n, text in enumerate(texts)], **options)


def test_rejected_and_empty_programs_are_not_chosen(selector: Selector) -> None:
    assert _choose(selector, _PROMPT, BROKEN, "// add\n", _WRONG) == Selection(2, Step.PARSER)
    assert _choose(selector, _PROMPT, BROKEN, "fn (") == Selection(0, Step.LIKELIHOOD)


def test_names_and_types_decide_before_examples(selector: Selector) -> None:
    unknown = "fn add(a: int, b: int) to int { if a > 100 { return total } return a + b }"
    type_ = "type Sum {\n    of: Missing\n}\n"

    assert _choose(selector, _WITH_EXAMPLES, unknown, _WRONG) == Selection(1, Step.NAMES)
    assert _choose(selector, f"{_WITH_EXAMPLES} Use `total`.", unknown, _WRONG) == Selection(0, Step.EXAMPLES)
    assert _choose(selector, f"{_WITH_EXAMPLES}\n\nlet total = 1\n", unknown, _WRONG) == Selection(0, Step.EXAMPLES)
    assert _choose(selector, _WITH_EXAMPLES, BROKEN, unknown, unknown + "\n\n" + type_).step is Step.LIKELIHOOD
    assert _choose(selector, "Write it.", "state n: int = m", "state n: int = 0", mode=Mode.UI) == Selection(
        1, Step.NAMES
    )


def test_the_examples_of_the_prompt_are_run(selector: Selector) -> None:
    assert _choose(selector, _WITH_EXAMPLES, _WRONG, _WRONG, GOOD, _MORE) == Selection(2, Step.EXAMPLES)
    fenced = f"Here it is:\n```vox\n{GOOD}```\n"
    assert _choose(selector, _WITH_EXAMPLES, _MORE, fenced) == Selection(1, Step.EXAMPLES)


def test_completions_may_use_the_code_in_a_prompt(selector: Selector) -> None:
    prompt = (
        "Write `area` for a box. For example, `area({ w: 2, h: 3 })` is 6.\n\nThis is there already:\n\n"
        "type Box { w: int, h: int }\n\nfn times(a: int, b: int) to int { return a * b }\n"
    )
    good = "fn area(box: Box) to int { return times(box.w, box.h) }"
    wrong = "fn area(box: Box) to int { return box.w + box.h }"

    assert _choose(selector, prompt, wrong, good) == Selection(1, Step.EXAMPLES)
    assert _choose(selector, prompt.replace("For example", "So"), wrong, good).place == 1


def test_the_majority_of_outputs_decides_if_examples_do_not(selector: Selector) -> None:
    assert _choose(selector, _PROMPT, _WRONG, GOOD, _ALSO_ADD) == Selection(1, Step.LIKELIHOOD)
    assert _choose(selector, _PROMPT, GOOD, _WRONG, _WRONG) == Selection(1, Step.OUTPUTS)
    also = "fn add(a: int, b: int) to int { return a + b + 0 * a }"
    wrong = "fn add(a: int, b: int) to int { if a > 40 { return 0 } return a + b }"
    two = _WITH_EXAMPLES.replace(" and `add(0, 0)` is 0", "")
    assert _choose(selector, two, wrong, also, _ALSO_ADD).place == 1


def test_likelihood_decides_last(selector: Selector) -> None:
    first, second = "type A {\n    a: int\n}\n", "type A {\n    b: int\n}\n"
    likelier = [SampledText(first, -2.0), SampledText(second, -1.0)]

    assert selector.choose("Write a type `A`.", Mode.SOURCE, likelier) == Selection(1, Step.LIKELIHOOD)
    assert _choose(selector, "Write a function.", _WRONG, GOOD) == Selection(0, Step.LIKELIHOOD)
    assert _choose(selector, "Write `A`.", first, second, mode=Mode.UI).step is Step.LIKELIHOOD


@pytest.mark.slow
def test_a_completion_that_exceeds_a_limit_is_not_chosen(selector: Selector) -> None:
    begin = time.monotonic()
    by_examples = _choose(selector, _WITH_EXAMPLES, _HUNGRY, _WRONG)
    by_outputs = _choose(selector, _PROMPT, _HUNGRY, _WRONG)

    assert (by_examples.place, by_outputs.place) == (1, 1)
    assert time.monotonic() - begin < 20


def test_after_the_deadline_nothing_is_run(selector: Selector) -> None:
    assert _choose(selector, _WITH_EXAMPLES, BROKEN, _WRONG, GOOD, end=0.0) == Selection(1, Step.LIKELIHOOD)


def test_several_threads_may_choose(selector: Selector) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: _choose(selector, _WITH_EXAMPLES, *([_WRONG] * n), GOOD).place, range(8)))

    assert found == list(range(8))


def test_harmful_examples_run_in_the_sandbox(selector: Selector) -> None:
    prompt = '`add(std.fs.read("/etc/passwd"), 2)` is 3. `add(1, 2)` is 3.'

    assert _choose(selector, prompt, _WRONG, GOOD) == Selection(1, Step.EXAMPLES)


@pytest.mark.parametrize(
    ("pieces", "best"),
    [
        ((("n * 2", -0.5), ("n * (", -0.1)), 0),  # parses
        ((("m * 2", -0.1), ("n * 2", -0.5)), 1),  # a known name
        ((("n * 2", -0.5), ("n * 3", -0.2)), 1),  # likelier
        ((("n * 2", -0.5), ("n * 3", -0.5)), 0),  # equally likely
        ((("", -0.1), ("m * 2", -0.5)), 1),  # anything before nothing
        ((("", -0.1), ("", -0.1)), 0),
    ],
)
def test_a_piece_at_a_cursor_is_chosen(pieces: tuple[tuple[str, float], ...], best: int) -> None:
    candidates = [SampledText(*piece) for piece in pieces]

    assert choose_insert(Surroundings("fn double(n: int) to int {\n    return ", "\n}\n"), candidates) == best
