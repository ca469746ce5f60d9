"""Rows are kept in canonical form, or quarantined with a reason."""

import json

import pytest

from mens_pipeline.corpus.curate.pipeline_config import ValidatePolicy
from mens_pipeline.corpus.curate.validate import Quarantined, Repetition, ValidationReport, validate_rows
from mens_pipeline.corpus.extract.extractors import extract_vox
from mens_pipeline.corpus.schema.reasons import RejectReason, WarnReason
from mens_pipeline.corpus.schema.records import MAX_TEXT, ExtractedRecord, SourceFile, TrainingPair, parsed_code
from mens_pipeline.language import Mode
from mens_pipeline.storage.files import MAX_LINE_BYTES
from mens_pipeline_tests.corpus.rows import pair_at, records_of
from mens_pipeline_tests.every import every_row

_RECORD = json.loads(records_of("fn f() { }\n")[0].model_dump_json())
_PAIR = {"prompt": "p", "response": "fn f() { }", "rating": 5, "category": "function"}


def _validate(
    *rows: object, recheck: bool = True, policy: ValidatePolicy | None = None
) -> tuple[list[ExtractedRecord | TrainingPair], list[Quarantined], ValidationReport]:
    report = ValidationReport(recheck=recheck)
    quarantined: list[Quarantined] = []
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    return list(validate_rows(lines, report, quarantined.append, Repetition(policy))), quarantined, report


@pytest.mark.seed_row(48)
def test_a_good_pair_is_kept_in_canonical_form() -> None:
    written = {"instruction": "p", "output": "fn f() { }", "rating": 4, "turns": []}
    (pair, named), _, report = _validate(written, b"  \n", {**_PAIR, "response": "fn g() { }", "instruction": "other"})
    written = json.loads(pair.model_dump_json())

    assert (written["prompt"], written["response"], written["rating"]) == ("p", "fn f() { }", 4)
    assert "instruction" not in written
    assert named.prompt == "p", "canonical names win over aliases"
    assert (report.seen, report.kept) == (2, 2)


def test_hidden_tests_are_written_only_if_a_row_has_them() -> None:
    tests = "@test fn t() { assert(f(1) is 2) }\n"
    (plain, tested), _, report = _validate(_PAIR, {**_PAIR, "prompt": "other", "tests": tests})

    assert "tests" not in json.loads(plain.model_dump_json())
    assert json.loads(tested.model_dump_json())["tests"] == tests
    assert report.kept == 2


def test_an_extracted_record_is_kept() -> None:
    found = extract_vox(SourceFile("a.vox.ui", b"state n = 0\n"))
    assert isinstance(found, tuple)
    kept, quarantined, _ = _validate(*(json.loads(record.model_dump_json()) for record in (*found, *found)))

    assert kept == list(found)
    assert [row.reason for row in quarantined] == [RejectReason.DUPLICATE]


@pytest.mark.seed_row(4, 48)
@every_row(
    (b"nope", RejectReason.MALFORMED_JSON, "expected ident"),
    (b'"\xff"', RejectReason.MALFORMED_JSON, "invalid unicode"),
    (b'["\\ud800"]', RejectReason.MALFORMED_JSON, "hex escape"),
    (b'{"prompt": "\\ud800", "response": "fn f() { }"}', RejectReason.MALFORMED_JSON, "hex escape"),
    (b'{"x": ' + b"[" * 500 + b"]" * 500 + b"}", RejectReason.MALFORMED_JSON, "recursion"),
    (b'{"prompt": ' + b"[" * 150 + b"]" * 150 + b"}", RejectReason.SCHEMA, "prompt: Input should be a valid string"),
    (b"[" * 100_000, RejectReason.MALFORMED_JSON, "recursion"),
    (b" " * 9 + b"[1]", RejectReason.NOT_AN_OBJECT, "expected an object, found list"),
    ({**_PAIR, "rating": 6}, RejectReason.SCHEMA, "rating: Input should be less than or equal to 5"),
    ({**_PAIR, "rating": 0}, RejectReason.SCHEMA, "rating: Input should be greater than or equal to 1"),
    ({**_PAIR, "rating": "5"}, RejectReason.SCHEMA, "rating: Input should be a valid integer"),
    ({**_PAIR, "schema_version": "v2"}, RejectReason.SCHEMA, "schema_version"),
    ({"prompt": "p"}, RejectReason.SCHEMA, "response: Field required"),
    ({**_PAIR, "prompt": ""}, RejectReason.SCHEMA, "prompt"),
    ({**_PAIR, "prompt": "x" * (MAX_TEXT + 1)}, RejectReason.SCHEMA, "at most 65536"),
    ({"text": "fn f() { }"}, RejectReason.SCHEMA, "source: Field required"),
    ({**_RECORD, "verdict": "prose"}, RejectReason.SCHEMA, "'prose' in the lane vox_codegen; prose belongs into vox_d"),
    ({**_RECORD, "prompt": "x" * (MAX_TEXT + 1)}, RejectReason.SCHEMA, "at most 65536"),
    ({**_RECORD, "context": "x" * MAX_TEXT}, RejectReason.SCHEMA, "context: String should have at most 16384"),
    ({**_PAIR, "response": "fn ("}, RejectReason.COMPILER_REJECTED, "line 1: expected-name"),
    ({**_PAIR, "response": "// nothing"}, RejectReason.COMPILER_REJECTED, "nothing is declared"),
    ({**_PAIR, "tests": "@test fn ("}, RejectReason.COMPILER_REJECTED, "hidden tests are rejected at line 1"),
    ({**_PAIR, "tests": "fn t() { }"}, RejectReason.COMPILER_REJECTED, "hidden tests hold no `@test`"),
    (b'"' + b"x" * MAX_LINE_BYTES + b'"', RejectReason.TOO_LARGE, "more than"),
)
def test_invalid_rows_are_quarantined_with_a_reason(row: object, reason: RejectReason, detail: str) -> None:
    kept, (quarantined,), report = _validate(row)

    assert kept == []
    assert (quarantined.line, quarantined.reason) == (1, reason)
    assert detail in quarantined.detail
    assert json.loads(quarantined.model_dump_json())["reason"] == reason
    report.check()
    assert report.dropped[reason] == 1


