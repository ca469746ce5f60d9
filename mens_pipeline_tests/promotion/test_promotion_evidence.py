"""The evaluation and verdict that a promotion requires, and their trace in the history."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import results_in
from mens_pipeline.inference.generation import Syntax
from mens_pipeline.models.adapter import ADAPTER, MANIFEST, WEIGHTS, adapter_digest
from mens_pipeline.promotion import promote as promotion
from mens_pipeline.promotion.history import CHAMPION, HISTORY, champion_key, read_history, sign_history
from mens_pipeline.promotion.ledger import FOLDER, LEDGER, EvaluationTry, record_try, sign_ledger
from mens_pipeline.promotion.policy import GateName
from mens_pipeline.promotion.receipt import PAGE, RECEIPT
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.signing import Signing
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline_tests.evaluation.runs import (
    DECODING,
    NOW,
    PRESENT,
    evaluated,
    promote,
    promoted,
    scored,
    trained,
    tried_by,
    verdict_of,
)
from mens_pipeline_tests.every import every
from mens_pipeline_tests.promotion.verdicts import assert_refused


@pytest.mark.threat("M13")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_new_tokens": 160}, r"max_new_tokens \(--max-tokens\) was 160, now 256; evaluate again"),
        (
            {"temperature": 0.3, "seed": 7, "num_samples": 2},
            r"num_samples \(--samples\) was 2, now 1, temperature \(--temperature\) was 0.3, now 0, seed .* was 7,",
        ),
        ({"syntax": Syntax.CONSTRAINED}, r"syntax \(--decoding\) was constrained, now fallback"),
    ],
    ids=["shorter", "sampled", "constrained"],
)
def test_an_evaluation_with_other_settings_is_refused(
    run: Path, store: ArtifactStore, changes: dict[str, Any], message: str
) -> None:
    """A low limit leaves out hard prompts, and every seed is a new chance; the memory limit does not matter."""
    gate, small = (
        scored(run, store, evaluated(run, store, decoding=DECODING.model_copy(update=update)))
        for update in (changes, {"batch_tokens": 512})
    )

    assert_refused(f"under other settings than those of config/evaluation.yaml: {message}", gate, run, store)
    assert promote(small, run, store, PRESENT, now=NOW).changed


def test_the_history_names_policy_attempt_and_figures(run: Path, store: ArtifactStore) -> None:
    promoted(run, store)
    (event,) = read_history(store)

    assert event.reason.startswith(
        "the gate passed: policy ci, first evaluation on this eval suite, parse rate on held-out "
    )
    assert "40/40 (100.0 %" in event.reason


def _write_weights(_gate: Artifact, run: Path) -> None:
    (run / ADAPTER / WEIGHTS).write_text("weights that nobody judged")


def _write_manifest(_gate: Artifact, run: Path) -> None:
    manifest = json.loads((run / MANIFEST).read_text())
    (run / MANIFEST).write_text(json.dumps({**manifest, "base_model": {"path": "elsewhere"}}))


def _write_page(gate: Artifact, _run: Path) -> None:
    (gate.path / PAGE).write_text("<p>All is well.</p>")


@pytest.mark.threat("M20")
@pytest.mark.parametrize("write", [_write_weights, _write_manifest, _write_page])
def test_files_that_change_during_the_copy_are_not_promoted(
    run: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, write: Callable[[Artifact, Path], None]
) -> None:
    """A training run or a copy may still write, so the copy is compared with the verdict."""
    gate = verdict_of(run, store)
    find_reasons_against = promotion.find_reasons_against

    def find_and_write(*arguments: Any, **options: Any) -> Iterator[str]:
        yield from find_reasons_against(*arguments, **options)
        write(gate, run)

    monkeypatch.setattr(promotion, "find_reasons_against", find_and_write)

    assert_refused(r"changed while it was copied\. Run `mens gate` again", gate, run, store)
    assert not list((store.root / "promoted_adapter").glob("?*/adapter"))


@pytest.mark.threat("M13")
def test_an_evaluation_of_a_copy_of_the_store_does_not_count(run: Path, tmp_path: Path, store: ArtifactStore) -> None:
    """In the copy, without the ledger, it is the first on its eval suite; this store does not know it."""
    copy = ArtifactStore(tmp_path / "copy")
    gate = verdict_of(run, copy)
    record_try(store, _build_try("1" * 64, "0" * 64), now=NOW)
    restored = _restore(gate, copy, store, LEDGER)

    assert_refused(
        r"this store does not contain this evaluation: .* another store; evaluate again here\.", restored, run, store
    )
    assert promoted(run, store) == champion_key(store), "evaluated again, it counts"


@pytest.mark.threat("M13")
def test_a_copy_of_the_store_differs_from_an_older_ledger(run: Path, tmp_path: Path, store: ArtifactStore) -> None:
    """A try in the copy is evaluated again; a try that the ledger lost is restored."""
    record_try(store, _build_try("1" * 64, "0" * 64), now=NOW)
    older = (store.root / FOLDER / LEDGER).read_bytes()
    shutil.copytree(store.root, tmp_path / "copy")
    copied = verdict_of(run, ArtifactStore(tmp_path / "copy"))
    for kind in (Kind.EVAL_RESULTS, copied.kind):
        shutil.copytree(
            tmp_path / "copy" / kind, store.root / kind, dirs_exist_ok=True, ignore=shutil.ignore_patterns(LEDGER)
        )

    assert_refused(
        r"not contain this evaluation: it was made in a copy of this store; evaluate again here\.$", copied, run, store
    )
    own = verdict_of(run, store)
    (store.root / FOLDER / LEDGER).write_bytes(older)
    lost = rf"it lacks evaluations that were made here \(1, such as .*{own.parents[0].key}\): an older ledger, or the"
    for again in (lambda: promote(own, run, store, PRESENT, now=NOW), lambda: evaluated(run, store)):
        with pytest.raises(
            RefusedError, match=rf"ledger\.jsonl: {lost} ledger of a copy, was restored\. Restore the newest"
        ):
            again()
    shutil.rmtree(store.root / Kind.EVAL_RESULTS / own.parents[0].key)
    assert_refused("has lost this evaluation: an older ledger replaced it; restore the new", own, run, store)


@pytest.mark.threat("M24")
@every("signing", [Signing.of("5b" * 32, None), None])
def test_files_of_a_fork_cannot_lower_the_number_of_a_try(tmp_path: Path, signing: Signing | None) -> None:
    """All files of a copy are restored over the store: its ledger, its evaluation, its verdict, its champion.

    With a key, a store without its own evaluation is recognized by its path.
    """
    home = tmp_path / str(signing is None)
    store, run, other = ArtifactStore(home / "store", signing=signing), trained(home / "run"), trained(home / "2", "2")
    sha256 = adapter_digest(run)
    record_try(store, _build_try("e" * 64, "0" * 64), now=NOW)
    shutil.copytree(store.root, home / "fork")
    fork = ArtifactStore(home / "fork", signing=signing)
    for adapter in "123":
        record_try(store, _build_try(sha256, adapter * 64), now=NOW)
    own = evaluated(other, store) if signing is None else None
    if signing is not None:
        sign_ledger(fork)
    kept = (store.root / FOLDER / LEDGER).read_bytes()
    gate = verdict_of(run, fork)
    promote(gate, run, fork, PRESENT, now=NOW)
    message = "written in a copy of this store" if own is None else "lacks evaluations that were made here"
    for left_out in ([Kind.PROMOTED_ADAPTER], []):
        restored = _restore(gate, fork, store, *left_out)
        assert_refused(message, restored, run, store)
        with pytest.raises(RefusedError, match=message):
            verdict_of(run, store)
    (store.root / FOLDER / LEDGER).write_bytes(kept)
    for name in (CHAMPION, HISTORY):
        (store.root / Kind.PROMOTED_ADAPTER / name).unlink()
    honest = evaluated(run, store)
    assert results_in(honest.path).progress.attempt == 4


def test_a_moved_store_is_adopted(tmp_path: Path, run: Path) -> None:
    """With a key, by the command that signs it again; a machine that only verifies serves the copy unchanged."""
    signing = Signing.of("5b" * 32, None)
    assert signing is not None
    store = ArtifactStore(tmp_path / "store", signing=signing)
    key = promoted(run, store)
    shutil.copytree(store.root, tmp_path / "restored")
    restored = ArtifactStore(tmp_path / "restored", signing=signing)
    only_serves = ArtifactStore(tmp_path / "restored", signing=Signing.of(None, signing.public_key))
    for ask in (champion_key, lambda it: record_try(it, _build_try("1" * 64, "0" * 64), now=NOW)):
        with pytest.raises(RefusedError, match=r"written in a copy of this store or elsewhere.*--sign-history"):
            ask(restored)
    assert champion_key(only_serves) == key
    sign_history(restored)
    sign_ledger(restored)

    assert champion_key(restored) == key
    assert promoted(trained(tmp_path / "next", "2"), restored) == champion_key(restored) != key


@pytest.mark.threat("M13")
def test_an_evaluation_with_another_number_does_not_count(run: Path, tmp_path: Path, store: ArtifactStore) -> None:
    """The same try may be in both ledgers; the ledger of this store counts."""
    sha256 = adapter_digest(run)
    record_try(store, _build_try(sha256, "0" * 64), now=NOW)
    copy = ArtifactStore(tmp_path / "copy")
    gate = verdict_of(run, copy)
    record_try(store, _build_try(sha256, sha256), now=NOW)
    restored = _restore(gate, copy, store, LEDGER)

    assert_refused(
        "the second evaluation on its eval suite, but it was evaluated as the first; evaluate again here",
        restored,
        run,
        store,
    )


def test_a_verdict_without_a_current_gate_is_refused(run: Path, store: ArtifactStore) -> None:
    gate = verdict_of(run, store)
    path = gate.path / RECEIPT
    receipt = json.loads(path.read_text())
    receipt["gates"] = [one for one in receipt["gates"] if one["name"] != GateName.DECLINE]
    for name in ("max_decline_p", "decline_promotions"):
        del receipt["thresholds"][name]
    path.write_text(json.dumps(receipt))
    gate.manifest["outputs"][RECEIPT]["sha256"] = digest_of(path)

    assert_refused(
        r": not promoted\. The verdict is by a version without the gate decline; run `mens gate` again\.$",
        gate,
        run,
        store,
    )


def _restore(gate: Artifact, copy: ArtifactStore, store: ArtifactStore, *left_out: str) -> Artifact:
    shutil.copytree(copy.root, store.root, ignore=shutil.ignore_patterns(*left_out), dirs_exist_ok=True)
    restored = store.get(gate.kind, gate.key)
    assert restored is not None
    return restored


def _build_try(suite_of: str, adapter_sha256: str) -> EvaluationTry:
    return tried_by(suite_of).model_copy(update={"adapter_sha256": adapter_sha256})
