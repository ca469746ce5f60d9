"""Outcomes of attempts to evolve a request, and their counts."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

from mens_pipeline.corpus.schema.training_pair import TrainingPair


class EvolutionDrop(StrEnum):
    """Why an attempt gives no row. Those up to `same_instruction` are about the request that the model wrote."""

    INSTRUCTION_EMPTY = "instruction_empty"
    """Or hardly a word."""
    INSTRUCTION_REFUSED = "instruction_refused"
    INSTRUCTION_CUT = "instruction_cut"
    """It ran into the limit of tokens."""
    INSTRUCTION_TOO_LONG = "instruction_too_long"
    INSTRUCTION_LEAKS = "instruction_leaks"
    """It speaks of the rewriting itself."""
    INSTRUCTION_HOLDS_CODE = "instruction_holds_code"
    SAME_INSTRUCTION = "same_instruction"
    """It says nothing that its parent does not."""
    UNANSWERED = "unanswered"
    """The budget ended between the request and its answer."""
    ENOUGH_ROWS = "enough_rows"
    """It was asked for together with the rows that filled the budget."""
    ANSWER_EMPTY = "answer_empty"
    ANSWER_REFUSED = "answer_refused"
    ANSWER_CUT = "answer_cut"
    ANSWER_TOO_LONG = "answer_too_long"
    REJECTED = "rejected"
    """By the front end, or nothing is declared."""
    STUB = "stub"
    """A comment stands where code should."""
    COPIES_INSTRUCTION = "copies_instruction"
    WITHOUT_CONSTRUCT = "without_construct"
    WITHOUT_NAME = "without_name"
    """The request names what it wants, and the answer declares nothing of that name."""
    WITHOUT_GOAL = "without_goal"
    """What the operator asked for is not in the answer."""
    SEMANTIC_ERROR = "semantic_error"
    """In its names or types."""
    SAME_AS_PARENT = "same_as_parent"
    """Only names, literals and comments differ."""
    REPEATED = "repeated"
    """A seed or an earlier row has the same structure."""
    NEAR_DUPLICATE = "near_duplicate"
    TESTS_FAILED = "tests_failed"
    TESTS_NOT_RUN = "tests_not_run"
    """They touch what lies outside the sandbox, or overrun it."""
    TESTS_EMPTY = "tests_empty"
    """They pass without asserting anything."""
    HELDOUT_PROMPT = "heldout_prompt"
    HELDOUT_WORDS = "heldout_words"
    HELDOUT_STRUCTURE = "heldout_structure"


class DroppedAttempt(BaseModel):
    """An attempt that gave no row."""

    model_config = ConfigDict(frozen=True)

    reason: EvolutionDrop
    detail: str
    parent: str
    operator: str
    generation: int
    instruction: str
    answer: str


@dataclass
class EvolutionAccount:
    """Counts that must add up: seen is kept plus dropped.

    Attributes:
        kept: Rows, in order.
        dropped: The other attempts, in order.
        seen: Attempts of which at least the request was answered.
        num_requests: Requests that the generator answered, those of earlier calls among them.
        num_new_requests: Those of this call.
        num_tokens: Tokens of all of them.
        num_repairs: Answers that were no Vox, sent back with their errors and answered again.
        num_repaired: Attempts whose answer was made Vox by that.
        ended_by: Which part of the budget ended the work; None when everything was tried.
    """

    kept: list[TrainingPair] = field(default_factory=list)
    dropped: list[DroppedAttempt] = field(default_factory=list)
    seen: int = 0
    num_requests: int = 0
    num_new_requests: int = 0
    num_tokens: int = 0
    num_repairs: int = 0
    num_repaired: int = 0
    ended_by: str | None = None

    def adds_up(self) -> bool:
        """Return whether nothing disappeared."""
        return self.seen == len(self.kept) + len(self.dropped)

    def as_json(self) -> dict[str, Any]:
        """Return the counts in JSON types."""
        reasons = Counter(attempt.reason for attempt in self.dropped)
        lineages = [row.lineage for row in self.kept if row.lineage is not None]
        return {
            "seen": self.seen,
            "kept": len(self.kept),
            "dropped": {str(reason): reasons[reason] for reason in EvolutionDrop},
            "operators": dict(sorted(Counter(lineage.operator for lineage in lineages).items())),
            "generations": {str(g): n for g, n in sorted(Counter(ln.generation for ln in lineages).items())},
            "constructs": dict(sorted(Counter(row.category for row in self.kept).items())),
            "num_requests": self.num_requests,
            "num_new_requests": self.num_new_requests,
            "num_tokens": self.num_tokens,
            "num_repairs": self.num_repairs,
            "num_repaired": self.num_repaired,
            "ended_by": self.ended_by,
        }
