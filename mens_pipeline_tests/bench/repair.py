"""Of a model behind an address: how many requests end as Vox by repair, and how many by fresh samples.

`python -m mens_pipeline_tests.bench.repair PAIRS.jsonl --endpoint URL [--name MODEL] [--prompts 24] [--rounds 2]`;
PAIRS holds held-out pairs. MENS_EVOL_API_KEY is sent as the key, if it is set. Start a server of `mens serve` with
`--decoding free`: where the parser steers, there is nothing to repair.

Source: "Is self-repair a silver bullet" (Olausson et al. 2024) for fresh samples beside repairs.
"""

import argparse
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mens_pipeline.corpus.curate.validate import judged_code
from mens_pipeline.corpus.evolution.requests import Generator, Reply, Request, asked_again, is_vox, repair_of
from mens_pipeline.corpus.schema.reading import read_pairs
from mens_pipeline.inference.answer_code import program_in
from mens_pipeline.inference.endpoint import Endpoint
from mens_pipeline.language import Mode
from mens_pipeline.language.requests import SYSTEM_PROMPT
from mens_pipeline.settings import load_settings

_MOST_ROUNDS: Final = 2


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


def main() -> None:
    """Ask, and print both counts round by round."""
    options = _options()
    endpoint = Endpoint(
        options.endpoint, options.name, load_settings().evol_api_key, options.max_tokens, options.temperature
    )
    requests = requests_of(options.pairs, options.prompts)
    print(table_of(compare_repair(endpoint, requests, program_in, options.rounds)))


def requests_of(path: Path, number: int) -> list[tuple[Request, Mode]]:
    """The first requests for code of a file, each with how its answer is read.

    Args:
        path: Pairs, as JSON lines.
        number: How many at most.
    """
    found: dict[str, tuple[Request, Mode]] = {}
    for pair in read_pairs(path):
        code = judged_code(pair)
        key = hashlib.sha256(pair.prompt.encode("utf-8", "surrogatepass")).hexdigest()
        if code is not None and len(found) < number:
            found[key] = Request(key, SYSTEM_PROMPT, pair.prompt), code[1]
    return list(found.values())


def compare_repair(
    generator: Generator,
    requests: Sequence[tuple[Request, Mode]],
    program_in: Callable[[str], str],
    rounds: int = _MOST_ROUNDS,
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
    """The next prompt: for a repair, or the same anew."""
    if arm == "repair":
        return repair_of(request, program, mode)
    return asked_again(request, f"fresh:{number}", request.prompt)


def _answered(generator: Generator, requests: Sequence[Request]) -> dict[str, Reply]:
    replies: list[Reply] = []
    if requests:
        generator.answer(requests, replies.append, lambda: float("inf"))
    return {reply.key: reply for reply in replies}


def table_of(found: RepairComparison) -> str:
    """The figures as people read them.

    Args:
        found: What came of it.
    """
    lines = [f"{found.accepted}/{found.num_requests} requests are answered in Vox at once"]
    for number, (repaired, fresh) in enumerate(zip(found.repaired, found.fresh, strict=True), start=1):
        lines.append(f"after {number} more for each other: {repaired} with repairs, {fresh} with fresh samples")
    return "\n".join([*lines, f"{found.num_repairs} repairs and {found.num_fresh} fresh samples were answered"])


def _options() -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--name", default="mens")
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=_MOST_ROUNDS, choices=range(1, _MOST_ROUNDS + 1))
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=0.7)
    return parser.parse_args()


if __name__ == "__main__":
    main()
