"""Rows of other tools as pairs: traces of tools and workflows, corrected speech, spoken requests for code."""

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from pydantic_core import from_json

from mens_pipeline.corpus.curate.mix_config import RecordFormat
from mens_pipeline.corpus.schema.records import Lane
from mens_pipeline.corpus.schema.training_pair import TrainingPair

_Text = Annotated[str, Field(min_length=1)]


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    rating: int = Field(default=3, ge=1, le=5, strict=True)


class _ToolTrace(_Row):
    task_prompt: _Text
    tool_name: _Text
    arguments_json: str
    result_json: str
    success: bool
    followup_text: str | None = None

    def pair(self) -> TrainingPair:
        call = json.dumps({"tool": self.tool_name, "arguments": _parsed(self.arguments_json)})
        result = json.dumps({"success": self.success, "result": _parsed(self.result_json)})
        prompt = f"{self.task_prompt}\n\nTool call: {call}\nTool result: {result}" if self.followup_text else None
        return _prose(prompt or self.task_prompt, self.followup_text or call, "tool_trace", Lane.TOOLING, self.rating)


class _AsrRefine(_Row):
    noisy_text: _Text
    corrected_text: _Text

    def pair(self) -> TrainingPair:
        prompt = f"Correct this transcript of speech:\n\n{self.noisy_text}"
        return _prose(prompt, self.corrected_text, "asr_refine", Lane.SPEECH, self.rating)


class _SpeechToCode(_Row):
    transcript: _Text = Field(validation_alias=AliasChoices("refined_transcript", "transcript"))
    code: _Text = Field(validation_alias=AliasChoices("vox_code", "code"))
    transcript_alternatives: tuple[str, ...] = ()
    diagnostics_snapshot: str | None = None

    def pair(self) -> TrainingPair:
        parts = [self.transcript]
        if self.transcript_alternatives:
            parts.append("It may also have been: " + "; ".join(self.transcript_alternatives))
        if self.diagnostics_snapshot:
            parts.append(f"Diagnostics:\n{self.diagnostics_snapshot}")
        return TrainingPair(
            prompt="\n\n".join(parts),
            response=self.code,
            category="speech_to_code",
            rating=self.rating,
            lane=Lane.SPEECH,
            task_family="speech_to_code",
        )


class _WorkflowTrace(_Row):
    intent: _Text
    execution_log_excerpt: _Text
    routing_efficiency: float | None = None

    def pair(self) -> TrainingPair:
        prompt = f"What does a workflow for this intent do, step by step? {self.intent}"
        return _prose(prompt, self.execution_log_excerpt, "workflow_trace", Lane.TOOLING, self.rating)


_FORMATS: Final[Mapping[RecordFormat, type[_ToolTrace | _AsrRefine | _SpeechToCode | _WorkflowTrace]]] = {
    RecordFormat.TOOL_TRACE: _ToolTrace,
    RecordFormat.ASR_REFINE: _AsrRefine,
    RecordFormat.SPEECH_TO_CODE: _SpeechToCode,
    RecordFormat.WORKFLOW_TRACE: _WorkflowTrace,
}


def pair_reader(record_format: RecordFormat | None) -> Callable[[dict[str, Any]], TrainingPair]:
    """Return a function that converts a row of a format to a pair; None is for rows that are pairs.

    Returns:
        A function that raises pydantic's ValidationError for a row that does not fit.
    """
    if record_format is None:
        return TrainingPair.model_validate
    model = _FORMATS[record_format]
    return lambda row: model.model_validate(row).pair()


def _prose(prompt: str, response: str, category: str, lane: Lane, rating: int) -> TrainingPair:
    return TrainingPair(
        prompt=prompt,
        response=response,
        category=category,
        rating=rating,
        lane=lane,
        response_mode="prose_only",
        task_family=category,
    )


def _parsed(text: str) -> object:
    """Parse the JSON value in a string; return the string when it holds none."""
    try:
        return from_json(text)
    except ValueError:
        return text
