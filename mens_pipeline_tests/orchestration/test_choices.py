"""What decides an asset beside its code."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.snap.snap_to_yaml import default_values_yaml_from_type_snap

from mens_pipeline.corpus.curate.mixed_train_set import STAGE
from mens_pipeline.definitions import defs
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.orchestration import choices
from mens_pipeline.orchestration.asset import version_with_config
from mens_pipeline.orchestration.choices import TrainConfig, resolve_choices
from mens_pipeline.settings import MIX_CONFIG, PIPELINE_CONFIG, load_settings


def test_another_configuration_is_another_version(tmp_path: Path) -> None:
    path = tmp_path / "mix.yaml"
    versions = [version_with_config(STAGE, path)]
    for text in ("a: 1\n", "a: 2\n"):
        path.write_text(text)
        versions.append(version_with_config(STAGE, path))

    assert len(set(versions)) == 3
    (spec,) = defs().resolve_assets_def("mixed_train_set").specs
    assert spec.code_version == version_with_config(STAGE, MIX_CONFIG, PIPELINE_CONFIG)


def _accept(overrides: dict[str, Any]) -> None:
    dg.validate_run_config(
        defs().resolve_job_def("whole_graph"), {"ops": {"qlora_adapter": {"config": {"overrides": overrides}}}}
    )


def test_the_launchpad_begins_with_what_people_choose() -> None:
    """Recipe and preset among it; nothing of resources, and nothing that a machine writes."""
    job = defs().resolve_job_def("whole_graph")
    schema = job.get_job_snapshot().config_schema_snapshot
    root = schema.get_config_snap(job.run_config_schema.run_config_schema_type.key)
    training = {"domain": "of_recipe", "force_train": False, "preset": "of_recipe", "recipe": "default"}

    assert yaml.safe_load(default_values_yaml_from_type_snap(schema, root)) == {
        "ops": {
            "extracted_corpus": {"config": {"full": False}},
            "promoted_adapter": {"config": {"promote": True}},
            "qlora_adapter": {"config": training},
        }
    }


def test_overrides_are_numbers_where_the_recipe_has_numbers() -> None:
    written = {"lora_r": 8, "learning_rate": 0.001, "max_minutes": 3, "curriculum": True, "category_filter": "fn,type"}
    _accept(written | {"curriculum_max_difficulty": "3,5", "token_shares": "task=0.4", "quantization": "nf4"})
    config = TrainConfig.model_validate({"overrides": written})

    assert config.flags() == written
    assert config.label() == "default, " + ", ".join(f"{name} {value}" for name, value in config.flags().items())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"lerning_rate": 1}, r'unexpected config entry "lerning_rate" .* learning_rate\?: Float'),
        ({"learning_rate": "high"}, 'Value "high" of type .* is not valid for expected type "Float"'),
        ({"model_name_or_path": "/models/mine"}, 'unexpected config entry "model_name_or_path"'),
    ],
)
def test_a_wrong_override_is_refused_with_those_there_are(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(dg.DagsterInvalidConfigError, match=message):
        _accept(overrides)


def test_a_domain_names_no_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    domains = tmp_path / "domains.yaml"
    domains.write_text("night:\n  about: Rows of the night.\n  model_name_or_path: /models/mine\n")
    monkeypatch.setattr(choices, "DOMAINS", domains)

    with pytest.raises(ConfigurationError, match=r"model_name_or_path \(domain night\): .* Set MENS_TRAIN_MODEL"):
        resolve_choices(load_settings(), resolve_device(DeviceChoice.CPU), preset="tiny", domain="night", overrides={})
