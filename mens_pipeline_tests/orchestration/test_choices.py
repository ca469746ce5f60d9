"""Configuration and choices that decide an asset besides its code."""

import re
import shutil
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
from mens_pipeline.orchestration.choices import TrainConfig, check_configuration, resolve_choices
from mens_pipeline.settings import MIX_CONFIG, PIPELINE_CONFIG, PROJECT_ROOT, load_settings


def test_a_changed_configuration_changes_the_version(tmp_path: Path) -> None:
    path = tmp_path / "mix.yaml"
    versions = [version_with_config(STAGE, path)]
    for text in ("a: 1\n", "a: 2\n"):
        path.write_text(text)
        versions.append(version_with_config(STAGE, path))

    assert len(set(versions)) == 3
    (spec,) = defs().resolve_assets_def("mixed_train_set").specs
    assert spec.code_version == version_with_config(STAGE, MIX_CONFIG, PIPELINE_CONFIG)


_READ = ("presets", "domains", "recipes", "pipeline", "mix", "gates", "evaluation", "retention", "forgotten")
_OTHERS = {"dagster-postgres", "kuberay"}
"""Read by Dagster and by Ray."""


def test_every_mistake_in_the_configuration_shows_when_the_location_loads(tmp_path: Path) -> None:
    config = tmp_path / "config"
    shutil.copytree(PROJECT_ROOT / "config", config)
    (config / "forgotten.yaml").write_text('- reason: "asked"\n  licence: "GPL-3.0"\n')
    check_configuration(config)
    meant = {}
    for name in _READ:
        path = config / f"{name}.yaml"
        lines = path.read_text(encoding="utf-8").splitlines()
        # The first key with a value; in files of named entries that is the first field of an entry after `about`.
        keys = [
            line for line in lines if re.match(r"^ *[a-z_]{6,}: \S", line) and "about" not in line and "&" not in line
        ]
        meant[name] = keys[0].split(":")[0].strip()
        written = f"{meant[name][:-2]}{meant[name][:-3:-1]}"
        path.write_text("\n".join(lines).replace(keys[0], keys[0].replace(meant[name], written), 1))
    with pytest.raises(ConfigurationError) as caught:
        check_configuration(config)
    said = {Path(line.split(":")[0]).stem: line for line in str(caught.value).splitlines()}

    assert {path.stem for path in config.glob("*.yaml")} == {*_READ, *_OTHERS}
    assert set(said) == set(_READ)
    for name, key in meant.items():
        assert re.search(f"[Dd]id you mean `?{key}", said[name]), said[name]


def test_a_recipe_of_an_unknown_preset_shows_when_the_location_loads(tmp_path: Path) -> None:
    config = tmp_path / "config"
    shutil.copytree(PROJECT_ROOT / "config", config)
    recipes = config / "recipes.yaml"
    with recipes.open("a") as file:
        file.write("mine:\n  about: A typo.\n  preset: smal\n")

    with pytest.raises(ConfigurationError, match=r"recipes\.yaml: mine: preset smal: .*Did you mean `smol`"):
        check_configuration(config)


def _accept(overrides: dict[str, Any]) -> None:
    dg.validate_run_config(
        defs().resolve_job_def("whole_graph"), {"ops": {"qlora_adapter": {"config": {"overrides": overrides}}}}
    )


def test_the_launchpad_begins_with_the_common_choices() -> None:
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


def test_overrides_have_the_types_of_the_recipe() -> None:
    written = {"lora_r": 8, "learning_rate": 0.001, "max_minutes": 3, "curriculum": True, "category_filter": "fn,type"}
    _accept(written | {"curriculum_max_difficulty": "3,5", "token_shares": "task=0.4", "quantization": "nf4"})
    config = TrainConfig.model_validate({"overrides": written})

    overrides = config.choice()["overrides"]

    assert overrides == written
    assert config.label() == "default, " + ", ".join(f"{name} {value}" for name, value in overrides.items())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"lerning_rate": 1}, r'unexpected config entry "lerning_rate" .* learning_rate\?: Float'),
        ({"learning_rate": "high"}, 'Value "high" of type .* is not valid for expected type "Float"'),
        ({"model_name_or_path": "/models/mine"}, 'unexpected config entry "model_name_or_path"'),
    ],
)
def test_a_wrong_override_is_refused_with_advice(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(dg.DagsterInvalidConfigError, match=message):
        _accept(overrides)


def test_a_domain_cannot_name_a_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    domains = tmp_path / "domains.yaml"
    domains.write_text("night:\n  about: Rows of the night.\n  model_name_or_path: /models/mine\n")
    monkeypatch.setattr(choices, "DOMAINS", domains)

    with pytest.raises(ConfigurationError, match=r"model_name_or_path \(domain night\): .* Set MENS_TRAIN_MODEL"):
        resolve_choices(load_settings(), resolve_device(DeviceChoice.CPU), preset="tiny", domain="night", overrides={})
