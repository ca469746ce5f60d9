"""An analysis as a record for machines."""

from mens_pipeline.language import analyze
from mens_pipeline.language.verdict import verdict_record


def test_an_accepted_program_has_its_declarations() -> None:
    """In order and counted, with its warnings."""
    record = verdict_record(analyze("fn f() -> int { return 1 }\nimport a\n"))

    assert record["ok"] is True
    assert record["declarations"] == ["Function", "Import"]
    assert record["constructs"] == {"fn": 1, "import": 1}
    assert record["diagnostics"] == []
    assert [(warning["line"], warning["column"]) for warning in record["warnings"]] == [(1, 7)]


def test_a_rejected_program_has_its_errors_alone() -> None:
    """Each with its place, code, message and advice."""
    record = verdict_record(analyze("é fn ("))
    (first, *_) = record["diagnostics"]

    assert (record["ok"], record["declarations"], record["constructs"]) == (False, [], {})
    assert set(first) == {"line", "column", "offset", "code", "message", "advice"}
    assert first["offset"] > first["column"] >= 0
