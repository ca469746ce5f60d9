"""`mens plan`: minutes, memory, disk, energy and cost of a run, before anything runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
    from mens_pipeline.orchestration.forecast import Forecast
    from mens_pipeline.orchestration.headless import GraphOutcome
    from mens_pipeline.orchestration.planned import PlanRecord

_GIGABYTE: Final = 1024
_BASE_OF_GPUS: Final = "Qwen/Qwen3.5-4B"


@dataclass(frozen=True)
class Prices:
    """Price of an hour and watts of the machine; None for those that are not given."""

    per_hour: float | None
    watts: float | None

    def cells(self, seconds: float, watts: float | None = None) -> list[str]:
        """Return energy and cost of some seconds, as text."""
        drawn = self.watts if watts is None else watts
        energy = "-" if drawn is None else f"{drawn * seconds / 3.6e6:.2f} kWh"
        cost = "-" if self.per_hour is None else f"{self.per_hour * seconds / 3600:.2f}"
        return [energy, cost]


def plan_here(  # noqa: PLR0917 - what a plan rests on
    settings: Settings,
    choice: Mapping[str, str],
    minutes: float | None,
    overrides: Mapping[str, str],
    began: float,
    corpus: float | None = None,
) -> "Forecast":
    """Plan a run of this machine; minutes count from `began`, by the clock of `perf_counter`.

    Raises:
        RefusedError: The minutes hold nothing, or a probe failed.
        ConfigurationError: A name is unknown, or values do not hold together.
    """
    from mens_pipeline.orchestration.forecast import Asked, look_ahead
    from mens_pipeline.orchestration.resources import Compute

    asked = Asked(choice, overrides, minutes, lambda: perf_counter() - began, corpus)
    return look_ahead(asked, settings, Compute().resolve(), run_job, log_line)


@dataclass(frozen=True)
class PlannedRun:
    """A run with minutes: the root of its store, its plan, and the seconds that its train set took."""

    root: Path
    record: "PlanRecord"
    corpus: float

    def configs(self, training: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return what the assets of the graph are told; `training` is what was asked for besides."""
        dial = self.record.dial
        fields = {name: str(value) for name, value in dial.fields().items()}
        preset = {} if self.record.preset is None else {"preset": self.record.preset}
        adapter = {**training, "overrides": {**training["overrides"], **fields}, **preset}
        return {"qlora_adapter": adapter, "eval_results": {"suite": dial.suite.model_dump()}}

    def finish(self, outcome: "GraphOutcome", *, as_json: bool) -> dict[str, Any]:
        """Keep what a run took beside its plan and print both; return both for a document."""
        from mens_pipeline.orchestration.estimate import CORPUS
        from mens_pipeline.orchestration.planned import actual_seconds, add_plan

        planned, actual = self.record.planned, actual_seconds(outcome.step_seconds, outcome.figures)
        actual[CORPUS] = actual.get(CORPUS, 0.0) + self.corpus
        add_plan(self.root, self.record.model_copy(update={"actual": actual}))
        for line in () if as_json else compare_lines(planned, actual):
            print_line(line)
        return {"planned_seconds": planned, "actual_seconds": actual}


def plan_run(  # noqa: PLR0917 - what a plan rests on
    settings: Settings,
    choice: Mapping[str, str],
    overrides: Mapping[str, str],
    minutes: float | None,
    began: float,
    corpus: float,
) -> PlannedRun:
    """Plan a run with minutes and print the plan; `corpus` are the seconds that its train set took.

    Raises:
        RefusedError: The minutes hold nothing, or a probe failed.
    """
    found = plan_here(settings, choice, minutes, overrides, began, corpus)
    assert found.record is not None, "with minutes there is a record"  # noqa: S101 - our own impossibility
    for line in lines_of(found, Prices(None, None)):
        log_line(line)
    return PlannedRun(settings.store_root, found.record, corpus)


def lines_of(found: "Forecast", prices: Prices) -> Iterator[str]:
    """Yield a plan as a table: a line for each stage, and one for all of them."""
    rows = [["stage", "what", "minutes", "memory", "disk", "energy", "cost", "how known"]]
    rows += [_cells(stage, prices) for stage in found.stages]
    memory, disk = (
        f(getattr(stage, name) for stage in found.stages) for f, name in ((max, "memory_mb"), (sum, "disk_mb"))
    )
    whole = [f"{found.seconds / 60:.1f}", _gigabytes(memory), _gigabytes(disk), *prices.cells(found.seconds)]
    yield from align_columns([*rows, ["all", "", *whole, ""]])
    if found.note:
        yield f"note: {found.note}"


