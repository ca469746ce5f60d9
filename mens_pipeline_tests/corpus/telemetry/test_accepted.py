"""Pieces that were accepted at a cursor: written redacted, read as rows that train."""

import sqlite3
import stat
from pathlib import Path

import pytest

from mens_pipeline.corpus.curate.mix import MixConfig, MixReport, MixSource, SourceRows, mix_sources
from mens_pipeline.corpus.curate.mixed_train_set import add_infill_rows
from mens_pipeline.corpus.infill import ACCEPTED
from mens_pipeline.corpus.infill.rows import ROWS
from mens_pipeline.corpus.schema.reasons import InfillDrop, TelemetryDrop
from mens_pipeline.corpus.schema.records import MAX_TEXT, HoleKind, TrainingPair
from mens_pipeline.corpus.telemetry.accepted import AcceptedPieces
from mens_pipeline.corpus.telemetry.redaction import SensitiveKind
from mens_pipeline.corpus.telemetry.table import (
    TelemetryAccount,
    TelemetryRow,
    read_telemetry,
    telemetry_fingerprint,
    telemetry_pairs,
)
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline_tests.corpus.rows import pair_at
from mens_pipeline_tests.corpus.telemetry_databases import query_of, write_database
from mens_pipeline_tests.every import every_row

_PREFIX, _SUFFIX = "fn double(n: int) to int {\n    return n ", "\n}\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Path of the table of accepted pieces."""
    return tmp_path / "accepted.db"


def _pairs(table: Path) -> list[TrainingPair]:
    return list(telemetry_pairs(read_telemetry(query_of(table)), TelemetryAccount(), "AgentTelemetry"))


def test_an_accepted_piece_is_a_row_at_a_cursor(table: Path) -> None:
    assert AcceptedPieces(table).add(_PREFIX, "* 2 ", _SUFFIX)
    assert AcceptedPieces(table).add(_PREFIX, "* 3\n    return 0", "\n")
    line, body = sorted(_pairs(table), key=lambda pair: pair.response)

    assert stat.S_IMODE(table.stat().st_mode) == 0o600
    assert (line.prompt, line.response, line.task_family, line.rating) == (_PREFIX, "* 2 ", ACCEPTED, 4)
    assert line.infill is not None
    assert (line.infill.kind, line.infill.suffix) == (HoleKind.LINE, _SUFFIX)
    assert body.infill is not None
    assert (body.infill.kind, body.infill.suffix) == (HoleKind.STATEMENTS, "\n")
    assert line.source is not None
    assert not line.source.golden


def test_lone_surrogates_are_not_written(table: Path) -> None:
    """JSON can send them; the table cannot hold them."""
    for place in range(3):
        texts = [text + "\ud800" * (number == place) for number, text in enumerate((_PREFIX, "* 2", _SUFFIX))]
        assert not AcceptedPieces(table).add(texts[0], texts[1], texts[2])


def test_secrets_are_not_written(table: Path) -> None:
    pieces = AcceptedPieces(table)
    assert pieces.add("// ada@firm.de\nlet a = ", '"eve@firm.de"', "\n// bob@firm.de\n")
    assert not pieces.add('let password = "hunter', '2secret"', "\n")
    assert not pieces.add("let a = ", '"ada@fi', 'rm.de"\n')
    assert not pieces.add(" ", "let a = 1", "")
    assert not pieces.add("let a = ", " ", "\n")
    assert not pieces.add("let a = ", '"\ufffd"', "\n")
    (pair,) = _pairs(table)

    assert pair.infill is not None
    assert "firm.de" not in pair.prompt + pair.response + pair.infill.suffix
    assert b"hunter" not in table.read_bytes()
    assert b"firm.de" not in table.read_bytes()


