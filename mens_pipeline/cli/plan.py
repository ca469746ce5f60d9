"""`mens plan`: minutes of a run, before anything runs."""

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import typer

from mens_pipeline.cli.options import declare_options, option, switch
from mens_pipeline.cli.terminal import align_columns, log_line, show
from mens_pipeline.jobs.local import run_job
from mens_pipeline.settings import PRESETS, Settings, load_settings

if TYPE_CHECKING:
    from mens_pipeline.orchestration.estimate import PresetEstimate
    from mens_pipeline.orchestration.forecast import RunPlan

_GIGABYTE: Final = 1024
_BASE_OF_GPUS: Final = "Qwen/Qwen3.5-4B"


def settings_with(source_root: Path | None) -> Settings:
    """Return the settings, with the workspace that a command was given."""
    settings = load_settings()
    if source_root is not None:
        settings = settings.model_copy(update={"source_root": source_root})
    if not settings.source_root.is_dir():
        advice = "Name a Vox workspace with --source-root or MENS_SOURCE_ROOT."
        raise typer.BadParameter(f"{settings.source_root}: no such folder. {advice}")
    return settings


def lines_of(plan: "RunPlan") -> Iterator[str]:
    """Yield a plan as a table: a line for each stage, and one for all of them."""
    rows = [(stage.name, stage.does, stage.seconds) for stage in plan.stages]
    rows.append(("all", "", sum(stage.seconds for stage in plan.stages)))
    head = ("stage", "what", "minutes")
    yield from align_columns([head, *((name, does, f"{seconds / 60:.1f}") for name, does, seconds in rows)])
    if plan.note:
        yield f"note: {plan.note}"


def _preset_lines(estimates: "list[PresetEstimate]") -> Iterator[str]:
    rows = [["preset", "GPU", "steps", "tokens a step", "learning rate", "training", "evaluation", "memory"]]
    for one in estimates:
        row = [f"{one.rows.num_steps:,}", f"{one.rows.step:,.0f}", f"{one.recipe.learning_rate:g}"]
        times = [f"{seconds / 60:.0f} min" for seconds in (one.training, one.evaluation)]
        sizes = [*times, f"{one.memory_mb / _GIGABYTE:.1f} GB"] if one.gpu is not None else ["-"] * 3
        rows.append([one.preset, one.gpu or "-", *row, *sizes])
    yield from align_columns(rows)


@declare_options
def plan(
    *,
    recipe: str | None = option(None, "Of config/recipes.yaml [default: default].", metavar="NAME"),
    preset: str | None = option(None, "Of config/presets.yaml [default: that of the recipe].", metavar="NAME"),
    minutes: float | None = option(
        None, "What `mens run --minutes` would do with so many.", metavar="M", ge=0.1, le=100_000
    ),
    source_root: Path | None = option(
        None, "The Vox workspace [default: MENS_SOURCE_ROOT, else this repository's data]."
    ),
    as_json: bool = switch("Print the plan as one JSON document.", "--json"),
) -> None:
    """Say what a run of the whole graph takes here, what each preset trains on, and what it takes on its GPU.

    The train set must be in the store and the base on this machine: a few steps of training and some completions are
    measured, which takes seconds to a minute. What is said of GPUs is arithmetic: sizes of the model, and data sheets.
    Nothing is made.

    Exit code 0: it is planned. 1: train set or base is missing, the minutes are too few, or a probe failed. 2: the
    command was misused.
    """
    from mens_pipeline.models.find_base import base_by_name
    from mens_pipeline.orchestration.estimate import estimate_presets
    from mens_pipeline.orchestration.forecast import Planner
    from mens_pipeline.orchestration.resources import Compute
    from mens_pipeline.training.presets import load_named

    settings = settings_with(source_root)
    named = {"recipe": recipe, "preset": preset}
    choice = {name: value for name, value in named.items() if value is not None}
    planner = Planner(settings, Compute().resolve(), run_job, log_line, choice, {}, minutes, perf_counter())
    found, counts = planner.plan(is_kept=False)
    presets = {preset: all_of[preset]} if (all_of := load_named(PRESETS)) and preset in all_of else all_of
    estimates = list(estimate_presets(presets, base_by_name(_BASE_OF_GPUS), counts.tokens, counts.suite))
    document: dict[str, Any] = {
        **found.model_dump(mode="json", include={"stages", "note", "dial"}),
        "presets": {
            one.preset: {
                "gpu": one.gpu,
                "steps": one.rows.num_steps,
                "tokens_per_step": one.rows.step,
                "learning_rate": one.recipe.learning_rate,
                "seconds": one.training + one.evaluation if one.gpu else None,
            }
            for one in estimates
        },
    }

    def lines() -> Iterator[str]:
        yield from lines_of(found)
        yield ""
        yield f"presets, with {_BASE_OF_GPUS} on the GPU that `auto` picks each for: estimated from data sheets"
        yield from _preset_lines(estimates)

    show(document, lines(), as_json=as_json)
