"""The places of declarations, and the texts that are cut out at these places."""

from mens_pipeline.language import CONSTRUCTS, DeclarationSpan, Mode, construct_of, declaration_spans, mode_of
from mens_pipeline_tests.language.examples import golden_programs, parse


def _outline(source: str, mode: Mode = Mode.SOURCE) -> tuple[DeclarationSpan, ...]:
    return declaration_spans(source, parse(source, mode))


def test_span_holds_decorators_and_modifiers() -> None:
    source = 'import a\n\n@test("x")\n@pure\nfn t() {\n    1\n} // after\n\npub fn g() { }\n'
    _, test, function = _outline(source)

    assert test.cut(source) == '@test("x")\n@pure\nfn t() {\n    1\n}'
    assert (test.construct, test.name, test.decorators) == (CONSTRUCTS["test"], "t", ("@test", "@pure"))
    assert function.cut(source) == "pub fn g() { }"


def test_doc_comment_is_the_run_directly_above() -> None:
    frontmatter = "// ---\n// title: x\n// ---\n"
    source = frontmatter + "// First.\n#  Second.\nfn f() { } // trailing\nfn g() { }\n\n// Far.\n\nfn h() { }\n"
    f, g, h = _outline(source)

    assert f.doc == ("First.", "Second.")
    assert source[f.doc_start : f.start] == "// First.\n#  Second.\n"
    assert (g.doc, h.doc) == ((), ())
    assert _outline("import a // note\n  // Indented.\n  fn f() { }")[1].doc == ("Indented.",)
    assert (g.doc_start, h.doc_start) == (g.start, h.start)


def test_spans_have_the_declared_names() -> None:
    source = (
        "import a.b as c\nlet x = 1\n@index T.by on (a)\nroutes { }\n@push { }\n@tokens { }\n"
        "import lib as { }\n@mcp.tool fn tool() { }\nactor A { }\n"
    )

    assert [span.name for span in _outline(source)] == ["b", "x", "T.by", None, None, None, None, "tool", "A"]


def test_spans_exclude_blank_lines_at_their_end() -> None:
    """Even after an `if`, which looks ahead for `else`."""
    source = "let x = if a { 1 }\n\n\n// note\nlet y = Foo()\n\n"

    assert [span.cut(source) for span in _outline(source)] == ["let x = if a { 1 }", "let y = Foo()"]


def test_reactive_modules_and_scripts_have_spans() -> None:
    ui = "fn f() { }\nstate n = 0\nderived d = n\n"
    script = "x = 1\nfn f() { }\nprint(x)\n"

    assert [span.cut(ui) for span in _outline(ui, Mode.UI)] == ["fn f() { }", "state n = 0\nderived d = n"]
    assert [span.name for span in _outline(script, Mode.SCRIPT)] == ["f", "main"]


def test_every_golden_declaration_is_accepted_on_its_own() -> None:
    for name, source in golden_programs().items():
        for span in _outline(source, mode_of(name)):
            module = parse(span.cut(source), mode_of(name))

            assert [construct_of(d) for d in module.declarations] == [span.construct]
