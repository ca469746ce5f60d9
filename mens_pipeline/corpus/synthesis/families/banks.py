"""Lists of words that the templates draw from, in `*_banks.yaml` beside them."""

from collections import namedtuple
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.storage.yaml_file import load_model

_Value = StrictStr | StrictBool | StrictInt | StrictFloat | list["_Value"]


class _Table(BaseModel):
    """Rows with named columns."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: list[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]]
    rows: Annotated[list[list[Any]], Field(min_length=1)]

    @model_validator(mode="after")
    def _is_even(self) -> "_Table":
        for number, row in enumerate(self.rows, start=1):
            if len(row) != len(self.columns):
                raise ValueError(f"row {number} has {len(row)} values for {len(self.columns)} columns: {row}")
        for name, values in zip(self.columns, zip(*self.rows, strict=True), strict=True):
            kinds = sorted({type(value).__name__ for value in values})
            if len(kinds) > 1:
                raise ValueError(f"column {name} has values of the types {', '.join(kinds)}; put text in quotes")
        return self


class _Banks(BaseModel):
    """A file of banks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    banks: dict[str, _Table | Annotated[list[Any], Field(min_length=1)]]


def load_banks(folder: Path) -> dict[str, list[Any]]:
    """Load the banks of a folder: name -> what may be drawn; a row of a table has its columns as attributes.

    Args:
        folder: Holds `*_banks.yaml`.

    Raises:
        ConfigurationError: A file cannot be read or does not fit, or two banks have one name.
    """
    found: dict[str, list[Any]] = {}
    for path in sorted(folder.glob("*_banks.yaml")):
        for name, bank in load_model(path, _Banks).banks.items():
            if name in found:
                raise ConfigurationError(f"{path}: banks.{name}: there is another bank of this name. Rename one.")
            found[name] = _rows(name, bank) if isinstance(bank, _Table) else bank
    return found


def _rows(name: str, bank: _Table) -> list[Any]:
    row = namedtuple(name, bank.columns)  # type: ignore[misc] # noqa: PYI024 - the file names them
    return [row(*values) for values in bank.rows]
