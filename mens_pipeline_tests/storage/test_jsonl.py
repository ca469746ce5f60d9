"""JSON lines on disk."""

import errno
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mens_pipeline.corpus.schema.records import TrainingPair, read_pairs, read_records
from mens_pipeline.errors import ConfigurationError, DiskError, RefusedError, SourceNotFoundError
from mens_pipeline.storage.jsonl import (
    open_part,
    open_placed_rows,
    open_rows,
    read_models,
    replacing,
    row_at,
    write_digest,
    write_jsonl,
    write_lines,
    write_text,
)
from mens_pipeline.storage.validation import Strict
from mens_pipeline_tests.corpus.full_disk import full_after
from mens_pipeline_tests.corpus.rows import pair_at, records_of


class _Row(Strict):
    key: str


def test_written_rows_are_read_back(tmp_path: Path) -> None:
    pairs = [pair_at("a.vox", "p\n\u2028", "ä"), pair_at(None, "q", "r")]
    records = records_of("fn f() { }\n\nfn g() { f() }\n")

    assert write_jsonl(tmp_path / "new" / "pairs.jsonl", pairs) == 2
    assert write_jsonl(tmp_path / "records.jsonl", records) == len(records)
    with (tmp_path / "new" / "pairs.jsonl").open("ab") as file:
        file.write(b"\n  \n")
    assert list(read_pairs(tmp_path / "new" / "pairs.jsonl")) == pairs
    with open_rows(tmp_path / "records.jsonl") as lines:
        assert tuple(read_records([b"\n", *lines], tmp_path)) == records


