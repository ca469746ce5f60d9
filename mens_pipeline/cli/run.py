"""`mens run` and `mens plan`: the whole graph without a server, and how long it takes."""

import logging
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import typer

from mens_pipeline.cli.options import declare_options, option, switch
from mens_pipeline.cli.terminal import INTERRUPTED, REFUSED, align_columns, log_line, print_json, print_line, show
from mens_pipeline.errors import require_folder
from mens_pipeline.jobs.local import run_job
from mens_pipeline.language import visible_text
from mens_pipeline.settings import PRESETS, RECIPES, Settings, load_settings

if TYPE_CHECKING:
    from mens_pipeline.orchestration.forecast import PresetEstimate, RunPlan
    from mens_pipeline.orchestration.instance import GraphOutcome


Launch = Callable[..., "GraphOutcome"]
"""Runs a job with the configuration of its assets."""

Ended = tuple["GraphOutcome", bool, Mapping[str, Any]]
"""Outcome of a run, whether it reached its goal, and the options chosen for it."""

Figures = Mapping[str, Mapping[str, Any]]
"""Asset -> its metadata, plain values only."""

_DEFAULT: Final = "default"  # the recipe of a run that names none
_LEAST_MORE: Final = 10  # minimum minutes to suggest if more training may help a refused run
_OF_PRESET: Final = re.compile(r" --(?:preset|more) \S+")
"""Options to drop from a command that suggests another preset."""

_GO_ON: Final = "interrupted; run the same command again: finished steps are reused"
_MOST_MINUTES: Final = 100_000
_MINUTES: Final = {"s": 1 / 60, "m": 1.0, "h": 60.0}
_FIGURES: Final = ("parse rate", "resolve rate", "hidden tests", "exact", "exact lines", "shown")
"""Figures shown for each suite; `heldout: parse rate` is the name of such a metadata entry."""


def summarize(figures: Figures, *, is_good: bool, command: str, options: str = "") -> Iterator[str]:
    """Yield lines about pairs, training, scores, verdict, champion and reuse, and the next command."""
    results, gate, champion = (figures.get(name, {}) for name in ("eval_results", "benchmark_gate", "promoted_adapter"))
    yield from _data_lines(figures)
    if adapter := figures.get("qlora_adapter"):
        yield from _training_lines(adapter)
    for name, value in results.items():
        suite, _, figure = name.partition(": ")
        if figure in _FIGURES:
            yield f"{suite:<11} {figure} {value}"
    if results:
        yield f"coverage    {results['coverage']}, missing {results['missing_constructs']}"
    if gate:
        word = {"passed": "passed", "failed": "refused", "undecided": "undecided, not promoted"}[gate["status"]]
        yield f"verdict     {word}, policy {gate['policy']}, {gate['attempt']}{_note_reuse(gate)}"
        if not gate["passed"]:
            yield from (f"            {line}" for line in str(gate["reasons"]).splitlines())
            yield f"cause       {gate['likely_cause']}"
        yield f"report      {gate['report']}"
    if champion:
        yield from _champion_lines(champion)
    reused = [values["reused"] for values in figures.values() if "reused" in values]
    if any(reused):
        yield f"reused      {sum(reused)}/{len(reused)} stages"
    yield f"next        {_next(figures, command, options, is_good=is_good)}"


def _data_lines(figures: Figures) -> Iterator[str]:
    read = figures.get("extracted_corpus") or figures.get("workspace_snapshot", {})
    made = (figures.get(name, {}) for name in ("validated_pairs", "heldout_split", "mixed_train_set"))
    for number, account in enumerate(values["yours"] for values in (read, *made) if "yours" in values):
        yield f"{'' if number else 'yours':<11} {account}"
    if "report" in read:
        yield f"reasons     {read['report']}"
    if train_set := figures.get("mixed_train_set"):
        rows = f"{train_set['num_distinct']} distinct pairs, {train_set['num_infill']} infill rows cut from them"
        yield f"train set   {rows}{_note_reuse(train_set)}"
    if "benchmark_gate" not in figures and (size := figures.get("heldout_split", {}).get("suite_size")):
        yield f"eval suite  {size}"


def find_command() -> str:
    """Return the command that started this program, for advice that can be copied."""
    program = sys.argv[0]
    if Path(program).name == "__main__.py":
        return f"{sys.executable} -m mens_pipeline.cli"
    return "mens" if shutil.which("mens") == program else program


