"""Stores with made-up artifacts, for checks and for assets that read them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.orchestration.resources import ArtifactHandover, ArtifactStoreResource, Compute, reference
from mens_pipeline.storage.store import Artifact, ArtifactRef, ArtifactStore


def take_lenient_gates(patch: pytest.MonkeyPatch) -> None:
    """Let forty prompts without a benchmark be enough: an adapter passes with a parse rate of 70 %."""
    for name, value in {"POLICY": "bootstrap", "MIN_PARSE_RATE": "0.7", "MIN_COVERAGE": "0.05"}.items():
        patch.setenv(f"VOX_EVAL_{name}", value)
    patch.setenv("VOX_BENCHMARK", "0")


def store_with(
    root: Path, kind: str, manifest: dict[str, Any], write: Callable[[Path], object] = lambda _folder: None
) -> tuple[ArtifactRef, ArtifactStoreResource]:
    """Make an artifact, and return its reference and its store, as asset checks expect them."""
    return artifact_in(root, kind, manifest, write).ref(), ArtifactStoreResource(root=str(root))


def build_resources(root: Path, **others: object) -> dict[str, Any]:
    """Return the resources of assets, which are store, IO manager and CPU, and others."""
    store = ArtifactStoreResource(root=str(root))
    return {"store": store, "io_manager": ArtifactHandover(), "compute": Compute(device="cpu"), **others}


def read_failure(result: dg.ExecuteInProcessResult, step: str | None = None) -> str:
    (failure,) = [event for event in result.get_step_failure_events() if step in {None, event.step_key}]
    return str(failure.step_failure_data.error)


def judge(check: dg.AssetChecksDefinition, artifact: ArtifactRef, store: ArtifactStoreResource) -> dg.AssetCheckResult:
    """Call a check as a function."""
    result = check(artifact, store)
    assert isinstance(result, dg.AssetCheckResult)
    return result


def artifact_in(
    root: Path, kind: str, manifest: dict[str, Any], write: Callable[[Path], object] = lambda _folder: None
) -> Artifact:
    store = ArtifactStore(root)

    def fill(folder: Path) -> dict[str, Any]:
        write(folder)
        return manifest

    return store.build(kind, {}, fill)[0]


def latest_in(store: ArtifactStore, kind: str) -> Artifact:
    found = store.latest(kind)
    assert found is not None
    return found


def hand_over(instance: dg.DagsterInstance, ref: ArtifactRef) -> None:
    """Report an artifact to an instance, as if its asset had been materialised."""
    instance.report_runless_asset_event(dg.AssetMaterialization(ref.kind, metadata=reference(ref)))


def write_losses(folder: Path, losses: Sequence[float]) -> None:
    steps = [{"ts_ms": 0, "event": "step", "payload": {"step": n, "loss": loss}} for n, loss in enumerate(losses)]
    (folder / TELEMETRY).write_text("".join(f"{json.dumps(step)}\n" for step in steps))
