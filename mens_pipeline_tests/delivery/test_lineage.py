"""The sources of an adapter, and artifacts that depend on it."""

import json
import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from typer.testing import CliRunner

from mens_pipeline.cli.main import app
from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.corpus.schema.records import Source, SourceKind, TrainingPair
from mens_pipeline.delivery.lineage import reverse_edges, trace_lineage
from mens_pipeline.errors import RefusedError
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline_tests.corpus.rows import mix_report
from mens_pipeline_tests.evaluation.runs import NOW, PRESENT, evaluated, fill_trained, promote, scored


def _pair(path: str | None, number: int, lines: tuple[int, int] = (1, 1)) -> TrainingPair:
    source = None
    if path is not None:
        source = Source(
            path=path, blob="0", span=(0, 1), lines=lines, kind=SourceKind.VOX_FILE, commit=f"commit-of-{path}"
        )
    return TrainingPair(prompt=f"Write {number}", response=f"fn f{number}() {{ }}\n", source=source)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    """An adapter from its split to its promotion, and another that was trained on the same rows."""
    monkeypatch.setenv("MENS_STORE_ROOT", str(tmp_path / "store"))
    store = ArtifactStore(tmp_path / "store")
    split, _ = store.build("heldout_split", {}, lambda _folder: {})
    pairs = [_pair("a.vox", 1, (4, 6)), _pair("a.vox", 2, (1, 3)), _pair("b.vox", 3), _pair(None, 4), _pair("b.vox", 3)]

    def mix(folder: Path) -> dict[str, Any]:
        write_jsonl(folder / TRAIN, pairs)
        return mix_report({"path": "pairs.jsonl", "emitted_lines": 4}, {"path": "other.jsonl", "emitted_lines": 1})

    mixed, _ = store.build("mixed_train_set", {}, mix, [split])
    for weights in ("used", "unused"):
        store.build("qlora_adapter", {"n": weights}, partial(fill_trained, weights=weights), [mixed])
    run = _adapter(store, "used").path
    promote(scored(run, store, evaluated(run, store)), run, store, PRESENT, now=NOW)
    return store


def _adapter(store: ArtifactStore, weights: str) -> Artifact:
    found = store.find("qlora_adapter", {"n": weights})
    assert found is not None
    return found


def test_a_champion_is_traced_to_files_and_commits(store: ArtifactStore) -> None:
    found = trace_lineage(store, "champion")

    assert found.adapter.kind == "promoted_adapter"
    assert [link.kind for link in found.rests_on] == [
        *("benchmark_gate", "qlora_adapter", "eval_results", "mixed_train_set", "heldout_split")
    ]
    assert found.rows == {"pairs.jsonl": 4, "other.jsonl": 1}
    assert found.files == {"a.vox": 2, "b.vox": 1}
    assert found.lines == {"a.vox": [(1, 6)], "b.vox": [(1, 1)]}
    assert found.commits == ("commit-of-a.vox", "commit-of-b.vox")
    assert [link.kind for link in found.used_by] == ["benchmark_gate", "promoted_adapter"]


def test_an_unused_adapter_has_an_origin(store: ArtifactStore) -> None:
    key = _adapter(store, "unused").key
    mixed = trace_lineage(store, key[:16]).rests_on[0]
    shutil.rmtree(store.root / mixed.kind / mixed.key)
    found = trace_lineage(store, key[:16])

    assert found.used_by == ()
    assert [(link.kind, link.is_there) for link in found.rests_on] == [("mixed_train_set", False)]
    assert (found.rows, found.files, found.commits) == ({}, {}, ())


def test_rejects_an_unknown_adapter(store: ArtifactStore, tmp_path: Path) -> None:
    for name in ("f" * 64, ""):
        with pytest.raises(RefusedError, match=r"no adapters with this key.*Name `champion`"):
            trace_lineage(store, name)
    with pytest.raises(RefusedError, match="no adapter was promoted yet"):
        trace_lineage(ArtifactStore(tmp_path), "champion")


def test_prints_the_lineage_for_people_and_programs(store: ArtifactStore) -> None:
    text, data = (CliRunner().invoke(app, ["lineage", "champion", *options]) for options in ([], ["--json"]))

    assert text.exit_code == data.exit_code == 0
    assert json.loads(data.stdout) == json.loads(json.dumps(asdict(trace_lineage(store, "champion"))))
    assert "rows             4  pairs.jsonl" in text.stdout
    assert "file             2  a.vox  lines 1-6" in text.stdout
    assert "commits    commit-of-a.vox, commit-of-b.vox" in text.stdout
    assert f"made from  qlora_adapter     {_adapter(store, 'used').key[:12]}" in text.stdout


def test_finds_all_dependents_of_a_base_in_linear_time() -> None:
    """With more adapters than any store keeps: copying a set for each would take half a minute."""
    base = ("base_model", "b")
    before = process_time()
    found = reverse_edges({("qlora_adapter", str(number)): frozenset((base,)) for number in range(40_000)})

    assert len(found[base]) == 40_000
    assert process_time() - before < 3
