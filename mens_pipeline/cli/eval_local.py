"""`mens eval-local` and `mens replay`: completions of models, scored on an eval suite or the history of a workspace."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from pydantic import ValidationError

from mens_pipeline.cli.demo import open_adapter
from mens_pipeline.cli.options import Options, declare_options, option, read_values, switch, take_options
from mens_pipeline.cli.terminal import (
    align_columns,
    choose_device,
    interruptible,
    log_line,
    print_json,
    print_line,
    run_and_show,
    show_completions,
)
from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.inference.generation import EvaluationConfig, Syntax
from mens_pipeline.jobs.device import DeviceChoice
from mens_pipeline.language.interpreter import ErrorClass
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.settings import FEW_SHOT, load_settings, open_store, read_thresholds
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import Artifact
from mens_pipeline.storage.validation import errors_in

if TYPE_CHECKING:
    from mens_pipeline.evaluation.benchmark import Benchmark
    from mens_pipeline.evaluation.replay import ReplayRates, ReplayResults
    from mens_pipeline.evaluation.results import EvalResults
    from mens_pipeline.evaluation.trial import Trial
    from mens_pipeline.inference.generation import GenerationJob
    from mens_pipeline.inference.prepare import Conditions


def format_summary(results: "EvalResults", page: Path) -> str:
    """Format the main figures of an evaluation, with 95 % intervals."""
    from mens_pipeline.evaluation.results import figures_of_infill
    from mens_pipeline.promotion.report.side_by_side import build_table, list_columns

    table = build_table([column for column in list_columns(results) if column.name != "champion"])
    found = table.row("coverage").cells[table.models.index("adapter")].text.partition(" ")[0]
    pieces = figures_of_infill(results.infill) if results.infill is not None else {}
    return "\n".join(
        [
            *align_columns(table.lines_by_suite()),
            f"constructs in accepted completions: {found}",
            *(f"at the cursor: {name} {text}" for name, text in pieces.items()),
            f"report {page}",
        ]
    )


def format_trial(trial: "Trial", completions: Path) -> str:
    """Format the figures of a trial: of all completions, and of those that would be served."""
    from mens_pipeline.promotion.report.side_by_side import Column, build_table

    columns = [Column("model", trial.scores, best_of=trial.best_of if trial.served is None else None)]
    columns += [Column("as served", trial.served, best_of=trial.best_of)] if trial.served is not None else []
    lines = build_table(columns).lines_by_suite()
    if trial.scores.overall.test_rate.denominator:
        errors = (column.scores.overall.execution_errors.get(ErrorClass.RUNTIME, 0) for column in columns)
        lines.append(("", "run-time errors", *map(str, errors)))
    return "\n".join([*align_columns(lines), f"completions {completions}", "a trial: no verdict uses these figures"])


_KEPT: Final = "run the same command again; finished completions are kept"


class EvalOptions(Options):
    """Options of `mens eval-local`."""

    run_dir: Path = option(
        Path("runs/latest"),
        "The folder of a run of `mens train`; with --endpoint, the name of a model.",
        "--run-dir",
        "--model",
        metavar="DIR",
    )
    heldout: Path | None = option(None, "Held-out pairs [default: heldout.jsonl of the train set].", metavar="FILE")
    bench: Path | None = option(None, "A benchmark [default: VOX_BENCHMARK_DIR, else the packaged one].", metavar="DIR")
    no_bench: bool = switch("Only held-out prompts.")
    device: DeviceChoice = option(DeviceChoice.BEST, "Device to use; `best` picks the best available one.")
    samples: int | None = option(None, "Completions per prompt: k of pass@k, n of best-of-n.", field="num_samples")
    devices: int | None = option(
        None, "GPUs that share the prompts [default: as many as in training].", metavar="N", ge=1
    )
    temperature: float | None = option(None, "0: always the most likely token.", field="temperature")
    max_tokens: int | None = option(None, "Maximum tokens of a completion.", field="max_new_tokens")
    seed_base: int | None = option(None, "Seed of sampling.", field="seed")
    holes: int | None = option(
        None, "Holes in held-out programs for the adapter to fill; 0: none.", metavar="N", field="infill_holes"
    )
    decoding: Syntax | None = option(
        None,
        "constrained: only tokens that can lead to a program; fallback: only if a free completion is not one.",
        field="syntax",
    )
    trial: bool = switch("Evaluate only the adapter, only on the benchmark; no verdict uses the figures.")
    endpoint: str | None = option(None, "Try a model at an OpenAI-compatible address: https://HOST/v1.", metavar="URL")
    describe: bool = switch("Describe Vox to the model of the endpoint: config/few_shot.md.")
    as_json: bool = switch("Print eval_results.json.", "--json")


@take_options(EvalOptions)
def eval_local(options: EvalOptions) -> None:
    """Let base and adapter complete held-out prompts and a benchmark, and score every completion.

    A completion parses if the front end accepts it. It passes if it is also complete and declares the requested name.
    Writes eval_results.json, eval_local_report.json, benchmark_passatk.json, scored_completions.jsonl and report.html
    into the folder of the run, and removes the verdict on an earlier evaluation. Completions are kept and reused.

    A run that is evaluated on other held-out pairs than its own cannot be promoted. As config/evaluation.yaml says,
    the base also completes a sample with a description of Vox and examples in its prompt, the adapter completes
    synthetic tasks, and an adapter trained on holes fills some in held-out programs (`infill_completions.jsonl`).

    With --endpoint another model completes the benchmark over HTTP, with the key in MENS_EVOL_API_KEY. Its replies are
    kept in build/endpoint, so an interrupted command pays for nothing twice.

    Exit code 0: evaluated. 1: a model did not respond. 2: the command was misused. 130: interrupted.
    """
    if options.endpoint is not None:
        _try_endpoint(options, options.endpoint, _asked_alone(options), _config(options))
    elif options.trial:
        _try(options, _asked_alone(options), _conditions(options, _config(options)))
    else:
        from mens_pipeline.promotion.receipt import PAGE

        results = evaluate_run(options)
        document = results.model_dump_json(indent=2) if options.as_json else None
        _print(document, format_summary(results, options.run_dir / PAGE))


def _benchmark(options: EvalOptions) -> "Benchmark":
    from mens_pipeline.evaluation.benchmark import load_benchmark

    return load_benchmark(options.bench or load_settings().benchmark_dir)


def _conditions(options: EvalOptions, config: EvaluationConfig) -> "Conditions":
    from mens_pipeline.inference.prepare import Conditions

    settings = load_settings()
    device = choose_device(options.device, settings)
    return Conditions(config.decoding, device, device.lock_in(settings.cache_root), options.devices)


def _asked_alone(options: EvalOptions) -> "Benchmark":
    named = {"--no-bench": options.no_bench, "--heldout": options.heldout, "--holes": options.holes}
    if given := " and ".join(flag for flag, value in named.items() if value):
        raise ConfigurationError(f"{given}: a trial evaluates only on the benchmark. Leave {given} out.")
    return _benchmark(options)


def evaluate_run(options: EvalOptions) -> "EvalResults":
    """Evaluate base and adapter on the eval suite, and write the results into the folder of the run."""
    from mens_pipeline.evaluation.results import results_in
    from mens_pipeline.evaluation.rounds import evaluate_in_rounds
    from mens_pipeline.evaluation.run_folder import heldout_beside
    from mens_pipeline.evaluation.suite import build_suite
    from mens_pipeline.promotion.benchmark_gate import write_page
    from mens_pipeline.promotion.receipt import PAGE
    from mens_pipeline.promotion.referee import StoreReferee

    run_dir, settings, config = options.run_dir, load_settings(), _config(options)
    benchmark, conditions = None if options.no_bench else _benchmark(options), _conditions(options, config)
    adapter, store = Adapter.open(run_dir), open_store(settings)
    manifest = adapter.manifest
    heldout = options.heldout or heldout_beside(manifest)
    thresholds = read_thresholds(settings)
    suite = build_suite(
        manifest,
        heldout,
        manifest.train_file,
        benchmark,
        config,
        first_heldout_tasks=thresholds.first_heldout_tasks,
        max_rounds=thresholds.max_rounds,
        few_shot=FEW_SHOT,
    )
    first, *later = suite.rounds
    more = f", {sum(map(len, later))} more if the gate is undecided" if later else ""
    log_line(f"{len(first)} prompts for base and adapter{more}")
    _report_too_long(suite.num_too_long, conditions)
    if suite.num_tests_dropped:
        log_line(f"hidden tests of {suite.num_tests_dropped} prompts dropped: the reference completion fails them")
    with interruptible(_KEPT):
        evaluation, reused = evaluate_in_rounds(
            adapter,
            suite,
            conditions,
            store,
            StoreReferee(store, thresholds, settings.benchmark, int(time.time()), log_line),
            launch=_launch,
            log_line=log_line,
        )
    _put_into(run_dir, evaluation)
    write_page(run_dir / PAGE, evaluation.path, run_dir, None)
    if reused:
        log_line("nothing has changed since the last evaluation")
    return results_in(run_dir)


def _try(options: EvalOptions, benchmark: "Benchmark", conditions: "Conditions") -> None:
    from mens_pipeline.evaluation.trial import TRIAL, try_adapter
    from mens_pipeline.inference.prepare import completion_fits

    store, adapter = open_store(load_settings()), Adapter.open(options.run_dir)
    fits = completion_fits(adapter.manifest.base_model, conditions.decoding)
    with interruptible(_KEPT):
        tried = try_adapter(adapter, benchmark, fits, conditions, store, launch=_launch)
    _report_too_long(tried.num_too_long, conditions)
    _show(tried, options.run_dir / TRIAL, as_json=options.as_json)


def _try_endpoint(options: EvalOptions, url: str, benchmark: "Benchmark", config: EvaluationConfig) -> None:
    from mens_pipeline.evaluation.baselines import describe_language
    from mens_pipeline.evaluation.trial import TRIAL, try_generator
    from mens_pipeline.inference.endpoint import ChatEndpoint, Ledger

    name, key = str(options.run_dir), load_settings().evol_api_key
    folder = Path("build") / "endpoint" / re.sub(r"[^\w.-]+", "_", name)
    folder.mkdir(parents=True, exist_ok=True)
    ledger, limits = Ledger(folder / "replies.jsonl"), config.model_dump(include={"max_new_tokens", "temperature"})
    generator = ChatEndpoint(url, name, ledger, key, **limits)
    system = describe_language(FEW_SHOT) if options.describe else SYSTEM_PROMPT
    with interruptible(_KEPT):
        tried = try_generator(generator, benchmark, system, config)
    _show(tried, folder / TRIAL, as_json=options.as_json)


def _show(tried: "Trial", completions: Path, *, as_json: bool) -> None:
    write_jsonl(completions, tried.completions)
    chosen = {} if tried.best_of is None else {"best_of": tried.best_of.model_dump(mode="json")}
    served = {} if tried.served is None else {"served": tried.served.overall.model_dump(mode="json")}
    document = json.dumps({**tried.scores.overall.model_dump(mode="json"), **served, **chosen}, indent=2)
    _print(document if as_json else None, format_trial(tried, completions))


def _print(document: str | None, summary: str) -> None:
    if document is not None:
        typer.echo(document)
    else:
        print_line(summary)


def _report_too_long(number: int, conditions: "Conditions") -> None:
    if number:
        most = conditions.decoding.max_new_tokens
        log_line(f"{number} prompts left out: the reference completion does not fit into {most} tokens (--max-tokens)")


def _put_into(run_dir: Path, evaluation: Artifact) -> None:
    from mens_pipeline.evaluation.results import INSERTS
    from mens_pipeline.evaluation.run_folder import forget, remember
    from mens_pipeline.promotion.receipt import FAILED, RECEIPT

    for name in (RECEIPT, FAILED, INSERTS):
        (run_dir / name).unlink(missing_ok=True)
    forget(run_dir, Kind.BENCHMARK_GATE)
    remember(run_dir, evaluation, evaluation.outputs)


def _config(options: EvalOptions) -> EvaluationConfig:
    from mens_pipeline.settings import EVALUATION
    from mens_pipeline.storage.yaml_file import load_model

    given = dict(read_values(options).values())
    try:
        return EvaluationConfig.model_validate({**load_model(EVALUATION, EvaluationConfig).model_dump(), **given})
    except ValidationError as error:
        where = f"{EVALUATION.name} with the options of this command"
        raise ConfigurationError(f"{where}: {errors_in(error)}. Correct the option.") from error


def _launch(job: "GenerationJob") -> int:
    return run_and_show(job.path, show_completions(), num_ranks=job.devices)


@declare_options
def replay(
    *,
    workspace: Annotated[
        Path | None,
        typer.Argument(help="A folder of a git checkout [default: MENS_SOURCE_ROOT].", show_default=False),
    ] = None,
    since: str | None = option(
        None, "The commit of the train set, or a date [default: the commit of the adapter].", metavar="DATE|COMMIT"
    ),
    run_dir: Path | None = option(None, "The folder of a run [default: the champion].", metavar="DIR"),
    limit: int = option(
        500, "Maximum number of holes; the same ones are drawn every time.", ge=1, le=20_000, metavar="N"
    ),
    device: DeviceChoice = option(DeviceChoice.BEST, "Device to use; `best` picks the best available one."),
    dry_run: bool = switch("Only count the holes."),
    as_json: bool = switch("Print one JSON document.", "--json"),
) -> None:
    """Replay the git history of a workspace: let an adapter write lines that people added after its train set.

    Each place where a commit adds one to eight lines to a program is a hole in the program before that commit. The
    adapter, its predecessor, the base and an n-gram model fill them; the latter two see no suffix and get only single
    lines. Figures have 95 % intervals over commits. Merges, mass changes, new, renamed and generated files, and text
    that is not code are left out and counted.

    Exit code 0: replayed. 1: there is no history, or a model did not respond. 2: the command was misused.
    """
    settings = load_settings()
    folder = workspace or settings.source_root
    if dry_run:
        _count_holes(folder, since, limit, as_json=as_json)
        return
    from mens_pipeline.inference.prepare import Conditions
    from mens_pipeline.promotion.replay import replay_history, replay_in
    from mens_pipeline.settings import EVALUATION
    from mens_pipeline.storage.yaml_file import load_model

    adapter = open_adapter(run_dir, settings, "Name a run with --run-dir, or only count holes with --dry-run.")
    config = load_model(EVALUATION, EvaluationConfig)
    found = choose_device(device, settings)
    conditions = Conditions(config.decoding, found, found.lock_in(settings.cache_root))
    with interruptible(_KEPT):
        made, _ = replay_history(
            adapter,
            folder,
            open_store(settings),
            since=since,
            number=limit,
            config=config,
            conditions=conditions,
            launch=_launch,
        )
    results = replay_in(made.path)
    if as_json:
        typer.echo(results.model_dump_json(indent=2))
        return
    for line in _replay_lines(results):
        print_line(line)
    print_line(f"results {made.path}")


def _count_holes(folder: Path, since: str | None, limit: int, *, as_json: bool) -> None:
    from mens_pipeline.corpus.infill.history import read_history
    from mens_pipeline.corpus.schema.account import counts_of
    from mens_pipeline.corpus.schema.reasons import ReplayDrop

    if since is None:
        raise typer.BadParameter("--dry-run opens no adapter, so it needs a commit or date: --since 2026-05-01.")
    history = read_history(folder, since, limit)
    dropped, num_commits = counts_of(ReplayDrop, history.dropped), len({hole.commit for hole in history.holes})
    if as_json:
        counts = {"seen": history.seen, "holes": history.kept, "commits": num_commits, "dropped": dropped}
        print_json({**counts, "by_week": history.by_week})
        return
    print_line(f"{history.kept} holes in {num_commits} commits, of {history.seen} changes since {since}")
    print_line(_format_drops(dropped))
    for line in align_columns([("week", "holes"), *((str(w), str(n)) for w, n in history.by_week.items())]):
        print_line(line)


def _format_drops(dropped: Mapping[str, int]) -> str:
    counts = sorted(((number, reason) for reason, number in dropped.items() if number), reverse=True)
    return f"left out: {', '.join(f'{number} {reason}' for number, reason in counts) or 'nothing'}"


def _replay_lines(results: "ReplayResults") -> Iterator[str]:
    from mens_pipeline.evaluation.replay import SHOWN_MODELS

    num_holes = len(results.times)
    yield f"{num_holes} holes in {results.drift.num_commits} commits, of {results.seen} changes since {results.since}"
    yield _format_drops(results.dropped)
    rows = [("", "holes", "exact", "characters kept", "inserts parse")]
    rows += [
        (f"{SHOWN_MODELS.get(model, model)}, {part if part in _PARTS else f'week {part}'}", *_format_cells(rates))
        for part, some in results.parts.items()
        for model, rates in some.items()
        if part == "lines" or model in {"adapter", "champion"}
    ]
    yield from align_columns(rows)
    yield f"drift: {results.drift}"


_PARTS: Final = ("all", "lines")


def _format_cells(rates: "ReplayRates") -> tuple[str, str, str, str]:
    kept = f"{100 * (rates.kept.value or 0.0):.1f} % {rates.kept.interval}"
    exact, parses = (f"{rate.short} {rate.interval}" for rate in (rates.exact, rates.parses))
    return str(rates.num_holes), exact, kept, parses
