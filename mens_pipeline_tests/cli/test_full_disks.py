"""Full and read-only disks: one line, exit code 1, and nothing is changed."""

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Final

import pytest

from mens_pipeline.jobs.environment import own_environment
from mens_pipeline.models.adapter import ADAPTER, WEIGHTS
from mens_pipeline.promotion.history import champion_key
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.store import ArtifactStore, digest_of
from mens_pipeline_tests.cli.invoking import run_main
from mens_pipeline_tests.corpus.full_disk import full_after
from mens_pipeline_tests.evaluation.runs import evaluated_run, promoted, trained

_KILOBYTE = 1024
_NOBODY = 65534
_LARGE = 600
"""Kilobytes of the weights: more than any document or page of a verdict."""


def _environment(folder: Path) -> dict[str, str]:
    return {
        "MENS_STORE_ROOT": str(folder / "store"),
        "DAGSTER_HOME": str(folder / "dagster"),
        "VOX_BENCHMARK": "0",
        "VOX_EVAL_POLICY": "bootstrap",
        "VOX_EVAL_MIN_PARSE_RATE": "0.7",
        "VOX_EVAL_MIN_COVERAGE": "0.05",
    }


def _state(store: ArtifactStore) -> dict[str, str]:
    files = (path for path in store.root.rglob("*") if path.is_file() and "lock" not in path.name)
    return {str(path.relative_to(store.root)): digest_of(path) for path in files}


def _read_refusal(done: CompletedProcess[str]) -> str:
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("mens: ")]
    return line


def test_a_promotion_onto_a_full_disk_keeps_the_champion(tmp_path: Path) -> None:
    store, variables = ArtifactStore(tmp_path / "store"), _environment(tmp_path)
    promoted(trained(tmp_path / "first", "old"), store)
    run = evaluated_run(tmp_path, "run", "w" * _LARGE * _KILOBYTE)
    assert run_main("gate", "--run-dir", run, folder=tmp_path, variables=variables).returncode == 0
    champion, before = champion_key(store), _state(store)
    with full_after(_LARGE * _KILOBYTE // 2):
        line = _read_refusal(run_main("promote", "--run-dir", run, folder=tmp_path, variables=variables))

    assert line.endswith(": File too large. Set MENS_STORE_ROOT to a writable folder with free space.")
    assert f"{ADAPTER}/{WEIGHTS}" in line
    assert (champion_key(store), _state(store)) == (champion, before)
    assert run_main("promote", "--run-dir", run, folder=tmp_path, variables=variables).returncode == 0
    assert champion_key(store) != champion


def test_a_verdict_without_disk_space_fails_in_one_line(tmp_path: Path) -> None:
    run, store = evaluated_run(tmp_path, "run", "weights"), ArtifactStore(tmp_path / "store")
    before = _state(store)
    with full_after(5 * _KILOBYTE):
        line = _read_refusal(run_main("gate", "--run-dir", run, folder=tmp_path, variables=_environment(tmp_path)))

    assert "File too large" in line
    assert _state(store) == before


def test_a_home_without_disk_space_fails_in_one_line(tmp_path: Path) -> None:
    variables = {**_environment(tmp_path), "MENS_NUM_WORKERS": "1"}
    with full_after(20 * _KILOBYTE):
        done = run_main("run", "--no-train", folder=tmp_path, variables=variables)

    assert done.returncode == 1
    assert f"mens: {tmp_path / 'dagster'}: " in done.stderr
    assert "sqlalche" not in done.stderr
    assert "Traceback" not in done.stderr


def _raise_later(earlier: Exception, later: Exception) -> None:
    try:
        raise earlier
    except type(earlier):
        raise later  # noqa: B904 - it has another cause


_FULL: Final = OSError(errno.ENOSPC, "No space left on device")
_BY_SQLITE: Final = sqlite3.OperationalError("database or disk is full")


@pytest.mark.parametrize("earlier", [_FULL, _BY_SQLITE], ids=["system", "sqlite"])
def test_an_error_while_handling_a_full_disk_is_not_a_full_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, earlier: Exception
) -> None:
    monkeypatch.setattr("mens_pipeline.cli.main.app", lambda: _raise_later(earlier, KeyError("mistake")))

    with pytest.raises(KeyError, match="mistake"):
        run_main(folder=tmp_path)


