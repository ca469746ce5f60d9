"""Write the tests of each row into two documents: `python -m mens_pipeline_tests.coverage_tables`.

A test names its rows by `@pytest.mark.seed_row(12, 18)` for rows of `docs/upstream.md` and by
`@pytest.mark.threat("R1")` for rows of `docs/security.md`; the last column of their tables comes from that. All other
columns are written by hand.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from mens_pipeline.settings import PROJECT_ROOT

PAGES = {"seed_row": PROJECT_ROOT / "docs" / "upstream.md", "threat": PROJECT_ROOT / "docs" / "security.md"}
"""Marker -> page."""

_TESTS = PROJECT_ROOT / "mens_pipeline_tests"
_TIER = re.compile(r"^TIER \?= (.*)$", re.MULTILINE)
"""The marker expression of the Makefile for the tests that `make check` runs: `not gpu and not nightly`."""
_ROW = re.compile(r"^\| (?P<key>[A-Z]?\d+) \| .* \| (?P<shown>[^|]*) \|$", re.MULTILINE)
_NONE = "no test"


def shown_by(marker: str, *, in_check: bool = False) -> dict[str, list[str]]:
    """Return the tests that have a marker, by row and in the order of files and lines.

    `in_check` leaves out tests that `make check` leaves out.
    """
    tests = defaultdict(list)
    (tier,) = _TIER.findall((PROJECT_ROOT / "Makefile").read_text(encoding="utf-8"))
    left_out = {f"pytest.mark.{name}" for name in re.findall(r"not (\w+)", tier)} if in_check else set()
    for path in sorted(_TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if f"pytest.mark.{marker}(" in text:
            for key, name in _find_marked(ast.parse(text), f"pytest.mark.{marker}", left_out):
                tests[key].append(f"`{path.relative_to(_TESTS).as_posix()}::{name}`")
    return dict(tests)


def _find_marked(module: ast.Module, marker: str, left_out: set[str]) -> Iterator[tuple[str, str]]:
    whole = [node.value for node in module.body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)]
    if any(_find_names(value) & left_out for value in whole):
        return
    for function in (node for node in module.body if isinstance(node, ast.FunctionDef)):
        if {ast.unparse(decorator) for decorator in function.decorator_list} & left_out:
            continue
        for call in function.decorator_list:
            if isinstance(call, ast.Call) and ast.unparse(call.func) == marker:
                assert function.name.startswith("test_"), f"{function.name} is not a test"
                yield from ((str(ast.literal_eval(argument)), function.name) for argument in call.args)


def _find_names(value: ast.expr) -> set[str]:
    return {ast.unparse(node) for node in ast.walk(value) if isinstance(node, ast.Attribute)}


def rows(page: str) -> list[tuple[str, str]]:
    """Return the rows of the tables of a page, each as its key and its tests."""
    return [(row["key"], row["shown"]) for row in _ROW.finditer(page)]


def written(page: str, tests: dict[str, list[str]]) -> str:
    """Return a page whose rows name their tests; `ValueError` for a test of no row."""
    if unknown := sorted(tests.keys() - {key for key, _ in rows(page)}):
        raise ValueError(f"no rows {', '.join(unknown)}: {', '.join(tests[unknown[0]])}")

    def row(found: re.Match[str]) -> str:
        head = found.group().removesuffix(f"{found['shown']} |")
        return f"{head}{', '.join(tests.get(found['key'], [_NONE]))} |"

    return _ROW.sub(row, page)


if __name__ == "__main__":
    for name, path in PAGES.items():
        path.write_text(written(path.read_text(encoding="utf-8"), shown_by(name)), encoding="utf-8")
