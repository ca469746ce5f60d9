"""The exported grammar accepts only Vox, and nearly all programs that people write."""

import runpy
from functools import cache
from itertools import takewhile

import pytest
from llguidance import LLMatcher, LLTokenizer
from llguidance.gbnf_to_lark import gbnf_to_lark

from mens_pipeline.language import Mode, mode_of
from mens_pipeline.language.grammar import export, grammar_fingerprint
from mens_pipeline.language.grammar.export import GRAMMAR_FILE, GrammarFormat, grammar_text
from mens_pipeline_tests.language.examples import conformance_cases, golden_programs, reference_examples
from mens_pipeline_tests.language.grammar_walks import rejected_walks


@cache
def _bytes() -> LLTokenizer:
    return LLTokenizer("byte")


class Engine:
    """llguidance on one grammar, byte by byte."""

    def __init__(self, lark: str) -> None:
        self._matcher = LLMatcher(_bytes(), LLMatcher.grammar_from_lark(lark))
        assert self._matcher.get_error() == ""
        self._read: list[int] = []

    def accepts(self, text: str) -> bool:
        """Return whether the grammar derives a text; a prefix shared with the previous text is not read again."""
        tokens = _bytes().tokenize_bytes(text.encode())
        alike = (one == other for one, other in zip(self._read, tokens, strict=False))
        shared = sum(takewhile(bool, alike))
        if shared < len(self._read):
            self._matcher.rollback(len(self._read) - shared)
        num_read = shared + self._matcher.try_consume_tokens(tokens[shared:])
        self._read = tokens[:num_read]
        return num_read == len(tokens) and self._matcher.is_accepting()


@cache
def _engine(mode: Mode) -> Engine:
    return Engine(grammar_text(GrammarFormat.LARK, is_ui=mode is Mode.UI))


@pytest.mark.slow
@pytest.mark.parametrize("is_ui", [False, True], ids=["source", "ui"])
def test_derived_texts_are_accepted(is_ui: bool) -> None:  # noqa: FBT001 - a parameter of the test
    rejected, _ = rejected_walks(range(300), is_ui=is_ui)

    assert rejected == []


@pytest.mark.nightly
@pytest.mark.parametrize("is_ui", [False, True], ids=["source", "ui"])
def test_many_derived_texts_are_accepted(is_ui: bool) -> None:  # noqa: FBT001 - likewise
    assert rejected_walks(range(300, 4000), is_ui=is_ui) == ([], set())


def test_every_golden_program_is_derived() -> None:
    left_out = [name for name, text in golden_programs().items() if not _engine(mode_of(name)).accepts(text)]

    assert left_out == []


@pytest.mark.slow
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.nightly)])
def test_no_rejected_case_is_derived(step: int) -> None:
    """Most mutants that the reference compiler accepts are derived, and none that it rejects.

    The head of the grammar explains why others are not; few mutants are formatted.
    """
    found = [case for case in (*conformance_cases(), *reference_examples()) if case.mode is not Mode.SCRIPT]
    cases = sorted(found, key=lambda case: case.source)[::step]  # mutants of one program begin alike
    derived = [case for case in cases if _engine(case.mode).accepts(case.source)]

    assert [case.id for case in derived if not case.ok] == []
    assert len(derived) >= 0.7 * sum(case.ok for case in cases)


def test_the_committed_file_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    text = GRAMMAR_FILE.read_text(encoding="utf-8")
    runpy.run_path(export.__file__, run_name="__main__")

    assert capsys.readouterr().out == text
    assert f"// Grammar fingerprint: {grammar_fingerprint()}\n" in text


@pytest.mark.measured
@pytest.mark.slow
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("mode", [Mode.SOURCE, Mode.UI])
def test_gbnf_accepts_the_same_texts(mode: Mode, step: int) -> None:
    gbnf = grammar_text(GrammarFormat.GBNF, is_ui=mode is Mode.UI)
    ours, theirs = _engine(mode), Engine(gbnf_to_lark(gbnf))
    texts = [*(case.source for case in reference_examples()), *golden_programs().values()][::step]

    assert [text for text in texts if ours.accepts(text) != theirs.accepts(text)] == []
    assert f"# Grammar fingerprint: {grammar_fingerprint()}" in gbnf
