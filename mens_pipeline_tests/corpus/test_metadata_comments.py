"""Comments for the pipeline are taken out, and nothing else is."""

from mens_pipeline.corpus.extract.metadata_comments import has_skip_marker, strip_metadata, training_prompt
from mens_pipeline.language import tokenize
from mens_pipeline_tests.language.examples import golden_programs

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


def test_only_whole_lines_of_metadata_go() -> None:
    """Header, prompt and anchors go; comments, strings and trailing notes stay."""
    kept = "// A real comment.\nfn f() {\n"
    text = '    let s = "\n// ANCHOR: not a comment\n" // vox:note stays, it shares its line\n}\n'

    assert strip_metadata(_PROGRAM) == kept + text


def test_prompt_and_skip_marker_are_found() -> None:
    """They are comments that stand alone, not text in a string."""
    assert training_prompt(_PROGRAM) == "Write it."
    assert training_prompt("fn f() { }") is None
    assert has_skip_marker("fn f() { }\n  // vox:skip (why)\n")
    assert not has_skip_marker('let s = "\n// vox:skip\n"\nlet t = 1 // vox:skip\n// vox:skipped\n')


def test_no_token_of_a_golden_program_is_lost() -> None:
    """What the compiler reads is the same before and after."""
    for source in golden_programs().values():
        before = [token.text for token in tokenize(source) if not token.is_trivia and token.kind != "NL"]
        stripped = strip_metadata(source)
        after = [token.text for token in tokenize(stripped) if not token.is_trivia and token.kind != "NL"]

        assert after == before
        assert "training_prompt" not in stripped
        assert "// ---" not in stripped
        assert "ANCHOR" not in stripped
