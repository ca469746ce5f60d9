"""When an adapter becomes the champion, and when it must not."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import RESULTS
from mens_pipeline.models.adapter import ADAPTER, MANIFEST, WEIGHTS, Adapter, adapter_digest
from mens_pipeline.promotion import promote as promotion
from mens_pipeline.promotion.history import champion_key, find_champion, read_history
from mens_pipeline.promotion.promote import roll_back
from mens_pipeline.promotion.receipt import RECEIPT, Override
from mens_pipeline.promotion.verdict_basis import Terms, Verdict
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline_tests.evaluation.runs import (
    NOW,
    PRESENT,
    THRESHOLDS,
    evaluated,
    promote,
    promoted,
    scored,
    trained,
    training_manifest,
    verdict_of,
)


def _override(run: Path, gate: Artifact) -> Override:
    return Override(
        adapter_sha256=adapter_digest(run),
        receipt_sha256=digest_of(gate.path / RECEIPT),
        by="a maintainer",
        reason="The held-out set was wrong today.",
        timestamp_unix=NOW,
    )


def test_a_passing_verdict_makes_the_adapter_the_champion(run: Path, store: ArtifactStore) -> None:
    promotion = promote(verdict_of(run, store), run, store, PRESENT, now=NOW)

    assert promotion.changed
    assert promotion.previous is None
    assert champion_key(store) == promotion.champion.key
    kept = {path.relative_to(promotion.champion.path).as_posix() for path in promotion.champion.path.rglob("*.*")}
    assert kept >= {f"{ADAPTER}/{WEIGHTS}", MANIFEST, RECEIPT, RESULTS, "report.html", "telemetry.jsonl"}
    assert [event.action for event in read_history(store)] == ["promote"]


def test_a_failing_verdict_changes_nothing(run: Path, store: ArtifactStore) -> None:
    gate = verdict_of(run, store, num_good=20)

    with pytest.raises(RefusedError, match=r"The gate failed: parse_rate: .* 20/40 \(50.0 %.*floor 70.0 %: fails"):
        promote(gate, run, store, PRESENT, now=NOW)

    assert champion_key(store) is None
    assert read_history(store) == ()


def _change_receipt(gate: Artifact, _run: Path) -> None:
    path = gate.path / RECEIPT
    receipt = json.loads(path.read_text())
    path.write_text(json.dumps({**receipt, "overall_passed": True}))


def _change_receipt_and_its_digest(gate: Artifact, _run: Path) -> None:
    _change_receipt(gate, _run)
    gate.manifest["outputs"][RECEIPT]["sha256"] = digest_of(gate.path / RECEIPT)


def _spoil_receipt(gate: Artifact, _run: Path) -> None:
    (gate.path / RECEIPT).write_text("{}")
    gate.manifest["outputs"][RECEIPT]["sha256"] = digest_of(gate.path / RECEIPT)


def _change_results_and_their_digest(gate: Artifact, _run: Path) -> None:
    path = gate.path / RESULTS
    results = json.loads(path.read_text())
    path.write_text(json.dumps({**results, "run_id": "another"}))
    gate.manifest["outputs"][RESULTS]["sha256"] = digest_of(path)


def _train_again(_gate: Artifact, run: Path) -> None:
    (run / ADAPTER / WEIGHTS).write_text("other weights")


def _lose_weights(_gate: Artifact, run: Path) -> None:
    (run / ADAPTER / WEIGHTS).unlink()


def _change_manifest(_gate: Artifact, run: Path) -> None:
    (run / MANIFEST).write_text(json.dumps({**training_manifest(), "name": "another"}))


@pytest.mark.threat("M12")
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_change_receipt, r"changed since it was written: gate_receipt\.json; run the gate again"),
        (_change_receipt_and_its_digest, "The documents give another verdict than the receipt; run the gate again"),
        (_spoil_receipt, r"gate_receipt\.json: no receipt \(.*\)\. Run `mens gate` again"),
        (lambda gate, _run: (gate.path / RESULTS).unlink(), r"changed since it was written: eval_results\.json"),
        (_change_results_and_their_digest, r"eval_results\.json is not the one of the verdict; run the gate again"),
        (_train_again, "The verdict is about adapter [0-9a-f]{12}, this is [0-9a-f]{12}; evaluate this one"),
        (_lose_weights, r"adapter_model\.safetensors: not there\. Name the folder of a complete run"),
        (_change_manifest, r"training_manifest\.json is not the one of the verdict; run the gate again"),
    ],
)
def test_a_verdict_that_is_not_about_this_is_refused(
    run: Path, store: ArtifactStore, spoil: Callable[[Artifact, Path], None], message: str
) -> None:
    gate = verdict_of(run, store, num_good=20 if "receipt" in spoil.__name__ else 40)
    spoil(gate, run)

    with pytest.raises(RefusedError, match=message):
        promote(gate, run, store, PRESENT, now=NOW)

    assert champion_key(store) is None


@pytest.mark.threat("M12")
@pytest.mark.parametrize(
    ("present", "message"),
    [
        (replace(PRESENT, heldout="c" * 64), "The held-out set is not the one it was evaluated on; evaluate again"),
        (replace(PRESENT, benchmark="c" * 64), "The benchmark is not the one it was evaluated on; evaluate again"),
        (
            replace(PRESENT, heldout=None, heldout_problem="train.jsonl: gone."),
            r"evaluated on pairs held out of its training: train\.jsonl: gone\. Or sign an override",
        ),
        (replace(PRESENT, is_benchmark_asked=True), "The benchmark had no say; run the gate again"),
        (
            replace(PRESENT, thresholds=THRESHOLDS.model_copy(update={"min_parse_rate": 0.9})),
            "The policy ci has changed since; run the gate again",
        ),
        (
            replace(PRESENT, thresholds=THRESHOLDS.model_copy(update={"min_benchmark": 0.1})),
            "The policy ci has changed since; run the gate again",
        ),
    ],
)
def test_a_verdict_that_is_out_of_date_is_refused(
    run: Path, store: ArtifactStore, present: Terms, message: str
) -> None:
    with pytest.raises(RefusedError, match=message):
        promote(verdict_of(run, store), run, store, present, now=NOW)


def test_a_verdict_about_another_base_is_refused(run: Path, store: ArtifactStore) -> None:
    manifest = training_manifest()
    other = {**manifest, "base_model": {**manifest["base_model"], "sha256": "d" * 64}}
    evaluation = evaluated(run, store)
    (run / MANIFEST).write_text(json.dumps(other))

    with pytest.raises(RefusedError, match="about base bbbbbbbbbbbb, the run was trained on dddddddddddd; evaluate"):
        promote(scored(run, store, evaluation), run, store, PRESENT, now=NOW)


def test_a_verdict_from_before_a_worse_evaluation_is_refused(run: Path, store: ArtifactStore) -> None:
    gate = verdict_of(run, store)
    worse = evaluated(run, store, num_good=20).manifest["outputs"][RESULTS]["sha256"]

    with pytest.raises(RefusedError, match="It was evaluated again since the verdict; run the gate again"):
        promotion.promote(Verdict.open(gate, store), Adapter.open(run), store, replace(PRESENT, results=worse), now=NOW)
    assert champion_key(store) is None


def test_a_signed_record_stands_for_a_held_out_set_that_cannot_be_told(run: Path, store: ArtifactStore) -> None:
    gate = verdict_of(run, store)
    unknown = replace(PRESENT, heldout=None, heldout_problem="train.jsonl: gone.")

    assert promote(gate, run, store, unknown, now=NOW, override=_override(run, gate)).changed


def test_a_verdict_that_asked_for_more_of_the_benchmark_holds(run: Path, store: ArtifactStore) -> None:
    higher = THRESHOLDS.model_copy(update={"min_benchmark": 0.8})
    gate = scored(run, store, evaluated(run, store), higher)

    assert promote(gate, run, store, PRESENT, now=NOW).changed


def test_a_verdict_from_before_another_promotion_is_refused(tmp_path: Path, store: ArtifactStore) -> None:
    first, second = trained(tmp_path / "first", "1"), trained(tmp_path / "second", "2")
    early = verdict_of(second, store)
    promoted(first, store)

    with pytest.raises(RefusedError, match="Another champion is in use than the one it was compared with"):
        promote(early, second, store, PRESENT, now=NOW)


def test_the_champion_is_promoted_once(run: Path, store: ArtifactStore) -> None:
    gate = verdict_of(run, store)
    first = promote(gate, run, store, PRESENT, now=NOW)
    again = promote(verdict_of(run, store), run, store, PRESENT, now=NOW + 1)

    assert not again.changed
    assert again.champion.key == first.champion.key
    assert len(read_history(store)) == 1


def test_a_worse_adapter_does_not_replace_the_champion(tmp_path: Path, store: ArtifactStore) -> None:
    """32 of 40 may pass the bar of 70 %, yet the champion does all 40."""
    champion = promoted(trained(tmp_path / "first", "1"), store)
    worse = trained(tmp_path / "second", "2")

    with pytest.raises(RefusedError, match=r"regression: -20.0 points against the champion on 40 tasks \(p = 0.008\)"):
        promote(verdict_of(worse, store, num_good=32), worse, store, PRESENT, now=NOW)

    assert champion_key(store) == champion


def test_a_rollback_brings_the_adapter_before_back(tmp_path: Path, store: ArtifactStore) -> None:
    keys = [promoted(trained(tmp_path / name, name), store) for name in ("first", "second", "third")]

    back = [roll_back(store, now=NOW, reason="it writes nonsense").champion.key for _ in range(2)]

    assert back == [keys[1], keys[0]]
    assert champion_key(store) == keys[0]
    assert [event.action for event in read_history(store)] == ["promote"] * 3 + ["rollback"] * 2
    with pytest.raises(RefusedError, match=r"no other one before it may be used\. Promote another adapter instead"):
        roll_back(store, now=NOW, reason="once more")


def test_a_rollback_passes_over_what_was_withdrawn(tmp_path: Path, store: ArtifactStore) -> None:
    """Promoted twice and rolled back once, an adapter does not come back through its first promotion."""
    first, second = trained(tmp_path / "first", "1"), trained(tmp_path / "second", "2")
    keys = [promoted(run, store) for run in (first, second, first)]
    back = roll_back(store, now=NOW, reason="it writes nonsense").champion.key

    assert len(set(keys)) == 3
    assert back == keys[1]
    with pytest.raises(RefusedError, match="no other one before it may be used"):
        roll_back(store, now=NOW, reason="once more")
    assert champion_key(store) == keys[1]


def test_a_rollback_passes_over_the_weights_in_use(tmp_path: Path, store: ArtifactStore) -> None:
    first, second = trained(tmp_path / "first", "1"), trained(tmp_path / "second", "2")
    keys = [promoted(first, store), promoted(second, store)]
    roll_back(store, now=NOW, reason="it writes nonsense")
    gate = verdict_of(second, store)
    again = promote(gate, second, store, PRESENT, now=NOW, override=_override(second, gate)).champion
    roll_back(store, now=NOW, reason="it still does")

    assert again.key != keys[1]
    assert (again.path / "gate_override.json").is_file()
    assert champion_key(store) == keys[0]


def test_an_adapter_that_changes_while_it_is_copied_is_not_promoted(
    run: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = verdict_of(run, store)
    copy2 = shutil.copy2

    def write_and_copy(source: Path, target: Path, *, follow_symlinks: bool = True) -> Path:
        (run / ADAPTER / WEIGHTS).write_text("other weights")
        return Path(copy2(source, target, follow_symlinks=follow_symlinks))

    monkeypatch.setattr(shutil, "copy2", write_and_copy)

    with pytest.raises(RefusedError, match=r"adapter: changed while it was copied\. Run `mens gate` again"):
        promote(gate, run, store, PRESENT, now=NOW)
    assert champion_key(store) is None
    assert not list((store.root / "promoted_adapter").glob("?*/adapter"))


def test_what_was_rolled_back_is_not_promoted_again_by_itself(tmp_path: Path, store: ArtifactStore) -> None:
    first = promoted(trained(tmp_path / "first", "1"), store)
    second = trained(tmp_path / "second", "2")
    promoted(second, store)
    roll_back(store, now=NOW, reason="it writes nonsense")
    gate = verdict_of(second, store)

    with pytest.raises(RefusedError, match="taken out of use by a rollback; sign an override to promote it again"):
        promote(gate, second, store, PRESENT, now=NOW)
    again = promote(gate, second, store, PRESENT, now=NOW, override=_override(second, gate))

    assert again.champion.manifest["inputs"]["adapter_sha256"] == adapter_digest(second)
    assert champion_key(store) == again.champion.key
    assert again.previous == first


def test_a_rollback_without_a_champion_is_refused(store: ArtifactStore) -> None:
    with pytest.raises(RefusedError, match="there is no champion to roll back"):
        roll_back(store, now=NOW, reason="")


@pytest.mark.threat("M22")
def test_a_signed_record_takes_the_place_of_a_passing_verdict_once(run: Path, store: ArtifactStore) -> None:
    gate = verdict_of(run, store, num_good=20)
    record = _override(run, gate)
    promotion = promote(gate, run, store, PRESENT, now=NOW, override=record)

    assert (promotion.champion.path / "gate_override.json").is_file()
    assert [(event.action, event.reason) for event in read_history(store)] == [
        ("override", "The held-out set was wrong today.")
    ]
    with pytest.raises(RefusedError, match="The override was used already; sign another one"):
        promote(gate, run, store, PRESENT, now=NOW, override=record)


@pytest.mark.threat("M16")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"adapter_sha256": "d" * 64}, "The override is for another adapter"),
        ({"receipt_sha256": "d" * 64}, "The override is for another verdict"),
    ],
)
def test_a_signed_record_holds_for_one_adapter_and_one_verdict(
    run: Path, store: ArtifactStore, change: dict[str, str], message: str
) -> None:
    gate = verdict_of(run, store, num_good=20)
    record = _override(run, gate).model_copy(update=change)

    with pytest.raises(RefusedError, match=message):
        promote(gate, run, store, PRESENT, now=NOW, override=record)


@pytest.mark.threat("M22")
@pytest.mark.parametrize(
    ("used_before", "message"),
    [
        (True, r"The override was used already; sign another one\. The override was signed before a rollback took"),
        (
            False,
            r"not promoted\. The override was signed before a rollback took the adapter out of use; sign another one",
        ),
    ],
)
def test_a_signed_record_from_before_a_rollback_opens_nothing(
    tmp_path: Path, store: ArtifactStore, *, used_before: bool, message: str
) -> None:
    promoted(trained(tmp_path / "first", "1"), store)
    run = trained(tmp_path / "second", "2")
    gate = verdict_of(run, store)
    record = _override(run, gate)
    promote(gate, run, store, PRESENT, now=NOW, override=record if used_before else None)
    roll_back(store, now=NOW + 60, reason="it answers nonsense")
    gate = verdict_of(run, store)
    record = record if used_before else _override(run, gate)

    with pytest.raises(RefusedError, match=message):
        promote(gate, run, store, PRESENT, now=NOW + 61, override=record)
    signed_since = _override(run, gate).model_copy(update={"timestamp_unix": NOW + 60})
    assert promote(gate, run, store, PRESENT, now=NOW + 61, override=signed_since).changed


def test_a_signed_record_does_not_mend_a_foreign_verdict(run: Path, store: ArtifactStore) -> None:
    gate = verdict_of(run, store, num_good=20)
    record = _override(run, gate)
    _change_manifest(gate, run)

    with pytest.raises(RefusedError, match="is not the one of the verdict"):
        promote(gate, run, store, PRESENT, now=NOW, override=record)


def test_a_champion_that_is_gone_is_said(run: Path, store: ArtifactStore) -> None:
    key = promoted(run, store)
    (store.root / "promoted_adapter" / key / "manifest.json").unlink()
    with pytest.raises(RefusedError, match=f"the champion {key[:12]} is gone. Restore it, or promote another one"):
        find_champion(store)
