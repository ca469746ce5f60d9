"""`mens train`: train a QLoRA adapter on a train set."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import typer

from mens_pipeline.cli.options import Options, option, read_values, switch, take_options
from mens_pipeline.cli.terminal import (
    INTERRUPTED,
    REFUSED,
    choose_device,
    log_line,
    print_line,
    run_and_show,
    show_steps,
)
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.jobs.device import DeviceChoice
from mens_pipeline.jobs.protocol import ExitCode
from mens_pipeline.models.adapter import ShownKind, TrainingManifest
from mens_pipeline.settings import (
    DOMAINS,
    GATE_POLICY,
    PRESETS,
    Settings,
    artifact_commit,
    load_settings,
    recipe_variables,
)

if TYPE_CHECKING:
    from mens_pipeline.training.prepare import PreparedRun


LATEST: Final = Path("runs/latest")
"""Link to the newest run that was started without --output-dir."""

_GRACE_SECONDS: Final = 120.0

Resume = Literal["auto", "never"]
"""Whether to continue an interrupted run."""


class _TrainOptions(Options):
    data_dir: Path = option(
        Path("build"), "Folder of train.jsonl, or of upstream's validated_mixed.jsonl.", metavar="DIR"
    )
    output_dir: Path | None = option(
        None, "Folder of the run [default: runs/ID; runs/latest links to it].", metavar="DIR"
    )
    preset: str = option("auto", "Preset of config/presets.yaml; `auto` picks by memory.", metavar="NAME")
    domain: str | None = option(None, "Rows to train on, by config/domains.yaml.", metavar="NAME")
    device: DeviceChoice = option(
        DeviceChoice.BEST, "Device to use; `best` picks the best available one and prints it."
    )
    devices: int | None = option(None, "GPUs that share each step.", metavar="N", field="devices")
    model: str | None = option(
        None, "Base model: a folder, or a name on the Hub.", metavar="NAME", field="model_name_or_path"
    )
    revision: str | None = option(None, "Revision of the base model.", metavar="REV", field="model_revision")
    backend: Literal["qlora"] = option("qlora", "The only backend.")
    tokenizer: Literal["hf"] = option("hf", "The tokenizer of the base model.")
    rank: int | None = option(None, "Rank of the adapter (lora_r).", field="lora_r")
    alpha: int | None = option(None, "Scale of the adapter (lora_alpha).", field="lora_alpha")
    target_modules: str | None = option(None, "Layers, separated by commas.", metavar="NAMES", field="target_modules")
    seq_len: int | None = option(None, "Maximum tokens of a row (max_length).", field="max_length")
    batch_size: int | None = option(None, "Maximum rows of a micro-batch.", field="per_device_train_batch_size")
    grad_accum: int | None = option(
        None, "Micro-batches per step, instead of tokens_per_step.", field="gradient_accumulation_steps"
    )
    epochs: int | None = option(None, "Passes over the train set (num_train_epochs).", field="num_train_epochs")
    max_steps: int | None = option(None, "Maximum optimizer steps.", field="max_steps")
    max_minutes: float | None = option(None, "Maximum minutes of training.", field="max_minutes")
    lr: float | None = option(None, "Peak learning rate (learning_rate).", field="learning_rate")
    warmup: int | None = option(None, "Steps until the peak learning rate.", field="warmup_steps")
    seed: int | None = option(None, "Seed of initial weights and order of rows.", field="seed")
    min_rating: int | None = option(None, "Drop rows with a lower rating.", field="min_rating")
    infill_share: float | None = option(
        None, "Share of shown tokens that complete code at a cursor.", metavar="X", field="infill_share"
    )
    curriculum: bool | None = option(None, "Show easy rows first.", field="curriculum")
    trajectory_weighting: bool | None = option(
        None, "Weight rows in the loss by their trajectory.", field="trajectory_weighting"
    )
    validation_split_ratio: float | None = option(
        None, "Share of source files for validation.", field="validation_split_ratio"
    )
    checkpoint_every: int | None = option(None, "Steps between checkpoints (save_steps).", field="save_steps")
    settings: list[str] | None = option(None, "Any other field of the recipe.", "--set", metavar="FIELD=VALUE")
    resume: Resume = option("auto", "Continue an interrupted run; `never` empties its folder.")
    force_restart: bool = switch("The same as --resume never.")
    fast_corpus: bool = switch("Train on all of train.jsonl; hold nothing out for evaluation.")
    dry_run: bool = switch("Check everything, but do not train.")
    as_json: bool = switch("Print the manifest, or the findings of a dry run, as one JSON document.", "--json")
    provider: str | None = option(None, hidden=True)
    native: bool = switch(hidden=True)

    @property
    def recipe_flags(self) -> dict[str, tuple[str, Any]]:
        settings = self.settings or []
        if any("=" not in setting for setting in settings):
            raise ConfigurationError(f"--set {' '.join(settings)}: expected FIELD=VALUE.")
        parts = (setting.partition("=") for setting in settings)
        return {**read_values(self), **{f"--set {field}": (field, value) for field, _, value in parts}}


@take_options(_TrainOptions)
def train(options: _TrainOptions) -> None:
    """Train a QLoRA adapter on a train set, in a process of its own, with live progress on stderr.

    Without a heldout.jsonl next to train.jsonl, source files are held out first, as by `mens corpus mix`, and the rest
    is written to validated_mixed.jsonl. Data, lengths, tokenizer, device, memory and disk are checked before any weight
    is loaded. An interrupted run continues from its newest checkpoint and ends with the same adapter.

    MENS_TRAIN_* variables set recipe fields. A flag wins over a variable, a variable over the preset, the preset over
    the domain. With VOX_EVAL_STRICT=1, VOX_BENCHMARK=1 or VOX_BENCHMARK_MIN_PASS_RATE=X the adapter is then evaluated
    and gated, as by `mens eval-local` and `mens gate`.

    Exit code 0: the adapter is trained. 1: refused, the training failed, or with VOX_EVAL_STRICT=1 the gate did not
    pass. 2: the command was misused. 130: interrupted; run the same command to go on.
    """
    _refuse_old_spellings(options)
    settings = load_settings()
    if settings.launcher == "kuberay":
        message = "MENS_LAUNCHER=kuberay: KubeRay starts clusters only for Dagster runs."
        raise ConfigurationError(f"{message} Set it to ray and set RAY_ADDRESS, or set it to local.")
    run = _prepare(options)
    is_evaluated = settings.asks_to_evaluate
    if is_evaluated:
        _refuse_what_cannot_be_evaluated(run)
    if options.dry_run:
        print_line(json.dumps(run.preflight, indent=2) if options.as_json else "\n".join(_table(run.preflight)))
        return
    manifest = _train(run)
    print_line(json.dumps(manifest.as_json(), indent=2) if options.as_json else _summary(manifest, run.job.run_dir))
    if is_evaluated:
        _evaluate(options, run.job.run_dir, settings)
    else:
        shown = options.output_dir or LATEST
        log_line(f"next: mens eval-local --run-dir {shown}, then mens gate --run-dir {shown}")


def _refuse_old_spellings(options: _TrainOptions) -> None:
    folders = f"--data-dir {options.data_dir} --output-dir {options.output_dir or LATEST}"
    provider = options.provider
    if options.native:
        raise RefusedError(f"--native trains a model from scratch. Run: mens training native {folders}")
    if provider == "local":
        canonical = f"Run: mens train --backend qlora {folders} --preset auto"
        raise RefusedError(f"--provider local was removed: training is always local. {canonical}")
    if provider is not None:
        advice = f"Train here: mens train {folders} --preset auto"
        raise RefusedError(f"--provider {provider}: no data leaves this machine, so no remote service trains. {advice}")


def _prepare(options: _TrainOptions) -> "PreparedRun":
    from mens_pipeline.cli.train_set import PAIRS, find_train_set
    from mens_pipeline.models.card import format_kinds
    from mens_pipeline.promotion.policy import load_gate_policy
    from mens_pipeline.training.examples import format_too_long
    from mens_pipeline.training.prepare import by_id, point_latest, prepare_run
    from mens_pipeline.training.presets import load_named, resolve_recipe

    settings = load_settings()
    presets, domains = load_named(PRESETS), load_named(DOMAINS)
    device = choose_device(options.device, settings, trains=True)
    flags = options.recipe_flags
    resolved = resolve_recipe(
        presets,
        domains,
        preset=options.preset,
        domain=options.domain,
        environment=recipe_variables(),
        flags=dict(flags.values()),
        flag_names={field: flag for flag, (field, _) in flags.items()},
        vram_gb=device.preset_gb,
    )
    min_rows = load_gate_policy(GATE_POLICY).min_pairs
    train_path = options.data_dir / PAIRS if options.fast_corpus else find_train_set(options.data_dir, settings)
    run = prepare_run(
        resolved,
        train_path,
        options.output_dir or by_id,
        device,
        cache=settings.cache_root,
        min_rows=min_rows,
        log_line=log_line,
        is_new=options.force_restart or options.resume == "never",
        is_trial=options.dry_run,
    )
    if options.output_dir is None and not options.dry_run:
        point_latest(run.job.run_dir)
    data = run.preflight["data"]
    log_line(f"preset {resolved.preset}" + (f", domain {options.domain}" if options.domain else ""))
    log_line(f"train set {train_path}, SHA-256 {run.contract['train_sha256'][:12]}")
    log_line(f"base model {run.base.name} from {run.base.origin}, SHA-256 {run.base.sha256[:12]}")
    log_line(f"{data['num_train']} rows, {data['num_tokens']} tokens, {run.preflight['num_steps']} steps")
    kinds = run.preflight["kinds"]
    shown = format_kinds({name: ShownKind.model_validate(kind) for name, kind in kinds.items()})
    log_line(f"all {run.preflight['num_steps']} steps show: {shown}")
    if too_long := format_too_long(kinds):
        log_line(f"rows longer than max_length, {resolved.recipe.max_length} tokens (--seq-len): {too_long}")
    for note in run.preflight["notes"]:
        log_line(f"warning: {note}")
    return run


def _refuse_what_cannot_be_evaluated(run: "PreparedRun") -> None:
    from mens_pipeline.corpus.curate.heldout_split import HELDOUT, refuse_trained_heldout
    from mens_pipeline.corpus.schema.records import read_pairs
    from mens_pipeline.evaluation.suite import refuse_unanswerable
    from mens_pipeline.evaluation.tasks import heldout_tasks
    from mens_pipeline.inference.generation import EvaluationConfig
    from mens_pipeline.inference.prepare import completion_fits
    from mens_pipeline.settings import EVALUATION
    from mens_pipeline.storage.yaml_file import load_model

    heldout = run.job.train_path.with_name(HELDOUT)
    if not heldout.is_file():
        advice = "Leave --fast-corpus out, or unset VOX_EVAL_STRICT and VOX_BENCHMARK."
        raise RefusedError(f"{heldout}: missing, so the adapter could not be evaluated after training. {advice}")
    refuse_trained_heldout(heldout, run.job.train_path)
    decoding = load_model(EVALUATION, EvaluationConfig).decoding
    refuse_unanswerable(heldout, heldout_tasks(read_pairs(heldout)), completion_fits(run.base, decoding))


def _evaluate(options: _TrainOptions, run_dir: Path, settings: Settings) -> None:
    from mens_pipeline.cli.eval_local import EvalOptions, evaluate_run, format_summary
    from mens_pipeline.cli.promote import decide_on, verdict_of
    from mens_pipeline.promotion.receipt import FAILED, PAGE

    asked = EvalOptions(run_dir=run_dir, device=options.device, no_bench=not settings.benchmark)
    results = evaluate_run(asked)
    receipt = decide_on(run_dir, settings)
    write = log_line if options.as_json else print_line
    write(format_summary(results, run_dir / PAGE))
    write(verdict_of(receipt))
    if not receipt.overall_passed:
        log_line(f"{'' if settings.eval_strict else 'warning: '}the gate did not pass; see {run_dir / FAILED}")
        raise typer.Exit(REFUSED if settings.eval_strict else 0)


def _table(preflight: dict[str, Any]) -> Iterator[str]:
    data, memory, device = (preflight[name] for name in ("data", "memory_mb", "device"))
    yield f"{'device':<28} {device['kind']}, {device['name']}"
    yield f"{'base model':<28} {preflight['base_model']['name']}"
    yield f"{'training rows':<28} {data['num_train']} of {data['num_rows']}"
    others = {**data["not_shown"], "validation": data["num_validation"]}
    yield from (f"{'  ' + reason:<28} {count}" for reason, count in others.items() if count)
    yield f"{'tokens':<28} {data['num_tokens']}, {data['num_supervised_tokens']} of them in the loss"
    yield f"{'steps':<28} {preflight['num_steps']} of {preflight['num_micro_batches']} micro-batches"
    yield f"{'memory':<28} about {memory['total']:.0f} MB"
    for field, value in preflight["recipe"].items():
        yield f"{field:<28} {json.dumps(value)}  ({preflight['recipe_origins'][field]})"


def _train(run: "PreparedRun") -> TrainingManifest:
    from mens_pipeline.training.qlora_adapter import finish_run

    settings = load_settings()
    commit = artifact_commit(settings)
    if run.is_done:
        log_line("this run is already complete; nothing to train")
        return finish_run(run, commit, ExitCode.DONE, settings.backend)
    try:
        code = run_and_show(
            run.job.path,
            show_steps(),
            grace_seconds=_GRACE_SECONDS,
            num_ranks=run.job.recipe.devices,
            on_ray=settings.launcher == "ray",
        )
    except KeyboardInterrupt:
        log_line("interrupted; run the same command to resume from the newest checkpoint")
        raise typer.Exit(INTERRUPTED) from None
    return finish_run(run, commit, code, settings.backend)


def _summary(manifest: TrainingManifest, run_dir: Path) -> str:
    from mens_pipeline.models.card import format_kinds, format_never_shown

    result = manifest.result
    left = format_never_shown(result.kinds)
    tokens = f"{result.trained_tokens} tokens in {result.seconds / 60:.1f} min"
    rate = result.trained_tokens / result.seconds
    lines = (
        f"{result.num_steps} steps, {tokens} ({rate:.0f} tokens/s), loss {result.train_loss:.3f}",
        f"shown: {format_kinds(result.kinds)}",
        *((f"warning: no rows were shown of {left}",) if left else ()),
        f"{result.num_changed_matrices}/{result.num_adapter_matrices} adapter matrices changed, base unchanged",
        f"adapter in {run_dir / 'adapter'} ({manifest.recipe.method})",
    )
    return "\n".join(lines)
