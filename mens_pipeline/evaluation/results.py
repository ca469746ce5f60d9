"""The documents of an evaluation: `eval_results.json`, `eval_local_report.json`, `benchmark_passatk.json`."""

from collections.abc import Mapping
from typing import ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from mens_pipeline.evaluation.infill_results import InfillResults
from mens_pipeline.evaluation.scores import ModelScores, Score, Scores
from mens_pipeline.evaluation.statistics import Paired, Rate
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.storage.validation import Document, Renamed, Versioned

KIND: Final = "eval_results"
"""In the store: an evaluation."""

RESULTS: Final = "eval_results.json"
LOCAL_REPORT: Final = "eval_local_report.json"
PASS_AT_K: Final = "benchmark_passatk.json"  # noqa: S105 - a file name
SCORED_COMPLETIONS: Final = "judged_answers.jsonl"

ModelRole = Literal["base", "few_shot", "adapter", "fallback"]
"""Whose completions are kept with their scores.

`few_shot` is the base with examples in its prompt; `fallback` is the adapter constrained by the parser, which is asked
where what it wrote freely is no program.
"""


class ScoredCompletion(Document, Renamed, Versioned):
    """One completion with its prompt and its score: a line of `scored_completions.jsonl`."""

    former_names: ClassVar[Mapping[str, str]] = {"judgement": "score"}

    model: ModelRole
    suite: str
    prompt: str
    asked: str = Field(description="The construct.")
    difficulty: str
    reference: str = Field(description="A completion that is good.")
    score: Score


class Subject(Document):
    """Hashes of everything that was evaluated."""

    adapter_sha256: str = Field(min_length=64, max_length=64, description="Of the adapter's weights.")
    base_sha256: str = Field(min_length=64, max_length=64, description="Of the base model's folder.")
    base_model: str
    heldout_sha256: str = Field(min_length=64, max_length=64, description="Of the held-out pairs.")
    benchmark_sha256: str | None = Field(description="Of the benchmark; null when it was left out.")


class Progress(Document):
    """Share of the eval suite that an adapter was asked, and the number of the attempt."""

    attempt: int = Field(
        ge=1, description="Evaluations on this eval suite since it last promoted an adapter, this one included."
    )
    round: int = Field(ge=1, description="Times that an adapter was asked and a verdict was looked for.")
    num_rounds: int = Field(ge=1, description="Times that were planned at most; all but one need undecided gates.")
    num_reserve: int = Field(ge=0, description="Held-out prompts that were not asked; files that come later.")
    try_sha256: str | None = Field(
        default=None, description="Of the try as the ledger of its store counts it; null in documents of before."
    )
    store_id: str | None = Field(default=None, description="Of that store, as the ledger names it; null likewise.")

    @model_validator(mode="after")
    def _is_within_plan(self) -> Self:
        if self.round > self.num_rounds:
            raise ValueError(f"round {self.round} of {self.num_rounds}")
        return self


class Comparison(Document):
    """Another model beside the adapter that is evaluated, over the same prompts; differences are of first samples."""

    scores: ModelScores
    parse_difference: Paired = Field(description="The other model first, the adapter second.")
    pass_difference: Paired
    test_difference: Paired = Field(description="Over the prompts that have hidden tests.")


class ChampionComparison(Comparison):
    """The adapter that is in use."""

    key: str = Field(description="Of the promoted adapter in the store.")
    adapter_sha256: str = Field(min_length=64, max_length=64)


class EarlierComparison(ChampionComparison):
    """The best of the champions before, over the prompts that it was asked as well; what it wrote is scored again."""

    promoted_unix: int = Field(ge=0, description="When it was last promoted, in seconds since 1970.")
    num_champions: int = Field(ge=1, description="Earlier champions that have prompts in common with the adapter.")


class FewShotComparison(Comparison):
    """The base with a description of the language and solved examples in its prompt, on a sample of the eval suite."""

    prompt: str = Field(description="What it was told before each prompt.")


class FallbackComparison(Document):
    """The adapter as it is served: constrained by the parser where what it writes freely is no program."""

    scores: ModelScores
    num_constrained: int = Field(ge=0, description="Completions that were written once more, constrained.")
    num_forced: int = Field(ge=0, description="Of these, ended by the shortest way to a program.")
    parse_difference: Paired = Field(description="Free first, with the fallback second; first samples.")
    pass_difference: Paired
    test_difference: Paired = Field(description="Over the prompts that have hidden tests.")


class BestOfScores(Document):
    """Figures over completions that were chosen, one to each prompt."""

    num_tasks: int = Field(ge=0)
    parse_rate: Rate
    resolve_rate: Rate = Field(description="It parses, and nothing is known to be wrong with its names and types.")
    pass_rate: Rate = Field(description="Best-of-n: the chosen completion passes. Never to be called pass@1.")
    test_rate: Rate = Field(description="All hidden tests pass; over tasks that have any.")


