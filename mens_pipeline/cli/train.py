"""`mens train`: QLoRA from a train set to an adapter."""

import json
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mens_pipeline.cli.progress import show_steps
from mens_pipeline.cli.terminal import INTERRUPTED, say, tell
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.training.devices import DeviceChoice

if TYPE_CHECKING:
    from mens_pipeline.training.prepare import PreparedRun
    from mens_pipeline.training.presets import ResolvedRecipe

LATEST: Final = Path("runs/latest")
"""Names the run that was begun last, where no other folder was named."""

_GRACE_SECONDS: Final = 120.0
_MIXED: Final = "validated_mixed.jsonl"
"""The train set of upstream's mix; `train.jsonl` beside it also contains the held-out rows."""
_PARTIAL: Final = (
    "All targeted layers are always trained: the loss passes through every one of them, so there is no partial stack "
    "to allow. Name layers with --target-modules to train fewer."
)


class Resume(StrEnum):
    """Policy for an interrupted run."""

    AUTO = "auto"
    NEVER = "never"


def train(  # noqa: PLR0913 - one parameter an option
    *,
    data_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="Where train.jsonl lies, or upstream's validated_mixed.jsonl.")
    ] = Path("build"),
    output_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The folder of the run [default: one by its id below runs; runs/latest names it]."
        ),
    ] = None,
    preset: Annotated[
        str, typer.Option(metavar="NAME", help="A recipe of config/presets.yaml; `auto` picks by memory.")
    ] = "auto",
    domain: Annotated[str | None, typer.Option(metavar="NAME", help="Which rows; config/domains.yaml.")] = None,
    device: Annotated[DeviceChoice, typer.Option(help="Never another one in its place; `best` says what it took.")] = (
        DeviceChoice.BEST
    ),
    devices: Annotated[int | None, typer.Option(metavar="N", help="GPUs that share each step.")] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Base model: a folder or a name on the Hub.")
    ] = None,
    revision: Annotated[str | None, typer.Option(metavar="REV", help="Which state of it.")] = None,
    backend: Annotated[str, typer.Option(help="qlora is the only one.")] = "qlora",
    tokenizer: Annotated[str, typer.Option(help="hf: the tokenizer of the base model.")] = "hf",
    rank: Annotated[int | None, typer.Option(help="lora_r.")] = None,
    alpha: Annotated[int | None, typer.Option(help="lora_alpha.")] = None,
    target_modules: Annotated[str | None, typer.Option(metavar="NAMES", help="Layers, with commas.")] = None,
    seq_len: Annotated[int | None, typer.Option(help="max_length, in tokens.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="per_device_train_batch_size.")] = None,
    grad_accum: Annotated[int | None, typer.Option(help="gradient_accumulation_steps.")] = None,
    epochs: Annotated[int | None, typer.Option(help="num_train_epochs.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="Optimizer steps at most.")] = None,
    max_minutes: Annotated[float | None, typer.Option(help="Minutes of training at most.")] = None,
    lr: Annotated[float | None, typer.Option(help="learning_rate.")] = None,
    warmup: Annotated[int | None, typer.Option(help="warmup_steps.")] = None,
    seed: Annotated[int | None, typer.Option(help="Start of the adapter, order of rows.")] = None,
    min_rating: Annotated[int | None, typer.Option(help="Rows with a lower rating do not train.")] = None,
    curriculum: Annotated[bool | None, typer.Option(help="Easy rows first.")] = None,
    trajectory_weighting: Annotated[bool | None, typer.Option(help="Rows weigh differently in the loss.")] = None,
    validation_split_ratio: Annotated[float | None, typer.Option(help="Share of source files that measure.")] = None,
    checkpoint_every: Annotated[int | None, typer.Option(help="save_steps: steps between two checkpoints.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Any other field of the recipe.")
    ] = None,
    resume: Annotated[Resume, typer.Option(help="`never` deletes what the folder of the run holds.")] = Resume.AUTO,
    force_restart: Annotated[bool, typer.Option("--force-restart", help="The same as --resume never.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look at everything, train nothing.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the manifest as one JSON document; of a dry run, what was looked at.")
    ] = False,
    provider: Annotated[str | None, typer.Option(hidden=True)] = None,
    native: Annotated[bool, typer.Option("--native", hidden=True)] = False,
    qlora_allow_partial_proxy_stack: Annotated[bool, typer.Option(hidden=True)] = False,
    qlora_lm_head_only: Annotated[bool, typer.Option(hidden=True)] = False,
    qlora_proxy_max_layers: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Train a QLoRA adapter on a train set, in a process of its own, with live progress on stderr.

    Data, lengths, tokenizer, device, memory and disk are looked at before any weight is loaded. An interrupted run goes
    on where its newest checkpoint is, and ends with the adapter it would have had. MENS_TRAIN_* variables set fields of
    the recipe; a flag wins over a variable, a variable over the preset, the preset over the domain.

    Exit code 0: the adapter is there. 1: refused, or training went wrong. 2: the command was misused. 130: interrupted;
    run the same command to go on.
    """
    _refuse_old_spellings(provider, data_dir, output_dir or LATEST, native=native)
    _refuse_what_is_not_offered(backend, tokenizer)
    if qlora_allow_partial_proxy_stack or qlora_lm_head_only or qlora_proxy_max_layers is not None:
        raise RefusedError(_PARTIAL)
    flags = {
        "--devices": ("devices", devices),
        "--model": ("model_name_or_path", model),
        "--revision": ("model_revision", revision),
        "--rank": ("lora_r", rank),
        "--alpha": ("lora_alpha", alpha),
        "--target-modules": ("target_modules", target_modules),
        "--seq-len": ("max_length", seq_len),
        "--batch-size": ("per_device_train_batch_size", batch_size),
        "--grad-accum": ("gradient_accumulation_steps", grad_accum),
        "--epochs": ("num_train_epochs", epochs),
        "--max-steps": ("max_steps", max_steps),
        "--max-minutes": ("max_minutes", max_minutes),
        "--lr": ("learning_rate", lr),
        "--warmup": ("warmup_steps", warmup),
        "--seed": ("seed", seed),
        "--min-rating": ("min_rating", min_rating),
        "--curriculum": ("curriculum", curriculum),
        "--trajectory-weighting": ("trajectory_weighting", trajectory_weighting),
        "--validation-split-ratio": ("validation_split_ratio", validation_split_ratio),
        "--checkpoint-every": ("save_steps", checkpoint_every),
        **{f"--set {field}": (field, value) for field, value in _fields(settings or []).items()},
    }
    given = {flag: pair for flag, pair in flags.items() if pair[1] is not None}
    run, resolved = _prepare(
        data_dir,
        output_dir,
        preset,
        domain,
        device,
        given,
        is_new=force_restart or resume is Resume.NEVER,
        is_trial=dry_run,
    )
    if dry_run:
        say(json.dumps(run.preflight, indent=2) if as_json else "\n".join(_table(run.preflight)))
        return
    manifest = _train(run, resolved)
    say(json.dumps(manifest, indent=2) if as_json else _summary(manifest, run.job.run_dir))


def _refuse_old_spellings(provider: str | None, data_dir: Path, output_dir: Path, *, native: bool) -> None:
    """Print what to write in place of the flags of earlier toolchains."""
    folders = f"--data-dir {data_dir} --output-dir {output_dir}"
    if native:
        raise RefusedError(f"--native trains the model that is made from scratch. Run: mens training native {folders}")
    if provider == "local":
        canonical = f"Run: mens train --backend qlora {folders} --preset auto"
        raise RefusedError(f"--provider local is gone: training is local. {canonical}")
    if provider is not None:
        advice = f"Train here: mens train {folders} --preset auto"
        raise RefusedError(f"--provider {provider}: no data leaves this machine, so no remote service trains. {advice}")


def _refuse_what_is_not_offered(backend: str, tokenizer: str) -> None:
    if backend != "qlora":
        raise RefusedError(f"--backend {backend} is not offered. Write --backend qlora, or leave it out.")
    if tokenizer != "hf":
        advice = "The scratch lane has the other one: mens scratch train."
        raise RefusedError(f"--tokenizer {tokenizer} does not train adapters. Write --tokenizer hf. {advice}")


def _fields(settings: list[str]) -> dict[str, str]:
    fields = dict(setting.partition("=")[::2] for setting in settings)
    if any("=" not in setting for setting in settings):
        raise ConfigurationError(f"--set {' '.join(settings)}: write FIELD=VALUE.")
    return fields


def _prepare(  # noqa: PLR0913, PLR0917 - what the command was told
    data_dir: Path,
    output_dir: Path | None,
    preset: str,
    domain: str | None,
    choice: DeviceChoice,
    flags: dict[str, tuple[str, Any]],
    *,
    is_new: bool,
    is_trial: bool,
) -> "tuple[PreparedRun, ResolvedRecipe]":
    from mens_pipeline.promotion.policy import load_gate_policy
    from mens_pipeline.settings import (
        DOMAINS,
        GATE_POLICY,
        PRESETS,
        load_settings,
        recipe_variables,
    )
    from mens_pipeline.training.devices import resolve_device
    from mens_pipeline.training.prepare import prepare_run
    from mens_pipeline.training.presets import load_named, resolve_recipe
    from mens_pipeline.training.run_dir import by_id, point_latest
    from mens_pipeline.training.told import told_kinds, told_too_long

    settings = load_settings()
    presets, domains = load_named(PRESETS), load_named(DOMAINS)
    device = resolve_device(choice, force_cpu=settings.backend == "cpu")
    tell(f"device {device.kind}: {device.name}")
    resolved = resolve_recipe(
        presets,
        domains,
        preset=preset,
        domain=domain,
        environment=recipe_variables(),
        flags=dict(flags.values()),
        flag_names={field: flag for flag, (field, _) in flags.items()},
        vram_gb=device.preset_gb,
    )
    min_rows = load_gate_policy(GATE_POLICY).min_pairs
    mixed = data_dir / _MIXED
    train_path = mixed if mixed.is_file() else data_dir / "train.jsonl"
    run = prepare_run(
        resolved,
        train_path,
        output_dir or by_id,
        device,
        cache=settings.cache_root,
        min_rows=min_rows,
        say=tell,
        is_new=is_new,
        is_trial=is_trial,
    )
    if output_dir is None and not is_trial:
        point_latest(run.job.run_dir)
    data = run.preflight["data"]
    tell(f"preset {resolved.preset}" + (f", domain {domain}" if domain else ""))
    tell(f"train set {train_path}, SHA-256 {run.contract['train_sha256'][:12]}")
    tell(f"base model {run.base.name} from {run.base.origin}, SHA-256 {run.base.sha256[:12]}")
    tell(f"{data['num_train']} rows, {data['num_tokens']} tokens, {run.preflight['num_steps']} steps")
    kinds = run.preflight["kinds"]
    tell(f"all {run.preflight['num_steps']} steps show: {told_kinds(kinds)}")
    if too_long := told_too_long(kinds):
        tell(f"longer than max_length, {resolved.recipe.max_length} tokens (--seq-len): {too_long}")
    for note in run.preflight["notes"]:
        tell(f"warning: {note}")
    return run, resolved


def _table(preflight: dict[str, Any]) -> Iterator[str]:
    """Yield what a dry run found: data by kind, steps, memory, and each value of the recipe with where it came from."""
    data, memory, device = (preflight[name] for name in ("data", "memory_mb", "device"))
    yield f"{'device':<28} {device['kind']}, {device['name']}"
    yield f"{'base model':<28} {preflight['base_model']['name']}"
    yield f"{'rows that train':<28} {data['num_train']} of {data['num_rows']}"
    yield from (f"{'  ' + reason:<28} {count}" for reason, count in data["not_shown"].items() if count)
    yield f"{'tokens':<28} {data['num_tokens']}, {data['num_supervised_tokens']} of them carry the loss"
    yield f"{'steps':<28} {preflight['num_steps']} of {preflight['num_micro_batches']} micro-batches"
    yield f"{'memory':<28} about {memory['total']:.0f} MB"
    for field, value in preflight["recipe"].items():
        yield f"{field:<28} {json.dumps(value)}  ({preflight['recipe_origins'][field]})"


def _train(run: "PreparedRun", resolved: "ResolvedRecipe") -> dict[str, Any]:
    from mens_pipeline.configured import artifact_commit
    from mens_pipeline.delivery.trackers import Trackers
    from mens_pipeline.settings import load_settings
    from mens_pipeline.training.environment import ray_environment, training_environment
    from mens_pipeline.training.job import MODULE, RAY_DRIVER, ExitCode
    from mens_pipeline.training.launch import run_child
    from mens_pipeline.training.manifest import finish_run
    from mens_pipeline.training.telemetry_log import FILE, Follower

    settings = load_settings()
    if settings.launcher == "kuberay":
        message = "MENS_LAUNCHER kuberay: KubeRay starts a cluster for a run of Dagster alone."
        raise ConfigurationError(f"{message} Set it to ray, with RAY_ADDRESS, or to local.")
    commit = artifact_commit(settings)
    run_dir = run.job.run_dir
    if run.is_done:
        tell("this very run is complete; nothing is trained again")
        return finish_run(run, resolved, commit, ExitCode.DONE, settings.backend)
    trackers = Trackers(settings.trackers.get_secret_value(), run.job_path, tell)
    follower = Follower(run_dir / FILE, _both(show_steps(), trackers.take))
    try:
        number, log = run.job.recipe.devices, run_dir / "child.log"
        if settings.launcher == "local":
            environment = training_environment(number)
            code = run_child(MODULE, run.job_path, environment, follower.poll, _GRACE_SECONDS, log, number)
        else:  # the cluster decides what runs where
            code = run_child(RAY_DRIVER, run.job_path, ray_environment(), follower.poll, _GRACE_SECONDS, log)
    except KeyboardInterrupt:
        trackers.end(ExitCode.INTERRUPTED)
        tell("interrupted; run the same command to go on from the newest checkpoint")
        raise typer.Exit(INTERRUPTED) from None
    trackers.end(code)
    return finish_run(run, resolved, commit, code, settings.backend)


_Listener = Callable[[dict[str, Any]], None]


def _both(first: _Listener, second: _Listener) -> _Listener:
    def listen(event: dict[str, Any]) -> None:
        first(event)
        second(event)

    return listen


def _summary(manifest: dict[str, Any], run_dir: Path) -> str:
    from mens_pipeline.training.told import told_kinds

    result = manifest["result"]
    tokens = f"{result['trained_tokens']} tokens in {result['seconds'] / 60:.1f} min"
    rate = result["trained_tokens"] / result["seconds"]
    return (
        f"{result['num_steps']} steps, {tokens} ({rate:.0f} tokens/s), loss {result['train_loss']:.3f}\n"
        f"shown: {told_kinds(result['kinds'])}\n"
        f"{result['num_changed_matrices']}/{result['num_adapter_matrices']} adapter matrices changed, base unchanged\n"
        f"adapter in {run_dir / 'adapter'}"
    )
