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
"""File in the folder of an evaluation, with an `InsertScore` a line."""

InfillModel = Literal["adapter", "served", "left_to_right", "base", "ngram", "champion"]
"""Models whose pieces are scored.

`adapter` writes freely. `served` has the served pieces that parse in place, constrained second tries included.
`left_to_right` is the adapter and `base` the base, both without the suffix; like `ngram` they complete lines only.
"""

ModelRole = Literal["base", "few_shot", "adapter", "fallback"]
"""Models whose completions are kept with their scores.

`few_shot` is the base with examples in its prompt. `fallback` is the adapter, constrained by the parser, for prompts
if its free completion is not a program.
"""


class ScoredCompletion(Document, Versioned):
    """One completion with its prompt and its score: a line of `scored_completions.jsonl`."""

    model: ModelRole
    suite: str
    prompt: str
    asked: str = Field(description="The requested construct.")
    difficulty: str
    reference: str = Field(description="A correct completion.")
    score: Score


class Subject(Document):
    """Hashes of everything that was evaluated."""

    adapter_sha256: str = Field(min_length=64, max_length=64, description="SHA-256 of the adapter's weights.")
    base_sha256: str = Field(min_length=64, max_length=64, description="SHA-256 of the base model's folder.")
    base_model: str
    heldout_sha256: str = Field(min_length=64, max_length=64, description="SHA-256 of the held-out pairs.")
    benchmark_sha256: str | None = Field(description="SHA-256 of the benchmark; null without one.")


class Progress(Document):
    """Progress of an evaluation through its rounds, and the number of the attempt."""

    attempt: int = Field(
        ge=1, description="Evaluations on this eval suite since it last promoted an adapter, this one included."
    )
    round: int = Field(ge=1, description="Completed rounds, each followed by a check of the gates.")
    num_rounds: int = Field(ge=1, description="Planned rounds; all but the first run only if gates are undecided.")
    num_reserve: int = Field(ge=0, description="Held-out prompts of later rounds, without completions.")
    try_sha256: str = Field(description="SHA-256 of the try in the ledger of its store.")
    store_id: str = Field(description="Id of that store in the ledger.")

    @model_validator(mode="after")
    def _is_within_plan(self) -> Self:
        if self.round > self.num_rounds:
            raise ValueError(f"round {self.round} of {self.num_rounds}")
        return self


class ModelComparison(Document):
    """A model compared with the adapter over the same prompts; differences are between first samples."""

    scores: ModelScores
    parse_difference: Paired = Field(description="The other model is first, the adapter second.")
    pass_difference: Paired
    test_difference: Paired = Field(description="Over prompts with hidden tests.")


class ChampionComparison(ModelComparison):
    """The adapter in use."""

    key: str = Field(description="Key of the promoted adapter in the store.")
    adapter_sha256: str = Field(min_length=64, max_length=64)


class EarlierComparison(ChampionComparison):
    """The older half of the former champions, over the prompts that they share with the adapter.

    Their completions are scored again. The differences count a prompt once for each of them.
    """

    promoted_unix: int = Field(ge=0, description="When the oldest was last promoted, in seconds since 1970.")
    num_champions: int = Field(ge=1, description="Former champions that share prompts with the adapter.")
    num_compared: int = Field(default=1, ge=1, description="Number of these in the differences, oldest first.")


class FewShotComparison(ModelComparison):
    """The base with a description of the language and solved examples in its prompt, on a sample of the eval suite."""

    prompt: str = Field(description="The system prompt.")


class FallbackComparison(Document):
    """The adapter as served: constrained by the parser if its free completion is not a program."""

    scores: ModelScores
    num_constrained: int = Field(ge=0, description="Completions that needed a constrained second try.")
    num_forced: int = Field(ge=0, description="Second tries that were ended by the shortest way to a program.")
    parse_difference: Paired = Field(description="First samples: free is first, with the fallback second.")
    pass_difference: Paired
    test_difference: Paired = Field(description="Over prompts with hidden tests.")


class BestOfScores(Document):
    """Figures over the chosen completions, one for each prompt."""

    num_tasks: int = Field(ge=0)
    parse_rate: Rate
    resolve_rate: Rate = Field(description="It parses without known errors in names and types.")
    pass_rate: Rate = Field(description="Best-of-n: the chosen completion passes. Do not report it as pass@1.")
    test_rate: Rate = Field(description="All hidden tests pass; over tasks with tests.")


