"""The Dagster instance on this machine."""

from pathlib import Path

import dagster as dg

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.settings import PROJECT_ROOT


def open_instance(home: Path) -> dg.DagsterInstance:
    """The instance whose runs the UI shows; its folder is made on first use.

    Args:
        home: `DAGSTER_HOME`.

    Raises:
        ConfigurationError: The folder cannot be made or its `dagster.yaml` is wrong.
    """
    config = home / "dagster.yaml"
    try:
        home.mkdir(parents=True, exist_ok=True)
        if not config.exists():
            config.symlink_to(PROJECT_ROOT / "dagster.yaml")
    except OSError as error:
        raise ConfigurationError(f"{home}: {error.strerror}. Set DAGSTER_HOME to a folder you may write.") from error
    try:
        return dg.DagsterInstance.from_config(str(home.resolve()))
    except dg.DagsterInvalidConfigError as error:
        raise ConfigurationError(f"{config}: {error}. Correct the file.") from error
