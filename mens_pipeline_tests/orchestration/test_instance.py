"""The Dagster instance: its dagster.yaml, and the folders that it writes."""

import multiprocessing
import os
import subprocess
import sys
from multiprocessing.synchronize import Barrier
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa
import yaml

from mens_pipeline.definitions import defs
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.orchestration.instance import open_instance
from mens_pipeline.orchestration.resources import find_executor
from mens_pipeline.settings import PROJECT_ROOT

_POSTGRES = PROJECT_ROOT / "config" / "dagster-postgres.yaml"


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> dg.DagsterInstance:
    return open_instance(tmp_path_factory.mktemp("home"))


@pytest.mark.seed_row(79)
def test_one_step_at_a_time_uses_the_gpu(instance: dg.DagsterInstance) -> None:
    """A pool without a limit admits one step; every step that uses the GPU is in the pool `gpu`."""
    pools = instance.get_concurrency_config().pool_config
    nodes = defs().resolve_job_def("whole_graph").nodes

    assert pools.default_pool_limit == 1
    assert str(pools.pool_granularity) == "PoolGranularity.OP"
    on_gpu = {node.name for node in nodes if "gpu" in node.definition.pools}
    assert on_gpu == {"qlora_adapter", "eval_results"}
    assert {node.name for node in nodes if node.tags.get("mens/device") == "gpu"} == on_gpu
    tagged = {spec.key.to_user_string() for spec in defs().resolve_all_asset_specs() if "mens/device" in spec.tags}
    assert tagged == {*(*on_gpu, "scratch_model", "merged_model")}


@pytest.mark.nightly
@pytest.mark.seed_row(79)
def test_a_custom_executor_sees_the_tags_of_each_step(tmp_path: Path) -> None:
    module = "mens_pipeline_tests.orchestration.routing"
    places = {"MENS_EXECUTOR": f"{module}:telling", "MENS_STORE_ROOT": str(tmp_path), "DAGSTER_HOME": ""}
    command = [sys.executable, "-m", module]
    done = subprocess.run(
        command, env={**os.environ, **places}, capture_output=True, text=True, timeout=240, check=False
    )
    lines = done.stdout.splitlines()

    assert [line for line in lines if line.endswith(" gpu")] == ["qlora_adapter gpu", "eval_results gpu"], done.stderr
    assert lines[-1] == "['telling']"


@pytest.mark.parametrize(
    ("name", "problem"), [("nowhere:x", "No module named 'nowhere'"), ("os:sep", "a str, expected an executor")]
)
def test_a_name_that_is_not_an_executor_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, problem: str) -> None:
    monkeypatch.setenv("MENS_EXECUTOR", name)

    with pytest.raises(ConfigurationError, match=rf"^MENS_EXECUTOR={name}: {problem}"):
        find_executor(dg.in_process_executor)


def test_runs_are_concurrent_and_only_crashes_are_retried(instance: dg.DagsterInstance) -> None:
    """Slots of failed runs are freed, and old ticks are purged."""
    queue, monitoring = instance.get_concurrency_config().run_queue_config, instance.run_monitoring_settings

    assert queue is not None
    assert (queue.max_concurrent_runs, queue.tag_concurrency_limits) == (4, [])
    assert (instance.run_retries_enabled, instance.run_retries_max_retries) == (True, 1)
    assert instance.get_settings("run_retries")["retry_on_asset_or_op_failure"] is False
    assert instance.run_monitoring_enabled
    assert monitoring["free_slots_after_run_end_seconds"] == 120
    assert instance.run_monitoring_max_runtime_seconds == 12 * 60 * 60
    purges = instance.get_settings("retention")["sensor"]["purge_after_days"]
    assert purges == {"skipped": 7, "failure": 30, "success": 90}
    assert instance.telemetry_enabled is False


@pytest.mark.slow
def test_everything_is_written_below_the_home(tmp_path: Path) -> None:
    """Wherever a run is started, with any user's home, and without a variable that names a path of Dagster."""
    for folder in ("home", "cwd", "user", "workspace"):
        (tmp_path / folder).mkdir()
    (tmp_path / "workspace" / "bad.vox").write_text("fn (\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DAGSTER", "MENS", "XDG"))}
    environment = {
        **kept,
        "HOME": str(tmp_path / "user"),
        "DAGSTER_HOME": str(tmp_path / "home"),
        "MENS_STORE_ROOT": str(tmp_path / "store"),
        "PYTHONPATH": str(PROJECT_ROOT),
    }
    command = [sys.executable, "-m", "mens_pipeline.cli", "run", "--no-train", "--source-root", "../workspace"]
    result = subprocess.run(command, cwd=tmp_path / "cwd", env=environment, capture_output=True, text=True, check=False)

    assert result.returncode == 1, result.stderr
    assert list((tmp_path / "cwd").iterdir()) == list((tmp_path / "user").iterdir()) == []
    assert {path.name for path in (tmp_path / "home").iterdir()} >= {"dagster.yaml", "history"}


