"""A test of many cases reports all that fail."""

from pathlib import Path

import pytest

from mens_pipeline_tests.every import every, every_row


def test_reports_every_failing_case_with_its_line_and_cause(tmp_path: Path) -> None:
    @every("case", ["good", "wrong", "raises", "silent", "fine"], ids=str.upper)
    def test(case: str, folder: Path) -> None:
        assert folder == tmp_path
        if case == "raises":
            raise KeyError(case)
        if case == "silent":
            with pytest.raises(KeyError):
                assert case
        assert case != "wrong"

    with pytest.raises(pytest.fail.Exception) as failed:
        test(folder=tmp_path)
    details = str(failed.value)

    assert details.startswith("3 of 5 cases\nWRONG: line 19, AssertionError\n")
    assert "\nRAISES: line 15, KeyError\n    'raises'\nSILENT: line 17, Failed" in details
    assert "GOOD" not in details
    assert "FINE" not in details


def test_a_test_without_cases_fails() -> None:
    @every("case", [])
    def test(case: str) -> None:
        assert case

    with pytest.raises(pytest.fail.Exception, match="0 of 0 cases"):
        test()


@every("number", lambda: [1, 2], ids=lambda number: f"number {number}")
def test_fixtures_are_given_beside_the_case(number: int, tmp_path: Path) -> None:
    assert number in {1, 2}
    assert tmp_path.is_dir()


@every_row((1, "a"), (2, "aa"))
def test_a_row_gives_the_first_parameters(number: int, text: str, tmp_path: Path) -> None:
    assert len(text) == number
    assert tmp_path.is_dir()


def test_reports_a_row_that_fails_or_lacks_a_value() -> None:
    @every_row((1, 1), (1, 2), (3,))
    def test(one: int, other: int) -> None:
        assert one == other

    with pytest.raises(pytest.fail.Exception, match=r"(?s)^2 of 3 cases\n\(1, 2\): .*Assert.*\n\(3,\): .*ValueError"):
        test()
