"""A plugin of pytest: `pytest -m gpu` writes its results into the page about the GPU."""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline_tests.bench.page import PAGE, TESTS, outcome_table, write_part

_MARK = "gpu"
_SHOWN = ("passed", "failed", "error", "skipped")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a test of this plugin name another page."""
    parser.addoption("--gpu-page", type=Path, default=PAGE, help="where `pytest -m gpu` writes its page")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Write the page after each test, because the run may be killed."""
    done = yield
    _write(item.config)
    return done


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the path of the page, if the tests of a GPU were requested."""
    if _write(config):
        terminalreporter.write_line(f"written to {config.getoption('gpu_page')}; attach it to an issue")


def _write(config: pytest.Config) -> bool:
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    is_requested = config.getoption("markexpr") == _MARK and reporter is not None
    if is_requested:
        write_part(config.getoption("gpu_page"), TESTS, outcome_table(_outcomes(reporter.stats)))
    return is_requested


def _outcomes(stats: dict[str, list[Any]]) -> Iterator[tuple[str, str, float, str]]:
    for outcome in _SHOWN:
        for report in stats.get(outcome, ()):
            figures = ", ".join(f"{name} {value}" for name, value in report.user_properties)
            reason = str(report.longrepr[2]) if outcome == "skipped" else str(report.longrepr or "").splitlines()[-1:]
            details = figures or (reason if isinstance(reason, str) else " ".join(reason))
            yield report.nodeid.rsplit("::", 1)[-1], outcome, report.duration, details.replace("|", "/")
