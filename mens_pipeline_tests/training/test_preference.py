"""Training on pairs, of which one answer is preferred."""

import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.training import launch
from mens_pipeline.training.devices import DeviceChoice, resolve_device
from mens_pipeline.training.environment import training_environment
from mens_pipeline.training.job import ADAPTER, RESULT, ExitCode
from mens_pipeline.training.launch import run_child
from mens_pipeline.training.manifest import finish_run
from mens_pipeline.training.preference.job import MODULE, PreferenceJob, PreferencePair, preference
from mens_pipeline.training.prepare import PreparedRun, prepare_run
from mens_pipeline.training.presets import ResolvedRecipe
from mens_pipeline.training.qlora_adapter import continued, further
from mens_pipeline.training.telemetry_log import FILE, steps_of
from mens_pipeline_tests.training.processes import training_children
from mens_pipeline_tests.training.runs import pairs, prepared, resolved

pytestmark = [pytest.mark.usefixtures("own_signals"), pytest.mark.filterwarnings("ignore")]
_WEIGHTS = "adapter_model.safetensors"


def _first(base: Path, folder: Path) -> PreparedRun:
    """A run on responses that came to its end."""
    from mens_pipeline.training.train import train  # noqa: PLC0415 - loads the deep learning stack

    run = prepared(base, folder, max_steps=2)
    train(run.job, lambda _line: None)
    finish_run(run, resolved(base, max_steps=2), None, ExitCode.DONE)
    return run


def _preferring(base: Path, first: PreparedRun, folder: Path, **fields: Any) -> tuple[ResolvedRecipe, PreparedRun]:
    rows = [
        PreferencePair(
            **dict(pair), rejected="fn fn fn fn" if row % 2 else "fn f() {}", rejected_stopped=row % 2 == 0, why="worse"
        )
        for row, pair in enumerate(pairs(8))
    ]
    write_jsonl(folder / "preferences.jsonl", rows)
    recipe = further(resolved(base, **fields), 60.0)
    run = prepare_run(
        recipe,
        folder / "preferences.jsonl",
        folder / "preferring",
        resolve_device(DeviceChoice.CPU),
        cache=folder / "cache",
        min_rows=1,
        say=lambda _line: None,
        continues=continued(first.job.run_dir),
        special=preference(0.1),
    )
    return recipe, run


def _train(run: PreparedRun) -> dict[str, Any]:
    from mens_pipeline.training.preference.train import train_on_pairs  # noqa: PLC0415 - loads the deep learning stack

    assert isinstance(run.job, PreferenceJob)
    assert train_on_pairs(run.job, lambda _line: None)
    result: dict[str, Any] = json.loads((run.job.run_dir / RESULT).read_text())
    return result


def test_it_begins_with_the_adapter_as_its_reference(
    tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer is preferred before the first step, the right ones are after the last, and the adapter is whole."""
    from mens_pipeline.training.preference.train import PreferenceTrainer  # noqa: PLC0415 - likewise

    seen: list[dict[str, float]] = []
    log = PreferenceTrainer.log

    def keep(self: Any, logs: dict[str, float], start_time: float | None = None) -> None:
        log(self, logs, start_time)
        seen.append(dict(logs))

    monkeypatch.setattr(PreferenceTrainer, "log", keep)
    first = _first(tiny_base, tmp_path)
    recipe, run = _preferring(tiny_base, first, tmp_path)
    result = _train(run)
    manifest = finish_run(run, recipe, None, ExitCode.DONE)
    steps = list(steps_of(run.job.run_dir / FILE))

    assert seen[0]["rewards/margins"] == pytest.approx(0, abs=1e-3)
    assert seen[0]["loss"] > math.log(2)
    assert seen[len(steps) - 1]["rewards/margins"] > 0.05
    assert steps[-1]["loss"] < steps[0]["loss"]
    assert result["num_changed_matrices"] == result["num_adapter_matrices"] == 28
    assert result["num_supervised_tokens"] < result["num_tokens"]
    assert manifest["continues"]["num_steps"] == 2
    saved = json.loads((run.job.run_dir / ADAPTER / "adapter_config.json").read_text())
    assert saved["r"] == 4
    assert saved["target_modules"] == sorted(saved["target_modules"])
    assert sorted(path.name for path in (run.job.run_dir / ADAPTER).iterdir() if path.is_dir()) == []


def test_what_decides_it_is_in_its_contract(tiny_base: Path, tmp_path: Path) -> None:
    """Beta and the code; rows that are too long are counted, and without an adapter nothing is trained."""
    from mens_pipeline.training.preference.train import train_on_pairs  # noqa: PLC0415 - loads the deep learning stack

    first = _first(tiny_base, tmp_path)
    _, run = _preferring(tiny_base, first, tmp_path)

    assert run.contract["preference"]["beta"] == 0.1
    assert json.loads(run.job_path.read_text())["beta"] == 0.1
    assert isinstance(run.job, PreferenceJob)
    with pytest.raises(RefusedError, match="from an adapter that is there"):
        train_on_pairs(run.job.model_copy(update={"continues": None}), lambda _line: None)


@pytest.mark.slow
def test_an_interrupted_run_ends_with_the_same_adapter(
    tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In processes of their own, stopped after a step."""
    monkeypatch.setattr(launch, "_POLL_SECONDS", 0.01)
    first = _first(tiny_base, tmp_path)
    weights = []
    for name in ("whole", "stopped"):
        (tmp_path / name).mkdir()
        _, run = _preferring(tiny_base, first, tmp_path / name)
        sent: list[int] = []

        def stop(run: PreparedRun = run, sent: list[int] = sent, name: str = name) -> None:
            path = run.job.run_dir / FILE
            if name == "stopped" and not sent and path.is_file() and '"step"' in path.read_text():
                sent.extend(training_children(MODULE))
                for child in sent:
                    os.kill(child, signal.SIGTERM)

        environment, log = training_environment(), run.job.run_dir / "child.log"
        codes = [run_child(MODULE, run.job_path, environment, stop, 60, log)]
        if name == "stopped":
            codes.append(run_child(MODULE, run.job_path, environment, lambda: None, 60, log))
        assert codes == [ExitCode.INTERRUPTED, ExitCode.DONE][-len(codes) :]
        weights.append((run.job.run_dir / ADAPTER / _WEIGHTS).read_bytes())

    assert weights[0] == weights[1]