class BestOf(Document):
    """Of several completions to each prompt the one chosen by parser, names, stated examples, outputs and likelihood.

    The completions are those that are served; hidden tests have no part in the choice.
    """

    n: int = Field(ge=2, description="Completions of each prompt.")
    overall: BestOfScores
    suites: dict[str, BestOfScores]
    steps: dict[str, int] = Field(
        description="`parser`, `names`, `examples`, `outputs`, `likelihood` -> prompts whose completion it chose."
    )
    chosen: dict[str, int] = Field(description="Prompt -> the sample that was chosen.")
    pass_difference: Paired = Field(description="The first sample first, the chosen one second.")
    test_difference: Paired = Field(description="Over the prompts that have hidden tests.")


class EvalResults(Document, Versioned):
    """Results of base and adapter, side by side; the fields without a description are upstream's."""

    schema_: Literal["mens_eval_results_v1"] = Field(default="mens_eval_results_v1", alias="schema")
    run_id: str
    measured: Literal["model"] = Field(default="model", description="Not data: completions of the models.")
    total_samples: int = Field(ge=0)
    format_validity: float = Field(ge=0, le=1, description="Completions of the adapter that are not empty.")
    safety_rejection_rate: float = Field(ge=0, le=1, description="Completions that are refusals.")
    vox_parse_rate: float = Field(ge=0, le=1, description="Of the adapter on held-out prompts of the workspace.")
    construct_coverage: int = Field(ge=0)
    construct_total: int = Field(ge=1)
    construct_coverage_pct: float = Field(ge=0, le=100)
    quality_proxy: float = Field(ge=0, le=1, description="Equals `vox_parse_rate`, as upstream's does.")
    subject: Subject
    decoding: Decoding
    progress: Progress
    num_too_long: int = Field(
        ge=0, description="Tasks that were not asked because not even their reference fits into a completion."
    )
    num_tests_dropped: int = Field(
        ge=0,
        description="Prompts whose hidden tests their own reference fails: held-out ones are evaluated without these, "
        "synthetic ones are not asked.",
    )
    base: ModelScores
    adapter: ModelScores
    parse_difference: Paired = Field(description="Base first, adapter second; first samples.")
    pass_difference: Paired
    test_difference: Paired = Field(description="Over the prompts that have hidden tests.")
    champion: ChampionComparison | None = Field(description="Null when there was none.")
    earlier: EarlierComparison | None = Field(
        default=None, description="Null where none was promoted before the champion, or none was asked the same."
    )
    few_shot: FewShotComparison | None = Field(description="Null when it was not asked.")
    fallback: FallbackComparison | None = Field(description="Null when it was not asked.")
    best_of: BestOf | None = Field(default=None, description="Of the adapter as served; null with one sample.")
    infill: InfillResults | None = Field(
        default=None, description="Of pieces at a cursor; null for an adapter that was never shown one."
    )
    families: dict[str, Scores] = Field(
        description="Of the adapter on synthetic tasks, `new_constants` of a known one and `unknown_task`; not part of "
        "the other figures."
    )


class CategoryStats(Document):
    """The benchmark by category."""

    category: str
    total: int
    passed_at_1: int
    passed_at_k: int


class TaskResult(Document):
    """One task of the benchmark."""

    id: str
    category: str
    passed_at_1: bool
    passed_at_k: bool
    samples: tuple[Score, ...]


class LocalReport(Document, Versioned):
    """The benchmark task by task, in upstream's shape."""

    schema_: Literal["mens_eval_local_report_v1"] = Field(default="mens_eval_local_report_v1", alias="schema")
    model: str
    bench: str
    max_tokens: int
    temperature: float
    k: int
    seed_base: int
    total: int
    passed_at_1: int
    passed_at_k: int
    pass_rate_at_1: float = Field(ge=0, le=1)
    pass_rate_at_k: float = Field(ge=0, le=1, description="Tasks with a passing sample; not the unbiased estimate.")
    semantic_task_success: int = Field(description="Tasks whose first completion meets all requirements.")
    anti_stub_task_success: int = Field(description="Tasks whose first completion is no stub.")
    placeholder_event_rate: float = Field(ge=0, le=1)
    trivial_placeholder_event_rate: float = Field(ge=0, le=1, description="Completions that are empty.")
    construct_richness_mean: float = Field(
        ge=0, le=1, description="Different constructs of a completion over those asked."
    )
    category_stats: tuple[CategoryStats, ...]
    results: tuple[TaskResult, ...]


class PassAtK(Document, Versioned):
    """The benchmark in a few numbers."""

    schema_: Literal["vox_mens_benchmark_passatk_v1"] = Field(default="vox_mens_benchmark_passatk_v1", alias="schema")
    k: int = Field(ge=1)
    seed_base: int
    total: int = Field(ge=0)
    pass_rate_at_1: float = Field(ge=0, le=1)
    pass_rate_at_k: float = Field(ge=0, le=1, description="Unbiased.")
    pass_rates: dict[int, float] = Field(description="Number of samples, up to `k` -> pass rate, unbiased.")
    pass_at_1_low: float = Field(ge=0, le=1, description="Lower end of the 95 % interval.")
    pass_at_1_high: float = Field(ge=0, le=1)
