"""Several processes divide the requests of a generation, write the completions of one process, and all end."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any, Final

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.inference import generate as module
from mens_pipeline.inference.generation import (
    COMPLETIONS,
    Completion,
    Decoding,
    EvaluatedModel,
    Generation,
    GenerationJob,
    Request,
    Syntax,
)
from mens_pipeline.inference.prepare import Conditions, generate_all, list_inputs, prepare_generation
from mens_pipeline.jobs import local
from mens_pipeline.jobs.agent import Team
from mens_pipeline.jobs.device import Device, DeviceChoice, resolve_device
from mens_pipeline.jobs.environment import num_processors
from mens_pipeline.jobs.local import run_job
from mens_pipeline.models.adapter import MANIFEST, Adapter
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.jobs.processes import do_here, job_processes, process_of_rank

_GREEDY: Final = Decoding(max_new_tokens=24, syntax=Syntax.FALLBACK)
_SAMPLED: Final = Decoding(max_new_tokens=16, num_samples=2, temperature=1.0)


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll jobs often, since the tiny base is fast; use one thread, since bits depend on threads."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(local, "_POLL_SECONDS", 0.01)


def _generation(trained: Path, decoding: Decoding, number: int, devices: int) -> Generation:
    asked = [Request(task=f"t{n}", prompt=f"Write a function f{n}." + " Please." * (n % 3)) for n in range(number)]
    conditions = Conditions(decoding, resolve_device(DeviceChoice.CPU), Path(), devices=devices)
    return prepare_generation("adapter", Adapter.open(trained), asked, conditions)


def _launch(job: GenerationJob) -> int:
    return do_here(job.path) if job.devices == 1 else run_job(job.path, num_ranks=job.devices)


@pytest.mark.nightly
def test_two_processes_write_the_completions_of_one(trained: Path, tmp_path: Path) -> None:
    written: list[dict[str, bytes]] = []
    drawn, greedy = list[list[Completion]](), list[list[Completion]]()
    for devices in (1, 2):
        numbers = {"greedy": (_GREEDY, 7), "drawn": (_SAMPLED, 5), "single": (_GREEDY, 1)}
        asked = {name: _generation(trained, decoding, number, devices) for name, (decoding, number) in numbers.items()}
        made = generate_all(asked, ArtifactStore(tmp_path / str(devices)), _launch, tmp_path / "lock")
        written.append({name: (made[name].path / COMPLETIONS).read_bytes() for name in ("greedy", "single")})
        for found, name in ((drawn, "drawn"), (greedy, "greedy")):
            found.append([*read_models(made[name].path / COMPLETIONS, Completion)])
    texts = [[(one.task, one.sample, one.text) for one in some] for some in drawn]
    likelihoods = [[one.likelihood for one in some] for some in drawn]
    again = [one.task for one in greedy[0][7:]]

    assert written[0] == written[1]
    assert texts[0] == texts[1]
    assert [one[:2] for one in texts[0]] == [(f"t{n}", sample) for n in range(5) for sample in (0, 1)]
    assert likelihoods[0] == pytest.approx(likelihoods[1], abs=1e-5), "their rounding depends on the size of the batch"
    assert len(again) > 1
    assert again == sorted(again)
    assert all(one.constrained for one in greedy[0][7:])


@pytest.mark.nightly
def test_a_killed_process_ends_the_generation(trained: Path, tmp_path: Path) -> None:
    endless = Decoding(max_new_tokens=400, num_samples=300, temperature=1.5)
    asked = {"short": _generation(trained, _SAMPLED, 3, 2), "long": _generation(trained, endless, 9, 2)}
    launched: list[GenerationJob] = []

    def launch(job: GenerationJob) -> int:
        launched.append(job)
        is_killed = False

        def poll() -> None:
            nonlocal is_killed
            if job.completions("short").is_file() and not is_killed:
                is_killed = True
                os.kill(process_of_rank(job.run_dir, 1), signal.SIGKILL)

        return run_job(job.path, poll, num_ranks=job.devices)

    with pytest.raises(RefusedError) as caught:
        generate_all(asked, ArtifactStore(tmp_path / "store"), launch, tmp_path / "lock")
    (job,) = launched

    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("process 1 of 2 was ended by SIGKILL; the others were stopped.")
    assert job_processes(job.run_dir) == []
    assert len(list(read_models(job.completions("short"), Completion))) == 6
    assert not job.completions("long").exists()


def test_a_generation_uses_the_devices_of_its_training(trained: Path, tmp_path: Path) -> None:
    several = tmp_path / "several"
    shutil.copytree(trained, several)
    manifest = json.loads((trained / MANIFEST).read_text())
    manifest["recipe"]["devices"] = 4
    (several / MANIFEST).write_text(json.dumps(manifest))
    gpus = Device("cuda", "a GPU", 24.0, has_bfloat16=True, number=2)

    def describe(device: Device, devices: int | None, run: Path = trained) -> tuple[int, Any]:
        conditions = Conditions(Decoding(), device, tmp_path / "lock", devices=devices)
        one = prepare_generation("base", Adapter.open(run), [Request(task="t", prompt="")], conditions)
        return one.devices, list_inputs(one).get("devices")

    cpu = resolve_device(DeviceChoice.CPU)
    assert [describe(cpu, None), describe(cpu, 3), describe(gpus, None), describe(gpus, 2)] == [
        (1, None), (3, None), (1, 1), (2, 2),
    ]  # fmt: skip
    assert describe(gpus, None, several) == (2, 2)
    assert describe(cpu, None, several) == (min(4, num_processors()), None)
    with pytest.raises(RefusedError, match=r"devices 3: only 2 of cuda available \(a GPU\)"):
        describe(gpus, 3)


@pytest.mark.parametrize(("team", "expected"), [(Team(), None), (Team(1, 1, 2), 1)], ids=["alone", "second"])
def test_each_process_loads_the_model_onto_its_own_gpu(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, team: Team, expected: object
) -> None:
    import torch

    asked = _generation(trained, _GREEDY, 2, 1).model_copy(update={"device": "cuda"})
    job = GenerationJob(generations={"asked": asked}, run_dir=tmp_path, lock_path=tmp_path / "lock")
    current: list[int] = []

    def load(_job: EvaluatedModel, place: int | None) -> None:
        assert place == expected
        raise InterruptedError

    monkeypatch.setattr(module, "own_team", lambda _environment: team)
    monkeypatch.setattr(Team, "meet", lambda _team: None)
    monkeypatch.setattr(module, "load_evaluated", load)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    with pytest.raises(InterruptedError):
        module.generate(job)

    assert current == ([] if expected is None else [expected])
