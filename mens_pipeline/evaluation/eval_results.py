"""An evaluation as an artifact: figures, documents and every judged answer of base and adapter."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from mens_pipeline.corpus.curate.heldout_split import FAMILIES
from mens_pipeline.corpus.curate.overlap import refuse_trained_heldout
from mens_pipeline.corpus.schema.training_pair import read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.benchmark import Benchmark
from mens_pipeline.evaluation.evaluate import (
    Answers,
    ChampionAnswers,
    Evaluation,
    evaluate_answers,
    local_report,
    pass_at_k_report,
    with_sound_tests,
)
from mens_pipeline.evaluation.few_shot import FewShot
from mens_pipeline.evaluation.judge import Judgement
from mens_pipeline.evaluation.results import (
    JUDGED_ANSWERS,
    LOCAL_REPORT,
    PASS_AT_K,
    RESULTS,
    AnsweringModel,
    JudgedAnswer,
    Progress,
    Subject,
)
from mens_pipeline.evaluation.statistics import MOST_TASKS
from mens_pipeline.evaluation.tasks import Task, benchmark_tasks, family_tasks, heldout_tasks, sample_with_tests
from mens_pipeline.inference.generation import ANSWERS, Answer
from mens_pipeline.inference.prepare import KIND as GENERATIONS
from mens_pipeline.inference.prepare import (
    Conditions,
    Model,
    PreparedGeneration,
    all_generated,
    prepare_generation,
)
from mens_pipeline.inference.sampling import Syntax
from mens_pipeline.models.adapter import Adapter, TrainingManifest
from mens_pipeline.storage.jsonl import read_models, write_jsonl
from mens_pipeline.storage.signing import signed
from mens_pipeline.storage.stage import Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore, Details, digest_of

KIND: Final = "eval_results"
STAGE: Final = Stage(KIND, (__name__,), by_content=True)


class EvaluationDetails(Details):
    """Fields in the manifest of an evaluation."""

    name: str


@dataclass(frozen=True, slots=True)
class Examination:
    """Tasks of an exam, with what was left out of it.

    Attributes:
        tasks: Held-out prompts first, then the benchmark.
        heldout_sha256: Of the held-out pairs, hexadecimal.
        benchmark: The benchmark; None when it is left out.
        num_too_long: Tasks that are left out because not even their reference fits into an answer.
        num_tests_dropped: Tasks without the hidden tests that they had, because their reference fails them.
        num_base_tasks: About how many of the tasks the base is asked, those with hidden tests first; None for all.
        few_shot: What the base is asked with examples in its prompt, if it is.
        families: Synthetic tasks that the adapter alone is asked.
        families_sha256: Of the file they stand in, hexadecimal; None without one.
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


@dataclass(frozen=True, slots=True)
class Champion:
    """The adapter that is in use, as it answers.

    `key` is that of the promoted adapter in the store.
    """

    key: str
    generation: PreparedGeneration


@dataclass(frozen=True, slots=True)
class Generations:
    """The generations that an evaluation compares.

    `few_shot` is the base with examples in its prompt, `families` the adapter on synthetic tasks.
    """

    base: PreparedGeneration
    adapter: PreparedGeneration
    champion: Champion | None
    few_shot: PreparedGeneration | None
    families: PreparedGeneration | None


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
        train: The train set of the adapter; where it is gone, whether it holds any of them cannot be told.
        benchmark: The benchmark.
        fits: Whether a text is short enough for an answer; a task whose reference is not can only be failed.
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
    families, num_unsound = with_sound_tests(_families(path, fits, num_family_tasks) if is_asked else ())
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
    """Refuse an eval suite that would judge nothing, whoever answers; known before anything is trained.

    Raises:
        RefusedError: There is no task, or none that could be answered.
    """
    if not tasks:
        raise RefusedError(f"{heldout}: no held-out code. Raise split.heldout_share in config/pipeline.yaml.")
    if not any(fits(task.reference) for task in tasks):
        raise RefusedError(
            f"{heldout}: no answer fits the limit. Raise max_new_tokens in config/evaluation.yaml (--max-tokens)."
        )


def _families(path: Path, fits: Callable[[str], bool], number: int) -> tuple[Task, ...]:
    return family_tasks((pair for pair in read_pairs(path) if fits(pair.response)), number)


def prepare_generations(  # noqa: PLR0913, PLR0917 - who answers what, and where
    adapter: Adapter,
    exam: Examination,
    conditions: Conditions,
    store: ArtifactStore,
    work: str,
    baseline_of: Callable[[str], Artifact | None],
) -> Generations:
    """Prepare the generations of base, adapter and champion, and of the base with examples in its prompt.

    `work` names the folders of the jobs; no other evaluation at work may have the same. `baseline_of` finds the
    promoted adapter to compare with, by the SHA-256 of the candidate's weights.

    Raises:
        RefusedError: The base is not what it was trained on.
    """
    has_fallback = conditions.decoding.syntax is Syntax.FALLBACK
    free = conditions.decoding.model_copy(update={"syntax": Syntax.FREE}) if has_fallback else conditions.decoding

    def prepared(
        role: str, model: Model, source: Adapter, tasks: Sequence[Task], system_prompt: str | None = None
    ) -> PreparedGeneration:
        run_dir = store.root / GENERATIONS / f".work-{work}-{role}"
        # What is compared is compared free; a second try is what the adapter alone is asked for.
        under = conditions if role == "adapter" else replace(conditions, decoding=free)
        requests, label = [task.request for task in tasks], role.replace("_", " ")
        return prepare_generation(model, source, requests, under, run_dir, label=label, system_prompt=system_prompt)

    baseline, few, families = baseline_of(adapter.digest), exam.few_shot, exam.families
    champion = None
    if baseline is not None:
        champion = Champion(baseline.key, prepared("champion", "adapter", Adapter.open(baseline.path), exam.tasks))
    return Generations(
        base=prepared("base", "base", adapter, sample_with_tests(exam.tasks, exam.num_base_tasks)),
        adapter=prepared("adapter", "adapter", adapter, exam.tasks),
        champion=champion,
        few_shot=prepared("base_with_examples", "base", adapter, few.tasks, few.prompt) if few is not None else None,
        families=prepared("adapter_on_synthetic_tasks", "adapter", adapter, families) if families else None,
    )


