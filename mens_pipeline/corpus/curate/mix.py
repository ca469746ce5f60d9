"""Mix sources of pairs into one train set, in given shares."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from pathlib import Path, PurePosixPath
from random import Random
from typing import Annotated, Final

from pydantic import AfterValidator, Field, model_validator

from mens_pipeline.corpus.infill import ACCEPTED
from mens_pipeline.corpus.infill.rows import ROWS, InfillPolicy, InfillReport
from mens_pipeline.corpus.schema.account import Account, count_lost, counts_of
from mens_pipeline.corpus.schema.reasons import MixDrop, SkippedReason
from mens_pipeline.corpus.schema.records import Lane, TrainingPair
from mens_pipeline.errors import RefusedError
from mens_pipeline.storage.store import Details
from mens_pipeline.storage.validation import Strict
from mens_pipeline.storage.yaml_file import load_model

BESIDE: Final = ("heldout.jsonl", "families.jsonl", "aside.jsonl")
"""Files that `mens corpus mix` writes next to the train set; no source or train set may have these names."""


class RecordFormat(StrEnum):
    """Formats of other tools whose rows are converted to pairs."""

    TOOL_TRACE = "tool_trace"
    ASR_REFINE = "asr_refine"
    SPEECH_TO_CODE = "speech_to_code"
    WORKFLOW_TRACE = "workflow_trace"


def _below(path: str) -> str:
    pure = PurePosixPath(path)
    if "\0" in path or "\\" in path or pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise ValueError("expected a path below the data folder, with forward slashes and without `..`")
    return str(pure)


FilePath = Annotated[str, AfterValidator(_below)]
"""Path of a file of a mix; an untrusted mix can neither read nor write outside the data folder."""


class MixSource(Strict):
    """One file of rows."""

    path: FilePath = Field(min_length=1, description="JSON lines, relative to the data folder.")
    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False, description="Relative share; 0 leaves it out.")
    optional: bool = Field(default=False, description="Whether it may be missing or empty.")
    sample_rate: float = Field(default=1.0, gt=0, le=1, description="Share of its rows to use, drawn by the seed.")
    record_format: RecordFormat | None = Field(default=None, description="Format of its rows, if they are not pairs.")


class MixConfig(Strict):
    """The configuration of a mix."""

    sources: tuple[MixSource, ...] = Field(min_length=1, description="Sources, in report order.")
    output: FilePath = Field(
        default="train.jsonl", pattern=r"\.jsonl$", description="The train set, relative to the data folder."
    )
    include_lanes: tuple[Lane, ...] = Field(default=(), description="Lanes to train on; empty: only vox_codegen.")
    exclude_lanes: tuple[Lane, ...] = Field(default=(), description="Lanes to leave out, even if included.")
    max_repeats: float = Field(default=2.0, ge=1, le=100, description="Maximum number of uses of a row.")
    seed: int = Field(default=0, ge=0, description="Determines samples, repeats and order.")
    infill: InfillPolicy = Field(
        default=InfillPolicy(share=0), description="Rows that complete code at a cursor, cut from training rows."
    )

    @model_validator(mode="after")
    def _paths_differ(self) -> "MixConfig":
        paths = [*(source.path for source in self.sources), self.output, ROWS]
        twice = sorted({path for path in paths if paths.count(path) > 1 or PurePosixPath(path).name in BESIDE})
        if twice:
            raise ValueError(f"named more than once: {', '.join(twice)}")
        return self

    def with_infill_share(self, share: float | None) -> "MixConfig":
        """Return a copy with another share of infill rows; None keeps the current share."""
        if share is None:
            return self
        return self.model_copy(update={"infill": self.infill.model_copy(update={"share": share})})

    @property
    def lanes(self) -> frozenset[Lane]:
        """The lanes to train on."""
        return frozenset(self.include_lanes or (Lane.CODEGEN,)) - frozenset(self.exclude_lanes)


def load_mix_config(path: Path) -> MixConfig:
    """Read and check a mix; raise a `ConfigurationError` that lists all mistakes."""
    return load_model(path, MixConfig)


@dataclass
class SourceRows:
    """The rows of one source; if the file is missing, `pairs` and `sha256` are None.

    `unreadable`, `sensitive` and `forgotten` count dropped rows, and `moved` counts rows moved to the infill rows.
    """

    pairs: list[TrainingPair] | None
    unreadable: int = 0
    sensitive: int = 0
    forgotten: int = 0
    moved: int = 0
    sha256: str | None = None


class SourceReport(Strict):
    """Upstream's report of a source, with its shares and drops."""

    path: str
    weight: float
    optional: bool
    record_format: RecordFormat | None
    source_fingerprint: str | None
    input_lines: int
    distinct_lines: int
    dropped: dict[str, int]
    emitted_lines: int
    repeats: float
    requested_share: float
    share_of_output: float
    skipped_reason: SkippedReason | None

    @property
    def num_unaccounted(self) -> int:
        """Rows that were neither used nor dropped with a reason."""
        return count_lost(self.input_lines, self.distinct_lines, self.dropped)


