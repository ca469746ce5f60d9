"""Artifacts of a run, recorded in `artifacts.json` of its folder, and the held-out pairs of its training."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.errors import RefusedError
from mens_pipeline.models.adapter import TrainingManifest
from mens_pipeline.storage.files import read_regular
from mens_pipeline.storage.jsonl import replacing, write_text
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of

FILE: Final = "artifacts.json"
_MOST_BYTES: Final = 65_536
_KEYS: Final = TypeAdapter(dict[str, str])


def remember(run_dir: Path, artifact: Artifact, names: Iterable[str] = ()) -> None:
    """Record the artifact of a run, one of each kind, and copy its named documents atomically into the folder."""
    for name in filter(artifact.outputs.get, names):
        with replacing(run_dir / name) as copy:
            copy.write((artifact.path / name).read_bytes())
    _write(run_dir, {**_keys(run_dir), artifact.kind: artifact.key})


def forget(run_dir: Path, kind: str) -> None:
    """Remove the record of a run's artifact of one kind."""
    _write(run_dir, {other: key for other, key in _keys(run_dir).items() if other != kind})


def recall_artifact(run_dir: Path, kind: str, document: str, store: ArtifactStore, advice: str) -> Artifact:
    """Return the recorded artifact of a run; `RefusedError` if it is missing, or its document was changed."""
    key = _keys(run_dir).get(kind)
    found = store.get(kind, key) if key is not None else None
    copy = run_dir / document
    if found is None or not copy.is_file():
        raise RefusedError(f"{copy}: not found, or not in {store.root}. {advice}")
    if digest_of(copy) != found.outputs.get(document):
        raise RefusedError(f"{copy}: changed since it was written. {advice}")
    return found


def _write(run_dir: Path, keys: dict[str, str]) -> None:
    write_text(run_dir / FILE, json.dumps(keys, indent=2, sort_keys=True) + "\n")


def _keys(run_dir: Path) -> dict[str, str]:
    path = run_dir / FILE
    if not path.is_file():
        return {}
    try:
        return _KEYS.validate_json(read_regular(path, _MOST_BYTES))
    except (OSError, ValidationError) as error:
        raise RefusedError(
            f"{path}: not a document of `mens eval-local`. Delete it, and evaluate the run again."
        ) from error


def heldout_beside(manifest: TrainingManifest) -> Path:
    """Return the path of the held-out pairs next to the train set of a run; refuse (`RefusedError`) if missing."""
    path = manifest.train_file.with_name(HELDOUT)
    if not path.is_file():
        advice = "Restore them, or train without --fast-corpus; evaluations with `--heldout FILE` need an override."
        raise RefusedError(f"{path}: no held-out pairs next to the train set. {advice}")
    return path


def heldout_of_training(manifest: TrainingManifest) -> Path:
    """Return the path of a run's held-out pairs, after checking them and the train set against the manifest.

    Only these are known to be held out: any other file may hold rows that the adapter has seen. `RefusedError` if
    either is missing or was changed.
    """
    path, expected = manifest.train_file, manifest.train_sha256
    found = digest_of(path) if path.is_file() else None
    if found != expected:
        what = "gone" if found is None else f"changed (SHA-256 {found[:12]}, expected {expected[:12]})"
        raise RefusedError(f"{path}: the train set of this run is {what}. Restore it, or train again.")
    heldout = heldout_beside(manifest)
    if digest_of(heldout) != manifest.heldout_sha256:
        advice = "Restore them, or train again."
        raise RefusedError(f"{heldout}: not the pairs that were held out when this run trained. {advice}")
    return heldout
