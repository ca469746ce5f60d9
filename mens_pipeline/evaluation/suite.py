"""The eval suite: tasks, holes, and how held-out prompts are divided into rounds."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mens_pipeline.corpus.curate.heldout_split import FAMILIES, refuse_trained_heldout
from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.baselines import build_few_shot
from mens_pipeline.evaluation.benchmark import Benchmark
from mens_pipeline.evaluation.evaluate import with_sound_tests
from mens_pipeline.evaluation.infill import Holes, find_holes, infill_decoding
from mens_pipeline.evaluation.statistics import MOST_TASKS
from mens_pipeline.evaluation.tasks import (
    FewShot,
    Suite,
    Task,
    benchmark_tasks,
    draw_tasks,
    family_tasks,
    heldout_tasks,
)
from mens_pipeline.inference.generation import EvaluationConfig
from mens_pipeline.inference.prepare import completion_fits
from mens_pipeline.models.adapter import TrainingManifest
from mens_pipeline.storage.store import digest_of

_LEAST_SHARE: Final = 0.2
"""Fewest prompts of all later rounds, as a share of the first. Fewer join the first round: they would decide nothing,
and another round costs confidence."""


@dataclass(frozen=True, slots=True)
class EvalSuite:
    """All tasks for the models, held-out prompts first, and counts of omitted tasks.

    `num_too_long` tasks were left out because their reference does not fit into a completion; `num_tests_dropped` lost
    their hidden tests because their reference fails them. About `num_base_tasks` are for the base, those with hidden
    tests first; None: all. `few_shot` is for the base with examples in its prompt. `families` are synthetic tasks that
    only the adapter completes. Digests are hexadecimal.
    """

    tasks: tuple[Task, ...]
    heldout_sha256: str
    benchmark: Benchmark | None
    first_heldout_tasks: int
    max_rounds: int
    num_too_long: int = 0
    num_tests_dropped: int = 0
    num_base_tasks: int | None = None
    few_shot: FewShot | None = None
    families: tuple[Task, ...] = ()
    families_sha256: str | None = None
    holes: Holes | None = None

    @property
    def digests(self) -> tuple[str, str | None, str | None, str | None]:
        """SHA-256 of held-out pairs, benchmark, synthetic tasks and holes."""
        benchmark = self.benchmark.digest if self.benchmark else None
        return self.heldout_sha256, benchmark, self.families_sha256, self.holes.digest if self.holes else None

    @property
    def rounds(self) -> tuple[tuple[Task, ...], ...]:
        """The tasks of each round; the benchmark is in the first."""
        return divide_into_rounds(self.tasks, self.first_heldout_tasks, self.max_rounds)

    def take(self, num_heldout: int, num_benchmark: int) -> "EvalSuite":
        """Return a smaller suite of one round: whole held-out files in the order of rounds, some benchmark tasks."""
        heldout = [task for task in self.tasks if task.suite is Suite.HELDOUT]
        first = divide_into_rounds(heldout, num_heldout, 2)[0] if num_heldout < len(heldout) else tuple(heldout)
        others = [task for task in self.tasks if task.suite is not Suite.HELDOUT]
        chosen = {task.id for task in (*first, *draw_tasks(others, num_benchmark))}
        tasks = tuple(task for task in self.tasks if task.id in chosen)
        # Assume that tasks are too long at the same rate in the part as in the whole.
        num_too_long = round(self.num_too_long * len(tasks) / len(self.tasks))
        return replace(self, tasks=tasks, first_heldout_tasks=max(1, len(first)), num_too_long=num_too_long)


def read_suite(  # noqa: PLR0913 - sources and numbers of an eval suite
    heldout: Path,
    train: Path,
    benchmark: Benchmark | None,
    fits: Callable[[str], bool],
    *,
    first_heldout_tasks: int,
    max_rounds: int,
    num_family_tasks: int = 0,
) -> EvalSuite:
    """Read the tasks of an eval suite: held-out code, the benchmark, and synthetic tasks.

    `families.jsonl` next to the held-out pairs holds synthetic tasks. `train` is the train set of the adapter; if it is
    missing, tasks are not compared with it. `fits` tells whether a text is short enough for a completion.
    `SourceNotFoundError` if `heldout` is missing; `RefusedError` if a row is not a pair or was trained on, there is no
    code, or there are too many tasks to compare; `ConfigurationError` if the front end rejects hidden tests of a pair.
    """
    if train.is_file():
        refuse_trained_heldout(heldout, train)
    tasks, num_tests_dropped = with_sound_tests(heldout_tasks(read_pairs(heldout)))
    refuse_unanswerable(heldout, tasks, fits)
    bench = benchmark_tasks(benchmark) if benchmark is not None else ()
    short = tuple(task for task in (*tasks, *bench) if fits(task.reference))
    if len(short) > MOST_TASKS:
        found = f"{heldout}: {len(short):,} tasks including the benchmark, at most {MOST_TASKS:,} can be compared"
        raise RefusedError(f"{found}. Lower split.heldout_share in config/pipeline.yaml.")
    path = heldout.with_name(FAMILIES)
    is_asked = num_family_tasks > 0 and path.is_file()
    synthetic = (pair for pair in read_pairs(path) if fits(pair.response)) if is_asked else ()
    families, num_unsound = with_sound_tests(family_tasks(synthetic, num_family_tasks))
    return EvalSuite(
        short,
        digest_of(heldout),
        benchmark,
        first_heldout_tasks=first_heldout_tasks,
        max_rounds=max_rounds,
        num_too_long=len(tasks) + len(bench) - len(short),
        num_tests_dropped=num_tests_dropped + num_unsound,
        families=tuple(task for task in families if task.tests is not None),
        families_sha256=digest_of(path) if is_asked else None,
    )


def build_suite(  # noqa: PLR0913 - sources and sizes of an eval suite
    manifest: TrainingManifest,
    heldout: Path,
    train: Path,
    benchmark: Benchmark | None,
    config: EvaluationConfig,
    *,
    first_heldout_tasks: int,
    max_rounds: int,
    few_shot: Path,
    part: tuple[int, int] | None = None,
) -> EvalSuite:
    """Build the eval suite of an adapter; `few_shot` is the language description, and its examples are from `train`.

    `part` limits the suite to one round with these numbers of held-out prompts and benchmark tasks; None: all rounds.
    `RefusedError` if the held-out pairs cannot be evaluated, or the train set is missing or was changed;
    `ConfigurationError` if hidden tests or the language description cannot be used.
    """
    base = manifest.base_model
    suite = read_suite(
        heldout,
        train,
        benchmark,
        completion_fits(base, config.decoding),
        first_heldout_tasks=first_heldout_tasks,
        max_rounds=max_rounds,
        num_family_tasks=config.family_tasks,
    )
    if part is not None:
        suite = suite.take(*part)
    few = build_few_shot(suite.rounds[0], config.few_shot_tasks, few_shot, train, manifest.train_sha256)
    holes = find_holes(heldout, train, manifest, config, completion_fits(base, infill_decoding(config)))
    return replace(suite, num_base_tasks=config.base_tasks, few_shot=few, holes=holes)


def refuse_unanswerable(heldout: Path, tasks: Sequence[Task], fits: Callable[[str], bool]) -> None:
    """Raise `RefusedError`, before training, if no held-out task fits into a completion."""
    if not tasks:
        raise RefusedError(f"{heldout}: no held-out code. Raise split.heldout_share in config/pipeline.yaml.")
    if not any(fits(task.reference) for task in tasks):
        raise RefusedError(
            f"{heldout}: no completion fits the limit. Raise max_new_tokens in config/evaluation.yaml (--max-tokens)."
        )


def divide_into_rounds(tasks: Sequence[Task], num_first: int, max_rounds: int) -> tuple[tuple[Task, ...], ...]:
    """Divide tasks into rounds of whole held-out files, in an order that depends only on their paths.

    The first round has about `num_first` held-out prompts, and all other tasks; later rounds have about equal sizes.
    The tasks of each round keep the order of `tasks`.
    """
    files: defaultdict[str, int] = defaultdict(int)
    for task in tasks:
        if task.suite is Suite.HELDOUT:
            files[task.file] += 1
    left = sum(files.values()) - num_first
    num_rounds = max_rounds if left >= _LEAST_SHARE * num_first else 1
    ends = [num_first + left * number / (num_rounds - 1) for number in range(num_rounds - 1)]
    round_of, asked = {}, 0
    for file in sorted(files, key=lambda file: hashlib.sha256(file.encode()).digest()):
        round_of[file] = sum(asked >= end for end in ends)
        asked += files[file]
    divided = tuple(
        tuple(task for task in tasks if round_of.get(task.file, 0) == number) for number in range(num_rounds)
    )
    return tuple(part for part in divided if part)
