"""Evolve seeds into new rows: ask, check, keep, and evolve kept rows again, within a budget.

The outcome depends only on seeds, plan, generator and its replies: an interrupted call that is repeated gives the same
rows as a single call.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from mens_pipeline.corpus.curate.heldout_split import HeldoutTasks, group_of, is_held_out
from mens_pipeline.corpus.curate.near_duplicates import NearDuplicates, ngrams_of, words_of
from mens_pipeline.corpus.curate.pipeline_config import SplitPolicy
from mens_pipeline.corpus.curate.validate import find_semantic_error, format_error
from mens_pipeline.corpus.evolution.operators import (
    Evolution,
    EvolutionPrompts,
    ModelRequest,
    Reply,
    TextModel,
    draw_evolution,
)
from mens_pipeline.corpus.schema.account import Account, counts_of
from mens_pipeline.corpus.schema.prompts import noun_of
from mens_pipeline.corpus.schema.reasons import EvolutionDrop, NoSeed
from mens_pipeline.corpus.schema.records import MAX_TEXT, Lane, Lineage, Source, SourceKind, TrainingPair, parsed_code
from mens_pipeline.language import CONSTRUCTS, Mode, analyze, construct_of, difficulty, name_of, structure_of
from mens_pipeline.language.ast import Module, Node
from mens_pipeline.language.interpreter import ProgramReport, ProgramStatus
from mens_pipeline.storage.validation import Strict

MAX_INSTRUCTION: Final = 2_000
"""Characters of a request."""

_SAME: Final = 0.9  # share of common words at which a request repeats its parent
_COPIED: Final = 0.5  # share of the runs of a request that a program may repeat
_RUN: Final = 5  # words in a run
_WORD: Final = re.compile(r"[^\W\d_]{2,}")
_FEWEST_WORDS: Final = 3  # a request is at least `Write ... Vox`; anything shorter is noise
_LABEL: Final = re.compile(r"^[\s*]*(?:(?:the|new|rewritten|harder) )*request\b(?:\*\*:|:\*\*|:)\s*", re.IGNORECASE)
"""Matches labels such as `New request:` or `**Request:**`."""
_QUOTES: Final = ("“”", '""', "''")
_LEAK: Final = re.compile(
    r"\b(?:rewritten|rewrit(?:e|ing)|harder version|original request|given request|request (?:above|below)"
    r"|self-contained program must)\b",
    re.IGNORECASE,
)


Refusal = tuple[EvolutionDrop, str]


@dataclass(frozen=True, slots=True)
class Reading:
    """A reply, parsed as in an evaluation: its fenced block or whole text. A stub has a comment in place of code."""

    program: str
    is_refusal: bool
    is_stub: bool


@dataclass(frozen=True, slots=True)
class Attempt:
    """The evolution of one pair into a row.

    `parent` is the pair to evolve, and `generation` is 1 for a seed. `request` is the next prompt for the model;
    `instruction`, the new request, and `program`, its completion, are filled in once known.
    """

    parent: TrainingPair
    evolution: Evolution
    generation: int
    request: ModelRequest
    instruction: str = ""
    program: str = ""

    @property
    def construct(self) -> str:
        """Construct of the row: the operator's goal, or else the parent's construct."""
        return self.evolution.goal or self.parent.category

    @property
    def mode(self) -> Mode:
        """Grammar mode of the parent and its program."""
        return read_code(self.parent)[1]


def instruction_in(text: str) -> str:
    """Extract the instruction from a reply, without a label before it or quotes around it."""
    bare = _LABEL.sub("", text.strip()).strip()
    quoted = any(bare.startswith(pair[0]) and bare.endswith(pair[1]) and len(bare) > 1 for pair in _QUOTES)
    return bare[1:-1].strip() if quoted else bare


def find_fault(instruction: str, parent: TrainingPair, reading: Reading, *, stopped: bool) -> str | None:
    """Return the reason not to complete a new request, or None."""
    if reading.is_refusal:
        return "a refusal"
    if not stopped:
        return "cut off"
    if len(instruction) > MAX_INSTRUCTION:
        return f"{len(instruction)} characters"
    module = analyze(instruction).module
    if "```" in instruction or (module is not None and module.declarations):
        return "contains code"
    if len(_WORD.findall(instruction)) < _FEWEST_WORDS:
        return "too few words"
    leak = _LEAK.search(instruction)
    if leak is not None and leak[0].lower() not in parent.prompt.lower():
        return f"says `{leak[0]}`"
    before, after = (frozenset(words_of(text.lower())) for text in (parent.prompt, instruction))
    is_same = after <= before or len(before & after) >= _SAME * len(before | after)
    return "adds nothing new" if is_same else None


def check_form(attempt: Attempt, reading: Reading, *, stopped: bool) -> Refusal | None:
    """Return the reason why a completion is not a program, or None."""
    program = attempt.program
    analysis = analyze(program, attempt.mode)
    is_program = analysis.module is not None and bool(analysis.module.declarations)
    faults = {
        "empty": not program.strip(),
        "a refusal": reading.is_refusal and not is_program,
        "cut off": not stopped,
        f"{len(program)} characters": len(program) > MAX_TEXT,
    }
    fault = next((fault for fault, is_found in faults.items() if is_found), None)
    if fault is not None:
        return EvolutionDrop.BAD_REPLY, fault
    if analysis.errors:
        first = analysis.errors[0]
        return EvolutionDrop.REJECTED, f"{first.start.line}:{first.start.column + 1}: {first.code}: {first.message}"
    if not is_program:
        return EvolutionDrop.REJECTED, "it declares nothing"
    return (EvolutionDrop.BAD_REPLY, "a comment in place of code") if reading.is_stub else None


def check_content(attempt: Attempt, module: Module) -> Refusal | None:
    """Return the reason why an accepted program misses its request or is not new, or None."""
    runs = ngrams_of(words_of(attempt.instruction.lower()), _RUN)
    if len(runs & ngrams_of(words_of(attempt.program.lower()), _RUN)) > _COPIED * len(runs):
        return EvolutionDrop.NOT_AS_ASKED, "repeats the request"
    constructs = {construct_of(declaration).name for declaration in module.declarations}
    missing = {attempt.construct, attempt.parent.category} - constructs
    if missing:
        return EvolutionDrop.NOT_AS_ASKED, f"no {', '.join(sorted(missing))}"
    asked = names_in(attempt.instruction, attempt.construct)
    declared = {name_of(d) for d in module.declarations if construct_of(d).name == attempt.construct}
    if asked and not asked & declared:
        return EvolutionDrop.NOT_AS_ASKED, f"not called {' or '.join(sorted(asked))}"
    if not attempt.evolution.is_shown(module):
        return EvolutionDrop.NOT_AS_ASKED, f"does not show {attempt.evolution.operator}"
    if structure_of(module).digest == structure_of(_parse(attempt.parent)).digest:
        return EvolutionDrop.REPEATED, "the parent"
    return None


def names_in(instruction: str, construct: str) -> set[str]:
    """Return the names that an instruction requests: those in backticks after its noun."""
    noun = noun_of(construct).split(" ", 1)[1].replace("`", "")
    return set(re.findall(rf"\b{re.escape(noun)}(?: named| called)? `([A-Za-z_][\w.]*)(?:\([^`]*\))?`", instruction))


def check_tests(program: str, mode: Mode, run: Callable[[str, Mode], ProgramReport]) -> Refusal | bool:
    """Return the reason why a program's tests fail; otherwise True, or False without tests."""
    report = run(program, mode)
    if report.status is ProgramStatus.NO_TESTS:
        return False
    if report.status is not ProgramStatus.RAN:
        return EvolutionDrop.TESTS_FAILED, report.message
    for case in report.tests:
        if not case.passed:
            return EvolutionDrop.TESTS_FAILED, f"{case.name}: {case.message}"
        if not case.num_assertions:
            return EvolutionDrop.TESTS_FAILED, f"{case.name}: asserts nothing"
    return True


