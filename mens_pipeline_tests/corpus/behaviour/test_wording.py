"""Behaviour in the words of a prompt."""

from mens_pipeline.corpus.behaviour.observe import Observation
from mens_pipeline.corpus.behaviour.wording import behaviour_sentence, examples_sentence
from mens_pipeline.language import analyze, declaration_spans


def test_examples_are_one_sentence() -> None:
    """With commas and one `and`."""
    seen = [Observation(f"f({n}, 2)", str(n)) for n in (1, 2, 3)]

    assert examples_sentence(seen[:1]) == "For example, `f(1, 2)` is 1."
    assert examples_sentence(seen[:2]) == "For example, `f(1, 2)` is 1 and `f(2, 2)` is 2."
    assert examples_sentence(seen) == "For example, `f(1, 2)` is 1, `f(2, 2)` is 2 and `f(3, 2)` is 3."


def test_the_comment_above_is_the_behaviour_sentence() -> None:
    """Its lines in one, without directives."""
    source = "// Adds two numbers.\n// vox:skip\n// Never fails.\nfn f(n: int) to int { return n }\nfn g() { }"
    module = analyze(source).module
    assert module is not None
    first, second = declaration_spans(source, module)

    assert behaviour_sentence(first) == "Adds two numbers. Never fails."
    assert behaviour_sentence(second) is None
