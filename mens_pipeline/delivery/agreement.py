"""Whether two models write the same: tokens, programs, verdicts of the front end."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from mens_pipeline.delivery.merge_job import COMPARISONS, FIGURES, NAME, Comparison, Dtype, Written
from mens_pipeline.evaluation.judge import judge
from mens_pipeline.evaluation.statistics import Rate, rate_of
from mens_pipeline.evaluation.tasks import Task
from mens_pipeline.inference.generation import Completion
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline.storage.validation import Document, Strict, Versioned

NUM_PROMPTS: Final = 12
"""Requests that are compared: about a minute for the smallest base on two CPU cores."""


class Demand(Strict):
    """Tolerances for the comparison of two models."""

    min_token_agreement: float = Field(ge=0, le=1, description="Share of tokens that are the same.")
    min_led_agreement: float = Field(ge=0, le=1, description="The same, teacher-forced along what the reference wrote.")
    max_parse_difference: float = Field(ge=0, le=1, description="Between the parse rates.")


class Agreement(Strict):
    """Differences between two models. A completion that differs at one token counts as different from there on."""

    num_prompts: int = Field(ge=0)
    num_tokens: int = Field(ge=0, description="Of the longer completion of each pair.")
    num_same_tokens: int = Field(ge=0, description="The same at the same place.")
    num_led_tokens: int = Field(ge=0, description="Most likely to both, teacher-forced along what the reference wrote.")
    num_reference_tokens: int = Field(ge=0, description="That the reference wrote.")
    num_same_completions: int = Field(ge=0, description="To the last token.")
    num_same_prompts: int = Field(ge=0, description="Requests that became the same tokens on both sides.")
    token_agreement: float = Field(ge=0, le=1)
    led_agreement: float = Field(ge=0, le=1)
    reference_parse_rate: Rate
    candidate_parse_rate: Rate
    largest_logit_difference: float = Field(ge=0, description="Of the first token of a completion.")

    @property
    def parse_difference(self) -> float:
        """Between the parse rates; 1 where nothing was asked."""
        one, other = self.reference_parse_rate.value, self.candidate_parse_rate.value
        return abs(one - other) if one is not None and other is not None else 1.0


STRICT: Final = Demand(min_token_agreement=0.999, min_led_agreement=0.999, max_parse_difference=0.002)
"""Thresholds for a merged model with the same weights in the same precision."""

ROUNDED: Final = Demand(min_token_agreement=0.0, min_led_agreement=0.98, max_parse_difference=0.10)
"""Thresholds for a model stored in float32 that was evaluated in 16 bits: its reference is rounded.

