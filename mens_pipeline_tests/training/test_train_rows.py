"""Encoded train sets: when they are cached, when they are encoded again, and that their rows are right."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.models.base import FileTokenizer
from mens_pipeline.models.chat import IM_END, Encoded, encode
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import digest_of
from mens_pipeline.training import prepare, train_rows
from mens_pipeline.training.examples import Examples, make_examples, open_examples
from mens_pipeline.training.recipe import Recipe
from mens_pipeline.training.train_rows import Encoding, Shards, encode_pairs, encode_train_set
from mens_pipeline_tests.training.encoded import encode_examples
from mens_pipeline_tests.training.runs import pairs, prepare_fast
from mens_pipeline_tests.training.small_folder import Encoder, write_folder

_SYSTEM = "You write Vox."
_ROWS = 40
_RECIPE = Recipe(validation_split_ratio=0.3)


@pytest.fixture
def encoding(tmp_path: Path) -> Encoding:
    """A train set of several shards and a tokenizer."""
    write_jsonl(tmp_path / "train.jsonl", pairs(_ROWS))
    base = write_folder(tmp_path / "base")
    return Encoding(
        tmp_path / "train.jsonl", base, _SYSTEM, infill_window=192, infill_order="suffix_first", shard_bytes=2000
    )


def _encode(encoding: Encoding, **options: Any) -> tuple[Path, list[str]]:
    lines: list[str] = []
    cache = encoding.train_path.parent / "cache"
    folder = encode_train_set(encoding, digest_of(encoding.train_path), cache, lines.append, workers=1, **options)
    return folder, lines


def _open(encoding: Encoding, folder: Path) -> Examples:
    return make_examples(Shards(encoding.paths(folder)), _RECIPE)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the shards that are encoded from now on."""
    names: list[str] = []
    write = train_rows._write_shard  # noqa: SLF001 - the watched function

    def watch(encoding: Encoding, path: Path, number: int) -> None:
        names.append(path.name)
        write(encoding, path, number)

    monkeypatch.setattr(train_rows, "_write_shard", watch)
    return names


def test_rows_of_several_shards_are_those_of_one(encoding: Encoding) -> None:
    """In the order of the train set, each once, with the ids of the tokenizer; also rows that measure."""
    folder, _ = _encode(encoding)
    several = _open(encoding, folder)
    one = encode_examples(pairs(_ROWS), _RECIPE, FileTokenizer(encoding.base_path), _SYSTEM)
    plain = [encode(FileTokenizer(encoding.base_path), _SYSTEM, pair.prompt, pair.response) for pair in pairs(_ROWS)]

    assert len(encoding.paths(folder)) > 3
    assert [*several.train] == [*one.train]
    assert [*several.validation] == [*one.validation] != []
    assert several.account() == one.account()
    assert several.kinds() == one.kinds()
    assert several.columns.lengths.tolist() == [len(row) for row in several.train]
    together = {Encoded(row.prompt, row.completion) for row in (*several.train, *several.validation)}
    assert together == set(plain)


@pytest.mark.slow
def test_two_processes_write_the_shards_of_one(encoding: Encoding, tmp_path: Path) -> None:
    folder, _ = _encode(encoding)
    digest = digest_of(encoding.train_path)
    again = encode_train_set(encoding, digest, tmp_path / "other", workers=2)
    shards = [[path.read_bytes() for path in encoding.paths(where)] for where in (folder, again)]

    assert shards[0] == shards[1]

    with encoding.train_path.open("a") as lines:
        lines.write("no pair\n")
    with pytest.raises(RefusedError, match=rf"train\.jsonl:{_ROWS + 1}: invalid pair"):
        encode_train_set(encoding, digest_of(encoding.train_path), tmp_path / "other", workers=2)


@pytest.mark.parametrize("shard_bytes", [1, 100, 301, 10**6])
def test_each_line_is_in_one_shard(encoding: Encoding, shard_bytes: int) -> None:
    cut = replace(encoding, shard_bytes=shard_bytes)
    write_jsonl(cut.train_path, pairs(4))
    folder, _ = _encode(cut)

    assert _open(cut, folder).seen == 4


