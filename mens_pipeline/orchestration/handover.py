"""Hand-over of artifacts between assets: by key, in the event log, so that concurrent runs do not mix."""

from typing import Any, Final

import dagster as dg
from dagster._core.storage.tags import PARENT_RUN_ID_TAG

from mens_pipeline.storage.store import ArtifactRef

ARTIFACT: Final = "artifact"
"""The metadata of a materialisation that names its artifact, and those that it rests on."""


_ELSEWHERE: Final = "none"
"""What Dagster calls the step of an asset that is not of this run."""


class ArtifactHandover(dg.IOManager):
    """Writes the reference to an artifact beside its materialisation, and reads it there.

    Within a run, and one that goes on from it, a step gets what that run made; else what was materialised last.
    """

    def handle_output(self, context: dg.OutputContext, obj: ArtifactRef) -> None:
        """Note what was made."""
        context.add_output_metadata(reference(obj))

    def load_input(self, context: dg.InputContext) -> ArtifactRef:
        """Return what an asset made.

        Raises:
            dagster.Failure: It was not materialised yet; nothing is retried.
        """
        upstream = context.upstream_output
        if upstream is not None and upstream.step_key != _ELSEWHERE:
            made = made_by(context.instance, upstream.run_id, context.asset_key)[-1:]
        else:
            latest = context.instance.get_latest_materialization_event(context.asset_key)
            made = [latest.asset_materialization] if latest and latest.asset_materialization else []
        if not made or ARTIFACT not in made[0].metadata:
            name = context.asset_key.to_user_string()
            raise dg.Failure(f"there is no {name}. Materialise it first.", allow_retries=False)
        return artifact_of(made[0])


def made_by(instance: dg.DagsterInstance, run_id: str, asset: dg.AssetKey) -> list[dg.AssetMaterialization]:
    """Return what a run made of an asset, the newest last."""
    logs = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    return [made for entry in logs if (made := entry.asset_materialization) and made.asset_key == asset]


def made_in_run(context: dg.AssetExecutionContext, name: str) -> ArtifactRef | None:
    """Return what a run made of an asset, or a run that this one goes on from; None where neither made it."""
    run: dg.DagsterRun | None = context.run
    while run is not None:
        if own := made_by(context.instance, run.run_id, dg.AssetKey(name)):
            return artifact_of(own[-1])
        before = run.tags.get(PARENT_RUN_ID_TAG)
        run = context.instance.get_run_by_id(before) if before is not None else None
    return None


def artifact_of(materialization: dg.AssetMaterialization) -> ArtifactRef:
    """Return the artifact that a materialisation names."""
    value: Any = materialization.metadata[ARTIFACT].value
    return ArtifactRef.from_json(value)


def reference(ref: ArtifactRef) -> dict[str, dg.MetadataValue[Any]]:
    """Return the metadata by which an artifact is handed on."""
    return {ARTIFACT: dg.MetadataValue.json(ref.as_json())}
