"""`mens plan`: minutes, memory, disk, energy and cost of a run, before anything runs."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import typer

from mens_pipeline.cli.options import declare_options, option, switch
from mens_pipeline.cli.terminal import align_columns, log_line, print_line, show
from mens_pipeline.jobs.local import run_job
from mens_pipeline.settings import PRESETS, Settings, load_settings

if TYPE_CHECKING:
    from mens_pipeline.orchestration.estimate import PricedPreset, Stage
    from mens_pipeline.orchestration.forecast import Plan
    from mens_pipeline.orchestration.headless import GraphOutcome

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


def finish_plan(
    root: Path, plan: "Plan", made_in: float | None, outcome: "GraphOutcome", *, as_json: bool
) -> dict[str, Any]:
    """Keep what a run took beside its plan in the store, and print both; return both for a document.

    `made_in` are the seconds that the train set took before the plan.
    """
    from mens_pipeline.orchestration.estimate import CORPUS
    from mens_pipeline.orchestration.forecast import actual_seconds, add_plan

    actual = actual_seconds(outcome.step_seconds, outcome.figures)
    actual[CORPUS] = actual.get(CORPUS, 0.0) + (made_in or 0.0)
    add_plan(root, plan.model_copy(update={"actual": actual}))
    for line in () if as_json else compare_lines(plan.seconds_by_stage, actual):
        print_line(line)
    return {"planned_seconds": plan.seconds_by_stage, "actual_seconds": actual}


def lines_of(plan: "Plan", per_hour: float | None = None, watts: float | None = None) -> Iterator[str]:
    """Yield a plan as a table: a line for each stage, and one for all of them."""
    rows = [["stage", "what", "minutes", "memory", "disk", "energy", "cost", "how known"]]
    parts = [(stage.name, stage.does, stage.basis, (stage,)) for stage in plan.stages]
    for name, does, basis, stages in (*parts, ("all", "", "", plan.stages)):
        minutes = f"{_seconds(stages) / 60:.1f}"
        rows.append([name, does, minutes, *_sizes(stages), *_price(stages, per_hour, watts), basis])
    yield from align_columns(rows)
    if plan.note:
        yield f"note: {plan.note}"


def _preset_lines(priced: "list[PricedPreset]", per_hour: float | None) -> Iterator[str]:
    rows = [["preset", "GPU", "steps", "tokens a step", "learning rate", "training", "evaluation", "all"]]
    rows[0] += ["memory", "disk", "energy", "cost"]
    for preset, recipe, counted, gpu, stages in priced:
        row = [f"{counted.num_steps:,}", f"{counted.step:,.0f}", f"{recipe.learning_rate:g}"]
        if gpu is None:
            rows.append([preset, "-", *row, "not measured", *["-"] * 6])
            continue
        times = [f"{_seconds(some) / 60:.0f} min" for some in (stages[1:2], stages[2:3], stages)]
        sizes = [_sizes(stages[1:2])[0], _sizes(stages)[1]]
        rows.append([preset, gpu.name, *row, *times, *sizes, *_price(stages, per_hour, gpu.watts)])
    yield from align_columns(rows)


def _seconds(stages: "tuple[Stage, ...]") -> float:
    return sum(stage.seconds for stage in stages)


def _sizes(stages: "tuple[Stage, ...]") -> list[str]:
    """Memory of the largest, and disk of all, as text."""
    sizes = max(stage.memory_mb for stage in stages), sum(stage.disk_mb for stage in stages)
    return [f"{size / _GIGABYTE:.1f} GB" if size >= _GIGABYTE else f"{size:.0f} MB" for size in sizes]


def _price(stages: "tuple[Stage, ...]", per_hour: float | None, watts: float | None) -> list[str]:
    """Energy and cost, as text; `-` where watts or a price are not given."""
    energy = "-" if watts is None else f"{watts * _seconds(stages) / 3.6e6:.2f} kWh"
    return [energy, "-" if per_hour is None else f"{per_hour * _seconds(stages) / 3600:.2f}"]


def compare_lines(planned: Mapping[str, float], actual: Mapping[str, float]) -> Iterator[str]:
    """Yield a table of what each stage was planned to take, and what it took; of reused ones only the plan."""
    rows = [["stage", "planned", "actual", "off by"]]
    done = {stage: (planned[stage], actual[stage]) for stage in planned if stage in actual}
    sums = {"all": tuple(map(sum, zip(*done.values(), strict=True)))} if done else {}
    for stage in (*planned, *sums):
        plan, took = {**done, **sums}.get(stage) or (planned[stage], None)
        shown = ["reused", ""] if took is None else [f"{took / 60:.1f} min", f"{100 * (took / plan - 1):+.0f} %"]
        rows.append([stage, f"{plan / 60:.1f} min", *shown])
    yield from align_columns(rows)


@declare_options
def plan(
    *,
    recipe: str | None = option(None, "Of config/recipes.yaml [default: default].", metavar="NAME"),
    preset: str | None = option(None, "Of config/presets.yaml [default: that of the recipe].", metavar="NAME"),
    minutes: float | None = option(
        None, "What `mens run --minutes` would do with so many.", metavar="M", ge=0.1, le=100_000
    ),
    price_per_hour: float | None = option(None, "Of the machine, in any currency.", metavar="X", ge=0),
    watts: float | None = option(None, "That this machine draws at work.", metavar="W", ge=0),
    source_root: Path | None = option(
        None, "The Vox workspace [default: MENS_SOURCE_ROOT, else this repository's data]."
    ),
    as_json: bool = switch("Print the plan as one JSON document.", "--json"),
) -> None:
    """Say what a run of the whole graph takes here, what each preset trains on, and what it takes on its GPU.

    Where the train set is in the store and the base on this machine, a few steps of training and some completions are
    measured, which takes seconds to a minute; else all is arithmetic from products of matrices. Each line says which.
    What is said of GPUs is arithmetic: sizes of the model, and data sheets. Nothing is made.

    Exit code 0: it is planned. 1: the minutes are too few, or a probe failed. 2: the command was misused.
    """
    from mens_pipeline.models.find_base import base_by_name
    from mens_pipeline.orchestration.estimate import price_presets
    from mens_pipeline.orchestration.forecast import Planner
    from mens_pipeline.orchestration.resources import Compute
    from mens_pipeline.training.presets import load_named

    settings = settings_with(source_root)
    named = {"recipe": recipe, "preset": preset}
    choice = {name: value for name, value in named.items() if value is not None}
    device = Compute().resolve()
    found, counts = Planner(settings, device, run_job, log_line, choice, {}, minutes, perf_counter()).plan()
    presets = {preset: all_of[preset]} if (all_of := load_named(PRESETS)) and preset in all_of else all_of
    base, corpus = base_by_name(_BASE_OF_GPUS), found.stages[0].seconds
    priced = list(price_presets(presets, base, counts.tokens, counts.suite, corpus))
    document: dict[str, Any] = {
        "is_measured": found.is_measured,
        "note": found.note,
        "stages": [stage.model_dump() for stage in found.stages],
        "dial": found.dial.model_dump() if found.dial is not None else None,
        "presets": {
            one.preset: {
                "gpu": one.gpu and one.gpu.name,
                "steps": one.rows.num_steps,
                "tokens_per_step": one.rows.step,
                "learning_rate": one.recipe.learning_rate,
                "seconds": _seconds(one.stages) if one.gpu else None,
            }
            for one in priced
        },
    }

    def lines() -> Iterator[str]:
        yield from lines_of(found, price_per_hour, watts)
        if priced:
            yield ""
            yield f"presets, with {_BASE_OF_GPUS} on the GPU that `auto` picks each for: estimated from data sheets"
            yield from _preset_lines(priced, price_per_hour)

    show(document, lines(), as_json=as_json)
