"""Stages: a stage makes one artifact from parents and parameters, once for the same inputs and code."""

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
    """Annotates a field of any type with the function that gives its JSON value for the key."""

    to_json: Callable[[Any], object]

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> CoreSchema:
        return any_schema(serialization=plain_serializer_function_ser_schema(self.to_json))


Parent = Annotated[Artifact, DecidedBy(attrgetter("key"))]
"""An artifact that a stage reads."""

Content = Annotated[Path, DecidedBy(digest_of)]
"""A file whose content decides the key, not its path; an artifact that holds it is recorded as a parent."""

Helper = Annotated[T, Field(exclude=True), DecidedBy(repr)]
"""A field that does not decide the result, such as a launcher of processes; it is left out of the key."""


class Params(BaseModel):
    """Inputs of a stage: parents, parameters and helpers.

    `origins` are parents that are left out of the key, because other fields hold the hashes of everything read from
    them. Another artifact with the same content then causes no rebuild.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    origins: Helper[tuple[Artifact, ...]] = ()

    def parents(self, store: ArtifactStore) -> tuple[Artifact, ...]:
        """Return the artifacts among the fields, and the artifacts that hold files among the fields, each once."""
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
    """A kind of artifact, the code that decides its content, and the function that makes it.

    Attributes:
        entries: The code, as for `code_version`: the module of the stage, or less if a rebuild is expensive.
        run: Fills a folder and returns further fields of the manifest.
        without: Modules that do not decide the content.
        sign: `signing.add_signature`, if artifacts are signed.
    """

    kind: str
    entries: tuple[str, ...]
    run: Callable[[Path, P], dict[str, Any]]
    without: tuple[str, ...] = ()
    sign: Callable[[ArtifactStore, str, Mapping[str, Any], _Write], tuple[Mapping[str, Any], _Write]] | None = None

    @property
    def code_version(self) -> str:
        """SHA-256 of the code, hexadecimal."""
        return code_version(*self.entries, without=self.without)

    def inputs(self, params: P) -> dict[str, Any]:
        """Return everything that decides the content of an artifact, in JSON types."""
        return {**params.model_dump(mode="json"), "code": self.code_version}

    def find(self, store: ArtifactStore, params: P) -> Artifact | None:
        """Return the artifact of these parameters, if it is complete."""
        return store.find(self.kind, self.inputs(params))

    def build(self, store: ArtifactStore, params: P, *, force: bool = False) -> tuple[Artifact, bool]:
        """Return the artifact of these parameters, made if absent, and whether it was reused."""

        def write(folder: Path) -> dict[str, Any]:
            return self.run(folder, params)

        inputs = self.inputs(params)
        made_of = (inputs, write) if self.sign is None else self.sign(store, self.kind, inputs, write)
        return store.build(self.kind, *made_of, params.parents(store), again=force)
