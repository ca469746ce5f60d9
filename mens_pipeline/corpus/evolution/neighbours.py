"""Similarity search over rows that a new row must differ from: seeds, earlier rows, held-out pairs and benchmarks."""

from collections.abc import Iterable
from typing import Final

from mens_pipeline.corpus.curate.near_duplicates import NearDuplicates
from mens_pipeline.corpus.curate.overlap import HeldoutTasks, Overlap
from mens_pipeline.corpus.curate.pipeline_config import SplitPolicy
from mens_pipeline.corpus.evolution.examine import Refusal, structures_of
from mens_pipeline.corpus.evolution.outcome import EvolutionDrop
from mens_pipeline.corpus.evolution.seeds import Seeds
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.language.ast.declarations import Module
from mens_pipeline.language.structure import structure_of

_OVERLAPS: Final = {
    Overlap.PROMPT: EvolutionDrop.HELDOUT_PROMPT,
    Overlap.WORDS: EvolutionDrop.HELDOUT_WORDS,
    Overlap.STRUCTURE: EvolutionDrop.HELDOUT_STRUCTURE,
}


class Neighbours:
    """Rows that are there already; those that are kept join them."""

    def __init__(
        self, seeds: Seeds, protected: Iterable[TrainingPair], near_duplicate_threshold: float, policy: SplitPolicy
    ) -> None:
        """Take up what is there."""
        self._heldout = HeldoutTasks([*seeds.heldout, *protected], policy.max_overlap, policy.min_nodes)
        self._min_nodes = policy.min_nodes
        self._structures = structures_of(seeds.pairs, policy.min_nodes)
        self._texts = NearDuplicates(near_duplicate_threshold)
        self._num_rows = 0
        for number, pair in enumerate(seeds.pairs):
            self._texts.earlier(f"seed {number}", _text(pair))

    def refusal(self, row: TrainingPair, module: Module) -> Refusal | None:
        """Return the reason to drop a row, with a detail; None for a row that is kept and joins the others."""
        overlap = self._heldout.overlap(row)
        if overlap is not None:
            return _OVERLAPS[overlap[0]], overlap[1]
        structure = structure_of(module)
        if structure.digest in self._structures:
            return EvolutionDrop.REPEATED, ""
        near = self._texts.earlier(f"row {self._num_rows}", _text(row))
        if near is not None:
            return EvolutionDrop.NEAR_DUPLICATE, near
        self._num_rows += 1
        if structure.num_nodes >= self._min_nodes:
            self._structures.add(structure.digest)
        return None


def _text(pair: TrainingPair) -> str:
    return f"{pair.prompt}\n{pair.response}"