class MixReport(Details):
    """Counts of a mix by source; its file and its manifest also hold paths and configuration."""

    sources: tuple[SourceReport, ...]
    total_emitted: int
    total_distinct: int
    infill: InfillReport | None = None

    @property
    def num_pairs(self) -> int:
        """Number of distinct pairs, without the infill rows cut from them."""
        return sum(source.distinct_lines for source in self.sources if source.path != ROWS)


@dataclass(kw_only=True)
class MixedSource(Account[MixDrop]):
    """One source in the mix.

    `distinct` holds the kept rows; `emitted` counts their uses in the train set; `requested_share` is its weight as a
    share of the weights of all sources with rows.
    """

    source: MixSource
    sha256: str | None = None
    distinct: list[TrainingPair] = field(default_factory=list)
    emitted: int = 0
    requested_share: float = 0.0
    skipped_reason: SkippedReason | None = None

    def report(self, total: int) -> SourceReport:
        """Return its report for a train set with `total` rows."""
        return SourceReport(
            path=self.source.path,
            weight=self.source.weight,
            optional=self.source.optional,
            record_format=self.source.record_format,
            source_fingerprint=self.sha256,
            input_lines=self.seen,
            distinct_lines=self.kept,
            dropped=counts_of(MixDrop, self.dropped),
            emitted_lines=self.emitted,
            repeats=self.emitted / len(self.distinct) if self.distinct else 0.0,
            requested_share=self.requested_share,
            share_of_output=self.emitted / total if total else 0.0,
            skipped_reason=self.skipped_reason,
        )


@dataclass
class Mix:
    """A train set, its rows in order, and its sources."""

    rows: list[TrainingPair]
    sources: list[MixedSource]

    def report(self) -> MixReport:
        """Return the counts by source."""
        return MixReport(
            sources=tuple(source.report(len(self.rows)) for source in self.sources),
            total_emitted=len(self.rows),
            total_distinct=sum(len(source.distinct) for source in self.sources),
        )


