"""Split pairs for training and evaluation: hold out whole source files, and train on nothing similar to them."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from mens_pipeline.corpus.behaviour.repeats import TaskFunctions
from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.corpus.curate.near_duplicates import ngrams_of, words_of
from mens_pipeline.corpus.curate.pipeline_config import SplitPolicy, ValidatePolicy
from mens_pipeline.corpus.curate.validate import Repetition
from mens_pipeline.corpus.curate.validated_pairs import PairsDetails
from mens_pipeline.corpus.schema.account import Account, counts_of
from mens_pipeline.corpus.schema.prompts import collapse_spaces
from mens_pipeline.corpus.schema.reasons import SplitReason
from mens_pipeline.corpus.schema.records import (
    NEW_CONSTANTS,
    UNKNOWN_TASK,
    Lane,
    SourceKind,
    TrainingPair,
    parsed_code,
    read_pairs,
)
from mens_pipeline.corpus.synthesis.tasks.draw import Side, heldout_tasks
from mens_pipeline.errors import RefusedError
from mens_pipeline.language import analyze, declaration_structures
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.kinds import Kind, SplitFile
from mens_pipeline.storage.stage import Helper, Params, Parent, Stage
from mens_pipeline.storage.store import Details

NGRAM: Final = 8
"""Length of a run of words, the unit of comparison."""


class HeldoutTasks:
    """Index of the held-out tasks, for comparison with training rows."""

    def __init__(self, tasks: Iterable[TrainingPair], max_overlap: float, min_nodes: int) -> None:
        self._max_overlap = max_overlap
        self._min_nodes = min_nodes
        self._prompts: dict[str, int] = {}
        self._structures: dict[str, int] = {}
        self._runs: defaultdict[str, list[int]] = defaultdict(list)
        self._num_runs: list[int] = []
        self._labels: list[str] = []
        for number, task in enumerate(tasks):
            runs = ngrams_of(words_of(task.response), NGRAM)
            for run in runs:
                self._runs[run].append(number)
            self._num_runs.append(len(runs))
            self._labels.append(task.source.path if task.source is not None else "a row without a source")
            self._prompts.setdefault(_normalise(task.prompt), number)
            for structure in structures_in(task, self._min_nodes):
                self._structures.setdefault(structure, number)

    def overlap(self, row: TrainingPair) -> tuple[SplitReason, str] | None:
        """Return how a row's prompt or response repeats a held-out task, and the task's label; None without overlap."""
        same = self._prompts.get(_normalise(row.prompt))
        if same is not None:
            return SplitReason.PROMPT, self._labels[same]
        runs = ngrams_of(words_of(row.prompt), NGRAM) | ngrams_of(words_of(row.response), NGRAM)
        shared = Counter(number for run in runs for number in self._runs.get(run, ()))
        for number, count in sorted(shared.items()):
            if count > self._max_overlap * self._num_runs[number]:
                return SplitReason.WORDS, self._labels[number]
        for structure in structures_in(row, self._min_nodes):
            if structure in self._structures:
                return SplitReason.STRUCTURE, self._labels[self._structures[structure]]
        return None


def structures_in(row: TrainingPair, min_nodes: int) -> tuple[str, ...]:
    """Return the structure digests of declarations with at least `min_nodes` nodes in a row's code; empty for prose."""
    code = parsed_code(row)
    module = analyze(*code).module if code is not None else None
    if module is None:
        return ()
    structures = declaration_structures(module)
    return tuple(structure.digest for structure in structures if structure.num_nodes >= min_nodes)


def _normalise(prompt: str) -> str:
    return " ".join(words_of(prompt.lower()))


class SetAside(BaseModel):
    """A pair for neither training nor evaluation."""

    model_config = ConfigDict(frozen=True)

    reason: SplitReason
    detail: str
    pair: TrainingPair


class SplitReport(Details):
    """Counts of a split: training pairs by source, held-out pairs, and pairs set aside by reason."""

    train: dict[str, int]
    heldout: int
    aside: dict[str, int]
    num_groups: int
    num_heldout_groups: int
    num_evaluating_groups: int
    shortfall: str
    tested_functions: dict[str, int]


