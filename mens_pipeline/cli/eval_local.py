"""`mens eval-local`: what base and adapter write, judged side by side."""

import json
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mens_pipeline.cli.progress import run_and_show, show_answers
from mens_pipeline.cli.terminal import INTERRUPTED, aligned, say, tell
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.inference.sampling import Syntax
from mens_pipeline.language.interpreter import ErrorClass
from mens_pipeline.training.devices import DeviceChoice

if TYPE_CHECKING:
    from mens_pipeline.evaluation.benchmark import Benchmark
    from mens_pipeline.evaluation.eval_results import Examination
    from mens_pipeline.evaluation.results import BestOf, EvalResults
    from mens_pipeline.evaluation.scores import Scores
    from mens_pipeline.evaluation.statistics import Rate
    from mens_pipeline.evaluation.trial import Trial
    from mens_pipeline.inference.generation import EvaluationConfig
    from mens_pipeline.inference.prepare import Conditions, PreparedGeneration
    from mens_pipeline.storage.store import Artifact


_COLUMNS: Final = ("base", "few-shot", "adapter", "fallback")


def summary_of(results: "EvalResults", page: Path) -> str:
    """Format the figures that most people look for, each with its 95 % interval."""
    others = {"few-shot": results.few_shot, "fallback": results.fallback}
    asked = {name: other.scores.suites for name, other in others.items() if other is not None}
    models = {"base": results.base.suites, **asked, "adapter": results.adapter.suites}
    columns = [name for name in _COLUMNS if name in models]
    rows: list[tuple[str, ...]] = [("suite", "figure", *columns)]
    served = "adapter" if results.fallback is None else "fallback"
    for suite, adapter in results.adapter.suites.items():
        rows += _rows(suite, [models[name].get(suite) for name in columns], adapter)
        rows += _best_of_rows(results.best_of, suite, [name == served for name in columns])
    for suite, adapter in results.families.items():
        rows += _rows(suite, [adapter if name == "adapter" else None for name in columns], adapter)
    coverage = results.adapter.overall.coverage
    found = f"{len(coverage.present)}/{len(coverage.present) + len(coverage.missing)}"
    return "\n".join([*aligned(rows), f"constructs in accepted answers: {found}", f"report {page}"])


def trial_summary_of(scores: "Scores", best_of: "BestOf | None", answers: Path) -> str:
    """Format the figures of a model that answered a benchmark alone."""
    rows = [("suite", "figure", "model"), *_rows("benchmark", [scores], scores)]
    if scores.test_rate.denominator:
        rows.append(("", "run-time errors", str(scores.execution_errors.get(ErrorClass.RUNTIME, 0))))
    rows += _best_of_rows(best_of, "benchmark", [True])
    return "\n".join([*aligned(rows), f"answers {answers}", "a trial: no verdict rests on it"])


def _rows(suite: str, models: "Sequence[Scores | None]", adapter: "Scores") -> Iterator[tuple[str, ...]]:
    """Yield the table rows of a suite; hidden tests where there are any."""
    figures: dict[str, list[Rate | None]] = {
        "parse rate": [model.parse_rate if model is not None else None for model in models],
        "resolve rate": [model.resolve_rate if model is not None else None for model in models],
    }
    for number in adapter.pass_at:
        figures[f"pass@{number}"] = [model.pass_at[number] if model is not None else None for model in models]
    if adapter.test_rate.denominator:
        figures["hidden tests"] = [model.test_rate if model is not None else None for model in models]
    for label, rates in figures.items():
        yield (suite, label, *map(_cell, rates))
        suite = ""


def _best_of_rows(best_of: "BestOf | None", suite: str, columns: Sequence[bool]) -> Iterator[tuple[str, ...]]:
    """Show the figures of chosen completions in the column of what is served."""
    if best_of is None:
        return
    scores = best_of.suites[suite]
    figures = {f"best-of-{best_of.n}": scores.pass_rate, f"best-of-{best_of.n}, hidden tests": scores.test_rate}
    for label, rate in figures.items():
        if rate.denominator:
            yield ("", label, *(_cell(rate if is_served else None) for is_served in columns))


