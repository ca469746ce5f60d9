"""The synthetic pairs as an artifact."""

import json
from pathlib import Path

from mens_pipeline.corpus.curate.pipeline_config import KindShares, SynthesizePolicy
from mens_pipeline.corpus.extract.extracted_corpus import build_extracted_corpus
from mens_pipeline.corpus.schema.reading import read_pairs
from mens_pipeline.corpus.synthesis.synthetic_corpus import PAIRS, REPORT, build_synthetic_corpus, write_synthetic
from mens_pipeline.storage.store import ArtifactStore

_SHARES = KindShares(task=0, template=0.5, combination=0.5, mutation=0, repair=0)


def test_pairs_are_made_once_for_a_corpus_and_a_policy(tmp_path: Path) -> None:
    """The report counts them; another seed makes others."""
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "a.vox").write_text("fn a(n: int) to int { return n * 7 }\n")
    store = ArtifactStore(tmp_path / "store")
    corpus, _ = build_extracted_corpus(tmp_path / "workspace", store)
    policies = [SynthesizePolicy(limit=4, seed=seed, shares=_SHARES) for seed in (0, 0, 1)]
    (first, _), (same, is_reused), (other, is_other_reused) = (
        build_synthetic_corpus(corpus, policy, store) for policy in policies
    )
    report = json.loads((first.path / REPORT).read_text())

    assert (same, is_reused, is_other_reused) == (first, True, False)
    assert len(list(read_pairs(first.path / PAIRS))) == 4
    assert list(read_pairs(first.path / PAIRS)) != list(read_pairs(other.path / PAIRS))
    assert {key: value for key, value in report.items() if key != "templates"}.items() <= first.manifest.items()


def test_whoever_waits_hears_of_every_pair(tmp_path: Path) -> None:
    """As it is made."""
    heard: list[int] = []
    policy = SynthesizePolicy(limit=4, seed=0, shares=_SHARES)
    write_synthetic(tmp_path / "pairs.jsonl", [], policy, progress=heard.append)

    assert heard == [1, 2, 3, 4]
