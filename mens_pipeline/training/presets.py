"""Presets, domains and named recipes, merged into one recipe: flags win over environment, recipe, preset and domain."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import Field, RootModel, StringConstraints, ValidationError, model_validator

from mens_pipeline.errors import ConfigurationError, did_you_mean
from mens_pipeline.storage.validation import Strict, list_errors
from mens_pipeline.storage.yaml_file import load_model, load_yaml
from mens_pipeline.training.recipe import Recipe

AUTO: Final = "auto"
_ABOUT: Final = "about"
_MIN_VRAM: Final = "min_vram_gb"
_VRAM_SLACK: Final = 1.0
"""Gigabytes that a GPU may report below its nominal memory."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A preset or a domain: fields of the recipe, and the minimum GPU memory for `auto` to choose it; None: never."""

    about: str
    values: dict[str, Any]
    min_vram_gb: float | None = None


@dataclass(frozen=True, slots=True)
class ResolvedRecipe:
    """A recipe with its preset and domain, and the origin of each value.

    An origin is `flag` or the flag itself, `environment`, `recipe NAME`, `preset NAME`, `domain NAME` or `default`.
    `name` is the name of the recipe, with the changes of a run (`wide, lora_r 8`); None outside the graph.
    """

    recipe: Recipe
    origins: dict[str, str]
    preset: str | None
    domain: str | None
    name: str | None = None

    def change(self, origin: str, **values: Any) -> Self:
        """Return a copy with other values of some fields, from an origin."""
        recipe = self.recipe.model_copy(update=values)
        return replace(self, recipe=recipe, origins=self.origins | dict.fromkeys(values, origin))

    def as_json(self) -> dict[str, Any]:
        """Return the fields for manifest and preflight, in JSON types."""
        return {
            "recipe": self.recipe.model_dump(mode="json"),
            "recipe_origins": self.origins,
            "recipe_name": self.name,
            "preset": self.preset,
            "domain": self.domain,
        }


def load_named(path: Path) -> dict[str, Preset]:
    """Load all presets or domains of a file; raise ConfigurationError with all errors in it."""
    content = load_yaml(path)
    if not isinstance(content, dict) or not all(isinstance(values, dict) for values in content.values()):
        raise ConfigurationError(f"{path}: not a mapping of names to settings. Correct the file.")
    named = {str(name): _to_preset(values) for name, values in content.items()}
    errors = [f"{name}.{error}" for name, entry in named.items() for error in recipe_errors(entry.values)]
    errors += [
        f"{name}.{_MIN_VRAM}: {entry.min_vram_gb!r} is not a number of gigabytes"
        for name, entry in named.items()
        if not isinstance(entry.min_vram_gb, int | float | None)
    ]
    if errors:
        raise ConfigurationError(f"{path}: {'; '.join(errors)}. Correct the file.")
    return named


def recipe_errors(values: Mapping[str, Any]) -> list[str]:
    """List the errors of some fields of a recipe: ``lora_rr: unknown (did you mean `lora_r`?)``."""
    try:
        Recipe.model_validate(values)
    except ValidationError as error:
        found, sentences = error.errors(), list_errors(error, Recipe)
    else:
        return []
    wrong = {str(item["loc"][0]) for item in found if item["loc"]}
    if wrong:  # pydantic checks combinations of fields only if each field is valid
        others = recipe_errors({field: value for field, value in values.items() if field not in wrong})
        sentences += [other for other in others if not any(field in other for field in wrong)]
    return sentences


