"""An evaluation as an artifact: figures, documents and every scored completion of base and adapter."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Final, get_args

from mens_pipeline.evaluation.evaluate import (
    EarlierChampion,
    Evaluation,
    evaluate_completions,
    local_report,
    pass_at_k_report,
)
from mens_pipeline.evaluation.infill import CHAMPION, INFILL, LINE_MODELS, Holes, score_holes
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
from mens_pipeline.evaluation.suite import EvalSuite
from mens_pipeline.evaluation.tasks import Task, sample_with_tests
from mens_pipeline.inference.generation import COMPLETIONS, Completion, Decoding, Generation, GenerationJob, Syntax
from mens_pipeline.inference.prepare import Conditions, Model, generate_all, prepare_generation
from mens_pipeline.models.adapter import Adapter, TrainingManifest
from mens_pipeline.storage.jsonl import read_models, write_jsonl
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.signing import add_signature
from mens_pipeline.storage.stage import DecidedBy, Helper, Params, Parent, Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore, Details

Generations = Mapping[str, Generation]
"""Name -> generation: `base`, `adapter`, and optionally `champion`, `few_shot` (the base with examples in its prompt),
`families` (the adapter on synthetic tasks), and names that start with `infill` (at cursors)."""


class EvaluationDetails(Details):
    """Fields in the manifest of an evaluation."""

    name: str


def prepare_generations(
    adapter: Adapter, suite: EvalSuite, conditions: Conditions, baseline: Artifact | None
) -> Generations:
    """Prepare the generations of an eval suite, by the names in `Generations`.

    `baseline` is the promoted adapter to compare with. `RefusedError` if the base is not the one from training.
    """
    has_fallback = conditions.decoding.syntax is Syntax.FALLBACK
    free = conditions.decoding.model_copy(update={"syntax": Syntax.FREE}) if has_fallback else conditions.decoding

    def prepare(
        role: str, model: Model, source: Adapter, tasks: Sequence[Task], system_prompt: str | None = None
    ) -> Generation:
        # Models are compared by free completions; only the adapter gets constrained second tries.
        under = conditions if role == "adapter" else replace(conditions, decoding=free)
        requests, label = [task.request for task in tasks], role.replace("_", " ")
        return prepare_generation(model, source, requests, under, label=label, system_prompt=system_prompt)

    tasks, few, families = suite.tasks, suite.few_shot, suite.families
    generations = {
        "base": prepare("base", "base", adapter, sample_with_tests(tasks, suite.num_base_tasks)),
        "adapter": prepare("adapter", "adapter", adapter, tasks),
    }
    if baseline is not None:
        generations["champion"] = prepare("champion", "adapter", Adapter.open(baseline.path), tasks)
    if few is not None:
        generations["few_shot"] = prepare("base_with_examples", "base", adapter, few.tasks, few.prompt)
    if families:
        generations["families"] = prepare("adapter_on_synthetic_tasks", "adapter", adapter, families)
    if suite.holes is not None:
        generations |= prepare_infill(suite.holes, adapter, baseline, conditions)
    return generations


def prepare_infill(
    holes: Holes, adapter: Adapter, baseline: Artifact | None, conditions: Conditions
) -> dict[str, Generation]:
    """Prepare the generations at cursors, of adapter and champion, and of adapter and base without the suffix."""
    free = holes.decoding.model_copy(update={"syntax": Syntax.FREE})

    def prepare(name: str, model: Model, source: Adapter, decoding: Decoding) -> Generation:
        is_line = name in LINE_MODELS.values()
        tasks = holes.lines if is_line else holes.cursors if name == INFILL else holes.tasks
        requests = [task.request(holes.window, is_prefix_alone=is_line) for task in tasks]
        under = replace(conditions, decoding=decoding)
        return prepare_generation(model, source, requests, under, label=name.replace("_", " "))

    prepared = {INFILL: prepare(INFILL, "adapter", adapter, holes.decoding)}
    if holes.lines:
        prepared |= {
            name: prepare(name, "base" if model == "base" else "adapter", adapter, free)
            for model, name in LINE_MODELS.items()
        }
    if baseline is not None:
        prepared[CHAMPION] = prepare(CHAMPION, "adapter", Adapter.open(baseline.path), free)
    return prepared


class EvaluationParams(Params):
    """Completions, the suite, and everything else that scoring needs.

    `completions` maps each model to its completions by round. `champion` is the key of the adapter in use, `earlier`
    are former champions, and `first` are the generations of the first round.
    """

    completions: dict[str, tuple[Parent, ...]]
    progress: Progress
    champion: str | None
    earlier: Annotated[
        tuple[EarlierChampion, ...], DecidedBy(lambda some: [(one.key, one.promoted_unix) for one in some])
    ]
    suite: Annotated[EvalSuite, DecidedBy(attrgetter("digests"))]
    first: Helper[Generations]
    manifest: Helper[TrainingManifest]


def write_eval_results(folder: Path, params: EvaluationParams) -> dict[str, Any]:
    """Score completions, and write the documents of the evaluation into the folder.

    These are `eval_results.json` and `scored_completions.jsonl`; with a benchmark, also `eval_local_report.json` and
    `benchmark_passatk.json`; with holes, also `infill_completions.jsonl`.
    """
    suite, manifest, adapter = params.suite, params.manifest, params.first["adapter"]
    completions = {name: read_completions(made) for name, made in params.completions.items()}
    infill = score_holes(suite.holes, completions, params.champion) if suite.holes is not None else None
    evaluation = evaluate_completions(
        suite.tasks,
        completions,
        Subject(
            adapter_sha256=adapter.adapter_digest,
            base_sha256=manifest.base_model.sha256,
            base_model=manifest.base_model.name,
            heldout_sha256=suite.heldout_sha256,
            benchmark_sha256=suite.digests[1],
        ),
        adapter.decoding,
        params.progress,
        champion=(params.champion, params.first["champion"].adapter_digest) if params.champion is not None else None,
        earlier=params.earlier,
        num_too_long=suite.num_too_long,
        num_tests_dropped=suite.num_tests_dropped,
        few_shot=suite.few_shot,
        families=suite.families,
        infill=infill[0] if infill is not None else None,
    )
    if infill is not None:
        write_jsonl(folder / INSERTS, infill[1])
    write_documents(folder, evaluation, suite.benchmark.folder.name if suite.benchmark is not None else "")
    return {"name": f"eval-gate-{manifest.vcs_sha}" if manifest.vcs_sha else "eval-gate"}


STAGE: Final = Stage(Kind.EVAL_RESULTS, (__name__,), write_eval_results, sign=add_signature)


def build_eval_results(  # noqa: PLR0913 - the inputs of an evaluation
    suite: EvalSuite,
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
    """Run all generations and score their completions; return the evaluation, and whether it was reused.

    `generations` has an entry for each round; together they cover the suite. `champion` is the key of the adapter in
    use, `earlier` are former champions. `launch` runs a generation process, which holds `lock_path`, and returns its
    exit code. `RefusedError` if a generation failed.
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
        suite=suite,
        first=first,
        manifest=manifest,
        # The completions depend on the digest of the adapter's weights, not on its folder.
        origins=store.holding(run) if run is not None else (),
    )
    return STAGE.build(store, params)


def read_completions(artifacts: Iterable[Artifact]) -> tuple[Completion, ...]:
    """Read the completions of generations."""
    return tuple(
        completion for artifact in artifacts for completion in read_models(artifact.file(COMPLETIONS), Completion)
    )


def write_documents(folder: Path, evaluation: Evaluation, bench: str) -> None:
    """Write the documents of an evaluation; `bench` names the folder of the benchmark, which two of them need."""
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
    """Yield every score with its prompt: base, base with examples, and adapter, free and constrained."""
    by_id = {task.id: task for task in evaluation.tasks}
    for model in get_args(ModelRole):
        for score in getattr(evaluation, model):
            yield scored_completion(model, by_id[score.task], score)


def scored_completion(model: ModelRole, task: Task, score: Score) -> ScoredCompletion:
    """Return a score with its prompt."""
    return ScoredCompletion(
        model=model,
        suite=str(task.suite),
        prompt=task.prompt,
        asked=task.construct,
        difficulty=task.difficulty,
        reference=task.reference,
        score=score,
    )
