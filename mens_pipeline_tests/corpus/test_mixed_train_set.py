"""The train set as an artifact."""

import json
from pathlib import Path

import pytest

from mens_pipeline.corpus.curate.mix_config import MixConfig, MixSource
from mens_pipeline.corpus.curate.mixed_train_set import TRAIN, build_mixed_train_set
from mens_pipeline.corpus.schema.reading import read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline_tests.corpus.rows import pair_at

_CONFIG = MixConfig(
    sources=(MixSource(path="pairs.jsonl", weight=3), MixSource(path="told.jsonl", optional=True)),
    output="not looked at.jsonl",
)


def _split(store: ArtifactStore) -> Artifact:
    with store.writing("heldout_split", {"a": 1}) as draft:
        write_jsonl(draft.path / "pairs.jsonl", [pair_at("a.vox", str(n), "fn f() { }") for n in range(6)])
        write_jsonl(draft.path / "told.jsonl", [pair_at(None, "q", "fn g() { }")])
    found = store.find("heldout_split", {"a": 1})
    assert found is not None
    return found


@pytest.mark.seed_row(36)
def test_a_split_is_mixed_once(tmp_path: Path) -> None:
    """The manifest holds the report; another configuration makes another train set, another store the same bytes."""
    store = ArtifactStore(tmp_path / "store")
    split = _split(store)
    first, was_there = build_mixed_train_set(split, _CONFIG, store)
    again, is_there = build_mixed_train_set(split, _CONFIG, store)
    other, was_the_same = build_mixed_train_set(split, _CONFIG.model_copy(update={"seed": 1}), store)
    elsewhere, _ = build_mixed_train_set(split, _CONFIG, ArtifactStore(tmp_path / "other"))
    names = sorted(path.name for path in first.path.iterdir())

    assert (was_there, is_there, was_the_same) == (False, True, False)
    assert again == first
    assert other.key != first.key
    assert names == ["manifest.json", "train.jsonl", "train.mix_report.json", "train.parquet"]
    assert [(first.path / name).read_bytes() for name in names] == [
        (elsewhere.path / name).read_bytes() for name in names
    ]
    report = json.loads((first.path / "train.mix_report.json").read_text())
    assert {key: first.manifest[key] for key in report} == report
    assert report["total_emitted"] == len(list(read_pairs(first.path / TRAIN))) == 8
    assert report["config"]["sources"][0]["weight"] == 3.0


def test_a_split_without_a_source_is_refused(tmp_path: Path) -> None:
    """Nothing is left."""
    store = ArtifactStore(tmp_path / "store")
    config = MixConfig(sources=(MixSource(path="missing.jsonl"),))

    with pytest.raises(RefusedError, match=r"missing\.jsonl: the file is missing"):
        build_mixed_train_set(_split(store), config, store)
    assert list((store.root / "mixed_train_set").iterdir()) == []
