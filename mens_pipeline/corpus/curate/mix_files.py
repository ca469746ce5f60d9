"""The files of a mix: sources read, train set and report written."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json

from mens_pipeline.corpus.curate.mix import Mix, SourceRows
from mens_pipeline.corpus.curate.mix_config import MixConfig, MixSource
from mens_pipeline.corpus.curate.record_formats import pair_reader
from mens_pipeline.corpus.schema.training_pair import Lineage, TrainingPair
from mens_pipeline.storage.jsonl import open_rows, replacing, write_jsonl, write_text
from mens_pipeline.storage.store import digest_of

REPORT_SUFFIX: Final = ".mix_report.json"


def read_sources(config: MixConfig, folder: Path) -> dict[str, SourceRows]:
    """Read the rows of all sources of a mix, by their paths as the mix writes them.

    Raises:
        SourceNotFoundError: A file is there and cannot be read.
    """
    return {source.path: _read(source, folder) for source in config.sources}


def _read(source: MixSource, folder: Path) -> SourceRows:
    path = folder / source.path
    if not path.exists():
        return SourceRows(None)
    read = pair_reader(source.record_format)
    pairs: list[TrainingPair] = []
    unreadable = 0
    with open_rows(path) as lines:
        for line in lines:
            if not line.strip():
                continue
            try:
                pairs.append(read(from_json(line)))
            except ValueError:  # pydantic's ValidationError is a ValueError
                unreadable += 1
    return SourceRows(pairs, unreadable, digest_of(path))


def write_mix(mix: Mix, output: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    """Write a train set as JSON lines and as Parquet, and the report beside them, which is returned.

    `output` is the JSON lines, `train.jsonl`; `train.parquet` and `train.mix_report.json` stand beside it. `about` is
    what else the report says.

    Raises:
        ConfigurationError: The folder cannot be written, or is full.
    """
    write_jsonl(output, mix.rows)
    write_parquet(mix.rows, output.with_suffix(".parquet"))
    report = {**about, **mix.as_json()}
    write_text(output.with_suffix(REPORT_SUFFIX), json.dumps(report, indent=2) + "\n")
    return report


def write_parquet(rows: Iterable[TrainingPair], path: Path) -> None:
    """Write a train set as Parquet, the same bytes for the same rows.

    Raises:
        ConfigurationError: The folder cannot be written, or is full.
    """
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
    types = {"rating": pa.int64(), "difficulty": pa.int64(), "source": source, "lineage": lineage}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in TrainingPair.model_fields])
    table = pa.Table.from_pylist([row.model_dump(mode="json") for row in rows], schema=schema)
    with replacing(path) as target:
        pq.write_table(table, target, compression="zstd")
