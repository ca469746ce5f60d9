"""From judged answers to rows that train: accepted ones, and pairs of which one is preferred."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from mens_pipeline.corpus.evolution.seeds import digest_of_pair
from mens_pipeline.corpus.schema.reading import read_pairs
from mens_pipeline.corpus.schema.records import Source, SourceKind
from mens_pipeline.corpus.schema.training_pair import Lineage, TrainingPair
from mens_pipeline.evaluation.tasks import training_tasks
from mens_pipeline.feedback.config import FeedbackConfig
from mens_pipeline.feedback.samples import Sample, read_samples
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.stage import Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline.training.preference.job import PreferencePair

KIND: Final = "feedback_pairs"
STAGE: Final = Stage(KIND, (__name__,))
FEEDBACK: Final = "feedback"
"""The kind (`task_family`) of accepted answers among the rows that train."""

RAFT: Final = "raft.jsonl"
"""The rows of the train set, and the accepted answers behind them."""

PREFERENCES: Final = "preferences.jsonl"
BAND: Final = "band.jsonl"
"""Rows whose answers were not all worth the same: what rewards can teach something on."""

_GENERATOR: Final = "adapter"


def build_feedback_pairs(
    samples: Artifact, train: Path, heldout: Path, config: FeedbackConfig, store: ArtifactStore
) -> tuple[Artifact, bool]:
    """Choose what is learnt of judged answers.

    An answer that is the response of a held-out pair is not learnt either.

    Returns:
        The rows, and whether they were reused. The folder holds `raft.jsonl`, `preferences.jsonl` and
        `band.jsonl`.

    Raises:
        ConfigurationError: The store cannot be written.
    """
    config = config.model_copy(update={"seed": samples.manifest["inputs"]["config"]["seed"]})
    params = {
        "train_sha256": digest_of(train),
        "heldout_sha256": digest_of(heldout),
        "per_prompt": config.per_prompt,
        "seed": config.seed,
    }

    def write(folder: Path) -> dict[str, Any]:
        by_task, every = training_tasks(read_pairs(train)), read_samples(samples)
        never = {" ".join(pair.response.split()) for pair in read_pairs(heldout)}
        judged = [sample for sample in every if " ".join(sample.program.split()) not in never]
        rows = {name: pair for name, (_, pair) in by_task.items()}
        accepted = list(accepted_rows(judged, rows, config))
        write_jsonl(folder / RAFT, chain(read_pairs(train), accepted))
        preferences = list(preferences_of(judged, rows, config))
        write_jsonl(folder / PREFERENCES, preferences)
        band = list(band_of(judged, rows))
        write_jsonl(folder / BAND, band)
        return {
            "num_band": len(band),
            "num_accepted": len(accepted),
            "num_pairs": len(preferences),
            "num_of_loops": sum(not pair.rejected_stopped for pair in preferences),
            "num_held_out": len(every) - len(judged),
            "num_by_reference": sum(pair.lineage is None for pair in preferences),
        }

    return STAGE.build(store, [samples], params, write)


def accepted_rows(
    samples: Iterable[Sample], rows: Mapping[str, TrainingPair], config: FeedbackConfig
) -> Iterator[TrainingPair]:
    """Yield the accepted answers as rows; of each prompt the first of every structure, a few at most."""
    for name, some in by_prompt(samples).items():
        for sample in _different(some)[: config.per_prompt]:
            yield _row(sample, rows[name], config.seed)


def preferences_of(
    samples: Iterable[Sample], rows: Mapping[str, TrainingPair], config: FeedbackConfig
) -> Iterator[PreferencePair]:
    """Yield pairs: an accepted answer, or without one the response of the train set, over an answer that failed.

    Answers that were cut off come first, the worst and most repetitive ones before others. A prompt whose answers are
    all accepted gives none.
    """
    for name, some in by_prompt(samples).items():
        preferred = [_row(sample, rows[name], config.seed) for sample in _different(some)] or [rows[name]]
        failed = {sample.text: sample for sample in some if not sample.is_accepted and sample.text.strip()}
        worst_first = sorted(failed.values(), key=lambda s: (s.stopped, s.reward.value, -s.repetition, s.sample))
        for number, sample in enumerate(worst_first[: config.per_prompt]):
            row = preferred[number % len(preferred)]
            yield PreferencePair(
                **dict(row), rejected=sample.text, rejected_stopped=sample.stopped, why=f"rejected: {sample.reward.why}"
            )


def band_of(samples: Iterable[Sample], rows: Mapping[str, TrainingPair]) -> Iterator[TrainingPair]:
    """Yield the rows whose answers have different rewards."""
    for name, some in by_prompt(samples).items():
        if len({sample.reward.value for sample in some}) > 1:
            yield rows[name]


def by_prompt(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """Group judged answers by their task, in order."""
    grouped: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        grouped[sample.task].append(sample)
    return dict(grouped)


def _different(samples: Sequence[Sample]) -> list[Sample]:
    """Return the accepted answers, the first of each structure."""
    first: dict[str | None, Sample] = {}
    for sample in samples:
        if sample.is_accepted:
            first.setdefault(sample.structure, sample)
    return list(first.values())


def _row(sample: Sample, row: TrainingPair, seed: int) -> TrainingPair:
    """Return an accepted answer as a row; it stands where the row of its prompt stands."""
    program = sample.program.rstrip() + "\n"
    source = row.source and Source(
        path=row.source.path,
        blob=hashlib.sha256(program.encode()).hexdigest(),
        span=(0, len(program)),
        lines=(1, program.count("\n")),
        kind=SourceKind.EVOLVED,
    )
    lineage = Lineage(
        parent=digest_of_pair(row),
        operator=FEEDBACK,
        generation=1,
        generator=_GENERATOR,
        generator_digest=sample.adapter_sha256,
        seed=seed,
        root_kind=row.source and row.source.kind,
    )
    changes = {"response": program, "task_family": FEEDBACK, "source": source, "lineage": lineage}
    return row.model_copy(update=changes)