def read_code(pair: TrainingPair) -> tuple[str, Mode]:
    """Return the code of a seed or an evolved row, and the grammar mode to parse it in."""
    code = parsed_code(pair)
    assert code is not None, "seeds and rows are code"  # noqa: S101 - an internal invariant
    return code


def _parse(pair: TrainingPair) -> Node:
    module = analyze(*read_code(pair)).module
    assert module is not None, "seeds and rows are accepted code"  # noqa: S101 - an internal invariant
    return module


@dataclass(kw_only=True)
class Seeds(Account[NoSeed]):
    """The seeds among the rows of a file.

    No new row may be near `heldout`. Dropped rows are not evolved. `examples` maps a construct to the shortest seed
    program that shows it.
    """

    pairs: list[TrainingPair] = field(default_factory=list)
    heldout: list[TrainingPair] = field(default_factory=list)
    examples: dict[str, str] = field(default_factory=dict)


def sort_seeds(pairs: Iterable[TrainingPair], policy: SplitPolicy, seed: int) -> Seeds:
    """Sort rows into seeds, held-out rows and others, counted in `dropped`; `seed` alone decides the order of seeds."""
    seeds = Seeds()
    seen: set[bytes] = set()
    for pair in pairs:
        seeds.seen += 1
        reason = NoSeed.REPEATED if pair.digest in seen else _find_reason(pair, policy)
        seen.add(pair.digest)
        if reason is NoSeed.HELD_OUT:
            seeds.heldout.append(pair)
        if reason is None:
            seeds.pairs.append(pair)
            seeds.kept += 1
        else:
            seeds.dropped[reason] += 1
    seeds.check()
    seeds.pairs.sort(key=lambda pair: hashlib.sha256(f"{seed}:{pair.digest.hex()}".encode()).digest())
    for pair in sorted(seeds.pairs, key=lambda pair: (len(pair.response), pair.response)):
        seeds.examples.setdefault(pair.category, pair.response)
    return seeds


