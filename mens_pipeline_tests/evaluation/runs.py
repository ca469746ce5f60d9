"""Trained and evaluated runs without a model: real documents, real verdicts."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from mens_pipeline.corpus.schema.records import TrainingPair
from mens_pipeline.evaluation.eval_results import write_documents
from mens_pipeline.evaluation.evaluate import evaluate_completions
from mens_pipeline.evaluation.results import RESULTS, Progress, Subject
from mens_pipeline.evaluation.run_folder import remember
from mens_pipeline.evaluation.tasks import Suite, Task
from mens_pipeline.inference.generation import Completion, Decoding, Syntax
from mens_pipeline.language import Mode
from mens_pipeline.models.adapter import ADAPTER, CARD, MANIFEST, TELEMETRY, WEIGHTS, Adapter, adapter_digest
from mens_pipeline.promotion import promote as promotion
from mens_pipeline.promotion.benchmark_gate import GateParams, build_benchmark_gate
from mens_pipeline.promotion.history import find_baseline, find_champion
from mens_pipeline.promotion.ledger import EvaluationTry, record_try
from mens_pipeline.promotion.policy import Thresholds
from mens_pipeline.promotion.promote import Promotion
from mens_pipeline.promotion.receipt import Override
from mens_pipeline.promotion.verdict_basis import Terms, Verdict
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.signing import add_signature
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline_tests.training.manifests import manifest_about
from mens_pipeline_tests.training.small_folder import described_base

HELDOUT = hashlib.sha256(b"held-out pairs\n").hexdigest()
BASE = "b" * 64
NOW = 1_800_000_000
THRESHOLDS = Thresholds(
    confidence=0.95,
    max_rounds=2,
    first_heldout_tasks=100,
    min_heldout_tasks=30,
    min_heldout_files=10,
    min_parse_rate=0.7,
    parse_rate_floor=0.7,
    min_resolve_rate=0.5,
    resolve_rate_floor=0.4,
    min_coverage=0.05,
    min_benchmark=0.0,
    min_fallback_parse_rate=0.0,
    min_test_rate=0.0,
    min_completed_share=0.75,
    min_gain_over_base=0.05,
    needs_test_gain=False,
    max_stub_rate=0.08,
    min_stop_rate=0.8,
    min_supervised_ratio=0.1,
    max_truncation=0.5,
    min_tokens_per_second={"cpu": 1.0},
    max_regression_p=0.01,
    warn_only=("throughput", "stop_rate"),
)
DECODING = Decoding(syntax=Syntax.FALLBACK)
PRESENT = Terms(
    thresholds=THRESHOLDS, results="", heldout=HELDOUT, benchmark=None, is_benchmark_asked=False, decoding=DECODING
)
"""The terms of a promotion, without those of one evaluation, which `promote` adds."""

_NUM_TASKS = 40


def tasks() -> tuple[Task, ...]:
    """Held-out prompts: functions and types in turn."""
    return tuple(
        Task(
            id=f"heldout/{number:04}",
            suite=Suite.HELDOUT,
            file=f"t{number}.vox",
            prompt=f"Write {'a function' if number % 2 else 'a type'} `t{number}`.",
            construct="function" if number % 2 else "type",
            name=f"t{number}",
            difficulty="easy",
            mode=Mode.SOURCE,
            reference=_program(number),
        )
        for number in range(_NUM_TASKS)
    )


def trained(folder: Path, weights: str = "weights") -> Path:
    fill_trained(folder, weights)
    return folder


def fill_trained(folder: Path, weights: str) -> dict[str, Any]:
    """Fill a folder as training does, and return the fields of an artifact's manifest."""
    adapter = folder / ADAPTER
    adapter.mkdir(parents=True)
    (adapter / WEIGHTS).write_text(weights, encoding="utf-8")
    (adapter / CARD).write_text("# An adapter\n", encoding="utf-8")
    (folder / MANIFEST).write_text(json.dumps(training_manifest(), indent=2), encoding="utf-8")
    step = {"event": "step", "payload": {"step": 1, "loss": 1.0}}
    (folder / TELEMETRY).write_text(json.dumps(step) + "\n", encoding="utf-8")
    return {"training": training_manifest()}


def training_manifest() -> dict[str, Any]:
    """The fields of a training manifest that a verdict reads."""
    manifest = manifest_about(described_base(name="tiny", sha256=BASE), vcs_sha="abc1234")
    manifest["recipe_name"] = "night"
    manifest["result"] |= {
        "device": "cpu",
        "num_supervised_tokens": 40,
        "num_tokens": 100,
        "not_shown": {"too_long": 1},
        "num_rows": 100,
        "trained_tokens": 1000,
        "seconds": 10.0,
    }
    return manifest


