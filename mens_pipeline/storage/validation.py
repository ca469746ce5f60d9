"""Models that take nothing they do not know, versions of their formats, and what pydantic found wrong, as one line."""

from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from mens_pipeline.errors import RefusedError

_OWN: Final = "Value error, "
"""How pydantic marks sentences that a validator of ours wrote; they say themselves what they are about."""
_NEWER: Final = "newer_format"
FORMAT_VERSION: Final = "format_version"
_LONGEST: Final = 300
"""Characters of the mistakes in a line or document that a message shows."""


class Strict(BaseModel):
    """A model that cannot change, and takes no field that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Versioned(Strict):
    """A strict model of what is kept for long, with the version of its format; what says none has the first.

    A change of a format that older code would read wrongly raises `newest_format` of its model.
    """

    newest_format: ClassVar[int] = 1

    format_version: int = Field(default=1, ge=1, description="Of the format; 1 where it is not told.")

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
    """A strict model whose fields may be called otherwise in its file."""

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)


Found = TypeVar("Found", bound=BaseModel)


def read_document(path: Path, model: type[Found], what: str, advice: str) -> Found:
    """Read a document that this project wrote; `what` it is and the advice are for messages.

    Raises:
        RefusedError: It cannot be read, is damaged, or was written by a newer version.
    """
    try:
        return model.model_validate_json(path.read_bytes())
    except OSError as error:
        raise RefusedError(f"{path}: {error.strerror}. {advice}") from error
    except ValidationError as error:
        raise RefusedError(f"{path}: {problem_in(error, what, advice)}") from error


def newer_format(version: object, newest: int) -> str | None:
    """Say that a line or document is of a newer version of its format than can be read here; None where it is not."""
    if not isinstance(version, int) or version <= newest:
        return None
    return f"written by a newer version of mens-pipeline (format {version}, read here up to {newest}). Upgrade it"


def newer_than_known(error: ValidationError) -> str | None:
    """Say that newer code wrote what does not fit: its format is newer, or it is right but for fields unknown here."""
    errors = error.errors()
    details = next((str(item["ctx"]["problem"]) for item in errors if item["type"] == _NEWER), None)
    if details is None and all(item["type"] == "extra_forbidden" for item in errors):
        fields = ", ".join(".".join(map(str, item["loc"])) for item in errors)
        details = f"written by a newer version of mens-pipeline (it says {fields}, which is not known here). Upgrade it"
    return details


def problem_in(error: ValidationError, what: str, advice: str) -> str:
    """Say why what this project wrote does not fit and what to do; the advice is for what is damaged, not for newer."""
    newer = newer_than_known(error)
    return f"{newer}." if newer is not None else f"no {what} ({errors_in(error)[:_LONGEST]}). {advice}"


def errors_in(error: ValidationError) -> str:
    """Format all mistakes with their places: `rate: Input should be less than or equal to 1; name: Field required`."""
    return "; ".join(list_errors(error))


def list_errors(error: ValidationError) -> list[str]:
    """Format each mistake with its place, as `errors_in` does."""
    return [_sentence(".".join(map(str, item["loc"])), item["msg"]) for item in error.errors()]


def _sentence(place: str, message: str) -> str:
    own = message.removeprefix(_OWN)
    if not place and own != message:
        return own
    return f"{place or 'the whole'}: {own}"
