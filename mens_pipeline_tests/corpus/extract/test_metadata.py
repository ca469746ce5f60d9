"""Metadata of source files."""

from typing import Any

import pytest

from mens_pipeline.corpus.extract.metadata import (
    MAX_BRACKETS,
    MAX_FRONTMATTER,
    FrontmatterError,
    comment_header,
    find_reason,
    has_skip_marker,
    jsonable,
    parse_header,
    read_weight,
    strip_metadata,
    training_prompt,
)
from mens_pipeline.corpus.schema.reasons import DropReason
from mens_pipeline.language import tokenize
from mens_pipeline_tests.every import every_row
from mens_pipeline_tests.language.examples import golden_programs


def test_comment_header_is_read_with_its_length() -> None:
    header = comment_header("// ---\n// title: \"T\"\n// constructs: [fn, '@test']\n// weight: 2\n// ---\nfn f() { }\n")

    assert header.values == {"title": "T", "constructs": ["fn", "@test"], "weight": 2}
    assert header.end_line == 5


@pytest.mark.parametrize("source", ["", "fn f() { }\n", "// note\n// ---\n// training_eligible: true\n// ---\n"])
def test_a_missing_header_is_empty(source: str) -> None:
    header = comment_header(source)

    assert (header.values, header.end_line) == ({}, 0)


def test_a_value_that_is_not_yaml_is_kept_as_text() -> None:
    values = parse_header("constructs: [fn, @test]\n\ntraining_eligible: false\n")

    assert values == {"constructs": "[fn, @test]", "training_eligible": False}


@every_row(
    ("a: &x [1]\nb: [*x, *x]", "aliases"),
    ("- a\n- b", "not a mapping"),
    ("just words", "not a mapping"),
    ("a: [1\n  b", "not YAML at 'b'"),
    ("b: [\na: " + "- " * 4000 + "x", "levels"),
    ("a: 1\n" * 4000, f"more than {MAX_FRONTMATTER}"),
)
def test_a_header_that_is_not_a_plain_mapping_is_refused(text: str, problem: str) -> None:
    with pytest.raises(FrontmatterError, match=problem):
        parse_header(text)


def test_deep_yaml_is_refused_at_once() -> None:
    """Parsing a very deeply nested header would take minutes."""
    with pytest.raises(FrontmatterError, match=f"more than {MAX_BRACKETS}"):
        parse_header("a: " + "[" * 16_000)


@pytest.mark.parametrize("source", ["// ---\n// a: 1\nfn f() { }\n", "// ---\n// a: 1"])
def test_a_header_that_never_closes_is_refused(source: str) -> None:
    with pytest.raises(FrontmatterError, match="never closed"):
        comment_header(source)


def test_an_empty_header_has_no_values() -> None:
    assert comment_header("// ---\n// ---\n").values == {}


@pytest.mark.seed_row(50)
@every_row(
    ({}, None, DropReason.NOT_OPTED_IN),
    ({"training_eligible": True}, None, None),
    ({"training_eligible": False}, DropReason.OPTED_OUT, DropReason.OPTED_OUT),
    ({"training_eligible": True, "status": "deprecated"}, DropReason.DEPRECATED, DropReason.DEPRECATED),
    ({"training_eligible": True, "status": " Deprecated "}, DropReason.DEPRECATED, DropReason.DEPRECATED),
    ({"training_eligible": True, "status": "golden"}, None, None),
    ({"training_eligible": "yes"}, DropReason.BAD_FRONTMATTER, DropReason.BAD_FRONTMATTER),
    ({"training_eligible": [True]}, DropReason.BAD_FRONTMATTER, DropReason.BAD_FRONTMATTER),
    ({"training_eligible": 1}, DropReason.BAD_FRONTMATTER, DropReason.BAD_FRONTMATTER),
)
def test_programs_opt_out_and_pages_opt_in(
    values: dict[str, Any], for_a_program: DropReason | None, for_a_page: DropReason | None
) -> None:
    program = find_reason(values, must_opt_in=False)
    page = find_reason(values, must_opt_in=True)

    assert (program and program[0], page and page[0]) == (for_a_program, for_a_page)


def test_weight_is_a_positive_number() -> None:
    assert [read_weight(values) for values in ({}, {"training_weight": 2}, {"training_weight": 0.5})] == [1.0, 2.0, 0.5]


@pytest.mark.parametrize("value", [0, -1, True, "2", float("inf"), float("nan"), None])
def test_any_other_weight_is_refused(value: object) -> None:
    with pytest.raises(FrontmatterError, match="expected a positive number"):
        read_weight({"training_weight": value})


def test_values_become_json() -> None:
    values = parse_header("date: 2026-05-10\nlist: [1, {2: true}]\nnone:\n")

    assert jsonable(values) == {"date": "2026-05-10", "list": [1, {"2": True}], "none": None}


_PROGRAM = """// ---
// title: x
// ---
// @training_prompt: Write it.
// A real comment.
fn f() {
    // ANCHOR: display
    let s = "
// ANCHOR: not a comment
" // vox:note stays, it shares its line
    // ANCHOR_END: display
}
"""


def test_only_whole_lines_of_metadata_are_removed() -> None:
    kept = "// A real comment.\nfn f() {\n"
    text = '    let s = "\n// ANCHOR: not a comment\n" // vox:note stays, it shares its line\n}\n'

    assert strip_metadata(_PROGRAM) == kept + text


def test_prompt_and_skip_marker_are_found() -> None:
    assert training_prompt(_PROGRAM) == "Write it."
    assert training_prompt("fn f() { }") is None
    assert has_skip_marker("fn f() { }\n  // vox:skip (why)\n")
    assert not has_skip_marker('let s = "\n// vox:skip\n"\nlet t = 1 // vox:skip\n// vox:skipped\n')


def test_no_token_of_a_golden_program_is_lost() -> None:
    for source in golden_programs().values():
        before = [token.text for token in tokenize(source) if not token.is_trivia and token.kind != "NL"]
        stripped = strip_metadata(source)
        after = [token.text for token in tokenize(stripped) if not token.is_trivia and token.kind != "NL"]

        assert after == before
        assert "training_prompt" not in stripped
        assert "// ---" not in stripped
        assert "ANCHOR" not in stripped
