"""Properties of every text, tested on noise, token soup and mutated programs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mens_pipeline.language import Mode, analyze, tokenize
from mens_pipeline.language.ast.declarations import Module
from mens_pipeline.language.ast.nodes import children, walk
from mens_pipeline.language.vocabulary import DECORATORS, KEYWORDS, SYMBOLS
from mens_pipeline_tests.language.examples import golden_programs, reference_examples

_WORDS = [
    *sorted(KEYWORDS | SYMBOLS | DECORATORS),
    *("x", "Foo", "row", "text", "uses", "net", "key", "routes", "url", "state_machine", "from", "style", "kind"),
    *("1", "2.5", "3dec", '"s"', "'s'", "\n", "\n", "// c\n", "\r", "@zz", "&", "!", "é", '"', "9223372036854775808"),
]
_SOUP = st.lists(st.sampled_from(_WORDS), max_size=40).map(" ".join)
_NOISE = st.text(max_size=200) | st.text(alphabet="@!\"'\\\n\r\t#/.-<>=|(){}[]:,?09aAde_é\ud800 ", max_size=60)
_PROGRAMS = [case.source for case in reference_examples()] + sorted(golden_programs().values(), key=len)[:60]


@st.composite
def _mutants(draw: st.DrawFn) -> str:
    pieces = [token.text for token in tokenize(draw(st.sampled_from(_PROGRAMS)))]
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(pieces)))
        match draw(st.sampled_from(("drop", "insert", "repeat", "replace"))):
            case "drop":
                del pieces[at : at + draw(st.integers(1, 3))]
            case "insert":
                pieces.insert(at, f" {draw(st.sampled_from(_WORDS))} ")
            case "repeat":
                pieces[at:at] = pieces[at : at + 3]
            case "replace":
                pieces[at : at + 1] = [f" {draw(st.sampled_from(_WORDS))} "]
    return "".join(pieces)


_TEXTS = _SOUP | _NOISE | _mutants()
_EXAMPLES = settings(max_examples=400, deadline=None, derandomize=True)


@given(_TEXTS, st.sampled_from(Mode))
@_EXAMPLES
def test_any_text_gets_a_reproducible_verdict(source: str, mode: Mode) -> None:
    first = analyze(source, mode)

    assert first.ok == (not first.errors)
    assert analyze(source, mode) == first


@given(_TEXTS)
@_EXAMPLES
def test_joined_tokens_are_the_text(source: str) -> None:
    tokens = tokenize(source)

    assert "".join(token.text for token in tokens) == source
    assert all(source[token.start : token.end] == token.text for token in tokens)


@given(_mutants() | _SOUP, st.sampled_from(Mode))
@_EXAMPLES
def test_spans_nest(source: str, mode: Mode) -> None:
    module = analyze(source, mode).module or Module(0, len(source), ())

    for node in walk(module):
        assert node.start <= node.end
        assert all(node.start <= child.start and child.end <= node.end for child in children(node))
    if mode is not Mode.SCRIPT:
        ends = [0, *(declaration.end for declaration in module.declarations)]
        assert all(end <= d.start for end, d in zip(ends, module.declarations, strict=False))


@given(_TEXTS, st.sampled_from(Mode))
@_EXAMPLES
def test_positions_lie_in_the_text(source: str, mode: Mode) -> None:
    lines = source.split("\n")
    size = len(source.encode("utf-8", "surrogatepass"))

    for diagnostic in analyze(source, mode).diagnostics:
        for place in (diagnostic.start, diagnostic.end):
            assert 0 <= place.offset <= size
            assert 0 <= place.column <= len(lines[place.line - 1])
        assert diagnostic.start <= diagnostic.end
