"""The documents of the suite `infill`: what pieces are worth that models write into holes of held-out programs."""

from typing import Final, Literal

from pydantic import Field

from mens_pipeline.evaluation.statistics import Paired, Rate
from mens_pipeline.storage.validation import Strict

INSERTS: Final = "infill_completions.jsonl"
"""In the folder of an evaluation: an `InsertScore` a line."""

InfillModel = Literal["adapter", "served", "left_to_right", "base", "ngram", "champion"]
"""Whose pieces are scored.

`adapter` writes freely; `served` are its pieces that stand in their holes, written once more and constrained where the
first did not. `left_to_right` is the adapter that is shown the prefix alone, `base` likewise the base; as `ngram` they
write to the end of the line, and are asked for lines alone.
"""


class InsertScore(Strict):
    """What one piece is worth in its hole."""

    model: InfillModel
    task: str
    kind: str = Field(description="What was cut out: `line`, `expression`, `arguments` and so on.")
    file: str
    piece: str = Field(description="What was written; of a model that sees no suffix, up to the end of the line.")
    exact: bool = Field(description="The same as what was cut out, but for white space.")
    kept: float = Field(ge=0, le=1, description="Share of the characters of the longest beginning that is right.")
    similarity: float = Field(ge=0, le=1, description="Characters in common, Ratcliff and Obershelp's measure.")
    parses: bool = Field(description="The program with it is accepted.")
    resolves: bool = Field(description="It has no more errors in names and types than the program had.")
    passes_tests: bool | None = Field(description="The tests of the file pass with it; null without tests.")
    stopped: bool = Field(description="The model ended by itself.")
    likelihood: float | None = Field(description="Mean log-probability of its tokens; null of an n-gram.")
    before: str = Field(description="The end of what stands before the hole.")
    reference: str = Field(description="What was cut out.")
    after: str = Field(description="The beginning of what stands behind it.")


class InsertRates(Strict):
    """Figures over some holes; intervals are over files."""

    num_holes: int = Field(ge=0)
    exact: Rate
    parses: Rate
    resolves: Rate
    tests: Rate = Field(description="Over holes of files with tests.")
    stopped: Rate
    kept: float = Field(ge=0, le=1, description="Mean share of characters kept.")
    similarity: float = Field(ge=0, le=1, description="Mean.")


class Abstention(Strict):
    """When a piece is better not shown: a threshold chosen on half of the files, and what it gives on the others."""

    threshold: float = Field(le=0, description="Mean log-probability of a token below which nothing is shown.")
    coverage: float = Field(ge=0, le=1, description="Share of the holes of the other files that are above it.")
    exact_shown: Rate = Field(description="Of these.")
    exact_all: Rate = Field(description="Of all holes of the other files.")
    calibration_error: float = Field(ge=0, le=1, description="Expected error of the likelihood as a chance, 10 bins.")


class InfillResults(Strict):
    """The suite `infill`: every model, kind by kind, and the adapter beside each of the others on the same holes."""

    window: int = Field(ge=1, description="Tokens before and behind the cursor that a model is shown.")
    shown: Rate = Field(description="Holes for which a piece that stands there can be served.")
    models: dict[InfillModel, dict[str, InsertRates]] = Field(description="Kind, or `all` -> figures.")
    champion: str | None = Field(description="Key of the promoted adapter in the store; null when there was none.")
    exact_difference: dict[InfillModel, Paired] = Field(
        description="Another model first, the adapter second; of models without a suffix on lines alone."
    )
    abstention: Abstention | None = Field(description="Null where too few holes say when to abstain.")


_OTHERS: Final[dict[InfillModel, str]] = {"left_to_right": "left to right", "base": "base", "ngram": "n-gram"}


def figures_of_infill(infill: InfillResults) -> dict[str, str]:
    """Format what pieces at a cursor are worth: `exact lines`, with those of other models, and so on."""
    own = infill.models["adapter"]
    others = ((label, infill.models.get(model)) for model, label in _OTHERS.items())
    figures = {"exact": str(own["all"].exact)}
    if "line" in own:
        rates = [f"{label} {kinds['all'].exact.short}" for label, kinds in others if kinds is not None]
        figures["exact lines"] = ", ".join([str(own["line"].exact), *rates])
    figures["parse rate"] = f"{own['all'].parses.short} written freely, {infill.shown.short} served"
    if infill.abstention is not None:
        found = infill.abstention
        shown = f"{100 * found.coverage:.0f} % of the holes, those it is surest of"
        figures["shown half"] = f"exact {found.exact_shown.short} of {shown}, {found.exact_all.short} of all"
    return figures
