"""Choices of a run, resolved before anything is made: a mistake must not show after hours."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import dagster as dg

from mens_pipeline.configured import thresholds_of
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.inference.generation import Decoding, EvaluationConfig
from mens_pipeline.promotion.policy import Thresholds
from mens_pipeline.settings import DOMAINS, EVALUATION, PRESETS, RECIPES, Settings, recipe_variables
from mens_pipeline.storage.stage import Stage
from mens_pipeline.storage.store import digest_of, key_of
from mens_pipeline.storage.yaml_file import load_model
from mens_pipeline.training.devices import Device
from mens_pipeline.training.named_recipes import DEFAULT, load_recipes, recipe_called
from mens_pipeline.training.presets import ResolvedRecipe, load_named, resolve_recipe

OWNERS: Final = ("team:mens",)
"""Of every asset that is made; sources belong to those who write them."""

GPU_TAGS: Final = {"mens/device": "gpu"}
"""Of steps that want a GPU, for launchers that choose a machine by the tags of a step."""

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
    """Read everything that a run is made and judged by; without preset or domain, those of the recipe hold.

    Raises:
        ConfigurationError: A name is unknown, or values do not hold together.
    """
    chosen = recipe_called(recipe, load_recipes(RECIPES))
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
        resolved, demanded(settings, benchmark_min_pass_rate), load_model(EVALUATION, EvaluationConfig).decoding
    )


def configured(stage: Stage, *paths: Path) -> str:
    """Return the code version of an asset that configuration decides as well: another file makes it stale."""
    contents = {path.name: digest_of(path) for path in paths if path.is_file()}
    return key_of({"code": stage.code_version, "configuration": contents})


def config_of(run: dg.DagsterRun, op: str) -> dict[str, Any]:
    """Return the configuration that a run gave to one of its steps."""
    ops: Any = run.run_config.get("ops", {})
    config: dict[str, Any] = ops.get(op, {}).get("config", {})
    return config


def demanded(settings: Settings, benchmark_min_pass_rate: float | None) -> Thresholds:
    """Return the thresholds that an adapter must meet in a run.

    Raises:
        ConfigurationError: There is no such policy, or the bar cannot be.
    """
    if benchmark_min_pass_rate and not settings.benchmark:
        advice = "Unset VOX_BENCHMARK, or leave benchmark_min_pass_rate out."
        raise ConfigurationError(f"VOX_BENCHMARK=0: the benchmark has no say. {advice}")
    return thresholds_of(settings).raised(benchmark_min_pass_rate)
