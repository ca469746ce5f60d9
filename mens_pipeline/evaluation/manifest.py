"""The manifest of a benchmark: `manifest.json`, with upstream's keys and ours."""

import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from mens_pipeline.corpus.schema.records import MAX_TEXT
from mens_pipeline.evaluation.requirements import Requirement
from mens_pipeline.language import Mode
from mens_pipeline.language.suggestions import did_you_mean

SCHEMA: Final = "vox_mens_bench_manifest_v1"

_LONGEST_FOUND: Final = 60
"""Characters of a wrong value that a message shows."""

_WORDINGS: Final = {
    "Input should be": "expected",
    "String should": "expected a string to",
    "Tuple should": "expected a list to",
}
"""How pydantic begins its messages -> how ours go on after what was found."""


class Difficulty(StrEnum):
    """Intended difficulty of a task."""

    EASY = "easy"
    """One small declaration, told in one sentence."""
    MEDIUM = "medium"
    """A declaration with behaviour, or two that belong together."""
    HARD = "hard"
    """Several declarations that must fit each other."""


def _inside(path: str) -> str:
    pure = PurePosixPath(path)
    if "\\" in path or pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise ValueError("expected a path inside the folder of the benchmark, with forward slashes and without `..`")
    return path


FilePath = Annotated[str, AfterValidator(_inside)]
"""A file of a benchmark, relative to its folder."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)


class TaskSpec(_Strict):
    """One task, as the manifest states it."""

    id: str = Field(pattern=r"^[a-z][a-z0-9_]*$", description="Its name, unique in the manifest.")
    category: str = Field(min_length=1, description="What results are counted by; in ours the construct it is about.")
    description: str = Field(min_length=1, max_length=MAX_TEXT, description="The prompt that the model is given.")
    file: FilePath | None = Field(default=None, description="A file that the prompt is about.")
    context_files: tuple[FilePath, ...] = Field(default=(), description="Files that stand beside it.")
    semantic_expected_contains: tuple[str, ...] = Field(default=(), description="Substrings of a right answer.")
    difficulty: Difficulty = Field(default=Difficulty.MEDIUM, description="How hard it is meant to be.")
    mode: Mode = Field(default=Mode.SOURCE, description="How an answer is read.")
    requires: tuple[Requirement, ...] = Field(default=(), description="What an answer must declare.")
    tests: FilePath | None = Field(default=None, description="A file with `@test` functions that no model sees.")
    never_train: bool = Field(
        default=False,
        description="Upstream's key, read by nothing: all below data/heldout_bench stays out of training anyway.",
    )
    provenance: str = Field(min_length=1, description="Who wrote it, and after what.")
    solution: FilePath = Field(description="The file with the reference solution.")
    wrong: tuple[FilePath, ...] = Field(default=(), description="Files with answers that the hidden tests refuse.")

    def files(self) -> tuple[str, ...]:
        """Return the files it names, as they stand in the manifest."""
        optional = (self.file, self.tests)
        return (*(path for path in optional if path is not None), *self.context_files, self.solution, *self.wrong)


class Manifest(_Strict):
    """A whole benchmark, as its manifest states it."""

    schema_: Literal["vox_mens_bench_manifest_v1"] = Field(alias="schema", description="The version of the format.")
    description: str = Field(default="", description="What the benchmark is for.")
    benchmarks: tuple[TaskSpec, ...] = Field(min_length=1, description="The tasks, in the order of the report.")


def read_manifest(content: bytes, mistakes: list[str]) -> tuple[str, tuple[TaskSpec, ...]]:
    """Parse a manifest to its description and those of its tasks that are well formed.

    `mistakes` takes one sentence for each mistake: where, what was found, what was expected.
    """
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        mistakes.append(f"the whole: found no JSON ({error}), expected an object.")
        return "", ()
    try:
        manifest = Manifest.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False)
        mistakes.extend(_sentence(detail) for detail in details)
        description, tasks = "", tuple(_sound_tasks(data, details))
    else:
        description, tasks = manifest.description, manifest.benchmarks
    mistakes.extend(_twice([task.id for task in tasks]))
    return description, tasks


def _sound_tasks(data: Any, details: Iterable[ErrorDetails]) -> Iterator[TaskSpec]:
    """Yield the tasks without a mistake of their own, so that their files are checked in the same go."""
    broken = {detail["loc"][1] for detail in details if detail["loc"][:1] == ("benchmarks",) and len(detail["loc"]) > 1}
    tasks = data.get("benchmarks") if isinstance(data, dict) else None
    for number, task in enumerate(tasks if isinstance(tasks, list) else ()):
        if number not in broken:
            yield TaskSpec.model_validate(task)


def _twice(names: list[str]) -> Iterator[str]:
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"task `{name}`: found {names.count(name)} tasks with this id, expected one. Rename the others."


def _sentence(detail: ErrorDetails) -> str:
    place = ".".join(map(str, detail["loc"])) or "the whole"
    match detail["type"]:
        case "missing":
            return f"{place}: found nothing, expected a value."
        case "extra_forbidden":
            return f"{place}: found a key that does not exist. {_key_advice(detail['loc'])}"
        case "value_error":
            return f"{place}: {_found(detail)}{detail['msg'].removeprefix('Value error, ').rstrip('.')}."
        case _:
            return f"{place}: {_found(detail)}{_expected(detail['msg'])}."


def _expected(message: str) -> str:
    for theirs, ours in _WORDINGS.items():
        message = message.replace(theirs, ours)
    return message


def _found(detail: ErrorDetails) -> str:
    """Describe the wrong value; empty for one that holds others, whose message names what is wrong with them."""
    value = detail["input"]
    if isinstance(value, dict | list):
        return ""
    text = json.dumps(value, ensure_ascii=False)
    return f"found {text if len(text) <= _LONGEST_FOUND else text[:_LONGEST_FOUND] + '...'}, "


def _key_advice(place: tuple[int | str, ...]) -> str:
    model: type[BaseModel] = Requirement if "requires" in place else TaskSpec if "benchmarks" in place else Manifest
    known = [field.alias or name for name, field in model.model_fields.items()]
    return did_you_mean(str(place[-1]), known) or f"Expected one of: {', '.join(known)}."
