"""Configuration files: YAML that fits a model, or one message that names every mistake."""

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.storage.files import read_regular
from mens_pipeline.storage.plain_yaml import MAX_CHARACTERS, YamlLimitError, parse_yaml
from mens_pipeline.storage.validation import errors_in

Model = TypeVar("Model", bound=BaseModel)


def load_model(path: Path, model: type[Model]) -> Model:
    """Read a YAML file as a model.

    Raises:
        ConfigurationError: It is missing, is no YAML, or holds mistakes; the message names all of them.
    """
    content = load_yaml(path)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise ConfigurationError(f"{path}: {errors_in(error)}. Correct the file.") from error


def load_yaml(path: Path) -> Any:
    """Read a YAML file.

    Raises:
        ConfigurationError: It is missing or is no YAML.
    """
    try:
        text = read_regular(path, 4 * MAX_CHARACTERS).decode("utf-8")
        return parse_yaml(text, allow_aliases=True)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}. Restore the file, or name another one.") from error
    except YamlLimitError as error:
        raise ConfigurationError(f"{path}: not YAML of a configuration ({error}). Correct the file.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: not YAML ({error}). Correct the file.") from error
