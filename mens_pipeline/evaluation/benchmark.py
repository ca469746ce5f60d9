"""Benchmarks: held-out tasks with reference solutions, from `data/heldout_bench` or a user's folder.

`manifest.json` has upstream's keys and ours. Tasks of upstream's own manifest have neither a solution nor requirements,
and are scored by expected substrings.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from mens_pipeline.corpus.schema.records import MAX_TEXT, Source, SourceKind, TrainingPair
from mens_pipeline.errors import ConfigurationError, did_you_mean
from mens_pipeline.evaluation.requirements import Requirement, unmet
from mens_pipeline.language import Analysis, Mode, analyze, difficulty, mode_of
from mens_pipeline.language.ast import Test
from mens_pipeline.storage.files import read_regular
from mens_pipeline.storage.store import digest_of

SCHEMA: Final = "vox_mens_bench_manifest_v1"
MANIFEST: Final = "manifest.json"
_LARGEST: Final = 2**26
"""Largest file to hash, in bytes; files of a valid benchmark are far smaller."""
_ADVICE: Final = "Name a folder that holds a benchmark, or restore the file."
_LONGEST_FOUND: Final = 60  # most characters of a wrong value in a message
_WORDINGS: Final = {
    "Input should be": "expected",
    "String should": "expected a string to",
    "Tuple should": "expected a list to",
}
"""Start of a pydantic message -> our wording, which follows the value that was found."""


class Difficulty(StrEnum):
    """Intended difficulty of a task."""

    EASY = "easy"  # one small declaration, described in one sentence
    MEDIUM = "medium"  # a declaration with behaviour, or two that belong together
    HARD = "hard"  # several declarations that must fit each other


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
    """A task in the manifest."""

    id: str = Field(pattern=r"^[a-z][a-z0-9_]*$", description="Name, unique in the manifest.")
    category: str = Field(min_length=1, description="Group of the task in reports; in our benchmarks, its construct.")
    description: str = Field(min_length=1, max_length=MAX_TEXT, description="The prompt.")
    file: FilePath | None = Field(default=None, description="A file that the prompt is about.")
    context_files: tuple[FilePath, ...] = Field(default=(), description="Files with context.")
    semantic_expected_contains: tuple[str, ...] = Field(default=(), description="Substrings of a correct completion.")
    difficulty: Difficulty = Field(default=Difficulty.MEDIUM, description="Intended difficulty.")
    mode: Mode = Field(default=Mode.SOURCE, description="Mode to parse a completion in.")
    requires: tuple[Requirement, ...] = Field(default=(), description="Declarations that a completion must have.")
    tests: FilePath | None = Field(default=None, description="File with `@test` functions, hidden from models.")
    never_train: bool = Field(
        default=False,
        description="Upstream's key, ignored: everything below data/heldout_bench stays out of training anyway.",
    )
    untested: str | None = Field(default=None, min_length=1, description="Why it has no hidden tests.")
    provenance: str = Field(default="Not stated.", min_length=1, description="Author, and source that it is based on.")
    solution: FilePath | None = Field(default=None, description="File with the reference solution.")
    wrong: tuple[FilePath, ...] = Field(default=(), description="Files with completions that fail the hidden tests.")

    def files(self) -> tuple[str, ...]:
        """Return the paths of its files, as written in the manifest."""
        return tuple(_named_files(vars(self)))

    @property
    def needles(self) -> tuple[str, ...]:
        """Substrings that a correct completion contains; empty if requirements or tests decide."""
        return () if self.requires or self.tests is not None else self.semantic_expected_contains


class Manifest(_Strict):
    """The content of `manifest.json`."""

    schema_: Literal["vox_mens_bench_manifest_v1"] = Field(alias="schema", description="The version of the format.")
    description: str = Field(default="", description="The purpose of the benchmark.")
    benchmarks: tuple[TaskSpec, ...] = Field(min_length=1, description="The tasks, in the order of the report.")


def read_manifest(content: bytes, faults: list[str]) -> tuple[str, tuple[TaskSpec, ...]]:
    """Parse a manifest; return its description and its well-formed tasks.

    Append a sentence to `faults` for each mistake: its place, the value found, and the value expected.
    """
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        faults.append(f"the document: found invalid JSON ({error}), expected an object.")
        return "", ()
    try:
        manifest = Manifest.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False)
        faults.extend(_sentence(detail) for detail in details)
        description, tasks = "", tuple(_sound_tasks(data, details))
    else:
        description, tasks = manifest.description, manifest.benchmarks
    faults.extend(_twice([task.id for task in tasks]))
    return description, tasks


def _sound_tasks(data: Any, details: Iterable[ErrorDetails]) -> Iterator[TaskSpec]:
    broken = {detail["loc"][1] for detail in details if detail["loc"][:1] == ("benchmarks",) and len(detail["loc"]) > 1}
    tasks = data.get("benchmarks") if isinstance(data, dict) else None
    for number, task in enumerate(tasks if isinstance(tasks, list) else ()):
        if number not in broken:
            yield TaskSpec.model_validate(task)


def _twice(names: list[str]) -> Iterator[str]:
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"task `{name}`: found {names.count(name)} tasks with this id, expected one. Rename the others."


def _sentence(detail: ErrorDetails) -> str:
    place, message = ".".join(map(str, detail["loc"])) or "the document", detail["msg"]
    for theirs, ours in _WORDINGS.items():
        message = message.replace(theirs, ours)
    match detail["type"]:
        case "missing":
            return f"{place}: found nothing, expected a value."
        case "extra_forbidden":
            return f"{place}: found a key that does not exist. {_key_advice(detail['loc'])}"
        case "value_error":
            return f"{place}: {_describe_value(detail)}{detail['msg'].removeprefix('Value error, ').rstrip('.')}."
        case _:
            return f"{place}: {_describe_value(detail)}{message}."


def _describe_value(detail: ErrorDetails) -> str:
    value = detail["input"]
    if isinstance(value, dict | list):
        return ""
    text = json.dumps(value, ensure_ascii=False)
    return f"found {text if len(text) <= _LONGEST_FOUND else text[:_LONGEST_FOUND] + '...'}, "


def _key_advice(place: tuple[int | str, ...]) -> str:
    model: type[BaseModel] = Requirement if "requires" in place else TaskSpec if "benchmarks" in place else Manifest
    known = [field.alias or name for name, field in model.model_fields.items()]
    return did_you_mean(str(place[-1]), known) or f"Expected one of: {', '.join(known)}."


_MAX_BYTES: Final = 4 * MAX_TEXT  # a character has up to four bytes in UTF-8


def read_files(folder: Path, named: Iterable[tuple[str, str]], faults: list[str]) -> dict[str, str]:
    """Read the files of a benchmark; return their unchanged texts by name.

    `named` holds pairs of task and file, relative to the folder. Add a sentence to `faults` for each unreadable file.
    """
    texts: dict[str, str] = {}
    for task, name in named:
        try:
            texts[name] = _text(folder, name)
        except OSError as error:
            faults.append(f"task `{task}`: found no file `{name}` ({error.strerror}), expected one. Add it.")
        except ValueError as error:
            faults.append(f"task `{task}`: {name}: {error}")
    return texts


def digest_of_benchmark(folder: Path) -> str:
    """Compute the digest of a benchmark: SHA-256 over its manifest and the files named in it, hexadecimal.

    The content is not validated, because an evaluation has already loaded the benchmark. `ConfigurationError` if a
    file cannot be read.
    """
    path = folder / MANIFEST
    try:
        tasks = json.loads(path.read_bytes())["benchmarks"]
        names = sorted({name for task in tasks for name in _named_files(task)})
        digest = hashlib.sha256(bytes.fromhex(digest_of(path)))
        for name in names:
            digest.update(name.encode() + b"\0")
            digest.update(hashlib.sha256(read_regular(folder / name, _LARGEST)).digest())
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigurationError(f"{path}: not a readable benchmark ({error}). {_ADVICE}") from error
    return digest.hexdigest()


def _named_files(task: Mapping[str, Any]) -> Iterator[str]:
    for key in ("file", "tests", "context_files", "solution", "wrong"):
        found = task.get(key) or ()
        yield from (found,) if isinstance(found, str) else found


def _text(folder: Path, name: str) -> str:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError("found a link that leads out of the folder, expected a file in it. Copy the file here.")
    try:
        text = read_regular(path, _MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"found bytes that are not UTF-8 ({error.reason}), expected text. Save it as UTF-8."
        ) from error
    if not text.strip() or len(text) > MAX_TEXT:
        raise ValueError(f"found {len(text)} characters, expected a text of 1 to {MAX_TEXT}. Correct the file.")
    return text


def find_solution_errors(spec: TaskSpec, solution: str, tests: str | None) -> Iterator[str]:
    """Yield a sentence for each mistake in the solution and tests of a task."""
    if not (spec.requires or tests is not None or spec.needles):
        expected = "expected one of them to score completions. Add one."
        yield f"found neither `requires` nor `tests` nor `semantic_expected_contains`, {expected}"
    if spec.solution is not None:
        if (mode_of(spec.solution) is Mode.UI) != (spec.mode is Mode.UI):
            suffix, found = ".vox.ui" if spec.mode is Mode.UI else ".vox", f"found mode `{spec.mode}`"
            yield f"{spec.solution}: {found}, which expects a file name with `{suffix}`. Rename the file."
        yield from _find_completion_errors(spec, solution)
    if tests is not None:
        analysis = analyze(tests)
        if analysis.module is None:
            yield f"{spec.tests}: {_rejection(analysis)}, expected Vox. Correct the tests."
        elif not any(isinstance(declaration, Test) for declaration in analysis.module.declarations):
            yield f"{spec.tests}: found no `@test` function, expected at least one. Add one."


def _find_completion_errors(spec: TaskSpec, solution: str) -> Iterator[str]:
    analysis = analyze(solution, spec.mode)
    if analysis.module is None:
        yield f"{spec.solution}: {_rejection(analysis)}, expected Vox (mode `{spec.mode}`). Correct the solution."
        return
    for sentence in unmet(spec.requires, analysis.module, solution):
        yield f"{spec.solution}: {sentence} Correct the solution, or `requires`."
    for needle in spec.semantic_expected_contains:
        if needle not in solution:
            yield f"{spec.solution}: found no `{needle}` of `semantic_expected_contains`. Correct one of them."


def _rejection(analysis: Analysis) -> str:
    first = analysis.errors[0]
    return f"found an error in line {first.start.line} ({first.message})"


@dataclass(frozen=True, slots=True)
class BenchmarkTask:
    """A task with the texts of its files.

    `solution` parses and meets all requirements, or is empty. `context` has the texts of `file` and `context_files`, in
    this order; `wrong` has plausible completions that fail the hidden tests.
    """

    spec: TaskSpec
    solution: str
    tests: str | None
    context: tuple[str, ...]
    wrong: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Name, unique in the benchmark."""
        return self.spec.id


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Tasks to evaluate a model on.

    `digest` is the SHA-256 over the manifest and all files named in it, hexadecimal; the same on every machine.
    """

    folder: Path
    description: str
    digest: str
    tasks: tuple[BenchmarkTask, ...]


def load_benchmark(folder: Path) -> Benchmark:
    """Read and check a benchmark: a folder with `manifest.json` and the files that it names.

    A `ConfigurationError` lists all mistakes, one a line.
    """
    path = folder / MANIFEST
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}. {_ADVICE}") from error
    faults: list[str] = []
    description, specs = read_manifest(content, faults)
    files = read_files(folder, [(spec.id, name) for spec in specs for name in spec.files()], faults)
    tasks = tuple(_task(spec, files) for spec in specs if all(name in files for name in spec.files()))
    for task in tasks:
        faults.extend(
            f"task `{task.id}`: {text}" for text in find_solution_errors(task.spec, task.solution, task.tests)
        )
    if faults:
        found = f"{len(faults)} mistake{'s' if len(faults) > 1 else ''}"
        lines = "".join(f"\n  {fault}" for fault in faults)
        raise ConfigurationError(f"{path}: {found}. Correct the manifest, or the files it names:{lines}")
    return Benchmark(folder, description, digest_of_benchmark(folder), tasks)


def tasks_as_pairs(benchmark: Benchmark) -> tuple[TrainingPair, ...]:
    """Convert tasks to training pairs, so that near copies of them stay out of training.

    A solution counts as a whole file (`vox_file`), whose path gives the mode to parse it in. The path of a script does
    not, so scripts are compared by words and prompts, not by structure.
    """
    return tuple(_pair(benchmark.folder.name, task) for task in benchmark.tasks)


def protected_pairs(folder: Path) -> tuple[TrainingPair, ...]:
    """Return the tasks of a benchmark and of all benchmarks below its folder, as pairs to keep out of training."""
    own = load_benchmark(folder)
    folders = [path.parent for path in sorted(folder.rglob(MANIFEST))]
    benchmarks = (own if below == folder else load_benchmark(below) for below in folders)
    return tuple(pair for benchmark in benchmarks for pair in tasks_as_pairs(benchmark))


def _pair(folder: str, task: BenchmarkTask) -> TrainingPair:
    """Convert a task to a pair; without a solution, its response is the prompt, so that no row may repeat that."""
    spec, text = task.spec, task.solution or task.spec.description
    module = analyze(text, spec.mode).module if task.solution else None
    source = Source(
        path=f"{folder}/{spec.solution or MANIFEST}",
        blob=hashlib.sha256(text.encode()).hexdigest(),
        span=(0, len(text)),
        lines=(1, max(1, len(text.splitlines()))),
        kind=SourceKind.VOX_FILE,
    )
    return TrainingPair(
        prompt=spec.description,
        response=text,
        category=spec.category,
        rating=5,
        **({"difficulty": difficulty(module), "tests": task.tests} if module else {"response_mode": "prose_only"}),
        source=source,
    )


def _task(spec: TaskSpec, files: dict[str, str]) -> BenchmarkTask:
    named = (*([spec.file] if spec.file is not None else ()), *spec.context_files)
    tests = files[spec.tests] if spec.tests is not None else None
    context, wrong = (tuple(files[name] for name in names) for names in (named, spec.wrong))
    return BenchmarkTask(spec, files[spec.solution] if spec.solution is not None else "", tests, context, wrong)