def test_nothing_is_encoded_twice(encoding: Encoding, written: list[str]) -> None:
    """Only window and order at a cursor, the tokenizer and rows change the ids."""
    folder, lines = _encode(encoding)
    number = len(encoding.paths(folder))
    assert len(written) == number
    assert lines[-1] == f"{number} of {number} shards of the train set encoded"

    assert _encode(encoding) == (folder, [])
    assert len(written) == number

    others = (replace(encoding, infill_window=64), replace(encoding, infill_order="prefix_first"))
    assert len({folder, *(_encode(other)[0] for other in others)}) == 1 + len(others)
    Encoder(special=("<|im_start|>", IM_END, "<|more|>")).inner.save(str(encoding.base_path / "tokenizer.json"))
    assert _encode(encoding)[0] != folder
    assert len(written) == 4 * number
    with encoding.train_path.open("a") as rows:
        rows.write('{"prompt": "no response"}\n')
    before = {*folder.parent.iterdir()}
    with pytest.raises(RefusedError, match=rf"train\.jsonl:{_ROWS + 1}: invalid pair"):
        _encode(encoding)
    (refused,) = {*folder.parent.iterdir()} - before
    assert not encoding.paths(refused)[-1].exists()


def test_a_damaged_shard_is_named_and_encoded_again(encoding: Encoding, written: list[str]) -> None:
    """One changed byte, half a file, a shard without its hash: only these are encoded, with the same bytes."""
    folder, _ = _encode(encoding)
    first, second, third, *_ = paths = encoding.paths(folder)
    before = [path.read_bytes() for path in paths]
    written.clear()
    first.write_bytes(before[0][:-300] + b"x" + before[0][-299:])
    second.write_bytes(before[1][: len(before[1]) // 2])
    third.with_name(f"{third.name}.sha256").unlink()
    _, lines = _encode(encoding)

    assert [path.read_bytes() for path in paths] == before
    assert written == [path.name for path in (first, second, third)]
    assert lines[0].startswith(f"{first}: a damaged shard (SHA-256 ")
    assert lines[1].startswith(f"{second}: a damaged shard (SHA-256 ")
    assert lines[2].startswith(f"{third}: a shard without its SHA-256. ")


def test_training_rejects_an_incomplete_shard(tiny_base: Path, tmp_path: Path) -> None:
    job = prepare_fast(tiny_base, tmp_path).job
    path = job.rows_path / "00000.arrow"
    path.write_bytes(path.read_bytes()[:100])
    for _ in range(2):
        with pytest.raises(RefusedError, match=r"00000\.arrow: incomplete shard\. Run the command again"):
            open_examples(job)
        path.unlink(missing_ok=True)


class _Careless(Encoder):
    """Forgets the end of a turn, or writes it twice."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._times = times

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        ids = super().encode(text, add_special_tokens=add_special_tokens)
        end = self.id_of(IM_END)
        return [end] if ids == [end] else [*[i for i in ids if i != end], *[end] * self._times]


@pytest.mark.parametrize("times", [0, 2])
def test_every_row_ends_its_turn_once(times: int) -> None:
    expected = "each row must end with the token that ends a turn, and contain it nowhere else"
    _encode_one(_Careless(1))
    with pytest.raises(RefusedError, match=expected):
        _encode_one(_Careless(times))


def _encode_one(tokenizer: Encoder) -> Any:
    return encode_pairs(pairs(1), tokenizer, _SYSTEM, 192, "suffix_first")


def test_ids_of_a_large_vocabulary_are_kept_whole() -> None:
    class Wide(Encoder):
        def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
            return [70_000 + i for i in super().encode(text, add_special_tokens=add_special_tokens)]

    small, large = map(_encode_one, (Encoder(), Wide()))

    assert [shard["prompt"].type.value_type.bit_width for shard in (small, large)] == [16, 32]
    assert large["prompt"][0].as_py() == [70_000 + i for i in small["prompt"][0].as_py()]


def test_train_sets_that_no_run_used_for_a_month_are_removed(encoding: Encoding) -> None:
    folder, _ = _encode(encoding)
    old, recent = folder.with_name("old"), folder.with_name("recent")
    for other, days in ((old, 31), (recent, 29)):
        other.mkdir()
        os.utime(other, (time.time() - days * 86_400,) * 2)
    _encode(encoding)

    assert (old.exists(), recent.exists(), folder.exists()) == (False, True, True)


def test_compares_held_out_rows_once(tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_jsonl(tmp_path / "heldout.jsonl", pairs(20)[15:])
    first = prepare_fast(tiny_base, tmp_path).preflight["notes"]
    monkeypatch.setattr(prepare, "trained_heldout", lambda *_: pytest.fail("read again"))

    assert prepare_fast(tiny_base, tmp_path).preflight["notes"] == first != []
