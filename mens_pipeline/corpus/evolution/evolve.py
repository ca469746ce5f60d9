"""From seeds to evolved rows: ask, check, keep, and evolve what was kept again, within a budget.

The outcome depends on seeds, plan, generator and its replies alone; a call that was cut short and one more give what
one call would have given.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from mens_pipeline.corpus.curate.validate import semantic_problem
from mens_pipeline.corpus.evolution.examine import (
    Attempt,
    Neighbours,
    Reading,
    Refusal,
    Seeds,
    code_of,
    content_refusal,
    form_refusal,
    instruction_in,
    instruction_refusal,
    refusal_of_tests,
)
from mens_pipeline.corpus.evolution.operators import Generator, Prompts, Reply, draw_evolution
from mens_pipeline.corpus.schema.account import Account, counts_of
from mens_pipeline.corpus.schema.reasons import EvolutionDrop
from mens_pipeline.corpus.schema.records import Lineage, Source, SourceKind, TrainingPair
from mens_pipeline.language import Mode, analyze, difficulty
from mens_pipeline.language.ast import Module
from mens_pipeline.language.interpreter import ProgramReport
from mens_pipeline.storage.validation import Strict


class Budget(Strict):
    """Bounds of one evolution. Requests, tokens and rows count those of earlier calls whose replies were kept."""

    max_requests: int = Field(ge=0, description="Requests that the generator answers.")
    max_tokens: int = Field(ge=0, description="Tokens of requests and replies; never exceeded.")
    max_minutes: float = Field(ge=0, description="Of one call; what is on its way then is still taken.")
    max_rows: int = Field(ge=0, description="Rows that are kept.")


class Plan(Strict):
    """Seed, generations and budget of an evolution."""

    seed: int = Field(ge=0, description="Decides the order of seeds and the operators.")
    generations: int = Field(ge=1, le=8, description="How often a row that was kept is evolved again.")
    budget: Budget


class DroppedAttempt(BaseModel):
    """An attempt that gave no row."""

    model_config = ConfigDict(frozen=True)

    reason: EvolutionDrop
    detail: str
    parent: str
    operator: str
    generation: int
    instruction: str
    completion: str


@dataclass(kw_only=True)
class EvolutionAccount(Account[EvolutionDrop]):
    """Attempts of which at least the request was rewritten: those that gave rows, and the others.

    Attributes:
        rows: What was kept, in order.
        failures: The other attempts, in order.
        num_requests: Requests that the generator answered, those of earlier calls among them.
        num_tokens: Tokens of all of them.
        ended_by: Which part of the budget ended the work; None when everything was tried.
    """

    rows: list[TrainingPair] = field(default_factory=list)
    failures: list[DroppedAttempt] = field(default_factory=list)
    num_requests: int = 0
    num_tokens: int = 0
    ended_by: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the counts in JSON types."""
        lineages = [row.lineage for row in self.rows if row.lineage is not None]
        return {
            "seen": self.seen,
            "kept": self.kept,
            "dropped": counts_of(EvolutionDrop, self.dropped),
            "operators": dict(sorted(Counter(lineage.operator for lineage in lineages).items())),
            "generations": {str(g): n for g, n in sorted(Counter(ln.generation for ln in lineages).items())},
            "constructs": dict(sorted(Counter(row.category for row in self.rows).items())),
            "num_requests": self.num_requests,
            "num_tokens": self.num_tokens,
            "ended_by": self.ended_by,
        }


@dataclass(frozen=True, slots=True)
class Session:
    """Generator, clock and checks of an evolution.

    `clock` gives the seconds of a clock that never goes back; `read` finds the program in a reply, as evaluation does;
    `run_tests` runs the tests of a program where nothing can come to harm; a new row must differ from `neighbours`.
    """

    generator: Generator
    clock: Callable[[], float]
    read: Callable[[str], Reading]
    run_tests: Callable[[str, Mode], ProgramReport]
    neighbours: Neighbours


