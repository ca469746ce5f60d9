"""Evidence that two models write the same: comparisons by the delivery processes, and their criteria."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from mens_pipeline.evaluation.judge import judge
from mens_pipeline.evaluation.statistics import Rate, rate_of
from mens_pipeline.evaluation.tasks import Task
from mens_pipeline.inference.generation import Completion, Generation
from mens_pipeline.jobs.protocol import Job
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline.storage.kinds import MergedFile
from mens_pipeline.storage.validation import Strict

COMPARISONS: Final = MergedFile.COMPARISONS
"""Completions of both models, one `PromptComparison` a line."""

FIGURES: Final = "figures.json"
"""File of the figures that only the process can measure."""

MODEL: Final = "model"
"""Output folder in the folder of a job."""

Dtype = Literal["float32", "bfloat16"]
GgufType = Literal["f32", "f16", "q8_0"]

NAME: Final = "^[0-9A-Za-z._-]{1,128}$"
"""Pattern of model names: they become parts of file names, so they contain no slash and no line break."""

GGUF_NAME: Final = r"^[0-9A-Za-z._-]{1,140}\.gguf$"

NUM_PROMPTS: Final = 12
"""Number of prompts to compare, about a minute for the smallest base on two CPU cores."""


class MergeJob(Job):
    """Job that merges an adapter, and compares the result with the evaluated model."""

    kind: Literal["merge"] = "merge"
    reference: Generation = Field(description="The evaluated model, and its prompts.")
    dtype: Dtype = Field(description="Dtype of the merged weights.")
    chat_template: str = Field(description="Chat template of the merged folder.")


class GgufJob(Job):
    """Job that writes a merged model as GGUF, reads it back, and compares the two."""

    kind: Literal["gguf"] = "gguf"
    reference: Generation = Field(description="The evaluated model, and its prompts.")
    merged_path: Path = Field(description="The merged folder.")
    file_type: GgufType
    file_name: str = Field(pattern=GGUF_NAME, description="Name of the GGUF file.")
    model_name: str = Field(description="Name of the model in the file's metadata.")
    licence: str | None = Field(description="Licence in the file's metadata.")


class Written(Strict):
    """A greedy completion."""

    tokens: tuple[int, ...]
    text: str
    stopped: bool


class PromptComparison(Strict):
    """Completions of one prompt by two models."""

    task: str
    same_prompt: bool = Field(description="Whether the prompt has the same tokens for both, encoded as by their users.")
    reference: Written
    candidate: Written
    num_led: int = Field(
        ge=0, description="Positions where both have the same most likely token, teacher-forced along the reference."
    )


class Demand(Strict):
    """Tolerances for the comparison of two models."""

    min_token_agreement: float = Field(ge=0, le=1, description="Smallest share of equal tokens.")
    min_led_agreement: float = Field(ge=0, le=1, description="The same, teacher-forced along the reference.")
    max_parse_difference: float = Field(ge=0, le=1, description="Largest difference of the parse rates.")


class Agreement(Strict):
    """Agreement of two models. Free completions rarely agree after their first different token."""

    num_prompts: int = Field(ge=0)
    num_tokens: int = Field(ge=0, description="Tokens of the longer completion of each pair.")
    num_same_tokens: int = Field(ge=0, description="Equal tokens at the same position.")
    num_led_tokens: int = Field(ge=0, description="Equal most likely tokens, teacher-forced along the reference.")
    num_reference_tokens: int = Field(ge=0, description="Tokens of the reference's completions.")
    num_same_completions: int = Field(ge=0, description="Completions that are equal to the last token.")
    num_same_prompts: int = Field(ge=0, description="Prompts with the same tokens for both models.")
    token_agreement: float = Field(ge=0, le=1)
    led_agreement: float = Field(ge=0, le=1)
    reference_parse_rate: Rate
    candidate_parse_rate: Rate
    largest_logit_difference: float = Field(ge=0, description="Largest difference at the first token.")

    @property
    def parse_difference(self) -> float:
        """Absolute difference of the parse rates; 1 without prompts."""
        one, other = self.reference_parse_rate.value, self.candidate_parse_rate.value
        return abs(one - other) if one is not None and other is not None else 1.0


STRICT: Final = Demand(min_token_agreement=0.999, min_led_agreement=0.999, max_parse_difference=0.002)
"""Tolerances for a merged model with the same weights in the same precision."""

ROUNDED: Final = Demand(min_token_agreement=0.0, min_led_agreement=0.98, max_parse_difference=0.10)
"""Tolerances for a model stored in float32 but evaluated in 16 bits: the reference is rounded.

Teacher-forced along the same 721 tokens, a model of 135 million weights and its bfloat16 version agreed on 98.9 %.
A free completion differs after the first close call that flips; one of twelve programs is 8 points.
"""


def compute_agreement(
    comparisons: Iterable[PromptComparison], tasks: Mapping[str, Task], largest_logit_difference: float
) -> Agreement:
    """Count tokens, completions, prompts and programs that two models have in common."""
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


def _parses(task: Task, written: Written) -> bool:
    completion = Completion(
        task=task.id, sample=0, text=written.text, num_tokens=len(written.tokens), stopped=written.stopped
    )
    return judge(task, completion).parses


def reasons_against(found: Agreement, demand: Demand) -> tuple[str, ...]:
    """Return the reasons why two models do not agree, a sentence each; empty if they do."""
    reasons = []
    if found.num_prompts == 0:
        reasons.append("Nothing was compared.")
    if found.num_same_prompts < found.num_prompts:
        count = f"{found.num_prompts - found.num_same_prompts}/{found.num_prompts}"
        reasons.append(f"{count} prompts have other tokens with the chat template of the folder.")
    if found.token_agreement < demand.min_token_agreement:
        count = f"{found.num_same_tokens}/{found.num_tokens} ({100 * found.token_agreement:.2f} %)"
        reasons.append(f"{count} of the tokens are the same, required {100 * demand.min_token_agreement:.1f} %.")
    if found.led_agreement < demand.min_led_agreement:
        count = f"{found.num_led_tokens}/{found.num_reference_tokens} ({100 * found.led_agreement:.2f} %)"
        required = f"required {100 * demand.min_led_agreement:.1f} %"
        reasons.append(f"Teacher-forced along the reference, {count} of the tokens are the same, {required}.")
    if found.parse_difference > demand.max_parse_difference:
        rates = f"{found.candidate_parse_rate.short}, before {found.reference_parse_rate.short}"
        reasons.append(f"Parse rate {rates}; the limit is {100 * demand.max_parse_difference:.1f} points apart.")
    return tuple(reasons)


def read_agreement(run_dir: Path, tasks: Iterable[Task]) -> tuple[Agreement, dict[str, Any]]:
    """Compute the agreement from the output of a process of delivery, and return it with the process's figures."""
    figures: dict[str, Any] = json.loads((run_dir / FIGURES).read_text(encoding="utf-8"))
    comparisons = read_models(run_dir / COMPARISONS, PromptComparison)
    return compute_agreement(
        comparisons, {task.id: task for task in tasks}, figures["largest_logit_difference"]
    ), figures


def spread(tasks: Sequence[Task], number: int) -> tuple[Task, ...]:
    """Choose up to `number` tasks, evenly spaced, since neighbours often come from one file and are alike."""
    if number >= len(tasks):
        return tuple(tasks)
    return tuple(tasks[place * len(tasks) // number] for place in range(number))
