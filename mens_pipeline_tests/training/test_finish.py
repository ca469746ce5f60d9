"""The end of a run after its process has ended."""

import json
import signal
from pathlib import Path

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.protocol import FAILURE, RESULT, ExitCode
from mens_pipeline.models.card import model_card
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline.training.qlora_adapter import finish_run
from mens_pipeline_tests.training.runs import prepare_fast
from mens_pipeline_tests.training.small_folder import write_folder
from mens_pipeline_tests.training.test_manifest import RESULT as RESULT_VALUES


@pytest.fixture
def run(tmp_path: Path) -> PreparedRun:
    return prepare_fast(write_folder(tmp_path / "base"), tmp_path, number=2)


def test_a_complete_run_gets_its_manifest(run: PreparedRun) -> None:
    run_dir = run.job.run_dir
    (run_dir / "adapter").mkdir()
    (run_dir / RESULT).write_text(json.dumps(RESULT_VALUES))
    manifest = finish_run(run, "0123abcd", ExitCode.DONE)

    assert json.loads((run_dir / "training_manifest.json").read_text()) == manifest.as_json()
    assert manifest.name == "lora-adapter-0123abcd"
    assert (run_dir / "adapter" / "README.md").read_text() == model_card(manifest)


_WORDS = "first words " + "." * 2000 + "\udcff\nRuntimeError: no more memory"
_SHOWN = r"\. .*The end of its log \(.*child\.log\):\n\.+.\nRuntimeError: no more memory$"


@pytest.mark.parametrize(
    ("code", "files", "message"),
    [
        (ExitCode.INTERRUPTED, {}, r"run: interrupted\. Run the command again; it reuses finished work"),
        (ExitCode.REFUSED, {FAILURE: '{"reason": "The gradient is gone."}'}, r"^The gradient is gone\.$"),
        (ExitCode.CRASHED, {"child.log": _WORDS}, rf"run: the training process ended with exit code 1{_SHOWN}"),
        (75, {"child.log": _WORDS}, rf"run: the training process ended with exit code 75{_SHOWN}"),
        (-signal.SIGKILL, {"child.log": _WORDS}, rf"process was killed, perhaps because memory ran out{_SHOWN}"),
        (ExitCode.CRASHED, {}, r"the training process ended with exit code 1\. The end of its log .*:\n$"),
        (ExitCode.DONE, {}, r"the training process wrote no result\.json\. Run the command again"),
    ],
    ids=["interrupted", "refused", "crashed", "other code", "killed", "empty log", "no result"],
)
def test_an_incomplete_run_gives_its_reason(run: PreparedRun, code: int, files: dict[str, str], message: str) -> None:
    """The end of the log is cut, and may contain bytes that are not text."""
    for name, text in files.items():
        (run.job.run_dir / name).write_text(text, errors="surrogateescape")
    with pytest.raises(RefusedError, match=f"(?s){message}"):
        finish_run(run, "0123abcd", code)

    assert not (run.job.run_dir / "training_manifest.json").exists()
