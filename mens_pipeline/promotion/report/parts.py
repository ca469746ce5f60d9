"""The figures part by part: constructs, difficulties, errors, and what no answer shows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mens_pipeline.evaluation.results import EvalResults
from mens_pipeline.evaluation.scores import Scores
from mens_pipeline.evaluation.statistics import Rate, rate_of

_DIFFICULTIES: Final = ("easy", "medium", "hard")


@dataclass(frozen=True, slots=True)
class PartRow:
    """One part of the prompts.

    Attributes:
        rates: Parse rate of the base, parse rate of the adapter, pass@1 of the adapter, and the share of the adapter's
            answers that pass all hidden tests, over the prompts that have any.
    """

    name: str
    num_tasks: int
    rates: tuple[Rate, Rate, Rate, Rate]


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """Answers of base and adapter that fail with one code: of the diagnostic, or of what happened when it was run."""

    code: str
    base: int
    adapter: int


@dataclass(frozen=True, slots=True)
class Missing:
    """A construct that no accepted answer of the adapter shows, with the number of prompts that ask for it."""

    construct: str
    num_asked: int


def construct_rows(results: EvalResults) -> tuple[PartRow, ...]:
    """Return the constructs that were asked for; those that the adapter does least well first."""
    rows = _rows(results.base.constructs, results.adapter.constructs, results.adapter.constructs)
    return tuple(sorted(rows, key=lambda row: (row.rates[2].value or 0.0, -row.num_tasks, row.name)))


def difficulty_rows(results: EvalResults) -> tuple[PartRow, ...]:
    """Return a row for each difficulty, easy first."""
    found = results.adapter.difficulties
    names = [*(name for name in _DIFFICULTIES if name in found), *(name for name in found if name not in _DIFFICULTIES)]
    return _rows(results.base.difficulties, found, names)


def missing_constructs(results: EvalResults) -> tuple[Missing, ...]:
    """Return the constructs that no accepted completion of the adapter shows; those asked for most first."""
    asked = results.adapter.constructs
    missing = results.adapter.overall.coverage.missing
    found = (Missing(name, asked[name].num_tasks if name in asked else 0) for name in missing)
    return tuple(sorted(found, key=lambda item: (-item.num_asked, item.construct)))


def error_rows(base: Mapping[str, int], adapter: Mapping[str, int]) -> tuple[ErrorRow, ...]:
    """Return how many answers of base and adapter fail with each error; those that the adapter makes most first."""
    rows = (ErrorRow(code, base.get(code, 0), adapter.get(code, 0)) for code in {**adapter, **base})
    return tuple(sorted(rows, key=lambda row: (-row.adapter, -row.base, row.code)))


def _rows(base: Mapping[str, Scores], adapter: Mapping[str, Scores], names: Iterable[str]) -> tuple[PartRow, ...]:
    return tuple(
        PartRow(
            name,
            adapter[name].num_tasks,
            (
                base[name].parse_rate if name in base else rate_of(()),
                adapter[name].parse_rate,
                adapter[name].pass_at_1,
                adapter[name].test_rate,
            ),
        )
        for name in names
    )
