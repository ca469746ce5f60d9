"""The documentation: the reference matches the code, the site builds, and files that pages name exist."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests import reference

_MOST_README_BYTES = 9 * 1024
_PAGES = [PROJECT_ROOT / "README.md", PROJECT_ROOT / "CONTRIBUTING.md", *sorted(PROJECT_ROOT.glob("docs/**/*.md"))]
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_NAMED = re.compile(r"\bdocs/[\w/.-]+\.(?:md|py|yml|svg|png)\b")


@pytest.mark.parametrize("name", reference.PAGES)
def test_the_reference_matches_the_code(name: str) -> None:
    """`make docs` rewrites an outdated page."""
    page = (reference.FOLDER / name).read_text(encoding="utf-8")

    assert page == reference.PAGES[name](), "run `make docs`, or python -m mens_pipeline_tests.reference, and commit"


def test_the_reference_lists_settings_with_their_bounds() -> None:
    page = reference.settings_page()

    assert "| `MENS_STORE_ROOT` | path | `data/store` |" in page
    assert "| `MENS_NUM_WORKERS` | integer ≥ 1 | computed |" in page
    assert "| `MENS_SERVE_TOKEN` | secret or null | none |" in page
    assert "| `lora_r` | integer ≥ 1, ≤ 512 | `16` |" in page
    assert '| `lr_scheduler_type` | `"cosine"` or `"linear"` or `"constant_with_warmup"` | `cosine` |' in page
    assert "| `min_pairs` | integer ≥ 1 | required |" in page
    assert "| `split` | [SplitPolicy](#splitpolicy) | required |" in page
    assert str(PROJECT_ROOT) not in page


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs, of the extra dev, is not installed")
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "reference" / "commands.html").is_file()


def _find_anchors(page: Path) -> set[str]:
    headings = _HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.relative_to(PROJECT_ROOT).as_posix())
def test_links_point_to_existing_files_and_headings(page: Path) -> None:
    links = {(page.parent / link if link else page, anchor) for link, anchor in _LINK.findall(page.read_text("utf-8"))}

    assert [target for target, _ in links if not target.exists()] == []
    assert [(target, anchor) for target, anchor in links if anchor and anchor not in _find_anchors(target)] == []


def test_pages_named_in_code_exist() -> None:
    places = ("*.md", "*.toml", "*.yaml", "Makefile", "config/**/*.*", "docs/*.*", "mens_pipeline/**/*.py")
    texts = {path: path.read_text("utf-8") for place in places for path in PROJECT_ROOT.glob(place) if path.is_file()}
    named = {(name, path.name) for path, text in texts.items() for name in _NAMED.findall(text)}

    assert len(named) > 20
    assert sorted(pair for pair in named if not (PROJECT_ROOT / pair[0]).is_file()) == []


def test_the_readme_is_short() -> None:
    assert (PROJECT_ROOT / "README.md").stat().st_size <= _MOST_README_BYTES


def test_the_map_shows_every_package() -> None:
    packages = {path.parent.name for path in PROJECT_ROOT.glob("mens_pipeline/*/__init__.py")}
    tree = (PROJECT_ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (row,) = re.findall(
        r"^\| `mens_pipeline/` \| (.+) \|$", (PROJECT_ROOT / "README.md").read_text("utf-8"), re.MULTILINE
    )

    assert set(re.findall(r"^  (\w+)/ ", tree, re.MULTILINE)) == packages
    assert set(re.findall(r"`(\w+)`", row)) == packages


def test_files_named_for_contributors_exist() -> None:
    page = (PROJECT_ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+\?) \| `([^`]+)`", page, re.MULTILINE)
    questions = " ".join(question for question, _ in rows)

    for asked in ("pair dropped", "threshold of the gate compared", "construct", "a gate", "launcher", "template"):
        assert asked in questions
    assert [path for _, path in rows if not (PROJECT_ROOT / path).is_file()] == []


@pytest.mark.seed_row(64)
@pytest.mark.parametrize(("name", "command"), [("ci.yml", ".ci/run"), ("nightly.yml", "make check-all")])
def test_a_workflow_runs_the_command_that_people_run(name: str, command: str) -> None:
    """Continuous integration is only `.ci/run`, and every night `make check-all`."""
    workflow = yaml.safe_load((PROJECT_ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8"))
    steps = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]

    assert steps == [command]
    assert os.access(PROJECT_ROOT / ".ci" / "run", os.X_OK)
