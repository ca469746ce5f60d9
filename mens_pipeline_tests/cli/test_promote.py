"""`mens promote` on runs that passed the gate: its checks besides the verdict."""

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import RESULTS
from mens_pipeline.evaluation.run_folder import FILE, remember
from mens_pipeline.models import adapter
from mens_pipeline.models.adapter import MANIFEST
from mens_pipeline.orchestration.instance import open_instance
from mens_pipeline.promotion import promote as promotion
from mens_pipeline.promotion.history import champion_key
from mens_pipeline.promotion.ledger import record_try
from mens_pipeline.promotion.receipt import PAGE, RECEIPT
from mens_pipeline.promotion.verdict_basis import Verdict
from mens_pipeline.settings import load_settings, open_store
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactStore, digest_of
from mens_pipeline_tests.cli.invoking import invoke, refusal
from mens_pipeline_tests.evaluation.runs import HELDOUT, champion_in, evaluated, evaluated_run, tried_by
from mens_pipeline_tests.orchestration.stores import take_lenient_gates


@dataclass(frozen=True)
class _Run:
    folder: Path
    train: Path
    heldout: Path
    store: ArtifactStore

    def evaluate(self, num_good: int = 40, heldout_sha256: str = HELDOUT) -> None:
        remember(self.folder, evaluated(self.folder, self.store, num_good, heldout_sha256=heldout_sha256), [RESULTS])


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Run:
    take_lenient_gates(monkeypatch)
    monkeypatch.setenv("MENS_STORE_ROOT", str(tmp_path / "store"))
    monkeypatch.setenv("MENS_OVERRIDE_KEY", "a secret of maintainers")
    folder, train, heldout = (tmp_path / name for name in ("run", "train.jsonl", "heldout.jsonl"))
    run = _Run(folder, train, heldout, ArtifactStore(tmp_path / "store"))
    evaluated_run(tmp_path, "run", "weights")
    assert _invoke("gate", run).exit_code == 0
    return run


def _invoke(command: str, run: _Run, *more: object) -> Result:
    return invoke(command, "--run-dir", run.folder, *more)


def test_a_promotion_opens_one_store_and_hashes_the_adapter_twice(run: _Run, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[ArtifactStore] = []
    hashed: list[Path] = []
    open_it, hash_it = ArtifactStore.__init__, adapter.adapter_digest

    def count_store(store: ArtifactStore, *given: Any, **named: Any) -> None:
        opened.append(store)
        open_it(store, *given, **named)

    def count_digest(folder: Path) -> str:
        hashed.append(folder)
        return hash_it(folder)

    monkeypatch.setattr(ArtifactStore, "__init__", count_store)
    for module in (adapter, promotion):
        monkeypatch.setattr(module, "adapter_digest", count_digest)
    assert _invoke("promote", run).exit_code == 0

    assert len(opened) == 1
    assert hashed[0] == run.folder
    assert [place.is_relative_to(run.store.root) for place in hashed] == [False, True]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda run: run.train.write_text("other rows\n"), r"train.jsonl: the train set of this run is changed"),
        (lambda run: run.train.unlink(), r"train.jsonl: the train set of this run is gone. Restore it, or train again"),
        (
            lambda run: run.heldout.write_text("rows\n"),
            r"heldout.jsonl: not the pairs that were held out when this run trained. Restore them",
        ),
        (lambda run: run.heldout.unlink(), r"heldout.jsonl: no held-out pairs next to the train set. Restore them"),
    ],
)
def test_an_unknown_held_out_set_blocks_a_promotion(run: _Run, spoil: Callable[[_Run], None], message: str) -> None:
    spoil(run)
    refused = refusal(_invoke("promote", run))
    assert champion_key(run.store) is None
    _invoke("override", run, "--by", "me", "--reason", "The disk with the rows broke.")
    overridden = _invoke("promote", run, "--override", run.folder / "gate_override.json")

    assert "Nothing shows that it was evaluated on pairs held out of its training" in refused
    assert message in refused
    assert overridden.exit_code == 0, overridden.exception


def test_no_override_allows_another_held_out_set(run: _Run) -> None:
    run.evaluate(heldout_sha256=digest_of(run.train), num_good=39)
    assert _invoke("gate", run).exit_code == 0
    _invoke("override", run, "--by", "me", "--reason", "I would like to.")

    for more in ((), ("--override", run.folder / "gate_override.json")):
        assert "The held-out set has changed since it was evaluated" in refusal(_invoke("promote", run, *more))
    assert champion_key(run.store) is None


def test_a_manifest_without_a_train_set_is_refused(run: _Run) -> None:
    manifest = json.loads((run.folder / MANIFEST).read_text())
    del manifest["train_sha256"]
    (run.folder / MANIFEST).write_text(json.dumps(manifest))

    assert "training_manifest.json: train_sha256: Field required" in refusal(_invoke("promote", run))


