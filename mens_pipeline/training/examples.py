"""Encodes the rows of a train set, and counts those that do not train by reason."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mens_pipeline.corpus.curate.heldout_split import group_of
from mens_pipeline.corpus.schema.account import Account, counts_of
from mens_pipeline.corpus.schema.reasons import NotShown
from mens_pipeline.corpus.schema.records import TrainingPair
from mens_pipeline.models.chat import Encoded, Tokenizer, encode
from mens_pipeline.models.infill import encode_infill, order_of
from mens_pipeline.training.plan import is_validation_group
from mens_pipeline.training.recipe import Recipe

_HIGHEST: Final = 8.0
_TRACES: Final = ("tool_trace", "trajectory")
_FAILURES: Final = ("fail", "error", "repair")


def row_weight(pair: TrainingPair, recipe: Recipe) -> float:
    """Return what the loss of a row is multiplied by; 1 unless `trajectory_weighting` is on, never above 8."""
    if not recipe.trajectory_weighting:
        return 1.0
    words = f"{pair.category} {pair.task_family}"
    weight = 1.0
    if any(part in words for part in _TRACES):
        weight *= recipe.trajectory_tool_trace_boost
    if any(part in words for part in _FAILURES):
        weight *= recipe.trajectory_failure_boost
    if pair.rating >= recipe.trajectory_quality_floor:
        weight *= recipe.trajectory_quality_boost
    return min(weight, _HIGHEST)


OBSERVED: Final = "observed"
"""The kind of rows that ask for a function of the workspace, with examples of what it was observed to do."""


@dataclass(frozen=True, slots=True)
class Example(Encoded):
    """One row as the model sees it; `weight` is what its loss is multiplied by.

    Its kind is what made it, the `task_family` of its row: `task`, `vox_codegen`, `template`; `observed` where that is
    `vox_codegen` and a function of the workspace whose behaviour was observed is asked for.
    """

    difficulty: int
    category: str
    weight: float
    kind: str


@dataclass(kw_only=True)
class Examples(Account[NotShown]):
    """The rows of a train set: those that train, those for validation, and those that are not shown.

    Attributes:
        train: In the order of the train set.
        validation: Rows of other source files, for the loss on what is not trained.
        too_long: Kind -> rows that are too long, and their tokens.
    """

    train: list[Example] = field(default_factory=list)
    validation: list[Example] = field(default_factory=list)
    too_long: dict[str, tuple[int, int]] = field(default_factory=dict)

    def kinds(self, batches: Iterable[Sequence[int]] = ()) -> dict[str, dict[str, float]]:
        """Count what there is of each kind and what is shown of it, largest first.

        Args:
            batches: Rows of the micro-batches that are shown, by their place in `train`.

        Returns:
            Kind -> counts, those of what is shown with repeats; `share` of all tokens shown, 0 to 1; `epochs`: how
            often its tokens were shown.
        """
        rows, there = _count(self.train)
        rows_shown, shown = _count(self.train[row] for batch in batches for row in batch)
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
        return {
            "num_rows": self.seen,
            "num_train": len(self.train),
            "num_validation": len(self.validation),
            "not_shown": counts_of(NotShown, self.dropped),
            "num_tokens": sum(map(len, self.train)),
            "num_supervised_tokens": sum(len(example.completion) for example in self.train),
            "longest": max(map(len, self.train), default=0),
            "weighted_rows": sum(example.weight != 1.0 for example in self.train),
        }


def _count(examples: Iterable[Example]) -> tuple[Counter[str], Counter[str]]:
    """Count rows and tokens of each kind."""
    rows, tokens = Counter[str](), Counter[str]()
    for example in examples:
        rows[example.kind] += 1
        tokens[example.kind] += len(example)
    return rows, tokens


def make_examples(pairs: Iterable[TrainingPair], recipe: Recipe, tokenizer: Tokenizer, system: str) -> Examples:
    """Encode the rows of a train set as a recipe demands, and count those that are dropped by reason."""
    examples = Examples()
    for pair in pairs:
        examples.seen += 1
        made = _example(pair, recipe, tokenizer, system)
        if isinstance(made, NotShown):
            examples.dropped[made] += 1
        elif len(made) > recipe.max_length:
            examples.dropped[NotShown.TOO_LONG] += 1
            rows, tokens = examples.too_long.get(made.kind, (0, 0))
            examples.too_long[made.kind] = (rows + 1, tokens + len(made))
        elif is_validation_group(group_of(pair), recipe.validation_split_ratio, recipe.seed):
            examples.validation.append(made)
        else:
            examples.train.append(made)
    examples.kept = len(examples.train) + len(examples.validation)
    return examples


def kind_of(pair: TrainingPair) -> str:
    """Return the kind of row that a pair is, for the shares of tokens."""
    return OBSERVED if pair.task_family == "vox_codegen" and pair.tests is not None else pair.task_family


def _example(pair: TrainingPair, recipe: Recipe, tokenizer: Tokenizer, system: str) -> Example | NotShown:
    if pair.rating < recipe.min_rating:
        return NotShown.LOW_RATING
    names = (pair.category, pair.lane, pair.task_family)
    if recipe.category_filter and not any(part in name for part in recipe.category_filter for name in names):
        return NotShown.OTHER_CATEGORY
    if not recipe.min_difficulty <= pair.difficulty <= recipe.max_difficulty:
        return NotShown.OTHER_DIFFICULTY
    encoded = _encode(pair, recipe, tokenizer, system)
    weight, kind = row_weight(pair, recipe), kind_of(pair)
    return Example(encoded.prompt, encoded.completion, pair.difficulty, pair.category, weight, kind)


def _encode(pair: TrainingPair, recipe: Recipe, tokenizer: Tokenizer, system: str) -> Encoded:
    if pair.infill is None:
        return encode(tokenizer, system, pair.prompt, pair.response)
    order = order_of(pair.prompt, pair.response)
    return encode_infill(tokenizer, pair.prompt, pair.infill.suffix, pair.response, recipe.infill_window, order)


def format_too_long(kinds: Mapping[str, Mapping[str, float]]) -> str:
    """Format `Examples.kinds` that have rows that are too long: `task 12 rows (7 % of its tokens)`; else nothing."""

    def share(counts: Mapping[str, float]) -> float:
        return counts["tokens_too_long"] / (counts["tokens_too_long"] + counts["tokens"])

    return ", ".join(
        f"{kind} {counts['rows_too_long']} rows ({100 * share(counts):.0f} % of its tokens)"
        for kind, counts in sorted(kinds.items())
        if counts["rows_too_long"]
    )