def _note_reuse(figures: Mapping[str, Any]) -> str:
    return ", reused" if figures.get("reused") else ""


def _champion_lines(champion: Mapping[str, Any]) -> Iterator[str]:
    if "best_recipe" in champion:
        yield f"best        {champion['best_recipe']}"
    yield f"champion    {champion['champion']}{'' if champion['changed'] else ', unchanged'}"


def _training_lines(adapter: Mapping[str, Any]) -> Iterator[str]:
    if adapter["recipe_name"] != _DEFAULT:
        yield f"recipe      {adapter['recipe_name']}, adapter {adapter['adapter_sha256']}"
    done, planned, before = (int(adapter[f"num_{name}"]) for name in ("updates", "planned_updates", "updates_before"))
    minutes = adapter["train/seconds"] / 60
    steps = f"{done} of {planned} steps" if done < planned else f"{done} steps"
    after = f" after {before} earlier ones" if before else ""
    limit = ", limited by the time budget" if done < planned else ""
    losses = f"loss {adapter['first_loss']:.3f} at the start, {adapter['last_loss']:.3f} at the end"
    yield f"training    {steps} in {minutes:.1f} min{after}{limit}, {losses}{_note_reuse(adapter)}"
    yield f"shown       {adapter['shown']}"
    if adapter.get("never_shown"):
        yield f"not shown   {adapter['never_shown']}"


def _advise(gate: Mapping[str, Any], adapter: Mapping[str, Any], command: str, options: str) -> str:
    from mens_pipeline.promotion.receipt import Remedy

    if gate["remedy"] == Remedy.MORE:
        minutes = max(_LEAST_MORE, round(adapter.get("train/seconds", 0.0) / 60))
        return f"continue the same run for {minutes} min: {command} run{options} --more {minutes}m"
    if gate["remedy"] == Remedy.PRESET:
        return f"use a recipe that accepts longer rows: {command} run{_OF_PRESET.sub('', options)} --preset auto"
    if gate["remedy"] == Remedy.DATA:
        larger = f"use a larger workspace: {command} run --source-root DIR"
        return f"{larger}; for its first model: VOX_EVAL_POLICY=bootstrap {command} run{options}"
    return f"fix the cause named above, then: {command} run{options}"


def _next(figures: Figures, command: str, options: str, *, is_good: bool) -> str:
    gate = figures.get("benchmark_gate", {})
    if not is_good and gate.get("passed") is False:
        return _advise(gate, figures.get("qlora_adapter", {}), command, options)
    if not is_good and "benchmark_gate" in figures and "promoted_adapter" not in figures:
        return "the adapter passed but was not promoted; see the reason above"
    if not is_good:
        return "fix the failure, and run the same command again: finished steps are reused"
    if gate.get("policy", "").split(" ")[0] == "trial" and "promoted_adapter" not in figures:
        return f"a trial is never promoted; {command} run trains an adapter that can be promoted"
    if "benchmark_gate" in figures and "promoted_adapter" not in figures:
        return f"{command} run{options} promotes it; {command} compare A B shows two recipes side by side"
    if "promoted_adapter" in figures:
        return f"make ui shows the graph; {command} promote --history shows every champion"
    if figures.get("heldout_split", {}).get("is_suite_enough") is False:
        return f"enlarge the eval suite first: the gate would refuse an adapter from {command} run{options}"
    return f"{command} run{options} trains the adapter"


