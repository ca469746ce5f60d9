"""A signed record that lets an adapter be promoted although its gate said no: who, why, which one."""

import hashlib
import hmac
import json
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, ValidationError

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.storage.validation import Document, errors_in

OVERRIDE: Final = "gate_override.json"
MIN_KEY: Final = 16
"""Characters of a key; shorter ones are guessed."""


class Override(Document):
    """The record; it holds for one adapter and one verdict."""

    schema_: Literal["mens_gate_override_v1"] = Field(default="mens_gate_override_v1", alias="schema")
    adapter_sha256: str = Field(min_length=64, max_length=64)
    receipt_sha256: str = Field(min_length=64, max_length=64)
    by: str = Field(min_length=1, description="Who answers for it.")
    reason: str = Field(min_length=10, description="Why the verdict does not count, in a sentence.")
    timestamp_unix: int = Field(ge=0)
    signature: str = Field(default="", description="HMAC-SHA256 over the rest, hexadecimal.")


def signed(override: Override, key: str) -> Override:
    """Return the record with its signature.

    Raises:
        ConfigurationError: The key is too short.
    """
    return override.model_copy(update={"signature": _signature(override, key)})


def read_override(path: Path, key: str) -> Override:
    """Read a record and check its signature.

    Raises:
        ConfigurationError: It is missing or no record, or the key is too short.
        RefusedError: It was not signed with this key, or was changed since.
    """
    try:
        override = Override.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}. Write one with `mens override`.") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: no text ({error}). Write one with `mens override`.") from error
    except ValidationError as error:
        raise ConfigurationError(f"{path}: {errors_in(error)}. Write one with `mens override`.") from error
    if not hmac.compare_digest(override.signature.encode(), _signature(override, key).encode()):
        raise RefusedError(f"{path}: the signature does not fit. Sign it again with the key in use.")
    return override


def _signature(override: Override, key: str) -> str:
    if len(key) < MIN_KEY:
        raise ConfigurationError(f"MENS_OVERRIDE_KEY: {len(key)} characters. Set a secret of at least {MIN_KEY}.")
    fields = override.model_dump(exclude={"signature"})
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()