def test_a_row_is_read_at_its_offset(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes("ä\n\nb".encode())
    with open_placed_rows(path) as lines:
        placed = list(lines)

    assert placed == [(0, "ä\n".encode()), (3, b"\n"), (4, b"b")]
    assert [row_at(path, place) for place, _ in placed] == [line for _, line in placed]


def test_own_rows_are_validated(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_jsonl(path, [pair_at("a.vox", "p", "r")])
    path.write_text(f"\n{path.read_text()}")
    assert list(read_models(path, TrainingPair)) == [pair_at("a.vox", "p", "r")]
    path.write_text("{}\n")

    with pytest.raises(RefusedError, match=r"rows\.jsonl:1: .*Delete its folder"):
        list(read_models(path, TrainingPair))
    path.write_text('{"key": "k", "mood": 1}\n')
    newer = r"rows\.jsonl:1: written by a newer version .* \(unknown: mood\)\. Upgrade it\."
    with pytest.raises(RefusedError, match=newer):
        list(read_models(path, _Row))


def test_line_ends_are_the_same_everywhere(tmp_path: Path) -> None:
    """A line feed, in UTF-8; a lone surrogate is escaped. A digest has the format of `sha256sum`."""
    write_text(tmp_path / "text", "ä\n")
    write_text(tmp_path / "half", "\ud800\n")

    assert write_lines(tmp_path / "lines", ["ä", "b"]) == 2
    assert (tmp_path / "lines").read_bytes() == "ä\nb\n".encode()
    assert (tmp_path / "text").read_bytes() == "ä\n".encode()
    assert (tmp_path / "half").read_bytes() == rb"\ud800" + b"\n"
    digest = write_digest(tmp_path / "text")
    assert digest == hashlib.sha256("ä\n".encode()).hexdigest()
    assert (tmp_path / "text.sha256").read_text() == f"{digest}  text\n"


@pytest.mark.seed_row(4)
def test_writing_is_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out" / "rows.jsonl"
    write_lines(path, ["old"])

    def fail_after_a_line(error: Exception) -> Iterator[str]:
        yield "new"
        raise error

    for error in (SourceNotFoundError("gone"), FileNotFoundError(errno.ENOENT, "gone", "elsewhere")):
        with pytest.raises(type(error), match="gone") as failed:
            write_lines(path, fail_after_a_line(error))
        assert failed.value is error
    assert path.read_text() == "old\n"
    assert [file.name for file in path.parent.iterdir()] == ["rows.jsonl"]


def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    """The command exits with 1, not as for a mistake: it can be repeated unchanged."""
    path = tmp_path / "rows.jsonl"
    write_lines(path, ["old"])

    for rows in (["a" * 70], ["a" * 100_000] * 3):  # noticed when the file is closed, and while it is written
        with (
            full_after(64),
            pytest.raises(DiskError, match=r"rows\.jsonl: File too large\. Make room, or name"),
        ):
            write_lines(path, rows)
    assert path.read_text() == "old\n"
    assert [file.name for file in tmp_path.iterdir()] == ["rows.jsonl"]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """A folder or a pipe in place of the file is an error, too."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"out\.jsonl: .*Name a file in a writable folder"):
        write_jsonl(tmp_path / "file" / "out.jsonl", [])
    (tmp_path / "out.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("out.jsonl", "pipe"):
        with pytest.raises(ConfigurationError, match=rf"{name}: .*Name a file that may be replaced"):
            write_lines(tmp_path / name, ["a"])

    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "out.jsonl", "pipe"]


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceNotFoundError, match="Name a readable file of JSON lines"):
        list(read_pairs(tmp_path / name))


@pytest.mark.parametrize("line", [b"{}", b"[1]", b"nope", b'{"prompt": "\\ud800", "response": "r"}'])
def test_an_invalid_line_is_refused_with_its_number(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n" + line + b"\n")

    with pytest.raises(RefusedError, match=r"rows\.jsonl:2: invalid pair \(.*\)\. Run `mens corpus"):
        list(read_pairs(path))
    with pytest.raises(RefusedError, match=r"rows\.jsonl:2: invalid extracted record \(.*\)\. Run `mens corpus"):
        list(read_records([b"\n", line], path))


def test_leftovers_of_killed_processes_are_removed(tmp_path: Path) -> None:
    """By the next writer; files that are locked, recent, links, or perhaps a person's own are kept."""
    old, held, young, link, foreign = (
        tmp_path / name
        for name in (
            f".records.jsonl.{'a' * 32}.part",
            f".a.jsonl.{'b' * 32}.part",
            f".a.jsonl.{'c' * 32}.part",
            f".a.jsonl.{'d' * 32}.part",
            ".invoice.2026.part",
        )
    )
    (tmp_path / ".draft-my-book-1").mkdir()
    os.utime(tmp_path / ".draft-my-book-1", (0, 0))
    for path in (old, held, young, foreign):
        path.write_text("half")
    link.symlink_to(foreign)
    for path in (old, held, foreign):
        os.utime(path, (0, 0))
    with held.open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_EX)
        write_text(tmp_path / "a.jsonl", "rows\n")

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        (held.name, young.name, link.name, foreign.name, "a.jsonl", ".draft-my-book-1")
    )


def test_two_writers_with_one_process_id_keep_their_files(tmp_path: Path) -> None:
    """As in two pods that share a volume: each writes a separate file, and the last to finish wins."""
    path = tmp_path / "a.txt"
    with replacing(path) as first:
        first.write(b"first")
        with replacing(path) as second:
            second.write(b"second")
        first.flush()
        assert path.read_bytes() == b"second"

    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100])
def test_parts_hold_each_line_once(tmp_path: Path, size: int) -> None:
    """A line belongs to the part in which it begins, even if it is long, empty or unterminated."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"ab\n\nlonger than a part\nc\nd")

    found = list[bytes]()
    for start in range(0, path.stat().st_size, size):
        with open_part(path, start, start + size) as lines:
            found += lines

    with open_rows(path) as lines:
        assert found == [*lines]
    assert len(found) == 5


def test_a_part_within_one_long_line_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"x" * 50 + b"\ny\n")
    monkeypatch.setattr("mens_pipeline.storage.jsonl.MAX_LINE_BYTES", 8)

    with open_part(path, 10, 20) as lines:
        assert [*lines] == []
    with open_part(path, 49, 52) as lines:
        assert [line.strip() for line in lines] == [b"y"]
