"""Behaviour in the words of a prompt: written for training, and read where a prompt is answered."""

import re
from collections.abc import Sequence
from typing import Final

from mens_pipeline.corpus.behaviour.observe import Observation
from mens_pipeline.corpus.extract.metadata_comments import is_directive
from mens_pipeline.language import DeclarationSpan, analyze, tokenize

_STATED: Final = re.compile(r"`(?P<call>[a-z_]\w*\([^`]*\))` (?:is|gives|returns|equals) (?:`(?P<result>[^`]+)`)?")
"""An example, which a result without marks may follow."""
_MOST_STATED: Final = 16
"""Examples of a prompt that are read."""
_LONGEST_RESULT: Final = 400
"""Characters of a result without marks."""
_OPENERS: Final = frozenset("([{")
_CLOSERS: Final = frozenset(")]}")
_VALUES: Final = frozenset(("INT", "FLOAT", "DECIMAL", "STRING", "SSTRING", "TYPEIDENT", "true", "false"))
_SHOWN: Final = ":\n\n"
"""The sentence between a prompt and the code that it shows: `This is there already:` and a blank line."""
_MOST_SHOWN: Final = 4
"""Places of a prompt at which code may begin."""


def behaviour_sentence(span: DeclarationSpan) -> str | None:
    """Return the comment lines directly above a declaration as one line, without directives; None if there are none."""
    return " ".join(line for line in span.doc if not is_directive(f"// {line}")).strip() or None


def examples_sentence(examples: Sequence[Observation]) -> str:
    """Return the examples as a sentence: ``For example, `f(1)` is 2 and `f(2)` is 3.``."""
    parts = [f"`{example.call}` is {example.result}" for example in examples]
    listed = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
    return f"For example, {listed}."


def stated_examples(prompt: str) -> tuple[Observation, ...]:
    """Return the examples that a prompt states, as ``f(1)` is 2``: a call in backticks, a verb, and a value.

    The verb is one of `is`, `gives`, `returns` and `equals`. What is no call or no value of the language is left out.
    """
    found: list[Observation] = []
    for match in _STATED.finditer(prompt):
        if len(found) == _MOST_STATED:
            break
        result = match["result"] or _value_in(prompt[match.end() : match.end() + _LONGEST_RESULT])
        example = Observation(match["call"], result)
        if result and analyze(example_tests([example])).ok:
            found.append(example)
    return tuple(found)


def example_tests(examples: Sequence[Observation]) -> str:
    """Return the examples as `@test` functions, one each, in their order."""
    lines = (f"@test fn stated_{n}() {{ assert({seen.call} is {seen.result}) }}" for n, seen in enumerate(examples))
    return "\n".join(lines) + "\n"


def shown_code(prompt: str) -> str:
    """Return the program that a prompt ends with, behind a sentence such as `This is there already:`; else nothing."""
    start = prompt.find(_SHOWN)
    for _ in range(_MOST_SHOWN):
        if start < 0:
            break
        code = prompt[start + len(_SHOWN) :]
        module = analyze(code).module
        if module is not None and module.declarations:
            return code
        start = prompt.find(_SHOWN, start + 1)
    return ""


def _value_in(text: str) -> str:
    """Return the value that a text begins with; empty where it begins with none."""
    tokens = [token for token in tokenize(text) if not token.is_trivia]
    if not tokens or tokens[0].start:
        return ""
    rest = tokens[1:] if tokens[0].text == "-" else tokens
    if rest and rest[0].kind in _VALUES:
        first, *more = rest
        if first.kind != "TYPEIDENT" or not more or (more[0].text, more[0].start) != ("(", first.end):
            return text[: first.end]
        rest = more
    depth = 0
    for token in rest:
        depth += (token.text in _OPENERS) - (token.text in _CLOSERS)
        if depth <= 0:
            return text[: token.end] if token.text in _CLOSERS and depth == 0 else ""
    return ""
