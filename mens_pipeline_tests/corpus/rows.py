"""Small records and pairs for the tests of the corpus."""

import hashlib

from mens_pipeline.corpus.extract.programs import extract_vox
from mens_pipeline.corpus.extract.source_file import SourceFile
from mens_pipeline.corpus.schema.records import ExtractedRecord, Source, SourceKind
from mens_pipeline.corpus.schema.training_pair import TrainingPair


def source_at(path: str, kind: SourceKind = SourceKind.VOX_FILE) -> Source:
    """A place in a file."""
    return Source(path=path, blob=hashlib.sha256(path.encode()).hexdigest(), span=(0, 1), lines=(1, 1), kind=kind)


def pair_at(
    path: str | None, prompt: str, response: str, kind: SourceKind = SourceKind.VOX_FILE, template: str | None = None
) -> TrainingPair:
    """A pair of code from a file, or from nowhere."""
    source = None if path is None else source_at(path, kind)
    return TrainingPair(prompt=prompt, response=response, source=source, template=template)


def records_of(source: str, path: str = "a.vox") -> tuple[ExtractedRecord, ...]:
    """The records of a program that trains."""
    found = extract_vox(SourceFile(path, source.encode()))

    assert isinstance(found, tuple)
    return found