def _find_reason(pair: TrainingPair, policy: SplitPolicy) -> NoSeed | None:
    code = parsed_code(pair)
    if code is None or pair.lane is not Lane.CODEGEN:
        return NoSeed.PROSE
    group = group_of(pair)
    if group is not None and is_held_out(group, policy):
        return NoSeed.HELD_OUT
    if pair.category not in CONSTRUCTS:
        return NoSeed.OTHER_TASK
    if "\n\n" in pair.prompt.strip():
        return NoSeed.HOLDS_CODE
    return None if analyze(*code).module is not None else NoSeed.REJECTED


class Neighbours:
    """Known rows that new rows must differ from; kept rows are added."""

    def __init__(
        self, seeds: Seeds, protected: Iterable[TrainingPair], near_duplicate_threshold: float, policy: SplitPolicy
    ) -> None:
        self._heldout = HeldoutTasks([*seeds.heldout, *protected], policy.max_overlap, policy.min_nodes)
        self._min_nodes = policy.min_nodes
        # Smaller programs are alike by chance.
        structures = (structure_of(_parse(pair)) for pair in seeds.pairs)
        self._structures = {one.digest for one in structures if one.num_nodes >= policy.min_nodes}
        self._texts = NearDuplicates(near_duplicate_threshold)
        self._num_rows = 0
        for number, pair in enumerate(seeds.pairs):
            self._texts.earlier(f"seed {number}", _text(pair))

    def find_reason(self, row: TrainingPair, module: Module) -> Refusal | None:
        """Return the reason to drop a row, with a detail; None for a new row, which is added."""
        overlap = self._heldout.overlap(row)
        if overlap is not None:
            return EvolutionDrop.NEAR_HELD_OUT, f"{overlap[0]}: {overlap[1]}"
        structure = structure_of(module)
        if structure.digest in self._structures:
            return EvolutionDrop.REPEATED, "the structure of another row"
        near = self._texts.earlier(f"row {self._num_rows}", _text(row))
        if near is not None:
            return EvolutionDrop.REPEATED, f"nearly {near}"
        self._num_rows += 1
        if structure.num_nodes >= self._min_nodes:
            self._structures.add(structure.digest)
        return None


def _text(pair: TrainingPair) -> str:
    return f"{pair.prompt}\n{pair.response}"


class Budget(Strict):
    """Limits of one evolution. Requests, tokens and rows include those from kept replies of earlier calls."""

    max_requests: int = Field(ge=0, description="Requests that the generator completes.")
    max_tokens: int = Field(ge=0, description="Tokens of requests and replies; never exceeded.")
    max_minutes: float = Field(ge=0, description="Minutes of one call; requests already sent are completed.")
    max_rows: int = Field(ge=0, description="Rows to keep.")


class EvolutionPlan(Strict):
    """Seed, generations and budget of an evolution."""

    seed: int = Field(ge=0, description="Determines the order of seeds and the operators.")
    generations: int = Field(ge=1, le=8, description="Generations of rows, each evolved from the last.")
    budget: Budget


