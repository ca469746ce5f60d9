"""The jobs."""

from typing import Final

import dagster as dg

WRITES_STORE: Final = {"mens/store": "writes"}
"""On every job that writes the store: assets hand their work on through its pointer `latest`, so the queue lets one of
these jobs run at a time (dagster.yaml)."""

whole_graph = dg.define_asset_job(
    "whole_graph",
    selection=dg.AssetSelection.all(include_sources=True),
    tags=WRITES_STORE,
    description="Everything from the sources on, with all checks.",
)

train_set = dg.define_asset_job(
    "train_set",
    selection=dg.AssetSelection.groups("sources", "corpus", include_sources=True),
    tags=WRITES_STORE,
    description="From the sources to the train set, with all checks; nothing is trained.",
)
