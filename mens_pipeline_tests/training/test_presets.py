"""Presets, domains, named recipes, and their precedence."""

import json
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import jsonschema
import pytest
import yaml

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.models.base_wheels import WHEEL_BASES
from mens_pipeline.settings import DOMAINS, PRESETS, RECIPES
from mens_pipeline.training.presets import (
    AUTO,
    Preset,
    ResolvedRecipe,
    load_named,
    load_recipes,
    look_up,
    pick_preset,
    recipe_errors,
    resolve_recipe,
)
from mens_pipeline.training.recipe import Recipe
from mens_pipeline_tests.every import every
from mens_pipeline_tests.schemas import schema_of
from mens_pipeline_tests.training.encoded import Row, plan_of

_NAMES = frozenset(
    (
        *("tiny", "safe", "4080", "4080_safe", "qwen_4080_16g", "qwen_small_8g", "qwen_rtx3090_24g", "qwen_a100_80g"),
        *("a100", "distributed", "mobile_edge", "vox-gen", "h100", "h200", "cpu_demo", "journey", "default"),
        *("smol", "cpu_night", "coder_05b", "coder_15b", "coder_7b", "qwen_2b_8g"),
    )
)
_PRESETS, _DOMAINS = load_named(PRESETS), load_named(DOMAINS)
_OF_GPUS = [name for name, preset in _PRESETS.items() if preset.min_vram_gb]
_CODERS = ("coder_05b", "coder_15b", "coder_7b")
_TWINS = [
    ("4080", "qwen_4080_16g"),
    ("default", "qwen_4080_16g"),
    ("a100", "qwen_a100_80g"),
    ("h100", "qwen_a100_80g"),
    ("h200", "qwen_a100_80g"),
    ("4080_safe", "safe"),
    ("qwen_small_8g", "safe"),
]


def _resolve(**options: Any) -> ResolvedRecipe:
    usual: dict[str, Any] = {"preset": None, "domain": None, "environment": {}, "flags": {}}
    return resolve_recipe(_PRESETS, _DOMAINS, **{**usual, **options})


def _write(folder: Path, content: str | bytes) -> Path:
    path = folder / "presets.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.seed_row(19)
def test_the_project_has_all_presets_and_domains() -> None:
    assert set(_PRESETS) == _NAMES
    assert all(preset.about for preset in _PRESETS.values())
    assert set(_DOMAINS) == {"vox-lang", "agents", "full-stack", "speech"}
    assert all(domain.about and domain.min_vram_gb is None for domain in _DOMAINS.values())


@every("names", list(product(sorted(_NAMES), [None, "vox-lang", "agents", "full-stack", "speech"])))
def test_every_preset_combines_with_every_domain(names: tuple[str, str | None]) -> None:
    preset, domain = names
    for devices in (1, 2, 8):
        resolved = _resolve(preset=preset, domain=domain, flags={"devices": devices})

        assert (resolved.preset, resolved.domain) == (preset, domain)
        assert resolved.recipe.accumulation >= devices


@pytest.mark.parametrize(("name", "other"), _TWINS)
def test_twin_presets_have_the_same_values(name: str, other: str) -> None:
    assert _PRESETS[name].values == _PRESETS[other].values


@pytest.mark.parametrize("size", ["0.5B", "1.5B", "7B"])
def test_code_models_have_a_name_on_the_hub(size: str) -> None:
    """And a budget for a CPU, except the largest; `auto` never chooses them instead of the default."""
    preset = _PRESETS[f"coder_{size.lower().replace('.', '')}"]

    assert preset.values["model_name_or_path"] == f"Qwen/Qwen2.5-Coder-{size}-Instruct"
    assert size == "7B" or preset.values["max_minutes"] <= 600
    assert preset.min_vram_gb is None


def _rows_of_every_kind() -> list[Row]:
    random, kinds = Random(1), ("task", "observed", "vox_codegen", "template", "infill")  # noqa: S311 - no secret
    lengths = [min(2000, 90 + int(random.expovariate(1 / 90))) for _ in range(2500)]
    return [Row(length, kind=kinds[row % 5]) for row, length in enumerate(lengths)]


