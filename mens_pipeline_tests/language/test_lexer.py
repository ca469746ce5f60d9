"""Tokens: their kinds, their borders, and dropped characters (L1-L14)."""

from mens_pipeline.language import tokenize
from mens_pipeline.language.lexer import scan
from mens_pipeline.language.vocabulary import DECORATORS, KEYWORDS, SYMBOLS
from mens_pipeline_tests.every import every, every_row


def _pieces(source: str) -> list[tuple[str, str]]:
    return [(token.kind, token.text) for token in tokenize(source) if token.kind != "SPACE"]


@every("spelling", sorted(KEYWORDS | SYMBOLS | DECORATORS))
def test_a_fixed_spelling_is_its_own_kind(spelling: str) -> None:
    """Keywords, symbols and decorators (L11, L12, L14)."""
    assert _pieces(spelling) == [(spelling, spelling)]


_KINDS = {
    "IDENT": ("name", "__", "_x", "fnord"),
    "TYPEIDENT": ("Fn",),
    "INT": ("0", "9223372036854775807", "00009223372036854775807"),
    "FLOAT": ("1.5",),
    "DECIMAL": ("5dec", "1.5dec"),
    "STRING": ('"a \' b"', '"a\\"b"', '"two\nlines"', '"a\\\r"'),
    "SSTRING": ("'a \" b'",),
    "NL": ("\n", "\r\n"),
    "COMMENT": ("// x", "# x"),
    "DROPPED_NUMBER": ("9223372036854775808", "9" * 5000),
    "DROPPED_STRING": ('"open', '"open\\', '"open\\"', "'open"),
    "DROPPED_CHARACTERS": ("&&", "!", "\r", "\ufeff", "\ud800", "\0"),
    "DROPPED_DECORATOR": ("@", "@comp"),
}


@every("kind", _KINDS)
def test_a_token_has_its_kind(kind: str) -> None:
    assert [_pieces(text) for text in _KINDS[kind]] == [[(kind, text)] for text in _KINDS[kind]]


@every_row(
    ("@pureness", ["@pure", "ness"]),
    ("@test_it", ["@test", "_it"]),
    ("@v01", ["@v0", "1"]),
    ("@foo", ["@fo", "o"]),
    ("@server", ["@se", "rver"]),
    ("@query", ["@", "query"]),
    ("@mcp.prompt", ["@mcp.", "prompt"]),
    ("@fn", ["@f", "n"]),
    ("12abc", ["12", "abc"]),
    ("5decimal", ["5dec", "imal"]),
    ("1.", ["1", "."]),
    ("1..2", ["1", ".", ".", "2"]),
    ("1.2.3", ["1.2", ".", "3"]),
    ("1e5", ["1", "e5"]),
    ("0x1F", ["0", "x1F"]),
    ("1_000", ["1", "_000"]),
    ("a</b", ["a", "</", "b"]),
    ("f<>()", ["f", "<>", "(", ")"]),
    ("x/>y", ["x", "/>", "y"]),
    ("x=-1", ["x", "=", "-", "1"]),
    ("||", ["|", "|"]),
    ("/* a", ["/", "*", "a"]),
    ("été", ["é", "t", "é"]),
    ("a;b", ["a", ";", "b"]),
    ("!=!", ["!=", "!"]),
    ('"a\\\nb', ['"a\\', "\n", "b"]),
    ("// a\rx", ["// a", "\r", "x"]),
    ("a\r\nb", ["a", "\r\n", "b"]),
)
def test_tokens_end_at_their_borders(source: str, texts: list[str]) -> None:
    """The longest match wins, and decorators and numbers have no word boundary (L2-L4, L10)."""
    assert [text for _, text in _pieces(source)] == texts


def test_the_stream_holds_no_trivia() -> None:
    source = 'fn f() { // c\n  "s" & @foo 9223372036854775808\n}\n'
    significant = [token.text for token in tokenize(source) if not token.is_trivia]

    stream = scan(source)

    assert [text for kind, text in zip(stream.kinds, stream.texts, strict=True) if kind != "EOF"] == significant
    assert [piece.text for piece in stream.dropped] == ["&", "@fo", "9223372036854775808"]


def test_the_empty_text_has_no_tokens() -> None:
    assert tokenize("") == ()
