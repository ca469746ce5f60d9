"""The Dagster entry point: everything below `orchestration/defs`."""

from pathlib import Path

import dagster as dg
from dagster_shared.utils.warnings import disable_dagster_warnings

from mens_pipeline.orchestration import defs as modules
from mens_pipeline.orchestration.code_references import with_code_references
from mens_pipeline.settings import load_settings


@dg.definitions
def defs() -> dg.Definitions:
    """Load the code location.

    This is `dg.load_from_defs_folder` without its search for the pyproject.toml of a checkout, which an installed wheel
    does not have; that function hides the same warnings. A server in production leads nobody to files of its own.
    """
    with disable_dagster_warnings():
        found = dg.ComponentTree.from_module(modules, project_root=Path(__file__).parent.parent).build_defs()
        return found if load_settings().environment == "prod" else with_code_references(found)
