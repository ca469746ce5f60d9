"""The Dagster entry point: everything below `orchestration/defs`."""

import inspect
from collections import defaultdict
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.definitions.decorators.op_decorator import DecoratedOpFunction
from dagster_shared.record import replace
from dagster_shared.utils.warnings import disable_dagster_warnings

from mens_pipeline.orchestration import defs as modules
from mens_pipeline.orchestration.resources import page_links
from mens_pipeline.settings import load_settings


@dg.definitions
def defs() -> dg.Definitions:
    """Load the code location.

    This is `dg.load_from_defs_folder` without its search for the pyproject.toml of a checkout, which an installed wheel
    does not have; that function hides the same warnings. A server in production leads nobody to files of its own.
    """
    settings = load_settings()
    with disable_dagster_warnings():
        found = dg.ComponentTree.from_module(modules, project_root=Path(__file__).parent.parent).build_defs()
        links = page_links(settings.store_pages) if settings.store_pages is not None else {}
        places = _code_references(found) if settings.environment != "prod" else {}
        # An asset that two modules name stands here twice.
        assets = list({id(asset): asset for asset in found.assets or ()}.values())
        return replace(found, assets=assets).map_asset_specs(
            func=lambda spec: spec.merge_attributes(metadata={**links.get(spec.key, {}), **places.get(spec.key, {})})
        )


def _code_references(definitions: dg.Definitions) -> dict[dg.AssetKey, dict[str, dg.CodeReferencesMetadataValue]]:
    """Return metadata that names the places of the code of assets and of their checks, which the UI opens in an editor.

    The UI shows no metadata of a check, so its place stands on the page of the asset. `dg.with_source_code_references`
    knows no checks, takes an asset that two modules name for two, and of a decorated function names the file of the
    decorator.
    """
    assets = {id(asset): asset for asset in definitions.assets or () if isinstance(asset, dg.AssetsDefinition)}
    checks = {id(check): check for check in definitions.asset_checks or ()}
    places: defaultdict[dg.AssetKey, list[dg.LocalFileCodeReference | dg.UrlCodeReference]] = defaultdict(list)
    for made in (*assets.values(), *checks.values()):
        of_checks = {spec.asset_key for spec in made.check_specs}
        for key in {*made.keys, *of_checks}:
            places[key].append(_place_of(made))
    return {
        key: {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=references)}
        for key, references in places.items()
    }


def _place_of(made: dg.AssetsDefinition) -> dg.LocalFileCodeReference:
    """Return where the function of an asset or a check begins."""
    decorated: Any = made.op.compute_fn
    assert isinstance(decorated, DecoratedOpFunction), "all are decorated functions"  # noqa: S101 - our own impossibility
    function: Any = inspect.unwrap(decorated.decorated_fn)
    _, line = inspect.getsourcelines(function)
    return dg.LocalFileCodeReference(
        file_path=str(inspect.getsourcefile(function)), line_number=line, label=function.__name__
    )
