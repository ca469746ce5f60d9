"""A generator with scripted replies, and everything else that an evolution needs."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any

from mens_pipeline.corpus.curate.heldout_split import is_held_out
from mens_pipeline.corpus.curate.pipeline_config import SplitPolicy
from mens_pipeline.corpus.evolution.evolve import (
    Budget,
    EvolutionAccount,
    EvolutionPlan,
    Neighbours,
    Reading,
    Session,
    evolve,
    sort_seeds,
)
from mens_pipeline.corpus.evolution.operators import REWRITER, ModelRequest, Reply
from mens_pipeline.corpus.schema.records import TrainingPair
from mens_pipeline.inference.endpoint import Ledger
from mens_pipeline.language.interpreter import run_tests
from mens_pipeline_tests.corpus.rows import pair_at

POLICY = SplitPolicy(heldout_share=0.06, seed=0, max_overlap=0.5, min_nodes=12)
BUDGET = Budget(max_requests=1000, max_tokens=10_000_000, max_minutes=60, max_rows=1000)


@dataclass
class Scripted:
    """A generator whose replies a function makes.

    `write_reply` returns the reply to a request, None if it was cut. `asked` holds the requests in order.
    After `fail_after` replies it fails like an interrupted call. `run_evolution` sets the `ledger` of replies given
    before.
    """

    write_reply: Callable[[ModelRequest], str | None]
    asked: list[ModelRequest] = field(default_factory=list)
    fail_after: int | None = None
    name: str = "scripted"
    digest: str = "0" * 64
    max_new_tokens: int = 100
    decoding: Mapping[str, Any] = field(default_factory=dict)
    ledger: Ledger | None = None

    def ask(self, requests: Sequence[ModelRequest], time_left: Callable[[], float]) -> dict[str, Reply]:
        """Reply in order until time is up; replies in the ledger take no time."""
        assert self.ledger is not None
        replies = {}
        for request in requests:
            if self.ledger.find(request.key) is None and time_left() > 0:
                if self.fail_after is not None and len(self.asked) >= self.fail_after:
                    raise KeyboardInterrupt
                self.asked.append(request)
                text = self.write_reply(request)
                written = "fn f(" if text is None else text
                self.ledger.add(Reply(key=request.key, text=written, stopped=text is not None, num_tokens=150))
            if (reply := self.ledger.find(request.key)) is not None:
                replies[request.key] = reply
        return replies


def function_seeds(number: int) -> list[TrainingPair]:
    """Return pairs of functions, each of a file that is not held out."""
    free = (n for n in count() if not is_held_out(f"seed{n}.vox", POLICY))
    return [function_seed(n) for n in islice(free, number)]


def function_seed(number: int, path: str | None = None) -> TrainingPair:
    """Return a pair of a function that is different for each number."""
    program = f"fn f{number}(a: int) to int {{\n    return {' + '.join(['a'] * (number + 2))}\n}}\n"
    request = f"Write a function `f{number}` in Vox that adds its argument {number + 2} times."
    return pair_at(path or f"seed{number}.vox", request, program).model_copy(update={"category": "function"})


def is_rewriting(request: ModelRequest) -> bool:
    """Return whether a request asks for a rewritten prompt instead of a program."""
    return request.system == REWRITER


def good(request: ModelRequest) -> str:
    """A sensible reply: a harder request, and a program for it that no other request gets."""
    marks = "".join(re.findall(r"\w", request.key))[:12]
    if is_rewriting(request):
        return f"Write a function `g{marks}` in Vox that says which bound of {marks} a weight exceeds, with a test."
    name = re.findall(r"`(g\w+)`", request.prompt)[0]
    # A unique expression, so that structures differ as names do.
    total = " ".join(f"{'+-*'[int(digit, 16) % 3]} n" for digit in name[1:])
    function = f"@require(n >= 0)\nfn {name}(n: int) to Result[int] {{\n    return Ok(n {total})\n}}\n"
    rest = f"type Note {{\n    text: str\n}}\n\n@test\nfn test_{name}() {{\n    assert({name}(0).is_ok())\n}}\n"
    return f"Here it is.\n\n```vox\n{function}\n{rest}```\n"


def read(text: str) -> Reading:
    """Read a reply: its fenced block, or all of it."""
    fenced = re.search(r"```\w*\n(.*?)```", text, re.DOTALL)
    program = fenced[1] if fenced else text
    return Reading(program, is_refusal="I cannot" in text, is_stub="TODO" in program)


def run_evolution(  # noqa: PLR0913 - overrides of defaults
    pairs: Sequence[TrainingPair],
    generator: Scripted,
    ledger: Path,
    *,
    generations: int = 1,
    budget: Budget = BUDGET,
    protected: Sequence[TrainingPair] = (),
    clock: Callable[[], float] = lambda: 0.0,
    seed: int = 0,
) -> EvolutionAccount:
    """Evolve pairs with a scripted generator in this process."""
    seeds = sort_seeds(pairs, POLICY, seed)
    plan = EvolutionPlan(seed=seed, generations=generations, budget=budget)
    neighbours = Neighbours(seeds, protected, 0.9, POLICY)
    generator.ledger = Ledger(ledger)
    session = Session(generator, clock, read, lambda program, mode: run_tests(program, mode=mode), neighbours)
    return evolve(seeds, plan, session)
