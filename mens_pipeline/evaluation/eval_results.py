"""An evaluation as an artifact: figures, documents and every scored completion of base and adapter."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Final, get_args

from mens_pipeline.corpus.curate.heldout_split import FAMILIES, refuse_trained_heldout
from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.baselines import FewShot
from mens_pipeline.evaluation.benchmark import Benchmark
from mens_pipeline.evaluation.evaluate import (
    EarlierChampion,
    Evaluation,
    evaluate_completions,
    local_report,
    pass_at_k_report,
    with_sound_tests,
)
from mens_pipeline.evaluation.infill import CHAMPION, INFILL, LINE_MODELS, InfillSuite, score_suite
from mens_pipeline.evaluation.results import (
    INSERTS,
    LOCAL_REPORT,
    PASS_AT_K,
    RESULTS,
    SCORED_COMPLETIONS,
    ModelRole,
    Progress,
    ScoredCompletion,
    Subject,
)
from mens_pipeline.evaluation.scores import Score
from mens_pipeline.evaluation.statistics import MOST_TASKS
from mens_pipeline.evaluation.tasks import Task, benchmark_tasks, family_tasks, heldout_tasks, sample_with_tests
from mens_pipeline.inference.generation import COMPLETIONS, Completion, Decoding, Generation, GenerationJob, Syntax
from mens_pipeline.inference.prepare import Conditions, Model, generate_all, prepare_generation
from mens_pipeline.models.adapter import Adapter, TrainingManifest
from mens_pipeline.storage.jsonl import read_models, write_jsonl
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.signing import add_signature
from mens_pipeline.storage.stage import DecidedBy, Helper, Params, Parent, Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore, Details, digest_of

Generations = Mapping[str, Generation]
"""Who completes what: `base`, `adapter`, and if they are asked `champion`, `few_shot` (the base with examples in its
prompt), `families` (the adapter on synthetic tasks), and those that begin with `infill` (at cursors)."""


class EvaluationDetails(Details):
    """Fields in the manifest of an evaluation."""

    name: str


@dataclass(frozen=True, slots=True)
class Examination:
    """Tasks of an eval suite, with what was left out of it.

    Attributes:
        tasks: Held-out prompts first, then the benchmark.
        heldout_sha256: Of the held-out pairs, hexadecimal.
        benchmark: The benchmark; None when it is left out.
        num_too_long: Tasks that are left out because not even their reference fits into a completion.
        num_tests_dropped: Tasks without the hidden tests that they had, because their reference fails them.
        num_base_tasks: About how many of the tasks the base is asked, those with hidden tests first; None for all.
        few_shot: What the base is asked with examples in its prompt, if it is.
        families: Synthetic tasks that the adapter alone is asked.
        families_sha256: Of the file they stand in, hexadecimal; None without one.
        infill: What the adapter is asked at cursors, if it is.
    """

    tasks: tuple[Task, ...]
    heldout_sha256: str
    benchmark: Benchmark | None
    num_too_long: int = 0
    num_tests_dropped: int = 0
    num_base_tasks: int | None = None
    few_shot: FewShot | None = None
    families: tuple[Task, ...] = ()
    families_sha256: str | None = None
    infill: InfillSuite | None = None

    @property
    def digests(self) -> tuple[str, str | None, str | None, str | None]:
        """SHA-256 of the held-out pairs, of the benchmark, of the synthetic tasks, and of the holes."""
        benchmark = self.benchmark.digest if self.benchmark else None
        return self.heldout_sha256, benchmark, self.families_sha256, self.infill.digest if self.infill else None


def eval_suite(
    heldout: Path,
    train: Path,
    benchmark: Benchmark | None,
    fits: Callable[[str], bool],
    num_family_tasks: int = 0,
) -> Examination:
    """Build the eval suite: held-out code, the benchmark if there is one, and synthetic tasks beside these.

    Args:
        heldout: Held-out pairs, JSON lines. Beside them may lie synthetic tasks in a file `families.jsonl`.
        train: The train set of the adapter; where it is gone, nobody knows whether it holds any of them.
        benchmark: The benchmark.
        fits: Whether a text is short enough for a completion; a task whose reference is longer cannot pass.
        num_family_tasks: Synthetic tasks of each suite at most.

    Raises:
        SourceNotFoundError: The file is not there.
        RefusedError: It holds a row that is no pair, no code at all, more than can be compared, or something that was
            trained on.
        ConfigurationError: Hidden tests of a pair are rejected by the front end.
    """
    if train.is_file():
        refuse_trained_heldout(heldout, train)
    tasks, num_tests_dropped = with_sound_tests(heldout_tasks(read_pairs(heldout)))
    refuse_unanswerable(heldout, tasks, fits)
    bench = benchmark_tasks(benchmark) if benchmark is not None else ()
    short = tuple(task for task in (*tasks, *bench) if fits(task.reference))
    if len(short) > MOST_TASKS:
        found = f"{heldout}: {len(short):,} tasks with those of the benchmark, at most {MOST_TASKS:,} can be compared"
        raise RefusedError(f"{found}. Lower split.heldout_share in config/pipeline.yaml.")
    path = heldout.with_name(FAMILIES)
    is_asked = num_family_tasks > 0 and path.is_file()
    synthetic = (pair for pair in read_pairs(path) if fits(pair.response)) if is_asked else ()
    families, num_unsound = with_sound_tests(family_tasks(synthetic, num_family_tasks))
    return Examination(
        short,
        digest_of(heldout),
        benchmark,
        num_too_long=len(tasks) + len(bench) - len(short),
        num_tests_dropped=num_tests_dropped + num_unsound,
        families=tuple(task for task in families if task.tests is not None),
        families_sha256=digest_of(path) if is_asked else None,
    )


def refuse_unanswerable(heldout: Path, tasks: Sequence[Task], fits: Callable[[str], bool]) -> None:
    """Refuse an eval suite without a task that can be asked; checked before anything is trained.

    Raises:
        RefusedError: There is no task, or none whose reference fits.
    """
    if not tasks:
        raise RefusedError(f"{heldout}: no held-out code. Raise split.heldout_share in config/pipeline.yaml.")
    if not any(fits(task.reference) for task in tasks):
        raise RefusedError(
            f"{heldout}: no completion fits the limit. Raise max_new_tokens in config/evaluation.yaml (--max-tokens)."
        )


def prepare_generations(
    adapter: Adapter, whole_suite: Examination, conditions: Conditions, baseline: Artifact | None
) -> Generations:
    """Prepare the generations of base, adapter and champion, and of the base with examples in its prompt.

    `baseline` is the promoted adapter to compare with.

    Raises:
        RefusedError: The base is not what it was trained on.
    """
    has_fallback = conditions.decoding.syntax is Syntax.FALLBACK
    free = conditions.decoding.model_copy(update={"syntax": Syntax.FREE}) if has_fallback else conditions.decoding

    def prepare(
        role: str, model: Model, source: Adapter, tasks: Sequence[Task], system_prompt: str | None = None
    ) -> Generation:
        # What is compared is compared free; a second try is what the adapter alone is asked for.
        under = conditions if role == "adapter" else replace(conditions, decoding=free)
        requests, label = [task.request for task in tasks], role.replace("_", " ")
        return prepare_generation(model, source, requests, under, label=label, system_prompt=system_prompt)

    tasks, few, families = whole_suite.tasks, whole_suite.few_shot, whole_suite.families
    generations = {
        "base": prepare("base", "base", adapter, sample_with_tests(tasks, whole_suite.num_base_tasks)),
        "adapter": prepare("adapter", "adapter", adapter, tasks),
    }
    if baseline is not None:
        generations["champion"] = prepare("champion", "adapter", Adapter.open(baseline.path), tasks)
    if few is not None:
        generations["few_shot"] = prepare("base_with_examples", "base", adapter, few.tasks, few.prompt)
    if families:
        generations["families"] = prepare("adapter_on_synthetic_tasks", "adapter", adapter, families)
    if whole_suite.infill is not None:
        generations |= prepare_infill(whole_suite.infill, adapter, baseline, conditions)
    return generations


def prepare_infill(
    suite: InfillSuite, adapter: Adapter, baseline: Artifact | None, conditions: Conditions
) -> dict[str, Generation]:
    """Prepare what is written at cursors: by the adapter, by adapter and base without a suffix, and by the champion."""
    free = suite.decoding.model_copy(update={"syntax": Syntax.FREE})

    def prepare(name: str, model: Model, source: Adapter, decoding: Decoding) -> Generation:
        is_line = name in LINE_MODELS.values()
        tasks = suite.lines if is_line else suite.tasks
        requests = [task.request(suite.window, is_prefix_alone=is_line) for task in tasks]
        under = replace(conditions, decoding=decoding)
        return prepare_generation(model, source, requests, under, label=name.replace("_", " "))

    prepared = {INFILL: prepare(INFILL, "adapter", adapter, suite.decoding)}
    if suite.lines:
        prepared |= {
            name: prepare(name, "base" if model == "base" else "adapter", adapter, free)
            for model, name in LINE_MODELS.items()
        }
    if baseline is not None:
        prepared[CHAMPION] = prepare(CHAMPION, "adapter", Adapter.open(baseline.path), free)
    return prepared


class EvaluationParams(Params):
    """All completions by who wrote them, what was asked and how often; and what scoring needs.

    Attributes:
        completions: Name of a model -> its completions, those of each round.
        champion: Key of the adapter that is in use.
        earlier: Champions before it.
        first: The generations of the first round.
    """

    completions: dict[str, tuple[Parent, ...]]
    progress: Progress
    champion: str | None
    earlier: Annotated[
        tuple[EarlierChampion, ...], DecidedBy(lambda some: [(one.key, one.promoted_unix) for one in some])
    ]
    whole_suite: Annotated[Examination, DecidedBy(attrgetter("digests"))]
    first: Helper[Generations]
    manifest: Helper[TrainingManifest]


def write_eval_results(folder: Path, params: EvaluationParams) -> dict[str, Any]:
    """Score what the models wrote.

    The folder gets `eval_results.json`, `scored_completions.jsonl`, with a benchmark `eval_local_report.json` and
    `benchmark_passatk.json`, and with holes `infill_completions.jsonl`.
    """
    whole_suite, manifest, adapter = params.whole_suite, params.manifest, params.first["adapter"]
    completions = {name: completions_of(made) for name, made in params.completions.items()}
    infill = score_suite(whole_suite.infill, completions, params.champion) if whole_suite.infill is not None else None
    evaluation = evaluate_completions(
        whole_suite.tasks,
        completions,
        Subject(
            adapter_sha256=adapter.adapter_digest,
            base_sha256=manifest.base_model.sha256,
            base_model=manifest.base_model.name,
            heldout_sha256=whole_suite.heldout_sha256,
            benchmark_sha256=whole_suite.digests[1],
        ),
        adapter.decoding,
        params.progress,
        champion=(params.champion, params.first["champion"].adapter_digest) if params.champion is not None else None,
        earlier=params.earlier,
        num_too_long=whole_suite.num_too_long,
        num_tests_dropped=whole_suite.num_tests_dropped,
        few_shot=whole_suite.few_shot,
        families=whole_suite.families,
        infill=infill[0] if infill is not None else None,
    )
    if infill is not None:
        write_jsonl(folder / INSERTS, infill[1])
    write_documents(folder, evaluation, whole_suite.benchmark.folder.name if whole_suite.benchmark is not None else "")
    return {"name": f"eval-gate-{manifest.vcs_sha}" if manifest.vcs_sha else "eval-gate"}


STAGE: Final = Stage(Kind.EVAL_RESULTS, (__name__,), write_eval_results, sign=add_signature)


def build_eval_results(  # noqa: PLR0913 - all that an evaluation rests on
    whole_suite: Examination,
    generations: Sequence[Generations],
    manifest: TrainingManifest,
    store: ArtifactStore,
    launch: Callable[[GenerationJob], int],
    *,
    lock_path: Path,
    champion: str | None,
    earlier: tuple[EarlierChampion, ...],
    progress: Progress,
) -> tuple[Artifact, bool]:
    """Let all models write and score what they wrote; the same evaluation, unchanged in the store, is reused.

    `generations` are those of each round; together they are asked what the eval suite asks. `champion` is the key of
    the adapter in use, `earlier` are champions before it; `launch` runs a generation process, which holds `lock_path`,
    and returns its exit code.

    Returns:
        The evaluation, and whether it was reused.

    Raises:
        RefusedError: A generation failed.
        ConfigurationError: The store cannot be written, or there is no key to sign with although one checks.
    """
    first, completions = generations[0], defaultdict[str, tuple[Artifact, ...]](tuple)
    for asked in generations:
        for name, made in generate_all(asked, store, launch, lock_path).items():
            completions[name] += (made,)
    run = first["adapter"].adapter_path
    params = EvaluationParams(
        completions=completions,
        progress=progress,
        champion=champion,
        earlier=earlier,
        whole_suite=whole_suite,
        first=first,
        manifest=manifest,
        # The completions depend on the adapter by the digest of its weights, wherever it lies.
        origins=store.holding(run) if run is not None else (),
    )
    return STAGE.build(store, params)


def completions_of(artifacts: Iterable[Artifact]) -> tuple[Completion, ...]:
    """Read the completions of generations."""
    return tuple(
        completion for artifact in artifacts for completion in read_models(artifact.file(COMPLETIONS), Completion)
    )


def write_documents(folder: Path, evaluation: Evaluation, bench: str) -> None:
    """Write the documents of an evaluation.

    `bench` is the folder of the benchmark, for the reader; without a benchmark two documents are left out.
    """
    documents = {
        RESULTS: evaluation.results,
        LOCAL_REPORT: local_report(evaluation, bench),
        PASS_AT_K: pass_at_k_report(evaluation.results),
    }
    for name, document in documents.items():
        if document is not None:
            (folder / name).write_text(document.model_dump_json(indent=2) + "\n", encoding="utf-8")
    write_jsonl(folder / SCORED_COMPLETIONS, scored_completions(evaluation))


def scored_completions(evaluation: Evaluation) -> Iterator[ScoredCompletion]:
    """Yield every score with its prompt: of the base, that with examples, and the adapter, free and not."""
    by_id = {task.id: task for task in evaluation.tasks}
    for model in get_args(ModelRole):
        for score in getattr(evaluation, model):
            yield scored_completion(model, by_id[score.task], score)


def scored_completion(model: ModelRole, task: Task, score: Score) -> ScoredCompletion:
    """Return the score on a completion with what was asked."""
    return ScoredCompletion(
        model=model,
        suite=str(task.suite),
        prompt=task.prompt,
        asked=task.construct,
        difficulty=task.difficulty,
        reference=task.reference,
        score=score,
    )
