"""Repair of completions that do not parse: sent back with their diagnostics.

For models behind an endpoint, which the parser cannot steer token by token. More than two rounds hardly help.

Source: 2604.10508 for two rounds.
"""

import hashlib
from dataclasses import replace
from typing import Final

from mens_pipeline.corpus.evolution.requests import Request
from mens_pipeline.corpus.synthesis.repairs.repair import report_of
from mens_pipeline.language import Mode, analyze

_LONGEST: Final = 4_000
"""Characters of a program that is sent back; longer ones are noise, and do not fit beside a request."""


def is_vox(program: str, mode: Mode) -> bool:
    """Check whether the front end accepts a program, and it declares something."""
    module = analyze(program, mode).module
    return module is not None and bool(module.declarations)


def repair_of(request: Request, program: str, mode: Mode) -> Request | None:
    """Ask to mend a program.

    The request is without any earlier repair.

    Returns:
        The request with the program and its first errors; None for what is Vox, is empty, or is too long to be shown.
    """
    if is_vox(program, mode) or not program.strip() or len(program) > _LONGEST:
        return None
    errors = analyze(program, mode).errors
    report = report_of(errors, has_advice=True) if errors else "it declares nothing"
    mend = "This answer is no Vox yet. Mend it, and answer with the whole program in a fenced block."
    prompt = f"{request.prompt}\n\n{mend}\n\n```vox\n{program.rstrip()}\n```\n\nThe compiler says:\n{report}"
    return asked_again(request, f"repair:{prompt}", prompt)


def asked_again(request: Request, why: str, prompt: str) -> Request:
    """Return a request with another prompt, and with a key and so a seed of its own."""
    return replace(request, key=hashlib.sha256(f"{request.key}:{why}".encode()).hexdigest(), prompt=prompt)
