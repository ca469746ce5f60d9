"""The documents of an evaluation: `eval_results.json`, `eval_local_report.json`, `benchmark_passatk.json`.

`eval_results.json` also has the figures of pieces that models wrote into holes of held-out programs.
"""

import json
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import Field, ValidationError, model_validator

from mens_pipeline.evaluation.scores import ModelScores, Score, Scores
from mens_pipeline.evaluation.statistics import Paired, Rate
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.storage.kinds import EvalFile
from mens_pipeline.storage.validation import Document, Strict, Versioned, errors_in, newer_than_known

RESULTS: Final = EvalFile.RESULTS
LOCAL_REPORT: Final = EvalFile.LOCAL_REPORT
PASS_AT_K: Final = EvalFile.BENCHMARK
SCORED_COMPLETIONS: Final = EvalFile.SCORED_COMPLETIONS
INSERTS: Final = EvalFile.INSERTS
"""In the folder of an evaluation: an `InsertScore` a line."""

InfillModel = Literal["adapter", "served", "left_to_right", "base", "ngram", "champion"]
"""Whose pieces are scored.

`adapter` writes freely. `served` are the pieces that parse in place; one that does not is written again, constrained.
`left_to_right` is the adapter and `base` the base, both without the suffix; like `ngram` they complete lines only.
"""

ModelRole = Literal["base", "few_shot", "adapter", "fallback"]
"""Whose completions are kept with their scores.

`few_shot` is the base with examples in its prompt. `fallback` is the adapter, constrained by the parser, for prompts
that it does not complete with a program when it writes freely.
"""


class ScoredCompletion(Document, Versioned):
    """One completion with its prompt and its score: a line of `scored_completions.jsonl`."""

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
    num_rounds: int = Field(ge=1, description="Most rounds that were planned; all but the first need undecided gates.")
    num_reserve: int = Field(ge=0, description="Held-out prompts that were not asked; files that come later.")
    try_sha256: str = Field(description="Of the try, as the ledger of its store counts it.")
    store_id: str = Field(description="Of that store, as the ledger names it.")

    @model_validator(mode="after")
    def _is_within_plan(self) -> Self:
        if self.round > self.num_rounds:
            raise ValueError(f"round {self.round} of {self.num_rounds}")
        return self


class ModelComparison(Document):
    """A model to compare with the adapter, over the same prompts; differences are of first samples."""

    scores: ModelScores
    parse_difference: Paired = Field(description="The other model first, the adapter second.")
    pass_difference: Paired
    test_difference: Paired = Field(description="Over the prompts that have hidden tests.")


class ChampionComparison(ModelComparison):
    """The adapter that is in use."""

    key: str = Field(description="Of the promoted adapter in the store.")
    adapter_sha256: str = Field(min_length=64, max_length=64)


class EarlierComparison(ChampionComparison):
    """The older half of the champions before, over the prompts that they were asked as well.

    What they wrote is scored again. The differences count a prompt once for each of them.
    """

    promoted_unix: int = Field(ge=0, description="When the oldest was last promoted, in seconds since 1970.")
    num_champions: int = Field(ge=1, description="Earlier champions that have prompts in common with the adapter.")
    num_compared: int = Field(
        default=1, ge=1, description="Of these, the oldest ones, which the differences are about."
    )


class FewShotComparison(ModelComparison):
    """The base with a description of the language and solved examples in its prompt, on a sample of the eval suite."""

    prompt: str = Field(description="The text before each prompt.")


class FallbackComparison(Document):
    """The adapter as it is served: constrained by the parser where its free completion is not a program."""

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


class InsertScore(Strict):
    """Scores of one piece in its hole."""

    model: InfillModel
    task: str
    kind: str = Field(description="The kind of piece that was cut out: `line`, `expression`, `arguments` and so on.")
    file: str
    piece: str = Field(description="The piece that the model wrote; without a suffix, up to the end of the line.")
    exact: bool = Field(description="The same as what was cut out, but for white space.")
    kept: float = Field(ge=0, le=1, description="Share of the characters of the longest beginning that is right.")
    similarity: float = Field(ge=0, le=1, description="Characters in common, Ratcliff and Obershelp's measure.")
    parses: bool = Field(description="The program with it is accepted.")
    resolves: bool = Field(description="It has no more errors in names and types than the program had.")
    passes_tests: bool | None = Field(description="The tests of the file pass with it; null without tests.")
    stopped: bool = Field(description="The model ended by itself.")
    likelihood: float | None = Field(description="Mean log-probability of its tokens; null of an n-gram.")
    before: str = Field(description="The end of the text before the hole.")
    reference: str = Field(description="The piece that was cut out.")
    after: str = Field(description="The beginning of the text after it.")