def test_larger_and_more_gpus_make_as_many_steps() -> None:
    """The optimizer does not depend on the GPU: the same tokens a step and rate, and nearly as many steps."""
    rows, steps, rates = _rows_of_every_kind(), {}, set()
    for name, devices in product((*_OF_GPUS, "distributed"), (1, 2, 8)):
        recipe = _resolve(preset=name, flags={"devices": devices}).recipe
        steps[name, devices] = plan_of(rows, recipe).num_steps
        rates.add((recipe.tokens_per_step, recipe.learning_rate, recipe.lora_plus_ratio))

    assert max(steps.values()) <= 1.5 * min(steps.values()), steps
    assert len(rates) == 1


def test_presets_of_gpus_mix_rows_like_the_tuned_preset() -> None:
    demo = _resolve(preset="cpu_demo").recipe

    for name in (*_OF_GPUS, *_CODERS):
        recipe = _resolve(preset=name).recipe
        assert recipe.kind_shares == demo.kind_shares
        assert (recipe.category_alpha, recipe.lora_plus_ratio) == (demo.category_alpha, demo.lora_plus_ratio)


def test_a_gpu_reads_a_large_window_around_a_cursor() -> None:
    """1,024 tokens, with room for the piece and its marks; a CPU reads fewer, since each keystroke waits for them."""
    found = {name: _resolve(preset=name).recipe for name in _NAMES}
    windows = {name: recipe.infill_window for name, recipe in found.items() if recipe.max_length >= 1024}

    assert {*_OF_GPUS, *_CODERS, "distributed"} <= windows.keys()
    assert set(windows.values()) == {1024}
    assert all(found[name].max_length >= 1.5 * window for name, window in windows.items())
    assert found["cpu_demo"].infill_window == 192


def test_the_preset_of_a_night_measures_validation_rows() -> None:
    night, demo = (_resolve(preset=name).recipe for name in ("cpu_night", "cpu_demo"))

    assert night.validation_split_ratio > 0
    assert (night.num_train_epochs > 1, night.max_steps) == (True, None)
    assert night.max_tokens_per_batch == demo.max_tokens_per_batch
    assert (demo.max_steps, demo.max_minutes) == (None, 18)


def test_presets_of_cpus_differ_only_in_base_steps_and_rate() -> None:
    """Both bases are available without the Hub."""
    demo, small = (_resolve(preset=name).recipe for name in ("cpu_demo", "smol"))
    differing = {name for name, value in demo if value != getattr(small, name)}

    assert differing == {"model_name_or_path", "max_steps", "learning_rate"}
    assert {demo.model_name_or_path, small.model_name_or_path} == {*WHEEL_BASES}
    assert _resolve(preset=AUTO).preset == "cpu_demo"


@pytest.mark.seed_row(59)
def test_the_journey_has_the_values_of_its_document() -> None:
    """Query and value projections, rank 16, alpha 32, four rows at once, three epochs."""
    recipe = _resolve(preset="journey").recipe

    assert (recipe.lora_r, recipe.lora_alpha, recipe.target_modules) == (16, 32, ("q_proj", "v_proj"))
    assert (recipe.per_device_train_batch_size, recipe.num_train_epochs) == (4, 3)


