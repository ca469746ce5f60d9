"""Models that take nothing they do not know, and the mistakes that pydantic found, as one line."""

from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

_OWN: Final = "Value error, "
"""How pydantic marks sentences that a validator of ours wrote; they say themselves what they are about."""


class Strict(BaseModel):
    """A model that cannot change, and takes no field that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Document(Strict):
    """A strict model whose fields may be called otherwise in its file."""

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)


def errors_in(error: ValidationError) -> str:
    """Format all mistakes with their places: `rate: Input should be less than or equal to 1; name: Field required`."""
    return "; ".join(_sentence(".".join(map(str, item["loc"])), item["msg"]) for item in error.errors())


def _sentence(place: str, message: str) -> str:
    own = message.removeprefix(_OWN)
    if not place and own != message:
        return own
    return f"{place or 'the whole'}: {own}"
