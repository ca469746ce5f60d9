"""Synthetic pairs: exactly the requested number, all distinct, with a share for each kind, scarce constructs first."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from mens_pipeline.corpus.curate.pipeline_config import SynthesizePolicy
from mens_pipeline.corpus.curate.validate import find_semantic_error
from mens_pipeline.corpus.extract.batches import ONE_PROCESS, Pool
from mens_pipeline.corpus.extract.extracted_corpus import RECORDS
from mens_pipeline.corpus.schema.account import Account
from mens_pipeline.corpus.schema.reasons import SynthesisDrop
from mens_pipeline.corpus.schema.records import (
    ExtractedRecord,
    Source,
    SourceKind,
    TrainingPair,
    pair_digest,
    read_records,
)
from mens_pipeline.corpus.synthesis.families.templates import Family, Sample, load_families
from mens_pipeline.corpus.synthesis.tasks.draw import draw_tasks
from mens_pipeline.corpus.synthesis.tasks.templates import TASK
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.language import CONSTRUCTS, Mode, analyze, difficulty
from mens_pipeline.language.ast import Forall, Test
from mens_pipeline.language.interpreter import Features, run_tests
from mens_pipeline.storage.jsonl import open_rows, write_jsonl, write_text
from mens_pipeline.storage.kinds import Kind, SyntheticFile
from mens_pipeline.storage.stage import Helper, Params, Parent, Stage
from mens_pipeline.storage.store import Details

KINDS: Final = ("task", "template", "combination")
"""Kinds of synthetic pairs, by their `task_family`."""

_FEATURES: Final = Features(check_contracts=True, database=True)
"""The features of the benchmark's hidden tests, where the taught programs must pass."""

_MOST_TRIES: Final = 100


class SyntheticDetails(Details):
    """Counts in the manifest of synthetic pairs."""

    num_pairs: int


def generate(  # noqa: PLR0913 - the inputs of a generation
    limit: int,
    seed: int,
    shares: Mapping[str, float],
    coverage: Mapping[str, int],
    *,
    dropped: Callable[[SynthesisDrop, str], None] = lambda _reason, _template: None,
    pool: Pool = ONE_PROCESS,
) -> Iterator[TrainingPair]:
    """Yield exactly `limit` synthetic pairs; the same arguments give the same pairs on every machine, with any pool.

    All pairs are distinct and accepted by the front end, their own tests pass, and tasks have hidden tests. `shares`
    maps each kind to its share; together they are 1. A kind without new pairs gives way to templates. `coverage` counts
    the existing examples of each construct; templates of the scarcest construct come first. `dropped` is called with
    the reason and the template of each dropped program.

    Raises:
        RefusedError: There are fewer distinct pairs.
        ConfigurationError: A template is invalid, or the front end rejects its program; the message names the place.
    """
    maker = _Maker(seed, coverage, dropped)
    tasks = draw_tasks(seed, pool=pool, dropped=lambda name: maker.dropped(SynthesisDrop.SEMANTIC_ERROR, name))
    made: Counter[str] = Counter()
    for number in range(limit):
        kind = max(KINDS, key=lambda name: shares[name] * (number + 1) - made[name])
        made[kind] += 1
        yield next(tasks) if kind == TASK else maker.next_pair(kind, limit)


class _Maker:
    def __init__(self, seed: int, coverage: Mapping[str, int], dropped: Callable[[SynthesisDrop, str], None]) -> None:
        self.random = Random(seed)  # noqa: S311 - a reproducible draw, no secret
        self.counts = Counter({name: coverage.get(name, 0) for name in CONSTRUCTS})
        self.dropped = dropped
        self.seen: set[bytes] = set()
        self.turns: Counter[tuple[str, str]] = Counter()
        self.families = {kind: _group_families(kind) for kind in ("template", "combination")}

    def next_pair(self, kind: str, limit: int) -> TrainingPair:
        for attempted in (kind, "template"):
            for _ in range(_MOST_TRIES):
                pair = self._build_pair(attempted, self._scarcest(attempted).make(self.random))
                if pair is not None:
                    return pair
        message = f"only {len(self.seen)} different pairs could be made, {limit} were wanted. Ask for fewer."
        raise RefusedError(message)

    def _scarcest(self, kind: str) -> Family:
        families = self.families[kind]
        construct = min(families, key=self.counts.__getitem__)
        # A construct whose families are used up must not block the others.
        self.counts[construct] += 1
        self.turns[kind, construct] += 1
        return families[construct][(self.turns[kind, construct] - 1) % len(families[construct])]

    def _build_pair(self, kind: str, sample: Sample) -> TrainingPair | None:
        key = pair_digest(sample.prompt, sample.response)
        if key in self.seen:
            return None
        self.seen.add(key)
        module = analyze(sample.response, sample.mode).module
        if module is None or not module.declarations:
            raise _explain_rejection(sample)
        has_tests = any(isinstance(declaration, Test | Forall) for declaration in module.declarations)
        if has_tests and not run_tests(sample.response, features=_FEATURES, mode=sample.mode).passed:
            self.dropped(SynthesisDrop.FAILING_TESTS, sample.template)
            return None
        suffix = ".vox.ui" if sample.mode is Mode.UI else ".vox"
        pair = TrainingPair(
            prompt=sample.prompt,
            response=sample.response,
            category=sample.construct,
            rating=4,
            task_family=kind,
            difficulty=difficulty(module),
            template=sample.template,
            source=Source.of_text(f"synthetic/{sample.template}{suffix}", sample.response, SourceKind.SYNTHETIC),
        )
        if find_semantic_error(pair, pair.response, module) is not None:
            self.dropped(SynthesisDrop.SEMANTIC_ERROR, sample.template)
            return None
        return pair