def test_an_unknown_category_is_kept_and_counted() -> None:
    kept, _, report = _validate({**_PAIR, "category": "functoin"}, {**_PAIR, "prompt": "q", "category": "fn"})

    assert [row.category for row in kept] == ["functoin", "function"]
    assert report.warned == {WarnReason.UNKNOWN_CATEGORY: 1}


@pytest.mark.seed_row(5)
def test_without_recheck_only_the_compiler_is_skipped() -> None:
    bad_code = {**_PAIR, "response": "fn ("}
    kept, quarantined, report = _validate(bad_code, bad_code, {**_PAIR, "rating": 9}, recheck=False)

    assert len(kept) == 1
    assert [row.reason for row in quarantined] == [RejectReason.DUPLICATE, RejectReason.SCHEMA]
    rejected = dict.fromkeys(map(str, RejectReason), 0) | {"schema": 1, "duplicate": 1}
    warned = dict.fromkeys(map(str, WarnReason), 0)
    counts = {"seen": 3, "kept": 1, "rejected": rejected, "warned": warned, "places": []}
    assert report.as_json() == {"recheck": False, **counts}


@every_row(
    ({"response": "fn f() { missing() }"}, 1),
    ({"response": "fn f() { missing() }", "prompt": "Call `missing`."}, 0),
    ({"response": "fn f() { missing() }", "tests": "fn missing() { }\n@test fn t() { f() }\n"}, 0),
    ({"response": "What is `missing`?", "response_mode": "prose_only"}, 0),
    ({"response": "fn f(n: int) { match n { _ => 1 2 => 3 } }"}, 0),
)
def test_a_row_with_an_error_in_names_or_types_is_kept_and_counted(changes: dict[str, str], warned: int) -> None:
    kept, quarantined, report = _validate({**_PAIR, **changes})

    assert (len(kept), quarantined, report.seen) == (1, [], 1)
    assert report.as_json()["warned"] == {"semantic_error": warned, "unknown_category": 0}


def test_a_record_is_checked_with_its_context() -> None:
    found = extract_vox(SourceFile("a.vox", b"fn f() to int { return g() }\nfn g() to int { return true }\n"))
    assert isinstance(found, tuple)
    _, refused, report = _validate(*(json.loads(record.model_dump_json()) for record in (*found, *found)))

    assert report.warned[WarnReason.SEMANTIC_ERROR] == report.kept == len(refused) == len(found)
    assert set(report.places) == {(WarnReason.SEMANTIC_ERROR, "a.vox type-mismatch")}


def test_near_duplicates_are_quarantined_with_the_row_they_repeat() -> None:
    policy = ValidatePolicy(near_duplicate_threshold=0.9, max_per_source=2, max_per_template=1)
    words = " ".join(f"w{number}" for number in range(80))
    prose = {"response_mode": "prose_only", "lane": "vox_docs_qa"}
    rows = [{"prompt": "p", "response": text, **prose} for text in (words, words + " x", "other")]
    templates = [{"prompt": f"q{n}", "response": f"r{n}", "template": "t", **prose} for n in range(2)]
    kept, quarantined, report = _validate(*rows, *templates, policy=policy)

    assert [(row.line, row.reason, row.detail) for row in quarantined] == [
        (2, RejectReason.NEAR_DUPLICATE, "nearly the same as line 1"),
        (5, RejectReason.TEMPLATE_CAP, "t has given 1 rows"),
    ]
    assert len(kept) == 3
    report.check()
    assert quarantined[0].record == rows[1]


def test_rejected_code_does_not_count_as_a_duplicate() -> None:
    bad = {**_PAIR, "response": "fn ("}

    assert [row.reason for row in _validate(bad, bad)[1]] == [RejectReason.COMPILER_REJECTED] * 2


@pytest.mark.parametrize(("path", "mode"), [(None, Mode.SOURCE), ("a/b.vox", Mode.SOURCE), ("a/b.vox.ui", Mode.UI)])
def test_code_is_parsed_in_the_mode_of_its_file(path: str | None, mode: Mode) -> None:
    pair = pair_at(path, "p", "fn f() { }")

    assert parsed_code(pair) == ("fn f() { }", mode)
    assert parsed_code(pair.model_copy(update={"response_mode": "prose_only"})) is None
