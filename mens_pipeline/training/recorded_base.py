"""The base of an adapter on this machine: by its digest, wherever it lay on the machine that trained."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.training.base_model import HUB, digest_of_folder, refuse_missing, refuse_unfit
from mens_pipeline.training.safetensors_header import num_values_in

_places: Final[list[Path]] = []
"""Where this process looks for bases; the settings say so."""


def look_in(cache: Path) -> None:
    """Look for bases that other machines recorded in a folder, from now on."""
    _places.clear()
    _places.append(cache)


def base_folder(base: dict[str, Any]) -> Path:
    """Return where the base of a run lies on this machine: where it lay then, or wherever one of its digest lies.

    Raises:
        RefusedError: It is nowhere.
    """
    path = Path(base["path"])
    return path if path.is_dir() else recorded_base(base)


def recorded_base(base: dict[str, Any]) -> Path:
    """Return the folder of the base that a run was trained on, if it is still what it was.

    A base is what its digest says. The path is where it lay on the machine that trained; on another one it may lie
    anywhere in the cache of base models.

    Raises:
        RefusedError: It is gone or another one, lacks a file, or would lead the library to another model or to code.
    """
    recorded = Path(base["path"])
    places = chain([recorded], (place for place in _lying_here() if _may_be(place, base["num_values"])))
    path = next((place for place in places if place.is_dir() and digest_of_folder(place) == base["sha256"]), None)
    if path is None:
        found = "changed" if recorded.is_dir() else "gone"
        advice = (
            f"Restore it, put it below MENS_CACHE_ROOT/base_models (SHA-256 {base['sha256'][:12]}), or train again."
        )
        raise RefusedError(f"{recorded}: the base model {base['name']} of this adapter is {found}. {advice}")
    refuse_missing(path)
    refuse_unfit(path)
    return path


def _lying_here() -> Iterator[Path]:
    """Yield the folders that may be base models: those of the cache, and what was fetched from the Hub, into any."""
    from huggingface_hub.constants import HF_HUB_CACHE  # noqa: PLC0415 - only where a base is not where it was

    hubs = [cache / HUB for cache in _places]
    yield from sorted(path.parent for cache in _places for path in cache.glob("*/config.json"))
    for hub in (*hubs, Path(HF_HUB_CACHE)):
        yield from sorted(path.parent for path in hub.glob("models--*/snapshots/*/config.json"))


def _may_be(path: Path, num_values: int) -> bool:
    """Return whether a folder has weights of so many values, by their headers: hashing them all takes minutes."""
    try:
        return sum(map(num_values_in, path.glob("*.safetensors"))) == num_values
    except RefusedError:
        return False
