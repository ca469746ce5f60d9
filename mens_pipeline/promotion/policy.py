"""Names, thresholds and outcomes of the gates; `config/gates.yaml` holds the thresholds."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import pi
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pydantic import ConfigDict, Field, model_validator

from mens_pipeline.errors import ConfigurationError, did_you_mean
from mens_pipeline.storage.validation import Share, Strict
from mens_pipeline.storage.yaml_file import load_model

if TYPE_CHECKING:
    from mens_pipeline.evaluation.results import Progress


class GateName(StrEnum):
    """The gates, in the order of the receipt."""

    PARSE_RATE = "parse_rate"
    RESOLVE_RATE = "resolve_rate"
    FALLBACK_PARSE_RATE = "fallback_parse_rate"
    SUITE_SIZE = "suite_size"
    COVERAGE = "coverage"
    BENCHMARK = "benchmark"
    TEST_RATE = "test_rate"
    COMPLETED_SHARE = "completed_share"
    GAIN_OVER_BASE = "gain_over_base"
    TEST_GAIN = "test_gain"
    REGRESSION = "regression"
    DECLINE = "decline"
    ANTI_STUB = "anti_stub"
    STOP_RATE = "stop_rate"
    INFILL_PARSES = "infill_parses"
    INFILL_GAIN = "infill_gain"
    INFILL_REGRESSION = "infill_regression"
    SUPERVISED_RATIO = "supervised_ratio"
    TRUNCATION = "truncation"
    THROUGHPUT = "throughput"


class Thresholds(Strict):
    """Thresholds for promotion; rates are shares from 0 to 1."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    confidence: float = Field(gt=0.5, lt=1)
    """Required probability that a true rate meets its threshold, over all tries on an eval suite."""
    max_rounds: int = Field(ge=1, le=10)
    """Most rounds of held-out prompts; each adds files until the gates can decide."""
    first_heldout_tasks: int = Field(ge=1)
    """Held-out prompts of the first round, by whole source files."""
    min_heldout_tasks: int = Field(ge=1)
    """Fewest held-out prompts to complete."""
    min_heldout_files: int = Field(ge=2)
    """Fewest source files of these prompts."""
    min_parse_rate: Share
    """Smallest measured parse rate on held-out prompts."""
    min_fallback_parse_rate: Share
    """Smallest parse rate as served, over all prompts, with constrained second tries; 0: off."""
    parse_rate_floor: Share
    """Floor that the true parse rate must exceed with `confidence`; capped at `min_parse_rate`."""
    min_resolve_rate: Share
    """Smallest measured share of these completions that parse without errors in names and types."""
    resolve_rate_floor: Share
    """Floor that the true resolve rate must exceed with `confidence`; capped at `min_resolve_rate`."""
    min_coverage: Share
    """Smallest share of the constructs that accepted completions contain."""
    min_benchmark: Share
    """Smallest pass@1 of the benchmark; 0: off."""
    min_test_rate: Share
    """Smallest share of the tasks with hidden tests that pass all of them; 0: off."""
    min_completed_share: Share
    """Smallest share of the tasks that are completed; tasks with a reference that is too long are left out."""
    min_gain_over_base: float = Field(ge=-1, le=1)
    """Smallest gain in parse rate over the base."""
    needs_test_gain: bool
    """Whether the adapter must pass more hidden tests than the base, beyond chance, over both suites."""
    max_stub_rate: Share
    """Largest share of completions with a placeholder comment or a function without a body."""
    min_stop_rate: Share
    """Smallest share of completions that end before the limit."""
    min_infill_parse_rate: Share = 1.0
    """Smallest share of the pieces served at a cursor with which the program parses."""
    needs_infill_gain: bool = True
    """Whether the adapter must complete more lines exactly than base and n-gram, beyond chance."""
    min_supervised_ratio: Share
    """Smallest share of trained tokens that carry the loss."""
    max_truncation: Share
    """Largest share of rows that were too long to train."""
    min_tokens_per_second: dict[str, float]
    """Device -> smallest training speed."""
    max_regression_p: float = Field(gt=0, lt=0.5)
    """Significance level for a drop against the champion and a gain over the base."""
    max_decline_p: float = Field(default=0.02, gt=0, lt=0.5)
    """Significance level for a drop against former champions."""
    decline_promotions: int = Field(default=10, ge=0)
    """Number of former champions; an adapter is compared with the older half of them. 0: off."""
    warn_only: tuple[GateName, ...]
    """Gates that warn and do not block."""

    def on_heldout(self, name: GateName) -> tuple[float, float]:
        """Return the required measured rate, and the floor of the true rate, which is never higher."""
        measured, floor = getattr(self, f"min_{name}"), getattr(self, f"{name}_floor")
        return measured, min(measured, floor)

    def check_size(self, num_tasks: int, num_files: int) -> tuple[bool, str]:
        """Return whether an eval suite has enough held-out prompts and files, and a message, with advice if not."""
        is_enough = num_tasks >= self.min_heldout_tasks and num_files >= self.min_heldout_files
        found = f"{num_tasks} held-out prompts from {num_files} files"
        required = f"{found}, required {self.min_heldout_tasks} from {self.min_heldout_files}"
        raised = "raise split.min_heldout_tasks or split.max_heldout_share in config/pipeline.yaml"
        advice = f"; {raised}, choose a policy that requires less (VOX_EVAL_POLICY), or add programs"
        return is_enough, required + ("" if is_enough else advice)

    def allowed_chance(self, progress: "Progress") -> float:
        """Compute the chance of a false promotion that one round of one try may spend.

        All rounds of all tries on an eval suite, up to the next promotion, spend `1 - confidence` together: the k-th
        try spends 6 / (pi k)^2 of it, and the r-th of its R planned rounds a part in proportion to r^3, so that early
        rounds settle clear cases only and cost little. By the union bound this holds even if tries are correlated. A
        promotion refills the budget; otherwise a good model could not be confirmed night after night.

        Source:
            Over rounds, alpha spending (Lan and DeMets 1983), with little spent early (O'Brien and Fleming 1979). Over
            tries, LORD (Javanmard and Montanari 2018).
        """
        of_try = (1 - self.confidence) * 6 / (pi * progress.attempt) ** 2
        return of_try * progress.round**3 / sum(number**3 for number in range(1, progress.num_rounds + 1))

    def replace_values(
        self, *, min_parse_rate: float | None, min_coverage: float | None, min_benchmark: float | None
    ) -> "Thresholds":
        """Return a copy with some thresholds replaced; None keeps a threshold."""
        changes = {"min_parse_rate": min_parse_rate, "min_coverage": min_coverage, "min_benchmark": min_benchmark}
        return self.model_copy(update={name: value for name, value in changes.items() if value is not None})

    def unlike(self, other: "Thresholds") -> tuple[str, ...]:
        """List the thresholds that differ from another policy: `min_coverage 0.1`."""

        def format_value(value: Any) -> str:
            return " ".join(value) or "none" if isinstance(value, tuple) else str(value)

        mine, theirs = dict(self), dict(other)
        return tuple(f"{name} {format_value(value)}" for name, value in mine.items() if value != theirs[name])

    def raise_benchmark(self, min_benchmark: float | None) -> "Thresholds":
        """Return a copy with a higher benchmark pass rate; None keeps it.

        `ConfigurationError` for a value above 1, or a lower pass rate, which needs a signed override.
        """
        if min_benchmark is None:
            return self
        if not self.min_benchmark <= min_benchmark <= 1:
            advice = "Raise it or omit it; a failed verdict can only be overruled with `mens override`."
            bounds = f"expected at least {self.min_benchmark:g} (of the policy or the environment), and at most 1"
            raise ConfigurationError(f"benchmark_min_pass_rate is {min_benchmark:g}, {bounds}. {advice}")
        return self.model_copy(update={"min_benchmark": min_benchmark})


