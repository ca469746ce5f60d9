"""From a verdict to the champion: refused unless the verdict passed, and is about this very adapter, here and now."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import RESULTS, Subject
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.inference.prepare import adapter_digest
from mens_pipeline.promotion.benchmark_gate import PAGE, receipt_in
from mens_pipeline.promotion.gate import GateStatus
from mens_pipeline.promotion.history import (
    KIND,
    HistoryEvent,
    baseline_of,
    champion_of,
    changing,
    history_of,
    record,
    usable_before,
    withdrawn,
)
from mens_pipeline.promotion.override import OVERRIDE, Override
from mens_pipeline.promotion.policy import GateName, Thresholds
from mens_pipeline.promotion.receipt import (
    RECEIPT,
    Judged,
    Receipt,
    digest_of_thresholds,
    gate_of,
    read_json,
    read_results,
    verdict_on,
)
from mens_pipeline.storage.signing import PRIVATE, signed, unsigned
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of, key_of
from mens_pipeline.training.job import ADAPTER
from mens_pipeline.training.manifest import MANIFEST
from mens_pipeline.training.telemetry_log import FILE

_ADVICE: Final = "Judge the run again."

_OF_GATE: Final = (RECEIPT, RESULTS, PAGE)

_FLAGS: Final = {
    "max_new_tokens": "max_new_tokens (--max-tokens)",
    "num_samples": "num_samples (--samples)",
    "temperature": "temperature (--temperature)",
    "top_p": "top_p",
    "seed": "seed (--seed-base)",
    "syntax": "syntax (--decoding)",
    "names": "names",
}
"""Field of `Decoding` -> what people call it, with the option of `mens eval-local`."""


@dataclass(frozen=True, slots=True)
class CurrentState:
    """Current state, to tell whether a verdict is out of date.

    Attributes:
        results_sha256: Of the figures of the newest evaluation.
        heldout_sha256: Of the held-out pairs; None when they cannot be told.
        heldout_problem: Then, why.
    """

    thresholds: Thresholds
    results_sha256: str
    heldout_sha256: str | None
    heldout_problem: str
    benchmark_sha256: str | None
    is_benchmark_asked: bool
    decoding: Decoding


@dataclass(frozen=True, slots=True)
class Promotion:
    """Champion after a promotion, the key of the one before, and whether that was another one."""

    champion: Artifact
    previous: str | None
    changed: bool


def promote(  # noqa: PLR0913 - all that a promotion rests on
    gate: Artifact,
    run: Path,
    store: ArtifactStore,
    present: CurrentState,
    *,
    now: int,
    override: Override | None = None,
) -> Promotion:
    """Make an adapter the champion.

    A signed override takes the place of a passing verdict; it mends nothing else.

    Raises:
        RefusedError: The verdict does not allow it; the message names every reason.
        ConfigurationError: The store cannot be written, or there is no key to sign with although one checks.
    """
    with changing(store) as seen:
        reasons = [*reasons_against(gate, run, store, present, is_overridden=override is not None)]
        if override is not None:
            reasons += _objections_to_override(override, gate, run, history_of(store))
        if reasons:
            raise RefusedError(f"{run}: not promoted. {' '.join(reasons)}")
        receipt = receipt_in(gate.path)
        adapter_sha256 = _judged_adapter(receipt)
        before = champion_of(store)
        is_same = before is not None and before.manifest["inputs"]["adapter_sha256"] == adapter_sha256
        if before is not None and is_same and unsigned(before, store) is None:
            return Promotion(before, before.key, changed=False)
        champion = _stored(gate, receipt, run, store, override)
        _refuse_changed(champion)
        event = HistoryEvent(
            timestamp_unix=now,
            action="promote" if override is None else "override",
            key=champion.key,
            previous=before.key if before is not None else None,
            adapter_sha256=adapter_sha256,
            override_sha256=key_of(override.model_dump()) if override is not None else None,
            reason=override.reason if override is not None else f"the gate passed: {_evidence(receipt)}",
        )
        record(store, event, champion, seen)
        return Promotion(champion, event.previous, changed=True)


def _judged_adapter(receipt: Receipt) -> str:
    assert receipt.subject is not None, "or there was an objection"  # noqa: S101 - our own impossibility
    return receipt.subject.adapter_sha256


def _evidence(receipt: Receipt) -> str:
    """Format policy, attempt and parse rate that an adapter was judged with."""
    return f"policy {receipt.policy}, {receipt.tried}, {gate_of(receipt, GateName.PARSE_RATE).message}"


def roll_back(store: ArtifactStore, *, now: int, reason: str) -> Promotion:
    """Make an adapter that was in use before the champion again; the present one is not promoted again by itself.

    The one before is passed over when it has the weights of the present one, or was taken out of use itself.

    Raises:
        RefusedError: There is no champion, none before it that may be used, or that one is gone, was changed or is not
            signed.
    """
    with changing(store) as seen:
        present = champion_of(store)
        if present is None:
            raise RefusedError(f"{store.root / KIND}: there is no champion to roll back. Promote an adapter first.")
        previous = usable_before(store, present)
        found = store.get(KIND, previous) if previous is not None else None
        if found is None:
            detail = f"the one before, {previous[:12]}, is gone" if previous else "no other one before it may be used"
            raise RefusedError(f"champion {present.key[:12]}: {detail}. Promote another adapter instead.")
        _refuse_changed(found)
        if problem := unsigned(found, store):
            raise RefusedError(f"champion {found.key[:12]}: {problem}. Judge and promote its run again with the key.")
        event = HistoryEvent(
            timestamp_unix=now,
            action="rollback",
            key=found.key,
            previous=present.key,
            adapter_sha256=found.manifest["inputs"]["adapter_sha256"],
            withdrawn_sha256=present.manifest["inputs"]["adapter_sha256"],
            reason=reason,
        )
        record(store, event, found, seen)
        return Promotion(found, present.key, changed=True)


def reasons_against(
    gate: Artifact, run: Path, store: ArtifactStore, present: CurrentState, *, is_overridden: bool = False
) -> Iterator[str]:
    """Return why a verdict does not make an adapter the champion, a sentence each; none when it does.

    Of one that is overridden, neither a failing verdict nor a held-out set that cannot be told is a reason.
    """
    changed = (*gate.changed(), *(name for name in _OF_GATE if name not in gate.manifest["outputs"]))
    if changed:
        yield f"Tampered with since it was written: {', '.join(changed)}; run the gate again."
        return
    if problem := unsigned(gate, store):
        yield f"The verdict does not count: {problem}; run the gate again with {PRIVATE}."
        return
    try:
        receipt = receipt_in(gate.path)
    except RefusedError as error:
        yield f"The receipt cannot be read ({error}); run the gate again."
        return
    found = adapter_digest(run)
    judged = receipt.subject.adapter_sha256 if receipt.subject is not None else "nothing"
    if found != judged:
        yield f"The verdict is about adapter {judged[:12]}, this is {found[:12]}; evaluate this one."
    elif found in withdrawn(store) and not is_overridden:
        yield "It was taken out of use by a rollback; sign an override to promote it again."
    if present.heldout_sha256 is None and not is_overridden:
        problem = f"{present.heldout_problem} Or sign an override."
        yield f"Nothing says that it was judged by what was held out of its training: {problem}"
    yield from _out_of_date(receipt, gate, run, store, present)
    yield from _not_reproduced(receipt, gate)
    if not receipt.overall_passed and not is_overridden:
        word = "failed" if receipt.status is GateStatus.FAILED else "cannot tell yet"
        yield f"The gate {word}: {'; '.join(receipt.reasons)}."


def _out_of_date(
    receipt: Receipt, gate: Artifact, run: Path, store: ArtifactStore, present: CurrentState
) -> Iterator[str]:
    """Yield a reason for everything that has changed since the verdict."""
    subject = receipt.subject
    baseline = baseline_of(store, subject.adapter_sha256) if subject is not None else None
    if receipt.champion_key != (baseline.key if baseline is not None else None):
        yield "Another champion is in use than the one it was compared with; evaluate again."
    if not _demands_as_much(receipt.thresholds, present.thresholds):
        yield f"The policy {receipt.policy} has changed since; run the gate again."
    if present.is_benchmark_asked and not receipt.is_benchmark_asked:
        yield "The benchmark had no say; run the gate again."
    if receipt.sources.get(RESULTS) != present.results_sha256:
        yield "It was evaluated again since the verdict; run the gate again."
    manifest = run / MANIFEST
    if not manifest.is_file() or digest_of(manifest) != receipt.sources.get(MANIFEST):
        yield f"{MANIFEST} is not the one that was judged; run the gate again."
    if digest_of(gate.path / RESULTS) != receipt.sources.get(RESULTS):
        yield f"{RESULTS} is not the one that was judged; run the gate again."
    if subject is not None:
        yield from _judged_otherwise(subject, gate, present)


def _judged_otherwise(subject: Subject, gate: Artifact, present: CurrentState) -> Iterator[str]:
    """List the differences between the conditions of a verdict and the present ones."""
    for what, then, now in (
        ("held-out set", subject.heldout_sha256, present.heldout_sha256),
        ("benchmark", subject.benchmark_sha256, present.benchmark_sha256),
    ):
        if now is not None and then != now:
            yield f"The {what} is not the one it was judged by; evaluate again."
    yield from _answered_otherwise(gate, present.decoding)
    base = _base_sha256(gate.path / MANIFEST)
    judged = subject.base_sha256
    if base != judged:
        yield f"The verdict is about base {judged[:12]}, the run was trained on {base[:12]}; evaluate again."


def _answered_otherwise(gate: Artifact, present: Decoding) -> Iterator[str]:
    """Return whether answers were drawn in another way than config/evaluation.yaml says: that is another exam."""
    results = read_results(gate.path / RESULTS)
    if results is None:
        return
    unimportant = {"batch_tokens"}
    then, now = results.decoding.model_dump(exclude=unimportant), present.model_dump(exclude=unimportant)
    changes = [
        f"{_FLAGS[name]} was {_told(then[name])}, it is {_told(now[name])}" for name in now if then[name] != now[name]
    ]
    if changes:
        yield f"It answered in another way than config/evaluation.yaml says: {', '.join(changes)}; evaluate again."


def _told(value: float | str) -> str:
    """Return a setting of `Decoding` as people write it."""
    return str(value) if isinstance(value, bool | str) else f"{value:g}"


def _base_sha256(manifest: Path) -> str:
    """Return the hash of the base model that a run was trained on; `nothing` when its manifest does not say."""
    content, _ = read_json(manifest)
    base = content.get("base_model") if content is not None else None
    found = base.get("sha256") if isinstance(base, dict) else None
    return found if isinstance(found, str) else "nothing"


def _demands_as_much(judged_by: Thresholds, present: Thresholds) -> bool:
    """Return whether a verdict was made with the present thresholds; a run may raise that of the benchmark."""
    same = judged_by.model_copy(update={"min_benchmark": present.min_benchmark})
    is_same = digest_of_thresholds(same) == digest_of_thresholds(present)
    return is_same and judged_by.min_benchmark >= present.min_benchmark


def _not_reproduced(receipt: Receipt, gate: Artifact) -> Iterator[str]:
    """Return whether the documents say what the receipt says they say."""
    again = verdict_on(
        Judged(gate.path / RESULTS, gate.path / MANIFEST),
        receipt.policy,
        receipt.thresholds,
        receipt.champion_key,
        is_benchmark_asked=receipt.is_benchmark_asked,
        strict=receipt.strict,
        now=receipt.timestamp_unix,
        run_dir=Path(receipt.run_dir),
    )
    if again != receipt:
        yield "The documents give another verdict than the receipt; run the gate again."


def _objections_to_override(
    override: Override, gate: Artifact, run: Path, history: Sequence[HistoryEvent]
) -> Iterator[str]:
    """Return why a signed record does not count; it is used once, and knew of every withdrawal of its adapter."""
    if override.adapter_sha256 != adapter_digest(run):
        yield "The override is for another adapter; sign one for this."
    if override.receipt_sha256 != digest_of(gate.path / RECEIPT):
        yield "The override is for another verdict; sign one for this."
    if any(event.override_sha256 == key_of(override.model_dump()) for event in history):
        yield "The override was used already; sign another one."
    withdrawals = (e.timestamp_unix for e in history if e.withdrawn_sha256 == override.adapter_sha256)
    if override.timestamp_unix < max(withdrawals, default=0):
        yield "The override was signed before a rollback took the adapter out of use; sign another one."


def _refuse_changed(champion: Artifact) -> None:
    """Check that a champion of an earlier day is still what was promoted then, and that nothing was added to it."""
    changed = champion.changed()
    if changed or adapter_digest(champion.path) != champion.manifest["inputs"]["adapter_sha256"]:
        what = ", ".join(changed) or f"files in {ADAPTER}"
        advice = f"Remove {champion.path}, and promote the run again."
        raise RefusedError(f"champion {champion.key[:12]}: changed since it was promoted: {what}. {advice}")


def _stored(gate: Artifact, receipt: Receipt, run: Path, store: ArtifactStore, override: Override | None) -> Artifact:
    """Store the adapter with the documents that it was judged by, complete in one folder.

    What was looked at in the folder of the run may be another thing by now, so it is the copies that are hashed.
    """
    inputs = {
        "adapter_sha256": _judged_adapter(receipt),
        "receipt_sha256": gate.manifest["outputs"][RECEIPT]["sha256"],
    }
    if override is not None:
        inputs["override_sha256"] = key_of(override.model_dump())

    def write(folder: Path) -> dict[str, Any]:
        shutil.copytree(run / ADAPTER, folder / ADAPTER, symlinks=True)
        if adapter_digest(folder) != inputs["adapter_sha256"]:
            raise RefusedError(f"{run / ADAPTER}: changed while it was copied. {_ADVICE}")
        # The telemetry is kept for people; no verdict is about it.
        shutil.copy2(run / FILE, folder / FILE)
        _copy(run / MANIFEST, folder, receipt.sources[MANIFEST])
        for name in _OF_GATE:
            _copy(gate.path / name, folder, gate.manifest["outputs"][name]["sha256"])
        if override is not None:
            (folder / OVERRIDE).write_text(override.model_dump_json(indent=2) + "\n", encoding="utf-8")
        return {}

    return store.built(KIND, *signed(store, KIND, inputs, write), (gate, *store.holding(run)))[0]


def _copy(source: Path, folder: Path, sha256: str | None) -> None:
    """Copy a file into a folder, and see that the copy is what was judged."""
    copy = Path(shutil.copy2(source, folder / source.name))
    if digest_of(copy) != sha256:
        raise RefusedError(f"{source}: changed while it was copied. {_ADVICE}")
