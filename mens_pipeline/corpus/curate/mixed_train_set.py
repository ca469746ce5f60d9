"""The train set as an artifact: read sources in their formats, mix them, and write rows and a report."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import from_json

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.mix import Mix, MixConfig, MixReport, MixSource, RecordFormat, SourceRows, mix_sources
from mens_pipeline.corpus.extract.forgotten import SourcePolicy
from mens_pipeline.corpus.infill.rows import ROWS, cut_rows
from mens_pipeline.corpus.schema.records import InfillContext, Lane, Lineage, TrainingPair, read_pairs
from mens_pipeline.corpus.schema.upstream_rows import without_nulls
from mens_pipeline.corpus.telemetry.redaction import RedactionPolicy, redact_row
from mens_pipeline.storage.jsonl import open_rows, replacing, write_jsonl, write_text
from mens_pipeline.storage.kinds import Kind, TrainSetFile
from mens_pipeline.storage.stage import Params, Parent, Stage
from mens_pipeline.storage.store import digest_of

_Text = Annotated[str, Field(min_length=1)]


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    rating: int = Field(default=3, ge=1, le=5, strict=True)

    _without_nulls = model_validator(mode="before")(without_nulls)


class _ToolTrace(_Row):
    task_prompt: _Text
    tool_name: _Text
    arguments_json: str
    result_json: str
    success: bool
    followup_text: str | None = None

    def texts(self) -> tuple[str, str]:
        call = json.dumps({"tool": self.tool_name, "arguments": _parse_json(self.arguments_json)})
        result = json.dumps({"success": self.success, "result": _parse_json(self.result_json)})
        if not self.followup_text:
            return self.task_prompt, call
        return f"{self.task_prompt}\n\nTool call: {call}\nTool result: {result}", self.followup_text


class _AsrRefine(_Row):
    noisy_text: _Text
    corrected_text: _Text

    def texts(self) -> tuple[str, str]:
        return f"Correct this transcript of speech:\n\n{self.noisy_text}", self.corrected_text


class _SpeechToCode(_Row):
    transcript: _Text = Field(validation_alias=AliasChoices("refined_transcript", "transcript"))
    code: _Text = Field(validation_alias=AliasChoices("vox_code", "code"))
    transcript_alternatives: tuple[str, ...] = ()
    diagnostics_snapshot: str | None = None

    def texts(self) -> tuple[str, str]:
        parts = [self.transcript]
        if self.transcript_alternatives:
            parts.append("It may also have been: " + "; ".join(self.transcript_alternatives))
        if self.diagnostics_snapshot:
            parts.append(f"Diagnostics:\n{self.diagnostics_snapshot}")
        return "\n\n".join(parts), self.code


class _WorkflowTrace(_Row):
    intent: _Text
    execution_log_excerpt: _Text
    routing_efficiency: float | None = None

    def texts(self) -> tuple[str, str]:
        return f"What does a workflow for this intent do, step by step? {self.intent}", self.execution_log_excerpt


_FORMATS: Final[Mapping[RecordFormat, tuple[type[_ToolTrace | _AsrRefine | _SpeechToCode | _WorkflowTrace], Lane]]] = {
    RecordFormat.TOOL_TRACE: (_ToolTrace, Lane.TOOLING),
    RecordFormat.ASR_REFINE: (_AsrRefine, Lane.SPEECH),
    RecordFormat.SPEECH_TO_CODE: (_SpeechToCode, Lane.SPEECH),
    RecordFormat.WORKFLOW_TRACE: (_WorkflowTrace, Lane.TOOLING),
}


def pair_reader(record_format: RecordFormat | None) -> Callable[[dict[str, Any]], TrainingPair]:
    """Return a function that converts a row of a format (None: pairs) to a pair, or raises `ValidationError`."""
    if record_format is None:
        return TrainingPair.model_validate
    model, lane = _FORMATS[record_format]

    def read(row: dict[str, Any]) -> TrainingPair:
        fitting = model.model_validate(row)
        prompt, response = fitting.texts()
        return TrainingPair(
            prompt=prompt,
            response=response,
            category=record_format,
            rating=fitting.rating,
            lane=lane,
            response_mode="code_only" if record_format is RecordFormat.SPEECH_TO_CODE else "prose_only",
            task_family=record_format,
        )

    return read


def _parse_json(text: str) -> object:
    try:
        return from_json(text)
    except ValueError:
        return text


REPORT_SUFFIX: Final = ".mix_report.json"


def read_sources(
    config: MixConfig,
    folder: Path,
    redaction: RedactionPolicy = RedactionPolicy.MASK,
    policy: SourcePolicy | None = None,
) -> dict[str, SourceRows]:
    """Read the rows of all sources of a mix, by path.

    `redaction` decides whether rows with secrets are masked or dropped. Rows of files that `policy` forgets are
    dropped, since files of pairs may be older than the policy.
    """
    return {source.path: _read(source, folder, redaction, policy or SourcePolicy()) for source in config.sources}


def _read(source: MixSource, folder: Path, redaction: RedactionPolicy, policy: SourcePolicy) -> SourceRows:
    path = folder / source.path
    if not path.exists():
        return SourceRows(None)
    read = pair_reader(source.record_format)
    pairs: list[TrainingPair] = []
    unreadable = sensitive = forgotten = 0
    with open_rows(path) as lines:
        for line in lines:
            if not line.strip():
                continue
            try:
                pair = redact_row(read(from_json(line)), redaction).row
            except ValueError:  # pydantic's ValidationError is a ValueError
                unreadable += 1
                continue
            sensitive += pair is None
            if pair is None:
                continue
            is_kept = pair.source is None or not policy.forgets(pair.source.path, pair.source.blob)
            forgotten += not is_kept
            pairs += [pair] if is_kept else []
    return SourceRows(pairs, unreadable, sensitive, forgotten, sha256=digest_of(path))


def add_infill_rows(
    sources: dict[str, SourceRows], heldout: Iterable[TrainingPair], config: MixConfig
) -> dict[str, Any] | None:
    """Cut infill rows from the training pairs and add them as a source; return their counts, None if the share is 0.

    Infill pairs in the sources, such as pieces accepted at a cursor, are moved there.
    """
    if not config.infill.share:
        return None
    trains = [pair for rows in sources.values() for pair in rows.pairs or () if pair.lane in config.lanes]
    for path, rows in sources.items():
        if rows.pairs is not None:
            stay = [pair for pair in rows.pairs if pair.infill is None or pair.lane not in config.lanes]
            sources[path] = replace(rows, pairs=stay, moved=len(rows.pairs) - len(stay))
    accepted = [pair for pair in trains if pair.infill is not None]
    cut = cut_rows(trains, heldout, config.infill, accepted)
    sources[ROWS] = SourceRows(cut.rows)
    return cut.report().model_dump(mode="json")


def write_mix(mix: Mix, output: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    """Write a train set as JSON lines, with a Parquet copy and a report that includes `about`; return the report."""
    write_jsonl(output, mix.rows)
    write_parquet(mix.rows, output.with_suffix(".parquet"))
    report = {**mix.report().model_dump(mode="json"), **about}
    write_text(output.with_suffix(REPORT_SUFFIX), json.dumps(report, indent=2) + "\n")
    return report


def write_parquet(rows: Iterable[TrainingPair], path: Path) -> None:
    """Write a train set as Parquet; the same rows give the same bytes."""
    import pyarrow as pa  # noqa: PLC0415 - only this needs it, and the code location loads without
    import pyarrow.parquet as pq  # noqa: PLC0415 - likewise

    source = pa.struct(
        [
            *((name, pa.string()) for name in ("path", "blob")),
            *((name, pa.list_(pa.int64())) for name in ("span", "lines")),
            *((name, pa.string()) for name in ("commit", "kind")),
        ]
    )
    counted = {"generation", "seed"}
    lineage = pa.struct((name, pa.int64() if name in counted else pa.string()) for name in Lineage.model_fields)
    infill = pa.struct((name, pa.string()) for name in InfillContext.model_fields)
    types = {"infill": infill, "rating": pa.int64(), "difficulty": pa.int64(), "source": source, "lineage": lineage}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in TrainingPair.model_fields])
    table = pa.Table.from_pylist([row.model_dump(mode="json") for row in rows], schema=schema)
    with replacing(path) as target:
        pq.write_table(table, target, compression="zstd")


def report_beside(train_file: Path) -> MixReport | None:
    """Read the report next to a train set; return None without a report."""
    path = train_file.with_suffix(REPORT_SUFFIX)
    return MixReport.model_validate_json(path.read_bytes()) if path.is_file() else None


TRAIN: Final = TrainSetFile.TRAIN


class MixParams(Params):
    """A split, and how to mix its training pairs.

    The paths of the mix are relative to the folder of the split; its `output` is ignored.
    """

    split: Parent
    config: MixConfig
    redaction: RedactionPolicy = RedactionPolicy.MASK


def write_mixed_train_set(folder: Path, params: MixParams) -> dict[str, Any]:
    """Mix the training pairs of a split; raise `RefusedError` if a required source gives no row.

    Writes `train.jsonl`, `train.parquet` and `train.mix_report.json`; returns the report for the manifest.
    """
    sources = read_sources(params.config, params.split.path, params.redaction)
    infill = add_infill_rows(sources, read_pairs(params.split.file(HELDOUT)), params.config)
    mix = mix_sources(params.config, sources)
    about = {"config": params.config.model_dump(mode="json"), "infill": infill}
    return write_mix(mix, folder / TRAIN, about)


STAGE: Final = Stage(Kind.MIXED_TRAIN_SET, (__name__,), write_mixed_train_set)
