"""`mens compare`: what recipes or models came to, side by side."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mens_pipeline.cli.terminal import aligned, say, tell

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mens_pipeline.evaluation.statistics import Rate
    from mens_pipeline.promotion.report.compare import ComparedRow, Side
    from mens_pipeline.promotion.report.leaderboard import Duel, Leaderboard
    from mens_pipeline.promotion.report.score_table import Figure

_FEWEST: Final = 2

_WIDEST: Final = 24
"""Characters of the name of a recipe above its column."""


def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="A B...",
            help="Recipes that were run, or ids of runs; files of trial answers, or folders that hold one.",
        ),
    ],
    *,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where the page goes.")] = Path(
        "compare.html"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as one JSON document.")] = False,
) -> None:
    """Lay what recipes or models came to side by side: scores, paired differences, and every answer on a page.

    Of a recipe, the newest run that evaluated an adapter counts, of `mens run` or of the UI. Differences of two are
    those of B less those of A over the prompts that both were asked, with the exact paired test of the gate's report.

    More than two, and models that were tried by `mens eval-local --trial` or --endpoint, make a leaderboard: over the
    tasks of a benchmark that all were asked, by pass@1. A path stands for the judged answers of a trial or of the
    folder of a run: trial_answers.jsonl or judged_answers.jsonl.

    Exit code 0: compared. 1: nothing is there to compare. 2: the command was misused.
    """
    from mens_pipeline.promotion.report.leaderboard import answers_at

    if len(names) < _FEWEST:
        raise typer.BadParameter("one alone cannot be compared. Name at least two.")
    paths = [answers_at(Path(name)) for name in names]
    if len(names) == _FEWEST and paths == [None, None]:
        _compare_two(names, output, as_json=as_json)
    else:
        _rank(list(zip(names, paths, strict=True)), output, as_json=as_json)


def _sides(names: "Sequence[str]") -> "list[Side]":
    """Return what recipes and runs came to."""
    from mens_pipeline.configured import open_store
    from mens_pipeline.orchestration.evaluations import side_called
    from mens_pipeline.orchestration.instance import open_instance
    from mens_pipeline.settings import load_settings

    settings = load_settings()
    with open_instance(settings.dagster_home) as instance:
        return [side_called(name, instance, open_store(settings)) for name in names]


def _compare_two(names: "Sequence[str]", output: Path, *, as_json: bool) -> None:
    """Compare all prompts of two exams."""
    from mens_pipeline.promotion.report.compare import (
        compare_page,
        compared_rows,
        notes_on,
    )

    one, other = _sides(names)
    rows, notes = compared_rows(one, other), notes_on(one, other)
    _write(output, compare_page(one, other))
    if as_json:
        told = {"first": one.name, "second": other.name, "notes": notes, "rows": [*map(_json, rows)]}
        typer.echo(json.dumps(told, indent=2))
    else:
        for line in aligned(_cells((one, other), rows)):
            say(line)
    _tell(notes, output)


def _rank(named: "Sequence[tuple[str, Path | None]]", output: Path, *, as_json: bool) -> None:
    """Rank any number of models over the tasks of a benchmark."""
    from mens_pipeline.promotion.report.leaderboard import (
        RANKED_BY,
        SHOWN,
        contestant,
        leaderboard,
        leaderboard_page,
        read_contestant,
    )

    recipes = [name for name, path in named if path is None]
    sides = {side.name: side for side in (_sides(recipes) if recipes else ())}
    board = leaderboard(
        [contestant(name, sides[name].answers) if path is None else read_contestant(path) for name, path in named]
    )
    _write(output, leaderboard_page(board))
    if as_json:
        labels = [figure.label for figure in SHOWN]
        models = [
            {
                "name": standing.contestant.name,
                "figures": dict(zip(labels, (rate.model_dump() for rate in standing.rates), strict=True)),
            }
            for standing in board.standings
        ]
        duels = [{**asdict(duel), "tone": str(duel.tone)} for figure in SHOWN for duel in board.duels(figure)]
        told = {"num_tasks": board.num_tasks, "notes": board.notes, "models": models, "differences": duels}
        typer.echo(json.dumps(told, indent=2))
    else:
        for line in aligned(_ranks(board, SHOWN)):
            say(line)
        for line in aligned(_differences(board.duels(RANKED_BY))):
            say(line)
    _tell(board.notes, output)


def _write(output: Path, page: str) -> None:
    try:
        output.write_text(page, encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{output}: {error.strerror}. Name a file that you may write with -o.") from error


def _tell(notes: "Sequence[str]", output: Path) -> None:
    for note in notes:
        tell(note)
    tell(f"page {output}")


def _ranks(board: "Leaderboard", figures: "Sequence[Figure]") -> list[list[str]]:
    """Return a column for each model, a row for each figure with its interval."""
    cells = [[f"{board.num_tasks} tasks", *(_short(standing.contestant.name) for standing in board.standings)]]
    for place, figure in enumerate(figures):
        rates = [standing.rates[place] for standing in board.standings]
        cells.append([figure.label, *map(_cell, rates)])
    return cells


def _cell(rate: "Rate") -> str:
    return rate.short if rate.value is None else f"{rate.short} {100 * rate.low:.1f} to {100 * rate.high:.1f}"


def _differences(duels: "Iterable[Duel]") -> list[list[str]]:
    from mens_pipeline.evaluation.statistics import p_text
    from mens_pipeline.promotion.report.score_table import points

    return [
        [duel.figure, f"{_short(duel.second)} less {_short(duel.first)}", points(duel.difference), p_text(duel.p_value)]
        for duel in duels
    ]


def _json(row: "ComparedRow") -> dict[str, object]:
    rates = [rate.model_dump() for rate in row.rates]
    return {**asdict(row), "rates": rates, "tone": str(row.tone)}


def _cells(sides: "tuple[Side, Side]", rows: "Sequence[ComparedRow]") -> list[list[str]]:
    """Return a row for each figure: both rates, the difference, and what it is worth."""
    cells = [["", *(_short(side.name) for side in sides), "difference", ""]]
    cells += [[row.label, *(rate.short for rate in row.rates), row.difference, row.p_value] for row in rows]
    facts = [
        [side.results.subject.adapter_sha256[:12], side.results.subject.base_model, side.verdict] for side in sides
    ]
    return cells + [
        [name, *values, "", ""] for name, *values in zip(("adapter", "base", "verdict"), *facts, strict=True)
    ]


def _short(name: str) -> str:
    return name if len(name) <= _WIDEST else f"{name[: _WIDEST - 3]}..."
