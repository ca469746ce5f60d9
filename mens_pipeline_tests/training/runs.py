"""Runs on the tiny base, for tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mens_pipeline.corpus.curate.heldout_split import group_of
from mens_pipeline.corpus.schema.records import Source, SourceKind, TrainingPair
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.jobs.protocol import read_result
from mens_pipeline.models.adapter import ADAPTER
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.training.plan import is_validation_group, plan_run
from mens_pipeline.training.prepare import PreparedRun, prepare_run
from mens_pipeline.training.presets import ResolvedRecipe, resolve_recipe
from mens_pipeline.training.recipe import Continued

FAST = {
    "lora_r": 4,
    "lora_alpha": 8,
    "max_length": 256,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 1,
    "num_train_epochs": 1,
    "warmup_steps": 0,
    "learning_rate": 1e-2,
    "validation_split_ratio": 0.0,
    "save_steps": 1,
    "bnb_4bit_compute_dtype": "float32",
}


def pairs(number: int) -> list[TrainingPair]:
    return [
        TrainingPair(
            prompt=f"Write a function f{row}.",
            response=f"fn f{row}(n: int) to int {{\n    return n + {row}\n}}\n",
            category="function",
            difficulty=2,
            source=Source(path=f"f{row}.vox", blob="0", span=(0, 1), lines=(1, 1), kind=SourceKind.VOX_FILE),
        )
        for row in range(number)
    ]


CONTRARY = 0.2
"""Share of the rows of `contrary_pairs` that measure the loss."""


def contrary_pairs(number: int) -> list[TrainingPair]:
    """Pairs whose validation rows differ in their characters, so that their loss rises during a run."""
    return [
        pair.model_copy(update={"response": "~" * 40} if is_validation_group(group_of(pair), CONTRARY, 42) else {})
        for pair in pairs(number)
    ]


def resolve_fast(base: Path, **fields: Any) -> ResolvedRecipe:
    flags = {**FAST, "model_name_or_path": str(base), **fields}
    return resolve_recipe({}, {}, preset=None, domain=None, environment={}, flags=flags)


def prepare_fast(  # noqa: PLR0913 - what tests vary
    base: Path,
    folder: Path,
    number: int = 16,
    choice: DeviceChoice = DeviceChoice.CPU,
    *,
    is_new: bool = False,
    is_trial: bool = False,
    into: Callable[[str], Path] | None = None,
    rows: list[TrainingPair] | None = None,
    continues: Continued | None = None,
    **fields: Any,
) -> PreparedRun:
    train_path = folder / "train.jsonl"
    write_jsonl(train_path, rows or pairs(number))
    recipe = resolve_fast(base, **fields)
    device = resolve_device(choice)
    return prepare_run(
        recipe,
        train_path,
        into or folder / "run",
        device,
        cache=folder / "cache",
        min_rows=1,
        is_new=is_new,
        is_trial=is_trial,
        continues=continues,
    )


def trainer_of(run: PreparedRun) -> tuple[Any, dict[str, Any]]:
    """The trainer of a run, and its first micro-batch."""
    from mens_pipeline.jobs.progress import NOWHERE, TelemetryLog  # noqa: PLC0415 - loads the deep learning stack
    from mens_pipeline.training import train as module  # noqa: PLC0415 - likewise
    from mens_pipeline.training.common_trainer import RunMonitor, StopRequest  # noqa: PLC0415 - likewise
    from mens_pipeline.training.examples import open_examples  # noqa: PLC0415 - likewise
    from mens_pipeline.training.step_plan import Schedule, take_up  # noqa: PLC0415 - likewise

    examples = open_examples(run.job)
    plan = plan_run(examples.columns, run.job.recipe)
    steps = take_up(run.job.run_dir, Schedule(plan.num_steps, 0, "linear"), [1] * plan.num_steps, None)
    monitor = RunMonitor(TelemetryLog(NOWHERE), StopRequest(), steps)
    tokenizer = module.load_tokenizer(run.job.base_path)
    trainer = module._trainer(run.job, tokenizer, examples.train, plan, monitor)  # noqa: SLF001 - what tests look at
    return trainer, next(iter(trainer.get_train_dataloader()))


def train_here(run: PreparedRun) -> dict[str, Any]:
    """Train in this process, and return the result."""
    from mens_pipeline.training.train import train  # noqa: PLC0415 - loads the deep learning stack

    assert train(run.job)
    return result_of(run)


def result_of(run: PreparedRun) -> dict[str, Any]:
    """Return the result of a complete run."""
    result = read_result(run.job.run_dir)
    assert result is not None
    return result


def weights_of(run: PreparedRun) -> bytes:
    return (run.job.run_dir / ADAPTER / "adapter_model.safetensors").read_bytes()


def words_of(run: PreparedRun) -> str:
    """Return the end of the log of the process of a run."""
    return (run.job.run_dir / "child.log").read_text()[-3000:]