def _cell(rate: "Rate | None") -> str:
    if rate is None or rate.value is None:
        return "-"
    return f"{rate.short} {100 * rate.low:.1f} to {100 * rate.high:.1f}"


def eval_local(  # noqa: PLR0913 - one parameter an option
    *,
    run_dir: Annotated[
        Path,
        typer.Option(
            "--run-dir", "--model", metavar="DIR", help="The folder of a run of `mens train`; of an endpoint a model."
        ),
    ] = Path("runs/latest"),
    heldout: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Held-out pairs [default: heldout.jsonl beside the train set].")
    ] = None,
    bench: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A benchmark [default: VOX_BENCHMARK_DIR, else ours].")
    ] = None,
    no_bench: Annotated[bool, typer.Option("--no-bench", help="Held-out prompts alone.")] = False,
    device: Annotated[DeviceChoice, typer.Option(help="Never another one in its place.")] = DeviceChoice.BEST,
    samples: Annotated[int | None, typer.Option(help="Answers to each prompt; k of pass@k, n of best-of-n.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0: always the most likely token.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Tokens of an answer at most.")] = None,
    seed_base: Annotated[int | None, typer.Option(help="Start of sampling.")] = None,
    decoding: Annotated[
        Syntax | None,
        typer.Option(
            help="constrained: only what can still become a program is written; fallback: where an answer is none."
        ),
    ] = None,
    names: Annotated[
        bool | None,
        typer.Option(
            "--names/--no-names",
            help="Where the parser steers, refuse fields and methods that the type of a value does not have.",
        ),
    ] = None,
    trial: Annotated[
        bool, typer.Option("--trial", help="The adapter alone, on the benchmark alone: figures that no verdict uses.")
    ] = False,
    endpoint: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A trial of a model behind an OpenAI-compatible address: https://HOST/v1."),
    ] = None,
    describe: Annotated[
        bool, typer.Option("--describe", help="Tell the model of an endpoint what Vox is: config/few_shot.md.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print eval_results.json.")] = False,
) -> None:
    """Let base and adapter answer held-out prompts and a benchmark, and judge every answer.

    An answer is Vox when the front end accepts it; it passes when it is complete, and declares what was asked for under
    the name that was asked for. Writes eval_results.json, eval_local_report.json, benchmark_passatk.json,
    judged_answers.jsonl and report.html into the folder of the run, and takes a verdict on an earlier evaluation away.
    Answers are kept: what was asked before is not generated again. By other held-out pairs than those beside the train
    set a run is judged, but not promoted. Beside the exam the base is asked a sample of it with a description of the
    language and examples in its prompt, and the adapter synthetic tasks, as config/evaluation.yaml says.

    With --endpoint another model answers the benchmark, over HTTP with the key in MENS_EVOL_API_KEY; its replies are
    kept in build/endpoint, so that a command that was cut short pays for nothing twice.

    Exit code 0: judged. 1: a model could not answer. 2: the command was misused. 130: interrupted.
    """
    from mens_pipeline.configured import engine_of
    from mens_pipeline.evaluation.benchmark import load_benchmark
    from mens_pipeline.inference.prepare import Conditions
    from mens_pipeline.settings import load_settings
    from mens_pipeline.training.devices import resolve_device

    settings = load_settings()
    config = _config(
        num_samples=samples, temperature=temperature, max_new_tokens=max_tokens, seed=seed_base, syntax=decoding,
        names=names,
    )  # fmt: skip
    benchmark = None if no_bench else load_benchmark(bench or settings.benchmark_dir)
    if endpoint is not None:
        _try_endpoint(endpoint, str(run_dir), _asked_alone(benchmark), config, describe=describe, as_json=as_json)
        return
    chosen = resolve_device(device, force_cpu=settings.backend == "cpu")
    tell(f"device {chosen.kind}: {chosen.name}")
    conditions = Conditions(config.decoding, chosen, settings.cache_root / f"{chosen.kind}.lock", engine_of(settings))
    if trial:
        _try(run_dir, _asked_alone(benchmark), conditions, as_json=as_json)
    else:
        _examine(run_dir, heldout, benchmark, config, conditions, as_json=as_json)


