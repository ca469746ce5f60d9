"""The synthetic pairs as an artifact: made for a corpus, what it shows least first."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mens_pipeline.corpus.curate.pipeline_config import SynthesizePolicy
from mens_pipeline.corpus.extract.extracted_corpus import RECORDS
from mens_pipeline.corpus.schema.reading import read_records
from mens_pipeline.corpus.schema.records import ExtractedRecord
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.corpus.synthesis.generate import SynthesisDrop, bases_of, generate
from mens_pipeline.language import CONSTRUCTS
from mens_pipeline.storage.jsonl import open_rows, write_jsonl, write_text
from mens_pipeline.storage.stage import Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore


@dataclass
class SynthesisAccount:
    """Counts over synthetic pairs.

    `dropped` counts programs by why they were not kept, and what made them.
    """

    num_pairs: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    templates: Counter[str] = field(default_factory=Counter)
    constructs: Counter[str] = field(default_factory=Counter)
    dropped: Counter[tuple[SynthesisDrop, str]] = field(default_factory=Counter)

    def add(self, pair: TrainingPair) -> TrainingPair:
        """Count a pair and pass it on."""
        self.num_pairs += 1
        self.kinds[pair.task_family] += 1
        self.templates[str(pair.template)] += 1
        self.constructs[pair.category] += 1
        return pair

    def drop(self, reason: SynthesisDrop, template: str) -> None:
        """Count a program that was not kept."""
        self.dropped[reason, template] += 1

    def dropped_for(self, reason: SynthesisDrop) -> dict[str, int]:
        """Return what made the programs that were not kept for a reason, with their number."""
        return {template: count for (why, template), count in sorted(self.dropped.items()) if why is reason}

    def as_json(self, coverage: Mapping[str, int]) -> dict[str, Any]:
        """Return the counts and shares in JSON types.

        `coverage` counts the examples of each construct that were there before.
        """
        return {
            "num_pairs": self.num_pairs,
            **{str(reason): self.dropped_for(reason) for reason in SynthesisDrop},
            "kinds": self._shares(sorted(self.kinds), self.kinds),
            "templates": self._shares(sorted(self.templates), self.templates),
            "constructs": {
                name: {"before": coverage.get(name, 0), **self._share(self.constructs[name])} for name in CONSTRUCTS
            },
        }

    def _shares(self, names: Iterable[str], counts: Counter[str]) -> dict[str, Any]:
        return {name: self._share(counts[name]) for name in names}

    def _share(self, count: int) -> dict[str, Any]:
        return {"count": count, "share": count / self.num_pairs if self.num_pairs else None}


def coverage_of(constructs: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Construct -> texts that show it."""
    counts: Counter[str] = Counter()
    for shown in constructs:
        counts.update(shown.keys())
    return {name: counts[name] for name in CONSTRUCTS}


KIND: Final = "synthetic_corpus"
STAGE: Final = Stage(KIND, (__name__,))
PAIRS: Final = "synthetic.jsonl"
REPORT: Final = "report.json"


def build_synthetic_corpus(
    corpus: Artifact, policy: SynthesizePolicy, store: ArtifactStore, *, workers: int = 1
) -> tuple[Artifact, bool]:
    """Make the synthetic pairs for a corpus, unless the same were made before.

    Returns:
        The pairs, and whether they were reused. The folder holds `synthetic.jsonl` and `report.json`; the manifest
        holds the report without the single templates.

    Raises:
        RefusedError: There are not as many different pairs.
        ConfigurationError: The store cannot be written.
    """
    params = {"policy": policy.model_dump()}
    return STAGE.build(store, [corpus], params, lambda folder: _write(corpus, policy, folder, workers))


def _write(corpus: Artifact, policy: SynthesizePolicy, folder: Path, workers: int) -> dict[str, Any]:
    path = corpus.path / RECORDS
    with open_rows(path) as lines:
        records = list(read_records(lines, path))
    report = write_synthetic(folder / PAIRS, records, policy, workers=workers)
    write_text(folder / REPORT, json.dumps(report, indent=2) + "\n")
    return {key: value for key, value in report.items() if key != "templates"}


def write_synthetic(
    path: Path,
    records: Sequence[ExtractedRecord],
    policy: SynthesizePolicy,
    *,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Generate pairs into a file, and return counts and shares by kind, template and construct.

    There may be no records; `progress` takes the number of pairs made so far, after each.

    Raises:
        RefusedError: There are not as many different pairs; nothing is written.
        ConfigurationError: The folder cannot be written.
    """
    coverage = coverage_of(record.constructs for record in records)
    account = SynthesisAccount()
    shares = policy.shares.model_dump()
    bases = bases_of(records)
    made = generate(policy.limit, policy.seed, shares, coverage, bases=bases, dropped=account.drop, workers=workers)

    def counted() -> Iterator[TrainingPair]:
        for pair in made:
            yield account.add(pair)
            if progress is not None:
                progress(account.num_pairs)

    write_jsonl(path, counted())
    return {**policy.model_dump(), **account.as_json(coverage)}
