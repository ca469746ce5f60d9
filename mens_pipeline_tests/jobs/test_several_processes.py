"""Several processes train the adapter of one process, over gloo on a CPU, and none outlives the run."""

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs import local
from mens_pipeline.jobs.agent import Team, own_team
from mens_pipeline.jobs.device import Device, refuse_missing_devices
from mens_pipeline.jobs.environment import training_environment
from mens_pipeline.jobs.local import run_job
from mens_pipeline.jobs.protocol import FAILURE, RESULT, ExitCode, newest_checkpoint
from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.training.plan import BatchPlan, Share
from mens_pipeline.training.prepare import PreparedRun, build_contract
from mens_pipeline.training.recipe import Recipe, refuse_sharding
from mens_pipeline.training.telemetry_log import steps_of
from mens_pipeline_tests.jobs.processes import do_alone, job_processes, process_of_rank
from mens_pipeline_tests.training.encoded import batches_of
from mens_pipeline_tests.training.runs import prepare_fast, weights_of, words_of

_RECIPE: dict[str, Any] = {
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "number": 27,
    "validation_split_ratio": 0.2,
}
"""Eleven micro-batches an epoch: the last step has one, so that one of two processes has no work.

Five rows do not train: each of two processes has a batch of them.
"""


@pytest.fixture(autouse=True)
def _poll_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny base takes many steps a second; a signal must not come too late. Bits depend on threads."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(local, "_POLL_SECONDS", 0.01)


def _run(run: PreparedRun, *, at: int | None = None, rank: int = 1, number: int = signal.SIGKILL) -> int:
    """Run a job to its end, or send the process of a rank a signal once the log has a step."""
    is_sent = threading.Event()
    log = run.job.run_dir / TELEMETRY

    def poll() -> None:
        if at is None or is_sent.is_set() or not log.is_file() or len(list(steps_of(log))) < at:
            return
        is_sent.set()
        os.kill(process_of_rank(run.job.run_dir, rank), number)

    return _launch(run, poll)


def _launch(run: PreparedRun, poll: Any = lambda: None) -> int:
    return run_job(run.job.path, poll, grace_seconds=60, num_ranks=run.job.recipe.devices)


@pytest.fixture(scope="module")
def alone(tiny_base: Path, tmp_path_factory: pytest.TempPathFactory) -> PreparedRun:
    """The run of one process, in one thread."""
    run = prepare_fast(tiny_base, tmp_path_factory.mktemp("alone"), num_train_epochs=3, **_RECIPE)
    assert do_alone(run.job.path) == ExitCode.DONE
    return run


@pytest.mark.slow
def test_two_processes_train_the_adapter_of_one(tiny_base: Path, tmp_path: Path, alone: PreparedRun) -> None:
    """Bit for bit, with the same figures in one telemetry, and under the same contract."""
    run = prepare_fast(tiny_base, tmp_path, num_train_epochs=3, devices=2, **_RECIPE)
    assert _launch(run) == ExitCode.DONE, words_of(run)
    details = [
        [(s["step"], s["loss"], s["num_tokens"]) for s in steps_of(r.job.run_dir / TELEMETRY)] for r in (run, alone)
    ]
    results = [json.loads((r.job.run_dir / RESULT).read_text()) for r in (run, alone)]

    assert weights_of(run) == weights_of(alone)
    assert details[0] == details[1]
    assert len(details[0]) == results[0]["num_steps"] == results[1]["num_steps"] == 17
    assert results[0]["trained_tokens"] == results[1]["trained_tokens"]
    assert results[0]["num_validation"] == 5
    assert results[0]["validation_loss"] == pytest.approx(results[1]["validation_loss"], abs=1e-12)
    assert run.job.contract_digest == alone.job.contract_digest


@pytest.mark.nightly
def test_a_killed_rank_ends_all_and_the_run_resumes(tiny_base: Path, tmp_path: Path, alone: PreparedRun) -> None:
    run = prepare_fast(tiny_base, tmp_path, num_train_epochs=3, devices=2, **_RECIPE)
    assert _run(run, at=4, rank=1) == ExitCode.REFUSED
    reason = json.loads((run.job.run_dir / FAILURE).read_text())["reason"]
    assert reason.startswith("process 1 of 2 was ended by SIGKILL; the others were stopped.")
    assert job_processes(run.job.run_dir) == []
    assert newest_checkpoint(run.job.run_dir) is not None
    assert _launch(run) == ExitCode.DONE, words_of(run)

    assert weights_of(run) == weights_of(alone)


