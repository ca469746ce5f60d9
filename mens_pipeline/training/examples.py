"""Rows of the train set as what a model is shown, with an account of those that are not."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from mens_pipeline.corpus.curate.split import group_of
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.models.chat import Encoded, Tokenizer, encode
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


class NotShown(StrEnum):
    """Why a row of the train set is not shown to the model."""

    LOW_RATING = "low_rating"
    OTHER_CATEGORY = "other_category"
    OTHER_DIFFICULTY = "other_difficulty"
    TOO_LONG = "too_long"
    """Cut, it would lose its end; so it is left out as a whole."""


@dataclass(frozen=True, slots=True)
class Example(Encoded):
    """One row as the model sees it.

    Attributes:
        difficulty: 1 to 10.
        category: Its construct or its task.
        weight: What its loss is multiplied by.
        kind: What made it, the `task_family` of its row: `task`, `vox_codegen`, `template`; `observed` where that is
            `vox_codegen` and a function of the workspace whose behaviour was observed is asked for.
    """

    difficulty: int
    category: str
    weight: float
    kind: str


@dataclass
class Examples:
    """Rows that train, rows for validation, and rows that are dropped.

    Attributes:
        train: In the order of the train set.
        validation: Rows of other source files, for the loss on what is not trained.
        not_shown: Reason -> rows.
        too_long: Kind -> rows that are too long, and their tokens.
        seen: Rows of the train set.
    """

    train: list[Example] = field(default_factory=list)
    validation: list[Example] = field(default_factory=list)
    not_shown: Counter[NotShown] = field(default_factory=Counter)
    too_long: dict[str, tuple[int, int]] = field(default_factory=dict)
    seen: int = 0

    def adds_up(self) -> bool:
        """Return whether nothing disappeared."""
        return self.seen == len(self.train) + len(self.validation) + self.not_shown.total()

    def kinds(self, batches: Iterable[Sequence[int]] = ()) -> dict[str, dict[str, float]]:
        """Count what there is of each kind and what is shown of it, largest first.

        Args:
            batches: Rows of the micro-batches that are shown, by their place in `train`.

        Returns:
            Kind -> `rows` and `tokens` that train, `rows_too_long` and `tokens_too_long`, `rows_shown` and
            `tokens_shown` with repeats, `share` of all tokens shown, 0 to 1, and `epochs`: how often its tokens were
            shown.
        """
        there, shown = Counter[str](), Counter[str]()
        rows, rows_shown = Counter[str](), Counter[str]()
        for example in self.train:
            there[example.kind] += len(example)
            rows[example.kind] += 1
        for batch in batches:
            for row in batch:
                shown[self.train[row].kind] += len(self.train[row])
                rows_shown[self.train[row].kind] += 1
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
        tokens = sum(map(len, self.train))
        supervised = sum(len(example.completion) for example in self.train)
        return {
            "num_rows": self.seen,
            "num_train": len(self.train),
            "num_validation": len(self.validation),
            "not_shown": {str(reason): self.not_shown[reason] for reason in NotShown},
            "num_tokens": tokens,
            "num_supervised_tokens": supervised,
            "longest": max(map(len, self.train), default=0),
            "weighted_rows": sum(example.weight != 1.0 for example in self.train),
        }


def make_examples(pairs: Iterable[TrainingPair], recipe: Recipe, tokenizer: Tokenizer, system: str) -> Examples:
    """Encode the rows of a train set as a recipe demands, and count those that are dropped by reason."""
    examples = Examples()
    for pair in pairs:
        examples.seen += 1
        made = _example(pair, recipe, tokenizer, system)
        if isinstance(made, NotShown):
            examples.not_shown[made] += 1
        elif len(made) > recipe.max_length:
            examples.not_shown[NotShown.TOO_LONG] += 1
            rows, tokens = examples.too_long.get(made.kind, (0, 0))
            examples.too_long[made.kind] = (rows + 1, tokens + len(made))
        elif is_validation_group(group_of(pair), recipe.validation_split_ratio, recipe.seed):
            examples.validation.append(made)
        else:
            examples.train.append(made)
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
    encoded = encode(tokenizer, system, pair.prompt, pair.response)
    return Example(
        encoded.prompt,
        encoded.completion,
        pair.difficulty,
        pair.category,
        row_weight(pair, recipe),
        kind_of(pair),
    )


def format_too_long(kinds: Mapping[str, Mapping[str, float]]) -> str:
    """Format the rows of each kind that are too long: `task 12 rows (7 % of its tokens)`; nothing where there is none.

    `kinds` is what `Examples.kinds` returns.
    """

    def share(counts: Mapping[str, float]) -> float:
        return counts["tokens_too_long"] / (counts["tokens_too_long"] + counts["tokens"])

    return ", ".join(
        f"{kind} {counts['rows_too_long']} rows ({100 * share(counts):.0f} % of its tokens)"
        for kind, counts in sorted(kinds.items())
        if counts["rows_too_long"]
    )
