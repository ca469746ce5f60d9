"""The basis of a verdict, then and now: each difference is a reason not to promote, with advice."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter, eq
from typing import Any, Final, NamedTuple

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import RESULTS
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.models.adapter import MANIFEST, Adapter
from mens_pipeline.promotion.gate import GateInputs
from mens_pipeline.promotion.history import find_baseline
from mens_pipeline.promotion.ledger import explain_lost, find_try
from mens_pipeline.promotion.policy import Thresholds
from mens_pipeline.promotion.receipt import PAGE, RECEIPT, Receipt, ordinal, read_inputs, receipt_in
from mens_pipeline.storage.signing import PRIVATE, explain_unsigned
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of

DOCUMENTS: Final = (RECEIPT, RESULTS, PAGE)
"""Documents in the folder of a verdict, copied next to the adapter that it promotes."""

_FLAGS: Final = {
    "max_new_tokens": "max_new_tokens (--max-tokens)",
    "num_samples": "num_samples (--samples)",
    "temperature": "temperature (--temperature)",
    "top_p": "top_p",
    "seed": "seed (--seed-base)",
    "syntax": "syntax (--decoding)",
}
"""Field of `Decoding` -> its usual name, with the option of `mens eval-local`."""


class Counted(NamedTuple):
    """Number of an evaluation on its eval suite, None if the ledger does not count it; and the id of the store."""

    attempt: int | None
    store_id: str | None


@dataclass(frozen=True, slots=True)
class Terms:
    """The conditions that an adapter must meet; hashes are SHA-256, hexadecimal.

    Attributes:
        benchmark: Hash of the benchmark; None if it is left out.
        decoding: How completions are drawn; None if the figures cannot be read.
        heldout: Hash of the held-out pairs; None if they are unknown, and `heldout_problem` says why.
        results: Hash of the newest figures.
    """

    thresholds: Thresholds
    is_benchmark_asked: bool
    benchmark: str | None
    decoding: Decoding | None
    heldout: str | None
    results: str | None
    heldout_problem: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict of the store with its receipt and its documents, each read once."""

    gate: Artifact
    receipt: Receipt
    inputs: GateInputs

    @classmethod
    def open(cls, gate: Artifact, store: ArtifactStore) -> "Verdict":
        """Read a verdict; `RefusedError` if it was changed, is not signed, or its receipt cannot be read."""
        changed = (*gate.find_changed(), *(name for name in DOCUMENTS if name not in gate.outputs))
        place = f"verdict {gate.key[:12]}"
        if changed:
            raise RefusedError(f"{place}: changed since it was written: {', '.join(changed)}; run the gate again.")
        if problem := explain_unsigned(gate, store):
            raise RefusedError(f"{place} does not count: {problem}; run the gate again with {PRIVATE}.")
        receipt = receipt_in(gate.path)
        documents = (gate.file(RESULTS), gate.file(MANIFEST))
        inputs = read_inputs(*documents, receipt.champion_key, is_benchmark_asked=receipt.is_benchmark_asked)
        return cls(gate, receipt, inputs)


@dataclass(frozen=True, slots=True)
class VerdictBasis:
    """The basis of a verdict; hashes are SHA-256, hexadecimal.

    Attributes:
        adapter: Hash of the adapter; None for a verdict on figures that could not be read.
        base: Hash of the base model; None in the same case.
        manifest: Hash of the training manifest; None if it is missing.
        copied_results: Hash of the figures in the folder of the verdict.
        champion: Key of the adapter that it is compared with; None without one.
        counted: How the ledger counts the evaluation; None for figures that could not be read.
    """

    terms: Terms
    adapter: str | None
    base: str | None
    manifest: str | None
    copied_results: str | None
    champion: str | None
    counted: Counted | None

    @classmethod
    def then(cls, verdict: Verdict) -> "VerdictBasis":
        """Return the basis of a verdict at the time it was given."""
        receipt, results = verdict.receipt, verdict.inputs.results
        subject, sources = receipt.subject, receipt.sources
        terms = Terms(
            thresholds=receipt.thresholds,
            is_benchmark_asked=receipt.is_benchmark_asked,
            benchmark=subject.benchmark_sha256 if subject is not None else None,
            decoding=results.decoding if results is not None else None,
            heldout=subject.heldout_sha256 if subject is not None else None,
            results=sources.get(RESULTS),
        )
        return cls(
            terms,
            adapter=subject.adapter_sha256 if subject is not None else None,
            base=subject.base_sha256 if subject is not None else None,
            manifest=sources.get(MANIFEST),
            copied_results=sources.get(RESULTS),
            champion=receipt.champion_key,
            counted=Counted(results.progress.attempt, results.progress.store_id) if results is not None else None,
        )

    @classmethod
    def now(cls, verdict: Verdict, adapter: Adapter, terms: Terms, store: ArtifactStore) -> "VerdictBasis":
        """Return the basis that a verdict on an adapter would have now."""
        results, subject = verdict.inputs.results, verdict.receipt.subject
        baseline = find_baseline(store, subject.adapter_sha256) if subject is not None else None
        entry, store_id = find_try(store, results.progress.try_sha256 if results is not None else None)
        return cls(
            terms,
            adapter=adapter.digest,
            base=adapter.manifest.base_model.sha256,
            manifest=digest_of(adapter.path / MANIFEST),
            copied_results=verdict.gate.outputs[RESULTS],
            champion=baseline.key if baseline is not None else None,
            counted=Counted(entry.attempt if entry is not None else None, store_id),
        )