@pytest.mark.nightly
def test_the_tests_write_nothing_into_the_home_of_the_user(tmp_path: Path) -> None:
    """Dagster would store the identity of its telemetry there."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DAGSTER", "PYTEST", "XDG"))}
    test = PROJECT_ROOT / "mens_pipeline_tests" / "orchestration" / "defs" / "test_promotion.py"
    chosen = ["-k", "a_rollback_reaches_dagster", "-p", "no:cacheprovider", "-q", str(test)]
    command = [sys.executable, "-m", "pytest", *chosen]
    environment = {**kept, "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    assert list(tmp_path.iterdir()) == []


def _open_at_once(home: Path, ready: Barrier) -> None:
    ready.wait()
    with open_instance(home) as instance:
        instance.get_runs_count()


@pytest.mark.slow
@pytest.mark.parametrize("attempt", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 2))])
def test_an_empty_home_may_be_opened_by_several_at_once(tmp_path: Path, attempt: int) -> None:
    home = tmp_path / str(attempt)
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(5)
    processes = [context.Process(target=_open_at_once, args=(home, ready)) for _ in range(5)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    engine = sa.create_engine(f"sqlite:///{home / 'history' / 'runs.db'}", poolclass=sa.NullPool)
    with engine.connect() as connection:
        heads = connection.exec_driver_sql("SELECT count(*) FROM alembic_version").scalar_one()

    assert [process.exitcode for process in processes] == [0] * 5
    assert heads == 1


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """A home whose link leads to the former place of the clone."""
    (tmp_path / "dagster.yaml").symlink_to(tmp_path / "old-clone" / "dagster.yaml")
    return tmp_path


def test_a_moved_clone_is_linked_again(moved: Path) -> None:
    with open_instance(moved) as instance:
        assert instance.run_monitoring_enabled
    assert (moved / "dagster.yaml").resolve() == PROJECT_ROOT / "dagster.yaml"


def test_make_links_a_moved_clone_again(moved: Path) -> None:
    command = ["make", "-s", "-C", str(PROJECT_ROOT), f"DAGSTER_HOME={moved}", f"{moved}/dagster.yaml"]
    subprocess.run(command, check=True)

    assert (moved / "dagster.yaml").resolve() == PROJECT_ROOT / "dagster.yaml"


def test_the_recipe_for_postgres_differs_only_in_storage() -> None:
    ours = yaml.safe_load((PROJECT_ROOT / "dagster.yaml").read_text(encoding="utf-8"))
    recipe = yaml.safe_load(_POSTGRES.read_text(encoding="utf-8"))

    assert recipe.pop("storage") == {"postgres": {"postgres_url": {"env": "MENS_DAGSTER_POSTGRES_URL"}}}
    assert recipe == ours


def test_an_unset_variable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MENS_DAGSTER_POSTGRES_URL", raising=False)
    (tmp_path / "dagster.yaml").symlink_to(_POSTGRES)

    with pytest.raises(ConfigurationError, match=r"(?s)MENS_DAGSTER_POSTGRES_URL.*Correct the file"):
        open_instance(tmp_path)


@pytest.fixture
def empty_database(postgres_url: str) -> str:
    """An empty database on the server of the tests, as a URL for the recipe."""
    server = sa.make_url(postgres_url).set(drivername="postgresql+psycopg2")
    engine = sa.create_engine(server, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE DATABASE dagster")
    return server.set(database="dagster").render_as_string(hide_password=False)


@pytest.mark.postgres
def test_a_run_is_stored_in_postgres(empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENS_DAGSTER_POSTGRES_URL", empty_database)
    monkeypatch.setenv("MENS_SOURCE_ROOT", str(tmp_path))
    monkeypatch.setenv("MENS_STORE_ROOT", str(tmp_path / "store"))
    (tmp_path / "a.vox").write_text("fn a() { }\n")
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").symlink_to(_POSTGRES)
    job = defs().resolve_job_def("train_set")
    with open_instance(home) as instance:
        result = job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey("workspace_snapshot")])
    with open_instance(home) as again:
        run = again.get_run_by_id(result.run_id)
        (record,) = again.fetch_materializations(dg.AssetKey("workspace_snapshot"), limit=1).records
        kind = type(again.run_storage).__module__

    assert run is not None
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert record.run_id == result.run_id
    assert kind.startswith("dagster_postgres")
    assert not list(home.rglob("*.db"))
