"""Choices of a run and the tags that state them; resolved first, since a mistake must not show after hours."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import dagster as dg
from dagster._core.storage.tags import PARTITION_NAME_TAG
from pydantic import Field

from mens_pipeline.configured import thresholds_of
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.inference.generation import Decoding, EvaluationConfig
from mens_pipeline.jobs.device import Device
from mens_pipeline.promotion.policy import Thresholds
from mens_pipeline.settings import DOMAINS, EVALUATION, PRESETS, RECIPES, Settings, load_settings, recipe_variables
from mens_pipeline.storage.yaml_file import load_model
from mens_pipeline.training.presets import (
    AUTO,
    DEFAULT,
    ResolvedRecipe,
    load_named,
    load_recipes,
    look_up,
    resolve_recipe,
)

_OF_BASE: Final = ("model_name_or_path", "model_revision")


@dataclass(frozen=True, slots=True)
class Choices:
    """All that people decide of a run."""

    resolved: ResolvedRecipe
    thresholds: Thresholds
    decoding: Decoding


def resolve_choices(  # noqa: PLR0913 - what a run can be told
    settings: Settings,
    device: Device,
    *,
    recipe: str = DEFAULT,
    preset: str | None = None,
    domain: str | None = None,
    overrides: Mapping[str, str],
    benchmark_min_pass_rate: float | None = None,
) -> Choices:
    """Read everything that decides how a run trains and evaluates; without preset or domain, those of the recipe hold.

    Raises:
        ConfigurationError: A name is unknown, or values do not hold together.
    """
    chosen = look_up(load_recipes(RECIPES), recipe, "recipe")
    resolved = resolve_recipe(
        load_named(PRESETS),
        load_named(DOMAINS),
        preset=preset or chosen.preset,
        domain=domain or chosen.domain,
        named=(recipe, chosen.values()),
        environment=recipe_variables(),
        flags=overrides,
        vram_gb=device.preset_gb,
    )
    for field in _OF_BASE:
        origin = resolved.origins[field]
        if origin not in {"environment", "default", f"preset {resolved.preset}", f"recipe {recipe}"}:
            advice = (
                f"Set MENS_TRAIN_{field.upper()}, which base_model reads as well, or name it in config/recipes.yaml."
            )
            raise ConfigurationError(f"{field} ({origin}): in the graph the base is an asset of its own. {advice}")
    return Choices(
        resolved,
        required_thresholds(settings, benchmark_min_pass_rate),
        load_model(EVALUATION, EvaluationConfig).decoding,
    )


def config_of(run: dg.DagsterRun, op: str) -> dict[str, Any]:
    """Return the configuration that a run gave to one of its steps."""
    ops: Any = run.run_config.get("ops", {})
    config: dict[str, Any] = ops.get(op, {}).get("config", {})
    return config


def required_thresholds(settings: Settings, benchmark_min_pass_rate: float | None) -> Thresholds:
    """Return the thresholds that an adapter must meet in a run.

    Raises:
        ConfigurationError: There is no such policy, or the bar cannot be.
    """
    if benchmark_min_pass_rate and not settings.benchmark:
        advice = "Unset VOX_BENCHMARK, or leave benchmark_min_pass_rate out."
        raise ConfigurationError(f"VOX_BENCHMARK=0: the benchmark has no say. {advice}")
    return thresholds_of(settings).raise_benchmark(benchmark_min_pass_rate)


_TRAINING: Final = "qlora_adapter"

Preset = StrEnum("Preset", {name: name for name in (AUTO, *load_named(PRESETS))})  # type: ignore[misc] # of a file
"""The presets there were when the code location was loaded; the launchpad refuses others before a run begins."""

Recipe = StrEnum("Recipe", {name: name for name in load_recipes(RECIPES)})  # type: ignore[misc] # of a file
"""Likewise the recipes."""

Domain = StrEnum("Domain", {name: name for name in load_named(DOMAINS)})  # type: ignore[misc] # of a file
"""Likewise the domains."""


class TrainConfig(dg.Config):
    """Run configuration of the training."""

    recipe: Recipe | None = Field(
        default=None, description="A recipe of config/recipes.yaml; left out, the partition of the run, else `default`."
    )
    preset: Preset | None = Field(
        default=None, description="Of config/presets.yaml, `auto` by memory; left out, that of the recipe."
    )
    domain: Domain | None = Field(default=None, description="Which rows; config/domains.yaml.")
    overrides: dict[str, str] = Field(default={}, description="Fields of the recipe.")
    devices: int | None = Field(default=None, description="GPUs that share each step; else what the preset says.")
    more_minutes: list[float] = Field(
        default=[], description="Minutes by which the same run goes on after its end, each with a schedule of its own."
    )
    force_train: bool = Field(default=False, description="Train although nothing has changed.")
    native_train: bool = Field(default=True, description="There is one trainer; false is a refusal.")

    def flags(self) -> dict[str, str]:
        """Return the fields of the recipe, as a person writes them."""
        return self.overrides if self.devices is None else {**self.overrides, "devices": str(self.devices)}

    def choice(self) -> dict[str, Any]:
        """Return what `resolve_choices` takes of it."""
        return {
            "recipe": str(self.recipe or DEFAULT),  # tags and metadata take no enum of ours
            "preset": None if self.preset is None else str(self.preset),
            "domain": None if self.domain is None else str(self.domain),
            "overrides": self.flags(),
        }

    def label(self) -> str:
        """Name the recipe, with all that the run changes of it: `wide`, `default, preset tiny, lora_r 8`."""
        changes = {"preset": self.preset, "domain": self.domain, **self.flags()}
        details = [f"{name} {value}" for name, value in changes.items() if value is not None]
        details += [f"{minutes:g} min more" for minutes in self.more_minutes]
        return ", ".join([str(self.recipe or DEFAULT), *details])


def training_of(context: dg.AssetExecutionContext) -> TrainConfig:
    """Return the training configuration of a run; of a partitioned run, its partition is the recipe.

    Raises:
        dagster.Failure: It asks for what there is not, or configuration and partition name two recipes; nothing is
            retried.
    """
    config = TrainConfig(**config_of(context.run, _TRAINING))
    if not config.native_train:
        advice = "Leave native_train out. Run: mens train --backend qlora --data-dir DIR --output-dir DIR --preset auto"
        message = f"native_train is false, and there is no other trainer than the QLoRA one of this project. {advice}"
        raise dg.Failure(message, allow_retries=False)
    if not all(0 < minutes < math.inf for minutes in config.more_minutes):
        raise dg.Failure(f"more_minutes is {config.more_minutes}. Write minutes above 0.", allow_retries=False)
    partition = context.run.tags.get(PARTITION_NAME_TAG)
    if partition is not None and config.recipe not in {None, partition}:
        message = f"the run is of the partition {partition}, and its configuration names the recipe {config.recipe}."
        raise dg.Failure(f"{message} Leave one of them out.", allow_retries=False)
    return config if partition is None else config.model_copy(update={"recipe": Recipe(partition)})


def choices_of(context: dg.AssetExecutionContext, device: Device) -> Choices:
    """Resolve the configuration of a run for training and judging.

    Raises:
        ConfigurationError: A name is unknown, or values do not hold together.
        dagster.Failure: As `training_of`.
    """
    return resolve_choices(
        load_settings(),
        device,
        **training_of(context).choice(),
        benchmark_min_pass_rate=config_of(context.run, "benchmark_gate").get("benchmark_min_pass_rate"),
    )
