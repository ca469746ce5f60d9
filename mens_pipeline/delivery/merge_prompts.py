"""Held-out prompts of a run by which two models are compared."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.heldout_split import KIND as SPLIT
from mens_pipeline.corpus.schema.reading import read_pairs
from mens_pipeline.delivery.agreement import spread
from mens_pipeline.delivery.merge_source import MergeSource
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.tasks import Task, heldout_tasks
from mens_pipeline.storage.store import ArtifactStore, digest_of


@dataclass(frozen=True, slots=True)
class Prompts:
    """Held-out prompts that two models answer, and the digest of their file."""

    tasks: tuple[Task, ...]
    heldout_sha256: str


def prompts_of(
    source: MergeSource, named: Path | None, store: ArtifactStore, fits: Callable[[str], bool], number: int
) -> Prompts:
    """Return held-out prompts of a run whose answer fits, evenly spread; of a named file, or of that of the run.

    Raises:
        RefusedError: The held-out pairs are not to be found, or hold nothing to ask.
    """
    path = named if named is not None else _heldout_of(source, store)
    tasks = tuple(task for task in heldout_tasks(read_pairs(path)) if fits(task.reference))
    if not tasks:
        raise RefusedError(f"{path}: no held-out code whose answer fits. Name another file with --heldout FILE.")
    return Prompts(spread(tasks, number), digest_of(path))


def _heldout_of(source: MergeSource, store: ArtifactStore) -> Path:
    """Find the held-out pairs that the run was judged by; of one that was not judged, those beside its train set."""
    beside = store.located(Path(source.manifest["train_file"])).with_name(HELDOUT)
    subject = source.receipt.subject if source.receipt is not None else None
    if subject is None:
        if beside.is_file():
            return beside
        raise RefusedError(f"{beside}: no held-out pairs beside the train set. Name them with --heldout FILE.")
    splits = sorted((store.root / SPLIT).glob(f"*/{HELDOUT}"))
    for path in (beside, *splits):
        if path.is_file() and digest_of(path) == subject.heldout_sha256:
            return path
    found = f"no {HELDOUT} with SHA-256 {subject.heldout_sha256[:12]}, which it was judged by"
    raise RefusedError(f"{beside.parent}, {store.root / SPLIT}: {found}. Name the file with --heldout FILE.")
