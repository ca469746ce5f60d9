"""Rows of other tools as pairs."""

from typing import Any

import pytest
from pydantic import ValidationError

from mens_pipeline.corpus.curate.mix_config import RecordFormat
from mens_pipeline.corpus.curate.record_formats import pair_reader
from mens_pipeline.corpus.schema.records import MAX_TEXT, Lane
from mens_pipeline.corpus.schema.training_pair import TrainingPair

_TOOL: dict[str, Any] = {
    "task_prompt": "List the files.",
    "tool_name": "ls",
    "arguments_json": '{"path": "."}',
    "result_json": "not JSON",
    "success": True,
}
_ASR = {"noisy_text": "right a funktion", "corrected_text": "write a function"}
_SPEECH: dict[str, Any] = {"transcript": "write f", "code": "fn f() { }"}
_WORKFLOW = {"intent": "Pay a bill.", "execution_log_excerpt": "1. reserve\n2. pay"}
_ROWS = {
    RecordFormat.TOOL_TRACE: _TOOL,
    RecordFormat.ASR_REFINE: _ASR,
    RecordFormat.SPEECH_TO_CODE: _SPEECH,
    RecordFormat.WORKFLOW_TRACE: _WORKFLOW,
}


def _pair(record_format: RecordFormat | None, row: dict[str, Any]) -> TrainingPair:
    return pair_reader(record_format)(row)


def test_a_row_without_a_format_is_a_pair() -> None:
    """Aliases are read."""
    assert _pair(None, {"instruction": "p", "output": "r"}) == TrainingPair(prompt="p", response="r")


def test_a_tool_trace_answers_with_the_call() -> None:
    """The arguments are JSON where they are."""
    pair = _pair(RecordFormat.TOOL_TRACE, _TOOL)

    assert (pair.prompt, pair.response) == ("List the files.", '{"tool": "ls", "arguments": {"path": "."}}')
    assert (pair.lane, pair.category, pair.task_family) == (Lane.TOOLING, "tool_trace", "tool_trace")
    assert (pair.response_mode, pair.rating, pair.source) == ("prose_only", 3, None)


def test_a_tool_trace_with_a_followup_answers_with_that() -> None:
    """Call and result are in the request; what is no JSON is a string."""
    pair = _pair(RecordFormat.TOOL_TRACE, {**_TOOL, "followup_text": "There are none.", "success": False})

    assert pair.response == "There are none."
    assert pair.prompt == (
        'List the files.\n\nTool call: {"tool": "ls", "arguments": {"path": "."}}\n'
        'Tool result: {"success": false, "result": "not JSON"}'
    )


def test_corrected_speech_answers_with_the_correction() -> None:
    """The transcript is in the request."""
    pair = _pair(RecordFormat.ASR_REFINE, {**_ASR, "rating": 5})

    assert (pair.prompt, pair.response) == (
        "Correct this transcript of speech:\n\nright a funktion",
        "write a function",
    )
    assert (pair.lane, pair.rating, pair.response_mode) == (Lane.SPEECH, 5, "prose_only")


def test_a_spoken_request_answers_with_code() -> None:
    """The refined transcript and `vox_code` win; alternatives and diagnostics are in the request."""
    plain = _pair(RecordFormat.SPEECH_TO_CODE, _SPEECH)
    more = {"refined_transcript": "Write f.", "vox_code": "fn g() { }"}
    parts = {"transcript_alternatives": ["right f", "write eff"], "diagnostics_snapshot": "line 1: no"}
    full = _pair(RecordFormat.SPEECH_TO_CODE, {**_SPEECH, **more, **parts})

    assert (plain.prompt, plain.response, plain.response_mode) == ("write f", "fn f() { }", "code_only")
    assert (plain.lane, plain.task_family, plain.category) == (Lane.SPEECH, "speech_to_code", "speech_to_code")
    assert full.prompt == ("Write f.\n\nIt may also have been: right f; write eff\n\nDiagnostics:\nline 1: no")
    assert full.response == "fn g() { }"


def test_a_workflow_trace_answers_with_its_log() -> None:
    """The intent is in the request; other keys are passed over."""
    pair = _pair(RecordFormat.WORKFLOW_TRACE, {**_WORKFLOW, "routing_efficiency": 0.5, "id": 3})

    assert pair.prompt.endswith("Pay a bill.")
    assert (pair.response, pair.lane, pair.category) == ("1. reserve\n2. pay", Lane.TOOLING, "workflow_trace")


@pytest.mark.parametrize("record_format", RecordFormat)
def test_a_row_of_each_format_lacks_what_it_needs(record_format: RecordFormat) -> None:
    """Each missing key, an empty text, a rating out of range, a text that is too long, and no object at all."""
    row = _ROWS[record_format]
    text = next(iter(row))
    bad: list[Any] = [{key: value for key, value in row.items() if key != missing} for missing in row]
    bad += [
        {**row, text: ""},
        {**row, "rating": 6},
        {**row, "rating": "5"},
        {**row, text: "x" * (MAX_TEXT + 1)},
        [row],
        3,
    ]

    for broken in bad:
        with pytest.raises(ValidationError, match="validation error"):
            _pair(record_format, broken)
