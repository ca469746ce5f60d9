"""Rounds of the graph: which adapter is judged, and what there must be before a round."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.tags import PARENT_RUN_ID_TAG

from mens_pipeline.definitions import defs
from mens_pipeline.errors import RefusedError
from mens_pipeline.orchestration.improve import Plan, improve
from mens_pipeline.orchestration.instance import open_instance
from mens_pipeline.orchestration.resources import ArtifactHandover, made_in_run
from mens_pipeline.settings import load_settings
from mens_pipeline.storage.store import ArtifactRef
from mens_pipeline_tests.orchestration.stores import hand_over

_REF = ArtifactRef("qlora_adapter", "a" * 64)


def _assets(seen: list[ArtifactRef | None]) -> list[Any]:
    @dg.asset
    def feedback_adapter() -> dg.MaterializeResult[Any]:
        return dg.MaterializeResult(value=_REF)

    @dg.asset(deps=[feedback_adapter])
    def evaluating(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        seen.append(made_in_run(context, "feedback_adapter"))
        return dg.MaterializeResult(value=_REF)

    return [feedback_adapter, evaluating]


def test_a_run_judges_what_it_made_itself() -> None:
    """Or what the run made that it goes on from; what an earlier run made is no concern of another."""
    seen: list[ArtifactRef | None] = []
    assets, resources = _assets(seen), {"io_manager": ArtifactHandover()}
    with dg.DagsterInstance.ephemeral() as instance:
        first = dg.materialize(assets, instance=instance, resources=resources)
        dg.materialize(assets, instance=instance, resources=resources, selection="evaluating")
        tags = {PARENT_RUN_ID_TAG: first.run_id}
        dg.materialize(assets, instance=instance, resources=resources, selection="evaluating", tags=tags)

    assert seen == [_REF, None, _REF]


def test_a_round_needs_an_adapter_and_its_evaluation(tmp_path: Path) -> None:
    """Told before anything is asked, with what helps; the evaluation of another adapter is none."""
    paths = {"dagster_home": tmp_path / "home", "store_root": tmp_path / "store"}
    settings = load_settings().model_copy(update=paths)
    plan = Plan(1, None, has_control=False)
    with pytest.raises(RefusedError, match=r"no adapter was trained yet\. Run `mens run` first"):
        next(improve(defs(), settings, plan))

    split = ArtifactRef("heldout_split", "5" * 64)
    with open_instance(tmp_path / "home", is_headless=True) as instance:
        hand_over(instance, ArtifactRef("eval_results", "e" * 64, (ArtifactRef("qlora_adapter", "b" * 64, (split,)),)))
        hand_over(instance, ArtifactRef("qlora_adapter", "a" * 64, (split,)))
    with pytest.raises(RefusedError, match=r"adapter aaaaaaaaaaaa or its evaluation is not there\. Run `mens run`"):
        next(improve(defs(), settings, plan))