@pytest.mark.seed_row(19)
def test_each_level_wins_over_those_below() -> None:
    """Flag, environment, preset, domain, default; and each value has its origin."""
    resolved = resolve_recipe(
        {"p": Preset("", {"lora_r": 2, "lora_alpha": 2, "seed": 2, "max_steps": 2})},
        {"d": Preset("", {"lora_r": 1, "lora_alpha": 1, "seed": 1, "max_steps": 1, "min_rating": 1})},
        preset="p",
        domain="d",
        environment={"lora_r": "3", "lora_alpha": "3", "category_filter": "a,b"},
        flags={"lora_r": 4},
    )
    recipe, origins = resolved.recipe, resolved.origins

    assert (recipe.lora_r, origins["lora_r"]) == (4, "flag")
    assert (recipe.lora_alpha, origins["lora_alpha"]) == (3, "environment")
    assert (recipe.seed, origins["seed"]) == (2, "preset p")
    assert (recipe.max_steps, origins["max_steps"]) == (2, "preset p")
    assert (recipe.min_rating, origins["min_rating"]) == (1, "domain d")
    assert (recipe.max_length, origins["max_length"]) == (512, "default")
    assert recipe.category_filter == ("a", "b")
    assert set(origins) == set(Recipe.model_fields)
    default = _resolve()
    assert (default.recipe, default.preset, default.domain) == (Recipe(), None, None)
    assert set(default.origins.values()) == {"default"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"preset": "h1000"}, r"preset h1000: not in config/presets\.yaml\. Did you mean `h100`\?"),
        ({"preset": "4080_saef"}, r"preset 4080_saef: not in config/presets\.yaml\. Did you mean `4080_safe`\?"),
        ({"preset": "zzz"}, r"preset zzz: not in config/presets\.yaml\. Choose one of 4080, 4080_safe, a100, "),
        ({"domain": "agent"}, r"domain agent: not in config/domains\.yaml\. Did you mean `agents`\?"),
        ({"preset": AUTO, "vram_gb": 4.0}, r"preset auto: no preset fits 4\.0 GB\. Choose a small one: --preset tiny"),
        (
            {"preset": "cpu_demo", "flags": {"max_length": 4096}},
            r"max_tokens_per_batch is 1024, .* max_length 4096 \(recipe\)",
        ),
        (
            {"environment": {"lora_rr": "2", "curriculum_max_difficulty": "1,x"}, "flags": {"lora_r": 0}},
            (
                r"^recipe: .*lora_r: Input should be greater than or equal to 1 \(flag\).*"
                r"curriculum_max_difficulty.1: Input should be a valid integer.* \(environment\); "
                r"lora_rr: unknown \(did you mean `lora_r`\?\) \(environment\)\. Correct these values\.$"
            ),
        ),
    ],
)
def test_errors_name_the_origin_of_values(options: dict[str, Any], problem: str) -> None:
    """All errors, with advice; values that are valid alone may be invalid together."""
    with pytest.raises(ConfigurationError, match=problem):
        _resolve(**options)


def test_errors_name_the_field_and_its_valid_values() -> None:
    assert recipe_errors({"lora_r": 8}) == []
    assert recipe_errors({"zzz": 8}) == ["zzz: unknown"]
    both = recipe_errors({"lora_r": 0, "max_length": 512, "max_tokens_per_batch": 256})
    assert [error.split(" ")[0] for error in both] == ["lora_r:", "max_tokens_per_batch"]
    assert len(recipe_errors({"max_length": 1, "max_tokens_per_batch": 256})) == 1, "an invalid value is not compared"
    assert recipe_errors({"learning_rates": 1}) == ["learning_rates: unknown (did you mean `learning_rate`?)"]
    (empty,) = recipe_errors({"target_modules": ""})
    assert empty.startswith("target_modules is empty; ")
    assert '"all-linear"' in empty


