"""A prefix of a program is never dead, a rejected text dies, and an open text can be completed."""

import ast
import random
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from random import Random

import pytest

from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.language import CONSTRUCTS, Mode, analyze, mode_of, tokenize
from mens_pipeline.language import parser as parser_package
from mens_pipeline.language.viability import (
    _WORDS,
    NEXT,
    WORDS,
    ProbeParser,
    Token,
    Viability,
    ViableText,
    _Growing,
    complete,
    has_tokens,
)
from mens_pipeline_tests.evaluation.benches import SHIPPED
from mens_pipeline_tests.every import every_row
from mens_pipeline_tests.language.examples import (
    Case,
    Program,
    conformance_cases,
    golden_programs,
    reference_examples,
    showing_all,
    shown_by,
)

_SHORT = 300
"""Characters of programs that the default tier reads; all others are read in the slow one."""
_ENDS = 12
"""Places of a program after which it is completed."""
_LOOKAHEAD = 40
"""Characters after an error within which a text must be dead."""


def _viable(text: str, mode: Mode = Mode.SOURCE, *, is_strict: bool = False) -> Viability:
    return ViableText(mode, is_strict=is_strict).would_be(text)


@cache
def _programs_ok() -> tuple[Program, ...]:
    found = (case for case in (*conformance_cases(), *reference_examples()) if case.ok)
    cases = [Program(case.id, case.source, case.mode) for case in found]
    golden = [Program(name, source, mode_of(name)) for name, source in golden_programs().items()]
    benches = [
        Program(task.id, task.solution, task.spec.mode)
        for folder in (SHIPPED, SHIPPED / "humaneval_vox")
        for task in load_benchmark(folder).tasks
    ]
    return (*cases, *golden, *benches)


def _rejected() -> list[Case]:
    return [case for case in (*conformance_cases(), *reference_examples()) if not case.ok]


def _dead_prefix(pieces: Iterable[str], mode: Mode) -> str | None:
    text, read = ViableText(mode), ""
    for piece in pieces:
        read += piece
        if text.append(piece) is Viability.DEAD:
            return read
    return None


def test_no_prefix_of_a_short_program_is_dead() -> None:
    programs = showing_all(program for program in _programs_ok() if len(program.source) <= _SHORT)
    dead = {name: prefix for name, source, mode in programs if (prefix := _dead_prefix(source, mode)) is not None}

    assert set().union(*map(shown_by, programs)) >= set(CONSTRUCTS)
    assert dead == {}


@pytest.mark.nightly
def test_no_prefix_of_a_long_program_is_dead() -> None:
    programs = showing_all(program for program in _programs_ok() if len(program.source) > _SHORT)
    dead = {}
    for number, (name, source, mode) in enumerate(programs):
        pieces = list(source) if number % 10 == 0 else [token.text for token in tokenize(source)]
        if (prefix := _dead_prefix(pieces, mode)) is not None:
            dead[name] = prefix

    assert set().union(*map(shown_by, programs)) >= set(CONSTRUCTS)
    assert dead == {}


def test_a_program_is_complete_exactly_if_it_is_accepted() -> None:
    wrong = [case.id for case in _rejected() if _viable(case.source, case.mode) is Viability.COMPLETE]
    unfinished = [name for name, source, mode in _programs_ok() if _viable(source, mode) is not Viability.COMPLETE]

    assert (wrong, unfinished) == ([], [])


def test_a_rejected_text_is_dead_soon_after_its_error() -> None:
    late = []
    for case in _rejected():
        first = analyze(case.source, case.mode).errors[0]
        text = case.source[: first.end.offset + _LOOKAHEAD]
        is_alive = len(text) < len(case.source) and _viable(text, case.mode) is not Viability.DEAD
        if is_alive and complete(text, case.mode) is None:
            late.append(case.id)

    assert len(_rejected()) > 2000
    assert late == []


@pytest.mark.slow
def test_every_open_prefix_is_completed() -> None:
    drawn = random.Random(0)  # noqa: S311 - reproducible, no secret
    programs = showing_all(program for program in _programs_ok() if len(program.source) <= 2 * _SHORT)
    failed = []
    for name, source, mode in programs:
        for end in sorted(drawn.sample(range(len(source) + 1), min(len(source), _ENDS))):
            rest = complete(source[:end], mode)
            if rest is None or not analyze(source[:end] + rest, mode).ok:
                failed.append((name, source[:end][-60:], rest))

    assert set().union(*map(shown_by, programs)) >= set(CONSTRUCTS)
    assert failed == []


