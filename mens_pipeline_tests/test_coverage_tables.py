"""What the documents say is shown by tests is what tests say they show, and the modules that they name exist."""

import re

import pytest

from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.coverage_tables import PAGES, rows, shown_by, written
from mens_pipeline_tests.every import every

_NUM_SEED_ROWS = 79
_SHOWN_BY_NO_TEST = {"R8"}
"""What an instruction in a row does to a model is bounded, not prevented."""

_PAGES = {marker: path.read_text(encoding="utf-8") for marker, path in PAGES.items()}
_FILE = re.compile(r"`([\w/.-]+\.py)`|\b(docs/[\w-]+\.md)")
_NOT_OURS = {"mens/training/train.py", "scripts/datagen.py", "pip.py", "pydantic.py"}
_NAMED = {name or page for text in _PAGES.values() for name, page in _FILE.findall(text)} - _NOT_OURS


@every("marker", PAGES)
def test_the_documents_are_current(marker: str) -> None:
    """Otherwise: `python -m mens_pipeline_tests.coverage_tables`."""
    assert written(_PAGES[marker], shown_by(marker)) == _PAGES[marker]


def test_every_row_is_shown() -> None:
    """The rows of the plan stand in order, each once; of the threats one has no test."""
    seeds, threats = (rows(_PAGES[marker]) for marker in ("seed_row", "threat"))

    assert [key for key, _ in seeds] == [str(number) for number in range(1, _NUM_SEED_ROWS + 1)]
    assert len({key for key, _ in threats}) == len(threats) > 40
    assert {key for key, shown in (*seeds, *threats) if "::test_" not in shown} == _SHOWN_BY_NO_TEST
    assert len(threats) == len([line for line in _PAGES["threat"].splitlines() if re.match(r"\| [A-Z]?\d+ ", line)])


@every("named", sorted(_NAMED))
def test_a_named_file_is_there(named: str) -> None:
    """Below one of both packages; whoever reads of a defence finds it."""
    roots = [PROJECT_ROOT / "mens_pipeline", PROJECT_ROOT / "mens_pipeline_tests", PROJECT_ROOT]

    assert any((root / named).is_file() for root in roots)


def test_rows_are_written_from_markers() -> None:
    """The last column alone; a row without a test says so, and a test without a row is refused."""
    page = "text\n| 1 | a \\| b | `x.py` | old |\n| 2 | c | `y.py` | old |\n"

    assert written(page, {"1": ["`t.py::test_a`", "`t.py::test_b`"]}) == (
        "text\n| 1 | a \\| b | `x.py` | `t.py::test_a`, `t.py::test_b` |\n| 2 | c | `y.py` | no test |\n"
    )
    with pytest.raises(ValueError, match=r"no rows 3: `t\.py::test_c`"):
        written(page, {"3": ["`t.py::test_c`"]})
