"""Kinds of jobs: each names existing parameters and functions, and other files are refused."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.protocol import ExitCode, Job
from mens_pipeline.jobs.run import KINDS, read_job
from mens_pipeline.storage.code_version import code_version


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_names_its_parameters_and_its_function(kind: str) -> None:
    """The parameters have the kind as a default; the function exists, but is not loaded, which would be slow."""
    module, _, name = KINDS[kind].parameters.partition(":")
    parameters = getattr(import_module(module), name)

    assert issubclass(parameters, Job)
    assert parameters.model_fields["kind"].default == kind
    assert code_version(KINDS[kind].function)


def test_an_invalid_job_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text('{"kind": "bake"}')
    with pytest.raises(RefusedError, match=r"job\.json: kind 'bake', expected one of train, scratch, generate, merge"):
        read_job(path)
    path.write_text('{"kind": "train"}')
    with pytest.raises(RefusedError, match=r"job\.json: not a valid job \(.*recipe.*run one of them"):
        read_job(path)
    with pytest.raises(RefusedError, match=r"none\.json: No such file or directory\. .*run one of them"):
        read_job(tmp_path / "none.json")


def test_the_entry_point_explains_an_invalid_job(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "mens_pipeline.jobs", str(tmp_path / "none.json")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert result.returncode == ExitCode.CRASHED
    assert result.stderr.startswith(f"python -m mens_pipeline.jobs: {tmp_path / 'none.json'}: No such file")
    assert result.stderr.count("\n") == 1
