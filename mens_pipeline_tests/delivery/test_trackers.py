"""Runs and the champion as MLflow and TensorBoard show them, read back by their own readers."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.delivery.trackers import NAME, Trackers, parse_trackers, track_champion
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.jobs.environment import environment_without_secrets
from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline.training.telemetry_log import steps_of
from mens_pipeline_tests.delivery.delivered import promoted_run
from mens_pipeline_tests.evaluation.runs import champion_in
from mens_pipeline_tests.training.runs import FAST, pairs, prepare_fast

_IGNORED = pytest.mark.filterwarnings(
    "ignore::sqlalchemy.exc.SADeprecationWarning",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
"""MLflow leaves connections to SQLite to the garbage collector, and maps a table in a way that is going away."""


def _client(uri: str) -> Any:
    from mlflow import MlflowClient  # noqa: PLC0415 - of an extra

    return MlflowClient(uri, registry_uri=uri)


def _only_run(client: Any) -> Any:
    (run,) = client.search_runs([client.get_experiment_by_name(NAME).experiment_id])
    return run


@_IGNORED
@pytest.mark.nightly
def test_a_training_is_read_back(tiny_base: Path, tmp_path: Path) -> None:
    """Every step of `mens train`, the recipe, and how it ended, in both."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415 - slow

    uri, board = f"sqlite:///{tmp_path / 'runs.db'}", tmp_path / "board"
    write_jsonl(tmp_path / "train.jsonl", pairs(54))
    recipe = {**FAST, "model_name_or_path": tiny_base}
    environment = {
        **environment_without_secrets(),
        **{f"MENS_TRAIN_{name.upper()}": str(value) for name, value in recipe.items()},
        "MENS_TRACKERS": f"mlflow={uri},tensorboard={board}",
        "MENS_CACHE_ROOT": str(tmp_path / "cache"),
        "VOX_BACKEND": "cpu",
    }
    folders = ["--data-dir", str(tmp_path), "--output-dir", str(tmp_path / "run")]
    command = [sys.executable, "-m", "mens_pipeline.cli", "train", "--fast-corpus", *folders]
    done = subprocess.run(command, cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    expected = {step["step"]: step["loss"] for step in steps_of(tmp_path / "run" / TELEMETRY)}
    client = _client(uri)
    run = _only_run(client)
    history = client.get_metric_history(run.info.run_id, "train/loss")
    (folder,) = board.iterdir()
    events = EventAccumulator(str(folder)).Reload()

    assert run.info.status == "FINISHED"
    assert run.data.params["lora_r"] == str(FAST["lora_r"])
    assert {metric.step: metric.value for metric in history} == pytest.approx(expected)
    assert run.data.metrics["result/num_steps"] == len(expected)
    assert {event.step: event.value for event in events.Scalars("train/loss")} == pytest.approx(expected)
    assert str(tmp_path / "runs.db") not in (tmp_path / "run" / "child.log").read_text()


@_IGNORED
@pytest.mark.slow
def test_the_champion_is_an_alias_of_the_registry(trained: Path, tmp_path: Path) -> None:
    """With the figures that it was promoted by; told twice, it is one version."""
    _, store = promoted_run(trained, tmp_path)
    uri, details = f"sqlite:///{tmp_path / 'runs.db'}", list[str]()
    champion = champion_in(store)
    for _ in range(2):
        track_champion(f"mlflow={uri}", champion, store, details.append)
    client = _client(uri)
    version = client.get_model_version_by_alias(NAME, "champion")

    assert details == []
    assert version.source == champion.path.as_uri()
    assert version.tags["mens.key"] == champion.key
    assert len(client.search_model_versions(f"name = '{NAME}'")) == 1
    assert client.get_run(version.run_id).data.metrics["eval/heldout/parse_rate"] == 1.0


@pytest.mark.slow
@_IGNORED
def test_a_run_that_goes_on_is_one_run(tiny_base: Path, tmp_path: Path) -> None:
    """By its contract; what it came to the last time counts."""
    run, uri = prepare_fast(tiny_base, tmp_path), f"sqlite:///{tmp_path / 'runs.db'}"
    for number, code in enumerate((143, 1, 0), start=1):
        trackers = Trackers(f"mlflow={uri}", run.job_path, pytest.fail)
        trackers.take({"event": "step", "payload": {"step": number, "loss": 1 / number, "learning_rate": None}})
        trackers.end(code)
        status = _only_run(_client(uri)).info.status
        assert status == {143: "KILLED", 1: "FAILED", 0: "FINISHED"}[code]

    assert _only_run(_client(uri)).data.metrics == {"train/loss": 1 / 3}


def test_a_tracker_that_fails_is_told_once_and_left_out(tiny_base: Path, tmp_path: Path) -> None:
    """The run goes on, and the other one hears of it."""
    run, details = prepare_fast(tiny_base, tmp_path), list[str]()
    (tmp_path / "file").write_text("no folder")
    setting = f"tensorboard={tmp_path / 'board'},mlflow=nothing://{tmp_path / 'file'}"
    trackers = Trackers(setting, run.job_path, details.append)
    for step in range(3):
        trackers.take({"event": "step", "payload": {"step": step, "loss": 1.0}})
    trackers.end(0)

    assert [line.partition(":")[0] for line in details] == ["warning"]
    assert "mlflow is left out" in details[0]
    assert list((tmp_path / "board").glob("*/events.*"))


@pytest.mark.parametrize("setting", ["mlflow", "mlflow=", "neptune=x", "mlflow=sqlite:///a,postgresql://u:secret@h/d"])
def test_a_wrong_setting_is_misuse(setting: str, tmp_path: Path) -> None:
    """Before anything begins, and without showing what may be a password."""
    with pytest.raises(ConfigurationError, match=r"MENS_TRACKERS: part \d is neither mlflow=URI nor") as caught:
        Trackers(setting, tmp_path, pytest.fail)
    assert "secret" not in str(caught.value)


def test_nothing_is_tracked_by_default() -> None:
    """An empty setting names none."""
    assert parse_trackers("") == ()


def test_what_trains_does_not_know_where_runs_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address may hold a password."""
    monkeypatch.setenv("MENS_TRACKERS", "mlflow=postgresql://mens:secret@db/runs")
    assert "MENS_TRACKERS" not in environment_without_secrets()


@_IGNORED
@pytest.mark.slow
def test_a_bucket_is_where_others_find_the_champion(trained: Path, tmp_path: Path, store_url: str) -> None:
    """A path of this machine would lead nobody to it."""
    from mens_pipeline.storage.remote import Remote  # noqa: PLC0415 - of an extra

    _, local = promoted_run(trained, tmp_path)
    champion, uri = champion_in(local), f"sqlite:///{tmp_path / 'runs.db'}"
    store = ArtifactStore(local.root, Remote(store_url))
    track_champion(f"mlflow={uri}", champion, store, pytest.fail)

    assert _client(uri).get_model_version_by_alias(NAME, "champion").source == (
        f"{store_url}/promoted_adapter/{champion.key}"
    )