class InsertRates(Strict):
    """Figures over some holes; intervals are over files."""

    num_holes: int = Field(ge=0)
    exact: Rate
    parses: Rate
    resolves: Rate
    tests: Rate = Field(description="Over holes of files with tests.")
    stopped: Rate
    kept: float = Field(ge=0, le=1, description="Mean share of characters kept.")
    similarity: float = Field(ge=0, le=1, description="Mean.")


class Abstention(Strict):
    """When a piece is better not shown: a threshold chosen on half of the files, and what it gives on the others."""

    threshold: float = Field(le=0, description="Mean log-probability of a token below which nothing is shown.")
    coverage: float = Field(ge=0, le=1, description="Share of the holes of the other files that are above it.")
    exact_shown: Rate = Field(description="Of these.")
    exact_all: Rate = Field(description="Of all holes of the other files.")
    silent: Rate | None = Field(
        default=None, description="Of the cursors of the other files where nothing is left to write."
    )
    calibration_error: float = Field(ge=0, le=1, description="Expected error of the likelihood as a chance, 10 bins.")


class InfillResults(Strict):
    """The suite `infill`: every model by kind, and the adapter compared with each of the others on the same holes."""

    window: int = Field(ge=1, description="Tokens before and after the cursor that a model is shown.")
    shown: Rate = Field(description="Holes for which the server has a piece that fits there.")
    models: dict[InfillModel, dict[str, InsertRates]] = Field(description="Kind, or `all` -> figures.")
    champion: str | None = Field(description="Key of the promoted adapter in the store; null when there was none.")
    exact_difference: dict[InfillModel, Paired] = Field(
        description="Another model first, the adapter second; of models without a suffix on lines alone."
    )
    abstention: Abstention | None = Field(description="Null where too few holes say when to abstain.")


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
    anti_stub_task_success: int = Field(description="Tasks whose first completion is not a stub.")
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


_OTHERS: Final[dict[InfillModel, str]] = {"left_to_right": "left to right", "base": "base", "ngram": "n-gram"}


def figures_of_infill(infill: InfillResults) -> dict[str, str]:
    """Format the figures of pieces at a cursor: `exact lines`, also of other models, and so on."""
    own = infill.models["adapter"]
    others = ((label, infill.models.get(model)) for model, label in _OTHERS.items())
    figures = {"exact": str(own["all"].exact)}
    if "line" in own:
        rates = [f"{label} {kinds['all'].exact.short}" for label, kinds in others if kinds is not None]
        figures["exact lines"] = ", ".join([str(own["line"].exact), *rates])
    figures["parse rate"] = f"{own['all'].parses.short} written freely, {infill.shown.short} served"
    if infill.abstention is not None:
        found = infill.abstention
        shown = f"{100 * found.coverage:.0f} % of the holes, those it is surest of"
        figures["shown"] = f"exact {found.exact_shown.short} of {shown}, {found.exact_all.short} of all"
        if found.silent is not None:
            figures["silent"] = f"{found.silent} where nothing is left to write"
    return figures


def load_results(path: Path) -> tuple[EvalResults | None, str]:
    """Read the figures of an evaluation; return None and the problem if they cannot be read."""
    content, problem = read_json(path)
    if content is None:
        return None, problem
    try:
        return EvalResults.model_validate_json(json.dumps(content)), ""
    except ValidationError as error:
        return None, newer_than_known(error) or f"malformed ({errors_in(error)[:300]})"


def read_results(path: Path) -> EvalResults | None:
    """Read the figures of an evaluation; return None when they cannot be read."""
    return load_results(path)[0]


def results_in(folder: Path) -> EvalResults:
    """Read the figures of an evaluation that is unchanged."""
    results = read_results(folder / RESULTS)
    assert results is not None, "a complete evaluation can be read"  # noqa: S101 - our own impossibility
    return results


def read_json(path: Path) -> tuple[dict[str, Any] | None, str]:
    """Read a JSON object; return None and the problem if the file does not hold one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, "missing"
    except OSError as error:
        return None, f"unreadable ({error.strerror})"
    except (ValueError, RecursionError) as error:
        return None, f"malformed ({error})"
    return (content, "") if isinstance(content, dict) else (None, "malformed (no object)")
