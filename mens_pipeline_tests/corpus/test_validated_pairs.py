"""The validated pairs as an artifact."""

import json
from pathlib import Path

import pytest

from mens_pipeline.corpus.curate.pipeline_config import ValidatePolicy
from mens_pipeline.corpus.curate.validated_pairs import PAIRS, QUARANTINE, build_validated_pairs
from mens_pipeline.corpus.extract.extracted_corpus import build_extracted_corpus
from mens_pipeline.corpus.schema.reading import read_pairs
from mens_pipeline.corpus.schema.records import SourceKind
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline_tests.corpus.rows import pair_at

_POLICY = ValidatePolicy(near_duplicate_threshold=0.9, max_per_source=9, max_per_template=9)


@pytest.fixture
def corpus(tmp_path: Path, store: ArtifactStore) -> Artifact:
    """Three records of a program, one of which needs another, and a page of prose."""
    root = tmp_path / "workspace"
    root.mkdir()
    (root / "a.vox").write_text("fn a(n: int) to int { return n * 7 }\n@table type T { n: int }\n")
    (root / "p.md").write_text("---\ntraining_eligible: true\n---\n## Heading\n\n" + "word " * 40 + "\n")
    return build_extracted_corpus(root, store)[0]


def test_pairs_are_made_once_and_counted(corpus: Artifact, store: ArtifactStore) -> None:
    """Every record gives a pair, each is judged again, and an unchanged corpus gives the same folder."""
    first, first_reused = build_validated_pairs(corpus, [], _POLICY, store)
    second, second_reused = build_validated_pairs(corpus, [], _POLICY, store)
    pairs = list(read_pairs(first.path / PAIRS))

    assert (first_reused, second_reused, second) == (False, True, first)
    assert first.manifest["num_pairs"] == {PAIRS: len(pairs)} == {PAIRS: corpus.manifest["num_records"]} == {PAIRS: 4}
    assert first.manifest["lanes"] == {"vox_codegen": 3, "vox_docs_qa": 1}
    assert first.manifest["categories"] == {"documentation": 1, "function": 1, "table": 2}
    assert first.manifest["validation"]["records.jsonl"]["rejected"]["compiler_rejected"] == 0
    assert (first.path / QUARANTINE).read_text() == ""
    assert all(pair.source is not None for pair in pairs)


def test_records_that_are_too_many_are_quarantined(corpus: Artifact, store: ArtifactStore) -> None:
    """Another policy makes other pairs; what is not kept is there with its reason."""
    policy = _POLICY.model_copy(update={"max_per_source": 1})
    pairs, was_there = build_validated_pairs(corpus, [], policy, store)
    quarantine = [json.loads(line) for line in (pairs.path / QUARANTINE).read_text().splitlines()]

    assert not was_there
    assert pairs.manifest["num_pairs"] == {PAIRS: 2}
    assert [(row["line"], row["reason"]) for row in quarantine] == [(2, "source_cap"), (3, "source_cap")]
    assert pairs.manifest["validation"]["records.jsonl"]["rejected"]["source_cap"] == 2


def test_pairs_from_elsewhere_are_validated_beside_them(corpus: Artifact, store: ArtifactStore, tmp_path: Path) -> None:
    """Under their own names; exact repetition and rejected code go, likeness is looked at later."""
    rows = [pair_at(None, f"p{number}", "fn f() { }", SourceKind.SYNTHETIC, template="t") for number in (1, 2, 2)]
    write_jsonl(tmp_path / "synthetic.jsonl", [*rows, pair_at(None, "bad", "fn (")])
    write_jsonl(tmp_path / "telemetry.jsonl", [])
    others = [tmp_path / "synthetic.jsonl", tmp_path / "telemetry.jsonl"]
    first, _ = build_validated_pairs(corpus, others, _POLICY, store)
    again, was_there = build_validated_pairs(corpus, others, _POLICY, store)
    write_jsonl(tmp_path / "telemetry.jsonl", rows[:1])
    changed, was_the_same = build_validated_pairs(corpus, others, _POLICY, store)

    assert first.manifest["num_pairs"] == {PAIRS: 4, "synthetic.jsonl": 2, "telemetry.jsonl": 0}
    assert list(read_pairs(first.path / "synthetic.jsonl")) == rows[:2]
    rejected = first.manifest["validation"]["synthetic.jsonl"]["rejected"]
    assert (rejected["duplicate"], rejected["compiler_rejected"]) == (1, 1)
    assert len((first.path / QUARANTINE).read_text().splitlines()) == 2
    assert (was_there, again) == (True, first)
    assert (was_the_same, changed.manifest["num_pairs"]["telemetry.jsonl"]) == (False, 1)
    assert sum(first.manifest["lanes"].values()) == sum(first.manifest["num_pairs"].values())
