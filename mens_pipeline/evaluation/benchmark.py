"""Held-out tasks with their reference solutions: `data/heldout_bench`, or a folder of one's own."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mens_pipeline.corpus.schema.records import Source, SourceKind
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.evaluation.benchmark_files import digest_of, read_files
from mens_pipeline.evaluation.manifest import TaskSpec, read_manifest
from mens_pipeline.evaluation.solutions import solution_mistakes
from mens_pipeline.language import analyze, difficulty

MANIFEST: Final = "manifest.json"


@dataclass(frozen=True, slots=True)
class BenchmarkTask:
    """One task with the files that it names.

    Attributes:
        spec: What the manifest says of it.
        solution: The reference solution, which the front end accepts and which meets all that is required.
        tests: `@test` functions that no model sees; None without.
        context: The texts of `file` and `context_files`, in this order.
        wrong: Answers that look right and that the hidden tests refuse.
    """

    spec: TaskSpec
    solution: str
    tests: str | None
    context: tuple[str, ...]
    wrong: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Its name, unique in the benchmark."""
        return self.spec.id


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Tasks to judge a model by.

    Attributes:
        folder: Where they lie.
        description: What they are for.
        digest: SHA-256 over the manifest and all files named in it, hexadecimal; the same on every machine.
        tasks: The tasks, in the order of the manifest.
    """

    folder: Path
    description: str
    digest: str
    tasks: tuple[BenchmarkTask, ...]


def load_benchmark(folder: Path) -> Benchmark:
    """Read and check a benchmark.

    Args:
        folder: Holds `manifest.json` and the files that it names.

    Raises:
        ConfigurationError: Something is missing or wrong; the message names all of it, one mistake a line.
    """
    path = folder / MANIFEST
    try:
        content = path.read_bytes()
    except OSError as error:
        advice = "Name a folder that holds a benchmark, or restore the file."
        raise ConfigurationError(f"{path}: {error.strerror}. {advice}") from error
    mistakes: list[str] = []
    description, specs = read_manifest(content, mistakes)
    files = read_files(folder, [(spec.id, name) for spec in specs for name in spec.files()], mistakes)
    tasks = tuple(_task(spec, files) for spec in specs if all(name in files for name in spec.files()))
    for task in tasks:
        mistakes.extend(f"task `{task.id}`: {text}" for text in solution_mistakes(task.spec, task.solution, task.tests))
    if mistakes:
        found = f"{len(mistakes)} mistake{'s' if len(mistakes) > 1 else ''}"
        lines = "".join(f"\n  {mistake}" for mistake in mistakes)
        raise ConfigurationError(f"{path}: {found}. Correct the manifest, or the files it names:{lines}")
    return Benchmark(folder, description, digest_of(content, files), tasks)


def tasks_as_pairs(benchmark: Benchmark) -> tuple[TrainingPair, ...]:
    """Return the tasks as the training pairs they would be, to keep what is too near to them out of training.

    A solution stands for a whole file (`vox_file`), whose path tells how it is read. That of a script is not told by
    its path, so scripts are compared by their words and requests, not by their structure.

    Args:
        benchmark: The tasks.
    """
    return tuple(_pair(benchmark.folder.name, task) for task in benchmark.tasks)


def protected_pairs(folder: Path) -> tuple[TrainingPair, ...]:
    """Return the tasks of a benchmark and of all benchmarks below its folder, as pairs that training may not be near.

    Args:
        folder: The folder of a benchmark.

    Raises:
        ConfigurationError: One of them does not hold together.
    """
    load_benchmark(folder)
    manifests = sorted(folder.rglob(MANIFEST))
    return tuple(pair for path in manifests for pair in tasks_as_pairs(load_benchmark(path.parent)))


def _pair(folder: str, task: BenchmarkTask) -> TrainingPair:
    module = analyze(task.solution, task.spec.mode).module
    assert module is not None, f"the solution of {task.id} was accepted when it was loaded"  # noqa: S101
    source = Source(
        path=f"{folder}/{task.spec.solution}",
        blob=hashlib.sha256(task.solution.encode()).hexdigest(),
        span=(0, len(task.solution)),
        lines=(1, max(1, len(task.solution.splitlines()))),
        kind=SourceKind.VOX_FILE,
    )
    return TrainingPair(
        prompt=task.spec.description,
        response=task.solution,
        category=task.spec.category,
        rating=5,
        difficulty=difficulty(module),
        source=source,
        tests=task.tests,
    )


def _task(spec: TaskSpec, files: dict[str, str]) -> BenchmarkTask:
    named = ((spec.file,) if spec.file is not None else ()) + spec.context_files
    tests = files[spec.tests] if spec.tests is not None else None
    context, wrong = (tuple(files[name] for name in names) for names in (named, spec.wrong))
    return BenchmarkTask(spec, files[spec.solution], tests, context, wrong)