@pytest.mark.nightly
def test_sigterm_for_one_rank_stops_all_in_one_step(tiny_base: Path, tmp_path: Path) -> None:
    """All write one checkpoint, though none was due, and end as interrupted."""
    run = prepare_fast(tiny_base, tmp_path, num_train_epochs=300, devices=2, save_steps=1000, **_RECIPE)
    assert _run(run, at=2, rank=1, number=signal.SIGTERM) == ExitCode.INTERRUPTED, words_of(run)
    checkpoint = newest_checkpoint(run.job.run_dir)

    assert checkpoint is not None
    assert {path.name for path in checkpoint.glob("rng_state_*")} == {"rng_state_0.pth", "rng_state_1.pth"}
    assert job_processes(run.job.run_dir) == []


@pytest.mark.nightly
def test_an_interrupt_of_the_wait_ends_all_processes(tiny_base: Path, tmp_path: Path) -> None:
    run = prepare_fast(tiny_base, tmp_path, num_train_epochs=500, devices=2, save_steps=1000, **_RECIPE)
    seen: list[int] = []

    def poll() -> None:
        log = run.job.run_dir / TELEMETRY
        if log.is_file() and len(list(steps_of(log))) >= 2:
            seen.extend(job_processes(run.job.run_dir))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _launch(run, poll)
    time.sleep(0.2)

    assert len(seen) == 3  # the launcher and two that train
    assert job_processes(run.job.run_dir) == []
    assert newest_checkpoint(run.job.run_dir) is not None


@pytest.mark.nightly
def test_three_processes_with_a_budget_stop_at_one_step(tiny_base: Path, tmp_path: Path) -> None:
    """The clock of the first one decides for all; four micro-batches are divided into two, one and one."""
    fields = {**_RECIPE, "gradient_accumulation_steps": 4, "max_minutes": 1e-4, "num_train_epochs": 300}
    run = prepare_fast(tiny_base, tmp_path, devices=3, **fields)
    assert _launch(run) == ExitCode.DONE, words_of(run)
    result = json.loads((run.job.run_dir / RESULT).read_text())

    assert 0 < result["num_steps"] < result["planned_steps"]
    assert len(list(steps_of(run.job.run_dir / TELEMETRY))) == result["num_steps"]


