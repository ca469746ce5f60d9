"""Rows of the train set as what a model is shown, with an account of those that are not."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from mens_pipeline.corpus.split import group_of
from mens_pipeline.corpus.training_pair import TrainingPair
from mens_pipeline.training.chat import Tokenizer, encode
from mens_pipeline.training.recipe import Recipe
from mens_pipeline.training.validation import is_validation_group
from mens_pipeline.training.weights import row_weight


class NotShown(StrEnum):
    """Why a row of the train set is not shown to the model."""

    LOW_RATING = "low_rating"
    OTHER_CATEGORY = "other_category"
    OTHER_DIFFICULTY = "other_difficulty"
    TOO_LONG = "too_long"
    """Cut, it would lose its end; so it is left out as a whole."""


@dataclass(frozen=True, slots=True)
class Example:
    """One row as the model sees it.

    Attributes:
        prompt: Ids that are given.
        completion: Ids that carry the loss; the last one ends the turn.
        difficulty: 1 to 10.
        category: Its construct or its task.
        weight: What its loss is multiplied by.
    """

    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    difficulty: int
    category: str
    weight: float

    def __len__(self) -> int:
        """Tokens."""
        return len(self.prompt) + len(self.completion)


@dataclass
class Examples:
    """What is shown, what measures, and what is neither.

    Attributes:
        train: In the order of the train set.
        validation: Rows of other source files, for the loss on what is not trained.
        not_shown: Reason -> rows.
        seen: Rows of the train set.
    """

    train: list[Example] = field(default_factory=list)
    validation: list[Example] = field(default_factory=list)
    not_shown: Counter[NotShown] = field(default_factory=Counter)
    seen: int = 0

    def adds_up(self) -> bool:
        """Whether nothing disappeared."""
        return self.seen == len(self.train) + len(self.validation) + self.not_shown.total()

    def account(self) -> dict[str, Any]:
        """The counts in JSON types."""
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
    """The rows of a train set as a recipe wants them shown.

    Args:
        pairs: The train set.
        recipe: Which rows, how long, how they weigh.
        tokenizer: Of the base model.
        system: What the model is told before every request.
    """
    examples = Examples()
    for pair in pairs:
        examples.seen += 1
        made = _example(pair, recipe, tokenizer, system)
        if isinstance(made, NotShown):
            examples.not_shown[made] += 1
        elif is_validation_group(group_of(pair), recipe.validation_split_ratio, recipe.seed):
            examples.validation.append(made)
        else:
            examples.train.append(made)
    return examples


def _example(pair: TrainingPair, recipe: Recipe, tokenizer: Tokenizer, system: str) -> Example | NotShown:
    if pair.rating < recipe.min_rating:
        return NotShown.LOW_RATING
    names = (pair.category, pair.lane, pair.task_family)
    if recipe.category_filter and not any(part in name for part in recipe.category_filter for name in names):
        return NotShown.OTHER_CATEGORY
    if not recipe.min_difficulty <= pair.difficulty <= recipe.max_difficulty:
        return NotShown.OTHER_DIFFICULTY
    encoded = encode(tokenizer, system, pair.prompt, pair.response)
    if len(encoded) > recipe.max_length:
        return NotShown.TOO_LONG
    return Example(encoded.prompt, encoded.completion, pair.difficulty, pair.category, row_weight(pair, recipe))
