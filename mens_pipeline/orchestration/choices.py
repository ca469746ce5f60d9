"""Choices of a run, resolved first so that a mistake does not surface hours later."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_origin

import dagster as dg
from pydantic import BaseModel, Field, create_model

from mens_pipeline.corpus.curate.mix import load_mix_config
from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.corpus.extract.forgotten import FORGOTTEN, load_forgotten
from mens_pipeline.delivery.retention import load_retention
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.inference.generation import Decoding, EvaluationConfig
from mens_pipeline.jobs.device import Device
from mens_pipeline.orchestration.recipes import TRAINING, config_of, trial_of
from mens_pipeline.promotion.policy import Thresholds, load_gate_policy
from mens_pipeline.settings import (
    DOMAINS,
    EVALUATION,
    GATE_POLICY,
    MIX_CONFIG,
    PIPELINE_CONFIG,
    PRESETS,
    RECIPES,
    RETENTION,
    Settings,
    load_settings,
    read_thresholds,
    recipe_variables,
)
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
from mens_pipeline.training.recipe import Recipe

_READERS: Final[Mapping[str, Callable[[Path], object]]] = {
    PRESETS.name: load_named,
    DOMAINS.name: load_named,
    RECIPES.name: load_recipes,
    FORGOTTEN: load_forgotten,
    PIPELINE_CONFIG.name: load_pipeline_config,
    MIX_CONFIG.name: load_mix_config,
    GATE_POLICY.name: load_gate_policy,
    EVALUATION.name: partial(load_model, model=EvaluationConfig),
    RETENTION.name: load_retention,
}


def check_configuration(folder: Path) -> None:
    """Read all files of a configuration, so that a mistake shows before a run starts.

    A `ConfigurationError` lists every missing or invalid file and every recipe with an unknown preset or domain.
    """
    found: dict[str, Any] = {}
    problems = []
    for name, read in _READERS.items():
        try:
            found[name] = read(folder / name)
        except ConfigurationError as error:
            problems.append(str(error))
    for name, recipe in found.get(RECIPES.name, {}).items():
        for what, path, chosen in (("preset", PRESETS, recipe.preset), ("domain", DOMAINS, recipe.domain)):
            try:
                if path.name in found and chosen not in {None, AUTO}:
                    look_up(found[path.name], chosen, what)
            except ConfigurationError as error:
                problems.append(f"{folder / RECIPES.name}: {name}: {error}")
    if problems:
        raise ConfigurationError("\n".join(problems))


_OF_BASE: Final = ("model_name_or_path", "model_revision")


@dataclass(frozen=True, slots=True)
class Choices:
    """Everything that people decide about a run."""

    resolved: ResolvedRecipe
    thresholds: Thresholds
    decoding: Decoding


def resolve_choices(  # noqa: PLR0913 - options of a run
    settings: Settings,
    device: Device,
    *,
    recipe: str = DEFAULT,
    preset: str | None = None,
    domain: str | None = None,
    overrides: Mapping[str, Any],
    benchmark_min_pass_rate: float | None = None,
) -> Choices:
    """Resolve how a run trains and evaluates; preset and domain default to those of the recipe."""
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
            advice = f"Set MENS_TRAIN_{field.upper()}, which base_model also reads, or set it in config/recipes.yaml."
            raise ConfigurationError(f"{field} ({origin}): in the graph, the base is a separate asset. {advice}")
    return Choices(
        resolved,
        required_thresholds(settings, benchmark_min_pass_rate),
        load_model(EVALUATION, EvaluationConfig).decoding,
    )


def settings_of(run: dg.DagsterRun) -> Settings:
    """Return the settings of a run; a trial uses the policy `trial`."""
    settings = load_settings()
    return settings if trial_of(run) is None else settings.model_copy(update={"eval_policy": "trial"})


def required_thresholds(settings: Settings, benchmark_min_pass_rate: float | None) -> Thresholds:
    """Return the thresholds for an adapter in a run; `ConfigurationError` if policy or pass rate are invalid."""
    if benchmark_min_pass_rate and not settings.benchmark:
        advice = "Unset VOX_BENCHMARK, or leave benchmark_min_pass_rate out."
        raise ConfigurationError(f"VOX_BENCHMARK=0: the gate ignores the benchmark. {advice}")
    return read_thresholds(settings).raise_benchmark(benchmark_min_pass_rate)


OF_RECIPE: Final = "of_recipe"
"""Value of `preset` or `domain` that selects the recipe's own."""

# The names that existed when the code location was loaded. Dagster names such a type after its values, so the launchpad
# offers them and, before a run starts, rejects any other value with a list of them.
if TYPE_CHECKING:
    _Recipe = str
    _Preset = str
    _Domain = str
