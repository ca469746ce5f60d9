"""The adapter to merge: that of a run, or the champion; refused where it cannot be merged."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.adapter_config import read_adapter_config
from mens_pipeline.inference.prepare import WEIGHTS, adapter_digest, manifest_of
from mens_pipeline.promotion.benchmark_gate import receipt_in
from mens_pipeline.promotion.history import KIND as PROMOTED
from mens_pipeline.promotion.history import champion_of, history_of, withdrawn
from mens_pipeline.promotion.receipt import RECEIPT, Receipt
from mens_pipeline.storage.store import MANIFEST as STORE_MANIFEST
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline.training.job import ADAPTER
from mens_pipeline.training.manifest import MANIFEST
from mens_pipeline.training.recorded_base import recorded_base
from mens_pipeline.training.safetensors_header import Shape, shapes_in

_MATRIX: Final = re.compile(r"base_model\.model\.(?P<layer>.+)\.lora_(?P<half>[AB])\.weight")
_SHOWN: Final = 3
_ADVICE: Final = "Name the run that it was trained in."


def refuse_misfit(adapter: Path, manifest: dict[str, Any]) -> None:
    """Check that an adapter can be merged into its base.

    Raises:
        RefusedError: The base is gone, another one or leads to one, or the adapter is not what training writes, or
            does not fit it.
    """
    base = manifest["base_model"]
    path = recorded_base(base)
    config = read_adapter_config(adapter)
    weights = adapter / WEIGHTS
    shapes = {name: shape for file in sorted(path.glob("*.safetensors")) for name, shape in shapes_in(file).items()}
    reasons = list(_objections(shapes_in(weights), shapes, config.r))
    if reasons:
        shown = "; ".join(reasons[:_SHOWN])
        more = f"; and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
        raise RefusedError(f"{weights}: does not fit {base['name']}: {shown}{more}. {_ADVICE}")


def _objections(adapter: dict[str, Shape], base: dict[str, Shape], rank: int) -> Iterator[str]:
    """Yield a reason for everything that does not fit, a phrase each."""
    halves: dict[str, dict[str, Shape]] = {}
    for name, shape in adapter.items():
        found = _MATRIX.fullmatch(name)
        if found is None:
            yield f"{name} is no LoRA matrix"
        else:
            halves.setdefault(found["layer"], {})[found["half"]] = shape
    if not halves:
        yield "it holds no LoRA matrix at all"
    for layer, pair in halves.items():
        targets = _targets(layer, base)
        if not targets:
            yield f"the base has no {layer}"
        elif set(pair) != {"A", "B"}:
            yield f"{layer} has one matrix of two"
        elif not any(pair == {"A": (rank, target[1]), "B": (target[0], rank)} for target in targets):
            yield f"{layer} is {targets[0]}, the adapter has {pair['B']} by {pair['A']}, of rank {rank}"


def _targets(layer: str, base: dict[str, Shape]) -> list[Shape]:
    """Return the shapes of what may be the weight of a layer: some families put other words before `layers.`."""
    exact = base.get(f"{layer}.weight")
    if exact is not None:
        return [exact]
    tail = layer[layer.find("layers.") :] if "layers." in layer else layer
    return [shape for name, shape in base.items() if name.endswith(f".{tail}.weight")]


SCRATCH: Final = "scratch"
_SCRATCH_KIND: Final = "scratch_model"


@dataclass(frozen=True, slots=True)
class MergeSource:
    """An adapter that can be merged.

    Attributes:
        run: The folder with `adapter/` and its training manifest.
        promoted: The same adapter as it was promoted; None when it was not, or was taken out of use since.
        receipt: The verdict on this very adapter; None without one.
    """

    run: Path
    manifest: dict[str, Any]
    adapter_sha256: str
    promoted: Artifact | None
    receipt: Receipt | None
    receipt_path: Path | None

    @property
    def verdict_sha256(self) -> str | None:
        """SHA-256 of the verdict, hexadecimal; None without one."""
        return digest_of(self.receipt_path) if self.receipt_path is not None else None


def merge_source(run: Path | None, store: ArtifactStore) -> MergeSource:
    """Return the adapter of a run, or the champion when no run is named.

    Raises:
        RefusedError: There is no champion; the run is not complete, or of the scratch lane; the adapter is no LoRA
            adapter, or of another base; the base is gone.
    """
    champion = champion_of(store) if run is None else None
    if run is None and champion is None:
        raise RefusedError(f"{store.root / PROMOTED}: no champion. Promote an adapter, or name one with --run-dir DIR.")
    folder = champion.path if champion is not None else run
    assert folder is not None, "one of the two is there"  # noqa: S101 - our own impossibility
    if lane_of(folder) == SCRATCH:
        mean = f"The mean of its checkpoints: mens merge-weights {folder} --output-dir DIR"
        advice = f"It has no adapter and no base: it is whole as it is. {mean}"
        raise RefusedError(f"{folder}: a model of the scratch lane. {advice}")
    manifest = manifest_of(folder)
    adapter_sha256 = adapter_digest(folder)
    refuse_misfit(folder / ADAPTER, manifest)
    promoted = promoted_of(store, adapter_sha256)
    where = promoted.path if promoted is not None else folder
    receipt = _verdict_on(adapter_sha256, where)
    return MergeSource(
        run=folder,
        manifest=manifest,
        adapter_sha256=adapter_sha256,
        promoted=promoted,
        receipt=receipt,
        receipt_path=where / RECEIPT if receipt is not None else None,
    )


def lane_of(folder: Path) -> str | None:
    """Return the lane in the manifest of a run; None without a manifest or a lane."""
    for name in (MANIFEST, STORE_MANIFEST):
        path = folder / name
        if path.is_file():
            try:
                found = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError, RecursionError):
                return None  # whoever reads the manifest for what it says refuses it with the place
            if not isinstance(found, dict):
                return None  # likewise
            if found.get("kind") == _SCRATCH_KIND:
                return SCRATCH
            if "lane" in found:
                return str(found["lane"])
    return None


def promoted_of(store: ArtifactStore, adapter_sha256: str) -> Artifact | None:
    """Return an adapter as it was promoted; None when it never was, or a rollback took it out of use."""
    if adapter_sha256 in withdrawn(store):
        return None
    events = (event for event in reversed(history_of(store)) if event.adapter_sha256 == adapter_sha256)
    return next((found for event in events if (found := store.get(PROMOTED, event.key)) is not None), None)


def _verdict_on(adapter_sha256: str, folder: Path) -> Receipt | None:
    """Return the verdict in a folder; None when there is none, or when it is about another adapter."""
    if not (folder / RECEIPT).is_file():
        return None
    receipt = receipt_in(folder)
    is_about_it = receipt.subject is not None and receipt.subject.adapter_sha256 == adapter_sha256
    return receipt if is_about_it else None
