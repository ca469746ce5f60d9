"""`mens store prune`: its plan, and the removal of artifacts."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import Result

from mens_pipeline.storage.store import MANIFEST, Artifact, ArtifactStore
from mens_pipeline_tests.cli.invoking import invoke

_OLD = 1_000_000_000


@pytest.fixture
def artifacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Artifact]:
    """Two adapters, both made long ago; `latest` names the second."""
    monkeypatch.setenv("MENS_STORE_ROOT", str(tmp_path / "store"))
    store = ArtifactStore(tmp_path / "store")
    made = [
        store.build("qlora_adapter", {"n": n}, lambda _folder: {"training": {"name": "lora-adapter-0123abcd"}})[0]
        for n in range(2)
    ]
    for artifact in made:
        os.utime(artifact.path / MANIFEST, (_OLD, _OLD))
    return made


def _prune(*options: str) -> Result:
    return invoke("store", "prune", *options)


def test_a_dry_run_lists_removals_with_reasons(artifacts: list[Artifact]) -> None:
    first, second = artifacts
    result = _prune()

    assert result.exit_code == 0
    assert (
        f"remove  qlora_adapter     {first.key[:12]}     0.3 kB  lora-adapter-0123abcd: older than 90 days"
        in result.stdout
    )
    assert (
        f"keep    qlora_adapter     {second.key[:12]}     0.3 kB  lora-adapter-0123abcd: named by latest"
        in result.stdout
    )
    assert result.stdout.endswith("to remove: 1/2, 0.3 kB of 0.5 kB; --apply removes them\n")
    assert first.path.is_dir()


def test_apply_prints_the_plan_and_removes_artifacts(artifacts: list[Artifact]) -> None:
    first, second = artifacts
    result = _prune("--apply")

    assert result.stdout.endswith("removing 1/2, 0.3 kB of 0.5 kB\n")
    assert "older than 90 days" in result.stdout
    assert (first.path.exists(), second.path.exists()) == (False, True)
    assert "to remove: 0/1" in _prune().stdout


def test_json_has_the_same_plan(artifacts: list[Artifact]) -> None:
    plan = json.loads(_prune("--json").stdout)
    (removed,) = (row for row in plan["artifacts"] if row["action"] == "remove")

    assert plan["applied"] is False
    assert plan["bytes_removed"] == removed["bytes"] < plan["bytes"]
    assert (removed["key"], removed["reason"]) == (artifacts[0].key, "older than 90 days")
