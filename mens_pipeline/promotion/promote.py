"""From a verdict to the champion: refused unless the verdict passed, and is about this very adapter, here and now."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import RESULTS, EvalResults
from mens_pipeline.models.adapter import ADAPTER, MANIFEST, TELEMETRY, TrainingManifest, adapter_digest
from mens_pipeline.promotion.bill import write_bill
from mens_pipeline.promotion.conditions import Conditions, Counted, conditions_of, differences
from mens_pipeline.promotion.history import (
    HistoryEvent,
    adapter_sha256_of,
    baseline_of,
    champion_of,
    find_withdrawn,
    history_of,
    lock_champion,
    record,
    usable_before,
)
from mens_pipeline.promotion.ledger import find_try
from mens_pipeline.promotion.policy import GateName, GateStatus
from mens_pipeline.promotion.receipt import (
    OVERRIDE,
    PAGE,
    RECEIPT,
    Evaluated,
    Override,
    Receipt,
    gate_of,
    read_results,
    receipt_in,
    verdict_on,
)
from mens_pipeline.storage.files import copy_folder
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.signing import PRIVATE, add_signature, explain_unsigned
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of

_ADVICE: Final = "Run `mens gate` again."

_OF_GATE: Final = (RECEIPT, RESULTS, PAGE)


@dataclass(frozen=True, slots=True)
class Promotion:
    """Champion after a promotion, the key of the one before, and whether that was another one."""

    champion: Artifact
    previous: str | None
    changed: bool


def promote(  # noqa: PLR0913 - as what it calls
    gate: Artifact,
    run: Path,
    store: ArtifactStore,
    present: Conditions,
    *,
    now: int,
    override: Override | None = None,
    confirm: Callable[[], None] = lambda: None,
) -> Promotion:
    """Make an adapter the champion.

    A signed override takes the place of a passing verdict; it mends nothing else. `confirm` is called when only the
    change itself is left to do; what it raises keeps the champion as it is.

    Raises:
        RefusedError: The verdict does not allow it; the message names every reason.
        ConfigurationError: The store cannot be written, or there is no key to sign with although one checks.
    """
    with lock_champion(store) as seen:
        reasons = [*reasons_against(gate, run, store, present, is_overridden=override is not None)]
        if override is not None:
            reasons += _find_reasons_against_override(override, gate, run, history_of(store))
        if reasons:
            raise RefusedError(f"{run}: not promoted. {' '.join(reasons)}")
        receipt = receipt_in(gate.path)
        adapter_sha256 = _evaluated_adapter(receipt)
        before = champion_of(store)
        is_same = before is not None and adapter_sha256_of(before) == adapter_sha256
        if before is not None and is_same and explain_unsigned(before, store) is None:
            return Promotion(before, before.key, changed=False)
        champion = _store(gate, receipt, run, store, override)
        _refuse_changed(champion)
        event = HistoryEvent(
            timestamp_unix=now,
            action="promote" if override is None else "override",
            key=champion.key,
            previous=before.key if before is not None else None,
            adapter_sha256=adapter_sha256,
            override_sha256=override.sha256 if override is not None else None,
            reason=override.reason if override is not None else f"the gate passed: {_evidence(receipt)}",
        )
        confirm()
        record(store, event, champion, seen)
        return Promotion(champion, event.previous, changed=True)


def _evaluated_adapter(receipt: Receipt) -> str:
    assert receipt.subject is not None, "or there was an objection"  # noqa: S101 - our own impossibility
    return receipt.subject.adapter_sha256


def _evidence(receipt: Receipt) -> str:
    """Format policy, attempt and parse rate that an adapter was evaluated with, and how it compares with before."""
    decline = gate_of(receipt, GateName.DECLINE)
    since = f"; {decline.message.partition(', a drop')[0]}" if decline.measured is not None else ""
    return f"policy {receipt.policy}, {receipt.tried}, {gate_of(receipt, GateName.PARSE_RATE).message}{since}"


def roll_back(store: ArtifactStore, *, now: int, reason: str) -> Promotion:
    """Make an adapter that was in use before the champion again; the present one is not promoted again by itself.

    The one before is passed over when it has the weights of the present one, or was taken out of use itself.

    Raises:
        RefusedError: There is no champion, none before it that may be used, or that one is gone, was changed or is not
            signed.
    """
    with lock_champion(store) as seen:
        present = champion_of(store)
        if present is None:
            raise RefusedError(
                f"{store.root / Kind.PROMOTED_ADAPTER}: there is no champion to roll back. Promote an adapter first."
            )
        previous = usable_before(store, present)
        found = store.get(Kind.PROMOTED_ADAPTER, previous) if previous is not None else None
        if found is None:
            detail = f"the one before, {previous[:12]}, is gone" if previous else "no other one before it may be used"
            raise RefusedError(f"champion {present.key[:12]}: {detail}. Promote another adapter instead.")
        _refuse_changed(found)
        if problem := explain_unsigned(found, store):
            raise RefusedError(f"champion {found.key[:12]}: {problem}. Gate and promote its run again with the key.")
        event = HistoryEvent(
            timestamp_unix=now,
            action="rollback",
            key=found.key,
            previous=present.key,
            adapter_sha256=adapter_sha256_of(found),
            withdrawn_sha256=adapter_sha256_of(present),
            reason=reason,
        )
        record(store, event, found, seen)
        return Promotion(found, present.key, changed=True)


def reasons_against(
    gate: Artifact, run: Path, store: ArtifactStore, present: Conditions, *, is_overridden: bool = False
) -> Iterator[str]:
    """Return why a verdict does not make an adapter the champion, a sentence each; none when it does.

    Of one that is overridden, neither a failing verdict nor a held-out set that nobody knows is a reason.
    """
    changed = (*gate.find_changed(), *(name for name in _OF_GATE if name not in gate.outputs))
    if changed:
        yield f"Tampered with since it was written: {', '.join(changed)}; run the gate again."
        return
    if problem := explain_unsigned(gate, store):
        yield f"The verdict does not count: {problem}; run the gate again with {PRIVATE}."
        return
    try:
        receipt = receipt_in(gate.path)
    except RefusedError as error:
        yield f"The receipt cannot be read ({error}); run the gate again."
        return
    results = read_results(gate.file(RESULTS))
    then = conditions_of(receipt, results)
    now = _complete(present, then, results, gate, run, store)
    if then.adapter == now.adapter and now.adapter in find_withdrawn(store) and not is_overridden:
        yield "It was taken out of use by a rollback; sign an override to promote it again."
    if present.heldout is None and not is_overridden:
        problem = f"{present.heldout_problem} Or sign an override."
        yield f"Nothing says that it was evaluated on what was held out of its training: {problem}"
    yield from differences(then, now)
    yield from _not_reproduced(receipt, gate)
    if not receipt.overall_passed and not is_overridden:
        word = "failed" if receipt.status is GateStatus.FAILED else "cannot tell yet"
        yield f"The gate {word}: {'; '.join(receipt.reasons)}."


def _complete(  # noqa: PLR0913, PLR0917 - all that a verdict rests on
    present: Conditions,
    then: Conditions,
    results: EvalResults | None,
    gate: Artifact,
    run: Path,
    store: ArtifactStore,
) -> Conditions:
    """Return the present conditions with those of this adapter: what a verdict on it would rest on here and now."""
    manifest = run / MANIFEST
    baseline = baseline_of(store, then.adapter) if then.adapter is not None else None
    entry, store_id = find_try(store, results.progress.try_sha256 if results is not None else None)
    return replace(
        present,
        policy=then.policy,
        adapter=adapter_digest(run),
        champion=baseline.key if baseline is not None else None,
        manifest=digest_of(manifest) if manifest.is_file() else None,
        copied_results=digest_of(gate.file(RESULTS)),
        base=_base_sha256(gate.file(MANIFEST)),
        counted=Counted(entry.attempt if entry is not None else None, store_id),
    )


def _base_sha256(manifest: Path) -> str | None:
    """Return the hash of the base model that a run was trained on; None when its manifest does not say."""
    try:
        return TrainingManifest.read(manifest).base_model.sha256
    except RefusedError:
        return None


def _not_reproduced(receipt: Receipt, gate: Artifact) -> Iterator[str]:
    """Yield a sentence where the documents give another verdict than the receipt holds."""
    again = verdict_on(
        Evaluated(gate.file(RESULTS), gate.file(MANIFEST)),
        receipt.policy,
        receipt.thresholds,
        receipt.champion_key,
        is_benchmark_asked=receipt.is_benchmark_asked,
        strict=receipt.strict,
        now=receipt.timestamp_unix,
        run_dir=Path(receipt.run_dir),
    )
    known = {gate.name for gate in receipt.gates}
    if later := [gate.name for gate in again.gates if gate.name not in known]:
        yield f"It was compared by a version without the gate {', '.join(later)}; run `mens gate` again."
    elif again != receipt:
        yield "The documents give another verdict than the receipt; run the gate again."


def _find_reasons_against_override(
    override: Override, gate: Artifact, run: Path, history: Sequence[HistoryEvent]
) -> Iterator[str]:
    """Yield why a signed record does not count: it is used once, and after the last rollback of its adapter."""
    if override.adapter_sha256 != adapter_digest(run):
        yield "The override is for another adapter; sign one for this."
    if override.receipt_sha256 != digest_of(gate.file(RECEIPT)):
        yield "The override is for another verdict; sign one for this."
    if any(event.override_sha256 == override.sha256 for event in history):
        yield "The override was used already; sign another one."
    withdrawals = (e.timestamp_unix for e in history if e.withdrawn_sha256 == override.adapter_sha256)
    if override.timestamp_unix < max(withdrawals, default=0):
        yield "The override was signed before a rollback took the adapter out of use; sign another one."


def _refuse_changed(champion: Artifact) -> None:
    """Refuse a champion that is no longer what was promoted, or to which something was added."""
    changed = champion.find_changed()
    if changed or adapter_digest(champion.path) != adapter_sha256_of(champion):
        what = ", ".join(changed) or f"files in {ADAPTER}"
        advice = f"Remove {champion.path}, and promote the run again."
        raise RefusedError(f"champion {champion.key[:12]}: changed since it was promoted: {what}. {advice}")


def _store(gate: Artifact, receipt: Receipt, run: Path, store: ArtifactStore, override: Override | None) -> Artifact:
    """Store the adapter with the documents of its verdict and its bill of materials, complete in one folder.

    What was looked at in the folder of the run may be another thing by now, so it is the copies that are hashed.
    """
    inputs = {
        "adapter_sha256": _evaluated_adapter(receipt),
        "receipt_sha256": gate.outputs[RECEIPT],
    }
    if override is not None:
        inputs["override_sha256"] = override.sha256

    def write(folder: Path) -> dict[str, Any]:
        copy_folder(run / ADAPTER, folder / ADAPTER)
        if adapter_digest(folder) != inputs["adapter_sha256"]:
            raise RefusedError(f"{run / ADAPTER}: changed while it was copied. {_ADVICE}")
        # The telemetry is kept for people; no verdict is about it.
        shutil.copy2(run / TELEMETRY, folder / TELEMETRY)
        _copy(run / MANIFEST, folder, receipt.sources[MANIFEST])
        for name in _OF_GATE:
            _copy(gate.path / name, folder, gate.outputs[name])
        if override is not None:
            (folder / OVERRIDE).write_text(override.model_dump_json(indent=2) + "\n", encoding="utf-8")
        write_bill(folder, store, receipt.timestamp_unix)
        return {}

    return store.build(
        Kind.PROMOTED_ADAPTER, *add_signature(store, Kind.PROMOTED_ADAPTER, inputs, write), (gate, *store.holding(run))
    )[0]


def _copy(source: Path, folder: Path, sha256: str | None) -> None:
    """Copy a file into a folder, and see that the copy is what was evaluated."""
    copy = Path(shutil.copy2(source, folder / source.name))
    if digest_of(copy) != sha256:
        raise RefusedError(f"{source}: changed while it was copied. {_ADVICE}")