def _cells(stage: "Stage", prices: Prices) -> list[str]:
    sizes = [_gigabytes(stage.memory_mb), _gigabytes(stage.disk_mb)]
    return [stage.name, stage.does, f"{stage.seconds / 60:.1f}", *sizes, *prices.cells(stage.seconds), stage.basis]


def _gigabytes(megabytes: float) -> str:
    return f"{megabytes / _GIGABYTE:.1f} GB" if megabytes >= _GIGABYTE else f"{megabytes:.0f} MB"


def compare_lines(planned: Mapping[str, float], actual: Mapping[str, float]) -> Iterator[str]:
    """Yield a table of what each stage was planned to take, and what it took; of reused ones only the plan."""
    rows = [["stage", "planned", "actual", "off by"]]
    for stage, seconds in planned.items():
        took = actual.get(stage)
        shown = ["reused", ""] if took is None else [f"{took / 60:.1f} min", f"{100 * (took / seconds - 1):+.0f} %"]
        rows.append([stage, f"{seconds / 60:.1f} min", *shown])
    both = [stage for stage in planned if stage in actual]
    if both:
        whole, took = sum(planned[stage] for stage in both), sum(actual[stage] for stage in both)
        rows.append(["all", f"{whole / 60:.1f} min", f"{took / 60:.1f} min", f"{100 * (took / whole - 1):+.0f} %"])
    yield from align_columns(rows)


def _preset_lines(priced: "list[PricedPreset]", prices: Prices) -> Iterator[str]:
    rows = [["preset", "GPU", "training", "evaluation", "all", "memory", "disk", "energy", "cost"]]
    for one in priced:
        minutes = {stage.name: f"{stage.seconds / 60:.0f} min" for stage in one.stages}
        memory = max(stage.memory_mb for stage in one.stages if stage.name == "training")
        disk = sum(stage.disk_mb for stage in one.stages)
        times = [minutes["training"], minutes["evaluation"], f"{one.seconds / 60:.0f} min"]
        sizes = [_gigabytes(memory), _gigabytes(disk)]
        rows.append([one.preset, one.gpu.name, *times, *sizes, *prices.cells(one.seconds, one.gpu.watts)])
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
    """Say what a run of the whole graph takes here and on each preset's GPU; nothing is made.

    Where the train set is in the store and the base on this machine, a few steps of training and some completions are
    measured, which takes seconds to a minute; else all is arithmetic from products of matrices. Each line says which.
    What is said of GPUs is arithmetic: sizes of the model, and data sheets.

    Exit code 0: it is planned. 1: the minutes are too few, or a probe failed. 2: the command was misused.
    """
    from mens_pipeline.orchestration.estimate import CORPUS, price_presets
    from mens_pipeline.orchestration.forecast import base_by_name
    from mens_pipeline.training.presets import load_named

    settings = load_settings()
    if source_root is not None:
        settings = settings.model_copy(update={"source_root": source_root})
    if not settings.source_root.is_dir():
        raise typer.BadParameter(f"{settings.source_root}: no such folder. Name a Vox workspace with --source-root.")
    named = {"recipe": recipe, "preset": preset}
    choice = {name: value for name, value in named.items() if value is not None}
    prices, found = Prices(price_per_hour, watts), plan_here(settings, choice, minutes, {}, perf_counter())
    corpus = next(stage.seconds for stage in found.stages if stage.name == CORPUS)
    presets = {preset: all_of[preset]} if (all_of := load_named(PRESETS)) and preset in all_of else all_of
    priced = list(price_presets(presets, base_by_name(_BASE_OF_GPUS), found.tokens, found.suite, corpus))
    document: dict[str, Any] = {
        "is_measured": found.is_measured,
        "note": found.note,
        "stages": [stage._asdict() for stage in found.stages],
        "dial": found.record.dial.model_dump() if found.record is not None else None,
        "presets": {one.preset: {"gpu": one.gpu.name, "seconds": one.seconds} for one in priced},
    }

    def lines() -> Iterator[str]:
        yield from lines_of(found, prices)
        if priced:
            yield ""
            yield f"presets with {_BASE_OF_GPUS} on the GPU that each is for, all estimated from data sheets"
            yield from _preset_lines(priced, prices)

    show(document, lines(), as_json=as_json)
