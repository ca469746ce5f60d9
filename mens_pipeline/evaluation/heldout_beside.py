"""The held-out pairs that belong to a run: those that lie beside the rows it was trained on."""

from pathlib import Path
from typing import Any

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.prepare import manifest_of
from mens_pipeline.storage.store import digest_of


def heldout_beside(manifest: dict[str, Any]) -> Path:
    """Return the path of the held-out pairs beside the train set of a run.

    Raises:
        RefusedError: There are none.
    """
    path = Path(manifest["train_file"]).with_name(HELDOUT)
    if not path.is_file():
        advice = "Restore them; what is judged by others, `mens eval-local --heldout FILE`, needs an override."
        raise RefusedError(f"{path}: no held-out pairs beside the train set. {advice}")
    return path


def heldout_of_training(run: Path) -> Path:
    """Return the path of a run's held-out pairs, and check that they and its train set are those it was trained with.

    Only of these it is known that they were held out: any other file may hold what the adapter has seen.

    Raises:
        RefusedError: They cannot be told; the message says why.
    """
    manifest = manifest_of(run)
    path, expected = Path(manifest["train_file"]), manifest["train_sha256"]
    found = digest_of(path) if path.is_file() else None
    if found != expected:
        what = "gone" if found is None else f"changed since ({found[:12]}, it was {expected[:12]})"
        raise RefusedError(f"{path}: the train set of this run is {what}. Restore it, or train again.")
    heldout = heldout_beside(manifest)
    if digest_of(heldout) != manifest["heldout_sha256"]:
        advice = "Restore them, or train again."
        raise RefusedError(f"{heldout}: not the pairs that were held out when this run trained. {advice}")
    return heldout
