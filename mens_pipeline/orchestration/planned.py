"""Plans of runs with what they took, at the root of a store: what a run took corrects the plans that come later."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from pydantic import Field

from mens_pipeline.inference.probe import Rates
from mens_pipeline.orchestration.estimate import CORPUS, EVALUATION, GATE, TRAINING, Dial
from mens_pipeline.storage.jsonl import models_in, open_rows
from mens_pipeline.storage.validation import Versioned

PLANS: Final = "plans.jsonl"
"""At the root of a store: what was planned for its runs, and what they took."""

_STAGE_OF: Final = {"base_model": TRAINING, "qlora_adapter": TRAINING, "eval_results": EVALUATION}
_GATES: Final = ("benchmark_gate", "gate_checks", "promoted_adapter", "eval_results_", "qlora_adapter_")


class PlanRecord(Versioned):
    """A plan, and what came of it, a line of `plans.jsonl`."""

    key: str = Field(description="Of all that decides it but the speed of the machine.")
    machine: str
    base_sha256: str
    preset: str | None
    rates: Rates
    dial: Dial
    planned: dict[str, float] = Field(description="Stage -> seconds, as was announced.")
    ratios: dict[str, float] = Field(description="Stage -> by what earlier runs corrected it.")
    actual: dict[str, float] = Field(default={}, description="Stage -> seconds that it took, if it was not reused.")


def read_plans(root: Path) -> tuple[PlanRecord, ...]:
    """Read the plans of a store; refuse (`RefusedError`) a line that is none, or that a newer version wrote."""
    path = root / PLANS
    if not path.is_file():
        return ()
    with open_rows(path) as lines:
        return tuple(models_in(lines, path, PlanRecord, "plan", "Delete this line, and run again."))


def add_plan(root: Path, record: PlanRecord) -> None:
    """Add a plan to those of a store."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / PLANS).open("a", encoding="utf-8") as log:
        log.write(record.model_dump_json() + "\n")


def ratios_in(records: Sequence[PlanRecord], base_sha256: str) -> dict[str, float]:
    """Return what the evaluation took beside what was planned before corrections, the median of the last three."""
    ratios = [
        took * record.ratios.get(EVALUATION, 1.0) / planned
        for record in records
        if record.base_sha256 == base_sha256
        and (took := record.actual.get(EVALUATION))
        and (planned := record.planned.get(EVALUATION))
    ]
    return {EVALUATION: median(ratios[-3:])} if ratios else {}


def actual_seconds(steps: Mapping[str, float], figures: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Sum the seconds of the steps of a run by stage; a stage whose asset was reused is left out."""
    seconds: dict[str, float] = {}
    for step, took in steps.items():
        stage = _STAGE_OF.get(step) or (GATE if step.startswith(_GATES) else CORPUS)
        seconds[stage] = seconds.get(stage, 0.0) + took
    reused = {stage for name, stage in _STAGE_OF.items() if figures.get(name, {}).get("reused")}
    return {stage: took for stage, took in seconds.items() if stage not in reused}
