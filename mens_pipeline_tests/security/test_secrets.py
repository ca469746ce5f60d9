"""Secrets are planted in place of real ones, and searched in everything that is printed and written."""

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from mens_pipeline.jobs.environment import go_offline, training_environment
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.evaluation.runs import evaluated, scored, trained

_PLANTED = {
    "MENS_OVERRIDE_KEY": "planted-override-key-0123456789",
    "MENS_SIGNING_KEY": "0f1e2d3c4b5a69788796a5b4c3d2e1f0" * 2,
    "MENS_SERVE_TOKEN": "planted-serve-token-0123456789",
    "MENS_EVOL_API_KEY": "planted-evol-api-key-0123456789",
    "HF_TOKEN": "hf_plantedplantedplantedplantedplanted01",
    "AWS_SECRET_ACCESS_KEY": "plantedplantedplantedplantedplantedplant",
    "PGPASSWORD": "planted-pg-password",
    "http_proxy": "http://user:planted-proxy-password@127.0.0.1:9",
    "DATABASE_URL": "postgresql://user:planted-database-password@127.0.0.1/x",
    "MONGODB_URI": "mongodb://user:planted-mongodb-password@127.0.0.1/x",
    "AZURE_STORAGE_CONNECTION_STRING": "AccountKey=planted-azure-account-key",
    "MYSQL_PWD": "planted-mysql-password",
    "GOOGLE_SERVICE_ACCOUNT_JSON": '{"private": "planted-google-account"}',
}
_URL_PASSWORD = "planted-url-password"  # noqa: S105 - a planted secret
_TYPED = ("sk-8Kq2Vx4Tm7Rw3Ld6planted9Zs1", "planted-told-password-9", "ada.planted@firm.example.de")


def _run(folder: Path, url: str, *arguments: str, **variables: str) -> str:
    environment = {
        **os.environ,
        **_PLANTED,
        "MENS_TELEMETRY_URL": url,
        "MENS_STORE_ROOT": str(folder / "store"),
        "MENS_CACHE_ROOT": str(folder / "cache"),
        "DAGSTER_HOME": str(folder / "dagster"),
        "MENS_NUM_WORKERS": "1",
        "TMPDIR": str(folder / "tmp"),
        "VOX_BENCHMARK": "0",
        **variables,
    }
    (folder / "tmp").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "mens_pipeline.cli", *arguments]
    done = subprocess.run(command, env=environment, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def _find_leaks(folder: Path, printed: str) -> set[tuple[str, str]]:
    secrets = (*_PLANTED.values(), _URL_PASSWORD, *_TYPED)
    texts = {"printed": printed.encode()}
    texts |= {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {(name, secret) for name, text in texts.items() for secret in secrets if secret.encode() in text}


@pytest.mark.threat("S1")
def test_a_process_that_loads_models_gets_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**_PLANTED, "MENS_TELEMETRY_URL": "sqlite:///x"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CC", "gcc")
    environment = training_environment()

    assert not {*_PLANTED, "MENS_TELEMETRY_URL"} & set(environment)
    assert {"CC", "PATH", "CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM"} <= set(environment)


@pytest.mark.threat("S1")
def test_a_server_drops_its_secrets_before_loading_models(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in set(os.environ) - set(training_environment()):
        monkeypatch.delenv(name)
    for name, value in {**training_environment(), **_PLANTED, "MENS_TELEMETRY_URL": "sqlite:///x"}.items():
        monkeypatch.setenv(name, value)
    go_offline()

    assert not {*_PLANTED, "MENS_TELEMETRY_URL"} & set(os.environ)
    assert dict(os.environ) == training_environment()


@pytest.mark.slow
@pytest.mark.threat("S1")
@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://mens:{_URL_PASSWORD}@127.0.0.1:9/x",
        *(
            pytest.param(url, marks=pytest.mark.nightly)
            for url in (
                f"postgresql://127.0.0.1:9/x?user=mens&password={_URL_PASSWORD}",
                f"sqlite:////missing.db?password={_URL_PASSWORD}",
                f"mysql://mens:{_URL_PASSWORD}@127.0.0.1/x",
                f"://mens:{_URL_PASSWORD}@x:y",
            )
        ),
    ],
)
def test_no_message_about_a_database_contains_its_password(tmp_path: Path, url: str) -> None:
    printed = _run(tmp_path, url, "telemetry", "import", "-o", str(tmp_path / "out.jsonl"))

    assert "mens: " in printed
    assert _find_leaks(tmp_path, printed) == set()


@pytest.mark.slow
@pytest.mark.threat("S1")
def test_the_key_of_overrides_stays_in_the_environment(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store")
    run = trained(tmp_path / "run")
    gate = scored(run, store, evaluated(run, store, num_good=10))
    for name in gate.manifest["outputs"]:
        (run / name).write_bytes((gate.path / name).read_bytes())
    (run / "artifacts.json").write_text(f'{{"benchmark_gate": "{gate.key}"}}')
    arguments = ("override", "--run-dir", str(run), "--by", "me", "--reason", "only to see what is told")
    printed = _run(tmp_path, "", *arguments)
    printed += _run(tmp_path, "", "promote", "--run-dir", str(run), "--override", str(run / "gate_override.json"))

    assert "signed" in printed
    assert _find_leaks(tmp_path, printed) == set()


@pytest.mark.threat("R6", "S1")
@pytest.mark.nightly
def test_a_night_leaks_no_secret(tmp_path: Path) -> None:
    database = tmp_path / "outside"
    database.mkdir()
    connection = sqlite3.connect(database / "telemetry.db")
    connection.execute("CREATE TABLE AgentTelemetry (id INTEGER PRIMARY KEY, query TEXT, optimal_response TEXT)")
    rows = [(f"Use {secret} with password: '{_TYPED[1]}'", f"I told {secret}.") for secret in (_TYPED[0], _TYPED[2])]
    connection.executemany("INSERT INTO AgentTelemetry (query, optimal_response) VALUES (?, ?)", rows)
    connection.commit()
    connection.close()
    folder = tmp_path / "written"
    folder.mkdir()
    url = f"sqlite:///{database / 'telemetry.db'}?password={_URL_PASSWORD}"
    config = shutil.copytree(PROJECT_ROOT / "config", tmp_path / "config")
    pipeline = yaml.safe_load((config / "pipeline.yaml").read_text())
    pipeline["synthesize"]["limit"], pipeline["split"]["num_family_tasks"] = 60, 4  # unrelated to the database
    (config / "pipeline.yaml").write_text(yaml.safe_dump(pipeline))
    workspace = str(PROJECT_ROOT / "data" / "golden" / "app")
    printed = _run(folder, url, "run", "--no-train", "--source-root", workspace, MENS_CONFIG_ROOT=str(config))

    assert "passed in" in printed
    assert list((folder / "store").rglob("telemetry.jsonl"))
    assert list((folder / "dagster").rglob("*.db"))
    assert _find_leaks(folder, printed) == set()
