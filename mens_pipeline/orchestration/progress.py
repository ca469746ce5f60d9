"""Dagster's events as lines for a terminal."""

import logging
from typing import Final

import dagster as dg

from mens_pipeline.orchestration.failures import reason_of

PROGRESS_LOGGER: Final = "mens_pipeline.progress"
"""The standard logger that receives one line for each event worth showing."""

_SHOWN: Final = {
    "STEP_START": "start",
    "STEP_SUCCESS": "done",
    "STEP_FAILURE": "FAILED",
    "STEP_SKIPPED": "skipped",
}


class _EventHandler(logging.Handler):
    """Passes step events and what assets log on to the progress logger."""

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, "dagster_event", None)
        meta = getattr(record, "dagster_meta", {})
        step = meta.get("step_key") or "run"
        message = meta.get("orig_message", record.getMessage())
        if event is None and message.startswith("Dependencies for step"):
            logging.getLogger(PROGRESS_LOGGER).info("not run: %s", step)
        elif event is None and record.levelno >= logging.INFO:
            logging.getLogger(PROGRESS_LOGGER).info("%s: %s", step, message)
        elif event is not None and event.event_type_value in _SHOWN:
            logging.getLogger(PROGRESS_LOGGER).info("%s: %s", _SHOWN[event.event_type_value], step)
            error = getattr(event.event_specific_data, "error", None)
            if error is not None:
                logging.getLogger(PROGRESS_LOGGER).error("%s", reason_of(error))
        elif event is not None and event.is_engine_event and "pool" in event.engine_event_data.metadata:
            logging.getLogger(PROGRESS_LOGGER).info("waiting: %s: %s", step, event.message)


@dg.logger
def progress_logger(_context: dg.InitLoggerContext) -> logging.Logger:
    """Return the logger that a headless run selects."""
    logger = logging.getLogger("mens_pipeline.dagster_events")
    logger.setLevel(logging.DEBUG)  # Dagster logs its step events at this level
    logger.propagate = False
    logger.handlers = [_EventHandler()]
    return logger
