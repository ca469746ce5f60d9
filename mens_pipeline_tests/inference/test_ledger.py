"""A file of replies, which is never confused with another file."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from mens_pipeline.corpus.evolution.operators import Reply
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.inference.endpoint import Ledger


def test_a_ledger_holds_replies_and_nothing_else(tmp_path: Path) -> None:
    reply = Reply(key="k", text="t", stopped=True, num_tokens=1)
    ledger = Ledger(tmp_path / "deep" / "ledger.jsonl")
    ledger.add(reply)
    (tmp_path / "pairs.jsonl").write_text('{"prompt": "p"}\n')

    assert ledger.find("k") == Ledger(tmp_path / "deep" / "ledger.jsonl").find("k") == reply
    assert ledger.find("other") is None
    with pytest.raises(RefusedError, match="Name another file with --ledger"):
        Ledger(tmp_path / "pairs.jsonl")
    with pytest.raises(ConfigurationError, match="Name a file that may be written"):
        Ledger(tmp_path)
    with pytest.raises(ConfigurationError, match="Name a file that may be written"):
        Ledger(tmp_path / "pairs.jsonl" / "ledger.jsonl").add(reply)


@pytest.mark.parametrize("start", ["{", '{"key":"torn'])
def test_drops_the_incomplete_line_of_a_dead_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger(path).add(Reply(key="k", text="x", stopped=True, num_tokens=1))
    whole = path.read_text()
    path.write_text(whole + start)
    with monkeypatch.context() as patch:
        patch.setattr("os.truncate", Mock(side_effect=OSError(30, "Read-only file system")))
        with pytest.raises(ConfigurationError, match=r"Read-only file system\. Name a file that may be written"):
            Ledger(path)

    assert Ledger(path).find("k") is not None
    assert path.read_text() == whole


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a letter that nobody has twice", r":1: an incomplete line that is not the start of a reply\. Name another"),
        (b"a letter\nthat nobody has twice", r":1: not a reply \(.*Name another file with --ledger"),
        (b'{"prompt": "x"}\n{"key":', r":1: not a reply \(.*Name another file with --ledger"),
        (b"SQLite format 3\0" + b"\0" * 100, r":1: an incomplete line that is not the start of a reply"),
    ],
)
def test_does_not_change_a_file_of_another_kind(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)

    with pytest.raises(RefusedError, match=message):
        Ledger(path)
    assert path.read_bytes() == content
