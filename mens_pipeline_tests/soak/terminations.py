"""Runs that are terminated at random moments as by the page: a run that was stopped in time promotes nothing.

The page marks a run as being canceled, and sends SIGINT to its process. Here one process makes run
after run of the assets that evaluate and promote an adapter, each in its own store, so that a try takes seconds.
`python -m mens_pipeline_tests.soak.terminations FOLDER` is that process.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch
from uuid import uuid4

import dagster as dg

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.environment import own_environment
from mens_pipeline.orchestration.asset import stop_if_canceled
from mens_pipeline.orchestration.defs import promotion
from mens_pipeline.orchestration.defs.promotion import benchmark_gate, gate_checks, promoted_adapter
from mens_pipeline.orchestration.instance import open_instance
from mens_pipeline.orchestration.resources import ArtifactHandover, ArtifactStoreResource
from mens_pipeline.promotion.history import CHAMPION, champion_key
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.evaluation.runs import evaluated, fill_trained
from mens_pipeline_tests.orchestration.stores import artifact_in, hand_over, latest_in
from mens_pipeline_tests.soak.figures import Budget, Figure
from mens_pipeline_tests.soak.processes import LENIENT

_FIRST_UNTOUCHED: Final = 2
"""Undisturbed runs, to know how long one takes: the first of a process is slower."""
_WHAT: Final = "runs terminated at random moments"


def terminations(budget: Budget, folder: Path) -> list[Figure]:
    dice, wrong, usual = random.Random(1), list[str](), 0.0
    command = [sys.executable, "-m", "mens_pipeline_tests.soak.terminations", str(folder)]
    variables = {**own_environment(), **LENIENT, "MENS_STORE_ROOT": str(folder)}
    num_stopped = num_promoted = num_ended = number = 0
    pipes: Mapping[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log, env=variables, **pipes) as process:
        lines = _read_lines(process)
        for number in range(_FIRST_UNTOUCHED):
            status, seconds, promoted = _run_to_end(process, lines, number)
            usual = seconds
            wrong += (
                [] if promoted and status == "SUCCESS" else [f"run {number}, left alone: {status}, nothing promoted"]
            )
        budget.begin()
        while budget.goes_on():
            number += 1
            stopped = _Stop(folder, process.pid, dice.uniform(0.02, 1.0) * usual)
            status, _, promoted = _run_to_end(process, lines, number, stopped)
            said = f"run {number}, stopped after {stopped.after:.2f} of {usual:.2f} s"
            num_ended += not stopped.at
            num_stopped += status == "CANCELED"
            num_promoted += bool(promoted)
            if stopped.at and promoted > stopped.at:
                wrong.append(f"{said}: promoted {promoted - stopped.at:.1f} s later")
            # A run stopped before Dagster handles signals stays CANCELING here; a run worker checks first.
            if stopped.at and not promoted and status in {"SUCCESS", "TORN"}:
                wrong.append(f"{said}: {status}")
        if process.stdin is not None:
            process.stdin.close()
    value = (
        f"{budget.done} runs: {num_stopped} canceled, {num_promoted} promoted before that, {num_ended} had ended; "
        f"one takes {usual:.1f} s"
    )
    return [Figure(_WHAT, value, tuple(wrong))]


class _Stop:
    def __init__(self, folder: Path, pid: int, after: float) -> None:
        self._home, self._pid, self.after, self.at = folder / "home", pid, after, 0.0

    def press(self, run_id: str) -> None:
        time.sleep(self.after)
        with open_instance(self._home) as instance:
            run = instance.get_run_by_id(run_id)
            if run is None or run.is_finished:
                return
            instance.report_run_canceling(run)
            self.at = time.time()
            os.kill(self._pid, signal.SIGINT)


def _read_lines(process: "subprocess.Popen[str]") -> Iterator[str]:
    assert process.stdout is not None
    return iter(process.stdout.readline, "")


def _run_to_end(
    process: "subprocess.Popen[str]", lines: Iterator[str], number: int, stop: _Stop | None = None
) -> tuple[str, float, float]:
    run_id = str(uuid4())
    assert process.stdin is not None
    process.stdin.write(f"{number} {run_id}\n")
    process.stdin.flush()
    assert next(lines).split() == ["begun", run_id]
    if stop is not None:
        stop.press(run_id)
    status, seconds, promoted = next(lines).split()
    return status, float(seconds), float(promoted)


def _make(folder: Path, number: str, run_id: str) -> tuple[str, float, float]:
    root = folder / f"store-{number}"
    store = ArtifactStore(root)
    artifact_in(root, Kind.HELDOUT_SPLIT, {"train": {}}, lambda path: (path / HELDOUT).write_text("held-out pairs\n"))
    adapter, _ = store.build(Kind.QLORA_ADAPTER, {"weights": number}, lambda path: fill_trained(path, number))
    evaluated(adapter.path, store, 40)
    evaluation, trained, split = (
        latest_in(store, kind).ref() for kind in (Kind.EVAL_RESULTS, Kind.QLORA_ADAPTER, Kind.HELDOUT_SPLIT)
    )
    resources: Mapping[str, Any] = {"store": ArtifactStoreResource(root=str(root)), "io_manager": ArtifactHandover()}
    selection = dg.AssetSelection.assets(benchmark_gate, promoted_adapter)
    assets: list[Any] = [dg.AssetSpec("eval_results"), benchmark_gate, promoted_adapter]
    job = dg.define_asset_job("judge", selection=selection | dg.AssetSelection.checks_for_assets(benchmark_gate))
    definitions = dg.Definitions(assets, asset_checks=[gate_checks], jobs=[job], resources=resources)
    with open_instance(folder / "home") as instance:
        hand_over(instance, replace(evaluation, parents=(replace(trained, parents=(split,)),)))
        sys.stdout.write(f"begun {run_id}\n")
        sys.stdout.flush()
        start = time.monotonic()
        with _record_checks() as times:
            definitions.resolve_job_def("judge").execute_in_process(
                instance=instance, run_id=run_id, raise_on_error=False
            )
        seconds, run = time.monotonic() - start, instance.get_run_by_id(run_id)
        status = run.status.value if run is not None else "ABSENT"
    try:
        is_promoted = champion_key(store) is not None
    except RefusedError:  # the history is ahead of the pointer
        status, is_promoted = "TORN", False
    # If no check for cancellation was recorded, the pointer has the time.
    found = (
        status,
        seconds,
        (*times, (root / Kind.PROMOTED_ADAPTER / CHAMPION).stat().st_mtime)[0] if is_promoted else 0.0,
    )
    shutil.rmtree(root)
    return found


@contextmanager
def _record_checks() -> Iterator[list[float]]:
    times: list[float] = []

    def record_and_check(context: dg.AssetExecutionContext) -> None:
        times.append(time.time())
        stop_if_canceled(context)

    with patch.object(promotion, "stop_if_canceled", record_and_check):
        yield times


def main() -> None:
    """Make a run for each line of a number and an id, and print how it ended.

    Dagster handles SIGINT during a run; one between two runs must not end this process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        status, seconds, pointer = _make(Path(sys.argv[1]), *line.split())
        sys.stdout.write(f"{status} {seconds} {pointer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
