"""Why an adapter was refused, in a line, and what would help: a refusal is where the next run begins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from mens_pipeline.promotion.gate import GateOutcome, GateStatus
from mens_pipeline.promotion.policy import GateName

_NEAR: Final = 0.1
"""How far below what is required a measured share is near it."""


class Remedy(StrEnum):
    """Kind of command that helps against a refusal."""

    MORE = "more"
    """The same run goes on for a while."""
    PRESET = "preset"
    """Another recipe, which takes longer rows."""
    DATA = "data"
    """A larger workspace, or a policy for the first model of a small one."""
    SETTING = "setting"
    """What the gate names has to be changed first."""


_NOT_BY_TRAINING: Final = {
    GateName.TRUNCATION: Remedy.PRESET,
    GateName.ASKED_SHARE: Remedy.SETTING,  # what cannot be asked makes an exam small as well
    GateName.EXAM_SIZE: Remedy.DATA,
    GateName.SUPERVISED_RATIO: Remedy.SETTING,
    GateName.THROUGHPUT: Remedy.SETTING,
}
"""Gates that more training of the same run does not open, the first cause first."""


@dataclass(frozen=True, slots=True)
class Cause:
    """The likely cause of a refusal."""

    text: str
    remedy: Remedy


def cause_of(gates: Sequence[GateOutcome], manifest: Mapping[str, Any]) -> Cause | None:
    """Return why an adapter was refused; None where it was not."""
    closed = {gate.name: gate for gate in gates if gate.block and not gate.passed}
    if not closed:
        return None
    for name, remedy in _NOT_BY_TRAINING.items():
        if name in closed:
            return Cause(closed[name].message, remedy)
    unread = next((gate for gate in closed.values() if gate.measured is None), None)
    if unread is not None:
        return Cause(unread.message, Remedy.SETTING)
    result, minutes = manifest["result"], manifest["recipe"].get("max_minutes")
    done, planned = result["num_steps"], result.get("planned_steps")
    if minutes is not None and planned is not None and done < planned:
        budget = f"the time budget of {minutes:g} min ended training after {done} of {planned} steps"
        return Cause(budget, Remedy.MORE)
    if all(map(_is_near, closed.values())):
        short = ", ".join(f"{name} {gate.measured:.3f} of {gate.required:.3f}" for name, gate in closed.items())
        return Cause(f"what was measured is near what is required: {short}", Remedy.MORE)
    took = f"{done} steps in {result['seconds'] / 60:.1f} min"
    return Cause(f"training was short for what is required: {took}", Remedy.MORE)


def _is_near(gate: GateOutcome) -> bool:
    if gate.status is GateStatus.UNDECIDED:
        return True
    if gate.measured is None or gate.required is None or gate.name is GateName.REGRESSION:  # which measures a chance
        return False
    short = gate.measured - gate.required if gate.name is GateName.ANTI_STUB else gate.required - gate.measured
    return short <= _NEAR
