"""Strict models, versions of their formats, and errors of pydantic on one line."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from mens_pipeline.errors import RefusedError, near_miss

_UNKNOWN: Final = frozenset(("extra_forbidden", "literal_error", "enum"))
"""Types of errors from a field or a choice of newer code."""
_OWN: Final = "Value error, "
"""Prefix of pydantic for messages of our validators, which name their subject themselves."""
_NEWER: Final = "newer_format"
FORMAT_VERSION: Final = "format_version"
_LONGEST: Final = 300
"""Most characters of the mistakes in a document to show in a message."""


Share = Annotated[float, Field(ge=0, le=1)]


class Strict(BaseModel):
    """An immutable model that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Versioned(Strict):
    """A strict model of a long-lived document, with the version of its format.

    Increase `newest_format` with each change that older code would misread.
    """

    newest_format: ClassVar[int] = 1

    format_version: int = Field(default=1, ge=1, description="Version of the format; 1 if missing.")

    @model_validator(mode="before")
    @classmethod
    def _has_a_known_format(cls, content: Any, info: ValidationInfo) -> Any:
        if not isinstance(content, dict):
            return content
        version = content.get(FORMAT_VERSION, 1 if info.mode == "json" else cls.newest_format)
        if newer := newer_format(version, cls.newest_format):
            raise PydanticCustomError(_NEWER, "{problem}", {"problem": newer})
        return {**content, FORMAT_VERSION: version}


class Document(Strict):
    """A strict model whose fields may have aliases in its file."""

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)


Found = TypeVar("Found", bound=BaseModel)


def read_document(path: Path, model: type[Found], what: str, advice: str) -> Found:
    """Read a document that this project wrote, or raise `RefusedError`; `what` names it in messages."""
    try:
        return model.model_validate_json(path.read_bytes())
    except OSError as error:
        raise RefusedError(f"{path}: {error.strerror}. {advice}") from error
    except ValidationError as error:
        raise RefusedError(f"{path}: {problem_in(error, what, advice)}") from error


def newer_format(version: object, newest: int) -> str | None:
    """Explain that newer code wrote a document; None if its format is known."""
    if not isinstance(version, int) or version <= newest:
        return None
    return f"written by a newer version of mens-pipeline (format {version}, supported up to {newest}). Upgrade it"


def newer_than_known(error: ValidationError) -> str | None:
    """Explain that newer code wrote an invalid document: a newer format, or only unknown fields and choices."""
    errors = error.errors()
    details = next((str(item["ctx"]["problem"]) for item in errors if item["type"] == _NEWER), None)
    if details is None and all(item["type"] in _UNKNOWN for item in errors):
        fields = ", ".join(".".join(map(str, item["loc"])) for item in errors)
        details = f"written by a newer version of mens-pipeline (unknown: {fields}). Upgrade it"
    return details


def problem_in(error: ValidationError, what: str, advice: str) -> str:
    """Explain why a document is invalid; the advice applies unless newer code wrote it."""
    newer = newer_than_known(error)
    return f"{newer}." if newer is not None else f"invalid {what} ({errors_in(error)[:_LONGEST]}). {advice}"


def errors_in(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """Format all mistakes: `rate: Input should be less than or equal to 1; name: Field required`.

    With the model, the mistake of an unknown field names the most similar field of the model.
    """
    return "; ".join(list_errors(error, model))


def list_errors(error: ValidationError, model: type[BaseModel] | None = None) -> list[str]:
    """Format each mistake as `errors_in` does."""
    schema = {} if model is None else model.model_json_schema()
    known = {name for part in (schema, *schema.get("$defs", {}).values()) for name in part.get("properties", ())}
    return [_sentence(".".join(map(str, item["loc"])), _describe(item, known)) for item in error.errors()]


def _describe(item: Any, known: Iterable[str]) -> str:
    if item["type"] != "extra_forbidden":
        return str(item["msg"])
    near = near_miss(str(item["loc"][-1]), known)
    # In brackets, since a full stop follows the last mistake.
    return f"unknown ({near[0].lower()}{near[1:]})" if near else "unknown"


def _sentence(place: str, message: str) -> str:
    own = message.removeprefix(_OWN)
    if not place and own != message:
        return own
    return f"{place or 'the document'}: {own}"