def find_differences(verdict: Verdict, then: VerdictBasis, now: VerdictBasis) -> Iterator[str]:
    """Yield a sentence with advice for each condition that no longer holds.

    A verdict on unreadable figures names no adapter, so its subject is not compared.
    """
    for field, holds, sentence in _ALWAYS if then.adapter is None else (*_ALWAYS, *_OF_SUBJECT):
        before, present = (attrgetter(field)(basis) for basis in (then, now))
        if holds(before, present):
            continue
        if callable(sentence):
            yield sentence(before, present)
        else:
            yield sentence.format(then=_short(before), now=_short(present), policy=verdict.receipt.policy)


def _short(value: object) -> str:
    return str(value or "unknown")[:12]


def _is_unknown_or_equal(then: str | None, now: str | None) -> bool:
    return now is None or then == now


def _demands_as_much(then: Thresholds, now: Thresholds) -> bool:
    is_same = then.model_copy(update={"min_benchmark": now.min_benchmark}) == now
    return is_same and then.min_benchmark >= now.min_benchmark


def _changes(then: Decoding, now: Decoding) -> list[str]:
    before, present = dict(then), dict(now)
    return [
        f"{what} was {_format(before[name])}, now {_format(present[name])}"
        for name, what in _FLAGS.items()
        if before[name] != present[name]
    ]


def _format(value: float | str) -> str:
    return str(value) if isinstance(value, bool | str) else f"{value:g}"


def _other_decoding(then: Decoding, now: Decoding) -> str:
    changes = ", ".join(_changes(then, now))
    return f"It was evaluated under other settings than those of config/evaluation.yaml: {changes}; evaluate again."


def _other_attempt(then: Counted, now: Counted) -> str:
    if now.attempt is None or then.attempt is None:
        found = explain_lost(then.store_id, now.store_id)
    else:
        number, before = ordinal(now.attempt), ordinal(then.attempt)
        counts = f"counts it as the {number} evaluation on its eval suite, but it was evaluated as the {before}"
        found = f"{counts}; evaluate again here"
    return f"The ledger of this store {found}."


_Row = tuple[str, Callable[[Any, Any], bool], str | Callable[[Any, Any], str]]

_ALWAYS: Final[tuple[_Row, ...]] = (
    ("adapter", eq, "The verdict is for adapter {then}, but this is {now}; evaluate this one."),
    ("champion", eq, "The champion has changed since it was compared; evaluate again."),
    ("terms.thresholds", _demands_as_much, "The policy {policy} has changed since; run the gate again."),
    ("terms.is_benchmark_asked", lambda then, now: then or not now, "It excluded the benchmark; run the gate again."),
    ("terms.results", eq, "It was evaluated again since the verdict; run the gate again."),
    ("manifest", eq, f"{MANIFEST} has changed since the verdict; run the gate again."),
    ("copied_results", eq, f"{RESULTS} has changed since the verdict; run the gate again."),
)
"""Condition, whether it still holds, and advice if it does not."""

_OF_SUBJECT: Final[tuple[_Row, ...]] = (
    ("terms.heldout", _is_unknown_or_equal, "The held-out set has changed since it was evaluated; evaluate again."),
    ("terms.benchmark", _is_unknown_or_equal, "The benchmark has changed since it was evaluated; evaluate again."),
    ("terms.decoding", lambda then, now: not (then and now and _changes(then, now)), _other_decoding),
    ("base", eq, "The verdict is for base {then}, but the run was trained on {now}; evaluate again."),
    ("counted", lambda then, now: then is None or then.attempt == now.attempt, _other_attempt),
)
"""More conditions for verdicts on figures that could be read."""
