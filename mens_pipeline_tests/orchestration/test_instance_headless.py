"""Runs without a server, which may be killed, interrupted or waiting."""

import json
import logging
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from mens_pipeline.models.card import plain
from mens_pipeline.orchestration.asset import plainly
from mens_pipeline.orchestration.instance import PROGRESS_LOGGER, _keep_plain, open_instance, progress_logger, run_graph
from mens_pipeline.settings import PROJECT_ROOT, load_settings
from mens_pipeline_tests.orchestration.tiny_graph import location


def _start(home: Path, seconds: float) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "mens_pipeline_tests.orchestration.tiny_graph", str(home), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _start_slow(home: Path) -> "subprocess.Popen[str]":
    process = _start(home, 600)
    assert process.stderr is not None
    assert any("start: slow" in line for line in process.stderr)
    return process


def _run_to_end(home: Path) -> tuple[dict[str, Any], str]:
    stdout, stderr = _start(home, 0).communicate(timeout=240)
    return json.loads(stdout), stderr


def _statuses(home: Path) -> dict[str, dg.DagsterRunStatus]:
    with open_instance(home) as instance:
        return {run.run_id: run.status for run in instance.get_runs()}


@pytest.mark.slow
def test_a_killed_run_does_not_block_the_next(tmp_path: Path) -> None:
    killed = _start_slow(tmp_path)
    killed.kill()
    killed.communicate()
    (lost,) = _statuses(tmp_path)
    outcome, said = _run_to_end(tmp_path)

    assert outcome["success"]
    assert f"run {lost} was killed; reporting it as failed" in said
    assert _statuses(tmp_path) == {lost: dg.DagsterRunStatus.FAILURE, outcome["run_id"]: dg.DagsterRunStatus.SUCCESS}
    assert list((tmp_path / "headless").iterdir()) == []
    assert _list_first_page(tmp_path) == {lost: "headless", outcome["run_id"]: "headless"}


def _list_first_page(home: Path) -> dict[str, str]:
    (location_of_ui,) = yaml.safe_load((PROJECT_ROOT / "workspace.yaml").read_text())["load_from"]
    name = location_of_ui["python_module"]["location_name"]
    with open_instance(home) as instance:
        found = instance.get_runs(dg.RunsFilter(tags={".dagster/repository": f"__repository__@{name}"}))
    for run in found:  # the timeline finds the row of a run by these
        assert run.remote_job_origin is not None
        assert (run.remote_job_origin.repository_origin.get_label(), run.job_name) == (
            f"__repository__@{name}",
            run.remote_job_origin.job_name,
        )
    return {run.run_id: run.tags["mens/job"] for run in found}


@pytest.mark.nightly
def test_a_live_run_is_left_alone(tmp_path: Path) -> None:
    working = _start_slow(tmp_path)
    (run_id,) = _statuses(tmp_path)
    outcome, _ = _run_to_end(tmp_path)
    still = _statuses(tmp_path)[run_id]
    working.send_signal(signal.SIGKILL)
    working.communicate()

    assert outcome["success"]
    assert still is dg.DagsterRunStatus.STARTED


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_run_that_is_canceled_in_the_ui_is_interrupted(tmp_path: Path, *, is_deleted: bool) -> None:
    @dg.asset
    @plainly
    def first(context: dg.AssetExecutionContext) -> None:
        if is_deleted:
            context.instance.delete_run(context.run.run_id)
        else:
            context.instance.report_run_canceled(context.run)

    @dg.asset(deps=[first])
    @plainly
    def second() -> None:
        raise AssertionError

    job = dg.define_asset_job("two")
    definitions = dg.Definitions(assets=[first, second], jobs=[job], loggers={"progress": progress_logger})
    outcome = run_graph(definitions, load_settings().model_copy(update={"dagster_home": tmp_path}), "two")

    assert (outcome.success, outcome.is_interrupted) == (False, True)
    assert set(_statuses(tmp_path).values()) == (set() if is_deleted else {dg.DagsterRunStatus.CANCELED})


def test_a_run_that_waits_for_a_slot_logs_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_instance(tmp_path) as instance:
        storage = instance.event_log_storage
        storage.initialize_concurrency_limit_to_default("gpu")
        storage.claim_concurrency_slot("gpu", "another-run", "its_step")

        class Freeing(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if "waiting" in record.getMessage():
                    storage.free_concurrency_slots_for_run("another-run")

        logger, freeing = logging.getLogger(PROGRESS_LOGGER), Freeing()
        logger.addHandler(freeing)
        try:
            with caplog.at_level(logging.INFO, PROGRESS_LOGGER):
                job = location(0).resolve_job_def("slow_job")
                result = job.execute_in_process(instance=instance, run_config={"loggers": {"progress": {}}})
        finally:
            logger.removeHandler(freeing)

    assert result.success
    assert "waiting: slow: Step blocked by limit for pool gpu" in caplog.messages


def test_escaped_markdown_is_plain_in_a_terminal() -> None:
    metadata = {
        "reasons": dg.MetadataValue.md(f"- {plain('parse_rate: 0.1 < 0.6')}"),
        "curve": dg.MetadataValue.md("![loss](data:...)"),
        "n": dg.MetadataValue.int(3),
    }

    assert _keep_plain(metadata) == {"reasons": "- parse_rate: 0.1 < 0.6", "n": 3}
