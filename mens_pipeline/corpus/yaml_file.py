"""Configuration files: YAML that fits a model, or one message that names every mistake."""

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from mens_pipeline.corpus.mistakes import mistakes_in
from mens_pipeline.errors import ConfigurationError

Model = TypeVar("Model", bound=BaseModel)


def load_model(path: Path, model: type[Model]) -> Model:
    """Read a YAML file as a model.

    Args:
        path: The file.
        model: What it must fit.

    Raises:
        ConfigurationError: It is missing, is no YAML, or holds mistakes; the message names all of them.
    """
    content = load_yaml(path)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise ConfigurationError(f"{path}: {mistakes_in(error)}. Correct the file.") from error


def load_yaml(path: Path) -> Any:
    """Read a YAML file.

    Args:
        path: The file.

    Raises:
        ConfigurationError: It is missing or is no YAML.
    """
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}. Restore the file, or name another one.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # YAML reads dates, and nests without bound
        raise ConfigurationError(f"{path}: not YAML ({error}). Correct the file.") from error
