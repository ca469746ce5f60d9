"""Lists of words that the templates draw from, in `*_banks.yaml` beside them."""

from collections import namedtuple
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    field_validator,
    model_validator,
)

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.storage.yaml_file import load_model

_Value = StrictStr | StrictBool | StrictInt | StrictFloat | list[Any]


def _record_of(columns: Sequence[str]) -> Callable[..., Any]:
    """Return the class of a row; a name that is there twice, or that no attribute can have, is a ValueError."""
    return namedtuple("record", columns)  # noqa: PYI024 - the file names them


class _Bank(BaseModel):
    """Rows with named columns, or a list of values, whose columns are none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: list[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]] = []
    rows: Annotated[list[_Value], Field(min_length=1)]

    @field_validator("columns")
    @classmethod
    def _are_attributes(cls, columns: list[str]) -> list[str]:
        _record_of(columns)
        return columns

    @property
    def records(self) -> list[Any]:
        """The values to draw from, or the rows as named tuples with the columns as attributes."""
        if not self.columns:
            return self.rows
        make = _record_of(self.columns)
        return [make(*values) for values in self.rows if isinstance(values, list)]

    @model_validator(mode="before")
    @classmethod
    def _of_list(cls, value: Any) -> Any:
        return {"rows": value} if isinstance(value, list) else value

    @model_validator(mode="after")
    def _is_even(self) -> "_Bank":
        rows = self.rows if self.columns else [[value] for value in self.rows]
        for number, row in enumerate(rows, start=1):
            if not isinstance(row, list) or len(row) != len(self.columns or ("value",)):
                raise ValueError(f"row {number} is {row!r}, not a list of {len(self.columns)} values")
        for name, values in zip(self.columns or ("value",), zip(*rows, strict=True), strict=True):
            kinds = sorted({type(value).__name__ for value in values})
            if len(kinds) > 1:
                raise ValueError(f"column {name} has values of the types {', '.join(kinds)}; put text in quotes")
        return self


class _Banks(BaseModel):
    """A file of banks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    banks: dict[str, _Bank]


def load_banks(folder: Path) -> dict[str, list[Any]]:
    """Load the banks of a folder, `*_banks.yaml`: name -> what may be drawn; columns are attributes of rows.

    Raises:
        ConfigurationError: A file cannot be read or does not fit, or two banks have one name.
    """
    found: dict[str, list[Any]] = {}
    for path in sorted(folder.glob("*_banks.yaml")):
        for name, bank in load_model(path, _Banks).banks.items():
            if name in found:
                raise ConfigurationError(f"{path}: banks.{name}: there is another bank of this name. Rename one.")
            found[name] = bank.records
    return found
