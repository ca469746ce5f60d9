"""Recipes by name: what a file may say, and what they set of a training."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.settings import DOMAINS, PRESETS, RECIPES
from mens_pipeline.training.named_recipes import load_recipes, recipe_called
from mens_pipeline.training.presets import load_named, resolve_recipe
from mens_pipeline_tests.schemas import schema_of


def test_those_of_the_repository_hold_together() -> None:
    """Each with a preset and a domain that there are; the file fits the schema that editors are given."""
    recipes = load_recipes(RECIPES)
    presets, domains = load_named(PRESETS), load_named(DOMAINS)

    assert "default" in recipes
    for recipe in recipes.values():
        assert recipe.preset == "auto" or recipe.preset in presets
        assert recipe.domain is None or recipe.domain in domains
    jsonschema.validate(yaml.safe_load(RECIPES.read_text()), json.loads(schema_of("recipes")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wide: {about: Wide.}\n", "no recipe is called default"),
        ("default: {about: x, overrides: {lora_rr: 8}}\n", "lora_rr: unknown, did you mean lora_r?"),
        ("default: {about: x, presets: tiny}\n", "default.presets: Extra inputs are not permitted"),
        ("default: {about: x}\nTwo Words: {about: x}\n", "String should match pattern"),
        ("default: {preset: tiny}\n", "default.about: Field required"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    """In one message, before anything is made."""
    path = tmp_path / "recipes.yaml"
    path.write_text(text)

    with pytest.raises(ConfigurationError) as caught:
        load_recipes(path)

    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_an_unknown_name_gets_a_suggestion() -> None:
    """Or the names that there are."""
    recipes = load_recipes(RECIPES)

    with pytest.raises(ConfigurationError, match=r"recipe wid: not in config/recipes.yaml. Did you mean `wide`\?"):
        recipe_called("wid", recipes)
    with pytest.raises(ConfigurationError, match="There are code_base, default, long, short, wide"):
        recipe_called("xyzxyz", recipes)


def test_it_stands_between_preset_and_environment() -> None:
    """What a person sets for one run wins over the file, the file over the preset; the base is a field like others."""
    recipe = load_recipes(RECIPES)["wide"].model_copy(update={"base": "models/mine"})
    resolved = resolve_recipe(
        load_named(PRESETS),
        load_named(DOMAINS),
        preset=recipe.preset,
        domain=None,
        environment={"lora_alpha": "32"},
        flags={},
        named=("wide", recipe.values()),
    )

    assert (resolved.recipe.lora_r, resolved.recipe.lora_alpha) == (64, 32)
    assert resolved.recipe.model_name_or_path == "models/mine"
    assert resolved.origins["lora_r"] == resolved.origins["model_name_or_path"] == "recipe wide"
    assert resolved.origins["lora_alpha"] == "environment"
    assert resolved.origins["max_length"] == "preset cpu_demo"