def test_an_empty_reason_is_refused_with_advice(run: _Run) -> None:
    result = _invoke("override", run, "--by", "me", "--reason", "")

    assert re.search(r"options: reason: .* Say who is responsible, and why\.", refusal(result))


def test_an_impossible_number_is_refused_with_advice(run: _Run) -> None:
    result = _invoke("eval-local", run, "--samples", "0", "--device", "cpu", "--no-bench")

    assert re.search(
        r"evaluation\.yaml with the options of this command: num_samples: .* Correct the option\.", refusal(result)
    )


def test_an_older_verdict_does_not_outlive_a_newer_evaluation(run: _Run) -> None:
    receipt, note = (run.folder / RECEIPT).read_text(), json.loads((run.folder / FILE).read_text())
    run.evaluate(num_good=20)
    newer = json.loads((run.folder / FILE).read_text())
    (run.folder / RECEIPT).write_text(receipt)
    (run.folder / FILE).write_text(json.dumps({**newer, Kind.BENCHMARK_GATE: note[Kind.BENCHMARK_GATE]}))

    assert "It was evaluated again since the verdict; run the gate again" in refusal(_invoke("promote", run))
    assert champion_key(run.store) is None


def test_a_broken_home_of_dagster_changes_no_exit_code(
    run: _Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    with open_instance(home):
        pass
    with closing(sqlite3.connect(home / "history" / "runs.db")) as database:
        database.execute("INSERT INTO alembic_version VALUES ('567bc23fd1ac')")
        database.commit()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    result = _invoke("promote", run)

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("champion: ")
    assert re.search("warning: .* does not record the change .*The champion is still in use", result.stderr)
    assert champion_key(run.store) is not None


def test_thresholds_of_the_environment_are_shown_with_the_verdict(run: _Run) -> None:
    """In the history and on the report page: the name of the policy cannot hide a lowered one."""
    assert _invoke("promote", run).exit_code == 0
    champion = champion_in(run.store)
    history = invoke("promote", "--history").stdout

    for text in (history, (champion.path / PAGE).read_text()):
        assert "bootstrap (min_parse_rate 0.7 by VOX_EVAL_MIN_PARSE_RATE" in text
        assert "min_coverage 0.05 by VOX_EVAL_MIN_COVERAGE" in text
        assert "benchmark gate off: VOX_BENCHMARK" in text
        assert "unlike ci: " in text
        assert "min_heldout_tasks 20" in text


def test_with_a_key_only_a_signed_verdict_is_promoted(run: _Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _invoke("promote", run).exit_code == 0
    record_try(run.store, tried_by("a" * 64), now=1_800_000_000)
    monkeypatch.setenv("MENS_SIGNING_KEY", "5b" * 32)
    unsigned = refusal(_invoke("promote", run, "--history"))
    signed = _invoke("promote", run, "--sign-history")
    refused = [refusal(_invoke(command, run)) for command in ("promote", "gate")]
    replace(run, store=open_store(load_settings())).evaluate()
    assert _invoke("gate", run).exit_code == 0
    done = _invoke("promote", run)
    champion = champion_in(run.store)

    assert "history.jsonl:1: it is not signed. Restore it from a backup" in unsigned
    assert (signed.exit_code, len(signed.stdout.splitlines())) == (0, 3)
    assert "2027-01-15 08:00:00 UTC  try       aaaaaaaaaaaa  attempt 1 on 1 files" in signed.stdout
    assert "it is not signed; run the gate again with MENS_SIGNING_KEY" in refused[0]
    assert "it is not signed. Evaluate again with MENS_SIGNING_KEY" in refused[1]
    assert done.exit_code == 0, done.exception
    assert (champion.path / "signature.json").is_file()


def test_a_verdict_whose_manifest_names_no_documents_is_refused(run: _Run) -> None:
    gate = run.store.get(Kind.BENCHMARK_GATE, json.loads((run.folder / FILE).read_text())[Kind.BENCHMARK_GATE])
    assert gate is not None
    (gate.path / "manifest.json").write_text(json.dumps({**gate.manifest, "outputs": {}}))
    result = _invoke("promote", run)
    emptied = run.store.get(Kind.BENCHMARK_GATE, gate.key)
    assert emptied is not None

    assert "gate_receipt.json: changed since it was written" in refusal(result, RefusedError)
    with pytest.raises(RefusedError, match=r"gate_receipt\.json, eval_results\.json, report\.html; run the gate again"):
        Verdict.open(emptied, run.store)


def test_a_lost_history_is_reported(run: _Run) -> None:
    assert "no adapter has been promoted yet" in _invoke("promote", run, "--history").stderr
    assert _invoke("promote", run).exit_code == 0
    (run.store.root / "promoted_adapter" / "history.jsonl").unlink()

    lost = refusal(_invoke("promote", run, "--history"))
    assert "history.jsonl: no entry for the champion" in lost
    assert "Restore it from a backup" in lost
