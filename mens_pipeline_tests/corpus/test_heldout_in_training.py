"""Held-out pairs that stand in a train set are found."""

import json
from pathlib import Path

import pytest

from mens_pipeline.corpus.curate.heldout_in_training import refuse_trained_heldout
from mens_pipeline.errors import RefusedError
from mens_pipeline_tests.corpus.rows import pair_at

_HELD = [pair_at(f"{n}.vox", f"Write f{n}.", f"fn f{n}() to int {{\n    return {n}\n}}\n") for n in range(3)]
_FREE = [pair_at(f"{n}.vox", f"Write f{n}.", f"fn f{n}() to int {{\n    return {n}\n}}\n") for n in range(3, 9)]


def _written(path: Path, pairs: list[object]) -> Path:
    path.write_text("".join(pair.model_dump_json() + "\n" for pair in pairs))  # type: ignore[attr-defined]
    return path


def test_sets_that_share_nothing_pass(tmp_path: Path) -> None:
    """As the split makes them."""
    refuse_trained_heldout(_written(tmp_path / "heldout.jsonl", [*_HELD]), _written(tmp_path / "train.jsonl", [*_FREE]))


@pytest.mark.threat("M14")
@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, "1 prompts and 1 answers"),
        ({"prompt": "Something else."}, "0 prompts and 1 answers"),
        ({"response": "fn other() to int { return 7 }"}, "1 prompts and 0 answers"),
        ({"prompt": "Another.", "response": "\n\nfn f1() to int {\n\treturn 1\n}"}, "0 prompts and 1 answers"),
    ],
    ids=["pair", "answer", "request", "other white space"],
)
def test_a_held_out_row_that_was_trained_on_is_named(tmp_path: Path, changes: dict[str, str], found: str) -> None:
    """Both counts, the row, and what to do."""
    train = _written(tmp_path / "train.jsonl", [*_FREE, _HELD[1].model_copy(update=changes), _FREE[0]])
    heldout = _written(tmp_path / "heldout.jsonl", [*_HELD])

    with pytest.raises(RefusedError) as error:
        refuse_trained_heldout(heldout, train)
    assert str(error.value).startswith(
        f"{heldout}: {found} of 3 held-out pairs stand in 1 rows of {train}, the first in row 7:"
    )
    assert str(error.value).endswith(
        "`mens corpus mix` writes both files so that they share nothing; run it, and train on what it wrote."
    )
    assert json.loads(train.read_text().splitlines()[6])["prompt"]
