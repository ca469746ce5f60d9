"""When an adapter becomes the champion, and when it must not."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import RESULTS
from mens_pipeline.models.adapter import ADAPTER, MANIFEST, WEIGHTS, adapter_digest
from mens_pipeline.promotion.history import champion_key, describe_champion, find_baseline, find_champion, read_history
from mens_pipeline.promotion.promote import roll_back
from mens_pipeline.promotion.receipt import RECEIPT, Override
from mens_pipeline.promotion.verdict_basis import Terms
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
from mens_pipeline_tests.every import every
from mens_pipeline_tests.promotion.verdicts import assert_refused


def _override(run: Path, gate: Artifact) -> Override:
    return Override(
        adapter_sha256=adapter_digest(run),
        receipt_sha256=digest_of(gate.path / RECEIPT),
        by="a maintainer",
        reason="The held-out set was wrong today.",
        timestamp_unix=NOW,
    )


def test_a_passing_verdict_makes_the_adapter_the_champion_once(run: Path, store: ArtifactStore) -> None:
    promotion = promote(verdict_of(run, store), run, store, PRESENT, now=NOW)

    assert promotion.changed
    assert promotion.previous is None
    assert champion_key(store) == promotion.champion.key
    kept = {path.relative_to(promotion.champion.path).as_posix() for path in promotion.champion.path.rglob("*.*")}
    assert kept >= {f"{ADAPTER}/{WEIGHTS}", MANIFEST, RECEIPT, RESULTS, "report.html", "telemetry.jsonl"}
    again = promote(verdict_of(run, store), run, store, PRESENT, now=NOW + 1)
    assert (again.champion.key, again.changed) == (promotion.champion.key, False)
    assert [event.action for event in read_history(store)] == ["promote"]


@every(
    "case",
    [
        (20, r"The gate failed: parse_rate: .* 20/40 \(50.0 %.*floor 70.0 %: fails"),
        (31, r"The gate is undecided: parse_rate: .* 31/40 \(77.5 %"),
    ],
)
def test_a_verdict_that_does_not_pass_changes_nothing(tmp_path: Path, case: tuple[int, str]) -> None:
    num_good, message = case
    run, store = trained(tmp_path / f"run-{num_good}"), ArtifactStore(tmp_path / f"store-{num_good}")

    assert_refused(message, verdict_of(run, store, num_good), run, store)
    assert read_history(store) == ()


def _amend(gate: Artifact, name: str, changes: dict[str, Any], *, is_hashed: bool = True) -> None:
    path = gate.path / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes} if changes else {}))
    if is_hashed:
        gate.manifest["outputs"][name]["sha256"] = digest_of(path)


_PASSED = {"overall_passed": True}


def _train_again(_gate: Artifact, run: Path) -> None:
    (run / ADAPTER / WEIGHTS).write_text("other weights")


def _lose_weights(_gate: Artifact, run: Path) -> None:
    (run / ADAPTER / WEIGHTS).unlink()


def _change_manifest(_gate: Artifact, run: Path) -> None:
    (run / MANIFEST).write_text(json.dumps({**training_manifest(), "name": "another"}))


@pytest.mark.threat("M12")
@pytest.mark.parametrize(
    ("num_good", "spoil", "message"),
    [
        (
            20,
            lambda gate, _run: _amend(gate, RECEIPT, _PASSED, is_hashed=False),
            r"changed since it was written: gate_receipt\.json; run the gate again",
        ),
        (
            20,
            lambda gate, _run: _amend(gate, RECEIPT, _PASSED),
            "The documents lead to a different verdict than the receipt; run the gate again",
        ),
        (20, lambda gate, _run: _amend(gate, RECEIPT, {}), r"invalid receipt \(.*\)\. Run `mens gate` again"),
        (40, lambda gate, _run: (gate.path / RESULTS).unlink(), r"changed since it was written: eval_results\.json"),
        (
            40,
            lambda gate, _run: _amend(gate, RESULTS, {"run_id": "another"}),
            r"eval_results\.json has changed since the verdict; run the gate again",
        ),
        (40, _train_again, "The verdict is for adapter [0-9a-f]{12}, but this is [0-9a-f]{12}; evaluate this one"),
        (40, _lose_weights, r"adapter_model\.safetensors: not found\. Name the folder of a complete run"),
        (40, _change_manifest, r"training_manifest\.json has changed since the verdict; run the gate again"),
    ],
)
def test_a_verdict_about_other_files_is_refused(
    run: Path, store: ArtifactStore, num_good: int, spoil: Callable[[Artifact, Path], object], message: str
) -> None:
    gate = verdict_of(run, store, num_good)
    spoil(gate, run)

    assert_refused(message, gate, run, store)


def _present(**thresholds: float) -> Terms:
    return replace(PRESENT, thresholds=THRESHOLDS.model_copy(update=thresholds))


_UNKNOWN = replace(PRESENT, heldout=None, heldout_problem="train.jsonl: gone.")


@pytest.mark.threat("M12")
@pytest.mark.parametrize(
    ("present", "message"),
    [
        (replace(PRESENT, heldout="c" * 64), "The held-out set has changed since it was evaluated; evaluate again"),
        (replace(PRESENT, benchmark="c" * 64), "The benchmark has changed since it was evaluated; evaluate again"),
        (_UNKNOWN, r"on pairs held out of its training: train\.jsonl: gone\. Or sign an override"),
        (replace(PRESENT, is_benchmark_asked=True), "It excluded the benchmark; run the gate again"),
        (_present(min_parse_rate=0.9), "The policy ci has changed since; run the gate again"),
        (_present(min_benchmark=0.1), "The policy ci has changed since; run the gate again"),
    ],
)
def test_an_outdated_verdict_is_refused(run: Path, store: ArtifactStore, present: Terms, message: str) -> None:
    assert_refused(message, verdict_of(run, store), run, store, present)


def test_a_verdict_about_another_base_is_refused(run: Path, store: ArtifactStore) -> None:
    manifest = training_manifest()
    other = {**manifest, "base_model": {**manifest["base_model"], "sha256": "d" * 64}}
    evaluation = evaluated(run, store)
    (run / MANIFEST).write_text(json.dumps(other))

    message = "for base bbbbbbbbbbbb, but the run was trained on dddddddddddd; evaluate"
    assert_refused(message, scored(run, store, evaluation), run, store)


def test_an_override_replaces_an_unknown_held_out_set(run: Path, store: ArtifactStore) -> None:
    gate = verdict_of(run, store)

    assert promote(gate, run, store, _UNKNOWN, now=NOW, override=_override(run, gate)).changed


def test_a_verdict_with_a_higher_threshold_of_the_benchmark_holds(run: Path, store: ArtifactStore) -> None:
    higher = THRESHOLDS.model_copy(update={"min_benchmark": 0.8})
    gate = scored(run, store, evaluated(run, store), higher)

    assert promote(gate, run, store, PRESENT, now=NOW).changed


def test_a_verdict_from_before_another_promotion_is_refused(tmp_path: Path, store: ArtifactStore) -> None:
    first, second = trained(tmp_path / "first", "1"), trained(tmp_path / "second", "2")
    early = verdict_of(second, store)
    promoted(first, store)

    assert_refused("The champion has changed since it was compared", early, second, store)


def test_a_worse_adapter_does_not_replace_the_champion(tmp_path: Path, store: ArtifactStore) -> None:
    """32 of 40 pass the threshold of 70 %, but the champion completes all 40."""
    promoted(trained(tmp_path / "first", "1"), store)
    worse = trained(tmp_path / "second", "2")
    message = r"regression: -20.0 points against the champion on 40 tasks \(p = 0.008\)"

    assert_refused(message, verdict_of(worse, store, num_good=32), worse, store)


def test_a_rollback_restores_the_previous_adapter(tmp_path: Path, store: ArtifactStore) -> None:
    keys = [promoted(trained(tmp_path / name, name), store) for name in ("first", "second", "third")]

    back = [roll_back(store, now=NOW, reason="it \udcfcbt").champion.key for _ in range(2)]

    assert back == [keys[1], keys[0]]
    assert champion_key(store) == keys[0]
    assert [(event.action, event.reason) for event in read_history(store)[3:]] == [("rollback", "it ?bt")] * 2
    with pytest.raises(RefusedError, match=r"no earlier one can be used\. Promote another adapter instead"):
        roll_back(store, now=NOW, reason="once more")
    (store.root / "promoted_adapter" / "champion").write_text(keys[2])  # as if the rollbacks were interrupted
    assert describe_champion(store).startswith(read_history(store)[2].adapter_sha256[:12])


def test_a_rollback_skips_withdrawn_adapters(tmp_path: Path, store: ArtifactStore) -> None:
    """Promoted twice and rolled back once, an adapter does not come back through its first promotion."""
    first, second = trained(tmp_path / "first", "1"), trained(tmp_path / "second", "2")
    keys = [promoted(run, store) for run in (first, second, first)]
    back = roll_back(store, now=NOW, reason="it writes nonsense").champion.key

    assert len(set(keys)) == 3
    assert back == keys[1]
    with pytest.raises(RefusedError, match="no earlier one can be used"):
        roll_back(store, now=NOW, reason="once more")
    assert champion_key(store) == keys[1]


def test_a_rollback_skips_the_weights_in_use(tmp_path: Path, store: ArtifactStore) -> None:
    first, second = trained(tmp_path / "first", "1"), trained(tmp_path / "second", "2")
    keys = [promoted(first, store), promoted(second, store)]
    roll_back(store, now=NOW, reason="it writes nonsense")
    gate = verdict_of(second, store)
    again = promote(gate, second, store, PRESENT, now=NOW, override=_override(second, gate)).champion
    roll_back(store, now=NOW, reason="it still does")

    assert again.key != keys[1]
    assert (again.path / "gate_override.json").is_file()
    assert champion_key(store) == keys[0]


def test_a_withdrawn_adapter_is_not_promoted_without_an_override(tmp_path: Path, store: ArtifactStore) -> None:
    first = promoted(trained(tmp_path / "first", "1"), store)
    second = trained(tmp_path / "second", "2")
    promoted(second, store)
    roll_back(store, now=NOW, reason="it writes nonsense")
    gate = verdict_of(second, store)

    assert_refused("withdrawn by a rollback; sign an override to promote it again", gate, second, store)
    again = promote(gate, second, store, PRESENT, now=NOW, override=_override(second, gate))

    assert again.champion.manifest["inputs"]["adapter_sha256"] == adapter_digest(second)
    assert champion_key(store) == again.champion.key
    assert again.previous == first


def test_a_rollback_without_a_champion_is_refused(store: ArtifactStore) -> None:
    with pytest.raises(RefusedError, match="there is no champion to roll back"):
        roll_back(store, now=NOW, reason="")


@pytest.mark.threat("M22")
def test_an_override_replaces_a_passing_verdict_once(run: Path, store: ArtifactStore) -> None:
    gate = verdict_of(run, store, num_good=20)
    record = _override(run, gate)
    promotion = promote(gate, run, store, PRESENT, now=NOW, override=record)

    assert (promotion.champion.path / "gate_override.json").is_file()
    assert [(event.action, event.reason) for event in read_history(store)] == [
        ("override", "The held-out set was wrong today.")
    ]
    assert_refused("The override was already used; sign another one", gate, run, store, override=record)


@pytest.mark.threat("M16")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"adapter_sha256": "d" * 64}, "The override is for another adapter"),
        ({"receipt_sha256": "d" * 64}, "The override is for another verdict"),
    ],
)
def test_an_override_holds_for_one_adapter_and_one_verdict(
    run: Path, store: ArtifactStore, change: dict[str, str], message: str
) -> None:
    gate = verdict_of(run, store, num_good=20)
    record = _override(run, gate).model_copy(update=change)

    assert_refused(message, gate, run, store, override=record)


@pytest.mark.threat("M22")
@pytest.mark.parametrize(
    ("used_before", "message"),
    [
        (True, r"The override was already used; sign another one\. The override was signed before a rollback took"),
        (
            False,
            r"not promoted\. The override was signed before a rollback took the adapter out of use; sign another one",
        ),
    ],
)
def test_an_override_from_before_a_rollback_has_no_effect(
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

    assert_refused(message, gate, run, store, now=NOW + 61, override=record)
    signed_since = _override(run, gate).model_copy(update={"timestamp_unix": NOW + 60})
    assert promote(gate, run, store, PRESENT, now=NOW + 61, override=signed_since).changed


def test_an_override_does_not_allow_a_foreign_verdict(run: Path, store: ArtifactStore) -> None:
    gate = verdict_of(run, store, num_good=20)
    record = _override(run, gate)
    _change_manifest(gate, run)

    assert_refused("has changed since the verdict", gate, run, store, override=record)


def test_a_champion_that_is_lost_is_promoted_again_or_rolled_back(tmp_path: Path, store: ArtifactStore) -> None:
    runs = [trained(tmp_path / name, name) for name in ("first", "second")]
    before, key = (promoted(run, store) for run in runs)
    folder, history = store.root / "promoted_adapter" / key, read_history(store)
    for lost in (folder / ADAPTER / WEIGHTS, folder / "manifest.json"):
        lost.unlink()
        again = promote(verdict_of(runs[1], store), runs[1], store, PRESENT, now=NOW)
        assert (again.champion.key, again.changed, again.champion.find_changed()) == (key, False, ())
    lost.unlink()
    with pytest.raises(RefusedError, match=f"champion {key[:12]} is gone from .*Restore it, promote its run, or roll"):
        find_champion(store)

    assert read_history(store) == history
    higher = THRESHOLDS.model_copy(update={"min_benchmark": 0.8})
    again = promote(scored(runs[1], store, evaluated(runs[1], store), higher), runs[1], store, PRESENT, now=NOW)
    baseline = find_baseline(store, adapter_digest(runs[1]))
    assert baseline is not None
    assert (again.previous, again.champion.key != key, baseline.key) == (key, True, before)
    assert roll_back(store, now=NOW, reason="it is gone").champion.key == before
