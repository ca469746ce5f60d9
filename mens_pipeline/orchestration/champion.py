"""The adapter in use as Dagster shows it, whoever changed it."""

import time
from pathlib import Path
from typing import Any

import dagster as dg

from mens_pipeline.models.adapter import ADAPTER, CARD
from mens_pipeline.orchestration.handover import reference
from mens_pipeline.orchestration.instance import open_instance
from mens_pipeline.orchestration.metadata import table
from mens_pipeline.orchestration.resources import linked_page
from mens_pipeline.promotion.benchmark_gate import PAGE
from mens_pipeline.promotion.history import KIND, history_of
from mens_pipeline.promotion.promote import Promotion
from mens_pipeline.storage.store import ArtifactStore


def champion_metadata(promotion: Promotion, store: ArtifactStore) -> dict[str, Any]:
    """Return card, report and history of the champion."""
    champion = promotion.champion
    return {
        "changed": promotion.changed,
        "champion": dg.MetadataValue.path(champion.path),
        "previous": promotion.previous or "none",
        "card": dg.MetadataValue.md((champion.path / ADAPTER / CARD).read_text(encoding="utf-8")),
        **linked_page(store, champion, PAGE),
        "history": table(
            {
                "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(event.timestamp_unix)),
                "action": event.action,
                "champion": event.key[:12],
                "reason": event.reason,
            }
            for event in reversed(history_of(store))
        ),
    }


def report_champion(promotion: Promotion, store: ArtifactStore, home: Path) -> str:
    """Tell the Dagster instance of a change that no run made, if there is one; sensors then see it as well.

    The champion was changed already, so nothing is raised, whatever is wrong with the instance.

    Return why it could not be told; nothing when it was, or when there is no instance.
    """
    if not (home / "dagster.yaml").is_file():
        return ""
    event = dg.AssetMaterialization(
        KIND,
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
