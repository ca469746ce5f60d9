"""`mens eval-local`: what base and adapter write, evaluated side by side."""

import json
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer
from pydantic import ValidationError

from mens_pipeline.cli.options import Options, option, switch, take_options, values_of
from mens_pipeline.cli.progress import choose_device, run_and_show, show_completions
from mens_pipeline.cli.terminal import align_columns, interruptible, log_line, print_line
from mens_pipeline.configured import open_store, thresholds_of
from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.evaluation.config import EvaluationConfig
from mens_pipeline.inference.generation import Syntax
from mens_pipeline.jobs.device import DeviceChoice
from mens_pipeline.language.interpreter import ErrorClass
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.settings import FEW_SHOT, load_settings
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import Artifact
from mens_pipeline.storage.validation import errors_in

if TYPE_CHECKING:
    from mens_pipeline.evaluation.benchmark import Benchmark
    from mens_pipeline.evaluation.results import EvalResults
    from mens_pipeline.evaluation.trial import Trial
    from mens_pipeline.inference.generation import GenerationJob
    from mens_pipeline.inference.prepare import Conditions


def summary_of(results: "EvalResults", page: Path) -> str:
    """Format the figures that most people look for, each with its 95 % interval."""
    from mens_pipeline.evaluation.results import figures_of_infill
    from mens_pipeline.promotion.report.table import columns_of, table_of

    table = table_of([column for column in columns_of(results) if column.name != "champion"])
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


def trial_summary_of(trial: "Trial", completions: Path) -> str:
    """Format the figures of a model that completed a benchmark alone, and of what is served of it."""
    from mens_pipeline.promotion.report.table import Column, table_of

    columns = [Column("model", trial.scores, best_of=trial.best_of if trial.served is None else None)]
    columns += [Column("as served", trial.served, best_of=trial.best_of)] if trial.served is not None else []
    lines = table_of(columns).lines_by_suite()
    if trial.scores.overall.test_rate.denominator:
        errors = (column.scores.overall.execution_errors.get(ErrorClass.RUNTIME, 0) for column in columns)
        lines.append(("", "run-time errors", *map(str, errors)))
    return "\n".join([*align_columns(lines), f"completions {completions}", "a trial: no verdict rests on it"])


_KEPT: Final = "run the same command again, finished completions are kept"


class EvalOptions(Options):
    """Options of `mens eval-local`."""

    run_dir: Path = option(
        Path("runs/latest"),
        "The folder of a run of `mens train`; of an endpoint a model.",
        "--run-dir",
        "--model",
        metavar="DIR",
    )
    heldout: Path | None = option(None, "Held-out pairs [default: heldout.jsonl beside the train set].", metavar="FILE")
    bench: Path | None = option(None, "A benchmark [default: VOX_BENCHMARK_DIR, else ours].", metavar="DIR")
    no_bench: bool = switch("Held-out prompts alone.")
    device: DeviceChoice = option(DeviceChoice.BEST, "Never another one in its place.")
    samples: int | None = option(None, "Completions of each prompt; k of pass@k, n of best-of-n.", field="num_samples")
    devices: int | None = option(
        None, "GPUs that share the prompts [default: as many as trained it].", metavar="N", ge=1
    )
    temperature: float | None = option(None, "0: always the most likely token.", field="temperature")
    max_tokens: int | None = option(None, "Tokens of a completion at most.", field="max_new_tokens")
    seed_base: int | None = option(None, "Start of sampling.", field="seed")
    holes: int | None = option(
        None, "Holes in held-out programs that the adapter fills; 0: none.", metavar="N", field="infill_holes"
    )
    decoding: Syntax | None = option(
        None,
        "constrained: only what can still become a program is written; fallback: where a completion is none.",
        field="syntax",
    )
    names: bool | None = option(
        None,
        "Where the parser steers, refuse fields and methods that the type of a value does not have.",
        "--names/--no-names",
        field="names",
    )
    trial: bool = switch("The adapter alone, on the benchmark alone: figures that no verdict uses.")
    endpoint: str | None = option(
        None, "A trial of a model behind an OpenAI-compatible address: https://HOST/v1.", metavar="URL"
    )
    describe: bool = switch("Tell the model of an endpoint what Vox is: config/few_shot.md.")
    as_json: bool = switch("Print eval_results.json.", "--json")


@take_options(EvalOptions)
def eval_local(options: EvalOptions) -> None:
    """Let base and adapter complete held-out prompts and a benchmark, and score every completion.

    A completion is Vox when the front end accepts it; it passes when it is complete, and declares what was asked
    for under the name that was asked for. Writes eval_results.json, eval_local_report.json, benchmark_passatk.json,
    scored_completions.jsonl and report.html into the folder of the run, and takes a verdict on an earlier evaluation
    away. Completions are kept: no prompt is completed twice in the same way. With other held-out pairs than those
    beside the train set a run is evaluated, but not promoted. Beside the eval suite the base completes a sample of it
    with a description of the language and examples in its prompt, and the adapter synthetic tasks, as
    config/evaluation.yaml says. An adapter that was shown holes in programs fills some of held-out ones
    (`infill_completions.jsonl`).

    With --endpoint another model completes the benchmark, over HTTP with the key in MENS_EVOL_API_KEY; its replies are
    kept in build/endpoint, so that a command that was cut short pays for nothing twice.

    Exit code 0: evaluated. 1: a model could not be asked. 2: the command was misused. 130: interrupted.
    """
    if options.endpoint is not None:
        _try_endpoint(options, options.endpoint, _asked_alone(options), _config(options))
    elif options.trial:
        _try(options, _asked_alone(options), _conditions(options, _config(options)))
    else:
        from mens_pipeline.promotion.receipt import PAGE

        results = evaluate_run(options)
        document = results.model_dump_json(indent=2) if options.as_json else None
        _print(document, summary_of(results, options.run_dir / PAGE))


