"""A headless run of one asset in the pool `gpu`, as a process that tests can kill or interrupt.

`python -m mens_pipeline_tests.orchestration.tiny_graph HOME SECONDS` prints the outcome as JSON.
"""

import json
import logging
import sys
import time
from dataclasses import asdict
from pathlib import Path

import dagster as dg

from mens_pipeline.orchestration.instance import PROGRESS_LOGGER, progress_logger, run_graph
from mens_pipeline.settings import load_settings


def location(seconds: float) -> dg.Definitions:
    """An asset that takes its time."""

    @dg.asset(pool="gpu")
    def slow() -> None:
        time.sleep(seconds)

    job = dg.define_asset_job("slow_job", selection=[slow])
    return dg.Definitions(assets=[slow], jobs=[job], loggers={"progress": progress_logger})


def main() -> None:
    home, seconds = Path(sys.argv[1]), float(sys.argv[2])
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger(PROGRESS_LOGGER).setLevel(logging.INFO)
    settings = load_settings().model_copy(update={"dagster_home": home})
    sys.stdout.write(json.dumps(asdict(run_graph(location(seconds), settings, "slow_job"))))


if __name__ == "__main__":
    main()