class DroppedAttempt(BaseModel):
    """An attempt that gave no row, with the reason."""

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
    """Attempts whose request was rewritten: kept rows and failures, in order.

    `num_requests` and `num_tokens` include replies from earlier calls. `ended_by` is the budget limit that ended the
    work; None if every seed was tried.
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
    """Model, clock and checks of an evolution.

    `clock` returns the seconds of a monotonic clock; `read` finds the program in a reply, as evaluation does;
    `run_tests` runs the tests of a program in a sandbox; a new row must differ from `neighbours`.
    """

    generator: TextModel
    clock: Callable[[], float]
    read: Callable[[str], Reading]
    run_tests: Callable[[str, Mode], ProgramReport]
    neighbours: Neighbours


_WAVE: Final = 32
"""Seeds to evolve together: enough to keep an endpoint busy, few enough to lose little."""


def evolve(seeds: Seeds, plan: EvolutionPlan, session: Session) -> EvolutionAccount:
    """Evolve seeds within the budget and return the account with the rows; raise `RefusedError` if the model fails."""
    work = _Work(seeds, plan, session)
    for start in range(0, len(seeds.pairs), _WAVE):
        live = seeds.pairs[start : start + _WAVE]
        for generation in range(1, plan.generations + 1):
            live = work.evolve_all(live, generation)
            if work.account.ended_by is not None:
                return work.account
    return work.account


class _Work:
    def __init__(self, seeds: Seeds, plan: EvolutionPlan, session: Session) -> None:
        self.account = EvolutionAccount()
        self._seeds, self._plan, self._session = seeds, plan, session
        self._prompts = EvolutionPrompts(session.generator, plan.seed, seeds.examples)
        self._until = session.clock() + 60 * plan.budget.max_minutes

    def evolve_all(self, parents: Sequence[TrainingPair], generation: int) -> list[TrainingPair]:
        waiting = [self._begin(parent, generation) for parent in parents]
        rows: list[TrainingPair] = []
        while waiting and self.account.ended_by is None:
            # A rewritten request is useless unless its completion is also affordable.
            number, limit = self._num_affordable(waiting, num_each=2)
            if not number:
                self.account.ended_by = limit
            rows += self._evolve(waiting[:number])
            waiting = waiting[number:]
        return rows

    def _begin(self, parent: TrainingPair, generation: int) -> Attempt:
        draw = f"{self._plan.seed}:{parent.digest.hex()}:{generation}"
        evolution = draw_evolution(Random(draw), parent.category, read_code(parent)[1], self._seeds.examples)  # noqa: S311 - no secret
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
        for attempt in attempts:
            reply = written.get(attempt.request.key)
            if reply is None:
                continue
            self.account.seen += 1
            instruction = instruction_in(reply.text)
            reading = self._session.read(reply.text)
            fault = find_fault(instruction, attempt.parent, reading, stopped=reply.stopped)
            if fault is None:
                request = self._prompts.ask_to_complete(attempt.parent, attempt.evolution, instruction)
                yield replace(attempt, instruction=instruction, request=request)
            else:
                self._drop(replace(attempt, instruction=instruction), (EvolutionDrop.BAD_INSTRUCTION, fault))

    def _row(self, draft: Attempt, reply: Reply | None) -> TrainingPair | None:
        if reply is None:
            self._drop(draft, (EvolutionDrop.OVER_BUDGET, "no reply"))
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
        if (form := check_form(attempt, reading, stopped=stopped)) is not None:
            return form
        module = analyze(attempt.program, attempt.mode).module
        assert module is not None, "its form was checked"  # noqa: S101 - an internal invariant
        if (content := check_content(attempt, module)) is not None:
            return content
        tested = check_tests(attempt.program, attempt.mode, self._session.run_tests)
        if not isinstance(tested, bool):
            return tested
        row = make_row(attempt, module, self._session.generator, seed=self._plan.seed, is_tested=tested)
        error = find_semantic_error(row, attempt.program, module)
        if error is not None:
            return EvolutionDrop.SEMANTIC_ERROR, format_error(error)
        return self._session.neighbours.find_reason(row, module) or row

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
        requests = {attempt.request.key: attempt.request for attempt in attempts}
        replies = self._session.generator.ask([*requests.values()], lambda: self._until - self._session.clock())
        if len(replies) < len(requests):
            self.account.ended_by = "max_minutes"
        self.account.num_requests += len(replies)
        self.account.num_tokens += sum(reply.num_tokens for reply in replies.values())
        return replies

    def _num_affordable(self, attempts: Sequence[Attempt], num_each: int) -> tuple[int, str]:
        """Return how many attempts the budget allows, with `num_each` requests each, and the limit that stops more.

        Every reply counts with its maximum length, even a known one, so that an interrupted call can be resumed.
        """
        budget, num_tokens = self._plan.budget, self.account.num_tokens
        for number, attempt in enumerate(attempts):
            num_tokens += num_each * (attempt.request.num_bytes + self._session.generator.max_new_tokens)
            if self.account.num_requests + num_each * (number + 1) > budget.max_requests:
                return number, "max_requests"
            if num_tokens > budget.max_tokens:
                return number, "max_tokens"
        return len(attempts), ""


def make_row(attempt: Attempt, module: Module, generator: TextModel, *, seed: int, is_tested: bool) -> TrainingPair:
    """Build the training row of a kept completion; `is_tested` says that it has tests, which pass.

    The row has the path of its first ancestor: a split that holds out that file holds out this row too, and the limits
    on rows of a file or template count it.
    """
    parent, program = attempt.parent, attempt.program.rstrip() + "\n"
    suffix = ".vox.ui" if attempt.mode is Mode.UI else ".vox"
    path = parent.source.path if parent.source is not None else f"evolved/{parent.digest.hex()[:16]}{suffix}"
    return TrainingPair(
        prompt=attempt.instruction,
        response=program,
        category=attempt.construct,
        rating=4 if is_tested else 3,
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
