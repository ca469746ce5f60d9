"""A workspace with a history of nine weeks, and a run that can be replayed on it."""

import json
import shutil
from pathlib import Path

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.models.adapter import MANIFEST
from mens_pipeline_tests.corpus.infill.repository import Repository, program


def weekly_history(folder: Path) -> Repository:
    """Thirteen commits of one line each, the last too long for a piece of 16 tokens; and a new file."""
    repository = Repository(folder / "workspace")
    for number in range(1, 13):
        repository.commit("a.vox", program("f", f"    return {number}0\n") + program("g"), days=5 * number)
    long = f"    return {' + '.join(['1'] * 40)}\n"
    repository.commit("a.vox", program("f", long) + program("g"), days=62)
    repository.commit("b.vox", program("b"), days=63)
    return repository


def taught_run(trained: Path, folder: Path, commit: str) -> Path:
    """A copy of a run whose manifest names infill rows and a commit; its held-out pairs are beside it."""
    run = Path(shutil.copytree(trained, folder / "taught" / "run"))
    shutil.copy2(trained.parent / HELDOUT, run.parent / HELDOUT)
    manifest = json.loads((run / MANIFEST).read_text())
    manifest["vcs_sha"] = commit
    manifest["recipe"]["infill_window"] = 64
    manifest["result"]["kinds"] = {"infill": {"tokens_shown": 9, "share": 0.5, "epochs": 1.0}}
    (run / MANIFEST).write_text(json.dumps(manifest))
    return run
