"""Lines at a cursor with a neighbour from the train set, for an adapter that was trained without any: five ways.

`python -m mens_pipeline_tests.bench.neighbour RUN --data DIR [--lines 292] [--tokens 96]`

DIR holds `heldout.jsonl` and `train.jsonl`. Each line is asked for as in the eval suite; with a wider window; and with
ten lines of a program of the train set above what stands before the cursor: drawn ones, the nearest by BM25, and by an
oracle the nearest that hold the line, where any do. Looked up are the lines around the cursor, without the line itself.
"""

import argparse
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from random import Random

from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.evaluation.infill import InfillTask, infill_decoding, infill_suite
from mens_pipeline.evaluation.statistics import compare_paired, rate_of
from mens_pipeline.inference.generation import EvaluationConfig, Syntax
from mens_pipeline.inference.prepare import completion_fits
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.models.base import FileTokenizer, find_recorded_base
from mens_pipeline.settings import load_settings
from mens_pipeline_tests.bench.context import AROUND, even, find_near, index_parts
from mens_pipeline_tests.bench.infill import complete_requests
from mens_pipeline_tests.bench.machine import machine_name

_ASKED_OF_ORACLE = 200
"""Pieces, nearest first, among which the oracle looks for one with the line."""


def main() -> None:
    """Print exact lines of each way, and what it gains over the eval suite's own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run of `mens train` that was shown holes")
    parser.add_argument("--data", type=Path, default=Path("build"))
    parser.add_argument("--lines", type=int, default=292)
    parser.add_argument("--tokens", type=int, default=96, help="of a neighbour at most")
    options = parser.parse_args()
    load_settings()  # which say where a base may lie
    adapter = Adapter.open(options.run)
    config = EvaluationConfig(infill_lines=options.lines)
    fits = completion_fits(adapter.manifest.base_model, infill_decoding(config))
    train = options.data / "train.jsonl"
    suite = infill_suite(options.data / "heldout.jsonl", train, adapter.manifest, config, fits)
    if suite is None:
        parser.error(f"{options.run} was never shown a hole, or there is none to ask for")
    tokenizer = FileTokenizer(find_recorded_base(adapter.manifest.base_model))
    index = index_parts(
        (pair.digest.hex(), pair.response) for pair in read_pairs(train) if pair.infill is None and pair.response
    )
    print(machine_name(), f"{len(suite.lines)} lines, window {suite.window}", sep=", ")
    exact: dict[str, list[bool]] = {}
    for name, tasks in _ways(suite.lines, index, tokenizer, suite.window, options.tokens):
        window = suite.window if name == "none" else suite.window + options.tokens
        decoding = suite.decoding.model_copy(update={"syntax": Syntax.FREE})
        pieces = complete_requests("adapter", adapter, [task.request(window) for task in tasks], decoding)
        exact[name] = [
            piece.text.split() == task.middle.split() for piece, task in zip(pieces, suite.lines, strict=True)
        ]
        paired = compare_paired(exact["none"], exact[name], [task.file for task in suite.lines])
        print(
            f"{name:<8} {rate_of(exact[name])!s:<70} {paired.only_second} more, {paired.only_first} fewer, "
            f"p {paired.p_value:.3f}",
            flush=True,
        )


def _ways(
    tasks: tuple[InfillTask, ...], index: sqlite3.Connection, tokenizer: FileTokenizer, window: int, most: int
) -> Iterator[tuple[str, list[InfillTask]]]:
    """Yield the name of each way, and the tasks as they are asked for by it."""
    yield "none", [*tasks]
    yield "wider", [*tasks]
    random = Random(0)  # noqa: S311 - the same lines each time
    every = [text for (text,) in index.execute("SELECT text FROM near ORDER BY rowid")]
    near = [find_near(index, _around(task), "", _ASKED_OF_ORACLE) for task in tasks]
    with_line = [
        next((text for text in found if even(task.middle) in even(text)), (found or [""])[0])
        for task, found in zip(tasks, near, strict=True)
    ]
    ways = {"random": random.choices(every, k=len(tasks)), "nearest": [(found or [""])[0] for found in near]}
    for name, texts in (ways | {"oracle": with_line}).items():
        held = sum(even(task.middle) in even(text) for task, text in zip(tasks, texts, strict=True))
        print(f"{name}: {held} neighbours hold the line")
        yield name, [_below(task, text, tokenizer, window, most) for task, text in zip(tasks, texts, strict=True)]


def _around(task: InfillTask) -> str:
    """Return the lines before and behind the one with the cursor."""
    before, behind = task.prefix.split("\n")[:-1], task.suffix.split("\n")[1:]
    return "\n".join([*before[-AROUND:], *behind[:AROUND]])


def _below(task: InfillTask, neighbour: str, tokenizer: FileTokenizer, window: int, most: int) -> InfillTask:
    """Return a task with a neighbour above the last lines before the cursor, as many as the window shows of these."""
    above = _first_lines(neighbour.split("\n"), tokenizer, most)
    own = _first_lines(task.prefix.split("\n")[::-1], tokenizer, window * 3 // 4)[::-1]
    return replace(task, prefix="\n".join([*above, *own]))


def _first_lines(lines: list[str], tokenizer: FileTokenizer, most: int) -> list[str]:
    """Return the first lines that have so many tokens together at most, but the very first in any case."""
    counts = accumulate(len(tokenizer.encode(line + "\n", add_special_tokens=False)) for line in lines)
    return lines[: max(1, sum(count <= most for count in counts))]


if __name__ == "__main__":
    main()
