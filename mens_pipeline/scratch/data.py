"""The rows of a train set for the model from scratch: which are shown, in which order, and as what tensors."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mens_pipeline.corpus.curate.split import group_of
from mens_pipeline.corpus.curate.validate import Quarantined, read_row
from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.errors import RefusedError
from mens_pipeline.models.chat import ControlToken, Encoded
from mens_pipeline.models.chat import encode as encode_chat
from mens_pipeline.scratch.tokenizer import EOS, PAD, UNK, encode
from mens_pipeline.storage.jsonl import open_placed_rows, row_at
from mens_pipeline.training.plan import is_validation_group, plan_run
from mens_pipeline.training.recipe import Recipe

if TYPE_CHECKING:
    import torch

IGNORED: Final = -100
"""The label of what is given, and of padding."""


class Skipped(StrEnum):
    """Why a row of the train set is not shown to the model."""

    NOT_A_PAIR = "not_a_pair"
    LOW_RATING = "low_rating"
    NOT_ASCII = "not_ascii"
    """Its completion holds a character that the model could never write."""
    TOO_LONG = "too_long"
    """Cut, it would lose its end; so it is left out as a whole."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Statistics of a row that is shown.

    Attributes:
        offset: Where its line begins, in bytes.
        line: Its line, from 1.
        num_prompt: Tokens that are given.
        num_completion: Tokens that carry the loss.
        num_unknown: Tokens of the prompt that stand for a character without an id.
        difficulty: 1 to 10.
        category: Its construct or its task.
        kind: What made it, its `task_family`.
        group: Its source file; None when it has none.
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
        """Return the number of tokens."""
        return self.num_prompt + self.num_completion


class JsonlDataLoader:
    """The rows of a train set in the order of the file, without those that are skipped.

    It goes through the file once to see what there is, keeps a few numbers of each row, and reads a row again when it
    is asked for: the file may be larger than memory. A row is a conversation in ChatML and the end of the row.
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
        """Go through a train set.

        Args:
            path: Pairs, one a line.
            max_length: Tokens of a row; longer rows are skipped.
            system_prompt: What the model is told before every prompt.
            min_rating: Rows with a lower rating are skipped; 0 takes all.
            strict: Stop at a line that is no pair, where it would be skipped.

        Raises:
            SourceNotFoundError: The file cannot be read.
            RefusedError: A line is no pair, and `strict` is asked for.
        """
        self._path = path
        self._max_length = max_length
        self._system_prompt = system_prompt
        self._min_rating = min_rating
        self.seen = 0
        self.skipped: Counter[Skipped] = Counter()
        self.entries: list[Entry] = []
        with open_placed_rows(path) as lines:
            for number, (offset, line) in enumerate(lines, start=1):
                if line.strip():
                    self.seen += 1
                    entry = self._entry(line, number, offset, strict=strict)
                    if isinstance(entry, Skipped):
                        self.skipped[entry] += 1
                    else:
                        self.entries.append(entry)
        assert self.adds_up(), "every row is shown or skipped"  # noqa: S101 - our own impossibility

    def __len__(self) -> int:
        """Return the number of rows that are shown."""
        return len(self.entries)

    def __getitem__(self, number: int) -> Encoded:
        """Return a row, read from the file.

        Raises:
            RefusedError: The file changed since it was gone through.
        """
        entry = self.entries[number]
        row = read_row(row_at(self._path, entry.offset), entry.line)
        encoded = self._encode(row) if isinstance(row, TrainingPair) else Encoded((), ())
        if (len(encoded.prompt), len(encoded.completion)) != (entry.num_prompt, entry.num_completion):
            raise RefusedError(f"{self._path}:{entry.line}: changed while it was in use. Run the same again.")
        return encoded

    def __iter__(self) -> Iterator[Encoded]:
        """Iterate over the rows in the order of the file, one at a time."""
        return (self[number] for number in range(len(self)))

    def adds_up(self) -> bool:
        """Return whether nothing disappeared."""
        return self.seen == len(self.entries) + self.skipped.total()

    def account(self) -> dict[str, Any]:
        """Return the counts in JSON types."""
        return {
            "num_rows": self.seen,
            "num_shown": len(self.entries),
            "skipped": {str(reason): self.skipped[reason] for reason in Skipped},
            "num_unknown_characters": sum(entry.num_unknown for entry in self.entries),
            "longest": max(map(len, self.entries), default=0),
        }

    def _entry(self, line: bytes, number: int, offset: int, *, strict: bool) -> Entry | Skipped:
        row = read_row(line, number)
        if not isinstance(row, TrainingPair):
            if strict:
                detail = row.detail if isinstance(row, Quarantined) else "a record without a request"
                advice = "Run `mens corpus validate` on the file, or unset VOX_MENS_TRAIN_JSONL_STRICT."
                raise RefusedError(f"{self._path}:{number}: no pair ({detail}). {advice}")
            return Skipped.NOT_A_PAIR
        if row.rating < self._min_rating:
            return Skipped.LOW_RATING
        encoded = self._encode(row)
        if UNK in encoded.completion:
            return Skipped.NOT_ASCII
        if len(encoded) > self._max_length:
            return Skipped.TOO_LONG
        return Entry(
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
        encoded = encode_chat(_Ids(), self._system_prompt, pair.prompt, pair.response)
        return Encoded(encoded.prompt, (*encoded.completion, EOS))


class _Ids:
    """The table as the one place that writes ChatML takes a tokenizer."""

    added_tokens_decoder: Mapping[int, ControlToken] = {}

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the ids of a text; there are no special tokens to add."""
        del add_special_tokens
        return list(encode(text))


