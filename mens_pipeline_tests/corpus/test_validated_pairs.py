"""The validated pairs as an artifact."""

from pathlib import Path

from mens_pipeline.corpus.extracted_corpus import build_extracted_corpus
from mens_pipeline.corpus.store import ArtifactStore
from mens_pipeline.corpus.training_pair import TrainingPair
from mens_pipeline.corpus.validated_pairs import PAIRS, QUARANTINE, build_validated_pairs


def test_pairs_are_made_once_and_counted(tmp_path: Path) -> None:
    """Every record gives a pair, each is judged again, and an unchanged corpus gives the same folder."""
    root = tmp_path / "workspace"
    root.mkdir()
    (root / "a.vox").write_text("fn a() { }\n@table type T { n: int }\n")
    (root / "p.md").write_text("---\ntraining_eligible: true\n---\n## Heading\n\n" + "word " * 40 + "\n")
    store = ArtifactStore(tmp_path / "store")
    corpus, _ = build_extracted_corpus(root, store)
    first, first_reused = build_validated_pairs(corpus, store)
    second, second_reused = build_validated_pairs(corpus, store)
    lines = (first.path / PAIRS).read_text().splitlines()

    assert (first_reused, second_reused, second) == (False, True, first)
    assert first.manifest["num_pairs"] == len(lines) == corpus.manifest["num_records"] == 4
    assert first.manifest["lanes"] == {"vox_codegen": 3, "vox_docs_qa": 1}
    assert first.manifest["categories"] == {"documentation": 1, "function": 1, "table": 2}
    assert first.manifest["validation"]["rejected"]["compiler_rejected"] == 0
    assert (first.path / QUARANTINE).read_text() == ""
    assert all(TrainingPair.model_validate_json(line).source is not None for line in lines)
