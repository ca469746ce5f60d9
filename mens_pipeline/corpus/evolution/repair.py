"""Repair of completions that do not parse: sent back with their diagnostics; compared with fresh samples.

For models behind an endpoint, which the parser cannot steer token by token. More than two rounds hardly help.

Source: 2604.10508 for two rounds; "Is self-repair a silver bullet" (Olausson et al. 2024) for fresh samples beside it.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mens_pipeline.corpus.evolution.requests import Generator, Reply, Request
from mens_pipeline.corpus.synthesis.repairs.repair import report_of
from mens_pipeline.language import Mode, analyze

MOST_ROUNDS: Final = 2
_LONGEST: Final = 4_000
"""Characters of a program that is sent back; longer ones are noise, and do not fit beside a request."""


@dataclass(frozen=True, slots=True)
class RepairComparison:
    """Counts of prompts that end with a program that parses, by repair and by fresh samples.

    Attributes:
        num_requests: What was asked.
        accepted: Requests whose first answer is Vox.
        repaired: The same after one repair of each other answer, after two, and so on.
        fresh: The same after one fresh sample instead, and so on.
        num_repairs: Repairs that were answered.
        num_fresh: Fresh samples that were answered.
    """

    num_requests: int
    accepted: int
    repaired: tuple[int, ...]
    fresh: tuple[int, ...]
    num_repairs: int
    num_fresh: int


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
    return _next(request, f"repair:{prompt}", prompt)


def compare_repair(
    generator: Generator,
    requests: Sequence[tuple[Request, Mode]],
    program_in: Callable[[str], str],
    rounds: int = MOST_ROUNDS,
) -> RepairComparison:
    """Ask, and where an answer is no Vox, once more in two ways: with the errors, and as if nothing had been asked.

    Args:
        generator: Who is asked.
        requests: What is asked, each with how its answer is read; no two with the same key.
        program_in: The program of an answer.
        rounds: How often it is asked once more at most.

    Raises:
        RefusedError: The generator does not work.
    """
    first = _answered(generator, [request for request, _ in requests])
    programs = {key: program_in(reply.text) for key, reply in first.items()}
    failed = [(request, mode) for request, mode in requests if not is_vox(programs[request.key], mode)]
    accepted = len(requests) - len(failed)
    counts: dict[str, tuple[list[int], int]] = {}
    for arm in ("repair", "fresh"):
        left, latest, ends, num_asked = failed, dict(programs), [], 0
        for number in range(1, rounds + 1):
            asked = {
                request.key: again
                for request, mode in left
                if (again := _again(arm, request, latest[request.key], mode, number)) is not None
            }
            replies = _answered(generator, list(asked.values()))
            num_asked += len(replies)
            latest |= {key: program_in(replies[again.key].text) for key, again in asked.items()}
            left = [(request, mode) for request, mode in left if not is_vox(latest[request.key], mode)]
            ends.append(len(requests) - len(left))
        counts[arm] = ends, num_asked
    (repaired, num_repairs), (fresh, num_fresh) = counts["repair"], counts["fresh"]
    return RepairComparison(len(requests), accepted, tuple(repaired), tuple(fresh), num_repairs, num_fresh)


def _again(arm: str, request: Request, program: str, mode: Mode, number: int) -> Request | None:
    """Return the next prompt: for a repair, or the same anew, with a key and so a seed of its own."""
    if arm == "repair":
        return repair_of(request, program, mode)
    return _next(request, f"fresh:{number}", request.prompt)


def _next(request: Request, why: str, prompt: str) -> Request:
    key = hashlib.sha256(f"{request.key}:{why}".encode()).hexdigest()
    return replace(request, key=key, prompt=prompt)


def _answered(generator: Generator, requests: Sequence[Request]) -> dict[str, Reply]:
    replies: list[Reply] = []
    if requests:
        generator.answer(requests, replies.append, lambda: float("inf"))
    return {reply.key: reply for reply in replies}
