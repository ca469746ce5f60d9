"""Untrusted YAML, read as plain values in bounded time and memory, and configuration files, read as models."""

from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.storage.files import read_regular
from mens_pipeline.storage.validation import errors_in

MAX_CHARACTERS: Final = 262_144
"""A longer document is refused unread."""

MAX_DEPTH: Final = 100
"""Most levels of lists and mappings, since the libraries that process the values recurse."""

MAX_NODES: Final = 20_000
"""Most values in a document with its aliases expanded: nine short lines can make a billion."""

_BITS: Final = 63
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader of libyaml if PyYAML has it, which is ten times faster; both build plain values only."""

_GIVEN_UP: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""Errors that PyYAML raises for a scalar that does not fit its tag, such as `!!bool maybe`."""


class YamlLimitError(Exception):
    """A document exceeds a limit of length, depth or size; callers translate it."""


def parse_yaml(text: str, *, allow_aliases: bool) -> Any:
    """Parse a document to lists, mappings and scalars; keep an integer beyond 64 bits as text.

    `YamlLimitError` if it is too large or too deep, or its aliases are not allowed or expand too far.
    """
    if len(text) > MAX_CHARACTERS:
        raise YamlLimitError(f"{len(text)} characters, more than {MAX_CHARACTERS}")
    try:
        _refuse_growth(text, allow_aliases=allow_aliases)
        return yaml.load(text, Loader=_PlainLoader)  # noqa: S506 - a safe loader
    except _GIVEN_UP as error:
        raise yaml.YAMLError(f"a value that does not fit its tag ({type(error).__name__})") from error


def _refuse_growth(text: str, *, allow_aliases: bool) -> None:
    """Check the events of a document, which neither nest nor grow, before building values."""
    sizes: dict[str | None, int] = {}
    open_: list[tuple[str | None, int]] = []
    size = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent):
            if not allow_aliases:
                raise YamlLimitError("it uses YAML aliases")
            # An anchor that is still open contains itself, and would expand forever.
            size += sizes.get(event.anchor, MAX_NODES + 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            open_.append((event.anchor, size))
            size += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_.pop()
            sizes[anchor] = size - before
        elif isinstance(event, yaml.ScalarEvent):
            size += 1
            sizes[event.anchor] = 1
        if size > MAX_NODES or len(open_) > MAX_DEPTH:
            raise YamlLimitError(f"more than {MAX_NODES} values or {MAX_DEPTH} levels")


class _PlainLoader(_LOADER):  # type: ignore[misc]
    def whole_number(self, node: yaml.ScalarNode) -> int | str:
        value: int = self.construct_yaml_int(node)
        return value if value.bit_length() <= _BITS else node.value


_PlainLoader.add_constructor("tag:yaml.org,2002:int", _PlainLoader.whole_number)


Model = TypeVar("Model", bound=BaseModel)


def load_model(path: Path, model: type[Model]) -> Model:
    """Read a YAML file as a model; raise one `ConfigurationError` with all mistakes."""
    content = load_yaml(path)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise ConfigurationError(f"{path}: {errors_in(error, model)}. Correct the file.") from error


def load_yaml(path: Path) -> Any:
    """Read a YAML file; raise `ConfigurationError` if it is missing or not YAML."""
    try:
        text = read_regular(path, 4 * MAX_CHARACTERS).decode("utf-8")
        return parse_yaml(text, allow_aliases=True)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}. Restore the file, or name another one.") from error
    except YamlLimitError as error:
        raise ConfigurationError(f"{path}: not YAML within the limits ({error}). Correct the file.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: not YAML ({error}). Correct the file.") from error