def _read_refusal_of(app: Callable[[], object], folder: Path) -> str:
    """Return the message of a program that runs `app` in place of its commands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mens_pipeline.cli.main.app", app)
        return _read_refusal(run_main(folder=folder, variables={"DAGSTER_HOME": str(folder / "home")}))


def test_errors_of_a_database_are_reported(tmp_path: Path) -> None:
    """Including those that SQLite wraps; a database that cannot be opened needs no room."""
    wrapper = sqlite3.OperationalError("the next statement could not begin")
    full = _read_refusal_of(lambda: _raise_later(_BY_SQLITE, wrapper), tmp_path)
    missing = _read_refusal_of(lambda: sqlite3.connect(tmp_path / "home" / "history" / "runs.db"), tmp_path)

    assert full.startswith(f"mens: {tmp_path / 'home'}: database or disk is full. Make room there")
    assert missing.startswith(f"mens: {tmp_path / 'home'}: unable to open database file. ")
    assert "DAGSTER_HOME" in full
    assert "DAGSTER_HOME" in missing
    assert "room" not in missing


_SAFETENSORS: Final = "Error while serializing: I/O error: Read-only file system (os error 30)"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "out of memory. Use a smaller batch"),
        (RuntimeError("alloc_cpu: Error code 12 (Cannot allocate memory)"), "(Cannot allocate memory). Use a smaller"),
        (RuntimeError("CUDA out of memory. Tried"), "out of memory. Tried. Use a smaller batch"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when"), "ALLOC_FAILED when. Use a smaller batch"),
        (ValueError(_SAFETENSORS), "(os error 30). Let it be written"),
        (OSError(errno.EIO, "Input/output error", "a.vox"), "a.vox: Input/output error. Make sure it has room and is"),
        (OSError(errno.ENOLCK, "No locks available"), "No locks available. Use folders on another file system"),
    ],
)
def test_a_missing_resource_fails_in_one_line(tmp_path: Path, error: Exception, said: str) -> None:
    def fail(cause: Exception | None) -> None:
        if cause is None:
            raise error
        raise KeyError("step") from cause

    for cause in (None, error):
        assert said in _read_refusal_of(partial(fail, cause), tmp_path)


def test_an_unreachable_postgresql_fails_in_one_line(tmp_path: Path) -> None:
    psycopg2 = pytest.importorskip("psycopg2")
    line = _read_refusal_of(lambda: psycopg2.connect("host=127.0.0.1 port=1 dbname=x connect_timeout=2"), tmp_path)

    assert line.startswith("mens: PostgreSQL, the database of Dagster: ")
    assert line.endswith("Make sure that it runs, and run the command again.")


def test_a_store_of_another_user_fails_in_one_line(tmp_path: Path) -> None:
    store, user = ArtifactStore(tmp_path / "store"), os.geteuid()
    promoted(trained(tmp_path / "one", "one"), store)
    store.root.chmod(0)
    try:
        os.seteuid(_NOBODY if user == 0 else user)  # root may read every file
        done = run_main("promote", "--history", folder=Path("/"), variables=_environment(tmp_path))
    finally:
        os.seteuid(user)
        store.root.chmod(0o700)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"mens: {store.root / 'promoted_adapter' / 'history.jsonl'}: Permission denied. ")
    assert done.stderr.count("\n") == 1


def _mount(folder: Path) -> str:
    return f"mount --bind {folder} {folder} && mount -o remount,ro,bind {folder}"


def _explain_no_mount(folder: Path) -> str | None:
    if shutil.which("unshare") is None:
        return "there is no unshare"
    command = ["unshare", "-m", "sh", "-c", _mount(folder)]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    return tried.stderr if tried.returncode else None


@pytest.mark.nightly
def test_a_read_only_store_fails_in_one_line(tmp_path: Path) -> None:
    if problem := _explain_no_mount(tmp_path):
        pytest.skip(f"mounting needs root on Linux: {problem}")
    store = ArtifactStore(tmp_path / "store")
    for name in ("one", "two"):
        promoted(trained(tmp_path / name, name), store)
    run = evaluated_run(tmp_path, "run", "weights")
    before = _state(store)
    for words in ("promote --rollback", "store prune --apply", f"gate --run-dir {run}"):
        command = f"{_mount(store.root)} && exec {sys.executable} -m mens_pipeline.cli {words}"
        environment = {**own_environment(), **_environment(tmp_path), "PYTHONPATH": str(PROJECT_ROOT)}
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", command], env=environment, capture_output=True, text=True, check=False
        )

        assert ": Read-only file system. Set MENS_STORE_ROOT" in _read_refusal(done), words
    assert _state(store) == before
