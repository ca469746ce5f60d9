"""Executors: what starts the steps of a run."""

from importlib import import_module

import dagster as dg

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.settings import load_settings


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
