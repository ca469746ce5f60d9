"""The documents list the tests of each row as their markers do, and the modules that they name exist."""

import re
from pathlib import Path

import pytest

from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.coverage_tables import PAGES, rows, shown_by, written
from mens_pipeline_tests.every import every

_NUM_SEED_ROWS = 79
_SHOWN_BY_NO_TEST = {"R8"}
"""The effect of an instruction in a row on a model is bounded, not prevented."""

_PAGES = {marker: path.read_text(encoding="utf-8") for marker, path in PAGES.items()}
_FILE = re.compile(r"`([\w/.-]+\.py)`|\b(docs/[\w-]+\.md)")
_NOT_OURS = {"mens/training/train.py", "scripts/datagen.py", "pip.py", "pydantic.py"}
_NAMED = {name or page for text in _PAGES.values() for name, page in _FILE.findall(text)} - _NOT_OURS


@every("marker", PAGES)
def test_the_documents_are_current(marker: str) -> None:
    """Otherwise: `python -m mens_pipeline_tests.coverage_tables`."""
    assert written(_PAGES[marker], shown_by(marker)) == _PAGES[marker]


def test_every_row_has_a_test() -> None:
    seeds, threats = (rows(_PAGES[marker]) for marker in ("seed_row", "threat"))

    assert [key for key, _ in seeds] == [str(number) for number in range(1, _NUM_SEED_ROWS + 1)]
    assert len({key for key, _ in threats}) == len(threats) > 40
    assert {key for key, shown in (*seeds, *threats) if "::test_" not in shown} == _SHOWN_BY_NO_TEST
    assert len(threats) == len([line for line in _PAGES["threat"].splitlines() if re.match(r"\| [A-Z]?\d+ ", line)])


@every("marker", PAGES)
def test_make_check_covers_every_row(marker: str) -> None:
    assert shown_by(marker, in_check=True).keys() == shown_by(marker).keys()


def test_recognizes_tests_that_make_check_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mens_pipeline_tests.coverage_tables._TESTS", tmp_path)
    row = "@pytest.mark.seed_row({0})\n{1}def test_{0}(): ...\n"
    tests = row.format(1, "") + row.format(2, "@pytest.mark.nightly\n") + row.format(3, "@pytest.mark.slow\n")
    (tmp_path / "test_a.py").write_text(tests)
    (tmp_path / "test_b.py").write_text("pytestmark = [pytest.mark.slow, pytest.mark.gpu]\n" + row.format(4, ""))

    assert list(shown_by("seed_row")) == ["1", "2", "3", "4"]
    assert list(shown_by("seed_row", in_check=True)) == ["1", "3"]


@every("named", sorted(_NAMED))
def test_a_named_file_exists(named: str) -> None:
    roots = [PROJECT_ROOT / "mens_pipeline", PROJECT_ROOT / "mens_pipeline_tests", PROJECT_ROOT]

    assert any((root / named).is_file() for root in roots)


def test_rows_are_written_from_markers() -> None:
    page = "text\n| 1 | a \\| b | `x.py` | old |\n| 2 | c | `y.py` | old |\n"

    assert written(page, {"1": ["`t.py::test_a`", "`t.py::test_b`"]}) == (
        "text\n| 1 | a \\| b | `x.py` | `t.py::test_a`, `t.py::test_b` |\n| 2 | c | `y.py` | no test |\n"
    )
    with pytest.raises(ValueError, match=r"no rows 3: `t\.py::test_c`"):
        written(page, {"3": ["`t.py::test_c`"]})
