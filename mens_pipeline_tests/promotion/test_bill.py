"""The bill of materials of a promoted model."""

import json
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.corpus.extract.extracted_corpus import RECORDS, build_extracted_corpus
from mens_pipeline.corpus.schema.records import (
    HoleKind,
    InfillContext,
    Source,
    SourceKind,
    TrainingPair,
    read_record_lines,
)
from mens_pipeline.models.adapter import MANIFEST, Adapter
from mens_pipeline.models.base import describe_base
from mens_pipeline.promotion.bill import BILL, Origin, as_cyclonedx, build_bill
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline_tests.corpus.checkouts import git, make_checkout
from mens_pipeline_tests.evaluation.runs import NOW, champion_in, promoted, trained, training_manifest
from mens_pipeline_tests.training.small_folder import Encoder, write_folder

_LIBRARIES = {"torch": "2.13.0", "trl": "1.16.0"}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Three programs, two of them with their own licences, and one name that contains a table separator."""
    root = tmp_path / "workspace"
    root.mkdir()
    (root / "LICENSE").write_text("Mozilla Public License Version 2.0\n")
    (root / "a.vox").write_text("fn add(a: int, b: int) to int {\n    return a + b\n}\n")
    (root / "b|c.vox").write_text("// SPDX-License-Identifier: MIT OR Apache-2.0\nfn b() { }\n")
    (root / "d.vox").write_text("// SPDX-License-Identifier: Ours\nfn d() { }\n")
    return root


def _pair(source: Source | None, text: str, **others: Any) -> TrainingPair:
    return TrainingPair(prompt="Write a function.", response=text, source=source, **others)


@pytest.fixture
def run(workspace: Path, store: ArtifactStore, tmp_path: Path) -> Path:
    """A run on rows of these programs and others; the store has their origin back to the workspace."""
    corpus, _ = build_extracted_corpus(workspace, store)
    records = [record for _, record in read_record_lines(corpus.path / RECORDS)]
    rows = [_pair(record.source, record.text) for record in records]
    rows += [rows[0]]
    hole = InfillContext(kind=HoleKind.LINE, suffix="}\n")
    rows += [_pair(records[0].source, "return a + b\n", infill=hole), _pair(None, "fn e() { }\n")]
    for kind in (SourceKind.SYNTHETIC, SourceKind.EVOLVED, SourceKind.TELEMETRY):
        rows.append(_pair(Source.of_text(f"{kind}/x.vox", "fn x() { }\n", kind), "fn x() { }\n"))

    def mix(folder: Path) -> dict[str, Any]:
        write_jsonl(folder / TRAIN, rows)
        return {}

    split, _ = store.build("heldout_split", {}, lambda _: {}, [corpus])
    mixed, _ = store.build("mixed_train_set", {}, mix, [split, corpus])
    base = describe_base("org/tiny", "main", write_folder(tmp_path / "base"), "hub", "apache-2.0")
    run, train_file = trained(tmp_path / "run"), mixed.path / TRAIN
    known = {"train_file": str(train_file), "train_sha256": digest_of(train_file), "libraries": _LIBRARIES}
    manifest = {**training_manifest(), "base_model": base.as_json(), **known}
    (run / MANIFEST).write_text(json.dumps(manifest))
    return run


def _champion(run: Path, store: ArtifactStore) -> Artifact:
    promoted(run, store)
    return champion_in(store)


def _find_named(components: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = [component for component in components if component["name"] == name]
    return {**found, **{item["name"]: item["value"] for item in found.get("properties", ())}}


def test_a_promoted_model_has_a_bill_of_materials(run: Path, store: ArtifactStore, tmp_path: Path) -> None:
    """JSON that is valid CycloneDX: base, train set with its files, libraries, and their licences."""
    champion = _champion(run, store)
    text = (champion.path / BILL).read_text()
    document = json.loads(text)
    parts = document["components"]
    train_set = _find_named(parts, "train set")
    files = train_set["components"]

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert text == as_cyclonedx(build_bill(Adapter.open(run), store, NOW))
    assert str(tmp_path) not in text
    assert document["metadata"]["component"]["type"] == "machine-learning-model"
    assert document["metadata"]["timestamp"].startswith("2027-01-15T")
    assert _find_named(parts, "org/tiny")["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert _find_named(parts, "torch")["purl"] == "pkg:pypi/torch@2.13.0"
    assert [file["name"] for file in files] == ["a.vox", "b|c.vox", "d.vox"]
    assert [file.get("licenses") for file in files] == [
        *([{"license": {"id": "MPL-2.0"}}], [{"expression": "MIT OR Apache-2.0"}], None)
    ]
    assert _find_named(files, "d.vox")["mens:licence"] == "unknown"
    assert len(document["dependencies"]) == 1 + len(parts) + len(files)


@pytest.mark.parametrize("refuses", [False, True])
def test_the_origin_of_each_file_is_on_record(
    workspace: Path,
    store: ArtifactStore,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    *,
    refuses: bool,
) -> None:
    """Its remote, or why git refuses."""
    make_checkout(workspace, {})
    git(workspace, "config", "remote.origin.url", "https://example.org/w.git")
    if refuses:
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    bill = build_bill(Adapter.open(request.getfixturevalue("run")), store, NOW)

    assert {file.remote for file in bill.files} == {None if refuses else "https://example.org/w.git"}
    assert ["dubious ownership" in problem for problem in bill.git_problems] == [True] * refuses
    assert ("dubious ownership" in as_cyclonedx(bill)) is refuses


def test_shares_are_in_tokens_of_the_base(run: Path, store: ArtifactStore) -> None:
    bill = build_bill(Adapter.open(run), store, NOW)
    of_a = bill.files[0]
    texts = ["Write a function.", *2 * ["fn add(a: int, b: int) to int {\n    return a + b\n}\n"]]
    texts += [*2 * ["Write a function."], "return a + b\n", "}\n"]

    assert (bill.unit, bill.num_rows) == ("tokens", 9)
    assert of_a.path == "a.vox"
    assert of_a.amount == sum(len(Encoder().encode(text, add_special_tokens=False)) for text in texts)
    assert sum(bill.amounts.values()) == bill.total
    assert bill.amounts[Origin.FILES] == sum(file.amount for file in bill.files)
    assert len(bill.amounts) == 5
    assert bill.synthetic_share == 2 * bill.amounts[Origin.TEMPLATES] / bill.total


def test_missing_records_are_stated(run: Path, store: ArtifactStore) -> None:
    """A missing base, a missing corpus or a changed train set does not block a promotion."""
    (run.parent / "base" / "config.json").unlink()
    without_base = build_bill(Adapter.open(run), store, NOW)
    (corpus,) = (store.root / "extracted_corpus").glob("*/manifest.json")
    corpus.unlink()
    without_corpus = build_bill(Adapter.open(run), store, NOW)
    (train_file,) = store.root.glob(f"mixed_train_set/*/{TRAIN}")
    train_file.write_text("")
    champion = _champion(run, store)
    text = (champion.path / BILL).read_text()
    train_set = _find_named(json.loads(text)["components"], "train set")

    assert (without_base.unit, without_base.files[0].licence) == ("characters", "MPL-2.0")
    assert {file.licence for file in without_corpus.files} == {None}
    files = _find_named(json.loads(as_cyclonedx(without_corpus))["components"], "train set")["components"]
    assert _find_named(files, "a.vox")["mens:licence"] == "not on record"
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert (train_set["mens:rows"], train_set["mens:synthetic_share"]) == ("not on record", "not on record")


def test_blank_names_are_omitted(run: Path, store: ArtifactStore) -> None:
    manifest = json.loads((run / MANIFEST).read_text())
    base = {**manifest["base_model"], "licence": " "}
    (run / MANIFEST).write_text(json.dumps({**manifest, "base_model": base, "libraries": {" ": "1", "trl": "1.16.0"}}))
    text = as_cyclonedx(build_bill(Adapter.open(run), store, NOW))

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert "licenses" not in _find_named(json.loads(text)["components"], "org/tiny")
