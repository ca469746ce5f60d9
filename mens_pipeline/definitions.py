"""The Dagster entry point: everything below `orchestration/defs`."""

from pathlib import Path

import dagster as dg
from dagster_shared.utils.warnings import disable_dagster_warnings

from mens_pipeline.orchestration import defs as modules


@dg.definitions
def defs() -> dg.Definitions:
    """Load the code location.

    This is `dg.load_from_defs_folder` without its search for the pyproject.toml of a checkout, which an installed wheel
    does not have; that function hides the same warnings.
    """
    with disable_dagster_warnings():
        return dg.ComponentTree.from_module(modules, project_root=Path(__file__).parent.parent).build_defs()