_WAVE: Final = 32
"""Seeds that are evolved side by side: enough to keep an endpoint busy, few enough to lose little."""

_RATING_TESTED: Final = 4
_RATING_UNTESTED: Final = 3


def evolve(seeds: Seeds, plan: Plan, session: Session) -> EvolutionAccount:
    """Evolve seeds as far as the budget goes, and return the account with the rows; it adds up.

    Raises:
        RefusedError: The generator does not work.
    """
    work = _Work(seeds, plan, session)
    for start in range(0, len(seeds.pairs), _WAVE):
        live = seeds.pairs[start : start + _WAVE]
        for generation in range(1, plan.generations + 1):
            live = work.evolve_all(live, generation)
            if work.account.ended_by is not None:
                return work.account
    return work.account


class _Work:
    def __init__(self, seeds: Seeds, plan: Plan, session: Session) -> None:
        self.account = EvolutionAccount()
        self._seeds, self._plan, self._session = seeds, plan, session
        self._prompts = Prompts(session.generator, plan.seed, seeds.examples)
        self._until = session.clock() + 60 * plan.budget.max_minutes

    def evolve_all(self, parents: Sequence[TrainingPair], generation: int) -> list[TrainingPair]:
        """Evolve some pairs in order until a budget is used up, and return the rows that are kept."""
        waiting = [self._begin(parent, generation) for parent in parents]
        rows: list[TrainingPair] = []
        while waiting and self.account.ended_by is None:
            # A request is paid for in vain when its completion cannot be, so both must be within the budget.
            number, limit = self._num_affordable(waiting, num_each=2)
            if not number:
                self.account.ended_by = limit
            rows += self._evolve(waiting[:number])
            waiting = waiting[number:]
        return rows

    def _begin(self, parent: TrainingPair, generation: int) -> Attempt:
        draw = f"{self._plan.seed}:{parent.digest.hex()}:{generation}"
        evolution = draw_evolution(Random(draw), parent.category, code_of(parent)[1], self._seeds.examples)  # noqa: S311 - no secret
        return Attempt(parent, evolution, generation, self._prompts.ask_to_rewrite(parent, evolution))

    def _evolve(self, attempts: Sequence[Attempt]) -> list[TrainingPair]:
        drafts = list(self._drafts(attempts, self._ask(attempts)))
        number, limit = self._num_affordable(drafts, num_each=1)
        if number < len(drafts):
            self.account.ended_by = limit
        completions = self._ask(drafts[:number])
        rows = (self._row(draft, completions.get(draft.request.key)) for draft in drafts)
        return [row for row in rows if row is not None]

    def _drafts(self, attempts: Sequence[Attempt], written: dict[str, Reply]) -> Iterator[Attempt]:
        """Yield the attempts whose new request is worth completing, each with it."""
        for attempt in attempts:
            reply = written.get(attempt.request.key)
            if reply is None:
                continue
            self.account.seen += 1
            instruction = instruction_in(reply.text)
            reading = self._session.read(reply.text)
            refusal = instruction_refusal(instruction, attempt.parent, reading, stopped=reply.stopped)
            if refusal is None:
                request = self._prompts.ask_to_complete(attempt.parent, attempt.evolution, instruction)
                yield replace(attempt, instruction=instruction, request=request)
            else:
                self._drop(replace(attempt, instruction=instruction), refusal)

    def _row(self, draft: Attempt, reply: Reply | None) -> TrainingPair | None:
        if reply is None:
            self._drop(draft, (EvolutionDrop.OVER_BUDGET, "not answered"))
            return None
        reading = self._session.read(reply.text)
        attempt = replace(draft, program=reading.program)
        checked = self._check(attempt, reading, stopped=reply.stopped)
        if not isinstance(checked, TrainingPair):
            self._drop(attempt, checked)
            return None
        self.account.kept += 1
        self.account.rows.append(checked)
        if self.account.kept == self._plan.budget.max_rows:
            self.account.ended_by = "max_rows"
        return checked

    def _check(self, attempt: Attempt, reading: Reading, *, stopped: bool) -> TrainingPair | Refusal:
        if self.account.kept >= self._plan.budget.max_rows:
            return EvolutionDrop.OVER_BUDGET, "max_rows"
        form = form_refusal(attempt, reading, stopped=stopped)
        if form is not None:
            return form
        module = analyze(attempt.program, attempt.mode).module
        assert module is not None, "its form was looked at"  # noqa: S101 - our own impossibility
        content = content_refusal(attempt, module)
        if content is not None:
            return content
        tested = refusal_of_tests(attempt.program, attempt.mode, self._session.run_tests)
        if not isinstance(tested, bool):
            return tested
        row = make_row(attempt, module, self._session.generator, seed=self._plan.seed, is_tested=tested)
        problem = semantic_problem(row, attempt.program, module)
        if problem is not None:
            return EvolutionDrop.SEMANTIC_ERROR, problem
        return self._session.neighbours.refusal(row, module) or row

    def _drop(self, attempt: Attempt, refusal: Refusal) -> None:
        self.account.dropped[refusal[0]] += 1
        self.account.failures.append(
            DroppedAttempt(
                reason=refusal[0],
                detail=refusal[1],
                parent=attempt.parent.digest.hex(),
                operator=attempt.evolution.operator,
                generation=attempt.generation,
                instruction=attempt.instruction,
                completion=attempt.program,
            )
        )

    def _ask(self, attempts: Sequence[Attempt]) -> dict[str, Reply]:
        """Return replies to the requests of attempts, as many as there is time for."""
        requests = {attempt.request.key: attempt.request for attempt in attempts}
        replies = self._session.generator.ask([*requests.values()], lambda: self._until - self._session.clock())
        if len(replies) < len(requests):
            self.account.ended_by = "max_minutes"
        self.account.num_requests += len(replies)
        self.account.num_tokens += sum(reply.num_tokens for reply in replies.values())
        return replies

    def _num_affordable(self, attempts: Sequence[Attempt], num_each: int) -> tuple[int, str]:
        """Return how many attempts fit the budget, each with `num_each` requests, and the limit that stops.

        Replies are taken to be of full length. Whether one is known already makes no difference: a call that was cut
        short goes on from there.
        """
        budget, num_tokens = self._plan.budget, self.account.num_tokens
        for number, attempt in enumerate(attempts):
            num_tokens += num_each * (attempt.request.num_bytes + self._session.generator.max_new_tokens)
            if self.account.num_requests + num_each * (number + 1) > budget.max_requests:
                return number, "max_requests"
            if num_tokens > budget.max_tokens:
                return number, "max_tokens"
        return len(attempts), ""


