"""Selection and order of the rows that are evolved; the others only serve the similarity search."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from mens_pipeline.corpus.curate.overlap import HeldoutTasks
from mens_pipeline.corpus.curate.pipeline_config import SplitPolicy
from mens_pipeline.corpus.curate.repetition import NearDuplicates
from mens_pipeline.corpus.curate.split import group_of, is_held_out
from mens_pipeline.corpus.curate.validate import judged_code
from mens_pipeline.corpus.evolution.examine import EvolutionDrop, Refusal, structures_of
from mens_pipeline.corpus.schema.reasons import SplitReason
from mens_pipeline.corpus.schema.records import Lane
from mens_pipeline.corpus.schema.training_pair import TrainingPair, pair_digest
from mens_pipeline.language import CONSTRUCTS, analyze, structure_of
from mens_pipeline.language.ast import Module


class NoSeed(StrEnum):
    """Why a row is not evolved."""

    PROSE = "prose"
    """Or a lane of its own."""
    OTHER_TASK = "other_task"
    """Its category is no construct."""
    HOLDS_CODE = "holds_code"
    """Its request comes with code, which a rewriting would break."""
    REJECTED = "rejected"
    HELD_OUT = "held_out"
    """Its file judges the model."""
    REPEATED = "repeated"
    """The same pair came before."""


@dataclass
class Seeds:
    """The rows of a file, sorted by what they are good for.

    Nothing may be near to `heldout`; `dropped` counts why the others are not evolved; `examples` maps a construct to
    the shortest program of a seed that shows it.
    """

    pairs: list[TrainingPair] = field(default_factory=list)
    heldout: list[TrainingPair] = field(default_factory=list)
    dropped: Counter[NoSeed] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)


def digest_of_pair(pair: TrainingPair) -> str:
    """Compute the SHA-256 over request and answer, hexadecimal: what a row is called as a parent."""
    return pair_digest(pair.prompt, pair.response).hex()


def sort_seeds(pairs: Iterable[TrainingPair], policy: SplitPolicy, seed: int) -> Seeds:
    """Sort rows into seeds, held-out ones, and others; every row is in `pairs` or counted in `dropped`.

    The seed decides the order; the same rows in another order give the same.
    """
    seeds = Seeds()
    seen: set[str] = set()
    for pair in pairs:
        digest = digest_of_pair(pair)
        reason = NoSeed.REPEATED if digest in seen else _objection(pair, policy)
        seen.add(digest)
        if reason is NoSeed.HELD_OUT:
            seeds.heldout.append(pair)
        if reason is None:
            seeds.pairs.append(pair)
        else:
            seeds.dropped[reason] += 1
    seeds.pairs.sort(key=lambda pair: hashlib.sha256(f"{seed}:{digest_of_pair(pair)}".encode()).digest())
    for pair in sorted(seeds.pairs, key=lambda pair: (len(pair.response), pair.response)):
        seeds.examples.setdefault(pair.category, pair.response)
    return seeds


def _objection(pair: TrainingPair, policy: SplitPolicy) -> NoSeed | None:
    code = judged_code(pair)
    if code is None or pair.lane is not Lane.CODEGEN:
        return NoSeed.PROSE
    group = group_of(pair)
    if group is not None and is_held_out(group, policy):
        return NoSeed.HELD_OUT
    if pair.category not in CONSTRUCTS:
        return NoSeed.OTHER_TASK
    if "\n\n" in pair.prompt.strip():
        return NoSeed.HOLDS_CODE
    return None if analyze(*code).module is not None else NoSeed.REJECTED


_OVERLAPS: Final = {
    SplitReason.PROMPT: EvolutionDrop.HELDOUT_PROMPT,
    SplitReason.WORDS: EvolutionDrop.HELDOUT_WORDS,
    SplitReason.STRUCTURE: EvolutionDrop.HELDOUT_STRUCTURE,
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