class BestOf(Document):
    """Best-of-n: for each prompt, parser, names, stated examples, outputs and likelihood choose a completion.

    The completions are as served; the choice ignores hidden tests.
    """

    n: int = Field(ge=2, description="Completions of each prompt.")
    overall: BestOfScores
    suites: dict[str, BestOfScores]
    steps: dict[str, int] = Field(
        description="`parser`, `names`, `examples`, `outputs`, `likelihood` -> number of prompts that it decided."
    )
    chosen: dict[str, int] = Field(description="Prompt -> index of the chosen sample.")
    pass_difference: Paired = Field(description="The first sample is first, the chosen one second.")
    test_difference: Paired = Field(description="Over prompts with hidden tests.")


class InsertScore(Strict):
    """Scores of one piece in its hole."""

    model: InfillModel
    task: str
    kind: str = Field(description="Kind of the hole: `line`, `expression`, `arguments` and so on.")
    file: str
    piece: str = Field(description="The piece that the model wrote; without a suffix, up to the end of the line.")
    exact: bool = Field(description="Whether it equals the reference, up to white space.")
    kept: float = Field(ge=0, le=1, description="Length of its correct prefix, as a share of the reference.")
    similarity: float = Field(ge=0, le=1, description="Ratcliff-Obershelp similarity to the reference.")
    parses: bool = Field(description="Whether the program parses with it.")
    resolves: bool = Field(description="Whether the program parses with it and has no new errors in names and types.")
    passes_tests: bool | None = Field(description="Whether the tests of the file pass with it; null without tests.")
    stopped: bool = Field(description="Whether the model ended the piece by itself.")
    likelihood: float | None = Field(description="Mean log-probability of its tokens; null for an n-gram.")
    before: str = Field(description="The end of the text before the hole.")
    reference: str = Field(description="The piece that was cut out.")
    after: str = Field(description="The start of the text after the hole.")


class InsertRates(Strict):
    """Figures over some holes; intervals are over files."""

    num_holes: int = Field(ge=0)
    exact: Rate
    parses: Rate
    resolves: Rate
    tests: Rate = Field(description="Over holes in files with tests.")
    stopped: Rate
    kept: float = Field(ge=0, le=1, description="Mean of `kept` of the pieces.")
    similarity: float = Field(ge=0, le=1, description="Mean similarity to the references.")


class Abstention(Strict):
    """A likelihood threshold for showing pieces, chosen on half of the files, and its figures on the other half."""

    threshold: float = Field(le=0, description="Mean log-probability of a token below which nothing is shown.")
    coverage: float = Field(ge=0, le=1, description="Share of the holes in the other half with a shown piece.")
    exact_shown: Rate = Field(description="Exact pieces among the shown ones.")
    exact_all: Rate = Field(description="Exact pieces among all in the other half.")
    silent: Rate | None = Field(
        default=None, description="Cursors with nothing to write, in the other half, where nothing is shown."
    )
    calibration_error: float = Field(ge=0, le=1, description="Expected calibration error of likelihoods, 10 bins.")


class InfillResults(Strict):
    """The suite `infill`: all models by kind of hole, and the adapter compared with the others on the same holes."""

    window: int = Field(ge=1, description="Tokens around the cursor that a model sees.")
    shown: Rate = Field(description="Holes where a served piece parses in place.")
    models: dict[InfillModel, dict[str, InsertRates]] = Field(description="Model -> kind of hole, or `all` -> figures.")
    champion: str | None = Field(description="Key of the promoted adapter in the store, if any.")
    exact_difference: dict[InfillModel, Paired] = Field(
        description="The other model is first, the adapter second; only lines for models without a suffix."
    )
    abstention: Abstention | None = Field(description="Null if there are too few holes to choose a threshold.")


