"""`mens gate`: whether the adapter of a run is good enough to be promoted."""

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mens_pipeline.cli.terminal import say

if TYPE_CHECKING:
    from mens_pipeline.promotion.receipt import Receipt

REFUSED: Final = 1


def gate(
    *,
    run_dir: Annotated[Path, typer.Option(metavar="DIR", help="A run that `mens eval-local` has judged.")] = Path(
        "runs/latest"
    ),
    policy: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of config/gates.yaml [default: VOX_EVAL_POLICY, else ci].")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print gate_receipt.json.")] = False,
) -> None:
    """Compare what was measured with what config/gates.yaml requires, and write the verdict.

    A gate passes, fails, or cannot tell yet; what cannot be told is not promoted.

    Writes gate_receipt.json into the folder of the run, eval_gate_failed.json exactly when the gate fails, and
    report.html with the verdict. A missing or malformed document fails by name.

    Exit code 0: passed. 1: failed, or undecided. 2: the command was misused.
    """
    from mens_pipeline.configured import open_store, policy_label, thresholds_of
    from mens_pipeline.evaluation import eval_results
    from mens_pipeline.evaluation.results import RESULTS
    from mens_pipeline.evaluation.run_folder import remember, remembered
    from mens_pipeline.inference.prepare import adapter_digest
    from mens_pipeline.promotion.benchmark_gate import PAGE, build_benchmark_gate, receipt_in
    from mens_pipeline.promotion.history import baseline_of
    from mens_pipeline.promotion.receipt import FAILED, RECEIPT
    from mens_pipeline.settings import load_settings
    from mens_pipeline.training.run_dir import refuse_links

    settings = load_settings()
    settings = settings.model_copy(update={"eval_policy": policy or settings.eval_policy})
    store = open_store(settings)
    refuse_links(run_dir)
    advice = f"Run `mens eval-local --run-dir {run_dir}` first."
    evaluation = remembered(run_dir, eval_results.KIND, RESULTS, store, advice)
    baseline = baseline_of(store, adapter_digest(run_dir))
    judged, _ = build_benchmark_gate(
        evaluation,
        run_dir,
        store,
        policy=policy_label(settings),
        thresholds=thresholds_of(settings),
        champion_key=baseline.key if baseline is not None else None,
        is_benchmark_asked=settings.benchmark,
        strict=settings.eval_strict,
        now=int(time.time()),
    )
    (run_dir / FAILED).unlink(missing_ok=True)
    for name in (RECEIPT, FAILED, PAGE):
        if (judged.path / name).is_file():
            shutil.copy2(judged.path / name, run_dir / name)
    remember(run_dir, judged)
    receipt = receipt_in(judged.path)
    if as_json:
        typer.echo(receipt.model_dump_json(indent=2))
    else:
        say(_lines(receipt))
    raise typer.Exit(0 if receipt.overall_passed else REFUSED)


def _lines(receipt: "Receipt") -> str:
    words = {"passed": "passed", "failed": "FAILED", "undecided": "UNDECIDED"}
    lines = [
        f"{words[gate.status] if gate.block or gate.passed else 'warning':<9}  {gate.name}: {gate.message}"
        for gate in receipt.gates
    ]
    tried = f", {receipt.tried}" if receipt.tried else ""
    return "\n".join([*lines, f"policy {receipt.policy}: {words[receipt.status]}{tried}"])
