"""Retention of artifacts in the store: a pure plan, with a reason for each artifact."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from mens_pipeline.delivery.serving_handoff import KIND as HANDOFF
from mens_pipeline.evaluation.eval_results import KIND as EVALUATION
from mens_pipeline.promotion.benchmark_gate import KIND as GATE
from mens_pipeline.promotion.history import KIND as PROMOTED
from mens_pipeline.storage.validation import Strict
from mens_pipeline.storage.yaml_file import load_model
from mens_pipeline.training.qlora_adapter import KIND as ADAPTER

_DAY: Final = 86_400
_KEEPS_PARENTS: Final = frozenset((PROMOTED, GATE, EVALUATION, HANDOFF, ADAPTER))
"""Kinds whose artifacts keep what they were made from: the answers of a base, or a train set, serve for many nights, so
their own age says little."""


class Days(Strict):
    """Kinds that are kept by age, in days."""

    qlora_adapter: int = Field(ge=1, description="lora-adapter-<commit>.")
    eval_results: int = Field(ge=1, description="eval-gate-<commit>: the figures.")
    benchmark_gate: int = Field(ge=1, description="eval-gate-<commit>: the verdict.")
    generations: int = Field(ge=1, description="What models answered.")
    merged_model: int = Field(ge=1, description="As large as its base, and made again from the adapter at any time.")
    gguf_model: int = Field(ge=1, description="Likewise.")
    serving_handoff: int = Field(ge=1, description="Of no use without the model that it names.")


class RetentionPolicy(Strict):
    """Retention times of artifacts, and of the runs of Dagster."""

    days: Days
    runs: int = Field(ge=1, description="Days that the Dagster instance keeps finished runs.")
    newest: int = Field(ge=1, description="Artifacts of every other kind that are kept.")
    abandoned_days: int = Field(ge=1, description="Age of a work folder that nobody comes back to.")


@dataclass(frozen=True, slots=True)
class Item:
    """A folder of the store.

    Attributes:
        key: Its key; of a folder that is no artifact, its name.
        name: What people call it; empty when it has no name.
        made: When it was complete, or last written to, in seconds since 1970.
        is_artifact: Whether it is complete; else it is a work folder, a draft, or what is left of an artifact.
        parents: Kind and key of what it was made from.
        is_shared: Whether the object storage has it.
    """

    kind: str
    key: str
    name: str
    path: Path
    num_bytes: int
    made: float
    is_artifact: bool
    parents: frozenset[tuple[str, str]]
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class Stored:
    """All that a plan is made of.

    Attributes:
        pointers: Kind and name of a pointer -> the key that it names.
        history: Every promoted adapter that the history of champions names.
    """

    items: tuple[Item, ...]
    pointers: Mapping[tuple[str, str], str]
    history: frozenset[str]


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision on one folder."""

    item: Item
    action: Literal["keep", "remove"]
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions on all folders, by kind, the newest of each first."""

    decisions: tuple[Decision, ...]

    @property
    def removed(self) -> tuple[Decision, ...]:
        """Folders to delete."""
        return tuple(decision for decision in self.decisions if decision.action == "remove")

    @property
    def num_bytes(self) -> int:
        """The size of all folders."""
        return sum(decision.item.num_bytes for decision in self.decisions)

    @property
    def num_removed_bytes(self) -> int:
        """The size of what goes."""
        return sum(decision.item.num_bytes for decision in self.removed)


def load_retention(path: Path) -> RetentionPolicy:
    """Read and check `config/retention.yaml`.

    Raises:
        ConfigurationError: It is missing, is no YAML, or holds mistakes; the message names all of them.
    """
    return load_model(path, RetentionPolicy)


def plan_retention(stored: Stored, policy: RetentionPolicy, now: float) -> Plan:
    """Decide about every folder."""
    items = sorted(stored.items, key=lambda item: (item.kind, -item.made, item.key))
    kept = {item.path: reason for item, reason in _kept_for_themselves(items, stored, policy, now)}
    _keep_parents(items, kept)
    return Plan(tuple(_decision(item, kept, policy, now) for item in items))


def _kept_for_themselves(
    items: Sequence[Item], stored: Stored, policy: RetentionPolicy, now: float
) -> Iterator[tuple[Item, str]]:
    """Yield what is kept regardless of other items, with the reason; items come by kind, the newest first."""
    names = {(kind, key): name for (kind, name), key in stored.pointers.items()}
    days = policy.days.model_dump()
    for kind, group in groupby(items, key=lambda item: item.kind):
        for number, item in enumerate(item for item in group if item.is_artifact):
            if (kind, item.key) in names:
                yield item, f"named by {names[kind, item.key]}"
            elif kind == PROMOTED and item.key in stored.history:
                yield item, "in the history of champions"
            elif kind in days and _age(item, now) < days[kind]:
                yield item, f"younger than {days[kind]} days"
            elif kind not in days and number < policy.newest:
                yield item, f"among the newest {policy.newest}"


def _keep_parents(items: Sequence[Item], kept: dict[Path, str]) -> None:
    """Keep what promoted adapters, verdicts, figures and adapters that are kept rest on, and what that rests on."""
    by_key = {(item.kind, item.key): item for item in items}
    waiting = [item for item in items if item.path in kept]
    while waiting:
        child = waiting.pop()
        for ref in sorted(child.parents if child.kind in _KEEPS_PARENTS else ()):
            parent = by_key.get(ref)
            if parent is not None and parent.path not in kept:
                kept[parent.path] = f"{child.kind} {child.key[:12]} rests on it"
                waiting.append(parent)


def _decision(item: Item, kept: Mapping[Path, str], policy: RetentionPolicy, now: float) -> Decision:
    if item.path in kept:
        return Decision(item, "keep", kept[item.path])
    if not item.is_artifact:
        if _age(item, now) < policy.abandoned_days:
            return Decision(item, "keep", "perhaps still at work")
        return Decision(item, "remove", f"no run has written to it for {policy.abandoned_days} days")
    days = policy.days.model_dump()
    reason = f"older than {days[item.kind]} days" if item.kind in days else f"not among the newest {policy.newest}"
    return Decision(item, "remove", reason)


def _age(item: Item, now: float) -> float:
    return (now - item.made) / _DAY