class EvalResults(Document, Versioned):
    """Results of base and adapter, side by side, in upstream's fields and ours."""

    schema_: Literal["mens_eval_results_v1"] = Field(default="mens_eval_results_v1", alias="schema")
    run_id: str
    measured: Literal["model"] = Field(default="model", description="Figures are of completions, not of data.")
    total_samples: int = Field(ge=0)
    format_validity: float = Field(ge=0, le=1, description="Share of the adapter's completions that are not empty.")
    safety_rejection_rate: float = Field(ge=0, le=1, description="Share of the adapter's completions that refuse.")
    vox_parse_rate: float = Field(ge=0, le=1, description="Parse rate of the adapter on held-out prompts.")
    construct_coverage: int = Field(ge=0)
    construct_total: int = Field(ge=1)
    construct_coverage_pct: float = Field(ge=0, le=100)
    quality_proxy: float = Field(ge=0, le=1, description="Equals `vox_parse_rate`, as in upstream's document.")
    subject: Subject
    decoding: Decoding
    progress: Progress
    num_too_long: int = Field(
        ge=0, description="Tasks that were left out because their reference does not fit into a completion."
    )
    num_tests_dropped: int = Field(
        ge=0,
        description="Prompts whose reference fails their hidden tests: held-out ones are evaluated without the tests, "
        "synthetic ones are left out.",
    )
    base: ModelScores
    adapter: ModelScores
    parse_difference: Paired = Field(description="First samples: the base is first, the adapter second.")
    pass_difference: Paired
    test_difference: Paired = Field(description="Over prompts with hidden tests.")
    champion: ChampionComparison | None = Field(description="Null without a champion.")
    earlier: EarlierComparison | None = Field(
        default=None, description="Null if no champion before the one in use completed any of these prompts."
    )
    few_shot: FewShotComparison | None = Field(description="Null if it was not requested.")
    fallback: FallbackComparison | None = Field(description="Null if the decoding has no fallback.")
    best_of: BestOf | None = Field(default=None, description="Choice among samples as served; null with one sample.")
    infill: InfillResults | None = Field(
        default=None, description="Pieces at a cursor; null without holes, as for an adapter not trained on them."
    )
    families: dict[str, Scores] = Field(
        description="Scores of the adapter on synthetic tasks: `new_constants` in tasks of known families, and "
        "`unknown_task`. They are not part of the other figures."
    )


class CategoryStats(Document):
    """Benchmark results of one category."""

    category: str
    total: int
    passed_at_1: int
    passed_at_k: int


class TaskResult(Document):
    """Benchmark results of one task."""

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
    trivial_placeholder_event_rate: float = Field(ge=0, le=1, description="Share of first completions that are empty.")
    construct_richness_mean: float = Field(
        ge=0, le=1, description="Mean ratio of distinct constructs in a completion to requested ones, capped at 1."
    )
    category_stats: tuple[CategoryStats, ...]
    results: tuple[TaskResult, ...]


class PassAtK(Document, Versioned):
    """Pass rates on the benchmark."""

    schema_: Literal["vox_mens_benchmark_passatk_v1"] = Field(default="vox_mens_benchmark_passatk_v1", alias="schema")
    k: int = Field(ge=1)
    seed_base: int
    total: int = Field(ge=0)
    pass_rate_at_1: float = Field(ge=0, le=1)
    pass_rate_at_k: float = Field(ge=0, le=1, description="Unbiased estimate of pass@k.")
    pass_rates: dict[int, float] = Field(description="Number of samples, up to `k` -> unbiased pass rate.")
    pass_at_1_low: float = Field(ge=0, le=1, description="Lower end of the 95 % interval.")
    pass_at_1_high: float = Field(ge=0, le=1)


_OTHERS: Final[dict[InfillModel, str]] = {"left_to_right": "left to right", "base": "base", "ngram": "n-gram"}


def figures_of_infill(infill: InfillResults) -> dict[str, str]:
    """Format the figures of pieces at a cursor, by label: `exact lines`, with those of other models, and so on."""
    own = infill.models["adapter"]
    others = ((label, infill.models.get(model)) for model, label in _OTHERS.items())
    figures = {"exact": str(own["all"].exact)}
    if "line" in own:
        rates = [f"{label} {kinds['all'].exact.short}" for label, kinds in others if kinds is not None]
        figures["exact lines"] = ", ".join([str(own["line"].exact), *rates])
    figures["parse rate"] = f"{own['all'].parses.short} written freely, {infill.shown.short} served"
    if infill.abstention is not None:
        found = infill.abstention
        shown = f"{100 * found.coverage:.0f} % of the holes, the most certain ones"
        figures["shown"] = f"exact {found.exact_shown.short} of {shown}, {found.exact_all.short} of all"
        if found.silent is not None:
            figures["silent"] = f"{found.silent} at cursors with nothing to write"
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
    """Read the figures of an unchanged evaluation."""
    results = read_results(folder / RESULTS)
    assert results is not None, "a complete evaluation can be read"  # noqa: S101 - an internal invariant
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
    return (content, "") if isinstance(content, dict) else (None, "malformed (not an object)")
