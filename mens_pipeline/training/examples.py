"""The rows of an encoded train set that a recipe uses, and counts of dropped rows by reason."""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from mens_pipeline.corpus.schema.account import Account, counts_of
from mens_pipeline.corpus.schema.reasons import NotShown
from mens_pipeline.corpus.schema.upstream_rows import LANES_OF_CODE
from mens_pipeline.models.chat import Encoded
from mens_pipeline.storage.code_version import code_version
from mens_pipeline.storage.jsonl import replacing, write_digest
from mens_pipeline.storage.store import key_of
from mens_pipeline.training.plan import Batches, BatchPlan, Columns, Names, Rows, is_validation_group, plan_run
from mens_pipeline.training.recipe import BY_MEMORY, Continued, Recipe, TrainingJob
from mens_pipeline.training.train_rows import Encoding, Shards, why_not_whole

_HIGHEST: Final = 8.0
_TRACES: Final = ("tool_trace", "trajectory")
_FAILURES: Final = ("fail", "error", "repair")
_PIECE: Final = 1 << 20
"""Rows to count at once."""


def row_weight(category: str, task_family: str, rating: int, recipe: Recipe) -> float:
    """Return the weight of a row in the loss: 1 without `trajectory_weighting`, else up to 8."""
    if not recipe.trajectory_weighting:
        return 1.0
    words = f"{category} {task_family}"
    weight = 1.0
    if any(part in words for part in _TRACES):
        weight *= recipe.trajectory_tool_trace_boost
    if any(part in words for part in _FAILURES):
        weight *= recipe.trajectory_failure_boost
    if rating >= recipe.trajectory_quality_floor:
        weight *= recipe.trajectory_quality_boost
    return min(weight, _HIGHEST)


@dataclass(frozen=True, slots=True)
class Example(Encoded):
    """One row as the model sees it; `weight` multiplies its loss."""

    weight: float = 1.0


class ShownRows(Sequence[Example]):
    """Rows of an encoded train set with their lengths in tokens, read from their shards on access."""

    def __init__(self, shards: Sequence[Any], starts: Sequence[int], rows: Rows, lengths: Rows, recipe: Recipe) -> None:
        """Use shards, the index of the first row of each shard, and the indices of the rows in the train set."""
        self.lengths = lengths
        self._shards = shards
        self._starts = starts
        self._rows = rows
        self._recipe = recipe

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> Example: ...

    @overload
    def __getitem__(self, place: slice) -> list[Example]: ...

    def __getitem__(self, place: int | slice) -> Example | list[Example]:
        if isinstance(place, slice):
            return [self[one] for one in range(len(self))[place]]
        row = int(self._rows[place])
        number = bisect_right(self._starts, row) - 1
        shard, row = self._shards[number], row - self._starts[number]
        prompt, completion = (tuple(shard[name][row].values.to_numpy().tolist()) for name in ("prompt", "completion"))
        category, family, rating = (shard[name][row].as_py() for name in ("category", "task_family", "rating"))
        return Example(prompt, completion, row_weight(category, family, rating, self._recipe))


@dataclass(kw_only=True)
class Examples(Account[NotShown]):
    """Training rows and validation rows of a train set, with counts of dropped rows.

    Attributes:
        train: In the order of the train set.
        columns: Their columns, for the plan.
        validation: Rows of other source files, which measure the loss and do not train.
        prose_kinds: Kinds without a row in a lane of code.
        too_long: Kind -> number of rows that are too long, and their tokens.
        num_supervised: Tokens of completions in `train`.
        num_weighted: Rows of `train` whose weight is not 1.
    """

    train: ShownRows
    columns: Columns
    validation: Sequence[Example] = ()
    prose_kinds: frozenset[str] = frozenset()
    too_long: dict[str, tuple[int, int]] = field(default_factory=dict)
    num_supervised: int = 0
    num_weighted: int = 0

    def kinds(self, batches: Batches | None = None) -> dict[str, dict[str, float]]:
        """Count rows and tokens of each kind, in the train set and as shown by `batches`, largest first.

        Counts of shown rows include repeats. `share` is the share of all tokens shown, 0 to 1; `epochs` is the mean
        number of times that a token is shown.
        """
        rows, there = _count(self.columns, (slice(at, at + _PIECE) for at in range(0, len(self.columns), _PIECE)))
        shown_rows = np.empty(0, np.uint32) if batches is None else batches.all_rows
        pieces = (shown_rows[at : at + _PIECE] for at in range(0, len(shown_rows), _PIECE))
        rows_shown, shown = _count(self.columns, pieces)
        names = sorted({*there, *self.too_long}, key=lambda kind: (-shown[kind], -there[kind], kind))
        return {
            kind: {
                "rows": rows[kind],
                "tokens": there[kind],
                "rows_too_long": self.too_long.get(kind, (0, 0))[0],
                "tokens_too_long": self.too_long.get(kind, (0, 0))[1],
                "rows_shown": rows_shown[kind],
                "tokens_shown": shown[kind],
                "share": shown[kind] / (shown.total() or 1),
                "epochs": shown[kind] / (there[kind] or 1),
            }
            for kind in names
        }

    def account(self) -> dict[str, Any]:
        """Return the counts in JSON types."""
        lengths = self.columns.lengths
        return {
            "num_rows": self.seen,
            "num_train": len(self.train),
            "num_validation": len(self.validation),
            "not_shown": counts_of(NotShown, self.dropped),
            "num_tokens": int(lengths.sum()),
            "num_supervised_tokens": self.num_supervised,
            "longest": int(lengths.max(initial=0)),
            "weighted_rows": self.num_weighted,
        }