def _group_families(kind: str) -> dict[str, tuple[Family, ...]]:
    of_kind = [one for one in load_families() if one.name.startswith("combination/") == (kind == "combination")]
    grouped = {name: tuple(family for family in of_kind if family.construct == name) for name in CONSTRUCTS}
    return {name: families for name, families in grouped.items() if families}


def _explain_rejection(sample: Sample) -> ConfigurationError:
    (place,) = (family.place for family in load_families() if family.name == sample.template)
    errors = analyze(sample.response, sample.mode).errors
    found = "; ".join(f"line {error.start.line}: {error.message}" for error in errors) or "it declares nothing"
    return ConfigurationError(
        f"{place}: {sample.template}: the front end rejects a program of it ({found}). Correct the template. "
        f"The program is:\n{sample.response}"
    )


@dataclass(kw_only=True)
class SynthesisAccount(Account[SynthesisDrop]):
    """Counts of synthetic programs: kept ones are pairs, and `failures` counts the others by reason and template."""

    kinds: Counter[str] = field(default_factory=Counter)
    templates: Counter[str] = field(default_factory=Counter)
    constructs: Counter[str] = field(default_factory=Counter)
    failures: Counter[tuple[SynthesisDrop, str]] = field(default_factory=Counter)

    def add(self, pair: TrainingPair) -> TrainingPair:
        """Count a pair and return it."""
        self.seen += 1
        self.kept += 1
        self.kinds[pair.task_family] += 1
        self.templates[str(pair.template)] += 1
        self.constructs[pair.category] += 1
        return pair

    def drop(self, reason: SynthesisDrop, template: str) -> None:
        """Count a program that was not kept."""
        self.seen += 1
        self.dropped[reason] += 1
        self.failures[reason, template] += 1

    def dropped_for(self, reason: SynthesisDrop) -> dict[str, int]:
        """Return the templates of the programs dropped for a reason, with counts."""
        return {template: count for (why, template), count in sorted(self.failures.items()) if why is reason}

    def as_json(self, coverage: Mapping[str, int]) -> dict[str, Any]:
        """Return counts and shares in JSON types; `coverage` counts the examples of each construct before."""
        return {
            "num_pairs": self.kept,
            **{str(reason): self.dropped_for(reason) for reason in SynthesisDrop},
            "kinds": {name: self._share(count) for name, count in sorted(self.kinds.items())},
            "templates": {name: self._share(count) for name, count in sorted(self.templates.items())},
            "constructs": {
                name: {"before": coverage.get(name, 0), **self._share(self.constructs[name])} for name in CONSTRUCTS
            },
        }

    def _share(self, count: int) -> dict[str, Any]:
        return {"count": count, "share": count / self.kept if self.kept else None}


def count_constructs(constructs: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Count the texts that show each construct."""
    counts: Counter[str] = Counter()
    for shown in constructs:
        counts.update(shown.keys())
    return {name: counts[name] for name in CONSTRUCTS}


PAIRS: Final = SyntheticFile.PAIRS
REPORT: Final = SyntheticFile.REPORT


class SynthesisParams(Params):
    """A corpus, and the policy of its synthetic pairs."""

    corpus: Parent
    policy: SynthesizePolicy
    pool: Helper[Pool] = ONE_PROCESS


def write_synthetic_corpus(folder: Path, params: SynthesisParams) -> dict[str, Any]:
    """Generate the synthetic pairs for a corpus; raise `RefusedError` if there are too few distinct ones.

    Writes `synthetic.jsonl` and `report.json`; returns the report without its templates, for the manifest.
    """
    path = params.corpus.file(RECORDS)
    with open_rows(path) as lines:
        records = list(read_records(lines, path))
    report = write_synthetic(folder / PAIRS, records, params.policy, pool=params.pool)
    write_text(folder / REPORT, json.dumps(report, indent=2) + "\n")
    return {key: value for key, value in report.items() if key != "templates"}


STAGE: Final = Stage(Kind.SYNTHETIC_CORPUS, (__name__,), write_synthetic_corpus)


def write_synthetic(
    path: Path,
    records: Sequence[ExtractedRecord],
    policy: SynthesizePolicy,
    *,
    pool: Pool = ONE_PROCESS,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Generate pairs into a file, and return counts and shares by kind, template and construct.

    `records` may be empty; `progress` is called with the number of pairs after each one. Raises `RefusedError`, and
    writes nothing, if there are too few distinct pairs.
    """
    coverage = count_constructs(record.constructs for record in records)
    account = SynthesisAccount()
    shares = policy.shares.model_dump()
    made = generate(policy.limit, policy.seed, shares, coverage, dropped=account.drop, pool=pool)

    def count_pairs() -> Iterator[TrainingPair]:
        for pair in made:
            yield account.add(pair)
            if progress is not None:
                progress(account.kept)

    write_jsonl(path, count_pairs())
    account.check()
    return {**policy.model_dump(), **account.as_json(coverage)}
