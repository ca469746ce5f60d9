"""Documents of an adapter that passes every gate, verdicts on changed ones, and a refused promotion."""

from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import EvalResults
from mens_pipeline.evaluation.scores import Coverage
from mens_pipeline.evaluation.statistics import Rate, compare_paired, rate_of
from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline.models.adapter import TrainingManifest
from mens_pipeline.promotion.gate import GateInputs, decide
from mens_pipeline.promotion.history import CHAMPION as POINTER
from mens_pipeline.promotion.policy import GateName, GateOutcome, GateStatus, Thresholds, load_gate_policy
from mens_pipeline.promotion.receipt import Override, Receipt
from mens_pipeline.promotion.verdict_basis import Terms
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline_tests.evaluation.runs import NOW, PRESENT, promote
from mens_pipeline_tests.evaluation.scored import BROKEN, GOOD, SUBJECT, evaluation, with_overall, with_suite
from mens_pipeline_tests.training.manifests import manifest_about
from mens_pipeline_tests.training.small_folder import described_base

FULL = load_gate_policy(PROJECT_ROOT / "config" / "gates.yaml").thresholds("full")
STRICT = FULL.model_copy(update={"warn_only": (), "parse_rate_floor": FULL.min_parse_rate})
"""Every gate blocks, and the floor of the parse rate equals its threshold."""
CHAMPION = "c" * 64


def coverage_of(num_present: int) -> Coverage:
    """Coverage of `num_present` of thirty constructs."""
    names = [f"c{n}" for n in range(30)]
    return Coverage(
        present=tuple(names[:num_present]), missing=tuple(names[num_present:]), share=num_present / len(names)
    )


_GOOD = evaluation(base=(BROKEN,) * 4, adapter=(GOOD,) * 4, champion=(GOOD,) * 4, second=(None,)).results
_ALL = rate_of([True] * 120)
NOTHING = compare_paired([], [])
SAME = compare_paired([True] * 100, [True] * 100)
_EIGHT = compare_paired([False] * 8, [True] * 8)
RESULTS = with_overall(
    with_suite(
        with_suite(_GOOD, Suite.HELDOUT, parse_rate=_ALL, resolve_rate=_ALL, num_tasks=120),
        Suite.BENCHMARK,
        pass_at_1=rate_of([True] * 30),
    ),
    coverage=coverage_of(15),
    test_rate=rate_of([True] * 15 + [False] * 15),
    stub_rate=rate_of([False] * 120),
    stop_rate=rate_of([True] * 120),
).model_copy(update={"parse_difference": _EIGHT, "test_difference": _EIGHT})


def manifest(**changes: Any) -> TrainingManifest:
    """A training manifest at every threshold of the policy `full`."""
    content = manifest_about(described_base())
    content["result"] |= {
        "num_supervised_tokens": 100,
        "num_tokens": 1000,
        "num_rows": 10,
        "not_shown": {"too_long": 5},
        "trained_tokens": 100,
        "seconds": 10.0,
        "device": "cuda",
        **changes,
    }
    return TrainingManifest.model_validate(content)


def inputs(
    results: EvalResults | None = RESULTS,
    of_training: TrainingManifest | None = None,
    champion_key: str | None = CHAMPION,
    *,
    is_benchmark_asked: bool = True,
) -> GateInputs:
    """The inputs of a verdict; every gate passes unless they are changed."""
    return GateInputs(results, "missing", of_training or manifest(), "missing", champion_key, is_benchmark_asked)


def outcome_of(name: GateName, inputs: GateInputs, thresholds: Thresholds = STRICT) -> GateOutcome:
    return next(outcome for outcome in decide(inputs, thresholds) if outcome.name is name)


def rate(hits: int, total: int) -> Rate:
    """The rate of independent completions."""
    return rate_of([True] * hits + [False] * (total - hits))


def said(
    name: GateName, *, passed: bool, block: bool = True, message: str = "said", status: GateStatus = GateStatus.FAILED
) -> GateOutcome:
    """An outcome of a gate."""
    return GateOutcome(
        name=name,
        status=GateStatus.PASSED if passed else status,
        passed=passed,
        block=block,
        measured=None,
        required=None,
        message=message,
        source="x",
    )


def receipt_of(*gates: GateOutcome, **changes: Any) -> Receipt:
    """A receipt with some gates, for the adapter of `scored`."""
    values: dict[str, Any] = {
        "timestamp_unix": 1_700_000_000,
        "run_dir": "runs/one",
        "policy": "ci",
        "overall_passed": all(gate.passed or not gate.block for gate in gates),
        "attempt": None,
        "gates": gates,
        "subject": SUBJECT,
        "thresholds": FULL,
        "champion_key": None,
        "is_benchmark_asked": True,
        "strict": False,
        "sources": {},
        **changes,
    }
    return Receipt(**values)


def assert_refused(  # noqa: PLR0913 - as `promote`
    message: str,
    gate: Artifact,
    run: Path,
    store: ArtifactStore,
    present: Terms = PRESENT,
    *,
    now: int = NOW,
    override: Override | None = None,
) -> None:
    """Try a promotion; it is refused with a message that matches, and the champion stays."""
    pointer = store.root / Kind.PROMOTED_ADAPTER / POINTER
    before = pointer.read_bytes() if pointer.exists() else None
    with pytest.raises(RefusedError, match=message):
        promote(gate, run, store, present, now=now, override=override)
    assert (pointer.read_bytes() if pointer.exists() else None) == before
