"""The jobs."""

import dagster as dg

whole_graph = dg.define_asset_job(
    "whole_graph",
    selection=dg.AssetSelection.all(include_sources=True),
    description="Everything from the sources on, with all checks.",
)

train_set = dg.define_asset_job(
    "train_set",
    selection=dg.AssetSelection.groups("sources", "corpus", include_sources=True),
    description="From the sources to the train set, with all checks; nothing is trained.",
)