Teacher-forced along the same 721 tokens, a model of 135 million weights and itself in bfloat16 agreed on 98.9 %.
Writing freely, the first close call that turns makes another completion; over twelve requests, one program is 8 points.
"""


def agreement_of(
    comparisons: Iterable[Comparison], tasks: Mapping[str, Task], largest_logit_difference: float
) -> Agreement:
    """Compare the greedy completions of two models."""
    pairs = list(comparisons)
    same = [sum(map(int.__eq__, c.reference.tokens, c.candidate.tokens)) for c in pairs]
    num_led, num_reference = sum(c.num_led for c in pairs), sum(len(c.reference.tokens) for c in pairs)
    total = sum(max(len(c.reference.tokens), len(c.candidate.tokens)) for c in pairs)
    return Agreement(
        num_prompts=len(pairs),
        num_tokens=total,
        num_same_tokens=sum(same),
        num_led_tokens=num_led,
        num_reference_tokens=num_reference,
        num_same_completions=sum(c.reference.tokens == c.candidate.tokens for c in pairs),
        num_same_prompts=sum(c.same_prompt for c in pairs),
        token_agreement=sum(same) / total if total else 0.0,
        led_agreement=num_led / num_reference if num_reference else 0.0,
        reference_parse_rate=rate_of(_parses(tasks[c.task], c.reference) for c in pairs),
        candidate_parse_rate=rate_of(_parses(tasks[c.task], c.candidate) for c in pairs),
        largest_logit_difference=largest_logit_difference,
    )


def reasons_against(found: Agreement, demand: Demand) -> tuple[str, ...]:
    """Return why two models are not the same, a sentence each; none when they are."""
    reasons = []
    if found.num_prompts == 0:
        reasons.append("Nothing was compared.")
    if found.num_same_prompts < found.num_prompts:
        count = f"{found.num_prompts - found.num_same_prompts}/{found.num_prompts}"
        reasons.append(f"{count} prompts became other tokens by the template of the folder.")
    if found.token_agreement < demand.min_token_agreement:
        count = f"{found.num_same_tokens}/{found.num_tokens} ({100 * found.token_agreement:.2f} %)"
        reasons.append(f"{count} of the tokens are the same, required {100 * demand.min_token_agreement:.1f} %.")
    if found.led_agreement < demand.min_led_agreement:
        count = f"{found.num_led_tokens}/{found.num_reference_tokens} ({100 * found.led_agreement:.2f} %)"
        required = f"required {100 * demand.min_led_agreement:.1f} %"
        reasons.append(f"Teacher-forced along what is expected, {count} of the tokens are the same, {required}.")
    if found.parse_difference > demand.max_parse_difference:
        rates = f"{found.candidate_parse_rate.short}, before {found.reference_parse_rate.short}"
        reasons.append(f"Parse rate {rates}; allowed are {100 * demand.max_parse_difference:.1f} points.")
    return tuple(reasons)


def compare_written(run_dir: Path, tasks: Iterable[Task]) -> tuple[Agreement, dict[str, Any]]:
    """Compare what a child process of delivery wrote, and return that with the figures that only it can measure."""
    figures: dict[str, Any] = json.loads((run_dir / FIGURES).read_text(encoding="utf-8"))
    comparisons = read_models(run_dir / COMPARISONS, Comparison)
    return agreement_of(comparisons, {task.id: task for task in tasks}, figures["largest_logit_difference"]), figures


def spread(tasks: Sequence[Task], number: int) -> tuple[Task, ...]:
    """Choose so many tasks evenly from first to last, or all: files stand in order, so neighbours are alike."""
    if number >= len(tasks):
        return tuple(tasks)
    return tuple(tasks[place * len(tasks) // number] for place in range(number))


def _parses(task: Task, written: Written) -> bool:
    completion = Completion(
        task=task.id, sample=0, text=written.text, num_tokens=len(written.tokens), stopped=written.stopped
    )
    return judge(task, completion).parses


MERGE_MANIFEST: Final = "merge_manifest.json"
MERGE_REPORT: Final = "merge_report.json"
_SHA256: Final = "^[0-9a-f]{64}$"


class MergedInto(Document):
    """Weights of the base that the adapter was added to."""

    weights: Literal["restored", "own"] = Field(
        default="restored",
        description="Those in four bits, restored, or the base's own: what the adapter was trained and evaluated on.",
    )
    quantization: str = Field(description="`nf4`, or `none` of its own weights.")
    double_quant: bool
    rounded_to: str = Field(description="What the base was rounded to before four bits.")
    why: str = Field(
        default="The adapter was evaluated on these weights. On those that the base came with, the merged model "
        "would differ from the evaluated one by the error of quantisation.",
    )


class MergeManifest(Document, Versioned):
    """Base, adapter and data types of a merged model."""

    newest_format: ClassVar[int] = 2

    schema_: Literal["mens_merge_manifest_v1"] = Field(default="mens_merge_manifest_v1", alias="schema")
    name: str = Field(pattern=NAME)
    base_model: str
    base_revision: str | None
    base_sha256: str = Field(pattern=_SHA256, description="Of the folder of the base.")
    base_licence: str | None
    adapter_sha256: str = Field(pattern=_SHA256, description="Of the adapter's weights.")
    merged_into: MergedInto
    dtype: Dtype = Field(description="What the weights are stored in.")
    num_parameters: int = Field(ge=1, description="Of all weights.")
    contract_digest: str = Field(pattern=_SHA256, description="Of the training run.")
    system_prompt: str
    libraries: dict[str, str] = Field(description="Versions that made it.")


class MergeReport(Document, Versioned):
    """Whether a merged folder writes as the evaluated model does."""

    schema_: Literal["mens_merge_report_v1"] = Field(default="mens_merge_report_v1", alias="schema")
    reference: str = Field(description="What it is compared with.")
    candidate: str = Field(description="What is compared.")
    adapter_sha256: str = Field(pattern=_SHA256)
    heldout_sha256: str = Field(pattern=_SHA256, description="Of the held-out pairs that were asked.")
    computed_on: tuple[str, str] = Field(description="Device, and what the reference computed in.")
    max_new_tokens: int = Field(ge=1)
    demand: Demand
    agreement: Agreement
    passed: bool
    reasons: tuple[str, ...] = Field(description="Why it does not pass, a sentence each.")

    @property
    def summary(self) -> str:
        """One line for people."""
        found = self.agreement
        tokens = f"{found.num_same_tokens}/{found.num_tokens} tokens ({100 * found.token_agreement:.2f} %)"
        completions = f"{found.num_same_completions}/{found.num_prompts} completions"
        rates = f"{found.candidate_parse_rate.short}, before {found.reference_parse_rate.short}"
        return f"{tokens} and {completions} the same, parse rate {rates}"