@every_row(
    ("", Viability.COMPLETE),
    ("fn", Viability.OPEN),
    ("fx", Viability.DEAD),
    ("// fx", Viability.COMPLETE),
    ("fn f(a int", Viability.DEAD),
    ("fn f(a", Viability.OPEN),
    ("fn f() { let x = (a, 1) =>", Viability.DEAD),
    ("fn f() { (a, 1) =", Viability.OPEN),
    ("fn f() { (a, 1) =>", Viability.DEAD),
    ("fn f() { if a && b ", Viability.DEAD),
    ("fn f() { return a +\n", Viability.DEAD),
    ("fn f() { return a +", Viability.OPEN),
    ("fn f() { return 1", Viability.OPEN),
    ("fn f() {} }", Viability.DEAD),
    ("@endpoint(kind: qu", Viability.OPEN),
    ("@endpoint(kind: qi", Viability.DEAD),
    ("@mcp.tool", Viability.OPEN),
    ("@mcp.tool fx", Viability.DEAD),
    ("pub partial", Viability.OPEN),
    ("pub partial type", Viability.DEAD),
    ("fn f() {\n    import", Viability.OPEN),
    ("fn f() {\n    import ", Viability.DEAD),
    ('fn f() { workflow.version("a", 1', Viability.OPEN),
    ('fn f() { workflow.version("a" +', Viability.DEAD),
    ("fn f() { workflow.vex", Viability.DEAD),
    ("type A = | B(", Viability.OPEN),
    ("type A { x: int", Viability.COMPLETE),
)
def test_a_text_has_its_viability(text: str, expected: Viability) -> None:
    assert _viable(text) is expected


@every_row(
    ("fn ~f() {}", Viability.DEAD),
    ("fn f() { return 1 !", Viability.OPEN),
    ("fn f() { return 1 ! ", Viability.DEAD),
    ("fn f() { @nothing", Viability.DEAD),
    ("fn f() {}\n@mcp", Viability.OPEN),
    ("fn f() {}\n@pur", Viability.OPEN),
    ('fn f() { return "a', Viability.OPEN),
    ("fn f() {}\r", Viability.OPEN),
    ("fn f() {}\n~", Viability.DEAD),
    ("importé", Viability.DEAD),
    ("let a = ²", Viability.DEAD),
    ("fn f() { return 99999999999999999999 ", Viability.DEAD),
    ("fn f() {}", Viability.COMPLETE),
)
def test_dropped_characters_are_dead_in_strict_mode(text: str, expected: Viability) -> None:
    assert _viable(text, is_strict=True) is expected
    assert expected is not Viability.DEAD or _viable(text) is not Viability.DEAD


def test_blanks_and_comments_are_not_tokens() -> None:
    text = ViableText()
    assert not has_tokens(" \n// fn\n")
    assert not text.has_tokens
    text.append("// a\nfn")

    assert has_tokens("// a\nfn")
    assert text.has_tokens


def test_appending_gives_the_viability_of_the_whole_text() -> None:
    programs = [(source, mode) for _, source, mode in _programs_ok() if 400 < len(source) < 900][:40]
    for source, mode in programs:
        text = ViableText(mode)
        for start in range(0, len(source), 7):
            assert text.append(source[start : start + 7]) is _viable(source[: start + 7], mode)


def test_the_cost_of_a_piece_does_not_grow_with_the_text() -> None:
    text = ViableText()
    for number in range(200):
        text.append(f"fn f{number}(a: int) to int {{\n    return a + {number}\n}}\n\n")

    assert len(text.unsettled) < 200


def test_all_words_that_the_parser_knows_are_tried() -> None:
    """Otherwise an unfinished word that only some places accept would count as dead."""
    assert set(_words_of_the_parser()) - WORDS == set()


