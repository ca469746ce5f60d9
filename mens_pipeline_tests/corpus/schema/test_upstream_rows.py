"""Rows of upstream's toolchain, as each stage reads them."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from mens_pipeline.corpus.curate.mix import RecordFormat
from mens_pipeline.corpus.curate.mixed_train_set import pair_reader
from mens_pipeline.corpus.curate.validate import Quarantined, read_row
from mens_pipeline.corpus.schema.records import (
    ExtractedRecord,
    Lane,
    SourceKind,
    TrainingPair,
    parse_pairs,
    read_record_lines,
    read_records,
)
from mens_pipeline.errors import RefusedError
from mens_pipeline_tests.every import every_row

_ROW: dict[str, Any] = {"prompt": "p", "response": "fn f() { }"}
_RECORD: dict[str, Any] = {
    "source": "examples\\golden\\a.vox",
    "code": "fn f() { }\n@table type T { a: int }\n",
    "ast_hash": "1f",
}
_RECORD |= {"constructs": ["fn", "made_up"], "difficulty": 3, "compiler_version": "0.4.0"}


def _turns(*roles: str) -> list[dict[str, str]]:
    return [{"role": role, "content": f"{role} {number}"} for number, role in enumerate(roles)]


def _pair(**fields: Any) -> TrainingPair:
    line = json.dumps(_ROW | fields).encode()
    (pair,) = parse_pairs([line], Path("rows.jsonl"))

    assert read_row(line, 1) == pair_reader(None)(json.loads(line)) == pair
    assert TrainingPair.model_validate_json(pair.model_dump_json()) == pair
    return pair


def _problem(**fields: Any) -> str:
    row = read_row(json.dumps(_ROW | fields).encode(), 1)

    assert isinstance(row, Quarantined)
    with pytest.raises(RefusedError, match=r"^rows.jsonl:1: invalid pair"):
        list(parse_pairs([json.dumps(_ROW | fields).encode()], Path("rows.jsonl")))
    return row.detail


@pytest.mark.seed_row(48, 52)
@every_row(
    ({}, "vox_codegen", "code_only", "vox_codegen"),
    ({"category": "vox_a2a_ack", "lane": None}, "vox_codegen", "code_only", "vox_codegen"),
    ({"category": "Tool_Trace_repair"}, "vox_tooling", "prose_only", "tool_trace"),
    ({"category": "speech_to_code"}, "vox_speech", "code_only", "speech_to_code"),
    ({"category": "asr_refine"}, "vox_speech", "prose_only", "speech_to_code"),
    ({"category": "documentation"}, "vox_docs_qa", "prose_only", "docs_qa"),
    ({"category": "documentation", "lane": "vox_codegen"}, "vox_codegen", "code_only", "vox_codegen"),
    ({"lane": "vox_docs_qa", "task_family": "docs_code"}, "vox_docs_qa", "prose_only", "docs_code"),
    ({"lane": "vox_research_expert", "response_mode": "structured"}, *("vox_research_expert", "prose_only"), None),
    ({"category": "rust_doc"}, "rust_context", "prose_only", None),
    ({"category": "agent_trust_score"}, "vox_codegen", "code_only", "vox_codegen"),
    ({"lane": "vox_logic_composition"}, "vox_logic_composition", "code_only", "vox_codegen"),
    ({"lane": "rust_context", "response_mode": "code_only"}, "rust_context", "code_only", None),
)
def test_missing_fields_are_filled_in(fields: dict[str, Any], lane: str, mode: str, family: str | None) -> None:
    pair = _pair(**fields)

    assert (pair.lane, pair.response_mode, pair.task_family) == (lane, mode, family or lane)


@pytest.mark.seed_row(48)
@every_row(
    ({"rating": None, "category": None, "difficulty": None}, {"rating": 3, "category": "general", "difficulty": 5}),
    ({"difficulty": 0.5}, {"difficulty": 5}),
    ({"difficulty": 0.0}, {"difficulty": 1}),
    ({"difficulty": 7.0}, {"difficulty": 7}),
    ({"category": "vox_gen_cot"}, {"category": "vox_gen_cot"}),
    ({"schema_version": None}, {"schema_version": "vox_dogfood_v1"}),
    ({"schema_version": 1}, {"schema_version": "vox_dogfood_v1"}),
    ({"schema_version": "vox_dogfood_v0"}, {"schema_version": "vox_dogfood_v1"}),
    ({"record_type": "cli_trace", "augmented": True, "coverage": ["decl:table"]}, {"prompt": "p"}),
    ({"prompt": None, "instruction": "i"}, {"prompt": "i"}),
    ({"prompt": None, "instruction": "i", "input": "evidence"}, {"prompt": "i\n\nevidence"}),
    ({"input": "not for a prompt"}, {"prompt": "p"}),
    ({"response": None, "completion": "fn c() { }"}, {"response": "fn c() { }"}),
)
def test_other_spellings_are_accepted(fields: dict[str, Any], read: dict[str, Any]) -> None:
    pair = _pair(**fields)

    assert {name: getattr(pair, name) for name in read} == read


@pytest.mark.seed_row(48)
@every_row(
    ({"schema_version": "vox_dogfood_v2"}, "schema_version 'vox_dogfood_v2': expected vox_dogfood_v1 or earlier"),
    ({"schema_version": "mens"}, "schema_version 'mens': "),
    ({"difficulty": 11.5}, "difficulty: Input should be less than or equal to 10"),
    ({"difficulty": float("inf")}, "difficulty: Input should be a valid integer"),
    ({"lane": ["vox_codegen"]}, "lane: Input should be 'vox_codegen', "),
    ({"messages": 5}, "messages: expected a list of turns"),
    ({"messages": [*_turns("user"), {"role": "assistant"}]}, "messages: expected a list of turns"),
    ({"turns": _turns("system", "assistant")}, "messages: expected a turn of the user"),
    ({"turns": _turns("user"), "response": None}, "messages: expected a turn of the user"),
)
def test_invalid_fields_are_named(fields: dict[str, Any], problem: str) -> None:
    assert problem in _problem(**fields)


@pytest.mark.seed_row(48)
@every_row(
    ({"messages": _turns("user", "assistant"), "prompt": "", "response": ""}, "user 0", "assistant 1"),
    ({"turns": _turns("system", "user", "assistant")}, "user 1", "assistant 2"),
    (
        {"turns": _turns("user", "assistant", "system", "assistant")},
        "user: user 0\n\nassistant: assistant 1\n\nsystem: system 2",
        "assistant 3",
    ),
    ({"messages": _turns("user")}, "user 0", "fn f() { }"),
    ({"messages": [], "turns": None}, "p", "fn f() { }"),
)
def test_a_conversation_becomes_its_last_completion(fields: dict[str, Any], prompt: str, response: str) -> None:
    pair = _pair(**fields)

    assert (pair.prompt, pair.response) == (prompt, response)


@pytest.mark.seed_row(48)
@every_row(
    ({"source": "C:\\vox\\examples\\a.vox"}, "C:/vox/examples/a.vox", SourceKind.VOX_FILE),
    ({"source": "a.vox.ui"}, "a.vox.ui", SourceKind.VOX_FILE),
    ({"source": "docs/a.md"}, "docs/a.md", SourceKind.DOC_BLOCK),
)
def test_the_path_of_a_file_is_a_source(fields: dict[str, Any], path: str, kind: SourceKind) -> None:
    source = _pair(**fields).source

    assert source is not None
    assert (source.path, source.kind) == (path, kind)


@pytest.mark.seed_row(48)
def test_a_source_that_is_not_a_file_is_dropped() -> None:
    assert _pair(source="tool_trace:7").source is None
    assert "response: Field required" in _problem(source="a.vox", response=None)


@pytest.mark.parametrize("record_format", RecordFormat)
def test_nulls_in_rows_of_other_formats_are_left_out(record_format: RecordFormat) -> None:
    texts = ["task_prompt", "tool_name", "arguments_json", "result_json", "noisy_text", "corrected_text"]
    texts += ["transcript", "code", "intent", "execution_log_excerpt"]
    row = {**dict.fromkeys(texts, "1"), "success": True, "rating": None, "routing_efficiency": None}

    assert pair_reader(record_format)(row).rating == 3
    with pytest.raises(ValidationError):
        pair_reader(record_format)("no row")  # type: ignore[arg-type]


@pytest.mark.seed_row(36)
def test_a_record_of_upstream_is_converted() -> None:
    line = json.dumps(_RECORD).encode()
    (record,) = read_records([line], Path("validated.jsonl"))

    assert isinstance(record, ExtractedRecord)
    assert read_row(line, 1) == record
    assert (record.text, record.lane, record.source.path) == (_RECORD["code"], Lane.CODEGEN, "examples/golden/a.vox")
    assert (record.category, record.difficulty) == ("table", 3)
    assert record.constructs == {"function": 1, "table": 1}
    assert list(read_records([record.model_dump_json().encode()], Path("ours.jsonl"))) == [record]


@every_row(
    ({"code": "fn ("}, "code: the front end does not accept it (expected a function name"),
    ({"code": "// nothing"}, "code: the front end does not accept it (nothing is declared)"),
    ({"code": 7}, "source: Input should be an object"),
)
def test_an_invalid_record_of_upstream_is_refused(fields: dict[str, Any], problem: str) -> None:
    line = json.dumps(_RECORD | fields).encode()

    with pytest.raises(RefusedError) as refused:
        list(read_records([line], Path("validated.jsonl")))
    assert problem in str(refused.value)


def test_a_record_without_a_source_has_an_unknown_path() -> None:
    (record,) = read_records([json.dumps(_RECORD | {"source": None}).encode()], Path("validated.jsonl"))

    assert record.source.path == "unknown"


def test_an_extraction_refuses_records_of_upstream(tmp_path: Path) -> None:
    path = tmp_path / "validated.jsonl"
    path.write_text(json.dumps(_RECORD) + "\n")

    with pytest.raises(RefusedError, match=r"validated.jsonl:1: a record written by another toolchain"):
        list(read_record_lines(path))
