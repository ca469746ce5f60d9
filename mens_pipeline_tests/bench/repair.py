"""Of a model behind an address: how many requests end as Vox by repair, and how many by fresh samples.

`python -m mens_pipeline_tests.bench.repair PAIRS.jsonl --endpoint URL [--name MODEL] [--prompts 24] [--rounds 2]`;
PAIRS holds held-out pairs. MENS_EVOL_API_KEY is sent as the key, if it is set. Start a server of `mens serve` with
`--decoding free`: where the parser steers, there is nothing to repair.
"""

import argparse
import hashlib
from pathlib import Path
from typing import Any

from mens_pipeline.corpus.curate.validate import judged_code
from mens_pipeline.corpus.evolution.repair import MOST_ROUNDS, RepairComparison, compare_repair
from mens_pipeline.corpus.evolution.requests import Request
from mens_pipeline.corpus.schema.reading import read_pairs
from mens_pipeline.inference.answer_code import program_in
from mens_pipeline.inference.endpoint import Endpoint
from mens_pipeline.language import Mode
from mens_pipeline.language.requests import SYSTEM_PROMPT
from mens_pipeline.settings import load_settings


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
    parser.add_argument("--rounds", type=int, default=MOST_ROUNDS, choices=range(1, MOST_ROUNDS + 1))
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=0.7)
    return parser.parse_args()


if __name__ == "__main__":
    main()
