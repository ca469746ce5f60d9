"""Disks that are full or can only be read: a line, exit code 1, and what was there is as it was."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from mens_pipeline.evaluation.results import RESULTS
from mens_pipeline.evaluation.run_folder import remember
from mens_pipeline.jobs.environment import own_environment
from mens_pipeline.models.adapter import ADAPTER, MANIFEST, WEIGHTS
from mens_pipeline.promotion.history import champion_key
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.store import ArtifactStore, digest_of
from mens_pipeline_tests.cli.invoking import run_main
from mens_pipeline_tests.corpus.full_disk import full_after
from mens_pipeline_tests.evaluation.runs import evaluated, promoted, trained, training_manifest

_KILOBYTE = 1024
_LARGE = 600
"""Kilobytes of the weights: more than any document of a verdict, and than a page of it."""


def _environment(folder: Path) -> dict[str, str]:
    return {
        "MENS_STORE_ROOT": str(folder / "store"),
        "DAGSTER_HOME": str(folder / "dagster"),
        "VOX_BENCHMARK": "0",
        "VOX_EVAL_POLICY": "bootstrap",
        "VOX_EVAL_MIN_PARSE_RATE": "0.7",
        "VOX_EVAL_MIN_COVERAGE": "0.05",
    }


def _lay(folder: Path, name: str, weights: str) -> Path:
    """A run that was evaluated, beside its rows."""
    run, store = trained(folder / name, weights), ArtifactStore(folder / "store")
    rows = {key: folder / f"{key}.jsonl" for key in ("train", "heldout")}
    rows["train"].write_text("rows\n")
    rows["heldout"].write_text("held-out pairs\n")
    manifest = {
        **training_manifest(),
        "train_file": str(rows["train"]),
        "train_sha256": digest_of(rows["train"]),
        "heldout_sha256": digest_of(rows["heldout"]),
    }
    (run / MANIFEST).write_text(json.dumps(manifest))
    evaluation = evaluated(run, store)
    shutil.copy(evaluation.path / RESULTS, run / RESULTS)
    remember(run, evaluation)
    return run


def _state(store: ArtifactStore) -> dict[str, str]:
    """Every file of the store but locks."""
    files = (path for path in store.root.rglob("*") if path.is_file() and "lock" not in path.name)
    return {str(path.relative_to(store.root)): digest_of(path) for path in files}


def _refused(done: CompletedProcess[str]) -> str:
    """The one line that a command said."""
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("mens: ")]
    return line


def test_a_promotion_onto_a_full_disk_keeps_the_champion(tmp_path: Path) -> None:
    """The weights do not fit: nothing of the promotion is left, and after room was made it goes on."""
    store, variables = ArtifactStore(tmp_path / "store"), _environment(tmp_path)
    promoted(trained(tmp_path / "first", "old"), store)
    run = _lay(tmp_path, "run", "w" * _LARGE * _KILOBYTE)
    assert run_main("gate", "--run-dir", run, folder=tmp_path, variables=variables).returncode == 0
    champion, before = champion_key(store), _state(store)
    with full_after(_LARGE * _KILOBYTE // 2):
        line = _refused(run_main("promote", "--run-dir", run, folder=tmp_path, variables=variables))

    assert line.endswith(": File too large. Set MENS_STORE_ROOT to a folder that you may write and that has room.")
    assert f"{ADAPTER}/{WEIGHTS}" in line
    assert (champion_key(store), _state(store)) == (champion, before)
    assert run_main("promote", "--run-dir", run, folder=tmp_path, variables=variables).returncode == 0
    assert champion_key(store) != champion


def test_a_verdict_that_finds_no_room_is_a_line(tmp_path: Path) -> None:
    """The page does not fit; the ledger and the evaluation stay."""
    run, store = _lay(tmp_path, "run", "weights"), ArtifactStore(tmp_path / "store")
    before = _state(store)
    with full_after(5 * _KILOBYTE):
        line = _refused(run_main("gate", "--run-dir", run, folder=tmp_path, variables=_environment(tmp_path)))

    assert "File too large" in line
    assert _state(store) == before


def test_a_home_without_room_is_a_line(tmp_path: Path) -> None:
    """The database of Dagster cannot be made: the words of SQLite, the folder, and nothing of SQLAlchemy."""
    variables = {**_environment(tmp_path), "MENS_NUM_WORKERS": "1"}
    with full_after(20 * _KILOBYTE):
        done = run_main("run", "--no-train", folder=tmp_path, variables=variables)

    assert done.returncode == 1
    assert f"mens: {tmp_path / 'dagster'}: " in done.stderr
    assert "sqlalche" not in done.stderr
    assert "Traceback" not in done.stderr


def _can_mount() -> bool:
    command = ["unshare", "-m", "true"]
    return shutil.which("unshare") is not None and subprocess.run(command, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not _can_mount(), reason="mounting takes root on Linux")
def test_a_store_that_can_only_be_read_is_a_line(tmp_path: Path) -> None:
    """Rollback, pruning, verdict and promotion; the history and the champion stay."""
    store = ArtifactStore(tmp_path / "store")
    for name in ("one", "two"):
        promoted(trained(tmp_path / name, name), store)
    run = _lay(tmp_path, "run", "weights")
    before = _state(store)
    mount = f"mount --bind {store.root} {store.root} && mount -o remount,ro,bind {store.root}"
    for words in ("promote --rollback", "store prune --apply", f"gate --run-dir {run}"):
        command = f"{mount} && exec {sys.executable} -m mens_pipeline.cli {words}"
        environment = {**own_environment(), **_environment(tmp_path), "PYTHONPATH": str(PROJECT_ROOT)}
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", command], env=environment, capture_output=True, text=True, check=False
        )

        assert ": Read-only file system. Set MENS_STORE_ROOT" in _refused(done), words
    assert _state(store) == before
