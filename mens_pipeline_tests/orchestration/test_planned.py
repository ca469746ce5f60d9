"""Plans that are kept, and what corrects the later ones."""

from pathlib import Path

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.probe import Rates
from mens_pipeline.orchestration.estimate import Dial, SuiteSize
from mens_pipeline.orchestration.planned import PLANS, PlanRecord, actual_seconds, add_plan, ratios_in, read_plans

_SUITE = SuiteSize(
    heldout_tasks=9,
    benchmark_tasks=8,
    base_tasks=7,
    few_shot_tasks=6,
    family_tasks=5,
    infill_holes=4,
    infill_lines=3,
)


def _record(actual: float | None, before: float = 1.0, base: str = "a") -> PlanRecord:
    return PlanRecord(
        key="k",
        machine="m",
        base_sha256=base,
        preset=None,
        rates=Rates(train_token=1, train_start=1, generate_start=1, read_token=1, step=1, row=1),
        dial=Dial(max_minutes=1, max_steps=2, num_train_epochs=3, suite=_SUITE),
        planned={"evaluation": 100.0},
        ratios={"evaluation": before},
        actual={} if actual is None else {"evaluation": actual},
    )


def test_plans_are_kept(tmp_path: Path) -> None:
    """In their order; a store without any has none."""
    root = tmp_path / "store"
    assert read_plans(root) == ()
    first, second = _record(None), _record(90.0)
    add_plan(root, first)
    add_plan(root, second)

    assert read_plans(root) == (first, second)


@pytest.mark.parametrize(
    ("line", "problem"),
    [('{"cut o', "Delete this line"), ('{"format_version": 2}', "written by a newer version")],
    ids=["cut off", "of a newer version"],
)
def test_a_line_that_is_no_plan_is_named(line: str, problem: str, tmp_path: Path) -> None:
    """What a run took is never passed over in silence."""
    add_plan(tmp_path, _record(None))
    with (tmp_path / PLANS).open("a") as log:
        log.write(line + "\n")

    with pytest.raises(RefusedError, match=rf"plans\.jsonl:2: .*{problem}"):
        read_plans(tmp_path)


def test_a_correction_is_the_median_of_the_last_three_runs_with_a_base() -> None:
    """Of what was modelled, so a plan that was corrected before counts by what it was before."""
    records = [_record(500.0), _record(120.0), _record(None), _record(100.0, before=1.5), _record(130.0)]

    assert ratios_in(records, "a") == {"evaluation": pytest.approx(1.3)}
    assert ratios_in(records, "b") == {}


def test_steps_add_up_to_stages_and_reused_ones_are_left_out() -> None:
    """Checks count with what they examine, or with the gate that they lead to."""
    steps = {
        "extracted_corpus": 3.0,
        "extracted_corpus_corpus_coverage": 1.0,
        "base_model": 2.0,
        "qlora_adapter": 60.0,
        "qlora_adapter_loss_fell": 0.5,
        "eval_results": 50.0,
        "benchmark_gate": 1.0,
        "promoted_adapter": 1.0,
    }

    assert actual_seconds(steps, {}) == {"corpus": 4.0, "training": 62.0, "evaluation": 50.0, "gate": 2.5}
    assert actual_seconds(steps, {"qlora_adapter": {"reused": True}}).keys() == {"corpus", "evaluation", "gate"}
