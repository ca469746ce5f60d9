"""What becomes of a run when its process has ended."""

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


def _finish(run: PreparedRun, code: int) -> None:
    finish_run(run, "0123abcd", code)


def test_a_complete_run_gets_its_manifest(run: PreparedRun) -> None:
    run_dir = run.job.run_dir
    (run_dir / "adapter").mkdir()
    (run_dir / RESULT).write_text(json.dumps(RESULT_VALUES))
    manifest = finish_run(run, "0123abcd", ExitCode.DONE)

    assert json.loads((run_dir / "training_manifest.json").read_text()) == manifest.as_json()
    assert manifest.name == "lora-adapter-0123abcd"
    assert (run_dir / "adapter" / "README.md").read_text() == model_card(manifest)


def test_an_interrupted_run_can_go_on(run: PreparedRun) -> None:
    with pytest.raises(RefusedError, match=r"run: interrupted\. Run the same again; what is done already is taken up"):
        _finish(run, ExitCode.INTERRUPTED)


def test_a_refused_run_says_why(run: PreparedRun) -> None:
    (run.job.run_dir / FAILURE).write_text('{"reason": "The gradient is gone."}')

    with pytest.raises(RefusedError, match=r"^The gradient is gone\.$"):
        _finish(run, ExitCode.REFUSED)


@pytest.mark.parametrize("code", [ExitCode.CRASHED, -signal.SIGKILL, 75])
def test_a_crashed_run_shows_its_last_words(run: PreparedRun, code: int) -> None:
    words = b"first words " + b"." * 2000 + b"\xff\nRuntimeError: no more memory"
    (run.job.run_dir / "child.log").write_bytes(words)

    ended = "was killed, perhaps for want of memory" if code == -signal.SIGKILL else f"ended with {int(code)}"
    expected = rf"(?s)run: the training process {ended}\. .*Its last words \(.*child\.log\):\n\.+"

    with pytest.raises(RefusedError, match=rf"{expected}.*\nRuntimeError: no more memory$") as caught:
        _finish(run, code)

    assert "first words" not in str(caught.value)


def test_a_run_without_a_result_is_not_complete(run: PreparedRun) -> None:
    with pytest.raises(RefusedError, match=r"the training process left no result\.json\. Run the same again"):
        _finish(run, ExitCode.DONE)


def test_a_run_that_said_nothing_has_no_last_words(run: PreparedRun) -> None:
    with pytest.raises(RefusedError, match=r"(?s)the training process ended with 1\. Its last words .*:\n$"):
        _finish(run, ExitCode.CRASHED)

    assert not (run.job.run_dir / "training_manifest.json").exists()
