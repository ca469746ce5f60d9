"""Records of a file in an earlier corpus."""

import io

import pytest

from mens_pipeline.corpus.extract.extracted_corpus import PreviousExtraction
from mens_pipeline.corpus.extract.workspace import FileOutcome
from mens_pipeline.corpus.schema.account import Unit
from mens_pipeline.corpus.schema.records import ExtractedRecord, SourceFile
from mens_pipeline_tests.corpus.rows import records_of

_SOURCE = 'fn ä() to str { return "\u2028" }\n'.replace("ä", "a")
_FILE = SourceFile("a.vox", _SOURCE.encode())


def _previous(file: SourceFile, *, stands_alone: bool = True) -> PreviousExtraction:
    (record,) = records_of(_SOURCE)
    outcome = FileOutcome("a.vox", _FILE.blob, (record.model_dump_json(),), {Unit.VOX_FILE: 1}, (), stands_alone)
    text = f"{outcome.lines[0]}\n".encode()
    other = '{"ä": 1}\n'.encode()
    account = {**outcome.account(), "start": len(other), "end": len(other) + len(text)}
    return PreviousExtraction({file.path: account}, io.BytesIO(other + text + other))


def test_a_file_with_the_same_content_is_known() -> None:
    today = SourceFile("a.vox", _FILE.data, "c0ffee")
    outcome = _previous(today).outcome(today)

    assert outcome is not None
    assert outcome.kept == {Unit.VOX_FILE: 1}
    assert ExtractedRecord.model_validate_json(outcome.lines[0]).source.commit == "c0ffee"
    assert len(outcome.lines) == 1


@pytest.mark.parametrize(
    ("file", "stands_alone"),
    [(SourceFile("b.vox", _FILE.data), True), (SourceFile("a.vox", b"fn b() { }"), True), (_FILE, False)],
    ids=["another name", "other content", "decided by other files"],
)
def test_other_files_are_not_known(file: SourceFile, stands_alone: bool) -> None:  # noqa: FBT001 - a column
    assert _previous(_FILE, stands_alone=stands_alone).outcome(file) is None