def _asked_alone(benchmark: "Benchmark | None") -> "Benchmark":
    if benchmark is None:
        raise ConfigurationError("A trial asks the benchmark alone, --no-bench leaves it out. Give one of the two.")
    return benchmark


def _examine(  # noqa: PLR0913 - what an evaluation is made from
    run_dir: Path,
    heldout: Path | None,
    benchmark: "Benchmark | None",
    config: "EvaluationConfig",
    conditions: "Conditions",
    *,
    as_json: bool,
) -> None:
    """Let base and adapter take the exam, and write what came of it into the folder of the run."""
    from mens_pipeline.configured import open_store, thresholds_of
    from mens_pipeline.evaluation.eval_results import eval_suite
    from mens_pipeline.evaluation.few_shot import few_shot_of
    from mens_pipeline.evaluation.heldout_beside import heldout_beside
    from mens_pipeline.inference.prepare import answer_fits, manifest_of
    from mens_pipeline.promotion.benchmark_gate import PAGE, write_page
    from mens_pipeline.promotion.receipt import results_in
    from mens_pipeline.promotion.rounds import Demands, evaluate_in_rounds, rounds_of
    from mens_pipeline.settings import FEW_SHOT, load_settings

    settings, manifest = load_settings(), manifest_of(run_dir)
    store, fits = open_store(settings), answer_fits(manifest, config.decoding)
    path, train = heldout or heldout_beside(manifest), Path(manifest["train_file"])
    exam = eval_suite(path, train, benchmark, fits, config.family_tasks)
    demands = Demands(thresholds_of(settings), is_benchmark_asked=settings.benchmark)
    first, *later = rounds_of(exam.tasks, demands.thresholds)
    exam = replace(
        exam,
        num_base_tasks=config.base_tasks,
        few_shot=few_shot_of(first, config.few_shot_tasks, FEW_SHOT, manifest),
    )
    more = f", {sum(map(len, later))} more where that cannot tell" if later else ""
    tell(f"{len(first)} prompts to base and adapter{more}")
    _tell_dropped(exam, conditions)
    with _interruptible():
        evaluation, reused = evaluate_in_rounds(
            run_dir,
            exam,
            conditions,
            store,
            manifest,
            demands=demands,
            launch=_launch,
            tell=tell,
            work=str(time.time_ns()),
            now=int(time.time()),
        )
    _put_into(run_dir, evaluation)
    write_page(run_dir / PAGE, evaluation.path, run_dir, None)
    results = results_in(run_dir)
    _print(results.model_dump_json(indent=2) if as_json else None, summary_of(results, run_dir / PAGE))
    if reused:
        tell("nothing has changed since this was judged before")


def _try(run_dir: Path, benchmark: "Benchmark", conditions: "Conditions", *, as_json: bool) -> None:
    """Ask the adapter alone, and show what came of it; no document of an exam is written."""
    from mens_pipeline.configured import open_store
    from mens_pipeline.evaluation.trial import TRIAL, try_adapter
    from mens_pipeline.inference.prepare import answer_fits, manifest_of
    from mens_pipeline.settings import load_settings

    store = open_store(load_settings())
    fits = answer_fits(manifest_of(run_dir), conditions.decoding)
    with _interruptible():
        tried = try_adapter(run_dir, benchmark, fits, conditions, store, launch=_launch)
    _tell_too_long(tried.num_too_long, conditions)
    _show(tried, run_dir / TRIAL, as_json=as_json)


