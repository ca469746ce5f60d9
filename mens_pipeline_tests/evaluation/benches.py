"""Small benchmarks, each in its own folder."""

import json
from pathlib import Path
from typing import Any

from mens_pipeline.settings import PROJECT_ROOT

SHIPPED = PROJECT_ROOT / "data" / "heldout_bench"

SOLUTION = "fn one() to int {\n    return 1\n}\n"


def task(**changes: Any) -> dict[str, Any]:
    """A valid task with changes; a change to None removes the key."""
    whole = {
        "id": "fn_one",
        "category": "function",
        "description": "Write a function `one` that returns 1.",
        "requires": [{"construct": "function", "name": "one", "returns": "int"}],
        "semantic_expected_contains": ["return"],
        "provenance": "Ours.",
        "solution": "one.vox",
        **changes,
    }
    return {key: value for key, value in whole.items() if value is not None}


def write_bench(folder: Path, *tasks: dict[str, Any], **changes: Any) -> Path:
    """A benchmark of these tasks, with the file `one.vox`."""
    manifest = {"schema": "vox_mens_bench_manifest_v1", "description": "Small.", "benchmarks": tasks, **changes}
    folder.mkdir(exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "one.vox").write_text(SOLUTION)
    return folder