def make_row(attempt: Attempt, module: Module, generator: Generator, *, seed: int, is_tested: bool) -> TrainingPair:
    """Build the training row of a completion that was kept; `is_tested` tells whether it has tests, which pass.

    It stands where the first of its ancestors stands: a split that holds that file out holds this row out as well, and
    a limit on what a file or template may give counts it.
    """
    parent, program = attempt.parent, attempt.program.rstrip() + "\n"
    suffix = ".vox.ui" if attempt.mode is Mode.UI else ".vox"
    path = parent.source.path if parent.source is not None else f"evolved/{parent.digest.hex()[:16]}{suffix}"
    return TrainingPair(
        prompt=attempt.instruction,
        response=program,
        category=attempt.construct,
        rating=_RATING_TESTED if is_tested else _RATING_UNTESTED,
        task_family="evolved",
        difficulty=difficulty(module),
        template=parent.template,
        source=Source.of_text(path, program, SourceKind.EVOLVED),
        lineage=Lineage(
            parent=parent.digest.hex(),
            operator=attempt.evolution.operator,
            generation=attempt.generation,
            generator=generator.name,
            generator_digest=generator.digest,
            seed=seed,
            root_kind=parent.lineage.root_kind if parent.lineage is not None else parent.source and parent.source.kind,
        ),
    )
