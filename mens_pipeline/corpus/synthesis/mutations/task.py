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

    `construct` is the one it touches, a name of `CONSTRUCTS`; `request` asks for it, and `is_done` tells whether a
    program is what was asked for.
    """

    kind: str
    construct: str
    request: str
    edits: tuple[Edit, ...]
    is_done: Callable[[Program], bool]


def task_of(program: Program, change: Change) -> Sample | None:
    """Build the task of a change; None when the front end or the check of the change rejects the result."""
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
    """Describe a declaration as one speaks of it: ``the function `double` ``, `the routes block`."""
    if span.construct.name == "reactive_module":
        return "the reactive members"
    _article, noun = noun_of(span.construct.name).split(" ", 1)
    return f"the {noun} `{span.name}`" if span.name else f"the {noun}"


def with_remark(request: str, remark: str) -> str:
    """Append a sentence to a request.

    The request ends in `.` or `:`.
    """
    return f"{request[:-1]}. {remark}"


def capitalised(sentence: str) -> str:
    """Return a sentence with its first letter in upper case."""
    return sentence[0].upper() + sentence[1:]


def listed(items: Sequence[str]) -> str:
    """Return items as one reads them out: `a, b and c`."""
    return " and ".join((*([", ".join(items[:-1])] if items[:-1] else []), items[-1]))
