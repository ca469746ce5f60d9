"""`mens gate`, `mens promote` and `mens override`: judge an adapter and put it in use."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError

from mens_pipeline.cli.options import REQUIRED, declare_options, option, switch
from mens_pipeline.cli.terminal import REFUSED, log_line, print_line
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.models.adapter import Adapter, adapter_digest, refuse_links
from mens_pipeline.settings import (
    Settings,
    load_settings,
    open_store,
    pipeline_commit,
    policy_label,
    read_terms,
    read_thresholds,
)
from mens_pipeline.storage.jsonl import write_text
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline.storage.validation import errors_in

if TYPE_CHECKING:
    from mens_pipeline.promotion.receipt import Receipt
    from mens_pipeline.promotion.verdict_basis import Terms


@declare_options
def gate(
    *,
    run_dir: Path = option(Path("runs/latest"), "A run that `mens eval-local` has evaluated.", metavar="DIR"),
    policy: str | None = option(None, "Policy of gates.yaml [default: VOX_EVAL_POLICY, else ci].", metavar="NAME"),
    as_json: bool = switch("Print gate_receipt.json.", "--json"),
) -> None:
    """Compare the scores of a run with the thresholds of config/gates.yaml, and write the verdict.

    A gate passes, fails, or is undecided. An undecided verdict promotes nothing.

    Writes gate_receipt.json into the folder of the run, eval_gate_failed.json exactly when the gate fails, and
    report.html with the verdict. Missing or malformed documents are named.

    Exit code 0: passed. 1: failed, or undecided. 2: the command was misused.
    """
    settings = load_settings()
    settings = settings.model_copy(update={"eval_policy": policy or settings.eval_policy})
    receipt = decide_on(run_dir, settings)
    if as_json:
        typer.echo(receipt.model_dump_json(indent=2))
    else:
        print_line(verdict_of(receipt))
    raise typer.Exit(0 if receipt.overall_passed else REFUSED)


def decide_on(run_dir: Path, settings: Settings) -> "Receipt":
    """Judge a run that was evaluated, write the verdict into its folder, and return the receipt."""
    from mens_pipeline.evaluation.results import RESULTS
    from mens_pipeline.evaluation.run_folder import recall_artifact, remember
    from mens_pipeline.promotion.benchmark_gate import GateParams, build_benchmark_gate
    from mens_pipeline.promotion.history import find_baseline
    from mens_pipeline.promotion.receipt import FAILED, PAGE, RECEIPT, receipt_in

    store = open_store(settings)
    refuse_links(run_dir)
    advice = f"Run `mens eval-local --run-dir {run_dir}` first; `mens corpus eval` checks data, not a model."
    evaluation = recall_artifact(run_dir, Kind.EVAL_RESULTS, RESULTS, store, advice)
    baseline = find_baseline(store, adapter_digest(run_dir))
    params = GateParams(
        evaluation=evaluation,
        adapter=run_dir,
        policy=policy_label(settings),
        thresholds=read_thresholds(settings),
        champion_key=baseline.key if baseline is not None else None,
        is_benchmark_asked=settings.benchmark,
        strict=settings.eval_strict,
        now=int(time.time()),
        commit=pipeline_commit(),
    )
    evaluated, _ = build_benchmark_gate(params, store)
    (run_dir / FAILED).unlink(missing_ok=True)
    remember(run_dir, evaluated, (RECEIPT, FAILED, PAGE))
    return receipt_in(evaluated.path)


def verdict_of(receipt: "Receipt") -> str:
    """Format each gate in a line, and the verdict in the last."""
    words = {"passed": "passed", "failed": "FAILED", "undecided": "UNDECIDED"}
    lines = [
        f"{words[gate.status] if gate.block or gate.passed else 'warning':<9}  {gate.name}: {gate.message}"
        for gate in receipt.gates
    ]
    tried = f", {receipt.tried}" if receipt.tried else ""
    return "\n".join([*lines, f"policy {receipt.policy}: {words[receipt.status]}{tried}"])


RunDir = Annotated[Path, typer.Option(metavar="DIR", help="A run that `mens gate` has decided on.")]


@declare_options
def promote(
    *,
    run_dir: RunDir = Path("runs/latest"),
    rollback: bool = switch("Bring back the previous adapter."),
    reason: str = option("by hand", "Reason for the rollback, for the history.", metavar="TEXT"),
    override_file: Path | None = option(None, "A record that `mens override` signed.", "--override", metavar="FILE"),
    history: bool = switch("Print all changes of the champion, and change nothing."),
    sign: bool = switch("Print all changes and all tries, and sign them as they are with a new key.", "--sign-history"),
) -> None:
    """Make the adapter of a run the champion: the one in use.

    Its verdict must have passed, must cover this adapter and its newest evaluation with the held-out pairs next to the
    train set, and must not be out of date. All conditions are checked again. An adapter that was rolled back is not
    promoted again automatically.

    With MENS_SIGNING_KEY evaluation, verdict, history and tries must be signed by that key, and the champion will be.

    Exit code 0: done. 1: refused; the message names every reason. 2: the command was misused.
    """
    from mens_pipeline.orchestration.instance import report_champion
    from mens_pipeline.promotion import promote as promotion
    from mens_pipeline.promotion.history import champion_key, read_history, sign_history
    from mens_pipeline.promotion.ledger import sign_ledger
    from mens_pipeline.promotion.receipt import read_override
    from mens_pipeline.promotion.verdict_basis import Verdict

    if [rollback, history, sign, override_file is not None].count(True) > 1:
        raise typer.BadParameter("found two of --rollback, --history, --sign-history and --override. Give one of them.")
    settings = load_settings()
    store = open_store(settings)
    if history or sign:
        events = sign_history(store) if sign else read_history(store)
        if not events and not champion_key(store):
            log_line("no adapter has been promoted yet")
        for event in events:
            print_line(f"{_when(event.timestamp_unix)}  {event.action:<8}  {event.key[:12]}  {event.reason}")
        for tried in sign_ledger(store) if sign else ():
            about = f"attempt {tried.attempt} on {len(tried.files)} files"
            print_line(f"{_when(tried.timestamp_unix)}  try       {tried.adapter_sha256[:12]}  {about}")
        champion_key(store)  # raises if lines are lost, so print the remaining ones first
        return
    if rollback:
        done = promotion.roll_back(store, now=int(time.time()), reason=reason)
    else:
        refuse_links(run_dir)
        verdict, adapter = Verdict.open(_recall_gate(run_dir, store), store), Adapter.open(run_dir)
        record = read_override(override_file, _key(settings)) if override_file is not None else None
        terms = _read_terms(adapter, store, settings)
        done = promotion.promote(verdict, adapter, store, terms, now=int(time.time()), override=record)
    before = f", previously {done.previous[:12]}" if done.previous and done.changed else ""
    note = "" if done.changed else " unchanged"
    print_line(f"champion{note}: {done.champion.key[:12]} in {done.champion.path}{before}")
    if done.changed and (problem := report_champion(done, store, settings.dagster_home)):
        advice = "The champion is still in use; docs/operations.md describes how to repair the Dagster home."
        log_line(f"warning: {settings.dagster_home} does not record the change ({problem[:300]}). {advice}")


def _when(timestamp_unix: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(timestamp_unix))


@declare_options
def override(
    *,
    run_dir: RunDir = Path("runs/latest"),
    by: str = option(REQUIRED, "Name of the person who is responsible.", metavar="NAME"),
    reason: str = option(REQUIRED, "Why the verdict does not count.", metavar="TEXT"),
) -> None:
    """Sign a record that lets this adapter be promoted although its gate failed.

    It is signed with MENS_OVERRIDE_KEY, holds for this adapter and this verdict alone, and stays with the adapter and
    in the history.

    Exit code 0: gate_override.json is written. 1: there is no verdict. 2: the command was misused.
    """
    from mens_pipeline.promotion.receipt import OVERRIDE, RECEIPT, Override, sign_override

    settings = load_settings()
    refuse_links(run_dir)
    gate = _recall_gate(run_dir, open_store(settings))
    try:
        record = Override(
            adapter_sha256=adapter_digest(run_dir),
            receipt_sha256=digest_of(gate.file(RECEIPT)),
            by=by,
            reason=reason,
            timestamp_unix=int(time.time()),
        )
    except ValidationError as error:
        raise ConfigurationError(f"options: {errors_in(error)}. Say who is responsible, and why.") from error
    path = run_dir / OVERRIDE
    write_text(path, sign_override(record, _key(settings)).model_dump_json(indent=2) + "\n")
    print_line(f"{path} signed. Use it: mens promote --run-dir {run_dir} --override {path}")


def _recall_gate(run_dir: Path, store: ArtifactStore) -> Artifact:
    from mens_pipeline.evaluation.run_folder import recall_artifact
    from mens_pipeline.promotion.receipt import RECEIPT

    return recall_artifact(run_dir, Kind.BENCHMARK_GATE, RECEIPT, store, f"Run `mens gate --run-dir {run_dir}` first.")


def _read_terms(adapter: Adapter, store: ArtifactStore, settings: Settings) -> "Terms":
    from mens_pipeline.evaluation.results import RESULTS
    from mens_pipeline.evaluation.run_folder import heldout_of_training, recall_artifact

    advice = f"Run `mens eval-local --run-dir {adapter.path}` first."
    evaluation = recall_artifact(adapter.path, Kind.EVAL_RESULTS, RESULTS, store, advice)
    heldout, problem = None, ""
    try:
        heldout = heldout_of_training(adapter.manifest)
    except RefusedError as error:
        problem = str(error)
    return read_terms(settings, evaluation, heldout, problem)


def _key(settings: Settings) -> str:
    if settings.override_key is None:
        raise ConfigurationError("MENS_OVERRIDE_KEY: not set. Set it to the maintainers' secret.")
    return settings.override_key.get_secret_value()