def _count(columns: Columns, pieces: Iterable[slice | Rows]) -> tuple[Counter[str], Counter[str]]:
    rows, tokens = Counter[str](), Counter[str]()
    for piece in pieces:
        codes = columns.kinds.codes[piece]
        for counter, counts in ((rows, np.bincount(codes)), (tokens, np.bincount(codes, columns.lengths[piece]))):
            found = {columns.kinds.words[code]: int(counts[code]) for code in np.flatnonzero(counts)}
            counter.update(found)
    return rows, tokens


def open_examples(job: TrainingJob) -> Examples:
    """Open the rows of a job, as encoded by its preparation."""
    recipe = job.recipe
    encoding = Encoding(job.train_path, job.base_path, job.system_prompt, recipe.infill_window, job.infill_order)
    return make_examples(Shards(encoding.paths(job.rows_path)), recipe)


def make_examples(shards: Sequence[Any], recipe: Recipe) -> Examples:
    """Find the rows of encoded shards that a recipe uses, and count dropped rows by reason."""
    seen = num_supervised = num_weighted = 0
    dropped, too_long = Counter[NotShown](), (Counter[str](), Counter[str]())
    kinds, categories = dict[str, int](), dict[str, int]()
    of_code: set[int] = set()
    starts: list[int] = []
    sides: tuple[list[_Found], list[_Found]] = ([], [])
    for shard in shards:
        starts.append(seen)
        kind, category = _codes(shard, "kind", kinds), _codes(shard, "category", categories)
        completions = np.diff(shard["completion"].offsets.to_numpy())
        lengths = (np.diff(shard["prompt"].offsets.to_numpy()) + completions).astype(np.uint32)
        of_code.update(np.unique(kind[_is_any(shard, "lane", LANES_OF_CODE.__contains__)]).tolist())
        is_left = np.ones(len(shard), bool)
        for reason, is_kept in _limits(shard, lengths, recipe):
            if reason is NotShown.TOO_LONG:
                of_shard = Columns(lengths, lengths, Names(kind, tuple(kinds)), Names(category, tuple(categories)))
                counts = _count(of_shard, [np.flatnonzero(is_left & ~is_kept).astype(np.uint32)])
                for counter, more in zip(too_long, counts, strict=True):
                    counter.update(more)
            dropped[reason] += int((is_left & ~is_kept).sum())
            is_left &= is_kept
        is_measured = _is_measured(shard, recipe)
        difficulties = shard["difficulty"].to_numpy()
        for side, is_own in zip(sides, (is_left & ~is_measured, is_left & is_measured), strict=True):
            own = np.flatnonzero(is_own)
            side.append(
                _Found((own + seen).astype(np.uint32), lengths[own], difficulties[own], kind[own], category[own])
            )
        own = np.flatnonzero(is_left & ~is_measured)
        num_supervised += int(completions[own].sum())
        num_weighted += _num_weighted(shard, own, recipe) if recipe.trajectory_weighting else 0
        seen += len(shard)
    train, validation = (_Found(*map(np.concatenate, zip(*side, strict=True))) for side in sides)
    names = Names(train.kinds, tuple(kinds)), Names(train.categories, tuple(categories))
    return Examples(
        train=ShownRows(shards, starts, train.rows, train.lengths, recipe),
        columns=Columns(train.lengths, train.difficulties, *names),
        validation=ShownRows(shards, starts, validation.rows, validation.lengths, recipe),
        prose_kinds=frozenset(kind for kind, code in kinds.items() if code not in of_code),
        too_long={kind: (number, too_long[1][kind]) for kind, number in too_long[0].items()},
        num_supervised=num_supervised,
        num_weighted=num_weighted,
        seen=seen,
        kept=len(train.rows) + len(validation.rows),
        dropped=+dropped,
    )