else:
    _Recipe = Literal[tuple(load_recipes(RECIPES))]
    _Preset = Literal[(OF_RECIPE, AUTO, *load_named(PRESETS))]
    _Domain = Literal[(OF_RECIPE, *load_named(DOMAINS))]


def overrides_of(recipe: type[BaseModel], *left_out: str) -> type[dg.Config]:
    """Return a run configuration in which every field of a recipe is optional and defaults to None."""
    fields: dict[str, Any] = {
        name: (_written_type(field.annotation) | None, Field(default=None, description=field.description))
        for name, field in recipe.model_fields.items()
        if name not in left_out
    }
    return create_model(f"{recipe.__name__}Overrides", __base__=dg.Config, **fields)


def _written_type(annotation: Any) -> Any:
    kinds = [type(value) for value in get_args(annotation)] if get_origin(annotation) is Literal else [annotation]
    kinds = [*get_args(annotation)] if isinstance(annotation, UnionType) else kinds
    return next((kind for kind in (bool, int, float) if kind in kinds), str)


def fields_in(overrides: dg.Config) -> dict[str, Any]:
    """Return the recipe fields that a run sets."""
    return overrides.model_dump(exclude_none=True)


_Overrides = overrides_of(Recipe, *_OF_BASE)


class TrainConfig(dg.Config):
    """Run configuration of the training."""

    recipe: _Recipe = Field(
        default=DEFAULT, description="Recipe of config/recipes.yaml; in a partitioned run `default` is its partition."
    )
    preset: _Preset = Field(default=OF_RECIPE, description="Preset of config/presets.yaml; `auto` picks by memory.")
    domain: _Domain = Field(default=OF_RECIPE, description="Rows to train on, by config/domains.yaml.")
    overrides: _Overrides = Field(default=_Overrides(), description="Recipe fields to set.")  # type: ignore[valid-type]
    more_minutes: list[float] | None = Field(
        default=None,
        description="Minutes of further training after the run; each entry has its own learning-rate schedule.",
    )
    force_train: bool = Field(default=False, description="Train even if nothing has changed.")
    native_train: bool | None = Field(default=None, description="There is only one trainer; false is refused.")

    def preset_and_domain(self) -> dict[str, str]:
        """Return the preset and domain that the run chooses itself."""
        chosen = {"preset": self.preset, "domain": self.domain}
        return {name: value for name, value in chosen.items() if value != OF_RECIPE}

    def choice(self) -> dict[str, Any]:
        """Return the arguments for `resolve_choices`."""
        return {"recipe": self.recipe, **self.preset_and_domain(), "overrides": fields_in(self.overrides)}

    def label(self) -> str:
        """Name the recipe, with all changes by the run: `wide`, `default, preset tiny, lora_r 8`."""
        details = [
            f"{name} {value}" for name, value in {**self.preset_and_domain(), **fields_in(self.overrides)}.items()
        ]
        details += [f"{minutes:g} min more" for minutes in self.more_minutes or ()]
        return ", ".join([self.recipe, *details])


def training_of(context: dg.AssetExecutionContext) -> TrainConfig:
    """Return the training configuration of a run; in a partitioned run the partition names the recipe.

    `dagster.Failure`, without a retry, if configuration and partition name two recipes, or a value is invalid.
    """
    config = TrainConfig(**config_of(context.run, TRAINING))
    if config.native_train is False:
        advice = "Leave native_train out. Run: mens train --backend qlora --data-dir DIR --output-dir DIR --preset auto"
        message = f"native_train is false, but this project has only a QLoRA trainer. {advice}"
        raise dg.Failure(message, allow_retries=False)
    if not all(0 < minutes < math.inf for minutes in config.more_minutes or ()):
        raise dg.Failure(f"more_minutes is {config.more_minutes}. Use minutes above 0.", allow_retries=False)
    partition = context.partition_key if context.has_partition_key else None
    if partition is not None and config.recipe not in {DEFAULT, partition}:
        message = f"the run has the partition {partition}, but its configuration names the recipe {config.recipe}."
        raise dg.Failure(f"{message} Leave one of them out.", allow_retries=False)
    return config if partition is None else config.model_copy(update={"recipe": partition})


def choices_of(context: dg.AssetExecutionContext, device: Device) -> Choices:
    """Resolve the choices of a run for training and evaluation; errors as in `resolve_choices` and `training_of`."""
    return resolve_choices(
        load_settings(),
        device,
        **training_of(context).choice(),
        benchmark_min_pass_rate=config_of(context.run, "benchmark_gate").get("benchmark_min_pass_rate"),
    )
