"""Training rows that overlap with held-out tasks are counted, once for each split."""

from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.corpus.curate.heldout_overlap import build_heldout_overlap
from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.heldout_split import KIND as SPLIT
from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.corpus.schema.records import Source, SourceKind
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.settings import PIPELINE_CONFIG
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import ArtifactStore

_ANSWER = (
    "fn total(prices: List[int]) to int {\n    let mut sum = 0\n    for p in prices { sum += p }\n    return sum\n}\n"
)
_RENAMED = "fn all_of(w: List[int]) to int {\n    let mut n = 7\n    for x in w { n += x }\n    return n\n}\n"


def _pair(prompt: str, response: str, path: str) -> TrainingPair:
    source = Source(path=path, blob="0", span=(0, 1), lines=(1, 1), kind=SourceKind.VOX_FILE)
    return TrainingPair(prompt=prompt, response=response, source=source)


def _counted(root: Path, train: TrainingPair, heldout: TrainingPair) -> dict[str, Any]:
    """Counts over a split of one row that trains and one that judges."""
    store = ArtifactStore(root)

    def write(folder: Path) -> dict[str, Any]:
        write_jsonl(folder / "pairs.jsonl", [train])
        write_jsonl(folder / HELDOUT, [heldout])
        return {"train": {"pairs.jsonl": 1}}

    split = store.built(SPLIT, {}, write)[0]
    counted = build_heldout_overlap(split, load_pipeline_config(PIPELINE_CONFIG).split, store, [])
    (split.path / "pairs.jsonl").unlink()
    again = build_heldout_overlap(split, load_pipeline_config(PIPELINE_CONFIG).split, store, [])
    assert again.key == counted.key, "counted once: nothing is read the second time"
    return counted.manifest


@pytest.mark.parametrize(
    ("train", "files", "copies"),
    [
        (_pair("Say hello", "fn hello() { }\n", "a.vox"), 0, 0),
        (_pair("Say hello", "fn hello() { }\n", "held.vox"), 1, 0),
        (_pair("Sum prices", "fn hello() { }\n", "a.vox"), 0, 1),
        (_pair("Repair this:\n" + _ANSWER, "fn hello() { }\n", "a.vox"), 0, 1),
        (_pair("Add weights", _RENAMED, "a.vox"), 0, 1),
    ],
    ids=["clean", "same file", "same request", "answer in the request", "renamed copy"],
)
def test_a_leak_into_training_is_counted(tmp_path: Path, train: TrainingPair, files: int, copies: int) -> None:
    """A file on both sides, a shared request, a shared text, a renamed copy."""
    counts = _counted(tmp_path, train, _pair("Sum prices", _ANSWER, "held.vox"))

    assert (counts["pairs_of_heldout_files"], counts["near_copies"]) == (files, copies)
    assert counts["same_behaviour"] == 0


def test_a_row_that_solves_a_held_out_task_is_counted(tmp_path: Path) -> None:
    """However it is written."""
    tests = "@test fn a() { assert(twice(2) is 4) }\n@test fn b() { assert(twice(5) is 10) }"
    judged = _pair("Double it", "fn twice(n: int) to int { return n * 2 }\n", "held.vox")
    train = _pair("Add it up", "fn again(value: int) to int {\n    let sum = value + value\n    sum\n}\n", "a.vox")

    counts = _counted(tmp_path, train, judged.model_copy(update={"tests": tests}))

    assert (counts["near_copies"], counts["same_behaviour"]) == (0, 1)
