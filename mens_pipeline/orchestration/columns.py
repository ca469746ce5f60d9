"""Columns of the rows that assets hold, for the page of the asset."""

from typing import Any

import dagster as dg
from dagster._core.definitions.metadata.metadata_set import TableMetadataSet
from pydantic import BaseModel


def columns_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the metadata by which Dagster shows the columns of an asset."""
    schema = model.model_json_schema()
    required = schema.get("required", [])
    columns = [
        dg.TableColumn(
            name,
            type=_type_of(field),
            description=field.get("description"),
            constraints=dg.TableColumnConstraints(nullable=name not in required),
        )
        for name, field in schema["properties"].items()
    ]
    return dict(TableMetadataSet(column_schema=dg.TableSchema(columns)))


def _type_of(field: dict[str, Any]) -> str:
    """Return the type of a column in the words of JSON."""
    if "anyOf" in field:
        return " or ".join(map(_type_of, field["anyOf"]))
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    return str(field.get("type", "any"))