def resolve_recipe(  # noqa: PLR0913 - where values can come from
    presets: Mapping[str, Preset],
    domains: Mapping[str, Preset],
    *,
    preset: str | None,
    domain: str | None,
    environment: Mapping[str, str],
    flags: Mapping[str, Any],
    vram_gb: float | None = None,
    flag_names: Mapping[str, str] = MappingProxyType({}),
    named: tuple[str, Mapping[str, Any]] = ("none", MappingProxyType({})),
) -> ResolvedRecipe:
    """Build a recipe; flags win over environment, named recipe, preset, domain and defaults, in this order.

    The preset `auto` is the largest preset for a GPU of `vram_gb` gigabytes. `environment` maps fields to the texts of
    the MENS_TRAIN_* variables, `flags` to values, and `flag_names` to the options as typed: `--rank`. A
    `ConfigurationError` lists all errors.
    """
    if preset == AUTO:
        preset = pick_preset(presets, vram_gb)
    layers = [
        (f"domain {domain}", look_up(domains, domain, "domain").values if domain else {}),
        (f"preset {preset}", look_up(presets, preset, "preset").values if preset else {}),
        (f"recipe {named[0]}", dict(named[1])),
        ("environment", dict(environment)),
        ("flag", dict(flags)),
    ]
    values: dict[str, Any] = {}
    origins = dict.fromkeys(Recipe.model_fields, "default")
    for origin, given in layers:
        values |= given
        origins |= dict.fromkeys(given, origin)
    origins |= {field: flag_names[field] for field in flags if field in flag_names}
    errors = [f"{error} ({origins.get(re.split('[:.]', error)[0], 'recipe')})" for error in recipe_errors(values)]
    if errors:
        raise ConfigurationError(f"recipe: {'; '.join(errors)}. Correct these values.")
    return ResolvedRecipe(Recipe.model_validate(values), origins, preset, domain)


def pick_preset(presets: Mapping[str, Preset], vram_gb: float | None) -> str:
    """Choose the largest preset that fits, or `cpu_demo` without a GPU; raise ConfigurationError if none fits."""
    if vram_gb is None:
        return "cpu_demo"
    sizes = [(entry.min_vram_gb, name) for name, entry in presets.items() if entry.min_vram_gb is not None]
    fitting = [(size, name) for size, name in sizes if size <= vram_gb + _VRAM_SLACK]
    if not fitting:
        raise ConfigurationError(f"preset auto: no preset fits {vram_gb:.1f} GB. Choose a small one: --preset tiny.")
    return max(fitting)[1]


def _to_preset(values: Mapping[str, Any]) -> Preset:
    recipe = {str(key): value for key, value in values.items() if key not in {_ABOUT, _MIN_VRAM}}
    return Preset(str(values.get(_ABOUT, "")), recipe, values.get(_MIN_VRAM))


DEFAULT: Final = "default"
"""The recipe of runs that do not choose a recipe."""

RecipeName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
"""A name for tags, files and command lines."""


class NamedRecipe(Strict):
    """A recipe to compare with others."""

    about: str = Field(min_length=1, description="The question that it answers, in one sentence.")
    preset: str = Field(default=AUTO, description="Preset of config/presets.yaml; `auto` chooses by memory.")
    domain: str | None = Field(default=None, description="Domain of config/domains.yaml, which selects rows.")
    base: str | None = Field(default=None, min_length=1, description="Base model: a folder, or a name on the Hub.")
    revision: str | None = Field(default=None, min_length=1, description="Branch, tag or commit of the base.")
    overrides: dict[str, bool | int | float | str | list[str] | dict[str, float] | None] = Field(
        default={}, description="Fields of the recipe to change."
    )

    trial: dict[str, int] | None = Field(
        default=None,
        description="For a trial, the part of the eval suite to use, in the fields of SuiteSize; the policy `trial` "
        "applies, and a trial is never promoted.",
    )

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        errors = recipe_errors(self.values())
        if errors:
            raise ValueError("; ".join(errors))
        return self

    def values(self) -> dict[str, Any]:
        """Return the fields of a `Recipe` that it sets."""
        base = {"model_name_or_path": self.base, "model_revision": self.revision}
        return {**self.overrides, **{field: value for field, value in base.items() if value is not None}}


class NamedRecipes(RootModel[dict[RecipeName, NamedRecipe]]):
    """Named recipes, among them `default`."""

    @model_validator(mode="after")
    def _has_a_default(self) -> Self:
        if DEFAULT not in self.root:
            raise ValueError(f"no recipe is named {DEFAULT}, which a run uses by default")
        return self


def load_recipes(path: Path) -> Mapping[str, NamedRecipe]:
    """Load the named recipes of a file; raise ConfigurationError with all errors in it."""
    return load_model(path, NamedRecipes).root


AnyPreset = TypeVar("AnyPreset")


def look_up(entries: Mapping[str, AnyPreset], name: str, what: str) -> AnyPreset:
    """Return a preset, domain or recipe (`what`) by its name; raise ConfigurationError for an unknown name."""
    if name not in entries:
        advice = did_you_mean(name, entries) or f"Choose one of {', '.join(sorted(entries))}."
        raise ConfigurationError(f"{what} {name}: not in config/{what}s.yaml. {advice}")
    return entries[name]
