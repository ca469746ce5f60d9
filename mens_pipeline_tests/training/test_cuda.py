"""Training on a GPU; skipped if there is none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from mens_pipeline.jobs.device import DeviceChoice
from mens_pipeline.jobs.local import run_job
from mens_pipeline.jobs.protocol import ExitCode, newest_checkpoint
from mens_pipeline.models.adapter import ADAPTER, TELEMETRY
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline.training.telemetry_log import steps_of
from mens_pipeline_tests.training.runs import prepare_fast, result_of
from mens_pipeline_tests.training.tiny_base import write_tiny_base, write_tiny_hybrid

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]

_HIDDEN: Final = 2048
_RECIPE: Final[dict[str, Any]] = {"lora_r": 32, "lora_alpha": 64, "num_train_epochs": 2, "save_steps": 2}


@pytest.fixture(scope="module", params=["llama", "hybrid"])
def wide_base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base of wide layers: two of a Llama, or four of a Qwen3.5, three of them with linear attention."""
    folder = tmp_path_factory.mktemp("wide") / "base"
    if request.param == "llama":
        return write_tiny_base(folder, hidden=_HIDDEN)
    return write_tiny_hybrid(folder, hidden_size=_HIDDEN, intermediate_size=2 * _HIDDEN)


def _train(run: PreparedRun, stop_at: int | None = None) -> int:
    """Train in a separate process; kill it without a warning once its log reports a step."""
    log = run.job.run_dir / TELEMETRY

    def poll() -> None:
        if stop_at is not None and log.is_file() and any(step["step"] >= stop_at for step in steps_of(log)):
            raise _KilledError

    return run_job(run.job.path, poll, grace_seconds=0, num_ranks=run.job.recipe.devices)


class _KilledError(Exception):
    """A test wants the process to end."""


@pytest.mark.seed_row(12, 56)
@pytest.mark.parametrize("quantization", ["nf4", "bf16"])
def test_a_gpu_trains_every_matrix_in_bfloat16(wide_base: Path, tmp_path: Path, quantization: str) -> None:
    """AdamW in float32, activations recomputed: every matrix changes, in float32, and the base does not."""
    import torch
    from safetensors.torch import load_file  # noqa: PLC0415 - comes with the deep learning stack

    fields = {**_RECIPE, "quantization": quantization, "bnb_4bit_compute_dtype": "auto", "checkpoint_every_n_layers": 1}
    run = prepare_fast(wide_base, tmp_path, choice=DeviceChoice.CUDA, **fields)
    assert _train(run) == ExitCode.DONE, (run.job.run_dir / "child.log").read_text()[-2000:]
    result = result_of(run)
    checkpoint = newest_checkpoint(run.job.run_dir)
    assert checkpoint is not None
    moments = torch.load(checkpoint / "optimizer.pt", map_location="cpu", weights_only=False)["state"].values()
    adapter = load_file(run.job.run_dir / ADAPTER / "adapter_model.safetensors")

    assert (result["device"], result["compute_dtype"]) == ("cuda", "bfloat16")
    assert result["computed_by"].endswith(f"base in {quantization}, layers recomputed: all")
    assert result["num_changed_matrices"] == result["num_adapter_matrices"] > 0
    assert {tensor.dtype for tensor in adapter.values()} == {torch.float32}
    assert {state["exp_avg_sq"].dtype for state in moments} == {torch.float32}


@pytest.mark.seed_row(56)
def test_a_gpu_holds_its_base_in_nf4_with_double_quantisation(wide_base: Path, tmp_path: Path) -> None:
    """In every adapted layer: four bits of NormalFloat, and scales that are quantised as well."""
    import torch
    from bitsandbytes.nn import Linear4bit

    from mens_pipeline.training.qlora import load_base  # noqa: PLC0415 - loads the deep learning stack

    run = prepare_fast(wide_base, tmp_path, choice=DeviceChoice.CUDA, **_RECIPE)
    model = load_base(run.job.base_path, run.job.recipe, "cuda", torch.bfloat16)
    states = [module.weight.quant_state for module in model.modules() if isinstance(module, Linear4bit)]

    assert states
    assert {(state.quant_type, state.nested) for state in states} == {("nf4", True)}


