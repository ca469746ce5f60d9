"""From a table of accepted completions alone to an adapter."""

import json
import sqlite3
from pathlib import Path

import pytest

from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline_tests.cli.invoking import run_main
from mens_pipeline_tests.training.runs import pairs
from mens_pipeline_tests.training.small_folder import write_folder

_TABLE = "CREATE TABLE AgentTelemetry (id INTEGER PRIMARY KEY, query TEXT, optimal_response TEXT, suffix TEXT)"
_IMPORT = ("telemetry", "import", "--url", "sqlite:///agents.db", "-o", "build/telemetry.jsonl")
_DRY_RUN = ("train", "--data-dir", "build", "--preset", "cpu_demo", "--device", "cpu", "--dry-run", "--json")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with sixty completions that users accepted, half of them at a cursor, and a base without weights."""
    monkeypatch.setenv("MENS_TRAIN_MODEL_NAME_OR_PATH", str(write_folder(tmp_path / "base")))
    monkeypatch.setenv("MENS_CACHE_ROOT", str(tmp_path / "cache"))
    rows: list[tuple[str, str, str | None]] = [(pair.prompt, pair.response, None) for pair in pairs(30)]
    rows += [(f"let number{n} = ", str(n), "\n") for n in range(30)]
    connection = sqlite3.connect(tmp_path / "agents.db")
    connection.execute(_TABLE)
    connection.executemany("INSERT INTO AgentTelemetry (query, optimal_response, suffix) VALUES (?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return tmp_path


@pytest.mark.slow
@pytest.mark.seed_row(60)
@pytest.mark.parametrize(
    "sources",
    [
        "pairs.jsonl, optional: true}, {path: telemetry.jsonl",
        pytest.param("telemetry.jsonl", marks=pytest.mark.nightly),
    ],
)
def test_telemetry_trains_alone(folder: Path, sources: str) -> None:
    assert run_main(*_IMPORT, folder=folder).returncode == 0
    (folder / "mix.yaml").write_text(f"sources: [{{path: {sources}}}]\ninfill: {{share: 0.3}}\n")
    mixed = run_main("corpus", "mix", "--config", "mix.yaml", "--data-dir", "build", folder=folder)
    assert mixed.returncode == 0, mixed.stderr
    for name in ("train.jsonl", "telemetry.jsonl"):
        (folder / "build" / name).rename(folder / "build" / "train.jsonl")
        done = run_main(*_DRY_RUN, folder=folder)
        assert done.returncode == 0, done.stderr
        kinds = json.loads(done.stdout)["kinds"]
        assert {kind: kinds[kind]["rows"] for kind in kinds if kind != "infill"} == {"telemetry": 30, "accepted": 30}
        assert all(kinds[kind]["epochs"] >= 1 for kind in ("telemetry", "accepted"))


@pytest.mark.slow
@pytest.mark.seed_row(60)
def test_pieces_at_a_cursor_train_alone(folder: Path) -> None:
    with sqlite3.connect(folder / "agents.db") as connection:
        connection.execute("DELETE FROM AgentTelemetry WHERE suffix IS NULL")
        connection.executemany(
            "INSERT INTO AgentTelemetry (query, optimal_response, suffix) VALUES (?, ?, ?)",
            [(f"let text{n} = ", f'"{n}"', "\n") for n in range(30)],
        )
    connection.close()
    assert run_main(*_IMPORT, folder=folder).returncode == 0
    (folder / "mix.yaml").write_text("sources: [{path: telemetry.jsonl}]\ninfill: {share: 0.3}\n")
    mixed = run_main("corpus", "mix", "--config", "mix.yaml", "--data-dir", "build", folder=folder)
    assert mixed.returncode == 0, mixed.stderr
    done = run_main(*_DRY_RUN, folder=folder)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kinds"]["accepted"]["rows_shown"] >= 60
    refused = run_main(*_DRY_RUN, "--infill-share", "0", folder=folder)
    assert "leave no rows to train on. Give a share to a kind" in refused.stderr


@pytest.mark.slow
def test_a_dry_run_accounts_for_every_row(folder: Path) -> None:
    rows = [*pairs(90), *(pair.model_copy(update={"task_family": "telemetry"}) for pair in pairs(3))]
    rows = [
        row.model_copy(update={"prompt": row.prompt * 40}) if row.task_family == "telemetry" else row for row in rows
    ]
    write_jsonl(folder / "build" / "train.jsonl", rows)
    options = ("--fast-corpus", "--seq-len", "200", "--validation-split-ratio", "0.3", "--preset", "tiny")
    done = run_main("train", "--data-dir", "build", "--device", "cpu", "--dry-run", *options, folder=folder)
    lines = done.stdout.splitlines()
    counts = {name: int(line.split()[-1]) for line in lines for name in ("  validation", "  too_long") if name in line}
    (trained,) = (int(line.split()[2]) for line in lines if line.startswith("training rows"))

    assert trained + sum(counts.values()) == 93
    assert counts["  validation"] > 5
    assert "warning: no rows are shown of telemetry (3 rows). Give them a share (token_shares), or raise" in done.stderr
