"""`mens` on the seed data with a base model small enough for every night's tests."""

import subprocess
import sys
from pathlib import Path

from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.training.environment import own_environment
from mens_pipeline_tests.training.runs import FAST

_EXAM = "max_new_tokens: 100\nbase_tasks: 4\nfew_shot_tasks: 2\nfamily_tasks: 2\n"
_FEEDBACK = (
    "most_prompts: 6\nsamples: 2\nmax_new_tokens: 160\nprompts_at_once: 3\nleast_rows: 2\n"
    "sampling_minutes: 10\ntraining_minutes: 0.2\n"
)
_MENS = """
import sys
from pathlib import Path
from mens_pipeline import settings
settings.EVALUATION, settings.FEEDBACK = Path(sys.argv.pop(1)), Path(sys.argv.pop(1))
from mens_pipeline.cli.main import main
main()
"""
"""`mens` with another exam: to hold what random weights write in full length to the language takes minutes."""


def mens(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command on the base in a folder, which takes all outputs.

    Args:
        folder: With `base`.
        arguments: Of the command.
    """
    recipe = {**FAST, "model_name_or_path": folder / "base", "max_steps": 12, "max_length": 512}
    environment = {
        **own_environment(),
        **{f"MENS_TRAIN_{name.upper()}": str(value) for name, value in recipe.items()},
        "DAGSTER_HOME": str(folder / "home"),
        "MENS_STORE_ROOT": str(folder / "store"),
        "MENS_CACHE_ROOT": str(folder / "cache"),
        "VOX_BACKEND": "cpu",
        "VOX_BENCHMARK": "0",
    }
    files = [folder / "evaluation.yaml", folder / "feedback.yaml"]
    for path, text in zip(files, (_EXAM, _FEEDBACK), strict=True):
        path.write_text(text)
    command = [sys.executable, "-c", _MENS, *map(str, files), *arguments]
    return subprocess.run(command, cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True, check=False)
