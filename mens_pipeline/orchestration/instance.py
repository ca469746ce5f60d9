"""The Dagster instance on this machine, and how it learns of a champion that no run made."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import dagster as dg
from dagster._core.instance.ref import InstanceRef

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.orchestration.resources import champion_metadata, reference
from mens_pipeline.promotion.promote import Promotion
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.documents import hold_lock
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactStore

_LOCK: Final = ".opening.lock"
_HEADLESS: Final[Mapping[str, Any]] = {"concurrency": {"pools": {"granularity": "run"}}}
"""Of runs without a server: none takes a slot of a pool. A process that is killed keeps its slot until a daemon frees
it, and there may be none; the lock of the device lets one process at it all the same, and goes with its holder."""


def open_instance(home: Path, *, is_headless: bool = False) -> dg.DagsterInstance:
    """Open the instance whose runs the UI shows; its folder is made on first use.

    Raises:
        ConfigurationError: The folder cannot be made or its `dagster.yaml` is wrong.
    """
    config = home / "dagster.yaml"
    try:
        home.mkdir(parents=True, exist_ok=True)
        # Dagster makes its databases when they are first opened; of three processes that do so at once, one fails, and
        # the version table of the database is left with two heads, so that every later command fails as well.
        with hold_lock(home / _LOCK):
            if not config.exists():
                config.unlink(missing_ok=True)  # a link that a clone left behind when it was moved
                config.symlink_to(PROJECT_ROOT / "dagster.yaml")
            return _open(InstanceRef.from_dir(str(home.resolve()), overrides=_HEADLESS if is_headless else {}))
    except OSError as error:
        raise ConfigurationError(f"{home}: {error.strerror}. Set DAGSTER_HOME to a folder you may write.") from error
    except dg.DagsterInvalidConfigError as error:
        raise ConfigurationError(f"{config}: {error}. Correct the file.") from error


def _open(reference: InstanceRef) -> dg.DagsterInstance:
    instance = dg.DagsterInstance.from_ref(reference)
    instance.get_runs_count()
    instance.event_log_storage.get_maximum_record_id()
    instance.all_instigator_state()
    return instance


def report_champion(promotion: Promotion, store: ArtifactStore, home: Path) -> str:
    """Tell the Dagster instance of a change that no run made, if there is one; sensors then see it as well.

    The champion was changed already, so nothing is raised, whatever is wrong with the instance.

    Return why it could not be told; nothing when it was, or when there is no instance.
    """
    if not (home / "dagster.yaml").is_file():
        return ""
    event = dg.AssetMaterialization(
        Kind.PROMOTED_ADAPTER,
        description="Changed by hand.",
        metadata={**champion_metadata(promotion, store), **reference(promotion.champion.ref())},
        tags={"dagster/data_version": promotion.champion.key},
    )
    try:
        with open_instance(home) as instance:
            instance.report_runless_asset_event(event)
    except Exception as error:  # noqa: BLE001 - of Dagster, SQLAlchemy, alembic or a database driver
        return f"{type(error).__name__}: {error}"
    return ""
