"""An evaluation as an artifact: figures, documents and every judged answer of base and adapter."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import mens_pipeline.language
from mens_pipeline.corpus.jsonl import read_models, read_pairs, write_jsonl
from mens_pipeline.corpus.store import Artifact, ArtifactStore, digest_of
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.benchmark import Benchmark
from mens_pipeline.evaluation.evaluate import (
    Answers,
    ChampionAnswers,
    Evaluation,
    evaluate_answers,
    local_report,
    pass_at_k_report,
)
from mens_pipeline.evaluation.generation import ANSWERS, Answer
from mens_pipeline.evaluation.history import rival_of
from mens_pipeline.evaluation.prepare import KIND as GENERATIONS
from mens_pipeline.evaluation.prepare import (
    Conditions,
    Model,
    PreparedGeneration,
    generated,
    is_changed,
    prepare_generation,
)
from mens_pipeline.evaluation.results import (
    JUDGED_ANSWERS,
    LOCAL_REPORT,
    PASS_AT_K,
    RESULTS,
    JudgedAnswer,
    Subject,
)
from mens_pipeline.evaluation.tasks import Suite, Task, benchmark_tasks, heldout_tasks
from mens_pipeline.language.fingerprint import grammar_fingerprint, rules_fingerprint

KIND: Final = "eval_results"

_MAKERS: Final = (
    *("answer_code.py", "evaluate.py", "execution.py", "judge.py", "results.py", "scores.py", "statistics.py"),
    *("tasks.py", "requirements/*.py"),
)
"""The files that decide what is said of an answer."""


@dataclass(frozen=True, slots=True)
class Examination:
    """What models are asked.

    Attributes:
        tasks: Held-out requests first, then the benchmark.
        heldout_sha256: Of the held-out pairs, hexadecimal.
        benchmark: The benchmark; None when it is left out.
        num_too_long: Tasks that are left out because not even their reference fits into an answer.
    """

    tasks: tuple[Task, ...]
    heldout_sha256: str
    benchmark: Benchmark | None
    num_too_long: int = 0


@dataclass(frozen=True, slots=True)
class Champion:
    """The adapter that is in use, as it answers.

    Attributes:
        key: Of the promoted adapter in the store.
        generation: What it is asked.
    """

    key: str
    generation: PreparedGeneration


@dataclass(frozen=True, slots=True)
class Generations:
    """The generations that an evaluation compares.

    Attributes:
        base: The base model alone.
        adapter: With the adapter that is judged.
        champion: With the adapter that is in use, if there is one.
    """

    base: PreparedGeneration
    adapter: PreparedGeneration
    champion: Champion | None


def examination(heldout: Path, benchmark: Benchmark | None, fits: Callable[[str], bool]) -> Examination:
    """What models are asked: held-out code, and the benchmark if there is one.

    Args:
        heldout: Held-out pairs, JSON lines.
        benchmark: The benchmark.
        fits: Whether a text is short enough for an answer; a task whose reference is not can only be failed.

    Raises:
        SourceNotFoundError: The file is not there.
        RefusedError: It holds a row that is no pair, or no code at all.
    """
    tasks = heldout_tasks(read_pairs(heldout))
    if not tasks:
        raise RefusedError(f"{heldout}: no held-out code. Raise split.heldout_share in config/pipeline.yaml.")
    bench = benchmark_tasks(benchmark) if benchmark is not None else ()
    short = tuple(task for task in (*tasks, *bench) if fits(task.reference))
    if not any(task.suite is Suite.HELDOUT for task in short):
        raise RefusedError(f"{heldout}: no answer fits the limit. Raise max_new_tokens in config/evaluation.yaml.")
    return Examination(short, digest_of(heldout), benchmark, len(tasks) + len(bench) - len(short))


def prepare_generations(
    run: Path, exam: Examination, conditions: Conditions, store: ArtifactStore, work: str
) -> Generations:
    """The generations of base, adapter and champion.

    Args:
        run: The folder with `adapter/` and its training manifest.
        exam: What they are asked.
        conditions: Under which they answer.
        store: Where promoted adapters are kept, and jobs work.
        work: Names the folders of the jobs; no other evaluation at work may have the same.

    Raises:
        RefusedError: The run is not complete, or its base is not what it was trained on.
    """

    def prepared(role: str, model: Model, folder: Path) -> PreparedGeneration:
        run_dir = store.root / GENERATIONS / f".work-{work}-{role}"
        return prepare_generation(model, folder, exam.tasks, conditions, run_dir)

    base, adapter = prepared("base", "base", run), prepared("adapter", "adapter", run)
    rival = rival_of(store, adapter.inputs["adapter_sha256"])
    champion = Champion(rival.key, prepared("champion", "adapter", rival.path)) if rival is not None else None
    return Generations(base, adapter, champion)


def build_eval_results(
    exam: Examination,
    generations: Generations,
    manifest: Mapping[str, Any],
    store: ArtifactStore,
    launch: Callable[[PreparedGeneration], int],
) -> tuple[Artifact, bool]:
    """Let all models answer and judge what they wrote, unless the very same was done before and is as it was.

    Args:
        exam: What they are asked.
        generations: Which models.
        manifest: The training manifest of the adapter.
        store: Where answers and figures are kept.
        launch: Runs a generation process and returns its exit code.

    Returns:
        The evaluation, and whether it was reused. The folder holds `eval_results.json`, `judged_answers.jsonl`, and
        with a benchmark `eval_local_report.json` and `benchmark_passatk.json`.

    Raises:
        RefusedError: A model could not answer.
        ConfigurationError: The store cannot be written.
    """
    answered = {
        name: generated(generation, store, launch)[0]
        for name, generation in (("base", generations.base), ("adapter", generations.adapter))
    }
    champion = generations.champion
    if champion is not None:
        answered["champion"] = generated(champion.generation, store, launch)[0]
    inputs = {
        "generations": {name: artifact.key for name, artifact in answered.items()},
        "champion": champion.key if champion is not None else None,
        "heldout_sha256": exam.heldout_sha256,
        "benchmark_sha256": exam.benchmark.digest if exam.benchmark is not None else None,
        "grammar": grammar_fingerprint(),
        "interpreter": rules_fingerprint(Path(mens_pipeline.language.__file__).parent, ("interpreter/**/*.py",)),
        "makers": rules_fingerprint(Path(__file__).parent, _MAKERS),
    }
    adapter_sha256 = generations.adapter.inputs["adapter_sha256"]
    subject = Subject(
        adapter_sha256=adapter_sha256,
        base_sha256=manifest["base_model"]["sha256"],
        base_model=manifest["base_model"]["name"],
        heldout_sha256=exam.heldout_sha256,
        benchmark_sha256=exam.benchmark.digest if exam.benchmark is not None else None,
    )

    def write(folder: Path) -> dict[str, Any]:
        answers = Answers(
            base=_answers_of(answered["base"]),
            adapter=_answers_of(answered["adapter"]),
            champion=_champion_answers(champion, answered),
        )
        decoding = generations.adapter.job.decoding
        evaluation = evaluate_answers(exam.tasks, answers, subject, decoding, num_too_long=exam.num_too_long)
        write_documents(folder, evaluation, exam.benchmark.folder.name if exam.benchmark is not None else "")
        return {"name": f"eval-gate-{manifest['vcs_sha']}" if manifest["vcs_sha"] else "eval-gate"}

    return store.built(KIND, inputs, write, anew=is_changed(store, KIND, inputs))


def _champion_answers(champion: Champion | None, answered: Mapping[str, Artifact]) -> ChampionAnswers | None:
    if champion is None:
        return None
    sha256 = champion.generation.inputs["adapter_sha256"]
    return ChampionAnswers(champion.key, sha256, _answers_of(answered["champion"]))


def _answers_of(artifact: Artifact) -> tuple[Answer, ...]:
    return tuple(read_models(artifact.path / ANSWERS, Answer))


def write_documents(folder: Path, evaluation: Evaluation, bench: str) -> None:
    """Write the documents of an evaluation.

    Args:
        folder: Where.
        evaluation: What was judged.
        bench: The folder of the benchmark, for the reader; without a benchmark two documents are left out.
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
    """Every judged answer with what was asked: those of the base, then those of the adapter.

    Args:
        evaluation: What was judged.
    """
    by_id = {task.id: task for task in evaluation.tasks}
    both: Sequence[tuple[Model, Any]] = (("base", evaluation.base), ("adapter", evaluation.adapter))
    for model, judgements in both:
        for judgement in judgements:
            task = by_id[judgement.task]
            yield JudgedAnswer(
                model=model,
                suite=str(task.suite),
                prompt=task.prompt,
                asked=task.construct,
                difficulty=task.difficulty,
                reference=task.reference,
                judgement=judgement,
            )