def build_eval_results(  # noqa: PLR0913 - all that an evaluation rests on
    exam: Examination,
    generations: Sequence[Generations],
    manifest: TrainingManifest,
    store: ArtifactStore,
    launch: Callable[[PreparedGeneration], int],
    *,
    progress: Progress,
) -> tuple[Artifact, bool]:
    """Let all models answer and judge what they wrote, unless the very same was done before and is as it was.

    `generations` are those of each round; together they are asked what the exam asks. `launch` runs a generation
    process and returns its exit code.

    Returns:
        The evaluation, and whether it was reused. The folder holds `eval_results.json`, `judged_answers.jsonl`, and
        with a benchmark `eval_local_report.json` and `benchmark_passatk.json`.

    Raises:
        RefusedError: A model could not answer.
        ConfigurationError: The store cannot be written, or there is no key to sign with although one checks.
    """
    adapter, champion = generations[0].adapter, generations[0].champion
    answered: defaultdict[str, list[Artifact]] = defaultdict(list)
    for asked in generations:
        for name, answers in all_generated(_by_name(asked), store, launch).items():
            answered[name].append(answers)
    params = {
        "generations": {name: [artifact.key for artifact in artifacts] for name, artifacts in answered.items()},
        "progress": progress.model_dump(),
        "champion": champion.key if champion is not None else None,
        "heldout_sha256": exam.heldout_sha256,
        "benchmark_sha256": exam.benchmark.digest if exam.benchmark is not None else None,
        "families_sha256": exam.families_sha256,
    }
    subject = Subject(
        adapter_sha256=adapter.inputs["adapter_sha256"],
        base_sha256=manifest.base_model.sha256,
        base_model=manifest.base_model.name,
        heldout_sha256=exam.heldout_sha256,
        benchmark_sha256=exam.benchmark.digest if exam.benchmark is not None else None,
    )

    def write(folder: Path) -> dict[str, Any]:
        answers = Answers(
            base=answers_of(answered["base"]),
            adapter=answers_of(answered["adapter"]),
            champion=_champion_answers(champion, answered),
            few_shot=answers_of(answered["few_shot"]),
            families=answers_of(answered["families"]),
        )
        evaluation = evaluate_answers(
            exam.tasks,
            answers,
            subject,
            adapter.job.decoding,
            progress,
            num_too_long=exam.num_too_long,
            num_tests_dropped=exam.num_tests_dropped,
            few_shot=exam.few_shot,
            families=exam.families,
        )
        write_documents(folder, evaluation, exam.benchmark.folder.name if exam.benchmark is not None else "")
        return {"name": f"eval-gate-{manifest.vcs_sha}" if manifest.vcs_sha else "eval-gate"}

    run = adapter.job.adapter_path
    parents = [*itertools.chain(*answered.values()), *(store.holding(run) if run is not None else ())]
    return STAGE.build(store, parents, *signed(store, KIND, params, write))


def _by_name(generations: Generations) -> dict[str, PreparedGeneration]:
    """Map the name of each model that is asked to its generation."""
    champion = generations.champion
    asked = {
        "base": generations.base,
        "adapter": generations.adapter,
        "champion": champion.generation if champion is not None else None,
        "few_shot": generations.few_shot,
        "families": generations.families,
    }
    return {name: generation for name, generation in asked.items() if generation is not None}


def _champion_answers(champion: Champion | None, answered: Mapping[str, Sequence[Artifact]]) -> ChampionAnswers | None:
    if champion is None:
        return None
    sha256 = champion.generation.inputs["adapter_sha256"]
    return ChampionAnswers(champion.key, sha256, answers_of(answered["champion"]))


def answers_of(artifacts: Iterable[Artifact]) -> tuple[Answer, ...]:
    """Read the answers of generations."""
    return tuple(answer for artifact in artifacts for answer in read_models(artifact.path / ANSWERS, Answer))


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
    write_jsonl(folder / JUDGED_ANSWERS, judged_answers(evaluation))


def judged_answers(evaluation: Evaluation) -> Iterator[JudgedAnswer]:
    """Yield every judged answer with its prompt: of the base, that with examples, and the adapter, free and not."""
    by_id = {task.id: task for task in evaluation.tasks}
    models: Sequence[tuple[AnsweringModel, Any]] = (
        ("base", evaluation.base),
        ("few_shot", evaluation.few_shot),
        ("adapter", evaluation.adapter),
        ("fallback", evaluation.fallback),
    )
    for model, judgements in models:
        for judgement in judgements:
            yield judged_answer(model, by_id[judgement.task], judgement)


def judged_answer(model: AnsweringModel, task: Task, judgement: Judgement) -> JudgedAnswer:
    """Return an answer with what was asked."""
    return JudgedAnswer(
        model=model,
        suite=str(task.suite),
        prompt=task.prompt,
        asked=task.construct,
        difficulty=task.difficulty,
        reference=task.reference,
        judgement=judgement,
    )
