"""From pairs to a job."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from mens_pipeline.storage.jsonl import write_text
from mens_pipeline.training.devices import Device
from mens_pipeline.training.job import Continued
from mens_pipeline.training.preference.job import STAGE, PreferenceJob
from mens_pipeline.training.prepare import PreparedRun, prepare_run
from mens_pipeline.training.presets import ResolvedRecipe


def prepare_preference(  # noqa: PLR0913 - all that decides a run
    resolved: ResolvedRecipe,
    pairs: Path,
    folder: Path | Callable[[str], Path],
    device: Device,
    *,
    beta: float,
    cache: Path,
    say: Callable[[str], None],
    continues: Continued,
) -> PreparedRun:
    """Look at everything that a run on pairs needs, and write its job, its contract and its preflight.

    Args:
        resolved: The recipe.
        pairs: Rows of `PreferencePair`, one a line.
        folder: Where everything of the run goes, perhaps by the hash of its contract.
        device: What it trains on.
        beta: How far it holds to the adapter that it goes on from.
        cache: Where converted base models and locks are kept.
        say: Takes a line about what is done, for a person.
        continues: That adapter.

    Raises:
        RefusedError: Something is not as it must be.
    """
    besides = {"preference": {"beta": beta, "code": STAGE.code_version}}
    run = prepare_run(
        resolved, pairs, folder, device, cache=cache, min_rows=1, say=say, continues=continues, besides=besides
    )
    job = PreferenceJob(**dict(run.job), beta=beta)
    write_text(run.job_path, job.model_dump_json(indent=2) + "\n")
    return replace(run, job=job)
