"""Metadata that assets show."""

import dagster as dg

from mens_pipeline.orchestration.metadata import count_reasons, fold_paths
from mens_pipeline.orchestration.resources import paths_in, reference
from mens_pipeline.storage.store import ArtifactRef


def test_the_key_of_no_artifact_stays_short() -> None:
    paths = {key: dg.MetadataValue.path(f"/{key * 64}/file") for key in "ab"}
    made = dg.AssetMaterialization("set", metadata={**fold_paths(paths), **reference(ArtifactRef("set", "a" * 64))})

    assert paths_in(made) == {"a": f"/{'a' * 64}/file", "b": "/bbbbbbbbbbbb*/file"}


def test_reasons_are_counted_with_their_first_places() -> None:
    dropped = [("lane", ""), *(("ignored", f"build/{name}.vox:1") for name in "abbcd"), ("rejected", "c.vox:3 bad")]

    assert list(count_reasons(dropped)) == [
        "5 ignored (build/a.vox:1, build/b.vox:1, build/c.vox:1 and 1 more)",
        "1 lane",
        "1 rejected (c.vox:3 bad)",
    ]
    assert list(count_reasons([])) == []