def _benchmark(options: EvalOptions) -> "Benchmark | None":
    from mens_pipeline.evaluation.benchmark import load_benchmark

    return None if options.no_bench else load_benchmark(options.bench or load_settings().benchmark_dir)


def _conditions(options: EvalOptions, config: EvaluationConfig) -> "Conditions":
    from mens_pipeline.inference.prepare import Conditions

    settings = load_settings()
    device = choose_device(options.device, settings)
    return Conditions(config.decoding, device, device.lock_in(settings.cache_root), options.devices)


def _asked_alone(options: EvalOptions) -> "Benchmark":
    benchmark = _benchmark(options)
    if benchmark is None:
        raise ConfigurationError("A trial asks the benchmark alone, --no-bench leaves it out. Give one of the two.")
    return benchmark


def evaluate_run(options: EvalOptions) -> "EvalResults":
    """Let base and adapter take the eval suite, and write what came of it into the folder of the run."""
    from mens_pipeline.evaluation.run_folder import heldout_beside
    from mens_pipeline.promotion.benchmark_gate import write_page
    from mens_pipeline.promotion.receipt import PAGE, results_in
    from mens_pipeline.promotion.rounds import Demands, assemble_suite, evaluate_in_rounds, rounds_of

    run_dir, settings, config = options.run_dir, load_settings(), _config(options)
    benchmark, conditions = _benchmark(options), _conditions(options, config)
    adapter, store = Adapter.open(run_dir), open_store(settings)
    manifest = adapter.manifest
    heldout = options.heldout or heldout_beside(manifest)
    whole_suite, thresholds = assemble_suite(
        manifest, heldout, manifest.train_file, benchmark, config, thresholds_of(settings), few_shot=FEW_SHOT
    )
    first, *later = rounds_of(whole_suite.tasks, thresholds)
    more = f", {sum(map(len, later))} more where that cannot tell" if later else ""
    log_line(f"{len(first)} prompts to base and adapter{more}")
    _report_too_long(whole_suite.num_too_long, conditions)
    if whole_suite.num_tests_dropped:
        log_line(f"{whole_suite.num_tests_dropped} prompts lost their hidden tests: their own reference fails them")
    with interruptible(_KEPT):
        evaluation, reused = evaluate_in_rounds(
            adapter,
            whole_suite,
            conditions,
            store,
            demands=Demands(thresholds, is_benchmark_asked=settings.benchmark),
            launch=_launch,
            log_line=log_line,
            now=int(time.time()),
        )
    _put_into(run_dir, evaluation)
    write_page(run_dir / PAGE, evaluation.path, run_dir, None)
    if reused:
        log_line("nothing has changed since this was evaluated before")
    return results_in(run_dir)


def _try(options: EvalOptions, benchmark: "Benchmark", conditions: "Conditions") -> None:
    """Ask the adapter alone, and show what came of it; no document of an eval suite is written."""
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
    _print(document if as_json else None, trial_summary_of(tried, completions))


def _print(document: str | None, summary: str) -> None:
    """Print a JSON document as it is, or where none was asked for the summary for people."""
    if document is not None:
        typer.echo(document)
    else:
        print_line(summary)


def _report_too_long(number: int, conditions: "Conditions") -> None:
    if number:
        most = conditions.decoding.max_new_tokens
        log_line(f"{number} not asked: not even their reference fits into {most} tokens (--max-tokens)")


def _put_into(run_dir: Path, evaluation: Artifact) -> None:
    """Put the documents of an evaluation in place of earlier ones, and remove the verdict on those."""
    from mens_pipeline.evaluation.results import INSERTS
    from mens_pipeline.evaluation.run_folder import forget, remember
    from mens_pipeline.promotion.receipt import FAILED, RECEIPT

    for name in (RECEIPT, FAILED, INSERTS):
        (run_dir / name).unlink(missing_ok=True)
    forget(run_dir, Kind.BENCHMARK_GATE)
    for output in evaluation.outputs:
        shutil.copy2(evaluation.path / output, run_dir / output)
    remember(run_dir, evaluation)


def _config(options: EvalOptions) -> EvaluationConfig:

    from mens_pipeline.settings import EVALUATION
    from mens_pipeline.storage.yaml_file import load_model

    given = dict(values_of(options).values())
    try:
        return EvaluationConfig.model_validate({**load_model(EVALUATION, EvaluationConfig).model_dump(), **given})
    except ValidationError as error:
        where = f"{EVALUATION.name} with the options of this command"
        raise ConfigurationError(f"{where}: {errors_in(error)}. Correct the option.") from error


def _launch(job: "GenerationJob") -> int:
    return run_and_show(job.path, show_completions(), num_ranks=job.devices)
