"""Behaviour in the words of a prompt."""

from collections.abc import Sequence

from mens_pipeline.corpus.behaviour.observe import Observation
from mens_pipeline.corpus.metadata_comments import is_directive
from mens_pipeline.language import DeclarationSpan


def behaviour_sentence(span: DeclarationSpan) -> str | None:
    """The comment lines directly above a declaration as one line, directives left out; None without.

    Args:
        span: The declaration.
    """
    return " ".join(line for line in span.doc if not is_directive(f"// {line}")).strip() or None


def examples_sentence(examples: Sequence[Observation]) -> str:
    """The examples as a sentence: ``For example, `f(1)` is 2 and `f(2)` is 3.``.

    Args:
        examples: At least one.
    """
    parts = [f"`{example.call}` is {example.result}" for example in examples]
    listed = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
    return f"For example, {listed}."
