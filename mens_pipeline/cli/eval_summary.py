"""The last lines of `mens eval-local`: base, base with examples, adapter, and adapter with the fallback."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mens_pipeline.evaluation.results import BestOf, EvalResults
    from mens_pipeline.evaluation.scores import Scores
    from mens_pipeline.evaluation.statistics import Rate

_COLUMNS: Final = ("base", "few-shot", "adapter", "fallback")


def summary_of(results: "EvalResults", page: Path) -> str:
    """Format the figures that most people look for, each with its 95 % interval.

    Args:
        results: All figures.
        page: The report, for the rest.
    """
    others = {"few-shot": results.few_shot, "fallback": results.fallback}
    asked = {name: other.scores.suites for name, other in others.items() if other is not None}
    models = {"base": results.base.suites, **asked, "adapter": results.adapter.suites}
    columns = [name for name in _COLUMNS if name in models]
    rows: list[tuple[str, ...]] = [("suite", "figure", *columns)]
    served = "adapter" if results.fallback is None else "fallback"
    for suite, adapter in results.adapter.suites.items():
        rows += _rows(suite, [models[name].get(suite) for name in columns], adapter)
        rows += _best_of_rows(results.best_of, suite, [name == served for name in columns])
    for suite, adapter in results.families.items():
        rows += _rows(suite, [adapter if name == "adapter" else None for name in columns], adapter)
    coverage = results.adapter.overall.coverage
    found = f"{len(coverage.present)}/{len(coverage.present) + len(coverage.missing)}"
    return "\n".join([*_table(rows), f"constructs in accepted answers: {found}", f"report {page}"])


def trial_summary_of(scores: "Scores", best_of: "BestOf | None", answers: Path) -> str:
    """Format the figures of an adapter that answered a benchmark alone.

    Args:
        scores: Its figures.
        best_of: Those of best-of-n; None with one answer to each request.
        answers: Where its answers stand.
    """
    rows = [("suite", "figure", "adapter"), *_rows("benchmark", [scores], scores)]
    rows += _best_of_rows(best_of, "benchmark", [True])
    return "\n".join([*_table(rows), f"answers {answers}", "a trial: no verdict rests on it"])


def _rows(suite: str, models: "Sequence[Scores | None]", adapter: "Scores") -> Iterator[tuple[str, ...]]:
    """Yield the table rows of a suite; hidden tests where there are any."""
    figures: dict[str, list[Rate | None]] = {
        "parse rate": [model.parse_rate if model is not None else None for model in models]
    }
    for number in adapter.pass_at:
        figures[f"pass@{number}"] = [model.pass_at[number] if model is not None else None for model in models]
    if adapter.test_rate.denominator:
        figures["hidden tests"] = [model.test_rate if model is not None else None for model in models]
    for label, rates in figures.items():
        yield (suite, label, *map(_cell, rates))
        suite = ""


def _best_of_rows(best_of: "BestOf | None", suite: str, columns: Sequence[bool]) -> Iterator[tuple[str, ...]]:
    """Show the figures of chosen completions in the column of what is served."""
    if best_of is None:
        return
    scores = best_of.suites[suite]
    figures = {f"best-of-{best_of.n}": scores.pass_rate, f"best-of-{best_of.n}, hidden tests": scores.test_rate}
    for label, rate in figures.items():
        if rate.denominator:
            yield ("", label, *(_cell(rate if is_served else None) for is_served in columns))


def _cell(rate: "Rate | None") -> str:
    if rate is None or rate.value is None:
        return "-"
    return f"{rate.short} {100 * rate.low:.1f} to {100 * rate.high:.1f}"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
