"""The rows of a train set for the scratch model, and their order."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mens_pipeline.corpus.curate.heldout_split import group_of
from mens_pipeline.corpus.curate.validate import Quarantined, read_row
from mens_pipeline.corpus.schema.account import Account, counts_of
from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.corpus.schema.reasons import Skipped
from mens_pipeline.corpus.schema.records import TrainingPair
from mens_pipeline.errors import RefusedError
from mens_pipeline.models.chat import ControlToken, Encoded
from mens_pipeline.models.chat import encode as encode_chat
from mens_pipeline.scratch.tokenizer import EOS, UNK, encode
from mens_pipeline.storage.jsonl import open_placed_rows, row_at
from mens_pipeline.training.plan import Batches, BatchPlan, build_columns, is_validation_group, plan_run
from mens_pipeline.training.recipe import Recipe


@dataclass(frozen=True, slots=True)
class RowStats:
    """Statistics of a row, whose line starts at the byte `offset`.

    `kind` is its `task_family`, `group` its source file; `num_unknown` counts characters of the prompt without an id.
    """

    offset: int
    line: int
    num_prompt: int
    num_completion: int
    num_unknown: int
    difficulty: int
    category: str
    kind: str
    group: str | None

    def __len__(self) -> int:
        return self.num_prompt + self.num_completion


class JsonlDataLoader:
    """The rows of a train set in the order of the file, without skipped ones.

    It scans the file once, keeps a few numbers per row, and reads a row again on access, since the file may be larger
    than memory. A row is a conversation in ChatML, followed by `EOS`.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_length: int = 512,
        system_prompt: str = SYSTEM_PROMPT,
        min_rating: int = 0,
        strict: bool = False,
    ) -> None:
        """Scan a train set, skipping rows of more than `max_length` tokens or a rating below `min_rating`.

        A line that is not a pair is skipped; with `strict`, it raises RefusedError.
        """
        self._path = path
        self._max_length = max_length
        self._system_prompt = system_prompt
        self._min_rating = min_rating
        self.counts = Account[Skipped]()
        self.entries: list[RowStats] = []
        with open_placed_rows(path) as lines:
            for number, (offset, line) in enumerate(lines, start=1):
                if line.strip():
                    self.counts.seen += 1
                    entry = self._entry(line, number, offset, strict=strict)
                    if isinstance(entry, Skipped):
                        self.counts.dropped[entry] += 1
                    else:
                        self.counts.kept += 1
                        self.entries.append(entry)
        self.counts.check()

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, number: int) -> Encoded:
        entry = self.entries[number]
        row = read_row(row_at(self._path, entry.offset), entry.line)
        encoded = self._encode(row) if isinstance(row, TrainingPair) else Encoded((), ())
        if (len(encoded.prompt), len(encoded.completion)) != (entry.num_prompt, entry.num_completion):
            raise RefusedError(f"{self._path}:{entry.line}: changed while it was in use. Run the command again.")
        return encoded

    def __iter__(self) -> Iterator[Encoded]:
        return (self[number] for number in range(len(self)))

    def account(self) -> dict[str, Any]:
        """Return the counts in JSON types."""
        return {
            "num_rows": self.counts.seen,
            "num_shown": self.counts.kept,
            "skipped": counts_of(Skipped, self.counts.dropped),
            "num_unknown_characters": sum(entry.num_unknown for entry in self.entries),
            "longest": max(map(len, self.entries), default=0),
        }

    def _entry(self, line: bytes, number: int, offset: int, *, strict: bool) -> RowStats | Skipped:
        row = read_row(line, number)
        if not isinstance(row, TrainingPair):
            if strict:
                detail = row.detail if isinstance(row, Quarantined) else "a record without a request"
                advice = "Run `mens corpus validate` on the file, or unset VOX_MENS_TRAIN_JSONL_STRICT."
                raise RefusedError(f"{self._path}:{number}: not a pair ({detail}). {advice}")
            return Skipped.NOT_A_PAIR
        if row.infill is not None:
            return Skipped.AT_A_CURSOR
        if row.rating < self._min_rating:
            return Skipped.LOW_RATING
        encoded = self._encode(row)
        if UNK in encoded.completion:
            return Skipped.NOT_ASCII
        if len(encoded) > self._max_length:
            return Skipped.TOO_LONG
        return RowStats(
            offset=offset,
            line=number,
            num_prompt=len(encoded.prompt),
            num_completion=len(encoded.completion),
            num_unknown=encoded.prompt.count(UNK),
            difficulty=row.difficulty,
            category=row.category,
            kind=row.task_family,
            group=group_of(row),
        )

    def _encode(self, pair: TrainingPair) -> Encoded:
        encoded = encode_chat(_TableTokenizer(), self._system_prompt, pair.prompt, pair.response)
        return Encoded(encoded.prompt, (*encoded.completion, EOS))


class _TableTokenizer:
    added_tokens_decoder: Mapping[int, ControlToken] = {}

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        del add_special_tokens
        return list(encode(text))


@dataclass(frozen=True, slots=True)
class Order(BatchPlan):
    """A plan, and the indices of training and validation rows in the loader."""

    train: tuple[int, ...]
    validation: tuple[int, ...]


def plan_order(loader: JsonlDataLoader, recipe: Recipe) -> Order:
    """Fix the order of a run, the same on every machine; raise RefusedError if no row trains."""
    train: list[int] = []
    validation: list[int] = []
    for row, entry in enumerate(loader.entries):
        is_measured = is_validation_group(entry.group, recipe.validation_split_ratio, recipe.seed)
        (validation if is_measured else train).append(row)
    plan = plan_run(build_columns(loader.entries[row] for row in train), recipe)
    if not plan.batches:
        left_out = ", ".join(f"{count} {reason}" for reason, count in loader.counts.dropped.items()) or "none"
        advice = "Raise max_length, or extract" if loader.counts.dropped[Skipped.TOO_LONG] else "Extract"
        raise RefusedError(f"no row trains (left out: {left_out}). {advice} more data.")
    batches = Batches(np.array(train, np.uint32)[plan.batches.rows], plan.batches.starts)
    return Order(batches, plan.num_steps, plan.num_skipped, tuple(train), tuple(validation))


def count_shown(loader: JsonlDataLoader, order: Order) -> dict[str, Any]:
    """Return the counts of rows and tokens, in JSON types."""
    return {
        **loader.account(),
        "num_train": len(order.train),
        "num_validation": len(order.validation),
        "num_tokens": sum(len(loader.entries[row]) for row in order.train),
        "num_supervised_tokens": sum(loader.entries[row].num_completion for row in order.train),
    }
