"""From seeds to evolved rows: ask, judge, keep, and evolve what was kept again, within a budget.

The outcome depends on seeds, plan, generator and its replies alone; a call that was cut short and one more give what
one call would have given.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from mens_pipeline.corpus.curate.resolution import semantic_problem
from mens_pipeline.corpus.evolution.examine import (
    Candidate,
    Reading,
    Refusal,
    code_of,
    content_refusal,
    form_refusal,
    instruction_in,
    instruction_refusal,
    refusal_of_tests,
)
from mens_pipeline.corpus.evolution.ledger import Ledger
from mens_pipeline.corpus.evolution.neighbours import Neighbours
from mens_pipeline.corpus.evolution.operators import Evolution, draw_evolution
from mens_pipeline.corpus.evolution.outcome import DroppedAttempt, EvolutionAccount, EvolutionDrop
from mens_pipeline.corpus.evolution.requests import Generator, Prompts, Reply, Request, is_vox, repair_of
from mens_pipeline.corpus.evolution.seeds import Seeds, digest_of_pair
from mens_pipeline.corpus.schema.records import Source, SourceKind
from mens_pipeline.corpus.schema.training_pair import Lineage, TrainingPair
from mens_pipeline.language import Mode, analyze, difficulty
from mens_pipeline.language.ast.declarations import Module
from mens_pipeline.language.interpreter import ProgramReport


class Budget(BaseModel):
    """Bounds of one evolution. Requests, tokens and rows count those of earlier calls with the same ledger."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_requests: int = Field(ge=0, description="Requests that the generator answers.")
    max_tokens: int = Field(ge=0, description="Tokens of requests and replies; never exceeded.")
    max_minutes: float = Field(ge=0, description="Of one call; what is on its way then is still taken.")
    max_rows: int = Field(ge=0, description="Rows that are kept.")


class Plan(BaseModel):
    """Seed, generations, repairs and budget of an evolution."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(ge=0, description="Decides the order of seeds and the operators.")
    generations: int = Field(ge=1, le=8, description="How often a row that was kept is evolved again.")
    budget: Budget
    repairs: int = Field(default=0, ge=0, le=2, description="How often an answer that is no Vox is sent back.")


_TESTED: Final = 4
_UNTESTED: Final = 3


def evolved_row(  # noqa: PLR0913 - all that a row says of where it comes from
    candidate: Candidate, module: Module, generation: int, *, generator: tuple[str, str], seed: int, is_tested: bool
) -> TrainingPair:
    """Build the training row of a completion that was kept.

    It stands where the first of its ancestors stands: whoever holds that file out holds this row out as well, and
    whoever caps what a file or template may give counts it.

    `generation` is 1 for a row whose parent nobody evolved, `generator` the name and digest of the model; `is_tested`
    tells whether it has tests, which pass.
    """
    parent = candidate.parent
    program = candidate.program.rstrip() + "\n"
    root_kind = parent.lineage.root_kind if parent.lineage is not None else parent.source and parent.source.kind
    return TrainingPair(
        prompt=candidate.instruction,
        response=program,
        category=candidate.construct,
        rating=_TESTED if is_tested else _UNTESTED,
        task_family="evolved",
        difficulty=difficulty(module),
        template=parent.template,
        source=_source(parent, program, candidate.mode),
        lineage=Lineage(
            parent=digest_of_pair(parent),
            operator=candidate.evolution.operator,
            generation=generation,
            generator=generator[0],
            generator_digest=generator[1],
            seed=seed,
            root_kind=root_kind,
        ),
    )


def _source(parent: TrainingPair, program: str, mode: Mode) -> Source:
    suffix = ".vox.ui" if mode is Mode.UI else ".vox"
    path = parent.source.path if parent.source is not None else f"evolved/{digest_of_pair(parent)[:16]}{suffix}"
    return Source.of_text(path, program, SourceKind.EVOLVED)


_WAVE: Final = 32
"""Seeds that are evolved side by side: enough to keep an endpoint and a batch busy, few enough to lose little."""


@dataclass(frozen=True, slots=True)
class ReplyChecks:
    """Checks on replies that other packages provide.

    `read` finds the program in a reply, as evaluation does; `run_tests` runs the tests of a program where nothing can
    come to harm; a new row must differ from `neighbours`.
    """

    read: Callable[[str], Reading]
    run_tests: Callable[[str, Mode], ProgramReport]
    neighbours: Neighbours


@dataclass(frozen=True, slots=True)
class Session:
    """Generator and ledger of an evolution.

    `clock` gives the seconds of a clock that never goes back.
    """

    generator: Generator
    ledger: Ledger
    clock: Callable[[], float]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One request on its way to a row."""

    parent: TrainingPair
    evolution: Evolution
    generation: int
    request: Request

    @property
    def mode(self) -> Mode:
        """The mode in which a completion is parsed: that of the parent."""
        return code_of(self.parent)[1]


