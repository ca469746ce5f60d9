"""`config/pipeline.yaml`."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.settings import PIPELINE_CONFIG
from mens_pipeline_tests.every import every_row


def test_the_configuration_of_the_project_is_valid() -> None:
    config = load_pipeline_config(PIPELINE_CONFIG)

    assert 0 < config.split.heldout_share < 1
    assert config.validate_.max_per_source > 1
    assert config.synthesize.limit > 0


_TOO_MUCH = {"task": 0.6, "template": 0.5, "combination": 0.0}


@every_row(
    ({"split": {"heldout_share": 1}}, "split.heldout_share: Input should be less than 1"),
    ({"split": {"max_overlap": 0}}, "split.max_overlap: Input should be greater than 0"),
    ({"split": {"min_nodes": 0}}, "split.min_nodes"),
    ({"validate": {"near_duplicate_threshold": 1.1}}, "validate.near_duplicate_threshold"),
    ({"validate": {"max_per_source": 0}}, "validate.max_per_source"),
    ({"synthesize": {"limit": -1}}, "synthesize.limit"),
    ({"synthesize": {"limt": 1}}, "synthesize.limt: unknown"),
    ({"synthesize": {"shares": {"task": 1.0}}}, "synthesize.shares.template: Field required"),
    ({"synthesize": {"shares": _TOO_MUCH}}, r"synthesize.shares: the shares add up to 1\.1, not to 1"),
    ({"nightly": {"timezone": "Mars/Base"}}, "nightly.timezone: 'Mars/Base' is not a time zone"),
    ({"mix": {}}, "mix: unknown"),
    ({"split": {"seed": None}, "validate": {"max_per_source": "x"}}, r"max_per_source: .*; split.seed: "),
)
def test_mistakes_are_named_with_their_places(change: dict[str, Any], problem: str, tmp_path: Path) -> None:
    values = yaml.safe_load(PIPELINE_CONFIG.read_text())
    for key, part in change.items():
        values[key] = {**values.get(key, {}), **part}
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(values))

    with pytest.raises(ConfigurationError, match=rf"pipeline.yaml: .*{problem}.*Correct the file"):
        load_pipeline_config(tmp_path / "pipeline.yaml")


@every_row(
    (b"a: [", "not YAML"),
    (b"\xff", "not YAML"),
    (b"a: 2001-13-45\n", "not YAML"),
    (b"[" * 1200, "not YAML"),
    (b"", "the document: Input should be"),
    (b"- 1\n", "the document: Input should be"),
    (b"split: 3\n", "validate: Field required; synthesize: Field required; .*split: Input should be"),
)
def test_a_file_without_a_configuration_is_an_error(content: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_bytes(content)

    with pytest.raises(ConfigurationError, match=rf"(?s)pipeline.yaml: {problem}.*Correct the file"):
        load_pipeline_config(tmp_path / "pipeline.yaml")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"No such file or directory\. Restore the file"):
        load_pipeline_config(tmp_path / "pipeline.yaml")
