"""All kinds of files that are read, with a valid file of each."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from mens_pipeline.corpus.curate.mix import load_mix_config
from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.corpus.curate.validate import Repetition, ValidationReport, validate_rows
from mens_pipeline.corpus.extract.forgotten import FORGOTTEN, load_forgotten
from mens_pipeline.corpus.extract.sources import ROOTS_FILE, find_source_roots
from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.corpus.telemetry.table import TelemetryAccount, TelemetryQuery, read_telemetry, telemetry_pairs
from mens_pipeline.delivery.retention import load_retention
from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.evaluation.results import RESULTS, read_results
from mens_pipeline.jobs.protocol import RESULT, mark_complete, newest_checkpoint, read_result
from mens_pipeline.models.adapter import (
    CONFIGURATION,
    MANIFEST,
    TELEMETRY,
    WEIGHTS,
    TrainingManifest,
    read_adapter_config,
)
from mens_pipeline.models.base import configuration_of, read_tokenizer
from mens_pipeline.promotion.history import CHAMPION, HISTORY, champion_key, read_history
from mens_pipeline.promotion.policy import load_gate_policy
from mens_pipeline.promotion.receipt import RECEIPT, Override, read_override, receipt_in, sign_override
from mens_pipeline.settings import GATE_POLICY, MIX_CONFIG, PIPELINE_CONFIG, PRESETS, PROJECT_ROOT, RETENTION
from mens_pipeline.storage.files import MAX_LINE_BYTES
from mens_pipeline.storage.jsonl import open_rows, write_jsonl
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import MANIFEST as OF_STORE
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline.training.presets import load_named
from mens_pipeline.training.telemetry_log import seconds_trained, steps_of
from mens_pipeline_tests.evaluation.runs import promoted, trained
from mens_pipeline_tests.serving.talkative import write_run
from mens_pipeline_tests.training.runs import pairs
from mens_pipeline_tests.training.tiny_base import write_tiny_base

Readers = dict[str, tuple[Path, Callable[[Path], object]]]
_KEY: Final = "a secret of maintainers"


def readers(folder: Path) -> Readers:
    return {**_of_data(folder / "data"), **_of_models(folder / "models"), **_of_promotion(folder / "promotion")}


def _of_data(folder: Path) -> Readers:
    folder.mkdir(parents=True)
    rows, roots, database = folder / "train.jsonl", folder / ROOTS_FILE, folder / "telemetry.sqlite"
    write_jsonl(rows, pairs(20))
    shutil.copy(PROJECT_ROOT / "data" / ROOTS_FILE, roots)
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE AgentTelemetry (query TEXT, optimal_response TEXT)")
    connection.execute("INSERT INTO AgentTelemetry VALUES ('Write f.', 'fn f() {}')")
    connection.commit()
    connection.close()
    bench = Path(shutil.copytree(PROJECT_ROOT / "data" / "heldout_bench", folder / "bench"))
    configured = {
        FORGOTTEN: (PIPELINE_CONFIG.with_name(FORGOTTEN), load_forgotten),
        "gates.yaml": (GATE_POLICY, load_gate_policy),
        "mix.yaml": (MIX_CONFIG, load_mix_config),
        "pipeline.yaml": (PIPELINE_CONFIG, load_pipeline_config),
        "presets.yaml": (PRESETS, load_named),
        "retention.yaml": (RETENTION, load_retention),
    }
    return {
        "rows": (rows, _validate),
        "pairs": (Path(shutil.copy(rows, folder / "pairs.jsonl")), lambda path: list(read_pairs(path))),
        "roots of a workspace": (roots, lambda path: find_source_roots(path.parent)),
        "telemetry database": (database, _import),
        "benchmark": (next(iter(sorted(bench.glob("manifest.*")))), lambda path: load_benchmark(path.parent)),
        **{name: (Path(shutil.copy(path, folder / name)), read) for name, (path, read) in configured.items()},
    }


def _of_models(folder: Path) -> Readers:
    base = write_tiny_base(folder / "base")
    run = write_run(folder / "run", base)
    (run / RESULT).write_text(json.dumps({"seconds": 1.0, "num_steps": 4}))
    start = {"event": "train_start", "payload": {"resumed_from": None}}
    step = {"event": "step", "payload": {"step": 1, "loss": 1.0, "num_updates": 1, "num_tokens": 9, "seconds": 1.0}}
    (run / TELEMETRY).write_text("".join(json.dumps(event) + "\n" for event in (start, step)))
    checkpoint = run / "checkpoints" / "checkpoint-9"
    checkpoint.mkdir(parents=True)
    (checkpoint / "optimizer.pt").write_bytes(b"moments")
    mark_complete(checkpoint)
    adapter = run / "adapter"
    return {
        "configuration of a base": (base / "config.json", lambda path: configuration_of(path.parent)),
        "tokenizer": (base / "tokenizer.json", lambda path: read_tokenizer(path.parent)),
        "training manifest": (run / MANIFEST, TrainingManifest.read),
        "result of a training": (run / RESULT, lambda path: read_result(path.parent)),
        "log of a training": (run / TELEMETRY, lambda path: (list(steps_of(path)), seconds_trained(path))),
        "mark of a checkpoint": (checkpoint / "complete", lambda _path: newest_checkpoint(run)),
        "configuration of an adapter": (adapter / CONFIGURATION, lambda path: read_adapter_config(path.parent)),
        "weights of an adapter": (adapter / WEIGHTS, lambda path: read_adapter_config(path.parent)),
    }


def _of_promotion(folder: Path) -> Readers:
    store = ArtifactStore(folder / "store")
    key = promoted(trained(folder / "run"), store)
    champion = store.root / Kind.PROMOTED_ADAPTER / key
    record = Override(
        adapter_sha256="0" * 64,
        receipt_sha256="1" * 64,
        by="a maintainer",
        reason="The set was wrong.",
        timestamp_unix=1,
    )
    override = folder / "gate_override.json"
    override.write_text(sign_override(record, _KEY).model_dump_json())
    results = Path(shutil.copy(champion / RESULTS, folder / RESULTS))
    manifest = champion / OF_STORE
    receipts = folder / "receipt"
    receipts.mkdir()
    receipt = Path(shutil.copy(champion / RECEIPT, receipts / RECEIPT))
    apart = ArtifactStore(folder / "apart")
    shutil.copytree(store.root, apart.root)
    return {
        "manifest of an artifact": (manifest, lambda _path: store.get(Kind.PROMOTED_ADAPTER, key)),
        "figures of an evaluation": (results, read_results),
        "receipt": (receipt, lambda path: receipt_in(path.parent)),
        "override": (override, lambda path: read_override(path, _KEY)),
        "history": (apart.root / Kind.PROMOTED_ADAPTER / HISTORY, lambda _path: read_history(apart)),
        "pointer to the champion": (store.root / Kind.PROMOTED_ADAPTER / CHAMPION, lambda _path: champion_key(store)),
    }


def _validate(path: Path) -> None:
    report = ValidationReport(recheck=True)
    with open_rows(path, MAX_LINE_BYTES) as lines:
        list(validate_rows(lines, report, lambda _row: None, Repetition(None)))


def _import(path: Path) -> None:
    query = TelemetryQuery(url=SecretStr(f"sqlite:///{path}"))
    list(telemetry_pairs(read_telemetry(query), TelemetryAccount(), query.table))
