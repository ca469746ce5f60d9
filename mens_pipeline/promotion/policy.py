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
    """Probability with which a true rate must be beyond its threshold, over all tries on an eval suite."""
    max_rounds: int = Field(ge=1, le=10)
    """Most rounds of held-out prompts, with more files each time, until the gate is decided."""
    first_heldout_tasks: int = Field(ge=1)
    """Held-out prompts of the first round, by whole source files."""
    min_heldout_tasks: int = Field(ge=1)
    """Held-out prompts that must be asked."""
    min_heldout_files: int = Field(ge=2)
    """Source files that those must come from."""
    min_parse_rate: Share
    """Share of its completions to held-out prompts that the front end must accept."""
    min_fallback_parse_rate: Share
    """The same share of what is served, over all prompts: constrained where no program came; 0: none."""
    parse_rate_floor: Share
    """Lower bound of the true rate, with `confidence`; no more than `min_parse_rate`."""
    min_resolve_rate: Share
    """Share of those completions that must parse without an error in names and types."""
    resolve_rate_floor: Share
    """Lower bound of the true rate, with `confidence`; no more than `min_resolve_rate`."""
    min_coverage: Share
    """Share of the constructs that accepted completions must show."""
    min_benchmark: Share
    """Share of the benchmark that must pass at the first try."""
    min_test_rate: Share
    """Share of the tasks with hidden tests whose tests must all pass; 0 asks for none."""
    min_completed_share: Share
    """Share of the tasks that must be asked; one whose reference is too long is not."""
    min_gain_over_base: float = Field(ge=-1, le=1)
    """Smallest gain in parse rate over the base."""
    needs_test_gain: bool
    """Whether it must pass more hidden tests than the base, beyond chance, over both suites."""
    max_stub_rate: Share
    """Share of completions with a placeholder where code should be."""
    min_stop_rate: Share
    """Share of completions that end by themselves."""
    min_infill_parse_rate: Share = 1.0
    """Share of the pieces served at a cursor with which the program is accepted."""
    needs_infill_gain: bool = True
    """Whether it must write more lines exactly than base and n-gram, beyond chance."""
    min_supervised_ratio: Share
    """Share of trained tokens that carry the loss."""
    max_truncation: Share
    """Share of rows that were too long to train."""
    min_tokens_per_second: dict[str, float]
    """Device -> speed of training."""
    max_regression_p: float = Field(gt=0, lt=0.5)
    """A drop against the champion, or a gain over the base, counts when chance gives it less often."""
    max_decline_p: float = Field(default=0.02, gt=0, lt=0.5)
    """A drop against the oldest of the champions before counts when chance gives it less often."""
    decline_promotions: int = Field(default=10, ge=0)
    """Champions before the one in use; an adapter is compared with the older half of them. 0: with none."""
    warn_only: tuple[GateName, ...]
    """Gates that warn and do not block."""

    def on_heldout(self, name: GateName) -> tuple[float, float]:
        """Return the rate that must be measured, and the floor of the true rate, which is never the higher one."""
        measured, floor = getattr(self, f"min_{name}"), getattr(self, f"{name}_floor")
        return measured, min(measured, floor)

    def check_size(self, num_tasks: int, num_files: int) -> tuple[bool, str]:
        """Return whether an eval suite has enough held-out prompts and files, and both figures, with advice if not."""
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
            Alpha spending over looks, Lan and DeMets 1983, little of it at first as O'Brien and Fleming 1979 do; over
            tries, LORD of Javanmard and Montanari 2018.
        """
        of_try = (1 - self.confidence) * 6 / (pi * progress.attempt) ** 2
        return of_try * progress.round**3 / sum(number**3 for number in range(1, progress.num_rounds + 1))

    def replace_values(
        self, *, min_parse_rate: float | None, min_coverage: float | None, min_benchmark: float | None
    ) -> "Thresholds":
        """Replace thresholds; None keeps one."""
        changes = {"min_parse_rate": min_parse_rate, "min_coverage": min_coverage, "min_benchmark": min_benchmark}
        return self.model_copy(update={name: value for name, value in changes.items() if value is not None})

    def unlike(self, other: "Thresholds") -> tuple[str, ...]:
        """List the thresholds that differ from another policy: `min_coverage 0.1`."""

        def format_value(value: Any) -> str:
            return " ".join(value) or "none" if isinstance(value, tuple) else str(value)

        mine, theirs = dict(self), dict(other)
        return tuple(f"{name} {format_value(value)}" for name, value in mine.items() if value != theirs[name])

    def raise_benchmark(self, min_benchmark: float | None) -> "Thresholds":
        """Raise the benchmark pass rate; None keeps it.

        `ConfigurationError` for a value that is not a share, or lower than before, which takes a signed override.
        """
        if min_benchmark is None:
            return self
        if not self.min_benchmark <= min_benchmark <= 1:
            advice = "Raise it, or leave it out; what fails may only be promoted with `mens override`."
            bounds = f"not from {self.min_benchmark:g}, which the policy or the environment asks for, to 1"
            raise ConfigurationError(f"benchmark_min_pass_rate is {min_benchmark:g}, {bounds}. {advice}")
        return self.model_copy(update={"min_benchmark": min_benchmark})


class GateStatus(StrEnum):
    """Result of one gate."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"
    """The prompts so far do not decide it; more of the eval suite may."""


class GateOutcome(Strict):
    """One gate of a verdict."""

    name: GateName
    status: GateStatus
    passed: bool = Field(description="Whether `status` is `passed`; what is undecided does not promote.")
    block: bool = Field(description="Whether anything but `passed` keeps the model from being promoted.")
    measured: float | None = Field(description="Null when it could not be measured, or is not asked for.")
    required: float | None = Field(description="Null when nothing is required.")
    message: str
    source: str = Field(description="The document it was read from.")

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.passed is not (self.status is GateStatus.PASSED):
            raise ValueError(f"{self.name}: passed is {self.passed}, the status {self.status}")
        return self


@dataclass(frozen=True, slots=True)
class Reserve:
    """Held-out prompts not yet asked, those of them with tests, and the probability that another round requires."""

    num_tasks: int
    num_tested: int
    required: float


class Measured(NamedTuple):
    """The finding of a gate; most fields as in `GateOutcome`.

    `verdict` is True for passed, False for failed, or the status. `may_pass`: an undecided gate would pass if the
    reserve went as well as possible. `grows`: a failing gate lacks tasks, so that it may pass with more of them.
    """

    verdict: bool | GateStatus
    measured: float | None
    required: float | None
    message: str
    may_pass: Callable[[Reserve], bool] = lambda _: True
    grows: bool = False


def overall_status(outcomes: tuple[GateOutcome, ...]) -> GateStatus:
    """Return the verdict of all blocking gates: failed when one of them is, else undecided when one is, else passed."""
    found = {outcome.status for outcome in outcomes if outcome.block}
    return next((status for status in (GateStatus.FAILED, GateStatus.UNDECIDED) if status in found), GateStatus.PASSED)


class GatePolicy(Strict):
    """`config/gates.yaml`: thresholds for data, and policies for models."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    min_source_parse_rate: Share
    """Share of the golden programs of the workspace that the front end must accept."""
    min_corpus_coverage: Share
    """Share of the constructs that the extracted corpus must show."""
    max_share_error: Share
    """Largest difference between the share of a source in the train set and its requested share."""
    min_pairs: int = Field(ge=1)
    """Pairs without which training does not begin."""
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
