"""Named recipes, `config/recipes.yaml`: what is tried beside each other, each a preset, a base and what it changes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import Field, RootModel, StringConstraints, model_validator

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.language.suggestions import did_you_mean
from mens_pipeline.storage.validation import Strict
from mens_pipeline.storage.yaml_file import load_model
from mens_pipeline.training.presets import AUTO, mistakes_of

DEFAULT: Final = "default"
"""The recipe of whoever chooses none."""

RecipeName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
"""A name that fits a tag, a file name and a command line."""


class NamedRecipe(Strict):
    """One recipe that may be compared with others."""

    about: str = Field(min_length=1, description="What is tried, in a sentence.")
    preset: str = Field(default=AUTO, description="Of config/presets.yaml; `auto` picks by memory.")
    domain: str | None = Field(default=None, description="Which rows; config/domains.yaml.")
    base: str | None = Field(default=None, min_length=1, description="Base model, a folder or a name on the Hub.")
    revision: str | None = Field(default=None, min_length=1, description="Branch, tag or commit of the base.")
    overrides: dict[str, bool | int | float | str | list[str] | dict[str, float] | None] = Field(
        default={}, description="Fields of the recipe that it changes."
    )

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        mistakes = mistakes_of(self.values())
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return self

    def values(self) -> dict[str, Any]:
        """Return the fields of a training recipe that it sets."""
        base = {"model_name_or_path": self.base, "model_revision": self.revision}
        return {**self.overrides, **{field: value for field, value in base.items() if value is not None}}


class NamedRecipes(RootModel[dict[RecipeName, NamedRecipe]]):
    """All of them by name; `default` is one."""

    @model_validator(mode="after")
    def _has_a_default(self) -> Self:
        if DEFAULT not in self.root:
            raise ValueError(f"no recipe is called {DEFAULT}, which a run without a choice takes")
        return self


def load_recipes(path: Path) -> Mapping[str, NamedRecipe]:
    """Read the named recipes of a file; every one is checked.

    Raises:
        ConfigurationError: The file is missing, is no YAML, or a recipe does not hold together; all mistakes are named.
    """
    return load_model(path, NamedRecipes).root


def recipe_called(name: str, recipes: Mapping[str, NamedRecipe]) -> NamedRecipe:
    """Return a recipe by its name.

    Raises:
        ConfigurationError: None has this name.
    """
    if name not in recipes:
        advice = did_you_mean(name, list(recipes)) or f"There are {', '.join(sorted(recipes))}."
        raise ConfigurationError(f"recipe {name}: not in config/recipes.yaml. {advice}")
    return recipes[name]
