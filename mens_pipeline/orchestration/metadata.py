"""Metadata that assets show in the UI: tables, columns, paths, and the identity of an adapter."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import dagster as dg
from pydantic import BaseModel

from mens_pipeline.models.adapter import Adapter
from mens_pipeline.promotion.policy import load_gate_policy
from mens_pipeline.settings import GATE_POLICY

RECIPE_TAG: Final = "mens/recipe"


def table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = ()) -> dg.TableMetadataValue:
    """Return rows as a table; name the columns if there may be no rows."""
    schema = dg.TableSchema([dg.TableColumn(name) for name in columns]) if columns else None
    return dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in rows], schema=schema)


YOURS: Final = "yours"
"""Name of the metadata entry that accounts for the files of the workspace; `mens run` prints it."""

_MOST_PLACES: Final = 3


def count_reasons(dropped: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield `2 rejected (a.vox:3 expected-token, b.vox:1 unclosed-delimiter)` for each reason; at most three places.

    `dropped` are reasons, each with its place or an empty text.
    """
    places: defaultdict[str, list[str]] = defaultdict(list)
    for reason, place in dropped:
        places[reason].append(place)
    for reason, found in sorted(places.items(), key=lambda item: -len(item[1])):
        named = [*filter(None, dict.fromkeys(found))]
        more = f" and {len(named) - _MOST_PLACES} more" if len(named) > _MOST_PLACES else ""
        yield f"{len(found)} {reason}" + (f" ({', '.join(named[:_MOST_PLACES])}{more})" if named else "")


def required_by(key: str) -> dict[str, Any]:
    """Return the value that a key of config/gates.yaml requires, and the key and file as its source."""
    return {"required": getattr(load_gate_policy(GATE_POLICY), key), "set_by": f"{key} in {GATE_POLICY}"}


_KEY: Final = re.compile(r"([0-9a-f]{12})[0-9a-f]{52}")
FILES: Final = "files"
"""Name of the metadata entry that holds the paths of an asset."""


def fold_paths(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Move all paths into one entry and shorten the keys in them to a shell pattern: `0d3fff88261c*`.

    The UI cannot break a line within a key, so full keys would push the page of the asset off the screen.
    """
    paths = {
        name: _KEY.sub(r"\1*", str(value.path))
        for name, value in metadata.items()
        if isinstance(value, dg.PathMetadataValue)
    }
    others = {name: value for name, value in metadata.items() if name not in paths}
    return {**others, FILES: dg.MetadataValue.json(paths)} if paths else others


def identify(context: dg.AssetExecutionContext, adapter: Adapter, **tags: str) -> dict[str, str]:
    """Tag a run with adapter, recipe and base, and return the same facts as metadata.

    `/v1/models` shows the same digest. If the run did not train, the recipe comes from the manifest.
    """
    manifest = adapter.manifest
    run = context.instance.get_run_by_id(context.run.run_id)  # with the tags that earlier steps gave it
    tagged = run.tags.get(RECIPE_TAG) if run is not None else None
    label = tagged or manifest.recipe_name or f"preset {manifest.preset or 'none'}"
    facts = {"adapter": adapter.digest[:12], "recipe": label, "base": manifest.base_model.name}
    context.instance.add_run_tags(
        context.run.run_id, {f"mens/{name}": value for name, value in {**facts, **tags}.items()}
    )
    return {
        "adapter_name": manifest.name,
        "adapter_sha256": facts["adapter"],
        "recipe_name": label,
        "base_model": facts["base"],
    }


def describe_columns(model: type[BaseModel]) -> dict[str, Any]:
    """Return metadata with the columns of a model, which Dagster shows on the page of an asset."""
    schema = model.model_json_schema()
    columns = [
        dg.TableColumn(
            name,
            type=_name_type(field),
            description=field.get("description") or _describe_type(schema, field),
            constraints=dg.TableColumnConstraints(nullable={"type": "null"} in field.get("anyOf", ())),
        )
        for name, field in schema["properties"].items()
    ]
    return {"dagster/column_schema": dg.TableSchema(columns)}


def _describe_type(schema: dict[str, Any], field: dict[str, Any]) -> str | None:
    described = schema.get("$defs", {}).get(_name_type(field), {}).get("description")
    return described.partition("\n")[0] if described else None


def _name_type(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(map(_name_type, field["anyOf"]))
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    return str(field.get("type", "any"))
