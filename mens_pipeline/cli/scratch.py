"""`mens scratch train`, also called `mens training native`, and `mens merge-weights`: a small model from scratch."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from mens_pipeline.cli.options import (
    REQUIRED,
    Options,
    argument,
    declare_options,
    option,
    read_values,
    switch,
    take_options,
)
from mens_pipeline.cli.terminal import (
    choose_device,
    interruptible,
    log_line,
    print_json,
    print_line,
    run_and_show,
    show_steps,
)
from mens_pipeline.cli.train import Resume
from mens_pipeline.cli.upstream import ListingGroup
from mens_pipeline.jobs.device import DeviceChoice
from mens_pipeline.jobs.protocol import ExitCode
from mens_pipeline.scratch.recipe import ScratchConfig
from mens_pipeline.settings import GATE_POLICY, artifact_commit, load_settings

if TYPE_CHECKING:
    from mens_pipeline.scratch.run import PreparedScratch, ScratchManifest, ScratchResult


_GRACE_SECONDS: Final = 120.0

app = typer.Typer(
    name="scratch", cls=ListingGroup, help="Train a small model from scratch, as a side branch.", no_args_is_help=True
)
training_app = typer.Typer(
    name="training", cls=ListingGroup, help="`scratch`, by its name in the Rust toolchain.", no_args_is_help=True
)


class _ScratchOptions(Options):
    data_dir: Path = option(Path("build"), "Folder of train.jsonl.", metavar="DIR")
    output_dir: Path = option(Path("runs/scratch"), "Folder of the run.", metavar="DIR")
    config: ScratchConfig = option(
        ScratchConfig.DEFAULT, "Size: the full model, or a small one for trials.", field="config"
    )
    model: Path | None = option(
        None,
        "Train a LoRA adapter of this scratch model or run, and merge it [default: random weights].",
        metavar="DIR",
    )
    lora_r: int | None = option(None, "Rank of that adapter.", field="lora_r")
    device: DeviceChoice = option(
        DeviceChoice.BEST, "Device to use; `best` picks the best available one and prints it."
    )
    seq_len: int | None = option(None, "Maximum tokens of a row (max_length).", field="max_length")
    batch_size: int | None = option(None, "Maximum rows of a micro-batch.", field="per_device_train_batch_size")
    grad_accum: int | None = option(None, "Micro-batches per step.", field="gradient_accumulation_steps")
    epochs: int | None = option(None, "Passes over the train set (num_train_epochs).", field="num_train_epochs")
    max_steps: int | None = option(None, "Maximum optimizer steps.", field="max_steps")
    max_minutes: float | None = option(None, "Maximum minutes of training.", field="max_minutes")
    lr: float | None = option(None, "Peak learning rate (learning_rate).", field="learning_rate")
    warmup: int | None = option(None, "Steps until the peak learning rate.", field="warmup_steps")
    seed: int | None = option(None, "Seed of initial weights and order of rows.", field="seed")
    min_rating: int | None = option(None, "Drop rows with a lower rating; 0 keeps all.", field="min_rating")
    validation_split_ratio: float | None = option(
        None, "Share of source files for validation.", field="validation_split_ratio"
    )
    checkpoint_every: int | None = option(None, "Steps between checkpoints (save_steps).", field="save_steps")
    resume: Resume = option("auto", "Whether to continue an interrupted run.")
    force_restart: bool = switch("Empty the folder of the run first.")
    dry_run: bool = switch("Check everything, but do not train.")
    as_json: bool = switch("Print the manifest as one JSON document.", "--json")


@app.command()
@training_app.command(name="native")
@take_options(_ScratchOptions)
def train(options: _ScratchOptions) -> None:
    """Train a VoxTransformer with VoxTokenizer from random weights, in a process of its own, with progress on stderr.

    With --model a LoRA adapter of a scratch model is trained instead: `adapter/` of the run holds it, and `model/` the
    merged model.

    The model is never promoted. Skipped rows are counted with their reason. An interrupted run continues from its
    newest checkpoint, and on a CPU ends with the same model.

    Exit code 0: the model is trained. 1: refused, or the training failed. 2: the command was misused. 130: interrupted;
    run the same command to go on.
    """
    run = _prepare(options)
    if options.dry_run:
        print_json(run.preflight)
        return
    manifest = _train(run)
    typer.echo(
        json.dumps(manifest.as_json(), indent=2) if options.as_json else _summary(manifest.result, run.job.run_dir)
    )


@app.callback()
@training_app.callback()
def _group() -> None:
    """Make typer keep the name of the only command."""


def _prepare(options: _ScratchOptions) -> "PreparedScratch":
    from mens_pipeline.promotion.policy import load_gate_policy
    from mens_pipeline.scratch.recipe import ScratchRecipe
    from mens_pipeline.scratch.run import prepare_scratch, scratch_sources

    recipe = ScratchRecipe.from_values(dict(read_values(options).values()))
    settings = load_settings()
    device = choose_device(options.device, settings)
    train_path = options.data_dir / "train.jsonl"
    base = scratch_sources((options.model,), 1)[0] if options.model is not None else None
    run = prepare_scratch(
        recipe,
        train_path,
        options.output_dir,
        device,
        cache=settings.cache_root,
        min_rows=load_gate_policy(GATE_POLICY).min_pairs,
        base=base,
        backend=settings.backend,
        strict=settings.strict_jsonl,
        is_new=options.force_restart or options.resume == "never",
        is_trial=options.dry_run,
    )
    data = run.preflight["data"]
    skipped = ", ".join(f"{count} {reason}" for reason, count in data["skipped"].items() if count)
    log_line(f"train set {train_path}, SHA-256 {run.contract['train_sha256'][:12]}")
    log_line(f"{recipe.config}: {run.preflight['num_parameters']:,} weights, 133 ids, from {base or 'random weights'}")
    log_line(f"{data['num_shown']}/{data['num_rows']} rows are shown" + (f", skipped {skipped}" if skipped else ""))
    log_line(f"{data['num_train']} rows train, {data['num_tokens']} tokens, {run.preflight['num_steps']} steps")
    return run


def _train(run: "PreparedScratch") -> "ScratchManifest":
    from mens_pipeline.scratch.run import finish_scratch

    vcs_sha = artifact_commit(load_settings())
    if run.is_done:
        log_line("this run is already complete; nothing to train")
        return finish_scratch(run, vcs_sha, ExitCode.DONE)
    with interruptible("run the same command to resume from the newest checkpoint"):
        code = run_and_show(run.job.path, show_steps(), grace_seconds=_GRACE_SECONDS)
    return finish_scratch(run, vcs_sha, code)


def _summary(result: "ScratchResult", run_dir: Path) -> str:
    tokens = f"{result.trained_tokens} tokens in {result.seconds / 60:.1f} min"
    rate, validation = result.trained_tokens / result.seconds, result.validation_loss
    other = f", validation loss {validation:.3f}" if validation is not None else ""
    return (
        f"{result.num_steps} steps, {tokens} ({rate:.0f} tokens/s), loss {result.train_loss:.3f}{other}\n"
        f"model in {run_dir / 'model'}"
    )


@declare_options
def merge_weights(
    *,
    sources: list[Path] = argument("Scratch runs, checkpoints or models.", metavar="DIR"),
    output_dir: Path = option(REQUIRED, "Folder of the new model.", metavar="DIR"),
    last: int = option(3, "Number of newest checkpoints of each run, including its final model.", ge=1),
    as_json: bool = switch("Print merge_manifest.json.", "--json"),
) -> None:
    """Average the weights of checkpoints that `mens scratch train` wrote into one model.

    A run means its newest checkpoints. A single model is copied. Adapters of QLoRA runs cannot be averaged:
    `mens merge` merges them into their base.

    Exit code 0: done. 1: refused. 2: the command was misused.
    """
    from mens_pipeline.scratch.run import merge_scratch, scratch_sources

    models = scratch_sources(sources, last)
    manifest = merge_scratch(models, output_dir)
    for model in models:
        print_line(f"from {model}", err=True)
    if as_json:
        print_json(manifest.as_json())
    else:
        print_line(f"mean of {len(models)} models in {output_dir}, SHA-256 {manifest.model_sha256[:12]}")
