"""Promote an adapter to champion, only if its verdict passed and still holds for this adapter and this store."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import RESULTS
from mens_pipeline.models.adapter import ADAPTER, MANIFEST, TELEMETRY, Adapter, adapter_digest
from mens_pipeline.promotion.bill import write_bill
from mens_pipeline.promotion.history import (
    HistoryEvent,
    adapter_sha256_of,
    find_last_change,
    find_usable_before,
    find_withdrawn,
    lock_champion,
    read_history,
    record,
)
from mens_pipeline.promotion.policy import GateName, GateStatus
from mens_pipeline.promotion.receipt import OVERRIDE, RECEIPT, Override, Receipt, build_receipt, find_gate
from mens_pipeline.promotion.verdict_basis import DOCUMENTS, Terms, Verdict, VerdictBasis, find_differences
from mens_pipeline.storage.files import copy_folder
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.signing import add_signature, explain_unsigned
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of

_ADVICE: Final = "Run `mens gate` again."


@dataclass(frozen=True, slots=True)
class Promotion:
    """The champion after a promotion, the key of the one before, and whether the two differ."""

    champion: Artifact
    previous: str | None
    changed: bool


def promote(  # noqa: PLR0913 - the inputs of a promotion
    verdict: Verdict,
    adapter: Adapter,
    store: ArtifactStore,
    terms: Terms,
    *,
    now: int,
    override: Override | None = None,
    confirm: Callable[[], None] = lambda: None,
) -> Promotion:
    """Make an adapter the champion; a `RefusedError` names every reason why its verdict does not allow it.

    A signed override excuses a failed verdict, a rollback, and unknown held-out pairs. Lost files of the champion are
    copied again. `confirm` is called right before a change; if it raises, the champion stays.
    """
    with lock_champion(store) as seen:
        reasons = [*find_reasons_against(verdict, adapter, store, terms, override)]
        if reasons:
            raise RefusedError(f"{adapter.path}: not promoted. {' '.join(reasons)}")
        before = find_last_change(store)
        same = before.key if before is not None and before.adapter_sha256 == adapter.digest else ""
        champion = store.get(Kind.PROMOTED_ADAPTER, same)
        if champion is None or champion.find_changed() or explain_unsigned(champion, store) is not None:
            champion = _store(verdict, adapter, store, override)
        if champion.key == same:
            return Promotion(champion, same, changed=False)
        event = HistoryEvent(
            timestamp_unix=now,
            action="promote" if override is None else "override",
            key=champion.key,
            previous=before.key if before is not None else None,
            adapter_sha256=adapter.digest,
            override_sha256=override.sha256 if override is not None else None,
            reason=override.reason if override is not None else f"the gate passed: {_evidence(verdict.receipt)}",
        )
        confirm()
        record(store, event, champion, seen)
        return Promotion(champion, event.previous, changed=True)


def _evidence(receipt: Receipt) -> str:
    decline = find_gate(receipt, GateName.DECLINE)
    since = f"; {decline.message.partition(', a drop')[0]}" if decline.measured is not None else ""
    return f"policy {receipt.policy}, {receipt.tried}, {find_gate(receipt, GateName.PARSE_RATE).message}{since}"


def roll_back(store: ArtifactStore, *, now: int, reason: str) -> Promotion:
    """Bring back the previous champion; only a signed override promotes the current one again.

    Skip earlier champions with the same weights, and those that a rollback withdrew. `RefusedError` if no other is
    left, or the one to use is missing, was changed or is not signed.
    """
    with lock_champion(store) as seen:
        present = find_last_change(store)
        if present is None:
            place = store.root / Kind.PROMOTED_ADAPTER
            raise RefusedError(f"{place}: there is no champion to roll back. Promote an adapter first.")
        previous = find_usable_before(store, present)
        found = store.get(Kind.PROMOTED_ADAPTER, previous) if previous is not None else None
        if found is None:
            detail = f"the previous one, {previous[:12]}, is gone" if previous else "no earlier one can be used"
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
            withdrawn_sha256=present.adapter_sha256,
            reason=reason.encode(errors="replace").decode(),  # a terminal may send bytes that are not UTF-8
        )
        record(store, event, found, seen)
        return Promotion(found, present.key, changed=True)


def find_reasons_against(
    verdict: Verdict, adapter: Adapter, store: ArtifactStore, terms: Terms, override: Override | None = None
) -> Iterator[str]:
    """Yield the reasons why a verdict does not allow a promotion, one sentence each.

    An override excuses a failed verdict, a rollback, and unknown held-out pairs.
    """
    then, now = VerdictBasis.then(verdict), VerdictBasis.now(verdict, adapter, terms, store)
    if override is None:
        if then.adapter == now.adapter and now.adapter in find_withdrawn(store):
            yield "It was withdrawn by a rollback; sign an override to promote it again."
        if terms.heldout is None:
            problem = f"{terms.heldout_problem} Or sign an override."
            yield f"Nothing shows that it was evaluated on pairs held out of its training: {problem}"
    yield from find_differences(verdict, then, now)
    yield from _find_unlike(verdict)
    receipt = verdict.receipt
    if override is not None:
        yield from _find_reasons_against_override(override, verdict, adapter, read_history(store))
    elif not receipt.overall_passed:
        word = "failed" if receipt.status is GateStatus.FAILED else "is undecided"
        yield f"The gate {word}: {'; '.join(receipt.reasons)}."


def _find_unlike(verdict: Verdict) -> Iterator[str]:
    """Yield a sentence if the documents lead to a different verdict than the receipt."""
    receipt = verdict.receipt
    again = build_receipt(
        verdict.inputs,
        {name: verdict.gate.outputs.get(name) for name in (RESULTS, MANIFEST)},
        receipt.thresholds,
        policy=receipt.policy,
        strict=receipt.strict,
        now=receipt.timestamp_unix,
        run_dir=Path(receipt.run_dir),
    )
    known = {gate.name for gate in receipt.gates}
    if later := [gate.name for gate in again.gates if gate.name not in known]:
        yield f"The verdict is by a version without the gate {', '.join(later)}; run `mens gate` again."
    elif again != receipt:
        yield "The documents lead to a different verdict than the receipt; run the gate again."


def _find_reasons_against_override(
    override: Override, verdict: Verdict, adapter: Adapter, history: Sequence[HistoryEvent]
) -> Iterator[str]:
    if override.adapter_sha256 != adapter.digest:
        yield "The override is for another adapter; sign one for this adapter."
    if override.receipt_sha256 != verdict.gate.outputs[RECEIPT]:
        yield "The override is for another verdict; sign one for this verdict."
    if any(event.override_sha256 == override.sha256 for event in history):
        yield "The override was already used; sign another one."
    withdrawals = (e.timestamp_unix for e in history if e.withdrawn_sha256 == override.adapter_sha256)
    if override.timestamp_unix < max(withdrawals, default=0):
        yield "The override was signed before a rollback took the adapter out of use; sign another one."


def _refuse_changed(champion: Artifact) -> None:
    changed = champion.find_changed()
    if changed or adapter_digest(champion.path) != adapter_sha256_of(champion):
        what = ", ".join(changed) or f"files in {ADAPTER}"
        advice = f"Remove {champion.path}, and promote the run again."
        raise RefusedError(f"champion {champion.key[:12]}: changed since it was promoted: {what}. {advice}")


def _store(verdict: Verdict, adapter: Adapter, store: ArtifactStore, override: Override | None) -> Artifact:
    """Store the adapter with the documents of its verdict and its bill of materials, complete in one folder.

    The folder of the run may have changed since the adapter was opened, so the copies are hashed again.
    """
    gate, receipt = verdict.gate, verdict.receipt
    inputs = {"adapter_sha256": adapter.digest, "receipt_sha256": gate.outputs[RECEIPT]}
    if override is not None:
        inputs["override_sha256"] = override.sha256

    def write(folder: Path) -> dict[str, Any]:
        _copy(adapter.path / MANIFEST, folder, receipt.sources[MANIFEST])
        copy_folder(adapter.folder, folder / ADAPTER)
        copied = Adapter.open(folder)
        if copied.digest != adapter.digest:
            raise RefusedError(f"{adapter.folder}: changed while it was copied. {_ADVICE}")
        shutil.copy2(adapter.path / TELEMETRY, folder / TELEMETRY)  # for people; no verdict reads it
        for name in DOCUMENTS:
            _copy(gate.path / name, folder, gate.outputs[name])
        if override is not None:
            (folder / OVERRIDE).write_text(override.model_dump_json(indent=2) + "\n", encoding="utf-8")
        write_bill(copied, store, receipt.timestamp_unix)
        return {}

    kind, parents = Kind.PROMOTED_ADAPTER, (gate, *store.holding(adapter.path))
    champion, is_reused = store.build(kind, *add_signature(store, kind, inputs, write), parents)
    if is_reused:
        _refuse_changed(champion)
    return champion


def _copy(source: Path, folder: Path, sha256: str | None) -> None:
    copy = Path(shutil.copy2(source, folder / source.name))
    if digest_of(copy) != sha256:
        raise RefusedError(f"{source}: changed while it was copied. {_ADVICE}")