@declare_options
def run(
    *,
    source_root: Path | None = option(
        None, "The Vox workspace to learn from [default: MENS_SOURCE_ROOT, else this repository's data]."
    ),
    recipe: list[str] | None = option(
        None,
        "Recipe of config/recipes.yaml [default: default]. Of several, the best that passes is promoted.",
        metavar="NAME",
    ),
    preset: str | None = option(
        None,
        "Preset of config/presets.yaml; `auto` picks by the memory of the GPU [default: that of the recipe].",
        metavar="NAME",
    ),
    domain: str | None = option(
        None, "Rows to train on, by config/domains.yaml [default: those of the recipe].", metavar="NAME"
    ),
    infill_share: float | None = option(
        None,
        "Share of shown tokens that complete code at a cursor; 0: none [default: that of preset and mix].",
        metavar="X",
        ge=0,
        le=0.95,
    ),
    force_train: bool = switch("Train even if nothing has changed."),
    more: list[str] | None = option(
        None, "Train the same run for longer: 10m, 1h. Repeat it for another round.", metavar="TIME"
    ),
    minutes: float | None = option(
        None,
        "Minutes of the whole run: choose steps, prompts and holes that fit [default: no limit].",
        metavar="M",
        ge=0.1,
        le=_MOST_MINUTES,
    ),
    with_training: bool = option(True, "Go on to the adapter, or stop at the train set.", "--train/--no-train"),
    with_promotion: bool = option(
        True, "Promote an adapter that passes, or only evaluate it.", "--promote/--no-promote"
    ),
    as_json: bool = switch("Print the outcome as one JSON document.", "--json"),
) -> None:
    """Run every asset and every check once, with progress on stderr and a summary at the end.

    Unchanged assets are reused, so a second run trains nothing. With --more the adapter of the same preset and data
    trains further, with a learning-rate schedule that rises and falls again.

    With --minutes a few steps and completions are measured first, and a plan that fits is printed before the training;
    see `mens plan`. The same command on the same data keeps its plan.

    Several recipes are trained and evaluated in one run each. Of those that pass, the one with the best pass@1 is
    promoted. `mens compare` shows recipes side by side.

    Exit code 0: the adapter is promoted, or passed with --no-promote (one of several), or with --no-train every check
    passed. 1: a gate or a check refused, or a step failed. 2: the command was misused. 130: interrupted; run the same
    command to go on.
    """
    from mens_pipeline.definitions import defs
    from mens_pipeline.orchestration.choices import resolve_choices
    from mens_pipeline.orchestration.forecast import Planner
    from mens_pipeline.orchestration.instance import PROGRESS_LOGGER, run_graph
    from mens_pipeline.orchestration.resources import Compute

    began, settings = perf_counter(), _settings_with(source_root)
    asked: dict[str, Any] = {
        name: value for name, value in (("preset", preset), ("domain", domain)) if value is not None
    }
    chosen = [{"recipe": name, **asked} for name in dict.fromkeys(recipe or ())] or [asked]
    if not with_training and (len(chosen) > 1 or more or force_train):
        raise typer.BadParameter("--no-train does not train recipes. Name one, without --more and --force-train.")
    if minutes is not None and (len(chosen) > 1 or not with_training):
        raise typer.BadParameter("--minutes plans the training of one recipe. Name one, without --no-train.")
    overrides = {} if infill_share is None else {"infill_share": infill_share}
    for choice in chosen if with_training or any(chosen) else ():
        resolve_choices(settings, Compute().resolve(), overrides=overrides, **choice)
    show_progress(PROGRESS_LOGGER)
    # A share of zero leaves infill rows out of the train set; any other share only sets the number that trains.
    mixing = {"mixed_train_set": {"infill_share": 0.0}} if infill_share == 0 else {}
    definitions = defs()

    def launch(job: str, configs: Mapping[str, Any] | None = None) -> "GraphOutcome":
        return run_graph(definitions, settings, job, {**mixing, **(configs or {})})

    training: dict[str, Any] = {
        "force_train": force_train,
        "more_minutes": [*map(_minutes, more or ())],
        "overrides": overrides,
    }
    configs: dict[str, dict[str, Any]] = {"qlora_adapter": training}
    if minutes is not None:
        _make_train_set(launch)
        planner = Planner(settings, Compute().resolve(), run_job, log_line, chosen[0], overrides, minutes, began)
        planned, _ = planner.plan(is_kept=True)
        for line in _plan_lines(planned):
            log_line(line)
        configs = planned.configs(training)
    with_promotion = with_promotion and not _are_trials(chosen)
    trained = _train_recipes(launch, chosen, configs, with_promotion=with_promotion)
    runs = trained if with_training else _run_without_training(launch)
    given = {"--infill-share": infill_share, "--minutes": minutes}
    options = "".join(f" {flag} {value:g}" for flag, value in given.items() if value is not None)
    options += "".join(f" --more {text}" for text in more or ())
    outcomes, verdicts = _follow(
        runs, "" if source_root is None else f" --source-root {shlex.quote(str(source_root))}", options, as_json=as_json
    )
    if as_json:
        details = [asdict(outcome) for outcome in outcomes]
        print_json(details if len(chosen) > 1 else details[0])
    raise typer.Exit(0 if verdicts[-1] or (any(verdicts) and not with_promotion) else REFUSED)