@dataclass(frozen=True, slots=True)
class _Draft:
    """An attempt whose request is worth answering."""

    attempt: _Attempt
    instruction: str
    request: Request


def evolve(seeds: Seeds, plan: Plan, desk: Session, judges: ReplyChecks) -> EvolutionAccount:
    """Evolve seeds as far as the budget goes, and return the account with the rows; it adds up.

    Raises:
        RefusedError: The generator does not work.
        ConfigurationError: The ledger cannot be written.
    """
    work = _Work(seeds, plan, desk, judges)
    for start in range(0, len(seeds.pairs), _WAVE):
        live = seeds.pairs[start : start + _WAVE]
        for generation in range(1, plan.generations + 1):
            live = work.evolved(live, generation)
            if work.account.ended_by is not None:
                return work.account
    return work.account


class _Work:
    """The state of one evolution."""

    def __init__(self, seeds: Seeds, plan: Plan, desk: Session, judges: ReplyChecks) -> None:
        self.account = EvolutionAccount()
        self._seeds, self._plan, self._desk, self._judges = seeds, plan, desk, judges
        self._prompts = Prompts(desk.generator, plan.seed, seeds.examples)
        self._until = desk.clock() + 60 * plan.budget.max_minutes

    def evolved(self, parents: Sequence[TrainingPair], generation: int) -> list[TrainingPair]:
        """Evolve some pairs in order until a budget is used up, and return the rows that are kept."""
        waiting = [self._attempt(parent, generation) for parent in parents]
        rows: list[TrainingPair] = []
        while waiting and self.account.ended_by is None:
            # A request is paid for in vain when its answer cannot be, so both must be within the budget.
            number, limit = self._num_affordable([attempt.request for attempt in waiting], num_each=2)
            if not number:
                self.account.ended_by = limit
            rows += self._evolved(waiting[:number])
            waiting = waiting[number:]
        return rows

    def _evolved(self, attempts: Sequence[_Attempt]) -> list[TrainingPair]:
        drafts = list(self._drafts(attempts, self._ask([attempt.request for attempt in attempts])))
        requests = [draft.request for draft in drafts]
        number, limit = self._num_affordable(requests, num_each=1)
        if number < len(drafts):
            self.account.ended_by = limit
        answers = self._ask(requests[:number])
        for _ in range(self._plan.repairs):
            self._repair(drafts[:number], answers)
        rows = (self._row(draft, answers.get(draft.request.key)) for draft in drafts)
        return [row for row in rows if row is not None]

    def _repair(self, drafts: Sequence[_Draft], answers: dict[str, Reply]) -> None:
        """Send answers that are no Vox back, as many as the budget bears, and put what comes in their place."""
        repairs: dict[str, tuple[Request, Mode]] = {}
        for draft in drafts:
            reply, mode = answers.get(draft.request.key), draft.attempt.mode
            program = self._judges.read(reply.text).program if reply is not None else ""
            repair = repair_of(draft.request, program, mode)
            if repair is not None:
                repairs[draft.request.key] = repair, mode
        requests = [repair for repair, _ in repairs.values()]
        number, limit = self._num_affordable(requests, num_each=1)
        if number < len(requests):
            self.account.ended_by = limit
        found = self._ask(requests[:number])
        self.account.num_repairs += len(found)
        for key, (repair, mode) in repairs.items():
            if repair.key in found:
                answers[key] = found[repair.key]
                self.account.num_repaired += is_vox(self._judges.read(answers[key].text).program, mode)

    def _attempt(self, parent: TrainingPair, generation: int) -> _Attempt:
        draw = f"{self._plan.seed}:{digest_of_pair(parent)}:{generation}"
        evolution = draw_evolution(Random(draw), parent.category, code_of(parent)[1], self._seeds.examples)  # noqa: S311 - no secret
        return _Attempt(parent, evolution, generation, self._prompts.evolving(parent, evolution))

    def _drafts(self, attempts: Sequence[_Attempt], written: dict[str, Reply]) -> Iterator[_Draft]:
        for attempt in attempts:
            reply = written.get(attempt.request.key)
            if reply is None:
                continue
            self.account.seen += 1
            instruction = instruction_in(reply.text)
            reading = self._judges.read(reply.text)
            refusal = instruction_refusal(instruction, attempt.parent, reading, stopped=reply.stopped)
            if refusal is None:
                request = self._prompts.answering(attempt.parent, attempt.evolution, instruction)
                yield _Draft(attempt, instruction, request)
            else:
                self._drop(attempt, refusal, instruction)

    def _row(self, draft: _Draft, reply: Reply | None) -> TrainingPair | None:
        if reply is None:
            self._drop(draft.attempt, (EvolutionDrop.UNANSWERED, ""), draft.instruction)
            return None
        reading = self._judges.read(reply.text)
        candidate = Candidate(draft.instruction, reading.program, draft.attempt.parent, draft.attempt.evolution)
        judged = self._judged(draft, candidate, reading, stopped=reply.stopped)
        if not isinstance(judged, TrainingPair):
            self._drop(draft.attempt, judged, draft.instruction, reading.program)
            return None
        self.account.kept.append(judged)
        if len(self.account.kept) == self._plan.budget.max_rows:
            self.account.ended_by = "max_rows"
        return judged

    def _judged(
        self, draft: _Draft, candidate: Candidate, reading: Reading, *, stopped: bool
    ) -> TrainingPair | Refusal:
        if len(self.account.kept) >= self._plan.budget.max_rows:
            return EvolutionDrop.ENOUGH_ROWS, ""
        form = form_refusal(candidate, reading, stopped=stopped)
        if form is not None:
            return form
        module = analyze(candidate.program, candidate.mode).module
        assert module is not None, "its form was looked at"  # noqa: S101 - our own impossibility
        content = content_refusal(candidate, module)
        if content is not None:
            return content
        tested = refusal_of_tests(candidate.program, candidate.mode, self._judges.run_tests)
        if not isinstance(tested, bool):
            return tested
        row = evolved_row(
            candidate,
            module,
            draft.attempt.generation,
            generator=(self._desk.generator.name, self._desk.generator.digest),
            seed=self._plan.seed,
            is_tested=tested,
        )
        problem = semantic_problem(row, candidate.program, module)
        if problem is not None:
            return EvolutionDrop.SEMANTIC_ERROR, problem
        return self._judges.neighbours.refusal(row, module) or row

    def _drop(self, attempt: _Attempt, refusal: Refusal, instruction: str, answer: str = "") -> None:
        self.account.dropped.append(
            DroppedAttempt(
                reason=refusal[0],
                detail=refusal[1],
                parent=digest_of_pair(attempt.parent),
                operator=attempt.evolution.operator,
                generation=attempt.generation,
                instruction=instruction,
                answer=answer,
            )
        )

    def _ask(self, requests: Sequence[Request]) -> dict[str, Reply]:
        """Return the replies to some prompts, from the ledger or the model, as many as there is time for."""
        asked = {request.key: request for request in requests}
        missing = [request for key, request in asked.items() if self._desk.ledger.find(key) is None]
        if missing:
            self._desk.generator.answer(missing, self._desk.ledger.add, self._time_left)
        replies = {key: reply for key in asked if (reply := self._desk.ledger.find(key)) is not None}
        if len(replies) < len(asked):
            self.account.ended_by = "max_minutes"
        self.account.num_requests += len(replies)
        self.account.num_new_requests += sum(request.key in replies for request in missing)
        self.account.num_tokens += sum(reply.num_tokens for reply in replies.values())
        return replies

    def _num_affordable(self, requests: Sequence[Request], num_each: int) -> tuple[int, str]:
        """Return how many requests fit the budget even with replies of full length, and the limit that stops.

        Whether a reply is known already makes no difference, so that a call that was cut short goes on as it was.

        Of each come `num_each` requests, itself among them.
        """
        budget, num_tokens = self._plan.budget, self.account.num_tokens
        for number, request in enumerate(requests):
            num_tokens += num_each * (request.num_bytes + self._desk.generator.max_new_tokens)
            if self.account.num_requests + num_each * (number + 1) > budget.max_requests:
                return number, "max_requests"
            if num_tokens > budget.max_tokens:
                return number, "max_tokens"
        return len(requests), ""

    def _time_left(self) -> float:
        return self._until - self._desk.clock()
