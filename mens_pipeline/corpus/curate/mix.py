"""Sources of pairs to one train set, in the shares that were asked for."""

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from random import Random
from typing import Any

from mens_pipeline.corpus.curate.mix_config import MixConfig, MixSource
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.errors import RefusedError


class MixDrop(StrEnum):
    """Why a row of a source is not mixed."""

    UNREADABLE = "unreadable"
    """No row of the source's format."""
    LANE = "lane"
    """Its lane does not train."""
    SAMPLED_OUT = "sampled_out"
    DUPLICATE = "duplicate"
    """The same pair came before, perhaps from another source."""


class SkippedReason(StrEnum):
    """Why a source gives nothing; upstream's words."""

    MISSING_FILE_OPTIONAL = "missing_file_optional"
    WEIGHT_ZERO = "weight_zero"
    EMPTY_FILE = "empty_file"
    NO_LINES_PASSED_FILTERS = "no_lines_passed_filters"


@dataclass
class SourceRows:
    """The rows of one source.

    Without the file, `pairs` and its `sha256` are None; `unreadable` rows are no pairs.
    """

    pairs: list[TrainingPair] | None
    unreadable: int = 0
    sha256: str | None = None


@dataclass
class MixedSource:
    """Counts of one source of the mix.

    `distinct` are the pairs that are used, `emitted` counts the rows of the train set that come of them;
    `requested_share` is by its weight, among the sources that give anything.
    """

    source: MixSource
    sha256: str | None = None
    num_rows: int = 0
    distinct: list[TrainingPair] = field(default_factory=list)
    dropped: Counter[MixDrop] = field(default_factory=Counter)
    emitted: int = 0
    requested_share: float = 0.0
    skipped_reason: SkippedReason | None = None

    def adds_up(self) -> bool:
        """Return whether nothing disappeared."""
        return self.num_rows == len(self.distinct) + self.dropped.total()

    def as_json(self, total: int) -> dict[str, Any]:
        """Return upstream's report of a source, with its shares and drops."""
        return {
            "path": self.source.path,
            "weight": self.source.weight,
            "optional": self.source.optional,
            "record_format": self.source.record_format,
            "source_fingerprint": self.sha256,
            "input_lines": self.num_rows,
            "distinct_lines": len(self.distinct),
            "dropped": {str(reason): self.dropped[reason] for reason in MixDrop},
            "emitted_lines": self.emitted,
            "repeats": self.emitted / len(self.distinct) if self.distinct else 0.0,
            "requested_share": self.requested_share,
            "share_of_output": self.emitted / total if total else 0.0,
            "skipped_reason": self.skipped_reason,
        }


@dataclass
class Mix:
    """A train set and how it came about.

    `rows` is the train set in order.
    """

    rows: list[TrainingPair]
    sources: list[MixedSource]

    def as_json(self) -> dict[str, Any]:
        """Return the report in JSON types, without paths and configuration."""
        return {
            "sources": [source.as_json(len(self.rows)) for source in self.sources],
            "total_emitted": len(self.rows),
            "total_distinct": sum(len(source.distinct) for source in self.sources),
        }


def mix_sources(config: MixConfig, rows: Mapping[str, SourceRows]) -> Mix:
    """Mix sources by their weights.

    The train set is as small as it can be while every pair is used at least once and the shares are met; a source that
    would have to be repeated more than `max_repeats` times falls short of its share, which the report shows.

    `rows` has the path of each source.

    Raises:
        RefusedError: A source that is not optional gives nothing, or nothing is left to train on.
    """
    seen: set[bytes] = set()
    mixed = [_selected(source, rows[source.path], config, seen) for source in config.sources]
    for source in mixed:
        _refuse_if_needed(source)
    giving = [source for source in mixed if source.distinct]
    if not giving:
        raise RefusedError("mix: no source gives any row. Check the paths, the weights and include_lanes.")
    # Fractions, since floats overflow where weights are worlds apart.
    weights = [Fraction(source.source.weight) for source in giving]
    total = max(len(source.distinct) * sum(weights) / weight for source, weight in zip(giving, weights, strict=True))
    emitted: list[TrainingPair] = []
    for source, weight in zip(giving, weights, strict=True):
        share = weight / sum(weights)
        source.requested_share = float(share)
        repeated = _repeated(source, round(total * share), config)
        source.emitted = len(repeated)
        emitted += repeated
    _random(config, "order").shuffle(emitted)
    return Mix(emitted, mixed)


def _selected(source: MixSource, rows: SourceRows, config: MixConfig, seen: set[bytes]) -> MixedSource:
    """Select the pairs of a source that are used, each once, and count the others by reason."""
    mixed = MixedSource(source, rows.sha256)
    if rows.pairs is None or source.weight == 0:
        mixed.skipped_reason = SkippedReason.MISSING_FILE_OPTIONAL if rows.pairs is None else SkippedReason.WEIGHT_ZERO
        return mixed
    mixed.num_rows = len(rows.pairs) + rows.unreadable
    mixed.dropped[MixDrop.UNREADABLE] = rows.unreadable
    random = _random(config, f"sample {source.path}")
    for pair in rows.pairs:
        reason = _objection(pair, source, config, random, seen)
        if reason is None:
            mixed.distinct.append(pair)
        else:
            mixed.dropped[reason] += 1
    if not mixed.distinct:
        is_empty = mixed.num_rows == 0
        mixed.skipped_reason = SkippedReason.EMPTY_FILE if is_empty else SkippedReason.NO_LINES_PASSED_FILTERS
    assert mixed.adds_up(), "a row was neither used nor dropped"  # noqa: S101 - our own impossibility
    return mixed


def _objection(
    pair: TrainingPair, source: MixSource, config: MixConfig, random: Random, seen: set[bytes]
) -> MixDrop | None:
    if pair.lane not in config.lanes:
        return MixDrop.LANE
    if source.sample_rate < 1 and random.random() >= source.sample_rate:
        return MixDrop.SAMPLED_OUT
    key = hashlib.sha256(f"{pair.prompt}\0{pair.response}".encode()).digest()
    if key in seen:
        return MixDrop.DUPLICATE
    seen.add(key)
    return None


def _refuse_if_needed(source: MixedSource) -> None:
    reason = source.skipped_reason
    if reason is None or source.source.optional or reason is SkippedReason.WEIGHT_ZERO:
        return
    dropped = ", ".join(f"{count} {name}" for name, count in source.dropped.items() if count)
    used = f"no row of {source.num_rows} is used" + (f" ({dropped})" if dropped else "")
    what = "the file is missing" if source.sha256 is None else used
    advice = "Make it, or mark the source optional in the mix."
    raise RefusedError(f"{source.source.path}: {what}. {advice}")


def _repeated(source: MixedSource, wanted: int, config: MixConfig) -> list[TrainingPair]:
    """Repeat the pairs of a source as often as its share asks for; the seed draws which ones come once more."""
    pairs: Sequence[TrainingPair] = source.distinct
    most = math.floor(len(pairs) * config.max_repeats)
    whole, rest = divmod(min(wanted, most), len(pairs))
    extra = _random(config, f"repeat {source.source.path}").sample(pairs, rest)
    return [*(pair for _ in range(whole) for pair in pairs), *extra]


def _random(config: MixConfig, purpose: str) -> Random:
    return Random(f"{config.seed}:{purpose}")  # noqa: S311 - a reproducible draw, no secret
