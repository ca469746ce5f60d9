"""What is handed to Docker and helm, as far as that can be told without either."""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import yaml

from mens_pipeline.settings import PROJECT_ROOT, Settings

_DEPLOY: Final = PROJECT_ROOT / "config" / "deploy"
_OF_THE_CHART: Final = frozenset(
    (
        *("global", "generatePostgresqlPasswordSecret", "postgresql", "dagster-user-deployments", "runLauncher"),
        *("dagsterDaemon", "additionalInstanceConfig", "telemetry"),
    )
)
"""Keys of the chart that are relied on, written by hand from its documentation: helm itself is not here."""

_OF_A_DEPLOYMENT: Final = frozenset(
    (
        *("name", "image", "dagsterApiGrpcArgs", "port", "includeConfigInLaunchedRuns", "env", "envSecrets", "volumes"),
        *("volumeMounts", "securityContext"),
    )
)


def _values() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((_DEPLOY / "helm" / "values.yaml").read_text(encoding="utf-8"))
    return values


def _deployment() -> dict[str, Any]:
    (deployment,) = _values()["dagster-user-deployments"]["deployments"]
    return dict(deployment)


def test_the_values_are_of_keys_that_the_chart_has() -> None:
    """A key that it does not have would be passed over in silence."""
    values = _values()

    assert values.keys() == _OF_THE_CHART
    assert _deployment().keys() == _OF_A_DEPLOYMENT
    assert values["runLauncher"]["type"] == "K8sRunLauncher"
    assert set(values["runLauncher"]["config"]) == {"k8sRunLauncher"}
    assert values["global"]["postgresqlSecretName"]
    assert not values["postgresql"]["enabled"]
    assert not values["generatePostgresqlPasswordSecret"]


def test_variables_of_pods_are_ours_or_of_a_library() -> None:
    """With the values that the settings take, and no secret among them."""
    variables = {entry["name"]: entry["value"] for entry in _deployment()["env"]}
    fields = {str(field.validation_alias): name for name, field in Settings.model_fields.items()}
    ours = {name: value for name, value in variables.items() if name.startswith("MENS_")}
    assert ours.keys() <= fields.keys()
    assert not [name for name in variables if re.search("KEY|TOKEN|PASSWORD|SECRET", name)]
    settings = Settings.model_validate(ours)

    assert settings.store_url == "s3://BUCKET/mens"
    assert settings.launcher == "local"
    mounts = {Path(mount["mountPath"]) for mount in _deployment()["volumeMounts"]}
    assert {settings.store_root, settings.cache_root, settings.source_root} == mounts
    assert {v["name"] for v in _deployment()["volumes"]} == {m["name"] for m in _deployment()["volumeMounts"]}


def test_monitoring_and_retries_are_those_of_one_machine() -> None:
    """What the chart writes into dagster.yaml says what ours says."""
    ours = yaml.safe_load((PROJECT_ROOT / "config" / "dagster-postgres.yaml").read_text(encoding="utf-8"))
    daemon = _values()["dagsterDaemon"]
    monitoring = {
        _snake(name): value for name, value in daemon["runMonitoring"].items() if name != "startTimeoutSeconds"
    }

    assert monitoring.items() <= ours["run_monitoring"].items()
    assert {_snake(name): value for name, value in daemon["runRetries"].items()} == ours["run_retries"]
    assert _values()["additionalInstanceConfig"]["concurrency"]["pools"] == ours["concurrency"]["pools"]
    coordinator = daemon["runCoordinator"]["config"]["queuedRunCoordinator"]
    assert coordinator["maxConcurrentRuns"] == ours["concurrency"]["runs"]["max_concurrent_runs"]


def test_the_image_copies_what_is_there_and_installs_what_is_pinned() -> None:
    """Paths, extras, and the version of torch."""
    text = (_DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    copied = [name for line in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE) for name in line.split()]
    project = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extras,) = re.findall("^ARG EXTRAS=(.+)$", text, re.MULTILINE)
    (torch,) = re.findall("torch==([0-9.]+)", text)

    assert [name for name in copied if not (PROJECT_ROOT / name).exists()] == []
    assert {*extras.split(","), "gpu"} <= project["optional-dependencies"].keys()
    assert f"torch=={torch}" in (PROJECT_ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert str(_deployment()["port"]) in text


def _snake(name: str) -> str:
    return re.sub("([A-Z])", r"_\1", name).lower()
