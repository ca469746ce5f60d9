"""Why an adapter was refused, and what helps."""

from typing import Any

import pytest

from mens_pipeline.promotion.cause import Remedy, cause_of
from mens_pipeline.promotion.gate import GateOutcome, GateStatus
from mens_pipeline.promotion.policy import GateName


def _gate(name: GateName, measured: float | None, required: float | None, **fields: Any) -> GateOutcome:
    values = {"status": GateStatus.FAILED, "passed": False, "block": True, **fields}
    return GateOutcome(name=name, measured=measured, required=required, message=f"about {name}", source="s", **values)


def _manifest(done: int = 300, planned: int = 300, minutes: float | None = 20) -> dict[str, Any]:
    result = {"num_steps": done, "planned_steps": planned, "seconds": 600.0}
    return {"result": result, "recipe": {"max_minutes": minutes}}


_FAR = _gate(GateName.PARSE_RATE, 0.2, 0.7)
_NEAR = _gate(GateName.PARSE_RATE, 0.65, 0.7)


@pytest.mark.parametrize(
    ("gates", "manifest", "text", "remedy"),
    [
        ([_FAR], _manifest(142), "the time budget of 20 min ended training after 142 of 300 steps", Remedy.MORE),
        ([_FAR], _manifest(), "training was short for what is required: 300 steps in 10.0 min", Remedy.MORE),
        ([_FAR], _manifest(142, minutes=None), "training was short", Remedy.MORE),
        ([_NEAR], _manifest(), "near what is required: parse_rate 0.650 of 0.700", Remedy.MORE),
        ([_NEAR, _gate(GateName.ANTI_STUB, 0.4, 0.08)], _manifest(), "training was short", Remedy.MORE),
        ([_gate(GateName.ANTI_STUB, 0.1, 0.08)], _manifest(), "near what is required", Remedy.MORE),
        ([_gate(GateName.REGRESSION, 0.001, 0.01)], _manifest(), "training was short", Remedy.MORE),
        (
            [_gate(GateName.TEST_GAIN, 0.01, 0.0, status=GateStatus.UNDECIDED)],
            _manifest(),
            "near what is required",
            Remedy.MORE,
        ),
        ([_FAR, _gate(GateName.TRUNCATION, 0.9, 0.5)], _manifest(142), "about truncation", Remedy.PRESET),
        ([_FAR, _gate(GateName.EXAM_SIZE, 20, 50)], _manifest(), "about exam_size", Remedy.DATA),
        (
            [_gate(GateName.EXAM_SIZE, 9, 50), _gate(GateName.ASKED_SHARE, 0.2, 0.7)],
            _manifest(),
            "about asked_share",
            Remedy.SETTING,
        ),
        ([_gate(GateName.ASKED_SHARE, 0.2, 0.7)], _manifest(), "about asked_share", Remedy.SETTING),
        ([_gate(GateName.BENCHMARK, None, None)], _manifest(), "about benchmark", Remedy.SETTING),
    ],
)
def test_a_refusal_has_a_cause(gates: list[GateOutcome], manifest: dict[str, Any], text: str, remedy: Remedy) -> None:
    """What more training does not mend comes first; then what ended training, then how near the adapter came."""
    cause = cause_of(gates, manifest)

    assert cause is not None
    assert text in cause.text
    assert cause.remedy is remedy


def test_what_passed_needs_no_help() -> None:
    """Neither do gates that only warn."""
    passed = _gate(GateName.COVERAGE, 0.9, 0.5, status=GateStatus.PASSED, passed=True)
    warned = _gate(GateName.THROUGHPUT, 0.1, 1.0, block=False)

    assert cause_of([passed, warned], _manifest()) is None