@dataclass(kw_only=True)
class Split(Account[SplitReason]):
    """The result of a split: training pairs by the label of their source, held-out pairs, and pairs set aside.

    Groups are source files that may be held out; `num_evaluating_groups` counts held-out files with a program to
    request. `shortfall` says why the eval suite is smaller than requested, and is empty otherwise. `tested` counts, by
    status, the functions that the hidden tests of held-out tasks and of the benchmark call.
    """

    train: dict[str, list[TrainingPair]] = field(default_factory=dict)
    heldout: list[TrainingPair] = field(default_factory=list)
    aside: list[SetAside] = field(default_factory=list)
    num_groups: int = 0
    num_heldout_groups: int = 0
    num_evaluating_groups: int = 0
    shortfall: str = ""
    tested: dict[str, int] = field(default_factory=dict)

    def report(self) -> SplitReport:
        """Return the counts."""
        return SplitReport(
            train={label: len(pairs) for label, pairs in self.train.items()},
            heldout=len(self.heldout),
            aside=counts_of(SplitReason, self.dropped),
            num_groups=self.num_groups,
            num_heldout_groups=self.num_heldout_groups,
            num_evaluating_groups=self.num_evaluating_groups,
            shortfall=self.shortfall,
            tested_functions=self.tested,
        )


def split_pairs(
    sources: Mapping[str, Iterable[TrainingPair]],
    repetition: Repetition,
    policy: SplitPolicy,
    workers: BehaviourWorkers,
    protected: Sequence[TrainingPair] = (),
) -> Split:
    """Assign every pair to `train`, `heldout` or `aside`; pairs that repeat an earlier one of any source go to `aside`.

    Held-out files are chosen by their paths and the seed alone. If these give too small an eval suite, more files with
    programs to request are added in the same order, so a suite only grows. Rows near `protected`, the tasks of a
    benchmark, are not trained on. Synthetic pairs are never held out.
    """
    split = Split()
    rows = {label: list(_distinct(label, pairs, repetition, split)) for label, pairs in sources.items()}
    groups = _golden_groups([pair for pairs in rows.values() for pair in pairs])
    heldout_groups = _heldout_groups(groups, policy)
    split.num_groups, split.num_heldout_groups = len(groups), len(heldout_groups)
    candidates: dict[str, list[TrainingPair]] = {}
    for label, pairs in rows.items():
        candidates[label] = [pair for pair in pairs if group_of(pair) not in heldout_groups]
        _hold_out((pair for pair in pairs if group_of(pair) in heldout_groups), split, policy)
    _note_size(split, policy)
    evaluated = [*split.heldout, *protected]
    tasks = HeldoutTasks(evaluated, policy.max_overlap, policy.min_nodes)
    functions = TaskFunctions(evaluated, workers)
    split.tested = functions.account()
    for label, pairs in candidates.items():
        apart = [pair for pair in pairs if not _set_aside(pair, tasks.overlap(pair), split)]
        repeated = zip(apart, functions.find_repeats(apart), strict=True)
        split.train[label] = [
            pair
            for pair, task in repeated
            if not _set_aside(pair, None if task is None else (SplitReason.BEHAVIOUR, task), split)
        ]
    split.kept = len(split.heldout) + sum(map(len, split.train.values()))
    split.check()
    return split


def _golden_groups(pairs: Sequence[TrainingPair]) -> dict[str, list[TrainingPair]]:
    outside = {group_of(pair) for pair in pairs if pair.source is not None and not pair.source.golden}
    groups: defaultdict[str, list[TrainingPair]] = defaultdict(list)
    for pair in pairs:
        group = group_of(pair)
        if group is not None and group not in outside:
            groups[group].append(pair)
    return groups


def _set_aside(pair: TrainingPair, found: tuple[SplitReason, str] | None, split: Split) -> bool:
    if found is not None:
        split.dropped[found[0]] += 1
        split.aside.append(SetAside(reason=found[0], detail=found[1], pair=pair))
    return found is not None


def group_of(pair: TrainingPair) -> str | None:
    """Return the path of a pair's source file; None for synthetic pairs and pairs without a source."""
    if pair.source is None:
        return None
    origin = pair.lineage.root_kind if pair.lineage is not None else pair.source.kind
    return None if origin is None or origin is SourceKind.SYNTHETIC else pair.source.path