def _words_of_the_parser() -> Iterator[str]:
    for path in sorted(Path(parser_package.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            parts: list[ast.expr] = []
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                parts = {"at_word": node.args, "expect_word": node.args[:1]}.get(node.func.attr, [])
            elif isinstance(node, ast.Compare) and "texts" in ast.unparse(node.left):
                parts = node.comparators
            for part in parts:
                yield from re.findall(r"'([a-z_]+)'", ast.unparse(part))


@every_row(
    ("fn f() { return 1" + "0" * 40, ".5 } "),
    ("fn f() { return 1.5", " } "),
    ("fn f() { x(match b", " {  }  )  } "),
    ("fn f() {\n    x = 'a", "' } "),
    ("@ai(tier_max=Light, cost_ceiling_usd_per_call=0.", "5 )  fn  q  (  ) "),
)
def test_closing_tokens_are_written_first(text: str, rest: str) -> None:
    assert complete(text, is_strict=True) == rest


@pytest.mark.parametrize("is_strict", [True, False])
def test_the_next_words_are_those_that_keep_a_text_alive(*, is_strict: bool) -> None:
    drawn = random.Random(0)  # noqa: S311 - reproducible, no secret
    programs = [(source, mode) for _, source, mode in _programs_ok() if len(source) <= _SHORT]
    prefixes = [(source[: drawn.randrange(len(source) + 1)], mode) for source, mode in drawn.sample(programs, 6)]
    odd = [(text, Mode.SOURCE) for text in ("fn f() {}\n@mcp", "let a = 1 !", "type A {\n    a")]
    wrong: dict[str, set[str]] = {}
    for text, mode in (*prefixes, *odd):
        grown = _Growing(mode, is_strict=is_strict)
        # After a comment only a line end may follow.
        if grown.append(text) is not Viability.DEAD and "//" not in text.rpartition("\n")[2]:
            pieces = {f"{blank}{word} " for word in _WORDS for blank in (" ", "\n")}
            alive = {piece for piece in pieces if grown.would_be(piece) is not Viability.DEAD}
            wrong |= {text: found ^ alive} if (found := set(grown.next_words())) != alive else {}

    assert wrong == {}


@pytest.mark.parametrize("text", ["fn f() {}\n\n@test\nf", "fn f() { match x { Ok(_) =", "activit", "// a"])
def test_a_longer_token_is_found_without_trying_all_others(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No token may follow after a blank there, which is found once, not for each of some hundred tokens."""
    parses: list[object] = []
    begin = ProbeParser.__init__

    def count(self: ProbeParser, tokens: list[Token], mode: Mode) -> None:
        parses.append(self)
        begin(self, tokens, mode)

    monkeypatch.setattr(ProbeParser, "__init__", count)

    assert complete(text, is_strict=True) is not None
    assert len(parses) < 150


def test_a_deep_text_is_completed() -> None:
    """Deeper than the initial recursion limit of Python; a model may write only parentheses."""
    assert _viable("let a = " + "(" * 1_500) is Viability.OPEN
    assert complete("let a = " + "(" * 900, max_length=10) is None
    assert complete("let a = " + "(" * 90) == " q " + " ) " * 90


def test_noise_is_completed() -> None:
    random = Random(0)  # noqa: S311 - a reproducible draw
    words = [word for _, word in NEXT] + list("abQ019.\"'/<>=|&!@_-+*%(){}[]:,? \n\r#")
    for number in range(300):
        mode = (Mode.SOURCE, Mode.SCRIPT, Mode.UI)[number % 3]
        text = ViableText(mode, is_strict=True)
        for _ in range(30):
            piece = random.choice(words) * random.choice((1, 1, 1, 30)) + random.choice(("", " ", "\n"))
            if text.would_be(piece) is not Viability.DEAD:
                text.append(piece)
        rest = complete(text.unsettled, mode, is_strict=True)
        assert rest is not None
        assert text.append(rest) is Viability.COMPLETE


def test_a_dead_text_is_not_completed() -> None:
    assert complete("fx ") is None
    assert complete("fn f(", max_length=3) is None
    assert complete("fn f() {}") == ""


def test_a_search_ends_if_no_token_may_follow() -> None:
    """A number in front of declarations is alive, since one that is too large is dropped; but no token may follow."""
    assert _viable("1") is Viability.OPEN
    assert complete("1") is None
    assert _viable("1", is_strict=True) is Viability.DEAD
    assert _viable("1" + "0" * 20 + "\nimport q") is Viability.COMPLETE


@pytest.mark.parametrize("text", ["fn f() {}\n@mcp", 'let a = "b', "fn f() {}\n/", "let a = 1d", "let a = 1 !"])
def test_a_strict_completion_has_no_dropped_characters(text: str) -> None:
    rest = complete(text, is_strict=True)

    assert rest is not None
    assert (analyze(text + rest).ok, analyze(text + rest).warnings) == (True, ())


def test_texts_at_the_same_place_of_the_parser_have_the_same_completion() -> None:
    one, other = ViableText(), ViableText()
    one.append("fn f() { return g(")
    other.append("fn longer(a: int) { return h(")

    assert one.place_behind("1") == other.place_behind("22") != one.place_behind("")
    assert complete("fn f() { return g(1") == complete("fn longer(a: int) { return h(22")
    assert one.place_behind("1) }") == ()
