"""A broken program as a task: the program with what the front end says of it, and the sound program as the answer."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.edits import Edit, apply_edits
from mens_pipeline.corpus.synthesis.program import Program
from mens_pipeline.corpus.synthesis.repairs.breakages import DELIMITERS, LAYOUT, PUNCTUATION, SPELLING
from mens_pipeline.corpus.synthesis.repairs.foreign import FOREIGN
from mens_pipeline.corpus.synthesis.repairs.sites import Breakage
from mens_pipeline.corpus.synthesis.sample import Sample
from mens_pipeline.language import Diagnostic, analyze

BREAKAGES: Final[Mapping[str, Breakage]] = {**DELIMITERS, **SPELLING, **PUNCTUATION, **FOREIGN, **LAYOUT}
"""Name -> how to break a program; the front end decides whether it is broken."""

_TRIES: Final = 5
_MOST_ERRORS: Final = 3
_FRAMES: Final = (
    "This Vox program does not compile. Fix it.",
    "The Vox compiler rejects this program. Correct the mistake and change nothing else.",
    "Repair this Vox program so that it compiles again:",
    "There is a syntax mistake in the following Vox program. Find it and give the corrected program.",
    "Why does this Vox program not compile? Answer with the fixed program.",
)
_HEADINGS: Final = ("The compiler says:", "Compiler output:", "It fails with:", "This is what the compiler reports:")


def repair(program: Program, name: str, random: Random) -> Sample | None:
    """Make a task: a prompt to repair a program that was broken in one way, and the program as it was.

    The program gives no warnings; `name` is one of `BREAKAGES`.

    Returns:
        The task; None when the program has no place for the breakage, stays acceptable in spite of it, or is long.

    Raises:
        KeyError: There is no such breakage.
    """
    breakage = BREAKAGES[name]
    if program.warnings or not program.is_short:
        return None
    for _ in range(_TRIES):
        found = breakage(program, random)
        edits = (found,) if isinstance(found, Edit) else found or ()
        broken = apply_edits(program.source, edits)
        errors = analyze(broken, program.mode).errors
        if errors:
            break
    else:
        return None
    return Sample(
        template=f"repair/{name}",
        construct=program.spans[program.place_at(edits[0].start)].construct.name,
        prompt=_prompt(broken, errors, random),
        response=program.source,
        mode=program.mode,
        origin=program.origin,
    )


def _prompt(broken: str, errors: tuple[Diagnostic, ...], random: Random) -> str:
    frame = random.choice(_FRAMES)
    heading = random.choice(_HEADINGS)
    has_advice = random.random() < 0.5  # noqa: PLR2004 - the toss of a coin
    return f"{frame}\n\n{broken.rstrip()}\n\n{heading}\n{report_of(errors, has_advice=has_advice)}"


def report_of(errors: Sequence[Diagnostic], *, has_advice: bool) -> str:
    """Return the first errors of a program, as requests to repair it show them."""
    return "\n".join(_rendered(error, has_advice=has_advice) for error in errors[:_MOST_ERRORS])


def _rendered(error: Diagnostic, *, has_advice: bool) -> str:
    """Format a diagnostic on one line as `mens check` words it, columns from 1; the advice on a second."""
    line = f"{error.start.line}:{error.start.column + 1}: {error.severity}[{error.code}]: {error.message}"
    return f"{line}\n  = help: {error.advice}" if has_advice and error.advice else line
