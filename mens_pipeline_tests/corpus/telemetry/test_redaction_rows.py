"""Rows that hold a secret or name a person are masked or dropped; other rows are unchanged."""

import hashlib
from collections import Counter

import pytest

from mens_pipeline.corpus.schema.records import MAX_TEXT, HoleKind, InfillContext, Lane, TrainingPair
from mens_pipeline.corpus.telemetry.redaction import RedactionPolicy, SensitiveKind, redact_row
from mens_pipeline.language import analyze
from mens_pipeline_tests.corpus.rows import records_of

_KEY = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT" * 2
_MASK, _DROP, _OFF = RedactionPolicy


def test_a_program_is_masked_and_stays_a_program() -> None:
    header = "// ---\n// file: a\n// author: Maria Gonzalez\n// ---\n// @training_prompt: Mail ada@firm.de.\n"
    record, *_ = records_of(f'{header}// Calls. Author: Maria Gonzalez\nfn f() to str {{ return "{_KEY}" }}\n')
    redacted = redact_row(record, _MASK)

    assert redacted.row is not None
    assert redacted.row.text == '// Calls. Author: REDACTED_AUTHOR\nfn f() to str { return "REDACTED_ACCESS_TOKEN" }\n'
    assert redacted.row.text_sha256 == hashlib.sha256(redacted.row.text.encode()).hexdigest()
    assert redacted.row.prompt == "Mail REDACTED_EMAIL."
    assert redacted.row.metadata == {"file": "a", "author": "REDACTED"}
    assert redacted.row.context == "Calls. Author: REDACTED_AUTHOR"
    assert redacted.counts[SensitiveKind.AUTHOR] == 3
    assert analyze(redacted.row.text).module is not None
    assert (redact_row(record, _DROP).row, redact_row(record, _OFF).row) == (None, record)


def test_a_program_that_masking_would_change_is_dropped() -> None:
    """A number in running code would become a name; the detail says what was found."""
    redacted = redact_row(records_of("fn f() to int { return 4242424242424242 }\n")[0], _MASK)

    assert redacted.row is None
    assert redacted.detail == "1 card_number"


def test_headers_of_any_type_are_redacted() -> None:
    header = "// ---\n// authors: [Maria Gonzalez, Ben Yu]\n// order: 3\n// ---\n"
    redacted = redact_row(records_of(f"{header}fn f() to int {{ return 1 }}\n")[0], _MASK)

    assert redacted.row is not None
    assert redacted.row.metadata == {"authors": "REDACTED", "order": 3}


def test_a_row_that_grows_too_long_is_dropped() -> None:
    pair = TrainingPair(prompt="x" * (MAX_TEXT - 7) + " a@b.de", response="Yes.", response_mode="prose_only")

    assert redact_row(pair, _MASK).row is None


def test_prose_is_masked() -> None:
    pair = TrainingPair(prompt="Who?", response="ada@firm.de", response_mode="prose_only", lane=Lane.TOOLING)
    redacted = redact_row(pair, _MASK)

    assert redacted.row is not None
    assert redacted.row.response == "REDACTED_EMAIL"


@pytest.mark.parametrize(("suffix", "is_kept"), [(".example) }", True), ("rm.de) }", False)])
def test_a_piece_is_checked_with_its_surroundings(suffix: str, is_kept: bool) -> None:  # noqa: FBT001 - a table
    infill = InfillContext(kind=HoleKind.LINE, suffix=suffix)
    pair = TrainingPair(prompt='fn f() { mail("ada@', response="fi", infill=infill)
    redacted = redact_row(pair, _MASK)

    assert (redacted.row is pair) is is_kept
    assert (redacted.counts == Counter()) is is_kept
    assert redact_row(pair, _OFF).row is pair


def test_a_clean_row_is_the_same_row() -> None:
    record, *_ = records_of("fn f() to int { return 1 }\n")

    assert redact_row(record, _MASK).row is record
    assert redact_row(record, _DROP).row is record


def test_drawn_inputs_are_not_addresses() -> None:
    drawn = TrainingPair(prompt="p", response="fn f() { }", tests='@test fn t() { assert(f("2.42.10.7")) }')
    with_key = drawn.model_copy(update={"tests": f'@test fn t() {{ assert(f("{_KEY}")) }}'})

    assert redact_row(drawn, _MASK).row is drawn
    assert redact_row(with_key, _MASK).counts == {SensitiveKind.ACCESS_TOKEN: 1}