def _follow(
    runs: Iterator[Ended], where: str, options: str, *, as_json: bool
) -> tuple[list["GraphOutcome"], list[bool]]:
    outcomes, verdicts = [], []
    for outcome, is_good, trained in runs:
        if outcome.is_interrupted:
            log_line(_GO_ON)
            raise typer.Exit(INTERRUPTED)
        outcomes.append(outcome)
        verdicts.append(is_good)
        if not as_json:
            chosen = "".join(f" --{name} {value}" for name, value in trained.items())
            _show(outcome, where + chosen + options, is_good=is_good)
    return outcomes, verdicts


def _make_train_set(launch: Launch) -> None:
    log_line("building the train set first: the plan depends on it")
    outcome = launch("train_set")
    if not outcome.success:
        _show(outcome, "", is_good=False)
        raise typer.Exit(INTERRUPTED if outcome.is_interrupted else REFUSED)


def _are_trials(chosen: Sequence[Mapping[str, Any]]) -> bool:
    from mens_pipeline.training.presets import load_recipes

    named = load_recipes(RECIPES)
    return all(named[choice.get("recipe", _DEFAULT)].trial for choice in chosen)


def _run_without_training(launch: Launch) -> Iterator[Ended]:
    outcome = launch("train_set")
    yield outcome, outcome.success, {}


def _train_recipes(
    launch: Launch,
    chosen: Sequence[Mapping[str, Any]],
    shared: Mapping[str, Mapping[str, Any]],
    *,
    with_promotion: bool,
) -> Iterator[Ended]:
    promotes_each = with_promotion and len(chosen) == 1
    evaluated, has_passed = [], False
    for choice in chosen:
        configs = {
            **shared,
            "qlora_adapter": {**choice, **shared["qlora_adapter"]},
            "promoted_adapter": {"promote": promotes_each},
        }
        outcome = launch("whole_graph", configs)
        verdict = outcome.figures.get("benchmark_gate", {})
        passes = outcome.success and verdict.get("passed") is True
        evaluated += [outcome.run_id] if verdict else []
        has_passed = has_passed or passes
        yield outcome, outcome.is_promoted if promotes_each else passes, choice
    if has_passed and with_promotion and not promotes_each:
        outcome = launch("promote_best", {"promoted_adapter": {"best_of": evaluated}})
        yield outcome, outcome.is_promoted, {}


def _show(outcome: "GraphOutcome", options: str, *, is_good: bool) -> None:
    for check in outcome.checks:
        print_line(f"{'passed ' if check.passed else 'FAILED ' if check.is_error else 'warning'}  {check.name}")
        for key, value in check.figures.items() if not check.passed else ():
            print_line(f"         {key}: {value}")
    for line in summarize(outcome.figures, is_good=is_good, command=find_command(), options=options):
        print_line(line)
    verdict = "promoted" if outcome.is_promoted else "passed" if is_good else "refused"
    print_line(f"{verdict} in {outcome.seconds:.1f} s, run {outcome.run_id}")


def _minutes(text: str) -> float:
    number, factor = text[:-1], _MINUTES.get(text[-1:], 0.0)
    minutes = float(number) * factor if number.replace(".", "", 1).isdecimal() else 0.0
    if not 0 < minutes <= _MOST_MINUTES:
        raise typer.BadParameter(
            f"--more {text}: not a duration up to {_MOST_MINUTES:,} minutes. Use one such as 90s, 10m or 1h."
        )
    return minutes


class _Line(logging.Formatter):
    """Escapes messages, which may quote programs and completions."""

    def format(self, record: logging.LogRecord) -> str:
        return visible_text(super().format(record))


