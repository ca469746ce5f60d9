"""`mens compare`: recipes or models side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer
from pydantic import TypeAdapter

from mens_pipeline.cli.options import argument, declare_options, option, switch
from mens_pipeline.cli.terminal import align_columns, log_line, print_json, print_line
from mens_pipeline.settings import load_settings, open_store
from mens_pipeline.storage.jsonl import write_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mens_pipeline.promotion.report.side_by_side import ComparedModel, SideBySide


_FEWEST: Final = 2
_WIDEST: Final = 24  # maximum characters of a name above its column


@declare_options
def compare(
    *,
    names: list[str] = argument(
        "Recipes that were run, ids of runs, files of trial completions, or folders with one.", metavar="NAME"
    ),
    output: Path = option(Path("compare.html"), "File for the HTML page.", "-o", "--output", metavar="FILE"),
    as_json: bool = switch("Print the table as one JSON document.", "--json"),
) -> None:
    """Compare recipes or models side by side: scores, paired differences, and a page with every completion.

    A recipe means its newest run that evaluated an adapter, by `mens run` or in the UI. A path means scored completions
    of a trial or of a run: trial_completions.jsonl or scored_completions.jsonl.

    Figures cover the prompts that all of them completed in the same wording. Differences are relative to the first
    name, with the exact paired test of the gate's report; the others are sorted by pass@1. Adapters are compared by
    free completions, or by served ones if a name is a file that `mens eval-local --trial` or --endpoint wrote.

    Exit code 0: compared. 1: there is nothing to compare. 2: the command was misused.
    """
    from mens_pipeline.promotion.report.page import comparison_page
    from mens_pipeline.promotion.report.side_by_side import FigureTable
    from mens_pipeline.promotion.report.side_by_side import compare as compare_entries

    if len(names) < _FEWEST:
        raise typer.BadParameter("nothing to compare it with. Name at least two.")
    comparison = compare_entries(_entries(names))
    write_text(output, comparison_page(comparison))
    if as_json:
        table = TypeAdapter(FigureTable).dump_python(comparison.table, mode="json")
        print_json({"num_tasks": comparison.num_tasks, "notes": comparison.notes, **table})
    else:
        for line in align_columns([*_lines(comparison)]):
            print_line(line)
    for note in comparison.notes:
        log_line(note)
    log_line(f"page {output}")


def _entries(names: "Sequence[str]") -> "list[ComparedModel]":
    from mens_pipeline.orchestration.instance import open_instance
    from mens_pipeline.orchestration.recipes import find_entry
    from mens_pipeline.promotion.report.side_by_side import find_completions, read_model

    paths = {name: find_completions(Path(name)) for name in names}
    if all(paths.values()):
        return [read_model(path) for name in names if (path := paths[name])]
    settings = load_settings()
    with open_instance(settings.dagster_home) as instance:
        return [
            read_model(path) if (path := paths[name]) else find_entry(name, instance, open_store(settings))
            for name in names
        ]


def _lines(comparison: "SideBySide") -> "Iterator[Sequence[str]]":
    head, *lines = comparison.table.lines()
    yield [name if len(name) <= _WIDEST else f"{name[: _WIDEST - 3]}..." for name in head]
    yield from lines
    facts = {
        "adapter": [e.results.subject.adapter_sha256[:12] if e.results else "" for e in comparison.entries],
        "base": [e.results.subject.base_model if e.results else "" for e in comparison.entries],
        "verdict": [entry.verdict for entry in comparison.entries],
    }
    for label, (first, *others) in facts.items():
        if first or any(others):
            yield ["", label, first, *(text for other in others for text in (other, ""))]
