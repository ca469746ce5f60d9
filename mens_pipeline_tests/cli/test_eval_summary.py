"""The last lines of `mens eval-local`."""

from pathlib import Path

from mens_pipeline.cli.eval_summary import summary_of
from mens_pipeline.evaluation.evaluate import Answers, evaluate_answers
from mens_pipeline.evaluation.generation import Decoding
from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline_tests.evaluation.judged import BROKEN, GOOD, SUBJECT, answer, task

_TESTS = "@test fn hidden() { assert(add(1, 2) is 3) }\n"


def test_every_figure_of_a_suite_is_shown_beside_that_of_the_base() -> None:
    """Of six samples pass@1, pass@5 and pass@6; hidden tests where there are any."""
    tasks = [task(), task(1, Suite.BENCHMARK, tests=_TESTS)]
    base = tuple(answer(BROKEN, to, n) for to in tasks for n in range(6))
    adapter = tuple(answer(GOOD if n == 0 else BROKEN, to, n) for to in tasks for n in range(6))
    decoding = Decoding(num_samples=6, temperature=0.5)
    results = evaluate_answers(tasks, Answers(base, adapter), SUBJECT, decoding, num_too_long=0).results
    lines = [line.split(" (")[0] for line in summary_of(results, Path("report.html")).splitlines()]
    heldout = [
        *("  parse rate  adapter 0.17/1", "              base    0/1"),
        *("  pass@1      adapter 0.17/1", "              base    0/1"),
        *("  pass@5      adapter 0.83/1", "              base    0/1"),
        *("  pass@6      adapter 1/1", "              base    0/1"),
    ]

    assert lines[:9] == ["heldout, 1 requests", *heldout]
    assert lines[9:18] == ["benchmark, 1 requests", *heldout]
    assert lines[18:20] == ["  tests pass  adapter 0.17/1", "              base    0/1"]
    assert lines[20:] == ["constructs in accepted answers: 1/30", "report report.html"]
