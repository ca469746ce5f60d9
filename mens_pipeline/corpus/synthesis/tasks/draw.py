"""Drawing tasks: programs with requests, in an order that spreads over levels and families, run before they count."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import count, islice
from random import Random
from typing import Final

from mens_pipeline.corpus.behaviour.observe import Behaviour, Observation, behaviour_in
from mens_pipeline.corpus.curate.resolution import semantic_problem
from mens_pipeline.corpus.extract.batches import in_batches
from mens_pipeline.corpus.schema.records import Source, SourceKind
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.corpus.synthesis.tasks.arguments import arguments_for, parsed_inputs
from mens_pipeline.corpus.synthesis.tasks.templates import Atom, BankRows, draw_holes, fill, load_tasks
from mens_pipeline.corpus.synthesis.tasks.wording import Request, prompt_of, told_types
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.language import analyze, difficulty
from mens_pipeline.language.ast.base import walk
from mens_pipeline.language.ast.declarations import Module
from mens_pipeline.language.ast.expressions import DecimalLit, FloatLit, IntLit, StringLit
from mens_pipeline.language.ast.functions import Function
from mens_pipeline.language.ast.patterns import LiteralPattern
from mens_pipeline.language.front_end import collector_paused
from mens_pipeline.language.structure import structure_of

TASK: Final = "task"
"""The `task_family` of an executable task, and what its `template` begins with."""

_RATING: Final = 4
_LEVELS: Final = (0, 2, 1, 3, 0, 2, 1, 4, 0, 2, 3, 1, 0, 2, 5, 0, 3, 2, 1, 4)
"""Levels in turn: of twenty tasks five each are one expression or one loop, four branch, three are chains, two match,
one declares twice."""

_HELDOUT_FAMILIES: Final = 8
_HELDOUT_PROGRAMS: Final = 16
"""One in so many families, and one in so many programs of the other families, never trains."""

_WINDOW: Final = 300
_SAME_SKELETON: Final = 2
"""Tasks of one template with the same structure in so many tasks."""

_NAMES: Final = re.compile(r"(?<=fn )\w+")
_PARAMS: Final = re.compile(r"\b\w++(?=:)")
_BOUND: Final = re.compile(r"(?:let (?:mut )?|for )(\w+)|(?<=, )(\w+)(?= in )")
_LAMBDAS: Final = re.compile(r"\b(\w++) => ")

_COMMAS: Final = re.compile(r"(?<=[a-z]),(?=[,.;:])")
"""Where an inserted clause ends as the sentence does."""

_MOST_DRAFTS: Final = 1_000
_LINE: Final = 100
"""Characters of a statement; people break longer ones, and models lose themselves in them."""

_MOST_TRIES: Final = 20_000
_BATCH: Final = 48


class Side(StrEnum):
    """Uses of tasks; the sides share no family or no program."""

    TRAIN = "train"
    KNOWN = "known"
    """Families that train, with constants that do not."""
    UNKNOWN = "unknown"
    """Families that never train."""


@dataclass(frozen=True, slots=True)
class _Draft:
    """A task that was not run yet.

    `template` is what made it (`task/fold/list_sum`), `before` what stands in front of the function in the answer;
    `seed` decides the wording, the arguments and the choice of mutants.
    """

    template: str
    request: Request
    before: str
    code: str
    inputs: str
    seed: str

    @property
    def program(self) -> str:
        """The answer."""
        return f"{self.before}\n\n{self.code}\n" if self.before else f"{self.code}\n"


@dataclass(frozen=True, slots=True)
class ObservedFunction:
    """A function of a task that trains, for rows of other kinds.

    `signature` is such as `(n: int) to bool`; `behaviour` is in whole sentences that begin with `It`; the short calls
    come first.
    """

    name: str
    signature: str
    code: str
    behaviour: str
    calls: tuple[Observation, ...]


def draw_tasks(
    seed: int, side: Side = Side.TRAIN, *, workers: int = 1, dropped: Callable[[str], None] = lambda _template: None
) -> Iterator[TrainingPair]:
    """Yield executable tasks without end, no two with the same completion; the same for any number of workers.

    Every answer is accepted by the front end, its names and types hold, and it was run: the examples of the prompt are
    what it returned, and its hidden tests (`tests`) refuse every changed body that any observed call tells from it.
    Another seed gives others. `dropped` takes the template of each task whose names or types do not hold.

    Raises:
        RefusedError: There are no more different ones.
    """
    jobs = ((draft, None, 1) for draft in _Drawing(seed, side).drafts())
    for made in in_batches(jobs, _observed, workers, _BATCH):
        if isinstance(made, TrainingPair):
            yield made
        elif made is not None:
            dropped(made)


def heldout_tasks(seed: int, num_tasks: int) -> dict[Side, tuple[TrainingPair, ...]]:
    """Return tasks to examine with: as many with new constants of known families as of families that never train.

    Another seed gives others, of which none can train either; `num_tasks` is that of each side.

    Raises:
        RefusedError: There are not as many different ones.
    """
    return {side: tuple(islice(draw_tasks(seed, side), num_tasks)) for side in (Side.KNOWN, Side.UNKNOWN)}


def observed_function(random: Random) -> ObservedFunction:
    """Draw a function that needs nothing beside it, with calls that were observed."""
    atoms, banks = load_tasks()
    plain = [atom for atom in atoms if not atom.before and not is_heldout_family(atom.name)]
    while True:
        draft = _drafted(random.choice(plain), banks, random, str(random.random()))
        module = analyze(draft.program).module
        assert module is not None, draft.program  # noqa: S101 - our own impossibility
        if _side(structure_of(module).digest, module) is Side.TRAIN:
            behaviour = _behaviour(draft, module)
            if behaviour is not None and len(behaviour.examples[0].call) <= _LINE:
                name, _, signature = draft.request.head.partition("(")
                calls = tuple(call for call in (*behaviour.examples, *behaviour.hidden) if len(call.call) <= _LINE)
                return ObservedFunction(name, f"({signature}", draft.code, f"It {draft.request.sentences}", calls)


def is_heldout_family(name: str) -> bool:
    """Return whether the tasks of an atom never train."""
    return _digest(f"family {name}") % _HELDOUT_FAMILIES == 0


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])


class _Drawing:
    """The state of a drawing: which families had their turn, and what was drawn already."""

    def __init__(self, seed: int, side: Side) -> None:
        atoms, self.banks = load_tasks()
        self.seed = seed
        self.side = side
        self.random = Random(f"{seed} {side}")  # noqa: S311 - a reproducible draw, no secret
        chosen = [atom for atom in atoms if is_heldout_family(atom.name) == (side is Side.UNKNOWN)]
        self.atoms = {level: [atom for atom in chosen if atom.level == level] for level in set(_LEVELS)}
        self.levels = [level for level in _LEVELS if self.atoms[level]]
        self.turns: dict[int, list[Atom]] = {level: [] for level in self.atoms}
        self.seen: set[bytes] = set()
        self.skeletons: Counter[tuple[str, str]] = Counter()

    def drafts(self) -> Iterator[_Draft]:
        """Yield tasks, level by level and family by family in turn."""
        return map(self._new_draft, count())

    def _new_draft(self, number: int) -> _Draft:
        level = self.levels[number % len(self.levels)]
        most = _SAME_SKELETON * (1 + number // _WINDOW)
        for attempt in range(_MOST_TRIES):
            atom = self._next_atom(level)
            draft = _drafted(atom, self.banks, self.random, f"{self.seed} {self.side} {number}")
            key = hashlib.sha256(draft.program.encode()).digest()
            if key in self.seen:
                continue
            module = analyze(draft.program).module
            assert module is not None, f"{draft.template}: rejected: {draft.program!r}"  # noqa: S101 - our own impossibility
            skeleton = structure_of(module).digest
            place = (draft.template, skeleton)
            # A family whose skeletons are used up takes part again when nothing else is left.
            if self.skeletons[place] >= most * (1 + attempt // 100):
                continue
            if self.side is not Side.UNKNOWN and _side(skeleton, module) is not self.side:
                continue
            self.seen.add(key)
            self.skeletons[place] += 1
            return draft
        message = f"only {len(self.seen)} different tasks could be drawn. Ask for fewer."
        raise RefusedError(message)

    def _next_atom(self, level: int) -> Atom:
        if not self.turns[level]:
            self.turns[level] = self.random.sample(self.atoms[level], len(self.atoms[level]))
        return self.turns[level].pop()


def _side(skeleton: str, module: Module) -> Side:
    """Return the side of a program of a family that trains, whatever its names are."""
    literals = [
        node.text if isinstance(node, DecimalLit) else node.value
        for node in walk(module)
        if isinstance(node, IntLit | FloatLit | StringLit | DecimalLit | LiteralPattern)
    ]
    return Side.KNOWN if _digest(f"program {skeleton} {literals}") % _HELDOUT_PROGRAMS == 0 else Side.TRAIN


def _drafted(atom: Atom, banks: BankRows, random: Random, seed: str) -> _Draft:
    """Draw a task of an atom.

    Raises:
        ConfigurationError: No way to write it fits into a line.
    """
    for _ in range(_MOST_DRAFTS):
        scope = draw_holes(atom.holes, random, {}, banks)
        scope["self"] = fill(random.choice(atom.fn), scope)
        takes, before = fill(atom.takes, scope), formatted(fill(atom.before, scope))
        body = fill(random.choice(atom.code), scope)
        is_laid_out = all(len(line) <= _LINE for line in body.split("\n"))
        if is_laid_out and not _hides_a_name(
            [str(scope["self"]), *_NAMES.findall(before), *_PARAMS.findall(takes)], body
        ):
            break
    else:
        raise ConfigurationError(
            f"task {atom.name}: {_MOST_DRAFTS} drafts had a line of more than {_LINE} characters, or a name that hides "
            "another. Break the lines of its `code`, or choose other names."
        )
    head = f"{scope['self']}({takes}) to {fill(atom.gives, scope)}"
    edges = [fill(random.choice(atom.edges), scope)] if atom.edges else []
    sentences = _COMMAS.sub("", " ".join([f"{fill(random.choice(atom.says), scope)}.", *edges]))
    variant = f"/{fill(atom.family, scope)}" if atom.family else ""
    return _Draft(
        template=f"{TASK}/{atom.name}{variant}",
        request=Request(head, sentences, fill(atom.asks, scope) or told_types(before), with_helper=bool(atom.asks)),
        before=before,
        code=formatted(f"fn {head} {{\n{body}\n}}"),
        inputs=fill(atom.inputs, scope),
        seed=seed,
    )


def _hides_a_name(declared: list[str], body: str) -> bool:
    """Return whether a drawn name means two things: a parameter and a variable, or the function and either."""
    names = [*declared, *(first or second for first, second in _BOUND.findall(body))]
    return len(names) > len(set(names)) or not set(_LAMBDAS.findall(body)).isdisjoint(declared)


def formatted(code: str) -> str:
    """Return code with four blanks for each brace that is open; brackets of other kinds do not count.

    None of the strings in its lines holds a brace.
    """
    lines: list[str] = []
    depth = 0
    for line in code.split("\n"):
        text = line.strip()
        if not text.startswith("|"):
            line = "    " * (depth - text.startswith("}")) + text  # noqa: PLW2901 - the line as it shall be
        lines.append(line)
        depth += text.count("{") - text.count("}")
    return "\n".join(lines)


def _observed(drafts: list[_Draft]) -> list[TrainingPair | str | None]:
    # One search for cycles a batch, not one behind every parse.
    with collector_paused():
        return [_pair(draft) for draft in drafts]


def _pair(draft: _Draft) -> TrainingPair | str | None:
    """Build the task with examples and hidden tests; None when they would not tell it from something else.

    Where its names or types do not hold, its template alone.
    """
    module = analyze(draft.program).module
    assert module is not None  # noqa: S101 - it was accepted when it was drawn
    behaviour = _behaviour(draft, module)
    if behaviour is None:
        return None
    random = Random(draft.seed)  # noqa: S311 - a reproducible draw, no secret
    pair = TrainingPair(
        prompt=prompt_of(random, draft.request, behaviour.examples),
        response=draft.program,
        category="function",
        rating=_RATING,
        task_family=TASK,
        difficulty=difficulty(module),
        template=draft.template,
        source=Source.of_text(f"synthetic/{draft.template}.vox", draft.program, SourceKind.SYNTHETIC),
        tests=behaviour.tests,
    )
    return pair if semantic_problem(pair, pair.response, module) is None else draft.template


def _behaviour(draft: _Draft, module: Module) -> Behaviour | None:
    """Observe what the function does; None when that would not tell it from something else."""
    function = module.declarations[-1]
    assert isinstance(function, Function)  # noqa: S101 - as `_drafted` writes it
    arguments = arguments_for(module, function, parsed_inputs(draft.inputs), draft.seed)
    behaviour = behaviour_in(module, function.name, seed=draft.seed, arguments=arguments)
    return behaviour if isinstance(behaviour, Behaviour) and behaviour.is_sharp else None
