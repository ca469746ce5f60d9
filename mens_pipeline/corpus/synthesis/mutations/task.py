"""A change to a program as a task: the request with the program in it, and the changed program as the answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mens_pipeline.corpus.synthesis.edits import Edit, apply_edits
from mens_pipeline.corpus.synthesis.program import Program, read_changed
from mens_pipeline.corpus.synthesis.sample import Sample
from mens_pipeline.language import DeclarationSpan
from mens_pipeline.language.requests import noun_of


@dataclass(frozen=True, slots=True)
class Change:
    """One change and how to ask for it.

    Attributes:
        kind: What kind of change it is: `rename`.
        construct: The construct it touches; a name of `CONSTRUCTS`.
        request: The words that ask for it.
        edits: What it does to the text.
        is_done: Whether a program is what was asked for.
    """

    kind: str
    construct: str
    request: str
    edits: tuple[Edit, ...]
    is_done: Callable[[Program], bool]


def task_of(program: Program, change: Change) -> Sample | None:
    """Build the task of a change; None when the front end or the check of the change rejects the result.

    Args:
        program: What is to be changed.
        change: What is wanted of it.
    """
    after = read_changed(program, apply_edits(program.source, change.edits))
    if after is None or not change.is_done(after):
        return None
    return Sample(
        template=f"mutation/{change.kind}",
        construct=change.construct,
        prompt=f"{change.request}\n\n{program.source.rstrip()}",
        response=after.source,
        mode=program.mode,
        origin=program.origin,
    )


def described(span: DeclarationSpan) -> str:
    """Describe a declaration as one speaks of it: ``the function `double` ``, `the routes block`.

    Args:
        span: The declaration.
    """
    if span.construct.name == "reactive_module":
        return "the reactive members"
    _article, noun = noun_of(span.construct.name).split(" ", 1)
    return f"the {noun} `{span.name}`" if span.name else f"the {noun}"


def with_remark(request: str, remark: str) -> str:
    """Append a sentence to a request.

    Args:
        request: A sentence that ends in `.` or `:`.
        remark: The sentence.
    """
    return f"{request[:-1]}. {remark}"


def capitalised(sentence: str) -> str:
    """Return a sentence with its first letter in upper case.

    Args:
        sentence: Any text but the empty one.
    """
    return sentence[0].upper() + sentence[1:]


def listed(items: Sequence[str]) -> str:
    """Return items as one reads them out: `a, b and c`.

    Args:
        items: At least one.
    """
    return " and ".join((*([", ".join(items[:-1])] if items[:-1] else []), items[-1]))
