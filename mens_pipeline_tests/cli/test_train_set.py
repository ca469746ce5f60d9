"""`mens train` trains on a mixed file, or on the pairs that it does not hold out."""

import json
from pathlib import Path

import pytest

from mens_pipeline.cli.train_set import find_train_set
from mens_pipeline.corpus.schema.records import Lane, read_pairs
from mens_pipeline.settings import load_settings
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline_tests.corpus.rows import pair_at

_PROGRAM = "fn f{0}(a{0}: int) to int {{ return g{0}(a{0}, {0}) + h{0}(a{0}, k{0}(a{0}), m{0}({0}, a{0})) }}\n"
_PROSE = pair_at("q.md", "What is an actor?", "Something that keeps a state.").model_copy(
    update={"lane": Lane.DOCS_QA, "response_mode": "prose_only"}
)


def _write(folder: Path, number: int) -> None:
    programs = [pair_at(f"{n}.vox", f"Write f{n}.", _PROGRAM.format(n)) for n in range(number)]
    write_jsonl(folder / "train.jsonl", [*programs, _PROSE])


def _choose(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, bool]:
    path = find_train_set(folder, load_settings())
    return path.name, "holding out source files first; --fast-corpus trains on all rows" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.seed_row(36, 37)
def test_pairs_alone_are_split_once_and_again_when_they_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(tmp_path, 40)
    first, again = (_choose(tmp_path, capsys) for _ in range(2))
    mixed, heldout = (list(read_pairs(tmp_path / name)) for name in ("validated_mixed.jsonl", "heldout.jsonl"))
    _write(tmp_path, 41)
    changed = _choose(tmp_path, capsys)
    (tmp_path / "heldout.jsonl").unlink()
    restored = _choose(tmp_path, capsys)

    assert first == changed == restored == ("validated_mixed.jsonl", True)
    assert again == ("validated_mixed.jsonl", False)
    assert heldout
    assert not {pair.prompt for pair in mixed} & {pair.prompt for pair in heldout}
    assert {pair.prompt for pair in (*mixed, *heldout) if pair.infill is None} >= {
        _PROSE.prompt,
        *(f"Write f{n}." for n in range(40)),
    }
    assert (tmp_path / "heldout.jsonl").is_file()


@pytest.mark.seed_row(36)
def test_a_mixed_file_is_used_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nothing = _choose(tmp_path, capsys)
    _write(tmp_path, 2)
    (tmp_path / "heldout.jsonl").touch()
    split = _choose(tmp_path, capsys)
    (tmp_path / "validated_mixed.jsonl").write_bytes((tmp_path / "train.jsonl").read_bytes())
    mixed = _choose(tmp_path, capsys)
    report = tmp_path / "validated_mixed.mix_report.json"
    report.write_text(json.dumps({"made_from": "another time"}))
    (tmp_path / "train.mix_report.json").write_text("{}")
    newer = _choose(tmp_path, capsys)
    (tmp_path / "train.jsonl").unlink()
    alone = _choose(tmp_path, capsys)

    assert nothing == split == newer == ("train.jsonl", False)
    assert mixed == alone == ("validated_mixed.jsonl", False)