@every_row(
    (TelemetryRow("a", "b", None, 3), TelemetryDrop.NOT_TEXT),
    (TelemetryRow("a", " ", None, "c"), TelemetryDrop.EMPTY),
    (TelemetryRow("a", "b", None, "c" * (MAX_TEXT + 1)), TelemetryDrop.TOO_LONG),
    # Redaction makes it longer.
    (TelemetryRow("a", "b", None, " ada@firm.de" * (MAX_TEXT // 12)), TelemetryDrop.TOO_LONG),
)
def test_a_piece_that_cannot_train_is_counted(row: TelemetryRow, drop: TelemetryDrop) -> None:
    account = TelemetryAccount()

    assert list(telemetry_pairs([row], account, "t")) == []
    account.check()
    assert account.dropped == {drop: 1}


def test_redactions_after_a_cursor_are_counted() -> None:
    account = TelemetryAccount()
    list(telemetry_pairs([TelemetryRow("a", "b", None, "// ada@firm.de")], account, "t"))

    assert account.redactions == {SensitiveKind.EMAIL: 1}


def test_a_suffix_changes_the_fingerprint(table: Path) -> None:
    plain = write_database(
        table.with_name("plain.db"), "CREATE TABLE AgentTelemetry (query, optimal_response)", [("a", "b")]
    )
    schema = "CREATE TABLE AgentTelemetry (query, optimal_response, suffix)"
    without = write_database(table.with_name("without.db"), schema, [("a", "b", None)])
    with_suffix = write_database(table, schema, [("a", "b", "c")])
    prints = [telemetry_fingerprint(query_of(path)) for path in (plain, without, with_suffix)]

    assert prints[0] == prints[1] != prints[2]
    assert telemetry_fingerprint(query_of(table, suffix_column=None)) == prints[0]


def test_an_unsuitable_file_is_refused(tmp_path: Path) -> None:
    other = write_database(tmp_path / "other.db", "CREATE TABLE AgentTelemetry (query, optimal_response)", [])
    (tmp_path / "text").write_text("no database " * 100)
    with pytest.raises(ConfigurationError, match=r"has no column suffix\. Name a separate file"):
        AcceptedPieces(other)
    with pytest.raises(ConfigurationError, match=r"not a database\)\. Name another file"):
        AcceptedPieces(tmp_path / "text")
    with pytest.raises(ConfigurationError, match="cannot write accepted pieces"):
        AcceptedPieces(tmp_path / "nowhere" / "x.db")
    pieces = AcceptedPieces(tmp_path / "gone.db")
    (tmp_path / "gone.db").write_bytes(b"x" * 5_000)
    with pytest.raises(sqlite3.DatabaseError):
        pieces.add("a", "b", "c")


def test_accepted_pieces_come_before_cut_pieces(table: Path) -> None:
    pieces = AcceptedPieces(table)
    rare = "    return first_of_the_items + second_of_the_items"
    assert pieces.add(_PREFIX, "* 2", "")
    assert pieces.add("fn sum() to int {\n    return first_of_", rare.split("first_of_")[1], _SUFFIX)
    program = "fn f{n}(a: int) to int {{\n    let b = a + {n}\n    return b * {n} + a\n}}\n"
    files = [pair_at(f"{n}.vox", f"p{n}", program.format(n=n)) for n in range(20)]
    heldout = [pair_at("held.vox", "h", f"fn h() to int {{\n{rare}\n}}\n")]
    config = MixConfig(sources=(MixSource(path="pairs.jsonl"), MixSource(path="telemetry.jsonl", optional=True)))

    def mix_with(share: float) -> list[TrainingPair]:
        sources = {"pairs.jsonl": SourceRows(list(files)), "telemetry.jsonl": SourceRows(_pairs(table))}
        wanted = config.with_infill_share(share)
        report = add_infill_rows(sources, heldout, wanted)
        assert (report is None) == (share == 0)
        assert report is None or report["dropped"][InfillDrop.HELD_OUT_LINES] == 1
        return mix_sources(wanted, sources).rows

    infill_rows = [row for row in mix_with(0.1) if row.infill is not None]
    assert len(infill_rows) == 2
    assert [row.response for row in infill_rows].count("* 2") == 1
    assert not [row for row in mix_with(0) if row.infill is not None]
    assert ROWS not in {source.path for source in config.sources}


def test_all_accepted_pieces_are_mixed(table: Path) -> None:
    pieces = AcceptedPieces(table)
    assert all(pieces.add(f"let number{n} = ", str(n), "\n") for n in range(30))
    telemetry = MixSource(path="telemetry.jsonl")
    files = [pair_at(f"{n}.vox", f"p{n}", f"fn f{n}(a: int) to int {{\n    return a * {n}\n}}\n") for n in range(20)]

    def mix_of(*others: MixSource, pairs: list[TrainingPair] | None = None) -> MixReport:
        config = MixConfig(sources=(telemetry, *others)).with_infill_share(0.3)
        sources = {"telemetry.jsonl": SourceRows(_pairs(table)), "pairs.jsonl": SourceRows(pairs, sha256="ab")}
        add_infill_rows(sources, (), config)
        return mix_sources(config, sources).report()

    alone, beside = mix_of(), mix_of(MixSource(path="pairs.jsonl"), pairs=files)
    assert (alone.total_emitted, alone.sources[-1].requested_share, alone.sources[-1].share_of_output) == (30, 1.0, 1.0)
    assert beside.sources[-1].emitted_lines == 30
    assert beside.sources[-1].requested_share == beside.sources[-1].share_of_output == 0.6
    assert beside.sources[1].requested_share == pytest.approx(0.4)
    with pytest.raises(RefusedError, match=r"pairs.jsonl: none of its 0 rows is used"):
        mix_of(MixSource(path="pairs.jsonl"), pairs=[])
