"""The train set as an artifact."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pydantic import ValidationError

from mens_pipeline.corpus.curate.mix import Mix, MixConfig, MixReport, MixSource, RecordFormat, SourceRows, mix_sources
from mens_pipeline.corpus.curate.mixed_train_set import (
    STAGE,
    TRAIN,
    MixParams,
    pair_reader,
    read_sources,
    report_beside,
    write_mix,
    write_parquet,
)
from mens_pipeline.corpus.schema.records import MAX_TEXT, Lane, Lineage, TrainingPair, read_pairs
from mens_pipeline.errors import ConfigurationError, RefusedError, SourceNotFoundError
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline_tests.corpus.full_disk import full_after
from mens_pipeline_tests.corpus.rows import pair_at

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


def test_a_row_without_a_format_is_a_pair() -> None:
    assert pair_reader(None)({"instruction": "p", "output": "r"}) == TrainingPair(prompt="p", response="r")


def test_the_response_of_a_tool_trace_is_its_call() -> None:
    pair = pair_reader(RecordFormat.TOOL_TRACE)(_TOOL)

    assert (pair.prompt, pair.response) == ("List the files.", '{"tool": "ls", "arguments": {"path": "."}}')
    assert (pair.lane, pair.category, pair.task_family) == (Lane.TOOLING, "tool_trace", "tool_trace")
    assert (pair.response_mode, pair.rating, pair.source) == ("prose_only", 3, None)


def test_the_response_of_a_tool_trace_is_its_followup() -> None:
    pair = pair_reader(RecordFormat.TOOL_TRACE)({**_TOOL, "followup_text": "There are none.", "success": False})

    assert pair.response == "There are none."
    assert pair.prompt == (
        'List the files.\n\nTool call: {"tool": "ls", "arguments": {"path": "."}}\n'
        'Tool result: {"success": false, "result": "not JSON"}'
    )


def test_the_response_of_a_transcript_is_its_correction() -> None:
    pair = pair_reader(RecordFormat.ASR_REFINE)({**_ASR, "rating": 5})

    assert (pair.prompt, pair.response) == (
        "Correct this transcript of speech:\n\nright a funktion",
        "write a function",
    )
    assert (pair.lane, pair.rating, pair.response_mode) == (Lane.SPEECH, 5, "prose_only")


def test_the_response_of_a_spoken_request_is_code() -> None:
    plain = pair_reader(RecordFormat.SPEECH_TO_CODE)(_SPEECH)
    more = {"refined_transcript": "Write f.", "vox_code": "fn g() { }"}
    parts = {"transcript_alternatives": ["right f", "write eff"], "diagnostics_snapshot": "line 1: no"}
    full = pair_reader(RecordFormat.SPEECH_TO_CODE)({**_SPEECH, **more, **parts})

    assert (plain.prompt, plain.response, plain.response_mode) == ("write f", "fn f() { }", "code_only")
    assert (plain.lane, plain.task_family, plain.category) == (Lane.SPEECH, "speech_to_code", "speech_to_code")
    assert full.prompt == ("Write f.\n\nIt may also have been: right f; write eff\n\nDiagnostics:\nline 1: no")
    assert full.response == "fn g() { }"


def test_the_response_of_a_workflow_trace_is_its_log() -> None:
    pair = pair_reader(RecordFormat.WORKFLOW_TRACE)({**_WORKFLOW, "routing_efficiency": 0.5, "id": 3})

    assert pair.prompt.endswith("Pay a bill.")
    assert (pair.response, pair.lane, pair.category) == ("1. reserve\n2. pay", Lane.TOOLING, "workflow_trace")


@pytest.mark.parametrize("record_format", RecordFormat)
def test_an_invalid_row_of_each_format_is_refused(record_format: RecordFormat) -> None:
    row = _ROWS[record_format]
    text = next(iter(row))
    bad: list[Any] = [{key: value for key, value in row.items() if key != missing} for missing in row]
    bad += [{**row, text: wrong} for wrong in ("", "x" * (MAX_TEXT + 1))]
    bad += [{**row, "rating": 6}, {**row, "rating": "5"}, [row], 3]

    for broken in bad:
        with pytest.raises(ValidationError, match="validation error"):
            pair_reader(record_format)(broken)


_LINEAGE = Lineage(
    parent="0", operator="deepen", generation=2, generator="m", generator_digest="1", seed=3, root_kind=None
)
_PAIRS = [
    pair_at("a.vox", "p\n", "fn ä() { }"),
    pair_at(None, "q", "fn g() { }", template="t"),
    pair_at("b.vox", "r", "fn h() { }").model_copy(update={"rating": 1, "difficulty": 9}),
    pair_at("c.vox", "s", "fn i() { }").model_copy(update={"lineage": _LINEAGE}),
    pair_at("d.vox", "t", "fn j(n: int) to int { return n }").model_copy(update={"tests": "@test fn t() { }\n"}),
]
_FILES = ("train.jsonl", "train.parquet", "train.mix_report.json")


def _mix() -> Mix:
    source = MixSource(path="a.jsonl")
    return mix_sources(MixConfig(sources=(source,), max_repeats=3), {"a.jsonl": SourceRows(_PAIRS, sha256="00")})


def test_sources_are_read_with_their_digests(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "deep" / "a.jsonl", _PAIRS)
    bad = [b"", b"nope", b"[1]", b'{"prompt": "p"}', b"[" * 5000, b'{"prompt": "\\ud800", "response": "r"}', b"\xff"]
    with (tmp_path / "deep" / "a.jsonl").open("ab") as file:
        file.write(b"\n".join(bad) + b"\n")
    config = MixConfig(sources=(MixSource(path="deep/a.jsonl"), MixSource(path="missing.jsonl")))
    sources = read_sources(config, tmp_path)

    assert sources == {
        "deep/a.jsonl": SourceRows(_PAIRS, unreadable=6, sha256=digest_of(tmp_path / "deep" / "a.jsonl")),
        "missing.jsonl": SourceRows(None),
    }


def test_rows_of_another_format_are_turned_into_pairs(tmp_path: Path) -> None:
    (tmp_path / "asr.jsonl").write_text(
        '{"noisy_text": "a", "corrected_text": "b"}\n{"prompt": "p", "response": "r"}\n'
    )
    config = MixConfig(sources=(MixSource(path="asr.jsonl", record_format=RecordFormat.ASR_REFINE),))
    rows = read_sources(config, tmp_path)["asr.jsonl"]

    assert [pair.response for pair in rows.pairs or []] == ["b"]
    assert rows.unreadable == 1


def test_a_folder_in_the_place_of_a_source_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").mkdir()

    with pytest.raises(SourceNotFoundError, match="Name a readable file of JSON lines"):
        read_sources(MixConfig(sources=(MixSource(path="a.jsonl"),)), tmp_path)


@pytest.mark.seed_row(37)
def test_the_train_set_is_written_twice_and_reported(tmp_path: Path) -> None:
    mix = _mix()
    report = write_mix(mix, tmp_path / "out" / "train.jsonl", {"output_path": "x"})
    table = parquet.read_table(tmp_path / "out" / "train.parquet")

    assert list(read_pairs(tmp_path / "out" / "train.jsonl")) == mix.rows
    assert [TrainingPair.model_validate(row) for row in table.to_pylist()] == mix.rows
    assert table.column_names == list(TrainingPair.model_fields)
    assert json.loads((tmp_path / "out" / "train.mix_report.json").read_text()) == report
    assert report_beside(tmp_path / "out" / "train.jsonl") == mix.report()
    assert report_beside(tmp_path / "train.jsonl") is None
    assert report["output_path"] == "x"
    assert set(report["sources"][0]) >= {
        *("path", "weight", "optional", "record_format", "source_fingerprint", "input_lines", "emitted_lines"),
        *("share_of_output", "requested_share", "skipped_reason", "distinct_lines", "dropped", "repeats"),
    }
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(_FILES)


def test_the_same_mix_is_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("a", "b", "b"):
        write_mix(_mix(), tmp_path / folder / "train.jsonl", {})

    assert [(tmp_path / "a" / name).read_bytes() for name in _FILES] == [
        (tmp_path / "b" / name).read_bytes() for name in _FILES
    ]


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in (".train.parquet.part", f".train.parquet.{os.getpid()}.part"):
        (tmp_path / name).symlink_to(victim)
    write_mix(_mix(), tmp_path / "train.jsonl", {})

    assert victim.read_text() == "mine"
    assert parquet.read_table(tmp_path / "train.parquet").num_rows == len(_mix().rows)


def test_a_parquet_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with (
        full_after(1024),
        pytest.raises(
            ConfigurationError, match=r"train\.parquet: File too large\. Make room, or name a file elsewhere"
        ),
    ):
        write_parquet(_mix().rows, tmp_path / "train.parquet")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "train.parquet").mkdir()
    with pytest.raises(ConfigurationError, match=r"train\.parquet: Is a directory\. Name a file that may be replaced"):
        write_parquet(_mix().rows, tmp_path / "train.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["train.parquet"]


_CONFIG = MixConfig(
    sources=(MixSource(path="pairs.jsonl", weight=3), MixSource(path="told.jsonl", optional=True)),
    output="not looked at.jsonl",
)


def _split(store: ArtifactStore) -> Artifact:
    with store.writing("heldout_split", {"a": 1}) as draft:
        write_jsonl(draft.path / "pairs.jsonl", [pair_at("a.vox", str(n), "fn f() { }") for n in range(6)])
        write_jsonl(draft.path / "told.jsonl", [pair_at(None, "q", "fn g() { }")])
    found = store.find("heldout_split", {"a": 1})
    assert found is not None
    return found


@pytest.mark.seed_row(36)
def test_a_split_is_mixed_once(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store")
    split = _split(store)
    params = MixParams(split=split, config=_CONFIG)
    first, was_there = STAGE.build(store, params)
    again, is_there = STAGE.build(store, params)
    other, was_the_same = STAGE.build(store, MixParams(split=split, config=_CONFIG.model_copy(update={"seed": 1})))
    elsewhere, _ = STAGE.build(ArtifactStore(tmp_path / "other"), params)
    names = sorted(path.name for path in first.path.iterdir())

    assert (was_there, is_there, was_the_same) == (False, True, False)
    assert again == first
    assert other.key != first.key
    assert names == ["manifest.json", "train.jsonl", "train.mix_report.json", "train.parquet"]
    assert [(first.path / name).read_bytes() for name in names] == [
        (elsewhere.path / name).read_bytes() for name in names
    ]
    report = json.loads((first.path / "train.mix_report.json").read_text())
    assert MixReport.of(first) == report_beside(first.path / TRAIN)
    assert {key: first.manifest[key] for key in report} == report
    assert report["total_emitted"] == len(list(read_pairs(first.path / TRAIN))) == 8
    assert report["config"]["sources"][0]["weight"] == 3.0


def test_a_split_without_a_source_is_refused(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store")
    config = MixConfig(sources=(MixSource(path="missing.jsonl"),))

    with pytest.raises(RefusedError, match=r"missing\.jsonl: the file is missing"):
        STAGE.build(store, MixParams(split=_split(store), config=config))
    assert list((store.root / "mixed_train_set").iterdir()) == []