@dataclass(frozen=True, slots=True)
class Order:
    """The rows of a run by their place in the loader, fixed before it begins."""

    train: tuple[int, ...]
    validation: tuple[int, ...]
    batches: tuple[tuple[int, ...], ...]
    num_steps: int

    def first(self, num_steps: int, accumulated: int) -> "Order":
        """Return the first steps of the order."""
        return replace(self, batches=self.batches[: num_steps * accumulated], num_steps=num_steps)


def plan_order(loader: JsonlDataLoader, recipe: Recipe) -> Order:
    """Fix the order of a run; the same arguments give the same order on every machine.

    Raises:
        RefusedError: No row is left to train on.
    """
    train: list[int] = []
    validation: list[int] = []
    for row, entry in enumerate(loader.entries):
        measures = is_validation_group(entry.group, recipe.validation_split_ratio, recipe.seed)
        (validation if measures else train).append(row)
    plan = plan_run([loader.entries[row] for row in train], recipe)
    if not plan.batches:
        left_out = ", ".join(f"{count} {reason}" for reason, count in loader.skipped.items()) or "none"
        raise RefusedError(f"no row trains (left out: {left_out}). Raise max_length, or extract more data.")
    batches = tuple(tuple(train[row] for row in batch) for batch in plan.batches)
    return Order(tuple(train), tuple(validation), batches, plan.num_steps)


def account_of(loader: JsonlDataLoader, order: Order) -> dict[str, Any]:
    """Return the counts of what is shown, in JSON types."""
    return {
        **loader.account(),
        "num_train": len(order.train),
        "num_validation": len(order.validation),
        "num_tokens": sum(len(loader.entries[row]) for row in order.train),
        "num_supervised_tokens": sum(loader.entries[row].num_completion for row in order.train),
    }


def collate(rows: Sequence[Encoded]) -> "dict[str, torch.Tensor]":
    """Build a micro-batch: rows padded on the right to the longest; padding is neither attended to nor learnt.

    Returns:
        `input_ids`, `attention_mask`, `labels` (rows, length), int64; prompt and padding are -100 in the last.
    """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    ids = [torch.tensor(row.prompt + row.completion) for row in rows]
    labels = [torch.tensor([IGNORED] * len(row.prompt) + list(row.completion)) for row in rows]
    return {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=PAD),
        "attention_mask": pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
        "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED),
    }
