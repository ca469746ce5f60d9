"""The extracted corpus as an artifact: built when its inputs are new, reused when they are not."""

import json
from pathlib import Path
from typing import Any, Final

from mens_pipeline.corpus.drops import Drop, Tally, Unit
from mens_pipeline.corpus.extract import commit_of, extract_workspace
from mens_pipeline.corpus.jsonl import write_jsonl
from mens_pipeline.corpus.source_roots import FILE_NAME
from mens_pipeline.corpus.sources import PAGE_SUFFIXES, VOX_SUFFIXES, files_below, tree_fingerprint
from mens_pipeline.corpus.store import Artifact, ArtifactStore
from mens_pipeline.language.fingerprint import grammar_fingerprint, rules_fingerprint

KIND: Final = "extracted_corpus"
RECORDS: Final = "records.jsonl"
REPORT: Final = "report.json"

_EXTRACTOR: Final = (
    *("code_record.py", "dependencies.py", "drops.py", "extract*.py", "frontmatter.py", "includes.py", "jsonl.py"),
    *("metadata_comments.py", "page.py", "records.py", "source_*.py", "sources.py"),
)
"""The files that decide what an extraction gives."""


def build_extracted_corpus(root: Path, store: ArtifactStore) -> tuple[Artifact, bool]:
    """Extract a workspace into the store, unless the same was extracted before.

    Args:
        root: The workspace.
        store: Where the corpus is kept.

    Returns:
        The corpus, and whether it was reused. Its folder holds `records.jsonl` and `report.json`.

    Raises:
        SourceNotFoundError: `root` is no folder.
        ConfigurationError: `examples.ssot.v1.yaml` does not hold together, or the store cannot be written.
    """
    inputs = inputs_of(root)
    found = store.find(KIND, inputs)
    if found is not None:
        store.point("latest", found)
        return found, True
    tally = Tally()
    drops: list[Drop] = []
    with store.writing(KIND, inputs) as draft:
        records = extract_workspace(root, tally, drops.append, inputs["commit"])
        num_records = write_jsonl(draft.path / RECORDS, records)
        report = {**account(tally, num_records), "drops": [drop_fields(drop) for drop in drops]}
        (draft.path / REPORT).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        draft.extra = account(tally, num_records)
    built = store.find(KIND, inputs)
    assert built is not None, "what was just written is there"  # noqa: S101 - our own impossibility
    store.point("latest", built)
    return built, False


def inputs_of(root: Path) -> dict[str, Any]:
    """All that decides what an extraction gives: contents, rules, commit.

    Args:
        root: The workspace.
    """
    files = files_below(root, (*VOX_SUFFIXES, *PAGE_SUFFIXES, FILE_NAME))
    return {
        "sources": tree_fingerprint(root, files),
        "grammar": grammar_fingerprint(),
        "extractor": rules_fingerprint(Path(__file__).parent, _EXTRACTOR),
        "commit": commit_of(root),
    }


def account(tally: Tally, num_records: int) -> dict[str, Any]:
    """The counts of an extraction in JSON types.

    Args:
        tally: What was seen, kept and dropped.
        num_records: Records written.
    """
    units = {
        str(unit): {"seen": tally.seen[unit], "kept": tally.kept[unit], "dropped": tally.reasons(unit)} for unit in Unit
    }
    return {"num_records": num_records, "units": units}


def drop_fields(drop: Drop) -> dict[str, Any]:
    """A drop in JSON types.

    Args:
        drop: What does not train.
    """
    return {
        "unit": str(drop.unit),
        "path": drop.path,
        "line": drop.line,
        "reason": str(drop.reason),
        "detail": drop.detail,
    }
