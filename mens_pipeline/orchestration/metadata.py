"""Assets: how they are declared, how their steps end, and what they show: tables, columns, small pictures."""

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Any, Final, ParamSpec, TypeVar

import dagster as dg
from dagster._core.definitions.metadata.metadata_set import TableMetadataSet
from dagster_shared.error import SerializableErrorInfo
from pydantic import BaseModel

from mens_pipeline.errors import MensError
from mens_pipeline.models.adapter import TrainingManifest
from mens_pipeline.settings import load_settings
from mens_pipeline.storage.stage import Stage
from mens_pipeline.storage.store import digest_of, key_of

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")

_PREFIX: Final = re.compile(r"^(mens_pipeline\.errors|dagster\.[\w.]+)\.\w+: ")


_OVER: Final = frozenset((dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.FAILURE))


def stop_if_canceled(context: dg.AssetExecutionContext) -> None:
    """End a step whose run was canceled, deleted or reported as failed, as SIGINT would.

    Dagster sends SIGINT once, and Python swallows it where it comes in the middle of a weakref callback. And the start
    of a run takes the place of the status that says it is being canceled, but not of the event.

    Raises:
        dagster.DagsterExecutionInterruptedError: The run is over; no `except Exception` holds this up.
    """
    instance, run_id = context.instance, context.run.run_id
    run = instance.get_run_by_id(run_id)
    is_canceled = bool(instance.all_logs(run_id, of_type=dg.DagsterEventType.RUN_CANCELING))
    if run is None or run.status in _OVER or is_canceled:
        found = "gone" if run is None else "canceled" if is_canceled else run.status.value
        raise dg.DagsterExecutionInterruptedError(f"run {context.run.run_id} is {found}; nothing more is done for it")


def plainly(make: Callable[Arguments, Made]) -> Callable[Arguments, Made]:
    """Turn the errors of this package into a failure whose first line is the reason; nothing is retried.

    It does not begin where its run is over.
    """

    @wraps(make)
    def make_or_fail(*arguments: Arguments.args, **named: Arguments.kwargs) -> Made:
        stop_if_canceled(dg.AssetExecutionContext.get())
        try:
            return make(*arguments, **named)
        except MensError as error:
            raise dg.Failure(str(error), allow_retries=False) from error

    return make_or_fail


def reason_of(error: SerializableErrorInfo) -> str:
    """Return the text of the error that a step ended with; of one of Dagster's that wraps another, the text of that."""
    text = (error.cause or error).message.strip()
    lines = (line.strip() for line in _PREFIX.sub("", text).splitlines())
    return " ".join(line for line in lines if line)


def reasons_of(failures: Iterable[dg.DagsterEvent]) -> Iterator[str]:
    """Yield step and reason of each step that failed by itself."""
    for event in failures:
        error = event.step_failure_data.error
        yield f"{event.step_key}: {reason_of(error) if error is not None else event.message}"


OWNERS: Final = ("team:mens",)
"""Of every asset that is made; sources belong to those who write them."""

RECIPE_TAG: Final = "mens/recipe"

GPU_TAGS: Final = {"mens/device": "gpu"}
"""Of steps that want a GPU, for launchers that choose a machine by the tags of a step."""

_GPU_POD: Final = {"container_config": {"resources": {"limits": {"nvidia.com/gpu": "1"}}}}
"""Resources of a pod of a step that uses a GPU, for `dagster_k8s:k8s_job_executor`; pods of other steps get none."""


