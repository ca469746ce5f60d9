"""The last lines of `mens eval-local`: adapter beside base."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mens_pipeline.evaluation.results import EvalResults
    from mens_pipeline.evaluation.scores import Scores
    from mens_pipeline.evaluation.statistics import Rate


def summary_of(results: "EvalResults", page: Path) -> str:
    """The figures that most people look for.

    Args:
        results: All figures.
        page: The report, for the rest.
    """
    lines = []
    for suite, scores in results.adapter.suites.items():
        lines.append(f"{suite}, {scores.num_tasks} requests")
        for label, adapter, base in _rates(scores, results.base.suites[suite]):
            lines += [f"  {label:<12}adapter {adapter}", f"  {'':<12}base    {base}"]
    coverage = results.adapter.overall.coverage
    lines += [
        f"constructs in accepted answers: {len(coverage.present)}/{len(coverage.present) + len(coverage.missing)}",
        f"report {page}",
    ]
    return "\n".join(lines)


def _rates(adapter: "Scores", base: "Scores") -> Iterator[tuple[str, "Rate", "Rate"]]:
    """What is shown of a suite; hidden tests where there are any."""
    yield "parse rate", adapter.parse_rate, base.parse_rate
    for number, rate in adapter.pass_at.items():
        yield f"pass@{number}", rate, base.pass_at[number]
    if adapter.test_rate.denominator:
        yield "tests pass", adapter.test_rate, base.test_rate
