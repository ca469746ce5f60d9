"""The train set as an artifact."""

from pathlib import Path
from typing import Any, Final

from mens_pipeline.corpus.curate.mix import mix_sources
from mens_pipeline.corpus.curate.mix_config import MixConfig
from mens_pipeline.corpus.curate.mix_files import read_sources, write_mix
from mens_pipeline.storage.stage import Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore

KIND: Final = "mixed_train_set"
STAGE: Final = Stage(KIND, (__name__,))
TRAIN: Final = "train.jsonl"


def build_mixed_train_set(split: Artifact, config: MixConfig, store: ArtifactStore) -> tuple[Artifact, bool]:
    """Mix what trains, unless the same was done before.

    The paths of the mix are relative to the folder of the split; its `output` is not looked at.

    Returns:
        The train set, and whether it was reused. The folder holds `train.jsonl`, `train.parquet` and
        `train.mix_report.json`; the manifest holds the report.

    Raises:
        RefusedError: A source that is not optional gives nothing.
        ConfigurationError: The store cannot be written.
    """
    params = {"config": config.model_dump(mode="json")}

    def write(folder: Path) -> dict[str, Any]:
        return write_mix(mix_sources(config, read_sources(config, split.path)), folder / TRAIN, params)

    return STAGE.build(store, [split], params, write)
