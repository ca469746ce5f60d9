"""Draw tasks, spread over levels and families, and run each one with the arguments that its prompt promises."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import count, islice
from random import Random
from typing import Final

from mens_pipeline.corpus.behaviour.arguments import Drawing
from mens_pipeline.corpus.behaviour.examples import Observation
from mens_pipeline.corpus.behaviour.observe import Behaviour, observe_function
from mens_pipeline.corpus.curate.validate import find_semantic_error
from mens_pipeline.corpus.extract.batches import ONE_PROCESS, Pool, in_batches
from mens_pipeline.corpus.schema.records import Source, SourceKind, TrainingPair
from mens_pipeline.corpus.synthesis.tasks.templates import (
    LINE,
    TASK,
    Atom,
    TaskDraft,
    draft_task,
    load_tasks,
    write_prompt,
)
from mens_pipeline.errors import RefusedError
from mens_pipeline.language import analyze, collector_paused, difficulty, structure_of
from mens_pipeline.language.ast import (
    DecimalLit,
    FloatLit,
    Function,
    IntLit,
    LiteralPattern,
    Module,
    StringLit,
    TypeDef,
    walk,
)
from mens_pipeline.language.interpreter import Value, VariantValue

_LEVELS: Final = (0, 2, 1, 3, 0, 2, 1, 4, 0, 2, 3, 1, 0, 2, 5, 0, 3, 2, 1, 4)
"""Levels in turn: of twenty tasks, five are one expression, five are one loop, four branch, three are chains, two
match, and one has two declarations."""

_HELDOUT_FAMILIES: Final = 8
_HELDOUT_PROGRAMS: Final = 16
"""One in 8 families, and one in 16 programs of the other families, is never trained on."""

_WINDOW: Final = 300
_SAME_SKELETON: Final = 2  # tasks of one template with the same structure in `_WINDOW` tasks
_MOST_TRIES: Final = 20_000
_BATCH: Final = 48


class Side(StrEnum):
    """Uses of tasks; no two sides share a program, and `UNKNOWN` shares no family."""

    TRAIN = "train"
    KNOWN = "known"  # trained families with held-out constants
    UNKNOWN = "unknown"  # families that are never trained on


@dataclass(frozen=True, slots=True)
class ObservedFunction:
    """A function of a training task, for rows of other kinds.

    `signature` is text such as `(n: int) to bool`; `behaviour` holds whole sentences that start with `It`; short calls
    come first.
    """

    name: str
    signature: str
    code: str
    behaviour: str
    calls: tuple[Observation, ...]


def draw_tasks(
    seed: int,
    side: Side = Side.TRAIN,
    *,
    pool: Pool = ONE_PROCESS,
    dropped: Callable[[str], None] = lambda _template: None,
) -> Iterator[TrainingPair]:
    """Yield executable tasks with distinct completions; raise `RefusedError` if there are no more.

    The tasks do not depend on the pool. The front end accepts every completion and finds no error in names and types.
    Each one was run: the prompt's examples are its results, and its hidden tests (`tests`) refuse every mutant that any
    observed call detects. `dropped` is called with the template of each task with errors in names or types.
    """
    jobs = ((draft, None, 1) for draft in _Drawing(seed, side).drafts())
    for made in in_batches(jobs, _observe_batch, pool, _BATCH):
        if isinstance(made, TrainingPair):
            yield made
        elif made is not None:
            dropped(made)


@cache  # running the tasks takes seconds
def heldout_tasks(seed: int, num_tasks: int) -> dict[Side, tuple[TrainingPair, ...]]:
    """Return tasks for evaluation: known families with new constants, and families that are never trained on.

    Another seed gives other tasks, which are never trained on; `num_tasks` is the number on each side. Raises
    `RefusedError` if there are too few distinct tasks.
    """
    return {side: tuple(islice(draw_tasks(seed, side), num_tasks)) for side in (Side.KNOWN, Side.UNKNOWN)}


def draw_function(random: Random) -> ObservedFunction:
    """Draw a function without dependencies, with observed calls."""
    atoms, banks = load_tasks()
    plain = [atom for atom in atoms if not atom.before and not is_heldout_family(atom.name)]
    while True:
        draft = draft_task(random.choice(plain), banks, random, str(random.random()))
        module = analyze(draft.program).module
        assert module is not None, draft.program  # noqa: S101 - an internal invariant
        if _side(structure_of(module).digest, module) is Side.TRAIN:
            behaviour = _observe(draft, module)
            if behaviour is not None and len(behaviour.examples[0].call) <= LINE:
                name, _, signature = draft.head.partition("(")
                calls = tuple(call for call in (*behaviour.examples, *behaviour.hidden) if len(call.call) <= LINE)
                return ObservedFunction(name, f"({signature}", draft.code, f"It {draft.sentences}", calls)


def is_heldout_family(name: str) -> bool:
    """Return whether the tasks of an atom are never trained on."""
    return _digest(f"family {name}") % _HELDOUT_FAMILIES == 0


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])


class _Drawing:
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

    def drafts(self) -> Iterator[TaskDraft]:
        return map(self._new_draft, count())

    def _new_draft(self, number: int) -> TaskDraft:
        level = self.levels[number % len(self.levels)]
        most = _SAME_SKELETON * (1 + number // _WINDOW)
        for attempt in range(_MOST_TRIES):
            if not self.turns[level]:
                self.turns[level] = self.random.sample(self.atoms[level], len(self.atoms[level]))
            atom = self.turns[level].pop()
            draft = draft_task(atom, self.banks, self.random, f"{self.seed} {self.side} {number}")
            key = hashlib.sha256(draft.program.encode()).digest()
            if key in self.seen:
                continue
            module = analyze(draft.program).module
            assert module is not None, f"{draft.template}: rejected: {draft.program!r}"  # noqa: S101 - an internal invariant
            skeleton = structure_of(module).digest
            place = (draft.template, skeleton)
            # A family whose skeletons are used up may repeat them when nothing else is left.
            if self.skeletons[place] >= most * (1 + attempt // 100):
                continue
            if self.side is not Side.UNKNOWN and _side(skeleton, module) is not self.side:
                continue
            self.seen.add(key)
            self.skeletons[place] += 1
            return draft
        message = f"only {len(self.seen)} different tasks could be drawn. Ask for fewer."
        raise RefusedError(message)


def _side(skeleton: str, module: Module) -> Side:
    literals = [
        node.text if isinstance(node, DecimalLit) else node.value
        for node in walk(module)
        if isinstance(node, IntLit | FloatLit | StringLit | DecimalLit | LiteralPattern)
    ]
    return Side.KNOWN if _digest(f"program {skeleton} {literals}") % _HELDOUT_PROGRAMS == 0 else Side.TRAIN


def _observe_batch(drafts: list[TaskDraft]) -> list[TrainingPair | str | None]:
    # Collect garbage once a batch, not after every parse.
    with collector_paused():
        return [_make_pair(draft) for draft in drafts]


def _make_pair(draft: TaskDraft) -> TrainingPair | str | None:
    """Build the task with examples and hidden tests; None if they prove nothing, its template on a type error."""
    module = analyze(draft.program).module
    assert module is not None  # noqa: S101 - it was accepted when it was drawn
    behaviour = _observe(draft, module)
    if behaviour is None:
        return None
    random = Random(draft.seed)  # noqa: S311 - a reproducible draw, no secret
    pair = TrainingPair(
        prompt=write_prompt(random, draft, behaviour.examples),
        response=draft.program,
        category="function",
        rating=4,
        task_family=TASK,
        difficulty=difficulty(module),
        template=draft.template,
        source=Source.of_text(f"synthetic/{draft.template}.vox", draft.program, SourceKind.SYNTHETIC),
        tests=behaviour.tests,
    )
    return pair if find_semantic_error(pair, pair.response, module) is None else draft.template


def _observe(draft: TaskDraft, module: Module) -> Behaviour | None:
    function = module.declarations[-1]
    assert isinstance(function, Function)  # noqa: S101 - as `draft_task` writes it
    arguments = arguments_for(module, function, parse_inputs(draft.inputs), draft.seed)
    behaviour = observe_function(module, function.name, seed=draft.seed, arguments=arguments)
    return behaviour if isinstance(behaviour, Behaviour) and behaviour.is_sharp else None


_NUM_CALLS: Final = 60  # the most argument lists for a task
_SPAN: Final = re.compile(r"(-?\d+)\.\.(-?\d+)")
_WORDS: Final = (
    *("tea", "Oslo", "north", "apple", "river", "Ada", "lamp", "stone", "a", "echo", "Anna", "level", "blue", "kiwi"),
    *("sunset", "garden", "Bob", "ox", "market", "seven", "Zoe", "noon", "paper", "lily"),
)


def arguments_for(
    module: Module, function: Function, inputs: Mapping[str, str], seed: str
) -> Iterator[tuple[Value, ...]]:
    """Yield argument lists for a function, lazily.

    `inputs` maps a parameter or field to its values: a range of ints (`0..40`), texts to choose from (`tea|Oslo`), or a
    key of `KINDS`; and `len(PARAMETER)` to the fewest elements. Anything else gets any value of its type.
    """
    drawn = Drawing(module).lists(function.params, function.generics, seed)
    fields = {
        variant.name: tuple(field.name for field in variant.fields)
        for declaration in module.declarations
        if isinstance(declaration, TypeDef)
        for variant in declaration.variants
    }
    fit = _Fit(inputs, fields, Random(seed))  # noqa: S311 - a reproducible draw, no secret
    names = [param.name for param in function.params]
    for values in islice(drawn, _NUM_CALLS):
        yield tuple([fit.value(value, name) for value, name in zip(values, names, strict=True)])


class _Fit:
    def __init__(self, inputs: Mapping[str, str], fields: Mapping[str, tuple[str, ...]], random: Random) -> None:
        self.inputs = inputs
        self.fields = fields
        self.random = random

    def value(self, value: Value, name: str) -> Value:
        wanted = self.inputs.get(name)
        if isinstance(value, list):
            items = [self.value(item, name) for item in value]
            fewest = int(self.inputs.get(f"len({name})", 0))
            return items + [self.random.randint(-9, 60) for _ in range(fewest - len(items))]
        if isinstance(value, dict):
            return {key: self.value(field, key) for key, field in value.items()}
        if isinstance(value, VariantValue):
            names = self.fields.get(value.name, (name,) * len(value.fields))
            return VariantValue(value.name, tuple(map(self.value, value.fields, names)))
        if wanted is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return self.number(value, wanted)
        if "|" in wanted:
            return self.random.choice(wanted.split("|"))
        return KINDS[wanted](self, value)

    def number(self, value: int, wanted: str) -> int:
        found = _SPAN.fullmatch(wanted)
        assert found is not None, wanted  # noqa: S101 - checked by the test that draws every atom
        low, high = int(found[1]), int(found[2])
        return value if low <= value <= high else low + value % (high - low + 1)

    def words(self, value: str) -> Iterator[str]:
        known = value.split() or [self.random.choice(_WORDS)]
        for _ in range(self.random.randint(1, 5)):
            yield self.random.choice((*known, *_WORDS[: self.random.randint(1, len(_WORDS))]))


KINDS: Final[Mapping[str, Callable[[_Fit, str], str]]] = {
    "phrase": lambda fit, value: " ".join(fit.words(value)),
    "wordlist": lambda fit, value: ",".join(fit.words(value)),
    "padded": lambda fit, value: fit.random.choice(("", " ", "  ")) + value + fit.random.choice(("", " ")),
    "csv": lambda fit, _value: ",".join(str(fit.random.randint(-9, 60)) for _ in range(fit.random.randint(1, 5))),
    "integer": lambda fit, _value: str(fit.random.choice((fit.random.randint(-20, 150), fit.random.randint(-3, 20)))),
}
"""Kinds of text for a parameter, each with its generator."""


def parse_inputs(text: str) -> dict[str, str]:
    """Map each parameter to its values, read from `n=0..40, line=csv`."""
    parts = (part.partition("=") for part in text.split(", ") if part)
    return {name: wanted for name, _, wanted in parts}
