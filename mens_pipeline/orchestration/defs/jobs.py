"""The jobs."""

from importlib import import_module
from typing import Final

import dagster as dg

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.settings import RECIPES, load_settings
from mens_pipeline.training.presets import load_recipes


def chosen_executor(default: dg.ExecutorDefinition) -> dg.ExecutorDefinition:
    """Return the executor that MENS_EXECUTOR names, so that a launcher may route each step by its tags.

    Raises:
        ConfigurationError: There is no such executor.
    """
    name = load_settings().executor
    if name is None:
        return default
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        advice = "Install what provides it, or unset the variable."
        raise ConfigurationError(f"MENS_EXECUTOR={name}: {error}. {advice}") from error
    if not isinstance(found, dg.ExecutorDefinition):
        advice = "Name one, such as dagster:multiprocess_executor."
        raise ConfigurationError(f"MENS_EXECUTOR={name}: a {type(found).__name__}, expected an executor. {advice}")
    return found


_DELIVERED: Final = dg.AssetSelection.assets("merged_model", "serving_handoff")
"""What follows a promotion: as large as the base, and of use only to whom it is handed."""

_ASIDE: Final = _DELIVERED | dg.AssetSelection.groups("scratch", "experiments")

_ONE_PROCESS: Final = chosen_executor(dg.in_process_executor)
"""Steps run one after the other in the process of the run: with a process for each, most of the time of an unchanged
graph goes into starting them. Whatever loads a model is a process of its own all the same, started by its step."""

whole_graph = dg.define_asset_job(
    "whole_graph",
    selection=dg.AssetSelection.all() - _ASIDE,
    executor_def=_ONE_PROCESS,
    description="Everything from the sources to the adapter in use, with all checks.",
)

deliver = dg.define_asset_job(
    "deliver",
    selection=_DELIVERED,
    description="Merges the adapter in use, proves that it is the model that was evaluated, and hands it on.",
)

train_set = dg.define_asset_job(
    "train_set",
    selection=dg.AssetSelection.groups("sources", "corpus"),
    executor_def=_ONE_PROCESS,
    description="From the sources to the train set, with all checks; nothing is trained.",
)

experiments = dg.define_asset_job(
    "experiments",
    selection=dg.AssetSelection.assets(
        "base_model", "qlora_adapter", "eval_results", "benchmark_gate", "recipe_scores"
    ),
    description="Trains and evaluates recipes of config/recipes.yaml, a partition each, on the train set that is there."
    " Nothing is promoted.",
)

promote_best = dg.define_asset_job(
    "promote_best",
    selection=dg.AssetSelection.assets("promoted_adapter"),
    executor_def=_ONE_PROCESS,
    config={"ops": {"promoted_adapter": {"config": {"best_of": list(load_recipes(RECIPES))}}}},
    description="Promotes the best of the recipes that were evaluated and passed, as after `experiments`; no training.",
)
