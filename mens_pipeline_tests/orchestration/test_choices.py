"""What decides an asset beside its code."""

from pathlib import Path

from mens_pipeline.corpus.curate.mixed_train_set import STAGE
from mens_pipeline.definitions import defs
from mens_pipeline.orchestration.metadata import version_with_config
from mens_pipeline.settings import MIX_CONFIG, PIPELINE_CONFIG


def test_another_configuration_is_another_version(tmp_path: Path) -> None:
    """So that what was made by the old one is shown as stale."""
    path = tmp_path / "mix.yaml"
    versions = [version_with_config(STAGE, path)]
    for text in ("a: 1\n", "a: 2\n"):
        path.write_text(text)
        versions.append(version_with_config(STAGE, path))

    assert len(set(versions)) == 3
    (spec,) = defs().resolve_assets_def("mixed_train_set").specs
    assert spec.code_version == version_with_config(STAGE, MIX_CONFIG, PIPELINE_CONFIG)
