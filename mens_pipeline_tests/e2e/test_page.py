"""The pages that a maintainer opens: the graph, a run launched from it, and what its checks said."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline_tests.e2e.server import Server, serving

_CHROMIUM = shutil.which("chromium")
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_PATIENCE = 90_000
"""Milliseconds; the first page is slow on a cold machine."""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(_CHROMIUM is None, reason="no chromium on this machine; on Debian: apt install chromium"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on the seed data."""
    with serving(tmp_path_factory.mktemp("server"), os.environ) as found:
        yield found


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    """A page of a headless browser."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only these tests have a browser

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=_FLAGS)
        page = browser.new_page(viewport={"width": 1500, "height": 1000})
        page.set_default_timeout(_PATIENCE)
        yield page
        browser.close()


def test_the_graph_shows_every_stage(server: Server, page: Any, tmp_path: Path) -> None:
    """The groups of the lineage from left to right, unfolded the assets in them, and every asset in the catalog."""
    assets = ("extracted_corpus", "mixed_train_set", "qlora_adapter", "benchmark_gate", "promoted_adapter")
    page.goto(f"{server.url}/asset-groups/")
    for group in ("sources", "corpus", "training", "evaluation", "delivery"):
        page.get_by_text(group, exact=True).first.wait_for()
    page.mouse.click(1200, 950)
    page.keyboard.press("Alt+KeyE")
    for asset in assets:
        page.get_by_text(asset, exact=True).first.wait_for()
    page.screenshot(path=tmp_path / "graph.png")
    page.goto(f"{server.url}/assets")
    for asset in assets:
        page.get_by_text(asset, exact=True).first.wait_for()

    assert (tmp_path / "graph.png").stat().st_size > 20_000


def test_a_run_launched_from_the_page_ends_with_its_checks(server: Server, page: Any, tmp_path: Path) -> None:
    """The button of the job, the run to its end, and the checks of the train set in green."""
    page.goto(f"{server.url}/locations/mens_pipeline/jobs/train_set")
    page.get_by_role("button", name="Materialize all").first.click()
    (run,) = _runs_after(server, page)

    assert server.wait(run, 300) == "SUCCESS"

    page.goto(f"{server.url}/assets/mixed_train_set?view=checks")
    for check in ("enough_pairs", "mixed_rows_accounted_for", "shares_as_asked"):
        page.get_by_text(check).first.wait_for()
    page.get_by_text("Passed").first.wait_for()
    page.screenshot(path=tmp_path / "checks.png")


def _runs_after(server: Server, page: Any) -> list[str]:
    """The runs that there are, once there is one."""
    for _ in range(60):
        completion = server.ask("query { runsOrError { ... on Runs { results { runId } } } }")
        if runs := [str(run["runId"]) for run in completion["runsOrError"]["results"]]:
            return runs
        page.wait_for_timeout(500)
    pytest.fail("the button launched no run")