def plan_examples(folder: Path, rows: Columns, recipe: Recipe, continues: Continued | None = None) -> BatchPlan:
    """Return the plan of `plan_run`, cached in the folder of the encoded train set and memory-mapped.

    Making a plan takes a microsecond for each row of an epoch.
    """
    import pyarrow as pa  # noqa: PLC0415 - commands that do not train do not need it

    columns = sha256()
    for column in (rows.lengths, rows.difficulties, rows.kinds.codes, rows.categories.codes):
        columns.update(column.tobytes())
    asked = {
        "columns": columns.hexdigest(),
        "words": [rows.kinds.words, rows.categories.words],
        "recipe": recipe.model_dump(mode="json", exclude={*BY_MEMORY}),
        "continues": continues and continues.model_dump(mode="json"),
        "code": code_version("mens_pipeline.training.plan:plan_run"),
    }
    path = folder / f"plan-{key_of(asked)}.arrow"
    if why_not_whole(path) is not None:
        plan = plan_run(rows, recipe, continues)
        starts = plan.batches.starts - plan.batches.starts[0]
        batches = pa.LargeListArray.from_arrays(pa.array(starts), pa.array(plan.batches.all_rows))
        about = {"num_steps": plan.num_steps, "num_skipped": plan.num_skipped}
        schema = pa.schema([("batches", batches.type)], {"plan": json.dumps(about)})
        with replacing(path) as target, pa.ipc.new_file(target, schema) as writer:
            writer.write_batch(pa.record_batch([batches], schema=schema))
        write_digest(path)
    batch = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
    about, column = json.loads(batch.schema.metadata[b"plan"]), batch["batches"]
    batches = Batches(column.values.to_numpy(), column.offsets.to_numpy())
    return BatchPlan(batches, about["num_steps"], tuple(about["num_skipped"]))


class _Found(NamedTuple):
    rows: Rows
    lengths: NDArray[np.uint32]
    difficulties: NDArray[np.uint8]
    kinds: NDArray[np.uint16]
    categories: NDArray[np.uint16]


def _codes(shard: Any, name: str, words: dict[str, int]) -> NDArray[np.uint16]:
    """Return the indices of a column's words in the words of all shards, after adding new ones."""
    codes = [words.setdefault(word, len(words)) for word in shard[name].dictionary.to_pylist()]
    own: NDArray[np.uint16] = np.array(codes, np.uint16)[shard[name].indices.to_numpy()]
    return own


def _is_any(shard: Any, name: str, holds: Callable[[str], bool]) -> NDArray[np.bool_]:
    """Return whether the word of each row satisfies `holds`; null does not."""
    words = shard[name].dictionary.to_pylist()
    table = np.array([*map(holds, words), False], bool)
    found: NDArray[np.bool_] = table[shard[name].indices.fill_null(len(words)).to_numpy()]
    return found


def _limits(shard: Any, lengths: NDArray[np.uint32], recipe: Recipe) -> Iterator[tuple[NotShown, NDArray[np.bool_]]]:
    yield NotShown.LOW_RATING, shard["rating"].to_numpy() >= recipe.min_rating
    if recipe.category_filter:

        def is_wanted(word: str) -> bool:
            return any(part in word for part in recipe.category_filter)

        names = ("category", "lane", "task_family")
        yield NotShown.OTHER_CATEGORY, np.any([_is_any(shard, name, is_wanted) for name in names], axis=0)
    difficulty = shard["difficulty"].to_numpy()
    yield NotShown.OTHER_DIFFICULTY, (recipe.min_difficulty <= difficulty) & (difficulty <= recipe.max_difficulty)
    yield NotShown.TOO_LONG, lengths <= recipe.max_length


def _is_measured(shard: Any, recipe: Recipe) -> NDArray[np.bool_]:
    if not recipe.validation_split_ratio:
        return np.zeros(len(shard), bool)
    return _is_any(shard, "group", lambda group: is_validation_group(group, recipe.validation_split_ratio, recipe.seed))


def _num_weighted(shard: Any, rows: NDArray[np.int64], recipe: Recipe) -> int:
    families: dict[str, int] = {}
    categories: dict[str, int] = {}
    codes = [_codes(shard, "category", categories), _codes(shard, "task_family", families), shard["rating"].to_numpy()]
    found, counts = np.unique(np.stack([column[rows] for column in codes]), axis=1, return_counts=True)
    names = [tuple(categories), tuple(families)]
    weights = [row_weight(names[0][c], names[1][f], int(r), recipe) for c, f, r in found.T]
    return sum(int(count) for weight, count in zip(weights, counts, strict=True) if weight != 1.0)


def format_too_long(kinds: Mapping[str, Mapping[str, float]]) -> str:
    """Format kinds with rows that are too long: `task 12 rows (7 % of its tokens)`; empty without such rows."""

    def share(counts: Mapping[str, float]) -> float:
        return counts["tokens_too_long"] / (counts["tokens_too_long"] + counts["tokens"])

    return ", ".join(
        f"{kind} {counts['rows_too_long']} rows ({100 * share(counts):.0f} % of its tokens)"
        for kind, counts in sorted(kinds.items())
        if counts["rows_too_long"]
    )
