"""Which pairs train and which judge: whole source files are held out, and nothing near to them trains."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from mens_pipeline.corpus.overlap import HeldoutTasks, structures_in
from mens_pipeline.corpus.pipeline_config import SplitPolicy
from mens_pipeline.corpus.records import Lane, SourceKind
from mens_pipeline.corpus.repetition import Repetition
from mens_pipeline.corpus.training_pair import TrainingPair


class SplitReason(StrEnum):
    """Why a pair neither trains nor judges."""

    DUPLICATE = "duplicate"
    """The same pair came before, perhaps from another source."""
    NEAR_DUPLICATE = "near_duplicate"
    SOURCE_CAP = "source_cap"
    TEMPLATE_CAP = "template_cap"
    DERIVED = "derived_from_heldout"
    """Synthetic or evolved, from a held-out file."""
    TOO_SMALL = "too_small"
    """Of a held-out file, and so small that others are like it by chance."""
    PROMPT = "same_prompt"
    WORDS = "shared_ngrams"
    STRUCTURE = "same_structure"


_NEVER_JUDGE: Final = frozenset((SourceKind.DERIVED, SourceKind.EVOLVED))
"""Rows that nobody wrote by hand, although a file stands behind them."""


class SetAside(BaseModel):
    """A pair that neither trains nor judges."""

    model_config = ConfigDict(frozen=True)

    reason: SplitReason
    detail: str
    pair: TrainingPair


@dataclass
class Split:
    """The outcome of a split.

    Attributes:
        train: Label of the source -> pairs that train, in order.
        heldout: Pairs that judge, in order; each prompt once.
        aside: Pairs that do neither.
        num_groups: Source files that had a say.
        num_heldout_groups: Those held out.
    """

    train: dict[str, list[TrainingPair]] = field(default_factory=dict)
    heldout: list[TrainingPair] = field(default_factory=list)
    aside: list[SetAside] = field(default_factory=list)
    num_groups: int = 0
    num_heldout_groups: int = 0

    def account(self) -> dict[str, Any]:
        """The counts in JSON types."""
        reasons = Counter(str(row.reason) for row in self.aside)
        return {
            "train": {label: len(pairs) for label, pairs in self.train.items()},
            "heldout": len(self.heldout),
            "aside": {str(reason): reasons[reason] for reason in SplitReason},
            "num_groups": self.num_groups,
            "num_heldout_groups": self.num_heldout_groups,
        }


def split_pairs(
    sources: Mapping[str, Iterable[TrainingPair]],
    repetition: Repetition,
    policy: SplitPolicy,
    protected: Sequence[TrainingPair] = (),
) -> Split:
    """Split pairs, without those that repeat earlier ones of any source.

    Which file is held out depends on its path and the seed alone.

    Args:
        sources: Label -> pairs.
        repetition: Takes up the pairs that repeat none.
        policy: What is held out, and what is too near to it.
        protected: Tasks of a benchmark; nothing near to them trains.

    Returns:
        Every pair once: in `train`, in `heldout` or in `aside`. Synthetic pairs never judge.
    """
    split = Split()
    rows = {label: list(_distinct(label, pairs, repetition, split)) for label, pairs in sources.items()}
    groups = {group for pairs in rows.values() for pair in pairs if (group := group_of(pair)) is not None}
    heldout_groups = {group for group in groups if is_held_out(group, policy)}
    split.num_groups, split.num_heldout_groups = len(groups), len(heldout_groups)
    candidates: dict[str, list[TrainingPair]] = {}
    for label, pairs in rows.items():
        candidates[label] = [pair for pair in pairs if group_of(pair) not in heldout_groups]
        _hold_out((pair for pair in pairs if group_of(pair) in heldout_groups), split, policy)
    tasks = HeldoutTasks([*split.heldout, *protected], policy.max_overlap, policy.min_nodes)
    for label, pairs in candidates.items():
        split.train[label] = []
        for pair in pairs:
            overlap = tasks.overlap(pair)
            if overlap is None:
                split.train[label].append(pair)
            else:
                split.aside.append(SetAside(reason=SplitReason(overlap[0]), detail=overlap[1], pair=pair))
    return split


def group_of(pair: TrainingPair) -> str | None:
    """The source file of a pair; None when it has none, or when no file stands behind it.

    Args:
        pair: Any pair.
    """
    if pair.source is None:
        return None
    origin = pair.lineage.root_kind if pair.lineage is not None else pair.source.kind
    return None if origin is None or origin is SourceKind.SYNTHETIC else pair.source.path


def is_held_out(group: str, policy: SplitPolicy) -> bool:
    """Whether a source file is held out.

    Args:
        group: Its path, relative to the workspace.
        policy: The share and the seed.
    """
    digest = hashlib.sha256(f"{policy.seed}:{group}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < policy.heldout_share * 2**64


def _distinct(
    label: str, pairs: Iterable[TrainingPair], repetition: Repetition, split: Split
) -> Iterator[TrainingPair]:
    for number, pair in enumerate(pairs, start=1):
        objection = repetition.objection(pair, f"row {number} of {label}")
        if objection is None:
            yield pair
        else:
            split.aside.append(SetAside(reason=SplitReason(objection[0]), detail=objection[1], pair=pair))


def _hold_out(pairs: Iterable[TrainingPair], split: Split, policy: SplitPolicy) -> None:
    prompts = {pair.prompt for pair in split.heldout}
    for pair in pairs:
        reason = _objection(pair, policy)
        if pair.prompt in prompts:
            reason = SplitReason.PROMPT
        if reason is None:
            prompts.add(pair.prompt)
            split.heldout.append(pair)
        else:
            path = pair.source.path if pair.source is not None else ""
            split.aside.append(SetAside(reason=reason, detail=path, pair=pair))


def _objection(pair: TrainingPair, policy: SplitPolicy) -> SplitReason | None:
    if pair.source is not None and pair.source.kind in _NEVER_JUDGE:
        return SplitReason.DERIVED
    if pair.lane is Lane.CODEGEN and not structures_in(pair, policy.min_nodes):
        return SplitReason.TOO_SMALL
    return None
