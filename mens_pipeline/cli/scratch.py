"""`mens scratch train`, also as `mens training native`, and `mens merge-weights`: a small model made from scratch."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mens_pipeline.cli.progress import run_and_show, show_steps
from mens_pipeline.cli.terminal import INTERRUPTED, say, tell
from mens_pipeline.cli.train import Resume
from mens_pipeline.training.devices import DeviceChoice
from mens_pipeline.training.scratch.architecture import ScratchConfig

if TYPE_CHECKING:
    from mens_pipeline.training.scratch.prepare import PreparedScratch

_GRACE_SECONDS: Final = 120.0

app = typer.Typer(name="scratch", help="The side branch: a small model made from scratch.", no_args_is_help=True)
training_app = typer.Typer(name="training", help="Upstream's name of the side branch.", no_args_is_help=True)


def train(  # noqa: PLR0913 - one parameter an option
    *,
    data_dir: Annotated[Path, typer.Option(metavar="DIR", help="Where train.jsonl lies.")] = Path("build"),
    output_dir: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the run.")] = Path("runs/scratch"),
    config: Annotated[ScratchConfig, typer.Option(help="The full model, or a small one to try things out.")] = (
        ScratchConfig.DEFAULT
    ),
    device: Annotated[DeviceChoice, typer.Option(help="Never another one in its place; `best` says what it took.")] = (
        DeviceChoice.BEST
    ),
    seq_len: Annotated[int | None, typer.Option(help="max_length, in tokens.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="per_device_train_batch_size.")] = None,
    grad_accum: Annotated[int | None, typer.Option(help="gradient_accumulation_steps.")] = None,
    epochs: Annotated[int | None, typer.Option(help="num_train_epochs.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="Optimizer steps at most.")] = None,
    max_minutes: Annotated[float | None, typer.Option(help="Minutes of training at most.")] = None,
    lr: Annotated[float | None, typer.Option(help="learning_rate.")] = None,
    warmup: Annotated[int | None, typer.Option(help="warmup_steps.")] = None,
    seed: Annotated[int | None, typer.Option(help="First weights, order of rows.")] = None,
    min_rating: Annotated[int | None, typer.Option(help="Rows with a lower rating do not train; 0 takes all.")] = None,
    validation_split_ratio: Annotated[float | None, typer.Option(help="Share of source files that measure.")] = None,
    checkpoint_every: Annotated[int | None, typer.Option(help="save_steps: steps between two checkpoints.")] = None,
    resume: Annotated[Resume, typer.Option(help="Whether to go on with an interrupted run.")] = Resume.AUTO,
    force_restart: Annotated[bool, typer.Option("--force-restart", help="Empty the folder of the run first.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look at everything, train nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the manifest as one JSON document.")] = False,
) -> None:
    """Train a VoxTransformer with VoxTokenizer from random weights, in a process of its own, with progress on stderr.

    It stands beside the adapters and is never promoted. Rows that are skipped are counted with their reason. An
    interrupted run goes on where its newest checkpoint is; on a CPU it ends with the model it would have had.

    Exit code 0: the model is there. 1: refused, or training went wrong. 2: the command was misused. 130: interrupted;
    run the same command to go on.
    """
    given = {
        "config": config,
        "max_length": seq_len,
        "per_device_train_batch_size": batch_size,
        "gradient_accumulation_steps": grad_accum,
        "num_train_epochs": epochs,
        "max_steps": max_steps,
        "max_minutes": max_minutes,
        "learning_rate": lr,
        "warmup_steps": warmup,
        "seed": seed,
        "min_rating": min_rating,
        "validation_split_ratio": validation_split_ratio,
        "save_steps": checkpoint_every,
    }
    values = {field: value for field, value in given.items() if value is not None}
    run = _prepare(
        values, data_dir, output_dir, device, is_new=force_restart or resume is Resume.NEVER, is_trial=dry_run
    )
    if dry_run:
        typer.echo(json.dumps(run.preflight, indent=2))
        return
    manifest = _train(run)
    typer.echo(json.dumps(manifest, indent=2) if as_json else _summary(manifest, run.job.run_dir))


app.command()(train)
training_app.command(name="native")(train)


@app.callback()
@training_app.callback()
def _group() -> None:
    """Keep the name of the command, of which there is only one."""


def _prepare(  # noqa: PLR0913 - what the command was told
    values: dict[str, Any], data_dir: Path, output_dir: Path, choice: DeviceChoice, *, is_new: bool, is_trial: bool
) -> "PreparedScratch":
    from mens_pipeline.promotion.policy import load_gate_policy
    from mens_pipeline.settings import GATE_POLICY, load_settings
    from mens_pipeline.training.devices import resolve_device
    from mens_pipeline.training.scratch.prepare import prepare_scratch
    from mens_pipeline.training.scratch.recipe import ScratchRecipe

    recipe = ScratchRecipe.from_values(values)
    settings = load_settings()
    device = resolve_device(choice, force_cpu=settings.backend == "cpu")
    tell(f"device {device.kind}: {device.name}")
    train_path = data_dir / "train.jsonl"
    run = prepare_scratch(
        recipe,
        train_path,
        output_dir,
        device,
        cache=settings.cache_root,
        min_rows=load_gate_policy(GATE_POLICY).min_pairs,
        backend=settings.backend,
        strict=settings.strict_jsonl,
        is_new=is_new,
        is_trial=is_trial,
    )
    data = run.preflight["data"]
    skipped = ", ".join(f"{count} {reason}" for reason, count in data["skipped"].items() if count)
    tell(f"train set {train_path}, SHA-256 {run.contract['train_sha256'][:12]}")
    tell(f"{recipe.config}: {run.preflight['num_parameters']:,} values, 133 ids, from random weights")
    tell(f"{data['num_shown']}/{data['num_rows']} rows are shown" + (f", skipped {skipped}" if skipped else ""))
    tell(f"{data['num_train']} rows train, {data['num_tokens']} tokens, {run.preflight['num_steps']} steps")
    return run


def _train(run: "PreparedScratch") -> dict[str, Any]:
    from mens_pipeline.configured import artifact_commit
    from mens_pipeline.settings import load_settings
    from mens_pipeline.training.job import ExitCode
    from mens_pipeline.training.scratch.finish import finish_scratch
    from mens_pipeline.training.scratch.job import MODULE
    from mens_pipeline.training.telemetry_log import FILE

    vcs_sha = artifact_commit(load_settings())
    if run.is_done:
        tell("this very run is complete; nothing is trained again")
        return finish_scratch(run, vcs_sha, ExitCode.DONE)
    try:
        code = run_and_show(MODULE, run.job_path, FILE, show_steps(), _GRACE_SECONDS)
    except KeyboardInterrupt:
        tell("interrupted; run the same command to go on from the newest checkpoint")
        raise typer.Exit(INTERRUPTED) from None
    return finish_scratch(run, vcs_sha, code)


def _summary(manifest: dict[str, Any], run_dir: Path) -> str:
    result = manifest["result"]
    tokens = f"{result['trained_tokens']} tokens in {result['seconds'] / 60:.1f} min"
    rate = result["trained_tokens"] / result["seconds"]
    validation = result["validation_loss"]
    other = f", {validation:.3f} on other files" if validation is not None else ""
    return (
        f"{result['num_steps']} steps, {tokens} ({rate:.0f} tokens/s), loss {result['train_loss']:.3f}{other}\n"
        f"model in {run_dir / 'model'}"
    )


def merge_weights(
    sources: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Scratch runs, checkpoints or models.")],
    *,
    output_dir: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the new model.")],
    last: Annotated[int, typer.Option(min=1, help="Newest checkpoints of each run, its final model included.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print merge_manifest.json.")] = False,
) -> None:
    """Average the weights of checkpoints that `mens scratch train` wrote into one model.

    A run stands for its newest checkpoints; a single model is copied as it is. The adapter of a QLoRA run is not
    averaged: `mens merge` merges it into its base.

    Exit code 0: done. 1: refused, with the reason. 2: the command was misused.
    """
    from mens_pipeline.training.scratch.merge import merge_scratch, scratch_sources

    merged = merge_scratch(scratch_sources(sources, last), output_dir)
    for source in merged.sources:
        say(f"from {source}", err=True)
    if as_json:
        typer.echo(json.dumps(merged.manifest, indent=2))
    else:
        digest = merged.manifest["model_sha256"][:12]
        say(f"mean of {len(merged.sources)} models in {merged.path}, SHA-256 {digest}")
