"""Synthetic pairs: exactly as many as wanted, all different, each kind with its share."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final, TypeVar

from mens_pipeline.corpus.curate.resolution import semantic_problem
from mens_pipeline.corpus.schema.records import ExtractedRecord, Lane, Source, SourceKind
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.corpus.synthesis.families.templates import load_families
from mens_pipeline.corpus.synthesis.mutations import MUTATIONS
from mens_pipeline.corpus.synthesis.program import Program, read_program
from mens_pipeline.corpus.synthesis.repairs import BREAKAGES, repair
from mens_pipeline.corpus.synthesis.sample import Family, Sample
from mens_pipeline.corpus.synthesis.tasks.draw import TASK, draw_tasks
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.language import CONSTRUCTS, Mode, analyze, difficulty, mode_of
from mens_pipeline.language.ast.functions import Forall, Test
from mens_pipeline.language.interpreter import Features, run_tests

Choice = TypeVar("Choice")

KINDS: Final = ("task", "template", "combination", "mutation", "repair")
"""What a synthetic pair can be; its `task_family`."""

_COMBINATION: Final = "combination/"
_FEATURES: Final = Features(check_contracts=True, database=True)
"""As the hidden tests of the benchmark run: what is taught must hold there."""

_RATING: Final = 4
_MOST_TRIES: Final = 100


class SynthesisDrop(StrEnum):
    """Why a program is not kept."""

    FAILING_TESTS = "failing_tests"
    """A test of its own does not pass."""
    SEMANTIC_ERROR = "semantic_errors"
    """In its names or types."""


@dataclass(frozen=True, slots=True)
class Base:
    """A program of the workspace that may be changed."""

    program: Program
    source: Source


def bases_of(records: Sequence[ExtractedRecord]) -> tuple[Base, ...]:
    """Return the programs that may be changed: short accepted records, with all they need."""
    programs = (
        (read_program(record.text, mode_of(record.source.path), record.source.path), record.source)
        for record in records
        if record.lane is Lane.CODEGEN
    )
    return tuple(Base(program, source) for program, source in programs if program is not None and program.is_short)


def generate(  # noqa: PLR0913 - what a generation depends on
    limit: int,
    seed: int,
    shares: Mapping[str, float],
    coverage: Mapping[str, int],
    *,
    bases: Sequence[Base] = (),
    dropped: Callable[[SynthesisDrop, str], None] | None = None,
    workers: int = 1,
) -> Iterator[TrainingPair]:
    """Yield synthetic pairs; the same arguments, however many workers, give the same pairs on every machine.

    `shares` are those of each kind, together 1; a kind that has nothing new gives way to templates. `coverage` counts
    the examples of each construct that are there already; of templates, those of the scarcest construct come first.
    `dropped` takes each program that is not kept: why, and what made it.

    Returns:
        Exactly `limit` pairs, no two with the same prompt and response, all accepted by the front end; the tests of
        those that have any pass, and tasks have hidden tests.

    Raises:
        RefusedError: There are not as many different ones.
        ConfigurationError: A template does not fit, or the front end rejects what it made; the message says where.
    """
    maker = _Maker(seed, coverage, bases, dropped or (lambda _reason, _template: None))
    tasks = draw_tasks(seed, workers=workers, dropped=lambda name: maker.dropped(SynthesisDrop.SEMANTIC_ERROR, name))
    made: Counter[str] = Counter()
    for number in range(limit):
        kind = max(KINDS, key=lambda name: shares[name] * (number + 1) - made[name])
        made[kind] += 1
        yield next(tasks) if kind == TASK else maker.next_pair(kind, limit)


class _Maker:
    """The state of a generation: what was made, and what is still scarce."""

    def __init__(
        self,
        seed: int,
        coverage: Mapping[str, int],
        bases: Sequence[Base],
        dropped: Callable[[SynthesisDrop, str], None],
    ) -> None:
        self.random = Random(seed)  # noqa: S311 - a reproducible draw, no secret
        self.counts = Counter({name: coverage.get(name, 0) for name in CONSTRUCTS})
        self.bases = bases
        self.dropped = dropped
        self.seen: set[bytes] = set()
        self.turns: Counter[str] = Counter()
        self.families = {kind: _families(kind) for kind in ("template", "combination")}

    def next_pair(self, kind: str, limit: int) -> TrainingPair:
        """Make a pair that was not there before: of this kind, or from a template when the kind has nothing new."""
        for attempted in (kind, "template"):
            for _ in range(_MOST_TRIES):
                made = self._make(attempted)
                pair = None if made is None else self._judged(attempted, *made)
                if pair is not None:
                    return pair
        message = f"only {len(self.seen)} different pairs could be made, {limit} were wanted. Ask for fewer."
        raise RefusedError(message)

    def _make(self, kind: str) -> tuple[Sample, Source | None] | None:
        if kind in self.families:
            return self._scarcest(kind).make(self.random), None
        base = self._base()
        if kind == "mutation":
            name = self._turn("mutation", tuple(MUTATIONS))
            sample = MUTATIONS[name](base.program, self.random)
        else:
            name = self._turn("repair", tuple(BREAKAGES))
            sample = repair(base.program, name, self.random)
        if sample is None:
            return None
        self.counts[sample.construct] += 1
        return sample, base.source if base.program.origin else None

    def _scarcest(self, kind: str) -> Family:
        """Return the next family, in turn, of the construct with the fewest examples."""
        families = self.families[kind]
        construct = min(families, key=self.counts.__getitem__)
        # A construct whose families are used up must not block the others.
        self.counts[construct] += 1
        return self._turn(f"{kind} {construct}", families[construct])

    def _base(self) -> Base:
        """Draw a program to change, from the workspace or from a template."""
        if self.bases and self.random.random() < 0.5:  # noqa: PLR2004 - half and half
            return self.random.choice(self.bases)
        kind = self.random.choice(("template", "combination"))
        sample = self._any(kind).make(self.random)
        program = read_program(sample.response, sample.mode)
        if program is None:
            raise _rejected(sample)
        return Base(program, _template_source(sample))

    def _any(self, kind: str) -> Family:
        families = self.families[kind]
        return self.random.choice(families[self.random.choice(tuple(families))])

    def _turn(self, what: str, choices: Sequence[Choice]) -> Choice:
        self.turns[what] += 1
        return choices[(self.turns[what] - 1) % len(choices)]

    def _judged(self, kind: str, sample: Sample, origin: Source | None) -> TrainingPair | None:
        """Return the sample as a pair; None when it was there before, or does not pass its own tests."""
        key = hashlib.sha256(f"{sample.prompt}\0{sample.response}".encode()).digest()
        if key in self.seen:
            return None
        self.seen.add(key)
        module = analyze(sample.response, sample.mode).module
        if module is None or not module.declarations:
            raise _rejected(sample)
        has_tests = any(isinstance(declaration, Test | Forall) for declaration in module.declarations)
        if has_tests and not run_tests(sample.response, features=_FEATURES, mode=sample.mode).passed:
            self.dropped(SynthesisDrop.FAILING_TESTS, sample.template)
            return None
        source = _template_source(sample) if origin is None else origin.model_copy(update={"kind": SourceKind.DERIVED})
        pair = TrainingPair(
            prompt=sample.prompt,
            response=sample.response,
            category=sample.construct,
            rating=_RATING,
            task_family=kind,
            difficulty=difficulty(module),
            template=sample.template,
            source=source,
        )
        if semantic_problem(pair, pair.response, module) is not None:
            self.dropped(SynthesisDrop.SEMANTIC_ERROR, sample.template)
            return None
        return pair


def _families(kind: str) -> dict[str, tuple[Family, ...]]:
    """Construct -> its families of a kind, in the order of CONSTRUCTS."""
    of_kind = [family for family in load_families() if family.name.startswith(_COMBINATION) == (kind == "combination")]
    grouped = {name: tuple(family for family in of_kind if family.construct == name) for name in CONSTRUCTS}
    return {name: families for name, families in grouped.items() if families}


def _rejected(sample: Sample) -> ConfigurationError:
    """Return what to tell the author of a template whose program is none."""
    (place,) = (family.place for family in load_families() if family.name == sample.template)
    errors = analyze(sample.response, sample.mode).errors
    found = "; ".join(f"line {error.start.line}: {error.message}" for error in errors) or "it declares nothing"
    return ConfigurationError(
        f"{place}: {sample.template}: the front end rejects a program of it ({found}). Correct the template. "
        f"The program is:\n{sample.response}"
    )


def _template_source(sample: Sample) -> Source:
    """Return the template as the source of what it made."""
    suffix = ".vox.ui" if sample.mode is Mode.UI else ".vox"
    return Source.of_text(f"synthetic/{sample.template}{suffix}", sample.response, SourceKind.SYNTHETIC)