def show_progress(logger_name: str) -> None:
    """Send the messages of a logger to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line("%(asctime)s  %(message)s", "%H:%M:%S"))
    logger = logging.getLogger(logger_name)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.handlers = [handler]


_GIGABYTE: Final = 1024
_BASE_OF_GPUS: Final = "Qwen/Qwen3.5-4B"


def _settings_with(source_root: Path | None) -> Settings:
    settings = load_settings()
    if source_root is not None:
        settings = settings.model_copy(update={"source_root": source_root})
    require_folder(settings.source_root, "Name a Vox workspace with --source-root or MENS_SOURCE_ROOT.")
    return settings


def _plan_lines(plan: "RunPlan") -> Iterator[str]:
    rows = [(stage.name, stage.does, stage.seconds) for stage in plan.stages]
    rows.append(("total", "", sum(stage.seconds for stage in plan.stages)))
    head = ("stage", "work", "minutes")
    yield from align_columns([head, *((name, does, f"{seconds / 60:.1f}") for name, does, seconds in rows)])
    if plan.note:
        yield f"note: {plan.note}"


def _preset_lines(estimates: "list[PresetEstimate]") -> Iterator[str]:
    head = ["preset", "GPU", "steps", "tokens per step", "learning rate", "training", "evaluation", "memory"]
    rows = [[*head, "base", "layers recomputed"]]
    for one in estimates:
        row = [f"{one.rows.num_steps:,}", f"{one.rows.step:,.0f}", f"{one.recipe.learning_rate:g}"]
        row += [f"{seconds / 60:.0f} min" for seconds in (one.training, one.evaluation)]
        chosen = [one.recipe.quantization or "-", one.recipe.recomputed_layers]
        rows.append([one.preset, one.gpu, *row, f"{one.memory_mb / _GIGABYTE:.1f} GB", *chosen])
    yield from align_columns(rows)


@declare_options
def plan(
    *,
    recipe: str | None = option(None, "Recipe of config/recipes.yaml [default: default].", metavar="NAME"),
    preset: str | None = option(None, "Preset of config/presets.yaml [default: that of the recipe].", metavar="NAME"),
    minutes: float | None = option(None, "Plan `mens run --minutes M`.", metavar="M", ge=0.1, le=_MOST_MINUTES),
    source_root: Path | None = option(
        None, "The Vox workspace [default: MENS_SOURCE_ROOT, else this repository's data]."
    ),
    as_json: bool = switch("Print the plan as one JSON document.", "--json"),
) -> None:
    """Estimate the time of a run on this machine, and of each preset on its GPU.

    Measures a few training steps and completions, which takes a minute, or several under load. The train set must be in
    the store and the base on this machine. Figures for GPUs are computed from data sheets. Nothing is kept.

    Exit code 0: planned. 1: train set or base is missing, the minutes are too few, or the probe failed. 2: the command
    was misused.
    """
    from mens_pipeline.models.find_base import base_by_name
    from mens_pipeline.orchestration.forecast import Planner, estimate_presets
    from mens_pipeline.orchestration.resources import Compute
    from mens_pipeline.training.preflight import LINEAR, has_linear_kernels, kernels_found
    from mens_pipeline.training.presets import load_named
    from mens_pipeline.training.recipe import BY_MEMORY

    settings = _settings_with(source_root)
    choice = {name: value for name, value in (("recipe", recipe), ("preset", preset)) if value is not None}
    device = Compute().resolve()
    planner = Planner(settings, device, run_job, log_line, choice, {}, minutes, perf_counter())
    found, counts = planner.plan(is_kept=False)
    presets = {preset: all_of[preset]} if (all_of := load_named(PRESETS)) and preset in all_of else all_of
    # The kernels found on this machine; without a GPU, assume the ones that an installation adds.
    is_fast = device.kind != "cuda" or has_linear_kernels(kernels_found({"layer_types": [LINEAR]}, device.capability))
    base = base_by_name(_BASE_OF_GPUS)
    estimates = list(estimate_presets(presets, base, counts.tokens, counts.suite, has_kernels=is_fast))
    document: dict[str, Any] = {
        **found.model_dump(mode="json", include={"stages", "note", "dial"}),
        "presets": {
            one.preset: {
                "gpu": one.gpu,
                "steps": one.rows.num_steps,
                "tokens_per_step": one.rows.step,
                "learning_rate": one.recipe.learning_rate,
                **one.recipe.model_dump(include={*BY_MEMORY}),
                "seconds": one.training + one.evaluation,
            }
            for one in estimates
        },
    }

    def lines() -> Iterator[str]:
        yield from _plan_lines(found)
        if not estimates:
            return
        yield ""
        how = f"estimated from data sheets, {'with' if is_fast else 'without'} linear-attention kernels"
        yield f"presets with {_BASE_OF_GPUS}, each on the GPU that `auto` picks it for: {how}"
        yield from _preset_lines(estimates)

    show(document, lines(), as_json=as_json)