def test_a_gpu_computes_the_loss_of_a_cpu(wide_base: Path, tmp_path: Path) -> None:
    """In the first step, before anything is learnt: the library's loss there equals ours here, with row weights."""
    fields = {**_RECIPE, "max_steps": 1, "bnb_4bit_compute_dtype": "float32"}
    weights: dict[str, Any] = {
        "trajectory_weighting": True,
        "trajectory_quality_floor": 1,
        "trajectory_quality_boost": 4.0,
    }
    runs = {
        choice: prepare_fast(wide_base, tmp_path / choice, choice=choice, **fields, **weights)
        for choice in (DeviceChoice.CUDA, DeviceChoice.CPU)
    }
    for run in runs.values():
        assert _train(run) == ExitCode.DONE, (run.job.run_dir / "child.log").read_text()[-2000:]
    (gpu,), (cpu,) = (list(steps_of(run.job.run_dir / TELEMETRY)) for run in runs.values())

    assert gpu["loss"] == pytest.approx(cpu["loss"], rel=1e-3)
    assert gpu["grad_norm"] == pytest.approx(cpu["grad_norm"], rel=2e-2)


def test_a_killed_run_on_a_gpu_resumes_at_its_checkpoint(wide_base: Path, tmp_path: Path) -> None:
    """From its newest checkpoint, with moments, to the end of the plan; its losses are those of an untouched run."""
    untouched, killed = (
        prepare_fast(wide_base, tmp_path / name, choice=DeviceChoice.CUDA, **_RECIPE)
        for name in ("untouched", "killed")
    )
    assert _train(untouched) == ExitCode.DONE
    with pytest.raises(_KilledError):
        _train(killed, stop_at=5)
    assert newest_checkpoint(killed.job.run_dir) is not None
    assert _train(killed) == ExitCode.DONE
    losses = [[step["loss"] for step in steps_of(run.job.run_dir / TELEMETRY)] for run in (untouched, killed)]

    assert result_of(killed)["num_steps"] == result_of(untouched)["num_steps"]
    assert losses[1] == pytest.approx(losses[0], rel=5e-3)


def _llama_1b(folder: Path) -> Path:
    return write_tiny_base(folder, hidden=2048, inner=8192, layers=4, heads=32, positions=2048)


def _qwen_4b(folder: Path) -> Path:
    heads = {"num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256}
    linear = {"linear_num_value_heads": 32, "linear_num_key_heads": 16}
    widths = {"linear_key_head_dim": 128, "linear_value_head_dim": 128, "max_position_embeddings": 2048}
    return write_tiny_hybrid(folder, None, hidden_size=2560, intermediate_size=9216, **heads, **linear, **widths)


@pytest.mark.parametrize("write_base", [_llama_1b, _qwen_4b], ids=["Llama-3.2-1B", "Qwen3.5-4B"])
def test_a_gpu_needs_the_estimated_memory(
    tmp_path: Path, write_base: Callable[[Path], Path], record_property: Callable[[str, object], None]
) -> None:
    """Four layers of these widths, 8,192 tokens at once: between half of the estimate and 1.25 times it."""
    base = write_base(tmp_path / "base")
    fields = {**_RECIPE, "max_length": 2048, "max_tokens_per_batch": 8192, "per_device_train_batch_size": 256}
    run = prepare_fast(base, tmp_path, 400, DeviceChoice.CUDA, max_steps=3, bnb_4bit_compute_dtype="auto", **fields)
    assert _train(run) == ExitCode.DONE, (run.job.run_dir / "child.log").read_text()[-2000:]
    steps = list(steps_of(run.job.run_dir / TELEMETRY))
    peak, estimate = steps[-1]["peak_memory_mb"], run.preflight["memory_mb"]["total"]
    record_property("peak_mb", round(peak))
    record_property("estimate_mb", round(estimate))
    record_property("tokens_per_second", round(steps[-1]["tokens_per_second"]))

    assert estimate / 2 < peak < 1.25 * estimate


def test_two_gpus_train_the_adapter_of_one(
    wide_base: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("this machine has one CUDA device")
    fields = {**_RECIPE, "gradient_accumulation_steps": 2, "bnb_4bit_compute_dtype": "float32"}
    runs = [
        prepare_fast(wide_base, tmp_path / str(number), 32, DeviceChoice.CUDA, devices=number, **fields)
        for number in (1, 2)
    ]
    for run in runs:
        assert _train(run) == ExitCode.DONE, (run.job.run_dir / "child.log").read_text()[-2000:]
    one, two = ([step["loss"] for step in steps_of(run.job.run_dir / TELEMETRY)] for run in runs)
    record_property("losses", f"{one[0]:.4f} to {one[-1]:.4f}, {two[0]:.4f} to {two[-1]:.4f}")

    assert two == pytest.approx(one, rel=1e-2)
