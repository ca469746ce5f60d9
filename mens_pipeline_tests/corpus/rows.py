"""Small records and pairs for the tests of the corpus."""

import hashlib
from functools import cache

from mens_pipeline.corpus.extract.metadata_comments import strip_metadata
from mens_pipeline.corpus.extract.programs import extract_vox
from mens_pipeline.corpus.extract.source_file import SourceFile
from mens_pipeline.corpus.schema.records import ExtractedRecord, Source, SourceKind
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.corpus.synthesis.program import Program, read_program
from mens_pipeline.language import Mode, mode_of
from mens_pipeline_tests.language.examples import golden_programs


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


def program_of(source: str, mode: Mode = Mode.SOURCE) -> Program:
    """A program as synthesis reads it."""
    program = read_program(source, mode)
    assert program is not None
    return program


@cache
def golden_read() -> tuple[Program, ...]:
    """The golden programs that can be read so."""
    read = (read_program(strip_metadata(text), mode_of(name), name) for name, text in golden_programs().items())
    return tuple(program for program in read if program is not None)
