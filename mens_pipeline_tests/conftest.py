"""Fixtures of more than one folder."""

import gc
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Final

import pytest

from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.jobs.environment import own_environment
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.servers import free_ports
from mens_pipeline_tests.training.tiny_base import write_tiny_base

pytest.MonkeyPatch().setenv(
    "MENS_SIDE_BRANCHES", "scratch"
)  # before a test loads the code location: all of it is tested
pytest_plugins = ("mens_pipeline_tests.durations", "mens_pipeline_tests.gpu_page", "mens_pipeline_tests.object_storage")
_PASSWORD: Final = "hunter2hunter2"  # noqa: S105 - of a server that lives as long as the tests
_UNPRIVILEGED: Final = ("postgres", "nobody")
_MEASURED: Final = {"storage", "language", "corpus"}
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - pytest makes a folder in it that no other user may read
_TEMPROOT: Final = "PYTEST_DEBUG_TEMPROOT"
_ROOM_BYTES: Final = 8 * 2**30
"""With less memory free, folders of tests stay on the disk."""
_HANDLERS: Final = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}


def pytest_configure(config: pytest.Config) -> None:
    """Put the folders of tests into memory, if there is room and programs may run there.

    A run of Dagster waits hundreds of times for its databases to reach the disk, which no test needs. That is
    a third of the time of some tests. `PYTEST_DEBUG_TEMPROOT` and `--basetemp` take precedence.
    """
    if _TEMPROOT in own_environment() or not os.access(_MEMORY, os.W_OK):
        return
    found = re.search(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    available = min(int(found[1]) * 1024 if found else 0, shutil.disk_usage(_MEMORY).free)
    if available >= _ROOM_BYTES and not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC:
        patch = pytest.MonkeyPatch()
        patch.setenv(_TEMPROOT, str(_MEMORY))
        config.add_cleanup(patch.undo)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that run with coverage, which doubles their time; other tests have the marker themselves."""
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if folder in _MEASURED and not {"slow", "nightly"} & {mark.name for mark in item.iter_markers()}:
            item.add_marker("measured")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Start each test with the signal handlers of the suite, and with subnormal numbers.

    Dagster leaves SIGTERM as SIGINT was, perhaps ignored; a job that generates flushes such numbers to zero.
    """
    for number, handler in _HANDLERS.items():
        signal.signal(number, handler)
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)


@pytest.fixture(scope="module", autouse=True)
def _freeze() -> None:
    """Collect garbage, and exclude all remaining objects from later collections, which take a second or more.

    Those would count in every time that a test measures.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def offline() -> list[str]:
    """A prefix that runs a command in a network namespace without a route; empty if the machine does not allow one."""
    command = ["unshare", "--map-root-user", "--net"]
    if (
        shutil.which(command[0]) is None
        or subprocess.run([*command, "true"], capture_output=True, check=False).returncode
    ):
        return []
    return command


@pytest.fixture(scope="session")
def seed_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, offline: list[str]) -> Path:
    """The folder of a `mens run --no-train` over the seed data: `store`, `home`, `stdout`, `stderr`, `exit_code`.

    It is run once for all workers, without a network if possible. A store that is copied from its `store` has
    the stages up to the train set made.
    """
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if hasattr(request.config, "workerinput") else folder) / "seed_run"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not (folder / "exit_code").exists():
            places = {"DAGSTER_HOME": str(folder / "home"), "MENS_STORE_ROOT": str(folder / "store")}
            command = [*offline, sys.executable, "-m", "mens_pipeline.cli", "run", "--no-train"]
            with (folder / "stdout").open("w") as stdout, (folder / "stderr").open("w") as stderr:
                done = subprocess.run(
                    command, env={**own_environment(), **places}, stdout=stdout, stderr=stderr, check=False
                )
            (folder / "exit_code").write_text(str(done.returncode))
    return folder


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    """A store that does not exist yet."""
    return ArtifactStore(tmp_path / "store")


@pytest.fixture(scope="session")
def workers() -> Iterator[BehaviourWorkers]:
    """Two processes that observe functions, for all tests; they start at the first request."""
    with BehaviourWorkers() as found:
        yield found


@pytest.fixture(scope="session", autouse=True)
def _one_pool_of_workers(workers: BehaviourWorkers) -> Iterator[None]:
    """Lend these processes to all code that would start such ones, which takes longer than their work in tests."""

    def settings(pool: BehaviourWorkers) -> tuple[object, ...]:
        return pool.num_workers, pool.limits, pool.launch, pool._command, pool._seconds  # noqa: SLF001 - what makes pools equal

    def enter(pool: BehaviourWorkers) -> BehaviourWorkers:
        return workers if settings(pool) == settings(workers) else pool

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BehaviourWorkers, "__enter__", enter)
        yield


@pytest.fixture(scope="session")
def tiny_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model of two layers."""
    return write_tiny_base(tmp_path_factory.mktemp("base") / "tiny")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run on a tiny base, with held-out pairs beside its train set; tests copy it before they change it."""
    from mens_pipeline_tests.delivery.delivered import trained_run  # noqa: PLC0415 - most tests need none of it

    return trained_run(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def cuda() -> None:
    """Skip a test if there is no GPU."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("this machine has no CUDA device")


@pytest.fixture
def jobs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the jobs of commands and assets in this process."""
    from mens_pipeline_tests.jobs.processes import do_here  # noqa: PLC0415 - most tests need none of it

    for module in ("cli.terminal", "orchestration.launchers"):
        monkeypatch.setattr(f"mens_pipeline.{module}.run_job", do_here)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """An empty local PostgreSQL server, removed after the tests."""
    initdb, pg_ctl = _find_server_command("initdb"), _find_server_command("pg_ctl")
    if initdb is None or pg_ctl is None:
        pytest.skip("no PostgreSQL server: initdb and pg_ctl are not on the path nor where Debian puts them")
    folder = Path(tempfile.mkdtemp(prefix="mens-postgres-"))
    (folder / "password").write_text(_PASSWORD)
    as_user = _drop_privileges(folder)
    data, (port,) = folder / "data", free_ports(1)
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    stop = [*as_user, pg_ctl, "stop", "-D", str(data), "-m", "immediate"]
    try:
        access = ["-U", "mens", "-A", "scram-sha-256", f"--pwfile={folder / 'password'}"]
        _run(*as_user, initdb, "-D", str(data), "-E", "UTF8", "--locale=C", *access)
        _run(*as_user, pg_ctl, "start", "-w", "-D", str(data), "-l", str(folder / "log"), "-o", options)
        yield f"postgresql://mens:{_PASSWORD}@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run(stop, cwd=folder, capture_output=True, check=False)
        shutil.rmtree(folder)


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout


def _find_server_command(name: str) -> str | None:
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or next((str(path) for path in reversed(installed)), None)


def _drop_privileges(folder: Path) -> list[str]:
    """Return a prefix that runs a command as another user than root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return []
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = next((known[name] for name in _UNPRIVILEGED if name in known), None)
    runuser = shutil.which("runuser")
    if user is None or runuser is None:
        pytest.skip("PostgreSQL does not run as root, and there is no other user to run it as")
    for path in (folder, *folder.iterdir()):
        os.chown(path, user.pw_uid, user.pw_gid)
    return [runuser, "-u", user.pw_name, "--"]