def declare_asset(
    group: str, *kinds: str, version: str, rows: type[BaseModel] | None = None, on_gpu: bool = False, **more: Any
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Declare what a function makes as an asset that refuses plainly.

    Args:
        group: Of the asset graph.
        kinds: What it is made of, as the UI shows it.
        version: Of its code, and of the configuration that decides it.
        rows: The model of its rows, whose columns the UI shows.
        on_gpu: Whether it takes a slot of the GPU, and runs where one is.
        more: What else `dg.asset` takes.
    """
    if rows is not None:
        more["metadata"] = columns_of(rows)
    if on_gpu:
        pod = {} if load_settings().backend == "cpu" else {"dagster-k8s/config": _GPU_POD}
        more |= {"pool": "gpu", "op_tags": {**GPU_TAGS, **pod}, "tags": GPU_TAGS}

    def declare(make: Callable[..., Any]) -> dg.AssetsDefinition:
        declared = dg.asset(group_name=group, kinds=set(kinds), owners=OWNERS, code_version=version, **more)
        asset: dg.AssetsDefinition = declared(plainly(make))
        return asset

    return declare


def version_with_config(stage: Stage[Any] | str, *paths: Path) -> str:
    """Return the version of an asset that a stage (or its code version) and configuration files decide."""
    code = stage if isinstance(stage, str) else stage.code_version
    contents = {path.name: digest_of(path) for path in paths if path.is_file()}
    return key_of({"code": code, "configuration": contents})


def table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = ()) -> dg.TableMetadataValue:
    """Return rows as a table; one that may be empty names its columns."""
    schema = dg.TableSchema([dg.TableColumn(name) for name in columns]) if columns else None
    return dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in rows], schema=schema)


_KEY: Final = re.compile(r"([0-9a-f]{12})[0-9a-f]{52}")
FILES: Final = "files"
"""The metadata that names the files of an asset."""


def fold_paths(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata with all paths in one entry, their keys cut as a shell completes them: `0d3fff88261c*`.

    The UI breaks no line within a key, and then shows nothing on the page of the asset but cut off at the right.
    """
    paths = {
        name: _KEY.sub(r"\1*", str(value.path))
        for name, value in metadata.items()
        if isinstance(value, dg.PathMetadataValue)
    }
    others = {name: value for name, value in metadata.items() if name not in paths}
    return {**others, FILES: dg.MetadataValue.json(paths)} if paths else others


def identify(
    context: dg.AssetExecutionContext, manifest: TrainingManifest, adapter_sha256: str, **tags: str
) -> dict[str, str]:
    """Tag a run with adapter, recipe and base, and return the same as metadata."""
    run = context.instance.get_run_by_id(context.run.run_id)  # with the tags that earlier steps gave it
    tagged = run.tags.get(RECIPE_TAG) if run is not None else None
    label = tagged or f"preset {manifest.preset or 'none'}"
    facts = {"adapter": adapter_sha256[:12], "recipe": label, "base": manifest.base_model.name}
    context.instance.add_run_tags(
        context.run.run_id, {f"mens/{name}": value for name, value in {**facts, **tags}.items()}
    )
    return {"adapter_sha256": facts["adapter"], "recipe_name": label, "base_model": facts["base"]}


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
    if "anyOf" in field:
        return " or ".join(map(_type_of, field["anyOf"]))
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    return str(field.get("type", "any"))


_ROW: Final = 16
_LABEL: Final = 120
_BAR: Final = 200
_HEIGHT: Final = 140
_MARGIN: Final = 40
_MOST_POINTS: Final = 24


def bar_chart(title: str, values: Mapping[str, int]) -> str:
    """Draw horizontal bars, one a row, with their numbers, as Markdown with one image of a few kilobytes."""
    most = max(1, *values.values())
    rows = []
    for number, (name, value) in enumerate(values.items()):
        y = 24 + number * _ROW
        width = _BAR * value / most
        rows.append(
            f'<text x="{_LABEL - 6}" y="{y + 11}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{_LABEL}" y="{y + 2}" width="{width:.1f}" height="11" fill="#4f5bd5"/>'
            f'<text x="{_LABEL + width + 5:.1f}" y="{y + 11}">{value}</text>'
        )
    height = 30 + len(values) * _ROW
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LABEL + _BAR + 60}" height="{height}" '
        f'font-family="sans-serif" font-size="11" fill="#333"><rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="6" y="15" font-weight="bold">{escape(title)}</text>{"".join(rows)}</svg>'
    )
    return f"![{title}](data:image/svg+xml;base64,{b64encode(svg.encode()).decode()})"


def line_chart(title: str, values: Mapping[int, float], level: float | None = None) -> str:
    """Draw a curve over whole numbers, with the highest and the lowest value written out.

    Args:
        title: What is shown, in a few words.
        values: Place -> value, at least one, in order; of many, each point is the mean of its neighbours.
        level: A value beside them that belongs to no place, as a dashed line; None for none.

    Returns:
        Markdown with one image; below the thousand characters from which on Dagster hides it behind a button.
    """
    places = list(values.items())
    every = -(-len(places) // _MOST_POINTS)
    groups = [places[start : start + every] for start in range(0, len(places), every)]
    points = [(fmean(x for x, _ in group), fmean(y for _, y in group)) for group in groups]
    (first, _), (last, _) = places[0], places[-1]
    known = [*values.values(), *([] if level is None else [level])]
    low, high = min(known), max(known)
    across, up = _BAR / max(1, last - first), _HEIGHT / ((high - low) or 1)
    drawn = " ".join(f"{_MARGIN + (x - first) * across:.0f},{24 + (high - y) * up:.0f}" for x, y in points)
    bottom = 24 + _HEIGHT
    dashed = ""
    if level is not None:
        y = 24 + (high - level) * up
        dashed = f'<path d="M{_MARGIN} {y:.0f}h{_BAR}" stroke="#b02" stroke-dasharray="4"/>'
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_MARGIN + _BAR + 20}" height="{bottom + 24}" font-size="11">'
        '<rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="6" y="15">{escape(title)}</text><text x="6" y="34">{high:.3g}</text>'
        f'<text x="6" y="{bottom}">{low:.3g}</text><text x="{_MARGIN}" y="{bottom + 15}">{first}</text>'
        f'<text x="{_BAR + 20}" y="{bottom + 15}">{last}</text>'
        f'<polyline points="{drawn}" fill="none" stroke="#4f5bd5"/>{dashed}</svg>'
    )
    return f"![{title}](data:image/svg+xml;base64,{b64encode(svg.encode()).decode()})"
