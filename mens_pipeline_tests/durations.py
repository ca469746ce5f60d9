"""A plugin of pytest: how long each test file takes, in a committed table that a run writes if asked to.

The table also gives the order of test files: workers that begin with the slowest end at the same time.
"""

from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

TABLE: Final = Path(__file__).with_name("durations.tsv")
NIGHTLY: Final = "nightly"
_HEADER: Final = "seconds\tslowest\ttier\tfile\tslowest test"
_SAME: Final = 0.25
"""A line does not change if both figures changed by no more than this share, or a second."""

Key = tuple[str, str]
"""A test file and the tier of some of its tests.

`measured` tests run with coverage and by themselves, `nightly` ones only in `make check-all`; all others are `plain`.
"""


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds that the tests of a file took with their fixtures, and the slowest one."""

    seconds: int
    slowest: int
    test: str

    def is_about(self, other: "Line") -> bool:
        """Return whether two lines differ by no more than two runs do."""
        pairs = ((self.seconds, other.seconds), (self.slowest, other.slowest))
        return all(abs(one - two) <= max(1, _SAME * max(one, two)) for one, two in pairs)


def find_tier(keywords: Container[str]) -> str:
    """Return the tier of a test by its markers."""
    return next((tier for tier in (NIGHTLY, "measured") if tier in keywords), "plain")


def read_table(path: Path) -> dict[Key, Line]:
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]] if path.is_file() else []
    return {(file, tier): Line(int(seconds), int(slowest), test) for seconds, slowest, tier, file, test in rows}


def merge_tables(old: dict[Key, Line], new: dict[Key, Line], root: Path) -> dict[Key, Line]:
    """Merge the durations of a run into older ones: missing files are removed, and similar figures stay.

    A run with nightly tests runs all tests that are not measured: a file without plain tests has no plain line.
    Files that take less than a second have none either.
    """
    is_all = any(tier == NIGHTLY for _, tier in new)
    moved = {(file, "plain") for file, _ in new if is_all} - new.keys()
    kept = {key: line for key, line in old.items() if (root / key[0]).is_file() and key not in moved}
    changed = {key: line for key, line in new.items() if key not in kept or not line.is_about(kept[key])}
    return {key: line for key, line in (kept | changed).items() if line.seconds >= 1}


def write_table(path: Path, lines: dict[Key, Line]) -> None:
    ordered = sorted(lines.items(), key=lambda found: (-found[1].seconds, found[0]))
    rows = [f"{line.seconds}\t{line.slowest}\t{tier}\t{file}\t{line.test}" for (file, tier), line in ordered]
    path.write_text("\n".join([_HEADER, *rows, ""]), encoding="utf-8")


def slowest_first(items: list[pytest.Item], root: Path, lines: dict[Key, Line]) -> None:
    """Sort tests by the durations of their files, in place; those of one file stay together, and in order.

    Only the tiers of these tests count.
    """
    files = [item.path.relative_to(root).as_posix() for item in items]
    seconds: dict[str, int] = defaultdict(int)
    for file, tier in {(file, find_tier(item.keywords)) for file, item in zip(files, items, strict=True)}:
        if (line := lines.get((file, tier))) is not None:
            seconds[file] += line.seconds
    items.sort(key=lambda item: -seconds[item.path.relative_to(root).as_posix()])


class Recorder:
    """Adds up the durations of tests, and writes the table if all have passed."""

    def __init__(self, table: Path, root: Path) -> None:
        self._table = table
        self._root = root
        self._seconds: dict[Key, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase of a test: with several workers, the process that started them receives all of them."""
        file, _, test = report.nodeid.partition("::")
        self._seconds[file, find_tier(report.keywords)][test] += report.duration

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the table, unless a test failed: it may have ended early."""
        if exitstatus == pytest.ExitCode.OK:
            new = {key: _sum_up(tests.items()) for key, tests in self._seconds.items()}
            write_table(self._table, merge_tables(read_table(self._table), new, self._root))


def _sum_up(tests: Iterable[tuple[str, float]]) -> Line:
    found = list(tests)
    test, slowest = max(found, key=lambda one: one[1])
    return Line(round(sum(seconds for _, seconds in found)), round(slowest), test.partition("[")[0])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--durations-table", type=Path, help="write there how long test files take, if all tests pass")


def pytest_configure(config: pytest.Config) -> None:
    """Record where reports of all workers arrive, if the table was requested."""
    if (table := config.getoption("durations_table")) is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(table, config.rootpath))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let workers begin with the slowest selected files, so that none is left with one at the end."""
    if hasattr(config, "workerinput"):
        slowest_first(items, config.rootpath, read_table(TABLE))
