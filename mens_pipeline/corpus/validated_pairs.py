"""The validated pairs as an artifact: made from an extracted corpus, every row judged again."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import mens_pipeline.language
from mens_pipeline.corpus.extracted_corpus import RECORDS
from mens_pipeline.corpus.jsonl import open_rows, read_records, write_jsonl
from mens_pipeline.corpus.pairs import make_pairs
from mens_pipeline.corpus.store import Artifact, ArtifactStore
from mens_pipeline.corpus.training_pair import TrainingPair
from mens_pipeline.corpus.validate import Quarantined, ValidationReport, validate_rows
from mens_pipeline.language.fingerprint import grammar_fingerprint, rules_fingerprint

KIND: Final = "validated_pairs"
PAIRS: Final = "pairs.jsonl"
QUARANTINE: Final = "quarantine.jsonl"

_MAKERS: Final = ("jsonl.py", "pairs.py", "training_pair.py", "validate.py")
"""The files that decide what pairs a corpus gives, beside the wording of requests."""


def build_validated_pairs(corpus: Artifact, store: ArtifactStore) -> tuple[Artifact, bool]:
    """Make and validate the pairs of a corpus, unless the same was done before.

    Args:
        corpus: An extracted corpus.
        store: Where the pairs are kept.

    Returns:
        The pairs, and whether they were reused. The folder holds `pairs.jsonl` and `quarantine.jsonl`; the manifest
        holds the counts.

    Raises:
        RefusedError: The corpus holds a row that is no record.
        ConfigurationError: The store cannot be written.
    """
    inputs = {
        "extracted_corpus": corpus.key,
        "grammar": grammar_fingerprint(),
        "makers": rules_fingerprint(Path(__file__).parent, _MAKERS),
        "requests": rules_fingerprint(Path(mens_pipeline.language.__file__).parent, ("requests.py",)),
    }
    found = store.find(KIND, inputs)
    if found is None:
        with store.writing(KIND, inputs) as draft:
            draft.extra = _write(corpus, draft.path)
    built = found or store.find(KIND, inputs)
    assert built is not None, "what was just written is there"  # noqa: S101 - our own impossibility
    store.point("latest", built)
    return built, found is not None


def _write(corpus: Artifact, folder: Path) -> dict[str, Any]:
    report = ValidationReport(recheck=True)
    refused: list[Quarantined] = []
    lanes: Counter[str] = Counter()
    categories: Counter[str] = Counter()

    def counted(rows: Iterable[object]) -> Iterator[TrainingPair]:
        for row in rows:
            assert isinstance(row, TrainingPair), "pairs stay pairs"  # noqa: S101 - our own impossibility
            lanes[row.lane] += 1
            categories[row.category] += 1
            yield row

    path = corpus.path / RECORDS
    with open_rows(path) as lines:
        rows = (pair.model_dump_json().encode() for pair in make_pairs(read_records(lines, path)))
        num_pairs = write_jsonl(folder / PAIRS, counted(validate_rows(rows, report, refused.append)))
    write_jsonl(folder / QUARANTINE, refused)
    return {
        "num_pairs": num_pairs,
        "validation": report.as_json(),
        "lanes": dict(sorted(lanes.items())),
        "categories": dict(sorted(categories.items())),
    }
