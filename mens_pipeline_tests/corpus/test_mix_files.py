"""The files of a mix."""

import json
import os
from pathlib import Path

import pytest
from pyarrow import parquet

from mens_pipeline.corpus.curate.mix import Mix, SourceRows, mix_sources
from mens_pipeline.corpus.curate.mix_config import MixConfig, MixSource, RecordFormat
from mens_pipeline.corpus.curate.mix_files import read_sources, write_mix, write_parquet
from mens_pipeline.corpus.schema.reading import read_pairs
from mens_pipeline.corpus.schema.training_pair import Lineage, TrainingPair
from mens_pipeline.errors import ConfigurationError, SourceNotFoundError
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import digest_of
from mens_pipeline_tests.corpus.full_disk import full_after
from mens_pipeline_tests.corpus.rows import pair_at

_LINEAGE = Lineage(
    parent="0", operator="deepen", generation=2, generator="m", generator_digest="1", seed=3, root_kind=None
)
_PAIRS = [
    pair_at("a.vox", "p\n", "fn ä() { }"),
    pair_at(None, "q", "fn g() { }", template="t"),
    pair_at("b.vox", "r", "fn h() { }").model_copy(update={"rating": 1, "difficulty": 9}),
    pair_at("c.vox", "s", "fn i() { }").model_copy(update={"lineage": _LINEAGE}),
    pair_at("d.vox", "t", "fn j(n: int) to int { return n }").model_copy(update={"tests": "@test fn t() { }\n"}),
]
_FILES = ("train.jsonl", "train.parquet", "train.mix_report.json")


def _mixed() -> Mix:
    source = MixSource(path="a.jsonl")
    return mix_sources(MixConfig(sources=(source,), max_repeats=3), {"a.jsonl": SourceRows(_PAIRS, sha256="00")})


def test_sources_are_read_with_their_digests(tmp_path: Path) -> None:
    """Good rows in order, bad ones counted, blank ones passed over; a missing file is none."""
    write_jsonl(tmp_path / "deep" / "a.jsonl", _PAIRS)
    bad = [b"", b"nope", b"[1]", b'{"prompt": "p"}', b"[" * 5000, b'{"prompt": "\\ud800", "response": "r"}', b"\xff"]
    with (tmp_path / "deep" / "a.jsonl").open("ab") as file:
        file.write(b"\n".join(bad) + b"\n")
    config = MixConfig(sources=(MixSource(path="deep/a.jsonl"), MixSource(path="missing.jsonl")))
    sources = read_sources(config, tmp_path)

    assert sources == {
        "deep/a.jsonl": SourceRows(_PAIRS, unreadable=6, sha256=digest_of(tmp_path / "deep" / "a.jsonl")),
        "missing.jsonl": SourceRows(None),
    }


def test_rows_of_another_format_are_turned_into_pairs(tmp_path: Path) -> None:
    """Those that do not fit are counted."""
    (tmp_path / "asr.jsonl").write_text(
        '{"noisy_text": "a", "corrected_text": "b"}\n{"prompt": "p", "response": "r"}\n'
    )
    config = MixConfig(sources=(MixSource(path="asr.jsonl", record_format=RecordFormat.ASR_REFINE),))
    rows = read_sources(config, tmp_path)["asr.jsonl"]

    assert [pair.response for pair in rows.pairs or []] == ["b"]
    assert rows.unreadable == 1


def test_a_folder_in_the_place_of_a_source_is_an_error(tmp_path: Path) -> None:
    """It is there and cannot be read."""
    (tmp_path / "a.jsonl").mkdir()

    with pytest.raises(SourceNotFoundError, match="Name a readable file of JSON lines"):
        read_sources(MixConfig(sources=(MixSource(path="a.jsonl"),)), tmp_path)


@pytest.mark.seed_row(37)
def test_the_train_set_is_written_twice_and_reported(tmp_path: Path) -> None:
    """The same rows as JSON lines and as Parquet, in the same order, and the report beside them."""
    mix = _mixed()
    report = write_mix(mix, tmp_path / "out" / "train.jsonl", {"output_path": "x"})
    table = parquet.read_table(tmp_path / "out" / "train.parquet")

    assert list(read_pairs(tmp_path / "out" / "train.jsonl")) == mix.rows
    assert [TrainingPair.model_validate(row) for row in table.to_pylist()] == mix.rows
    assert table.column_names == list(TrainingPair.model_fields)
    assert json.loads((tmp_path / "out" / "train.mix_report.json").read_text()) == report
    assert report["output_path"] == "x"
    assert set(report["sources"][0]) >= {
        *("path", "weight", "optional", "record_format", "source_fingerprint", "input_lines", "emitted_lines"),
        *("share_of_output", "requested_share", "skipped_reason", "distinct_lines", "dropped", "repeats"),
    }
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(_FILES)


def test_the_same_mix_is_the_same_bytes(tmp_path: Path) -> None:
    """All three files, whenever and wherever they are written, also over old ones."""
    for folder in ("a", "b", "b"):
        write_mix(_mixed(), tmp_path / folder / "train.jsonl", {})

    assert [(tmp_path / "a" / name).read_bytes() for name in _FILES] == [
        (tmp_path / "b" / name).read_bytes() for name in _FILES
    ]


def test_a_link_that_was_laid_out_is_not_written_through(tmp_path: Path) -> None:
    """Whatever the name of the temporary file is, the file that a link leads to stays as it is."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in (".train.parquet.part", f".train.parquet.{os.getpid()}.part"):
        (tmp_path / name).symlink_to(victim)
    write_mix(_mixed(), tmp_path / "train.jsonl", {})

    assert victim.read_text() == "mine"
    assert parquet.read_table(tmp_path / "train.parquet").num_rows == len(_mixed().rows)


def test_a_parquet_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """A folder in its place, or a full disk; no rest is left."""
    with (
        full_after(1024),
        pytest.raises(
            ConfigurationError, match=r"train\.parquet: File too large\. Make room, or name a file elsewhere"
        ),
    ):
        write_parquet(_mixed().rows, tmp_path / "train.parquet")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "train.parquet").mkdir()
    with pytest.raises(ConfigurationError, match=r"train\.parquet: Is a directory\. Name a file that may be replaced"):
        write_parquet(_mixed().rows, tmp_path / "train.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["train.parquet"]