@pytest.mark.parametrize(
    ("vram_gb", "expected"),
    [
        (None, "cpu_demo"),
        (5.7, "safe"),  # sold with 6
        (7.6, "qwen_small_8g"),  # sold with 8
        (11.8, "qwen_small_8g"),  # sold with 12
        (16_376 / 1024, "qwen_4080_16g"),
        (23.7, "qwen_rtx3090_24g"),  # sold with 24
        (31.4, "qwen_rtx3090_24g"),  # sold with 32
        (39.4, "qwen_a100_80g"),  # sold with 40
        (79.2, "h100"),  # sold with 80
        (139.8, "h200"),  # sold with 141
        (178.0, "h200"),
    ],
)
def test_auto_chooses_the_largest_preset_that_fits(vram_gb: float | None, expected: str) -> None:
    resolved = _resolve(preset=AUTO, vram_gb=vram_gb)

    assert resolved.preset == expected
    assert resolved.origins["lora_r"] == f"preset {expected}"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            "a: {lora_rr: 1}\nb: {lora_r: 0}\n",
            r"a.lora_rr: unknown \(did you mean `lora_r`\?\); b.lora_r: Input should be",
        ),
        ("a: {quantization: fp4}\n", "a.quantization: "),
        ("a: {min_vram_gb: many}\n", "a.min_vram_gb: 'many' is not a number of gigabytes"),
        ("a: [", "not YAML"),
        (b"\xff", "not YAML"),
        ("a: {about: 2001-13-45}\n", "not YAML"),
        ("[" * 1200, "not YAML"),
        ("", "not a mapping of names to settings"),
        ("- a\n", "not a mapping of names to settings"),
        ("a: 3\n", "not a mapping of names to settings"),
    ],
)
def test_errors_name_a_broken_file_and_all_its_errors(tmp_path: Path, content: str | bytes, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"(?s)presets.yaml: {problem}.*Correct the file"):
        load_named(_write(tmp_path, content))
    with pytest.raises(ConfigurationError, match=r"none.yaml: No such file or directory\. Restore the file"):
        load_named(tmp_path / "none.yaml")


def test_names_are_text_and_notes_are_not_fields(tmp_path: Path) -> None:
    """`4080` is a number to YAML; the purpose of a preset is not part of its recipe."""
    named = load_named(_write(tmp_path, "4080: {about: A card., min_vram_gb: 15, lora_r: 2}\nbare: {}\n"))

    assert pick_preset({"small": Preset("", {}, 2.0), **named}, 14.0) == "4080", "never one that requires no GPU"
    assert pick_preset({"small": Preset("", {}, 2.0), **named}, 13.9) == "small"
    assert named == {"4080": Preset("A card.", {"lora_r": 2}, 15), "bare": Preset("", {})}


def test_the_recipes_of_the_repository_are_valid() -> None:
    """Their presets and domains exist, and the file matches the schema for editors."""
    recipes = load_recipes(RECIPES)

    assert "default" in recipes
    for recipe in recipes.values():
        assert recipe.preset == "auto" or recipe.preset in _PRESETS
        assert recipe.domain is None or recipe.domain in _DOMAINS
    jsonschema.validate(yaml.safe_load(RECIPES.read_text()), json.loads(schema_of("recipes")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wide: {about: Wide.}\n", "no recipe is named default"),
        ("default: {about: x, overrides: {lora_rr: 8}}\n", "lora_rr: unknown (did you mean `lora_r`?)"),
        ("default: {about: x, presets: tiny}\n", "default.presets: unknown"),
        ("default: {about: x}\nTwo Words: {about: x}\n", "String should match pattern"),
        ("default: {preset: tiny}\n", "default.about: Field required"),
    ],
)
def test_an_error_names_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "recipes.yaml"
    path.write_text(text)

    with pytest.raises(ConfigurationError) as caught:
        load_recipes(path)

    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_an_unknown_name_gets_a_suggestion() -> None:
    recipes = load_recipes(RECIPES)

    with pytest.raises(ConfigurationError, match=r"recipe wid: not in config/recipes.yaml. Did you mean `wide`\?"):
        look_up(recipes, "wid", "recipe")
    with pytest.raises(ConfigurationError, match="Choose one of default, long, small, tiny, wide"):
        look_up(recipes, "xyzxyz", "recipe")


def test_a_recipe_ranks_between_preset_and_environment() -> None:
    """The environment of a run wins over the file, the file over the preset; the base is a field like others."""
    recipe = load_recipes(RECIPES)["wide"].model_copy(update={"base": "models/mine"})
    resolved = resolve_recipe(
        _PRESETS,
        _DOMAINS,
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
