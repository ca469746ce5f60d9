"""Whether a training row repeats a held-out task: by its words, by the structure of its program, by its request."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from mens_pipeline.corpus.curate.near_duplicates import ngrams_of, words_of
from mens_pipeline.corpus.curate.validate import parsed_code
from mens_pipeline.corpus.schema.prompts import collapse_spaces
from mens_pipeline.corpus.schema.reasons import SplitReason
from mens_pipeline.corpus.schema.records import TrainingPair, read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.language import analyze, declaration_structures

NGRAM: Final = 8
"""Words in a run."""


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
            runs = ngrams_of(words_of(task.response), NGRAM)
            for run in runs:
                self._runs[run].append(number)
            self._num_runs.append(len(runs))
            self._labels.append(task.source.path if task.source is not None else "a row without a source")
            self._prompts.setdefault(_normalise(task.prompt), number)
            for structure in structures_in(task, self._min_nodes):
                self._structures.setdefault(structure, number)

    def overlap(self, row: TrainingPair) -> tuple[SplitReason, str] | None:
        """Find the held-out task that a row repeats, and the kind of overlap; None without one.

        The prompt of the row counts as well, since code may stand there.
        """
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
    """Return the structure digests of the declarations in the code of a row; none for prose.

    Declarations with fewer than `min_nodes` syntax nodes are left out.
    """
    code = parsed_code(row)
    module = analyze(*code).module if code is not None else None
    if module is None:
        return ()
    structures = declaration_structures(module)
    return tuple(structure.digest for structure in structures if structure.num_nodes >= min_nodes)


def _normalise(prompt: str) -> str:
    return " ".join(words_of(prompt.lower()))


def trained_heldout(heldout: Path, train: Path) -> str | None:
    """Count the prompts and responses of held-out pairs that stand in a train set, whatever the white space.

    Returns:
        What was found and what to do, as a message; None where they share nothing.
    """
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
    found = f"{len(same_prompts)} prompts and {len(same_responses)} answers of {len(pairs)} held-out pairs"
    where = f"stand in {len(lines)} rows of {train}, the first in row {lines[0]}"
    advice = "`mens corpus mix` writes both files so that they share nothing; run it, and train on what it wrote."
    return f"{heldout}: {found} {where}: what was trained on judges nothing. {advice}"


def refuse_trained_heldout(heldout: Path, train: Path) -> None:
    """Raise a RefusedError where a held-out pair stands in a train set."""
    if (found := trained_heldout(heldout, train)) is not None:
        raise RefusedError(found)
