"""`mens eval-local`: what base and adapter write, judged side by side."""

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mens_pipeline.cli.eval_summary import summary_of
from mens_pipeline.cli.progress import show_answers
from mens_pipeline.cli.terminal import INTERRUPTED, say, tell
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.training.devices import DeviceChoice

if TYPE_CHECKING:
    from mens_pipeline.corpus.store import Artifact
    from mens_pipeline.evaluation.generation import Decoding
    from mens_pipeline.evaluation.prepare import PreparedGeneration

_GRACE_SECONDS: Final = 20.0


def eval_local(  # noqa: PLR0913 - one parameter an option
    *,
    run_dir: Annotated[
        Path, typer.Option("--run-dir", "--model", metavar="DIR", help="The folder of a run of `mens train`.")
    ] = Path("runs/latest"),
    heldout: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Held-out pairs [default: heldout.jsonl beside the train set].")
    ] = None,
    bench: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A benchmark [default: VOX_BENCHMARK_DIR, else ours].")
    ] = None,
    no_bench: Annotated[bool, typer.Option("--no-bench", help="Held-out requests alone.")] = False,
    device: Annotated[DeviceChoice, typer.Option(help="Never another one in its place.")] = DeviceChoice.BEST,
    samples: Annotated[int | None, typer.Option(help="Answers to each request; k of pass@k.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0: always the most likely token.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Tokens of an answer at most.")] = None,
    seed_base: Annotated[int | None, typer.Option(help="Start of sampling.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print eval_results.json.")] = False,
) -> None:
    """Let base and adapter answer held-out requests and a benchmark, and judge every answer.

    An answer is Vox when the front end accepts it; it passes when it is complete, and declares what was asked for under
    the name that was asked for. Writes eval_results.json, eval_local_report.json, benchmark_passatk.json,
    judged_answers.jsonl and report.html into the folder of the run, and takes a verdict on an earlier evaluation away.
    Answers are kept: what was asked before is not generated again. By other held-out pairs than those beside the train
    set a run is judged, but not promoted.

    Exit code 0: judged. 1: a model could not answer. 2: the command was misused. 130: interrupted.
    """
    from mens_pipeline.corpus.store import ArtifactStore  # noqa: PLC0415 - likewise
    from mens_pipeline.evaluation.benchmark import load_benchmark  # noqa: PLC0415 - only a real run needs these
    from mens_pipeline.evaluation.benchmark_gate import PAGE, write_page  # noqa: PLC0415 - likewise
    from mens_pipeline.evaluation.eval_results import (  # noqa: PLC0415 - likewise
        build_eval_results,
        examination,
        prepare_generations,
    )
    from mens_pipeline.evaluation.heldout_beside import heldout_beside  # noqa: PLC0415 - likewise
    from mens_pipeline.evaluation.prepare import Conditions, answer_fits, manifest_of  # noqa: PLC0415 - likewise
    from mens_pipeline.evaluation.receipt import read_results  # noqa: PLC0415 - likewise
    from mens_pipeline.evaluation.results import RESULTS  # noqa: PLC0415 - likewise
    from mens_pipeline.settings import load_settings  # noqa: PLC0415 - likewise
    from mens_pipeline.training.devices import resolve_device  # noqa: PLC0415 - likewise

    settings = load_settings()
    manifest = manifest_of(run_dir)
    chosen = resolve_device(device, force_cpu=settings.backend == "cpu")
    tell(f"device {chosen.kind}: {chosen.name}")
    benchmark = None if no_bench else load_benchmark(bench or settings.benchmark_dir)
    decoding = _decoding(num_samples=samples, temperature=temperature, max_new_tokens=max_tokens, seed=seed_base)
    exam = examination(heldout or heldout_beside(manifest), benchmark, answer_fits(manifest, decoding))
    tell(f"{len(exam.tasks)} requests to base and adapter")
    if exam.num_too_long:
        tell(f"{exam.num_too_long} not asked: not even their reference fits into {decoding.max_new_tokens} tokens")
    conditions = Conditions(decoding, chosen, settings.cache_root / f"{chosen.kind}.lock")
    store = ArtifactStore(settings.store_root.resolve())
    generations = prepare_generations(run_dir, exam, conditions, store, str(time.time_ns()))
    try:
        evaluation, reused = build_eval_results(exam, generations, manifest, store, _launch)
    except KeyboardInterrupt:
        tell("interrupted; run the same command again, finished answers are kept")
        raise typer.Exit(INTERRUPTED) from None
    for name in evaluation.manifest["outputs"]:
        shutil.copy2(evaluation.path / name, run_dir / name)
    _put_into(run_dir, evaluation)
    write_page(run_dir / PAGE, evaluation.path, run_dir, None)
    results = read_results(run_dir / RESULTS)
    assert results is not None, "what was just written can be read"  # noqa: S101 - our own impossibility
    if as_json:
        typer.echo(results.model_dump_json(indent=2))
    else:
        say(summary_of(results, run_dir / PAGE))
    if reused:
        tell("nothing has changed since this was judged before")


def _put_into(run_dir: Path, evaluation: "Artifact") -> None:
    """The documents of an evaluation in the place of those before it, and of the verdict on those."""
    from mens_pipeline.evaluation.benchmark_gate import KIND as GATE  # noqa: PLC0415 - only a real run needs these
    from mens_pipeline.evaluation.receipt import FAILED, RECEIPT  # noqa: PLC0415 - likewise
    from mens_pipeline.evaluation.run_folder import forget, remember  # noqa: PLC0415 - likewise

    for name in (RECEIPT, FAILED):
        (run_dir / name).unlink(missing_ok=True)
    forget(run_dir, GATE)
    for name in evaluation.manifest["outputs"]:
        shutil.copy2(evaluation.path / name, run_dir / name)
    remember(run_dir, evaluation)


def _decoding(**changes: float | None) -> "Decoding":
    from pydantic import ValidationError  # noqa: PLC0415 - only a real run needs these

    from mens_pipeline.corpus.mistakes import mistakes_in  # noqa: PLC0415 - likewise
    from mens_pipeline.corpus.yaml_file import load_model  # noqa: PLC0415 - likewise
    from mens_pipeline.evaluation.generation import Decoding  # noqa: PLC0415 - likewise
    from mens_pipeline.settings import EVALUATION  # noqa: PLC0415 - likewise

    given = {name: value for name, value in changes.items() if value is not None}
    try:
        return Decoding.model_validate({**load_model(EVALUATION, Decoding).model_dump(), **given})
    except ValidationError as error:
        where = f"{EVALUATION.name} with the options of this command"
        raise ConfigurationError(f"{where}: {mistakes_in(error)}. Correct the option.") from error


def _launch(prepared: "PreparedGeneration") -> int:
    from mens_pipeline.evaluation.generation import MODULE, PROGRESS  # noqa: PLC0415 - only a real run needs these
    from mens_pipeline.settings import training_environment  # noqa: PLC0415 - likewise
    from mens_pipeline.training.launch import run_child  # noqa: PLC0415 - likewise
    from mens_pipeline.training.telemetry_log import Follower  # noqa: PLC0415 - likewise

    run_dir = prepared.job.run_dir
    follower = Follower(run_dir / PROGRESS, show_answers(prepared.model))
    log = run_dir / "child.log"
    return run_child(MODULE, prepared.job_path, training_environment(), follower.poll, _GRACE_SECONDS, log)
