"""Whether a training row repeats a held-out task: by its words, by the structure of its program, by its request."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from mens_pipeline.corpus.curate.shingles import ngrams_of, words_of
from mens_pipeline.corpus.curate.validate import judged_code
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.language import analyze
from mens_pipeline.language.structure import declaration_structures

NGRAM: Final = 8
"""Words in a run."""


class Overlap(StrEnum):
    """Kinds of overlap between a training row and a held-out task."""

    PROMPT = "same_prompt"
    WORDS = "shared_ngrams"
    STRUCTURE = "same_structure"


class HeldoutTasks:
    """The held-out tasks, ready to be compared with training rows."""

    def __init__(self, tasks: Iterable[TrainingPair], max_overlap: float, min_nodes: int) -> None:
        """Take up the tasks."""
        self._max_overlap = max_overlap
        self._min_nodes = min_nodes
        self._prompts: dict[str, int] = {}
        self._structures: dict[str, int] = {}
        self._runs: defaultdict[str, list[int]] = defaultdict(list)
        self._num_runs: list[int] = []
        self._labels: list[str] = []
        for number, task in enumerate(tasks):
            self._add(number, task)

    def _add(self, number: int, task: TrainingPair) -> None:
        runs = ngrams_of(words_of(task.response), NGRAM)
        for run in runs:
            self._runs[run].append(number)
        self._num_runs.append(len(runs))
        self._labels.append(task.source.path if task.source is not None else "a row without a source")
        self._prompts.setdefault(_normalised(task.prompt), number)
        for structure in structures_in(task, self._min_nodes):
            self._structures.setdefault(structure, number)

    def overlap(self, row: TrainingPair) -> tuple[Overlap, str] | None:
        """Find the held-out task that a row repeats, and the kind of overlap; None without one.

        The prompt of the row counts as well, since code may stand there.
        """
        same = self._prompts.get(_normalised(row.prompt))
        if same is not None:
            return Overlap.PROMPT, self._labels[same]
        runs = ngrams_of(words_of(row.prompt), NGRAM) | ngrams_of(words_of(row.response), NGRAM)
        shared = Counter(number for run in runs for number in self._runs.get(run, ()))
        for number, count in sorted(shared.items()):
            if count > self._max_overlap * self._num_runs[number]:
                return Overlap.WORDS, self._labels[number]
        for structure in structures_in(row, self._min_nodes):
            if structure in self._structures:
                return Overlap.STRUCTURE, self._labels[self._structures[structure]]
        return None


def structures_in(row: TrainingPair, min_nodes: int) -> tuple[str, ...]:
    """Return the structure digests of the declarations in the code of a row; none for prose.

    Declarations with fewer than `min_nodes` syntax nodes are left out.
    """
    code = judged_code(row)
    module = analyze(*code).module if code is not None else None
    if module is None:
        return ()
    structures = declaration_structures(module)
    return tuple(structure.digest for structure in structures if structure.num_nodes >= min_nodes)


def _normalised(prompt: str) -> str:
    return " ".join(words_of(prompt.lower()))