def _try_endpoint(  # noqa: PLR0913 - what a trial is made from
    url: str, name: str, benchmark: "Benchmark", config: "EvaluationConfig", *, describe: bool, as_json: bool
) -> None:
    """Ask a model over HTTP, and show what came of it."""
    from mens_pipeline.corpus.evolution.ledger import Ledger
    from mens_pipeline.evaluation.few_shot import described
    from mens_pipeline.evaluation.trial import TRIAL, try_generator
    from mens_pipeline.inference.endpoint import Endpoint
    from mens_pipeline.language.requests import SYSTEM_PROMPT
    from mens_pipeline.settings import FEW_SHOT, load_settings

    key = load_settings().evol_api_key
    generator = Endpoint(url, name, key, max_new_tokens=config.max_new_tokens, temperature=config.temperature)
    folder = Path("build") / "endpoint" / re.sub(r"[^\w.-]+", "_", name)
    folder.mkdir(parents=True, exist_ok=True)
    system = described(FEW_SHOT) if describe else SYSTEM_PROMPT
    with _interruptible():
        ledger = Ledger(folder / "replies.jsonl")
        tried = try_generator(generator, benchmark, system, config, ledger)
    _show(tried, folder / TRIAL, as_json=as_json)


def _show(tried: "Trial", answers: Path, *, as_json: bool) -> None:
    from mens_pipeline.storage.jsonl import write_jsonl

    write_jsonl(answers, tried.answers)
    summary = trial_summary_of(tried.scores, tried.best_of, answers)
    chosen = {} if tried.best_of is None else {"best_of": tried.best_of.model_dump(mode="json")}
    document = json.dumps({**tried.scores.model_dump(mode="json"), **chosen}, indent=2)
    _print(document if as_json else None, summary)


def _print(document: str | None, summary: str) -> None:
    """Print a JSON document as it is, or where none was asked for the summary for people."""
    if document is not None:
        typer.echo(document)
    else:
        say(summary)


def _tell_dropped(exam: "Examination", conditions: "Conditions") -> None:
    _tell_too_long(exam.num_too_long, conditions)
    if exam.num_tests_dropped:
        tell(f"{exam.num_tests_dropped} prompts lost their hidden tests: their own reference fails them")


def _tell_too_long(number: int, conditions: "Conditions") -> None:
    if number:
        most = conditions.decoding.max_new_tokens
        tell(f"{number} not asked: not even their reference fits into {most} tokens (--max-tokens)")


@contextmanager
def _interruptible() -> Iterator[None]:
    """End with a line that says how to go on where the user interrupts a generation."""
    try:
        yield
    except KeyboardInterrupt:
        tell("interrupted; run the same command again, finished answers are kept")
        raise typer.Exit(INTERRUPTED) from None


def _put_into(run_dir: Path, evaluation: "Artifact") -> None:
    """Put the documents of an evaluation in place of earlier ones, and remove the verdict on those."""
    from mens_pipeline.evaluation.run_folder import forget, remember
    from mens_pipeline.promotion.benchmark_gate import KIND as GATE
    from mens_pipeline.promotion.receipt import FAILED, RECEIPT

    for name in (RECEIPT, FAILED):
        (run_dir / name).unlink(missing_ok=True)
    forget(run_dir, GATE)
    for name in evaluation.manifest["outputs"]:
        shutil.copy2(evaluation.path / name, run_dir / name)
    remember(run_dir, evaluation)


def _config(**changes: float | Syntax | None) -> "EvaluationConfig":
    from pydantic import ValidationError

    from mens_pipeline.inference.generation import EvaluationConfig
    from mens_pipeline.settings import EVALUATION
    from mens_pipeline.storage.validation import errors_in
    from mens_pipeline.storage.yaml_file import load_model

    given = {name: value for name, value in changes.items() if value is not None}
    try:
        return EvaluationConfig.model_validate({**load_model(EVALUATION, EvaluationConfig).model_dump(), **given})
    except ValidationError as error:
        where = f"{EVALUATION.name} with the options of this command"
        raise ConfigurationError(f"{where}: {errors_in(error)}. Correct the option.") from error


def _launch(prepared: "PreparedGeneration") -> int:
    from mens_pipeline.inference.generation import MODULE, PROGRESS

    return run_and_show(MODULE, prepared.job_path, PROGRESS, show_answers())
