"""Settings from the environment."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.jobs.device import Device, DeviceChoice, refuse_missing_devices
from mens_pipeline.jobs.environment import go_offline, training_environment
from mens_pipeline.settings import (
    PROJECT_ROOT,
    artifact_commit,
    find_device,
    load_settings,
    open_store,
    policy_label,
    read_secret,
    recipe_variables,
)
from mens_pipeline_tests.every import every


def _set(patch: pytest.MonkeyPatch, variables: Mapping[str, str | None]) -> None:
    """Set variables, and delete those that are None."""
    for name, value in variables.items():
        patch.delenv(name, raising=False)
        if value is not None:
            patch.setenv(name, value)


def test_defaults_are_in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MENS_SOURCE_ROOT", raising=False)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    settings = load_settings()

    assert settings.source_root == PROJECT_ROOT / "data"
    assert settings.dagster_home == PROJECT_ROOT / "data" / "dagster"
    assert settings.store_root == PROJECT_ROOT / "data" / "store"
    assert settings.config_root == PROJECT_ROOT / "config"


def test_names_missing_configuration(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mens_pipeline.cli", "store", "prune"]
    environment = {**os.environ, "MENS_CONFIG_ROOT": str(tmp_path), "MENS_STORE_ROOT": str(tmp_path / "store")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith(f"mens: {tmp_path / 'retention.yaml'}: No such file")


@every(
    "case",
    [
        ("MENS_SOURCE_ROOT", "/srv/vox", "source_root", Path("/srv/vox")),
        ("VOX_BACKEND", None, "backend", None),
        ("VOX_BACKEND", "cpu", "backend", "cpu"),
        ("MENS_ENV", None, "environment", "dev"),
        ("MENS_ENV", "dev", "environment", "dev"),
        ("MENS_ENV", "prod", "environment", "prod"),
    ],
)
def test_a_variable_replaces_a_default(
    monkeypatch: pytest.MonkeyPatch, case: tuple[str, str | None, str, object]
) -> None:
    name, value, field, found = case
    _set(monkeypatch, {name: value})

    assert getattr(load_settings(), field) == found


@every(
    "case",
    [
        *(("VOX_MENS_TRAIN_JSONL_STRICT", "perhaps"), ("VOX_BACKEND", "cuda"), ("VOX_BACKEND", "")),
        *(("VCS_SHA", "a b c d"), ("VCS_SHA", "../x"), ("VCS_SHA", "abc")),
    ],
)
def test_names_an_invalid_value(monkeypatch: pytest.MonkeyPatch, case: tuple[str, str]) -> None:
    with monkeypatch.context() as patch:
        patch.setenv(*case)
        with pytest.raises(ConfigurationError, match=rf"environment: {case[0]}: .*Correct or unset"):
            load_settings()


@pytest.mark.seed_row(34)
def test_adapters_are_named_after_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`VCS_SHA`, otherwise the commit of the workspace, otherwise none."""
    monkeypatch.delenv("VCS_SHA", raising=False)
    monkeypatch.setenv("MENS_SOURCE_ROOT", str(tmp_path))
    assert artifact_commit(load_settings()) is None
    for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "x")):
        subprocess.run(("git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words), cwd=tmp_path, check=True)
    commit = artifact_commit(load_settings())
    assert commit is not None
    assert re.fullmatch("[0-9a-f]{40}", commit)
    monkeypatch.setenv("VCS_SHA", "0123abcd")

    assert artifact_commit(load_settings()) == "0123abcd"


@every("case", [(None, "0"), ("2,3", "2"), ("GPU-8e0a", "GPU-8e0a"), ("", "")])
def test_a_process_that_loads_a_model_sees_one_gpu(
    monkeypatch: pytest.MonkeyPatch, case: tuple[str | None, str]
) -> None:
    """The first of those that the user allows; the trainer would use all that it sees."""
    _set(monkeypatch, {"CUDA_VISIBLE_DEVICES": case[0]})

    assert training_environment()["CUDA_VISIBLE_DEVICES"] == case[1]


def test_the_environment_sets_fields_of_recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MENS_TRAIN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MENS_TRAIN_LEARNING_RATE", "1e-3")
    monkeypatch.setenv("MENS_TRAIN_LORA_R", "8")
    monkeypatch.setenv("VOX_MENS_TRAIN_JSONL_STRICT", "1")

    assert recipe_variables() == {"learning_rate": "1e-3", "lora_r": "8"}


def test_a_training_process_has_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("LANG", "some value")
    environment = training_environment()

    assert (environment["HF_HUB_OFFLINE"], environment["HF_HUB_DISABLE_TELEMETRY"]) == ("1", "1")
    assert environment["LANG"] == "some value"
    assert os.environ["HF_HUB_OFFLINE"] == "0"


def test_a_server_goes_offline_as_training_does(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in set(os.environ) - set(training_environment()):
        monkeypatch.delenv(name)
    for name, value in training_environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("LANG", "some value")
    go_offline()

    assert (os.environ["HF_HUB_OFFLINE"], os.environ["LANG"]) == ("1", "some value")


def test_a_token_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENS_SERVE_TOKEN", "0123456789abcdef")
    monkeypatch.setenv("MY_TOKEN", "fedcba9876543210")
    settings, own = load_settings(), read_secret("MY_TOKEN")

    assert settings.serve_token is not None
    assert settings.serve_token.get_secret_value() == "0123456789abcdef"
    assert own.get_secret_value() == "fedcba9876543210"
    assert "0123456789abcdef" not in repr(settings) + repr(own) + str(own)


_FULL = (
    "unlike ci: min_heldout_tasks 100, min_heldout_files 20, min_benchmark 0.1, min_test_rate 0.1, warn_only throughput"
)


_NAMING = ("VOX_BENCHMARK", "VOX_EVAL_POLICY", "VOX_EVAL_MIN_PARSE_RATE", "VOX_EVAL_MIN_COVERAGE")


@every(
    "case",
    [
        ({}, "ci"),
        ({"VOX_EVAL_POLICY": "full"}, f"full ({_FULL})"),
        ({"VOX_BENCHMARK": "0"}, "ci (benchmark gate off: VOX_BENCHMARK)"),
        ({"VOX_EVAL_MIN_PARSE_RATE": "0.7"}, "ci"),
        ({"VOX_EVAL_MIN_PARSE_RATE": "0.0"}, "ci (min_parse_rate 0.0 by VOX_EVAL_MIN_PARSE_RATE)"),
        (
            {"VOX_EVAL_POLICY": "full", "VOX_EVAL_MIN_COVERAGE": "0.9", "VOX_BENCHMARK_MIN_PASS_RATE": "0"},
            (
                "full (min_coverage 0.9 by VOX_EVAL_MIN_COVERAGE; "
                f"min_benchmark 0.0 by VOX_BENCHMARK_MIN_PASS_RATE; {_FULL})"
            ),
        ),
    ],
)
def test_a_threshold_that_the_environment_changes_is_named(
    monkeypatch: pytest.MonkeyPatch, case: tuple[dict[str, str], str]
) -> None:
    """Readers of a verdict or the history see that the policy differed from the file."""
    _set(monkeypatch, {**dict.fromkeys((*_NAMING, "VOX_BENCHMARK_MIN_PASS_RATE")), **case[0]})

    assert policy_label(load_settings()) == case[1]


def test_a_shared_store_is_selected_by_its_url(store_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The folder of a resource replaces that of the environment; an unusable store is one message."""
    monkeypatch.setenv("MENS_STORE_ROOT", str(tmp_path / "a"))
    assert open_store(load_settings()).documents.place("k", "latest") == str(tmp_path / "a" / "k" / "latest")
    monkeypatch.setenv("MENS_STORE_URL", store_url)
    made, _ = open_store(load_settings()).build("k", {}, lambda _folder: {})
    other = open_store(load_settings(), str(tmp_path / "b"))
    assert other.root == tmp_path / "b"
    assert other.read_pointer("k", "latest") == made.key

    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "mens_pipeline.storage.remote")
    with pytest.raises(
        ConfigurationError, match=r"MENS_STORE_URL: obstore: not installed\. Run: pip install .*\[cluster\]"
    ):
        open_store(load_settings())
    monkeypatch.setenv("MENS_STORE_URL", "/srv/store")
    with pytest.raises(ConfigurationError, match="MENS_STORE_URL: String should match pattern"):
        load_settings()


_GPU = Device("cuda", "a GPU", 80.0, has_bfloat16=True)
_NAMED = json.dumps({"kind": "cuda", "name": "a GPU", "memory_gb": 80, "has_bfloat16": True})
_OF_RAY = ("MENS_LAUNCHER", "MENS_WORKER_DEVICE", "RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "VOX_BACKEND")


@pytest.fixture
def simulated_cluster(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine with one GPU, and a Ray cluster with two."""
    monkeypatch.setattr("mens_pipeline.settings.resolve_device", lambda *_, **__: _GPU)
    monkeypatch.setattr("mens_pipeline.jobs.cluster.ask_cluster", lambda *_, **__: replace(_GPU, number=2))
    return monkeypatch


@every(
    "case",
    [
        ({"MENS_WORKER_DEVICE": _NAMED}, 1),
        ({"MENS_LAUNCHER": "ray"}, 1),
        ({"MENS_LAUNCHER": "ray", "RAY_ADDRESS": "head:6379"}, 2),
        ({"MENS_LAUNCHER": "ray", "RAY_API_SERVER_ADDRESS": "http://head:8265", "MENS_WORKER_DEVICE": _NAMED}, 64),
        ({"MENS_LAUNCHER": "kuberay", "MENS_WORKER_DEVICE": _NAMED}, 64),
    ],
)
def test_counts_devices_on_the_machine_that_trains(
    simulated_cluster: pytest.MonkeyPatch, case: tuple[dict[str, str], int]
) -> None:
    """Evaluation stays on this machine; a launcher that makes a worker for each device counts them itself."""
    variables, number = case
    _set(simulated_cluster, {**dict.fromkeys(_OF_RAY), **variables})
    device = find_device(DeviceChoice.BEST, load_settings(), trains=True)
    refuse_missing_devices(device, number)

    assert replace(device, number=1) == find_device(DeviceChoice.BEST, load_settings()) == _GPU
    if number < 64:
        with pytest.raises(RefusedError, match=f"^devices {number + 1}: only {number} of cuda"):
            refuse_missing_devices(device, number + 1)


@every(
    "case",
    [
        (
            {"MENS_LAUNCHER": "kuberay"},
            "best",
            r"^MENS_LAUNCHER=kuberay: .* workers\. Set MENS_WORKER_DEVICE='{\"kind\"",
        ),
        ({"MENS_LAUNCHER": "ray", "RAY_API_SERVER_ADDRESS": "x"}, "best", "^MENS_LAUNCHER=ray: .* does not know"),
        (
            {"MENS_LAUNCHER": "kuberay", "MENS_WORKER_DEVICE": _NAMED},
            "cpu",
            "^device cpu: MENS_WORKER_DEVICE says cuda",
        ),
        (
            {"MENS_LAUNCHER": "ray", "MENS_WORKER_DEVICE": _NAMED, "VOX_BACKEND": "cpu"},
            "best",
            "^device cpu: MENS_WORK",
        ),
        (
            {"MENS_WORKER_DEVICE": '{"kind": "gpu"}'},
            "best",
            r"^environment: MENS_WORKER_DEVICE\.kind: .*'cuda'.* or 'cpu'",
        ),
        ({"MENS_WORKER_DEVICE": "H100"}, "best", "^environment: MENS_WORKER_DEVICE: Invalid JSON"),
    ],
)
def test_workers_without_a_known_device_are_refused(
    simulated_cluster: pytest.MonkeyPatch, case: tuple[dict[str, str], str, str]
) -> None:
    variables, choice, problem = case
    _set(simulated_cluster, {**dict.fromkeys(_OF_RAY), **variables})
    with pytest.raises((ConfigurationError, RefusedError), match=problem):
        find_device(DeviceChoice(choice), load_settings(), trains=True)
