"""A stage: from parents and parameters to an artifact, made once for the same parents, parameters and code."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core.core_schema import CoreSchema, any_schema, plain_serializer_function_ser_schema

from mens_pipeline.storage.code_version import code_version
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of

T = TypeVar("T")

_Write = Callable[[Path], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class DecidedBy:
    """Marks a field that may be of any type: what `log_line` makes of it, in JSON types, stands in the key for it."""

    log_line: Callable[[Any], object]

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> CoreSchema:
        return any_schema(serialization=plain_serializer_function_ser_schema(self.log_line))


Parent = Annotated[Artifact, DecidedBy(attrgetter("key"))]
"""An artifact that a stage reads."""

Content = Annotated[Path, DecidedBy(digest_of)]
"""A file of which the content counts, wherever it lies; the artifact that it lies in is a parent on record."""

Helper = Annotated[T, Field(exclude=True), DecidedBy(repr)]
"""What helps to make something and does not decide it, such as a process to start; it is in no key."""


class Params(BaseModel):
    """What a stage is given: parents and parameters, which decide what it makes, and helpers.

    Attributes:
        origins: Artifacts that are parents on record and in no key: other fields have the hashes of all that is taken
            from them, so that another artifact with the same content makes nothing again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    origins: Helper[tuple[Artifact, ...]] = ()

    def parents(self, store: ArtifactStore) -> tuple[Artifact, ...]:
        """Return the artifacts among the fields, and those that files among them lie in, each once."""
        values = list(_values({name: getattr(self, name) for name in type(self).model_fields}))
        artifacts = [value for value in values if isinstance(value, Artifact)]
        artifacts += store.holding(*(value for value in values if isinstance(value, Path)))
        return tuple({(one.kind, one.key): one for one in artifacts}.values())


def _values(value: object) -> Iterator[object]:
    if isinstance(value, tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _values(part)
    else:
        yield value


P = TypeVar("P", bound=Params)


@dataclass(frozen=True, slots=True)
class Stage(Generic[P]):
    """A kind of artifact, the code that decides what one holds, and the function that makes one.

    Attributes:
        kind: What is made: `extracted_corpus`.
        entries: The code, as `code_version` takes it; the module of the stage, or less where making again is dear.
        run: Fills a folder, and returns what the manifest says besides.
        without: Modules that are of no account to it.
        sign: `signing.add_signature`, where what is made is signed.
    """

    kind: str
    entries: tuple[str, ...]
    run: Callable[[Path, P], dict[str, Any]]
    without: tuple[str, ...] = ()
    sign: Callable[[ArtifactStore, str, Mapping[str, Any], _Write], tuple[Mapping[str, Any], _Write]] | None = None

    @property
    def code_version(self) -> str:
        """SHA-256 over the code, hexadecimal."""
        return code_version(*self.entries, without=self.without)

    def inputs(self, params: P) -> dict[str, Any]:
        """Return all that decides what an artifact holds, in JSON types."""
        return {**params.model_dump(mode="json"), "code": self.code_version}

    def find(self, store: ArtifactStore, params: P) -> Artifact | None:
        """Return the artifact of these parameters, if it is complete."""
        return store.find(self.kind, self.inputs(params))

    def build(self, store: ArtifactStore, params: P, *, force: bool = False) -> tuple[Artifact, bool]:
        """Return the artifact of these parameters, made unless it is there, and whether it was reused."""

        def write(folder: Path) -> dict[str, Any]:
            return self.run(folder, params)

        inputs = self.inputs(params)
        made_of = (inputs, write) if self.sign is None else self.sign(store, self.kind, inputs, write)
        return store.build(self.kind, *made_of, params.parents(store), again=force)