def evaluated(  # noqa: PLR0913, PLR0917 - all that an evaluation rests on
    run: Path,
    store: ArtifactStore,
    num_good: int = _NUM_TASKS,
    num_good_of_champion: int = _NUM_TASKS,
    heldout_sha256: str = HELDOUT,
    decoding: Decoding = DECODING,
) -> Artifact:
    """The evaluation of a run; the base writes no Vox, and every second try is good.

    The adapter completes `num_good` prompts well, and the champion, if any, `num_good_of_champion`.
    """
    sha256 = adapter_digest(run)
    subject = Subject(
        adapter_sha256=sha256,
        base_sha256=json.loads((run / MANIFEST).read_text(encoding="utf-8"))["base_model"]["sha256"],
        base_model="tiny",
        heldout_sha256=heldout_sha256,
        benchmark_sha256=None,
    )
    baseline = find_baseline(store, sha256)
    champion = (baseline.key, baseline.manifest["inputs"]["adapter_sha256"]) if baseline is not None else None
    second = [completion.model_copy(update={"constrained": True}) for completion in _completions(_NUM_TASKS)[num_good:]]
    adapter = (*_completions(num_good), *(second if decoding.syntax is Syntax.FALLBACK else ()))
    completions = {"base": _completions(0), "adapter": adapter, "champion": _completions(num_good_of_champion)}
    tried = tried_by(sha256, decoding)
    counted = record_try(store, tried, now=NOW)
    progress = Progress(
        attempt=counted.attempt,
        round=1,
        num_rounds=1,
        num_reserve=0,
        try_sha256=tried.sha256,
        store_id=counted.store_id,
    )
    evaluation = evaluate_completions(tasks(), completions, subject, decoding, progress, champion=champion)

    def write(folder: Path) -> dict[str, Any]:
        write_documents(folder, evaluation, "")
        return {"name": "eval-gate-abc1234"}

    inputs = {"adapter": sha256, "good": num_good, "champion": baseline.key if baseline is not None else None}
    inputs |= {"decoding": decoding.model_dump(), "store": counted.store_id}
    return store.build(Kind.EVAL_RESULTS, *add_signature(store, Kind.EVAL_RESULTS, inputs, write))[0]


def evaluated_run(folder: Path, name: str, weights: str) -> Path:
    """An evaluated run beside its rows, as commands expect it."""
    run, store = trained(folder / name, weights), ArtifactStore(folder / "store")
    rows = {key: folder / f"{key}.jsonl" for key in ("train", "heldout")}
    pair = TrainingPair(prompt="Write f.", response="fn f() {\n}\n", category="function")
    rows["train"].write_text(pair.model_dump_json() + "\n")
    rows["heldout"].write_text("held-out pairs\n")
    manifest = {
        **training_manifest(),
        "train_file": str(rows["train"]),
        "train_sha256": digest_of(rows["train"]),
        "heldout_sha256": digest_of(rows["heldout"]),
    }
    (run / MANIFEST).write_text(json.dumps(manifest))
    evaluation = evaluated(run, store)
    remember(run, evaluation, [RESULTS])
    return run


def tried_by(adapter_sha256: str, decoding: Decoding = DECODING) -> EvaluationTry:
    """A try on an eval suite that has no other tries."""
    rows = hashlib.sha256(f"{adapter_sha256} {decoding}".encode()).hexdigest()
    return EvaluationTry(
        adapter_sha256=adapter_sha256,
        decoding=decoding,
        first_heldout_tasks=_NUM_TASKS,
        max_rounds=1,
        files=(f"{rows}.vox",),
        rows_sha256=rows,
        device="cpu float32 dense",
    )


def scored(
    run: Path, store: ArtifactStore, evaluation: Artifact, thresholds: Thresholds = THRESHOLDS, *, strict: bool = False
) -> Artifact:
    baseline = find_baseline(store, adapter_digest(run))
    params = GateParams(
        evaluation=evaluation,
        adapter=run,
        policy="ci",
        thresholds=thresholds,
        champion_key=baseline.key if baseline is not None else None,
        is_benchmark_asked=False,
        strict=strict,
        now=NOW,
        commit="5ca1ab1e" * 5,
    )
    return build_benchmark_gate(params, store)[0]


def promote(  # noqa: PLR0913 - as what it calls
    gate: Artifact, run: Path, store: ArtifactStore, present: Terms, *, now: int, override: Override | None = None
) -> Promotion:
    newest = replace(present, results=gate.manifest["inputs"]["evaluation"])
    return promotion.promote(Verdict.open(gate, store), Adapter.open(run), store, newest, now=now, override=override)


def _program(number: int) -> str:
    if number % 2:
        return f"fn t{number}() to int {{\n    return {number}\n}}\n"
    return f"type t{number} {{\n    a: int\n}}\n"


def _completions(num_good: int) -> tuple[Completion, ...]:
    return tuple(
        Completion(
            task=f"heldout/{number:04}",
            sample=0,
            text=_program(number) if number < num_good else "fn (",
            num_tokens=9,
            stopped=True,
        )
        for number in range(_NUM_TASKS)
    )


def champion_in(store: ArtifactStore) -> Artifact:
    champion = find_champion(store)
    assert champion is not None
    return champion


def verdict_of(run: Path, store: ArtifactStore, num_good: int = 40, num_good_of_champion: int = 40) -> Artifact:
    """Evaluate and gate a run; `num_good` of its 40 completions are good."""
    return scored(run, store, evaluated(run, store, num_good, num_good_of_champion))


def promoted(run: Path, store: ArtifactStore, num_good: int = 40) -> str:
    """Evaluate, gate and promote a run, and return the key of the champion; `num_good` of 40 completions are good."""
    return promote(verdict_of(run, store, num_good), run, store, PRESENT, now=NOW).champion.key
