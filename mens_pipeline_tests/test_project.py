"""The repository follows its own rules."""

import re
import shlex
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path
from shutil import which

import pytest

from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.every import every

_PYTHON = sorted([*PROJECT_ROOT.glob("mens_pipeline/**/*.py"), *PROJECT_ROOT.glob("mens_pipeline_tests/**/*.py")])
_LONGEST_FILE = 600
_OF_THE_WHOLE = {"e2e", "language/semantics", "security", "soak"}
"""Folders of tests without a package; one of them tests the re-exports of `language.semantics`."""
_TOP_LEVEL = {
    *("pyproject.toml", "mens_pipeline", "mens_pipeline_tests", "workspace.yaml", "dagster.yaml", "data", "config"),
    *("docs", "mkdocs.yml"),
    *("README.md", "Makefile", ".ci", "constraints.txt", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"),
    *(".pre-commit-config.yaml", ".gitignore", ".dockerignore", ".github"),
}


@every("path", _PYTHON)
def test_files_are_small(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= _LONGEST_FILE


def test_tests_are_in_the_folder_of_the_module_that_they_test() -> None:
    package, tests = PROJECT_ROOT / "mens_pipeline", PROJECT_ROOT / "mens_pipeline_tests"
    places = {path: path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    strange = {str(place) for place in places.values() if not (package / place).is_dir()}
    own = {place: {found.stem for found in (package / place).glob("*")} for place in places.values()}
    named = [(path, place, path.stem.removeprefix("test_")) for path, place in places.items()]
    misplaced = [
        path for path, place, name in named if name not in own[place] and any((package / place).glob(f"*/**/{name}.py"))
    ]

    assert strange == _OF_THE_WHOLE
    assert misplaced == []


def test_the_top_level_has_the_agreed_names() -> None:
    assert {path.name for path in PROJECT_ROOT.iterdir()} >= _TOP_LEVEL
    if which("git") and (PROJECT_ROOT / ".git").exists():
        listing = subprocess.run(["git", "ls-files"], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
        assert {name.split("/")[0] for name in listing.stdout.splitlines()} == _TOP_LEVEL


@pytest.mark.skipif(not which("git") or not (PROJECT_ROOT / ".git").exists(), reason="no checkout")
def test_no_file_has_a_conflict_marker() -> None:
    command = ["git", "grep", "--line-number", "--extended-regexp", "^(<{7}|>{7})( |$)"]
    found = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)

    assert (found.stdout, found.stderr) == ("", "")


def test_one_module_reads_the_environment() -> None:
    readers = [path.stem for path in _PYTHON if re.search(r"os\.(environ|getenv)", path.read_text(encoding="utf-8"))]

    assert sorted(name for name in readers if not name.startswith("test_")) == ["environment", "processes", "settings"]


@pytest.mark.seed_row(63, 64)
def test_every_dependency_is_pinned_in_the_constraints() -> None:
    project = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    ours = [*project["build-system"]["requires"], *project["project"]["dependencies"], *chain(*extras)]
    required = [requirement.split(";")[0] for requirement in ours if not requirement.startswith("mens-pipeline[")]
    lines = (PROJECT_ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]

    def canonicalize(pin: str) -> str:
        name, version = re.sub(r"\[.*\]", "", pin).split("==")
        return f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}"

    assert pins[0] == "torch==2.13.0"
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", pin) for pin in pins)
    assert {canonicalize(pin) for pin in required} <= {canonicalize(pin) for pin in pins}


@pytest.mark.seed_row(64)
def test_the_makefile_lists_its_targets() -> None:
    listing = subprocess.run(["make", "help"], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True).stdout

    documents = "".join((PROJECT_ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md"))

    for target in (
        *("test", "quick", "check", "check-all", "format", "run", "ui", "bench", "gpu-check", "gpu-bundle"),
        *("soak", "month", "docs", "lock"),
    ):
        assert re.search(rf"^{target} ", listing, re.MULTILINE)
        assert f"make {target}" in documents


@pytest.mark.slow
@pytest.mark.seed_row(27)
@pytest.mark.seed_row(66)
def test_quick_tests_need_no_deep_learning() -> None:
    printed = subprocess.run(["make", "-n", "quick"], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    # Inside another make, lines that name its folder surround the commands.
    command = next(line for line in printed.stdout.splitlines() if "/pytest " in line)
    arguments = shlex.split(command.partition("/pytest ")[2])
    assert "mens_pipeline_tests.without_torch" in arguments
    collecting = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, "-n0", "-q", "--collect-only", "-p", "no:cacheprovider"],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    code = "import mens_pipeline_tests.without_torch, torch"
    importing = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False
    )

    assert collecting.returncode == 0, collecting.stdout[-2000:]
    assert "::" in collecting.stdout
    assert "torch: left out by `make quick`" in importing.stderr
