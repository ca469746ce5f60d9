"""The Dagster entry point: assets, checks, jobs, schedules and sensors of `orchestration/defs`, and their resources."""

import inspect
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import dagster as dg

# Wraps the function of an asset; Dagster offers no other way to find its source.
from dagster._core.definitions.decorators.op_decorator import DecoratedOpFunction
from dagster_shared.utils.warnings import disable_dagster_warnings  # `dg.load_from_defs_folder` silences the same ones

from mens_pipeline.orchestration import defs as modules
from mens_pipeline.orchestration.choices import check_configuration
from mens_pipeline.orchestration.instance import progress_logger
from mens_pipeline.orchestration.launchers import JobLauncher, Trainer
from mens_pipeline.orchestration.resources import (
    ArtifactHandover,
    ArtifactStoreResource,
    Compute,
    SourceWatch,
    Telemetry,
    VoxWorkspace,
    find_executor,
    page_links,
)
from mens_pipeline.settings import GATE_POLICY, load_settings, read_thresholds

_FORKING: Final = dg.multiprocess_executor.configured(
    {
        "start_method": {
            "forkserver": {
                "preload_modules": ["mens_pipeline.definitions", "mens_pipeline.orchestration.defs.delivery"]
            }
        }
    },
    name="forking_executor",
)
"""Forks each step from a process that has loaded the definitions; GPU work starts a new process anyway."""


@dg.definitions
def defs() -> dg.Definitions:
    """Load the code location.

    Unlike `dg.load_from_defs_folder` this needs no pyproject.toml, which an installed wheel does not have. A server in
    production shows no links to its own source files.

    Raises:
        ConfigurationError: A setting or a file of the configuration is wrong.
    """
    settings = load_settings()
    check_configuration(GATE_POLICY.parent)
    read_thresholds(settings)
    with disable_dagster_warnings():
        found = dg.ComponentTree.from_module(modules, project_root=Path(__file__).parent.parent).build_defs()
        links = page_links(settings.store_pages) if settings.store_pages is not None else {}
        places = _code_references(found) if settings.environment != "prod" else {}
        return dg.Definitions(
            assets=list({id(asset): asset for asset in found.assets or ()}.values()),  # two modules may name one asset
            asset_checks=found.asset_checks,
            jobs=found.jobs,
            schedules=found.schedules,
            sensors=found.sensors,
            resources=_build_resources(),
            executor=find_executor(_FORKING),
            loggers={"console": dg.colored_console_logger, "progress": progress_logger},
            component_tree=found.component_tree,
        ).map_asset_specs(
            func=lambda spec: spec.merge_attributes(metadata={**links.get(spec.key, {}), **places.get(spec.key, {})})
        )


def _build_resources() -> dict[str, Any]:
    """Build the resources; the environment configures them, so the launchpad does not show them."""
    made = {
        "workspace": VoxWorkspace(),
        "store": ArtifactStoreResource(),
        "telemetry": Telemetry(),
        "compute": Compute(),
        "trainer": Trainer(),
        "generator": JobLauncher(),
        "merger": JobLauncher(),
        "source_watch": SourceWatch(),
    }
    return {
        "io_manager": ArtifactHandover(),
        **{name: _provide(resource) for name, resource in made.items()},
    }


def _provide(resource: object) -> dg.ResourceDefinition:
    """Define a resource with the name and description of its class, which the UI shows."""

    def provide(_context: dg.InitResourceContext) -> object:
        return resource

    kind = type(resource)
    provide.__name__, provide.__module__ = kind.__name__, kind.__module__
    return dg.ResourceDefinition(provide, description=(kind.__doc__ or "").partition("\n")[0])


def _code_references(definitions: dg.Definitions) -> dict[dg.AssetKey, dict[str, dg.CodeReferencesMetadataValue]]:
    """Return metadata that lets the UI open the code of an asset and of its checks in an editor.

    The UI shows no metadata of checks, so their code is listed with the asset. `dg.with_source_code_references`
    ignores checks and names the file of the decorator instead of the function.
    """
    assets = {id(asset): asset for asset in definitions.assets or () if isinstance(asset, dg.AssetsDefinition)}
    checks = {id(check): check for check in definitions.asset_checks or ()}
    places: defaultdict[dg.AssetKey, list[dg.LocalFileCodeReference | dg.UrlCodeReference]] = defaultdict(list)
    for made in (*assets.values(), *checks.values()):
        of_checks = {spec.asset_key for spec in made.check_specs}
        for key in {*made.keys, *of_checks}:
            places[key].append(_find_place(made))
    return {
        key: {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=references)}
        for key, references in places.items()
    }


def _find_place(made: dg.AssetsDefinition) -> dg.LocalFileCodeReference:
    decorated: Any = made.op.compute_fn
    assert isinstance(decorated, DecoratedOpFunction), "all are decorated functions"  # noqa: S101 - an internal invariant
    function: Any = inspect.unwrap(decorated.decorated_fn)
    _, line = inspect.getsourcelines(function)
    return dg.LocalFileCodeReference(
        file_path=str(inspect.getsourcefile(function)), line_number=line, label=function.__name__
    )