def is_held_out(group: str, policy: SplitPolicy) -> bool:
    """Return whether a source file is held out by its path alone, in workspaces of any size."""
    return _place(group, policy) < policy.heldout_share


def _place(group: str, policy: SplitPolicy) -> float:
    digest = hashlib.sha256(f"{policy.seed}:{group}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _heldout_groups(groups: Mapping[str, Sequence[TrainingPair]], policy: SplitPolicy) -> set[str]:
    """Choose the held-out files: those below the share, then others with programs to request until there are enough."""
    order = sorted(groups, key=lambda group: _place(group, policy))
    heldout = {group for group in order if is_held_out(group, policy)}
    prompts = {
        group: {p.prompt for p in groups[group] if p.lane is Lane.CODEGEN and _find_reason(p, policy) is None}
        for group in order
    }
    evaluating = [group for group in order if prompts[group]]
    num_files = sum(group in heldout for group in evaluating)
    num_tasks = sum(len(prompts[group]) for group in heldout)
    for group in evaluating[num_files:]:
        is_enough = num_tasks >= policy.min_heldout_tasks and num_files >= policy.min_heldout_files
        if is_enough or num_files + 1 > policy.max_heldout_share * len(evaluating):
            break
        heldout.add(group)
        num_files += 1
        num_tasks += len(prompts[group])
    return heldout


def _note_size(split: Split, policy: SplitPolicy) -> None:
    evaluating = [group_of(pair) for pair in split.heldout if pair.lane is Lane.CODEGEN]
    split.num_evaluating_groups = len(set(evaluating))
    if len(evaluating) < policy.min_heldout_tasks or split.num_evaluating_groups < policy.min_heldout_files:
        found = f"{len(evaluating)} programs from {split.num_evaluating_groups} files"
        asked = f"{policy.min_heldout_tasks} from {policy.min_heldout_files}"
        held = f"{split.num_heldout_groups} of {split.num_groups} files are held out"
        advice = "Add programs, or raise max_heldout_share in config/pipeline.yaml."
        split.shortfall = f"A small eval suite: {found}, expected {asked}; {held}. {advice}"


def _distinct(
    label: str, pairs: Iterable[TrainingPair], repetition: Repetition, split: Split
) -> Iterator[TrainingPair]:
    for number, pair in enumerate(pairs, start=1):
        split.seen += 1
        found = repetition.find_reason(pair, f"row {number} of {label}")
        if not _set_aside(pair, None if found is None else (SplitReason(found[0]), found[1]), split):
            yield pair


def _hold_out(pairs: Iterable[TrainingPair], split: Split, policy: SplitPolicy) -> None:
    prompts = {pair.prompt for pair in split.heldout}
    for pair in pairs:
        reason = SplitReason.PROMPT if pair.prompt in prompts else _find_reason(pair, policy)
        path = pair.source.path if pair.source is not None else ""
        if not _set_aside(pair, None if reason is None else (reason, path), split):
            prompts.add(pair.prompt)
            split.heldout.append(pair)


def _find_reason(pair: TrainingPair, policy: SplitPolicy) -> SplitReason | None:
    if pair.source is not None and pair.source.kind is SourceKind.EVOLVED:
        return SplitReason.DERIVED
    if pair.lane is Lane.CODEGEN and not structures_in(pair, policy.min_nodes):
        return SplitReason.TOO_SMALL
    return None


HELDOUT: Final = SplitFile.HELDOUT
ASIDE: Final = SplitFile.ASIDE
FAMILIES: Final = SplitFile.FAMILIES
"""Synthetic tasks for evaluation only; their `task_family` is their kind."""


class SplitParams(Params):
    """Validated pairs, and how to split them; rows near `protected`, a benchmark, are not trained on."""

    pairs: Parent
    repeats: ValidatePolicy
    policy: SplitPolicy
    protected: tuple[TrainingPair, ...] = ()
    observers: Helper[Callable[[], BehaviourWorkers]] = BehaviourWorkers


def write_heldout_split(folder: Path, params: SplitParams) -> dict[str, Any]:
    """Split validated pairs; return the counts for the manifest.

    Writes the training pairs under the names of their sources, `heldout.jsonl`, `families.jsonl` and `aside.jsonl`.
    """
    names = PairsDetails.of(params.pairs).num_pairs
    sources = {name: list(read_pairs(params.pairs.path / name)) for name in names}
    with params.observers() as workers:
        split = split_pairs(sources, Repetition(params.repeats), params.policy, workers, params.protected)
    for name, rows in split.train.items():
        write_jsonl(folder / name, rows)
    write_jsonl(folder / HELDOUT, split.heldout)
    write_jsonl(folder / FAMILIES, family_pairs(params.policy))
    write_jsonl(folder / ASIDE, split.aside)
    return split.report().model_dump()


STAGE: Final = Stage(Kind.HELDOUT_SPLIT, (f"{__name__}:write_heldout_split",), write_heldout_split)


def family_pairs(policy: SplitPolicy) -> Iterator[TrainingPair]:
    """Yield synthetic tasks for evaluation: half are known tasks with new constants, half are unknown tasks."""
    drawn = heldout_tasks(policy.seed, policy.num_family_tasks)
    for side, family in ((Side.KNOWN, NEW_CONSTANTS), (Side.UNKNOWN, UNKNOWN_TASK)):
        yield from (pair.model_copy(update={"task_family": family}) for pair in drawn[side])


class OverlapReport(Details):
    """Counts of training rows that overlap with held-out or benchmark rows, and of all rows."""

    num_train: int
    num_heldout: int
    pairs_of_heldout_files: int
    near_copies: int
    same_behaviour: int


class OverlapParams(Params):
    """A split with its policy, and the benchmark, which counts as held out."""

    split: Parent
    policy: SplitPolicy
    protected: tuple[TrainingPair, ...]


def count_heldout_overlap(_folder: Path, params: OverlapParams) -> dict[str, Any]:
    """Count the training rows of a split that overlap with held-out or benchmark rows, for the manifest."""
    heldout = list(read_pairs(params.split.file(HELDOUT)))
    evaluating = [*heldout, *params.protected]
    tasks = HeldoutTasks(evaluating, params.policy.max_overlap, params.policy.min_nodes)
    groups = {group_of(pair) for pair in heldout}
    names = SplitReport.of(params.split).train
    train = [pair for name in names for pair in read_pairs(params.split.path / name)]
    with BehaviourWorkers() as workers:
        solved = sum(task is not None for task in TaskFunctions(evaluating, workers).find_repeats(train))
    report = OverlapReport(
        num_train=len(train),
        num_heldout=len(heldout),
        pairs_of_heldout_files=sum(group_of(pair) in groups for pair in train),
        near_copies=sum(tasks.overlap(pair) is not None for pair in train),
        same_behaviour=solved,
    )
    return report.model_dump()


OVERLAP_STAGE: Final = Stage(Kind.HELDOUT_OVERLAP, (f"{__name__}:count_heldout_overlap",), count_heldout_overlap)


def trained_heldout(heldout: Path, train: Path) -> str | None:
    """Describe the overlap of a train set with held-out pairs, with advice; None without one. Ignores white space."""
    pairs = list(read_pairs(heldout))
    prompts = {collapse_spaces(pair.prompt) for pair in pairs}
    responses = {collapse_spaces(pair.response) for pair in pairs}
    same_prompts, same_responses, lines = set(), set(), []
    for number, row in enumerate(read_pairs(train), start=1):
        prompt, response = collapse_spaces(row.prompt), collapse_spaces(row.response)
        if prompt in prompts or response in responses:
            lines.append(number)
            same_prompts |= {prompt} & prompts
            same_responses |= {response} & responses
    if not lines:
        return None
    found = f"{len(same_prompts)} prompts and {len(same_responses)} responses of {len(pairs)} held-out pairs"
    where = f"are in {len(lines)} rows of {train}, the first in row {lines[0]}"
    advice = "Run `mens corpus mix`, which writes both files without overlap, and train on its output."
    return f"{heldout}: {found} {where}: an evaluation on training rows is meaningless. {advice}"


def refuse_trained_heldout(heldout: Path, train: Path) -> None:
    """Raise `RefusedError` if a train set contains a held-out prompt or response."""
    if (found := trained_heldout(heldout, train)) is not None:
        raise RefusedError(found)