def mix_sources(config: MixConfig, rows: Mapping[str, SourceRows]) -> Mix:
    """Mix sources by their weights; `rows` maps the path of each source to its rows, and may include infill rows.

    The train set is the smallest that meets the shares and uses every pair at least once. A source that would have to
    use its rows more than `max_repeats` times falls short of its share, as the report shows.

    Raises `RefusedError` if a required source gives no row, or no row is left to train on.
    """
    seen: set[bytes] = set()
    mixed = [_select(source, rows[source.path], config, seen) for source in config.sources]
    infill = _select(MixSource(path=ROWS, optional=True), rows.get(ROWS, SourceRows(None)), config, seen)
    accepted = [row for row in infill.distinct if row.task_family == ACCEPTED]
    for source in mixed:
        is_spared = source.source.optional or rows[source.source.path].moved
        if source.skipped_reason not in {None, SkippedReason.WEIGHT_ZERO} and not is_spared:
            dropped = ", ".join(f"{count} {name}" for name, count in source.dropped.items() if count)
            used = f"none of its {source.seen} rows is used" + (f" ({dropped})" if dropped else "")
            what = "the file is missing" if source.sha256 is None else used
            advice = "Create it, or mark the source optional in the mix."
            raise RefusedError(f"{source.source.path}: {what}. {advice}")
    giving = [source for source in mixed if source.distinct]
    if not giving and not accepted:
        raise RefusedError("mix: no source contributes a row. Check the paths, the weights and include_lanes.")
    # Fractions, since floats overflow if weights differ enormously.
    weights = [Fraction(source.source.weight) for source in giving]
    wanted = (len(source.distinct) * sum(weights) / weight for source, weight in zip(giving, weights, strict=True))
    total = max(wanted, default=0)
    emitted: list[TrainingPair] = []
    for source, weight in zip(giving, weights, strict=True):
        share = weight / sum(weights)
        source.requested_share = float(share)
        # Repeat the source up to its share; the seed draws the pairs to use once more.
        most = math.floor(len(source.distinct) * config.max_repeats)
        whole, rest = divmod(min(round(total * share), most), len(source.distinct))
        extra = _random(config, f"repeat {source.source.path}").sample(source.distinct, rest)
        source.emitted = whole * len(source.distinct) + rest
        emitted += [*(source.distinct * whole), *extra]
    if ROWS in rows:
        # The sources determine the size of the train set, so there may be more holes than it needs. Pieces that users
        # accepted always stay.
        asked = round(len(emitted) * config.infill.share / (1 - config.infill.share))
        number = min(infill.kept, max(len(accepted), asked))
        cut = [row for row in infill.distinct if row.task_family != ACCEPTED]
        infill.distinct = [*accepted, *_random(config, ROWS).sample(cut, number - len(accepted))]
        infill.dropped[MixDrop.SAMPLED_OUT] += infill.kept - number
        infill.kept = infill.emitted = number
        infill.requested_share = max(config.infill.share, len(accepted) / max(1, len(emitted) + number))
        for other in giving:
            other.requested_share *= 1 - infill.requested_share
        emitted += infill.distinct
        mixed.append(infill)
    _random(config, "order").shuffle(emitted)
    return Mix(emitted, mixed)


def _select(source: MixSource, rows: SourceRows, config: MixConfig, seen: set[bytes]) -> MixedSource:
    mixed = MixedSource(source=source, sha256=rows.sha256)
    if rows.pairs is None or source.weight == 0:
        mixed.skipped_reason = SkippedReason.MISSING_FILE_OPTIONAL if rows.pairs is None else SkippedReason.WEIGHT_ZERO
        return mixed
    mixed.seen = len(rows.pairs) + rows.unreadable + rows.sensitive + rows.forgotten
    dropped = {MixDrop.UNREADABLE: rows.unreadable, MixDrop.SENSITIVE: rows.sensitive}
    mixed.dropped.update({**dropped, MixDrop.FORGOTTEN: rows.forgotten})
    random, lanes = _random(config, f"sample {source.path}"), config.lanes
    for pair in rows.pairs:
        key = pair.digest
        if pair.lane not in lanes:
            mixed.dropped[MixDrop.LANE] += 1
        elif pair.infill is not None and source.path != ROWS:
            # It stays in its source, since the share of infill rows is 0.
            mixed.dropped[MixDrop.SAMPLED_OUT] += 1
        elif source.sample_rate < 1 and random.random() >= source.sample_rate:
            mixed.dropped[MixDrop.SAMPLED_OUT] += 1
        elif key in seen:
            mixed.dropped[MixDrop.DUPLICATE] += 1
        else:
            seen.add(key)
            mixed.distinct.append(pair)
            mixed.kept += 1
    if not mixed.distinct:
        mixed.skipped_reason = SkippedReason.NO_LINES_PASSED_FILTERS if mixed.seen else SkippedReason.EMPTY_FILE
    mixed.check()
    return mixed


def _random(config: MixConfig, purpose: str) -> Random:
    return Random(f"{config.seed}:{purpose}")  # noqa: S311 - a reproducible draw, no secret
