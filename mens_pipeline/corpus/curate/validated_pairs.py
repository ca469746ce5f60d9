"""The validated pairs as an artifact: records judged again and made into pairs, synthetic and told ones beside them."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.corpus.curate.pairs import BehaviourCounts, make_pairs
from mens_pipeline.corpus.curate.pipeline_config import ValidatePolicy
from mens_pipeline.corpus.curate.repetition import Repetition
from mens_pipeline.corpus.curate.validate import Quarantined, ValidationReport, validate_rows
from mens_pipeline.corpus.extract.extracted_corpus import RECORDS
from mens_pipeline.corpus.schema.records import ExtractedRecord
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.storage.jsonl import open_rows, write_jsonl
from mens_pipeline.storage.stage import Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of

Row = TypeVar("Row", ExtractedRecord, TrainingPair)

KIND: Final = "validated_pairs"
STAGE: Final = Stage(KIND, (__name__,))
PAIRS: Final = "pairs.jsonl"
QUARANTINE: Final = "quarantine.jsonl"


def build_validated_pairs(
    corpus: Artifact, others: Iterable[Path], policy: ValidatePolicy, store: ArtifactStore
) -> tuple[Artifact, bool]:
    """Validate a corpus and make its pairs, and validate pairs from elsewhere, unless the same was done before.

    `others` are files of pairs, `synthetic.jsonl` or `telemetry.jsonl`; each is validated under its own name.

    Returns:
        The pairs, and whether they were reused. The folder holds `pairs.jsonl`, a file for each of the others, and
        `quarantine.jsonl`; the manifest holds the counts.

    Raises:
        ConfigurationError: The store cannot be written.
    """
    files = {path.name: path for path in others}
    parents = store.holding(corpus.path, *files.values())
    params = {
        "others": {name: digest_of(path) for name, path in files.items()},
        "policy": policy.model_dump(),
    }
    return STAGE.build(
        store, parents, params, lambda folder: _Writing(folder, policy).write(corpus.path / RECORDS, files)
    )


class _Writing:
    """The files of one artifact in the making."""

    def __init__(self, folder: Path, policy: ValidatePolicy) -> None:
        self.folder = folder
        self.policy = policy
        self.refused: list[Quarantined] = []
        self.lanes: Counter[str] = Counter()
        self.categories: Counter[str] = Counter()
        self.num_pairs: dict[str, int] = {}
        self.validation: dict[str, Any] = {}
        self.behaviour = BehaviourCounts()

    def write(self, records: Path, others: dict[str, Path]) -> dict[str, Any]:
        rows = self._validated(records, RECORDS, Repetition(self.policy))
        with BehaviourWorkers() as workers:
            self._write(PAIRS, make_pairs(_all_of(ExtractedRecord, rows), workers, self.behaviour))
        for name, path in others.items():
            # Whether they repeat pairs of other files is seen when all are there: when they are split.
            rows = self._validated(path, name, Repetition(None))
            self._write(name, _all_of(TrainingPair, rows))
        write_jsonl(self.folder / QUARANTINE, self.refused)
        return {
            "num_pairs": self.num_pairs,
            "validation": self.validation,
            "behaviour": self.behaviour.as_json(),
            "lanes": dict(sorted(self.lanes.items())),
            "categories": dict(sorted(self.categories.items())),
        }

    def _validated(self, path: Path, name: str, repetition: Repetition) -> Iterator[ExtractedRecord | TrainingPair]:
        report = ValidationReport(recheck=True)
        with open_rows(path) as lines:
            yield from validate_rows(lines, report, self.refused.append, repetition)
        self.validation[name] = report.as_json()

    def _write(self, name: str, pairs: Iterable[TrainingPair]) -> None:
        self.num_pairs[name] = write_jsonl(self.folder / name, self._counted(pairs))

    def _counted(self, pairs: Iterable[TrainingPair]) -> Iterator[TrainingPair]:
        for pair in pairs:
            self.lanes[pair.lane] += 1
            self.categories[pair.category] += 1
            yield pair


def _all_of(kind: type[Row], rows: Iterable[ExtractedRecord | TrainingPair]) -> Iterator[Row]:
    """Yield the rows of a file of ours, which holds one kind alone."""
    for row in rows:
        assert isinstance(row, kind), f"a {type(row).__name__} among {kind.__name__}s"  # noqa: S101 - our own impossibility
        yield row
