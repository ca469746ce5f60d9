"""The jobs."""

import dagster as dg

whole_graph = dg.define_asset_job(
    "whole_graph",
    selection=dg.AssetSelection.all(include_sources=True),
    description="Everything from the sources on, with all checks.",
)
