"""The wheel, installed outside of a checkout, makes a train set from a given workspace."""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
import yaml

from mens_pipeline.cli.demo import DEMO
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.models.find_base import find_base_model
from mens_pipeline.settings import PROJECT_ROOT, load_settings

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.nightly,
    pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling, of the extra dev, is missing"),
]


def _run(*command: str | Path, cwd: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MENS_", "VOX_"))}
    kept.pop("DAGSTER_HOME", None)
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, env=kept | environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, and with the dependencies of this one but not its editable install."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    command = (*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(PROJECT_ROOT))
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv")
    python = folder / "venv" / "bin" / "python"
    done = _run(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    assert done.returncode == 0, done.stderr
    # Python processes no .pth files of a folder that comes from one, so the editable install stays out of sight.
    found = _run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).stdout.strip()
    (Path(found) / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "venv" / "bin"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of programs with enough constructs, smaller than the seed data."""
    return shutil.copytree(PROJECT_ROOT / "data" / "golden" / "app", tmp_path_factory.mktemp("given") / "workspace")


def test_nothing_is_imported_from_the_checkout(installed: Path, tmp_path: Path) -> None:
    code = (
        "import mens_pipeline; from mens_pipeline import settings; print(mens_pipeline.__file__, settings.PROJECT_ROOT)"
    )
    done = _run(installed / "python", "-c", code, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert all(Path(path).is_relative_to(installed.parent) for path in done.stdout.split())


def test_a_given_workspace_becomes_a_train_set(installed: Path, workspace: Path, tmp_path: Path) -> None:
    before = sorted(workspace.rglob("*"))
    command = (installed / "mens", "run", "--no-train", "--source-root", workspace)
    done = _run(*command, cwd=tmp_path, XDG_DATA_HOME=str(tmp_path / "share"))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "distinct pairs" in done.stdout
    assert "FAILED" not in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["share"]
    assert list((tmp_path / "share" / "mens-pipeline" / "store" / "mixed_train_set").glob("*/train.jsonl"))
    assert sorted(workspace.rglob("*")) == before


def test_the_demo_completes_in_any_folder(installed: Path, tmp_path: Path) -> None:
    cache = load_settings().cache_root
    find_base_model(Adapter.open(DEMO).manifest.base_model.name, None, cache / "base_models")
    done = _run(installed / "mens", "demo", cwd=tmp_path, MENS_CACHE_ROOT=str(cache))

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("   -> ") == 10
    assert f"mens serve --run-dir {installed.parent}" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_seed_data_is_the_workspace_if_none_is_given(installed: Path, tmp_path: Path) -> None:
    seed = PROJECT_ROOT / "data"
    done = _run(
        *(installed / "python", "-c", "from mens_pipeline.settings import load_settings as s; print(s().source_root)"),
        cwd=tmp_path,
    )
    packaged = Path(done.stdout.strip())
    listing = subprocess.run(["git", "ls-files", "data"], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    versioned = listing.stdout.split() or pytest.skip("this is not a checkout")

    assert sorted(
        path.relative_to(packaged.parent).as_posix() for path in packaged.rglob("*") if path.is_file()
    ) == sorted(versioned)
    assert all((packaged.parent / name).read_bytes() == (seed.parent / name).read_bytes() for name in versioned)


def test_the_configuration_may_be_in_another_folder(installed: Path, workspace: Path, tmp_path: Path) -> None:
    """`MENS_CONFIG_ROOT`: a changed copy of config/, which requires more constructs than a workspace has."""
    config = shutil.copytree(PROJECT_ROOT / "config", tmp_path / "config")
    gates = yaml.safe_load((config / "gates.yaml").read_text(encoding="utf-8"))
    (config / "gates.yaml").write_text(yaml.safe_dump({**gates, "min_corpus_coverage": 1.0}), encoding="utf-8")
    command = (installed / "mens", "run", "--no-train", "--source-root", workspace)
    done = _run(*command, cwd=tmp_path, XDG_DATA_HOME=str(tmp_path / "share"), MENS_CONFIG_ROOT=str(config))

    assert done.returncode == 1, done.stdout + done.stderr
    assert "required: 1.0" in done.stdout


def test_a_missing_extra_is_named_with_the_command_for_wheels(installed: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; sys.argv = ['mens', 'train', '--data-dir', 'x'];"
        "from mens_pipeline.cli.main import main; main()"
    )
    done = _run(installed / "python", "-c", code, cwd=tmp_path)

    assert done.returncode == 2
    assert done.stderr.startswith("mens: torch: ")
    assert done.stderr.endswith('Run: pip install "mens-pipeline[train]"\n')


def test_dagster_loads_the_code_location(installed: Path, tmp_path: Path) -> None:
    """As `dagster dev -m mens_pipeline.definitions` does, without the pyproject.toml of a checkout."""
    command = (installed / "python", "-m", "dagster", "definitions", "validate", "-m", "mens_pipeline.definitions")
    done = _run(*command, cwd=tmp_path, XDG_DATA_HOME=str(tmp_path / "share"))

    assert done.returncode == 0, done.stdout + done.stderr