class GateStatus(StrEnum):
    """Result of one gate."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"
    """The prompts so far do not decide it; more of the eval suite may."""


class GateOutcome(Strict):
    """Outcome of one gate."""

    name: GateName
    status: GateStatus
    passed: bool = Field(description="Whether `status` is `passed`; an undecided gate does not promote.")
    block: bool = Field(description="Whether any status but `passed` blocks a promotion.")
    measured: float | None = Field(description="Measured value; null if it could not be measured, or is not required.")
    required: float | None = Field(description="Required value; null if nothing is required.")
    message: str
    source: str = Field(description="The document with the measured value.")

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.passed is not (self.status is GateStatus.PASSED):
            raise ValueError(f"{self.name}: passed is {self.passed}, the status {self.status}")
        return self


@dataclass(frozen=True, slots=True)
class Reserve:
    """Held-out prompts of later rounds, how many of them have tests, and the probability required in the next round."""

    num_tasks: int
    num_tested: int
    required: float


class Measured(NamedTuple):
    """The finding of a gate; most fields as in `GateOutcome`.

    `verdict` is True for passed, False for failed, or the status. `may_pass` tells whether an undecided gate would pass
    in the best case of a reserve. `grows` tells whether a failing gate lacks tasks, and may pass with more.
    """

    verdict: bool | GateStatus
    measured: float | None
    required: float | None
    message: str
    may_pass: Callable[[Reserve], bool] = lambda _: True
    grows: bool = False


def overall_status(outcomes: tuple[GateOutcome, ...]) -> GateStatus:
    """Return the verdict of all blocking gates: failed if any is, else undecided if any is, else passed."""
    found = {outcome.status for outcome in outcomes if outcome.block}
    return next((status for status in (GateStatus.FAILED, GateStatus.UNDECIDED) if status in found), GateStatus.PASSED)


class GatePolicy(Strict):
    """`config/gates.yaml`: thresholds for data, and policies for models."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    min_source_parse_rate: Share
    """Smallest share of the golden programs of the workspace that must parse."""
    min_corpus_coverage: Share
    """Smallest share of the constructs that the extracted corpus must contain."""
    max_share_error: Share
    """Largest difference between the share of a source in the train set and its requested share."""
    min_pairs: int = Field(ge=1)
    """Smallest number of pairs to train on."""
    policies: dict[str, Thresholds] = Field(min_length=1)
    """Name -> requirements on a model."""

    def thresholds(self, name: str) -> Thresholds:
        """Return the thresholds of a policy; refuse (`ConfigurationError`) an unknown name."""
        if name not in self.policies:
            advice = did_you_mean(name, self.policies) or f"Choose one of {', '.join(self.policies)}."
            raise ConfigurationError(f"policy {name}: not in config/gates.yaml. {advice}")
        return self.policies[name]


def load_gate_policy(path: Path) -> GatePolicy:
    """Read and check the policies; a `ConfigurationError` names all mistakes."""
    return load_model(path, GatePolicy)