@pytest.mark.nightly
def test_several_processes_write_the_reason_of_a_refusal(
    tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable of accelerate that would shard the base is refused by name, with exit code 3."""
    run = prepare_fast(tiny_base, tmp_path, devices=2, **_RECIPE)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")

    assert _launch(run) == ExitCode.REFUSED, words_of(run)
    reason = json.loads((run.job.run_dir / FAILURE).read_text())["reason"]
    assert reason.startswith("ACCELERATE_USE_FSDP: FSDP would shard the base")


def test_sharding_is_refused_by_name() -> None:
    refuse_sharding({"ACCELERATE_USE_FSDP": "false"})
    with pytest.raises(
        RefusedError, match=r"^ACCELERATE_USE_DEEPSPEED: DeepSpeed would .* Unset it, and use --devices N\.$"
    ):
        refuse_sharding({"ACCELERATE_USE_DEEPSPEED": "true"})


def test_micro_batches_are_divided_step_by_step() -> None:
    """Each once, in the order of the plan; every process has the same number, some of them empty."""

    def deal(batches: str, accumulated: int, size: int) -> list[str]:
        teams = [Team(rank, rank, size) for rank in range(size)]
        shares = [Share(batches, accumulated, team, "-") for team in teams]
        assert len({len(share) for share in shares}) == 1
        return ["".join(share) for share in shares]

    assert deal("abcdefg", 4, 2) == ["aceg", "bdf-"]
    assert deal("abcd", 3, 2) == ["acd", "b--"]
    assert deal("abcdefgh", 3, 3) == ["adg", "beh", "cf-"]
    assert deal("abc", 2, 1) == ["abc"]


def test_a_process_takes_its_rank_only_from_the_launcher_of_torch() -> None:
    details = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}

    assert own_team(details) == Team()
    assert own_team({**details, "TORCHELASTIC_RUN_ID": "x"}) == Team(3, 1, 4)


def test_missing_devices_are_refused() -> None:
    """The message names their number; a CPU may have any number of processes."""
    card = Device("cuda", "a GPU", 24.0, has_bfloat16=True, number=2)
    refuse_missing_devices(card, 2)
    refuse_missing_devices(Device("cpu", "cores", None, has_bfloat16=False), 8)

    with pytest.raises(RefusedError, match=r"devices 4: only 2 of cuda available \(a GPU\)\. Use --devices 2\."):
        refuse_missing_devices(card, 4)


@pytest.mark.parametrize(("team", "expected"), [(Team(), "cuda"), (Team(3, 1, 4), 1)], ids=["alone", "second"])
def test_each_process_loads_the_base_onto_its_own_gpu(
    tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, team: Team, expected: object
) -> None:
    """By its number: accelerate refuses a base in four bits on another GPU than that of its process."""
    from mens_pipeline.training import train as module  # noqa: PLC0415 - loads the deep learning stack

    job = prepare_fast(tiny_base, tmp_path).job.model_copy(update={"device": "cuda"})
    asked: list[object] = []
    progress: Any = None  # unused before the error

    def load(_path: Path, _recipe: Recipe, device: object, _dtype: object) -> None:
        asked.append(device)
        raise InterruptedError

    monkeypatch.setattr(module, "load_base", load)
    with pytest.raises(InterruptedError):
        module._trainer(job, None, progress, BatchPlan(batches_of(), 0, ()), progress, team)  # noqa: SLF001 - the function under test

    assert asked == [expected]


@pytest.mark.parametrize(
    ("place", "rank", "is_accepted"), [(0, 0, True), (3, 3, True), (0, 1, False), ("cuda", 0, False)]
)
def test_accelerate_accepts_a_base_only_on_the_gpu_of_its_process(
    place: object,
    rank: int,
    *,
    is_accepted: bool,
) -> None:
    import torch
    from accelerate import Accelerator, DistributedType

    class Simulated(Accelerator):  # type: ignore[misc]  # the library is untyped
        device = property(lambda _self: torch.device("cuda", rank))
        distributed_type = property(lambda _self: DistributedType.MULTI_GPU)

    model = torch.nn.Linear(2, 2)
    model.is_loaded_in_4bit, model.hf_device_map = True, {"": place}
    accelerator = Simulated(cpu=True)
    if is_accepted:
        assert accelerator.prepare_model(model, evaluation_mode=True) is model
        return
    with pytest.raises(ValueError, match="different device than the one"):
        accelerator.prepare_model(model, evaluation_mode=True)


def test_the_contract_names_the_devices_if_bits_depend_on_them(tiny_base: Path, tmp_path: Path) -> None:
    """The sum of two terms does not depend on their order, that of three does; each process draws its dropout."""
    base = prepare_fast(tiny_base, tmp_path, is_trial=True).base

    def details(devices: int, accumulated: int, dropout: float = 0.0) -> object:
        recipe = Recipe(devices=devices, gradient_accumulation_steps=accumulated, lora_dropout=dropout)
        contract = build_contract(recipe, "0", base, ("cpu", "float32"), "")
        assert "devices" not in contract["recipe"]
        return contract.get("devices")

    assert [details(1, 4), details(2, 2), details(2, 4), details(3, 3), details(2, 2, 0.1)] == [None, None, 2, 3, 2]
    assert details(2, 1) == 2, "the micro-batch of one device is divided among two: other rows are in a step"


def test_each_process_sees_as_many_gpus_as_there_are_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth7")
    several = training_environment(2)
    assert (several["GLOO_SOCKET_IFNAME"], several["NCCL_SOCKET_IFNAME"]) == ("lo", "eth7")
    assert "GLOO_SOCKET_IFNAME" not in training_environment()
    assert [training_environment(number)["CUDA_VISIBLE_DEVICES"] for number in (1, 3)] == ["0", "0,1,2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    assert [training_environment(number)["CUDA_VISIBLE_DEVICES"] for number in (1, 2)] == ["4", "4,5"]
