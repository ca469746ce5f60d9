"""The gate policy."""

from pathlib import Path

import pytest

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.promotion.policy import GateName, load_gate_policy
from mens_pipeline.settings import PROJECT_ROOT

_SHIPPED = PROJECT_ROOT / "config" / "gates.yaml"


def test_the_shipped_policy_loads() -> None:
    """The file in `config/` fits its model."""
    policy = load_gate_policy(_SHIPPED)

    assert (policy.min_source_parse_rate, policy.min_corpus_coverage, policy.min_pairs) == (0.70, 0.50, 50)
    assert policy.max_share_error == 0.05
    assert list(policy.policies) == ["ci", "full", "bootstrap", "trial"]


@pytest.mark.seed_row(67, 68)
def test_the_shipped_policies_build_on_ci() -> None:
    policy = load_gate_policy(_SHIPPED)
    ci, full, bootstrap = (policy.thresholds(name) for name in ("ci", "full", "bootstrap"))

    assert (ci.min_parse_rate, ci.min_coverage, ci.min_benchmark, ci.max_regression_p) == (0.70, 0.50, 0.0, 0.01)
    assert full == ci.model_copy(
        update={
            "min_heldout_tasks": 100,
            "min_heldout_files": 20,
            "min_benchmark": 0.10,
            "min_test_rate": 0.10,
            "warn_only": (GateName.THROUGHPUT,),
        }
    )
    assert (ci.confidence, ci.max_rounds, ci.first_heldout_tasks) == (0.95, 2, 100)
    assert (ci.min_heldout_tasks, ci.min_heldout_files, ci.needs_test_gain) == (50, 10, True)
    assert (ci.min_test_rate, ci.min_completed_share) == (0.0, 0.75)
    assert ci.parse_rate_floor == 0.60
    assert (ci.min_resolve_rate, ci.resolve_rate_floor) == (0.50, 0.40)
    assert GateName.RESOLVE_RATE in ci.warn_only
    lenient = {"min_parse_rate": 0.25, "parse_rate_floor": 0.15, "min_coverage": 0.10, "warn_only": bootstrap.warn_only}
    lenient |= {"min_heldout_tasks": 20, "min_heldout_files": 5, "min_resolve_rate": 0.10, "resolve_rate_floor": 0.05}
    assert bootstrap == ci.model_copy(update=lenient)
    assert set(bootstrap.warn_only) > set(ci.warn_only)
    assert {GateName.COMPLETED_SHARE, GateName.TEST_RATE}.isdisjoint(bootstrap.warn_only)
    trial = policy.thresholds("trial")
    few = {"min_parse_rate": 0.10, "parse_rate_floor": 0.05, "min_coverage": 0.03, "warn_only": trial.warn_only}
    assert trial == bootstrap.model_copy(update=few)
    assert set(trial.warn_only) > {*bootstrap.warn_only, GateName.REGRESSION, GateName.DECLINE}


@pytest.mark.parametrize(
    ("name", "advice"),
    [("ful", r"Did you mean `full`\?"), ("nightly", r"Choose one of ci, full, bootstrap, trial\.")],
)
def test_an_unknown_policy_is_refused_with_advice(name: str, advice: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"policy {name}: not in config/gates\.yaml\. {advice}"):
        load_gate_policy(_SHIPPED).thresholds(name)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("min_source_parse_rate: 1.5\n", "min_source_parse_rate: Input should be less than or equal to 1"),
        (
            "min_source_parse_rate: 0.5\nmin_corpus_coverage: 0.5\nmin_rate: 1\n",
            "min_rate: unknown",
        ),
        ("", "valid dictionary"),
        ("a: [\n", "not YAML"),
        (None, "No such file or directory"),
    ],
)
def test_mistakes_are_named_with_their_place(tmp_path: Path, content: str | None, problem: str) -> None:
    path = tmp_path / "gates.yaml"
    if content is not None:
        path.write_text(content)

    with pytest.raises(ConfigurationError, match=f"{'Restore' if content is None else 'Correct'} the file") as error:
        load_gate_policy(path)
    assert str(path) in str(error.value)
    assert problem in str(error.value)


@pytest.mark.seed_row(32)
def test_a_run_may_raise_the_threshold_of_the_benchmark() -> None:
    full = load_gate_policy(_SHIPPED).thresholds("full")

    assert full.raise_benchmark(None) == full
    assert full.raise_benchmark(0.10) == full
    assert full.raise_benchmark(0.8) == full.model_copy(update={"min_benchmark": 0.8})


@pytest.mark.parametrize("rate", [0.0, 0.09, 1.1, -1.0, float("nan")])
def test_a_run_may_not_lower_the_threshold_of_the_benchmark(rate: float) -> None:
    full = load_gate_policy(_SHIPPED).thresholds("full")

    with pytest.raises(ConfigurationError, match=r"expected at least 0\.1 .*Raise it or omit it"):
        full.raise_benchmark(rate)
