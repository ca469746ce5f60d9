"""What a verdict rests on and what holds now, side by side: each difference is a reason not to promote, with advice."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import eq
from typing import Any, Final, NamedTuple

from mens_pipeline.evaluation.results import RESULTS, EvalResults
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.models.adapter import MANIFEST
from mens_pipeline.promotion.ledger import explain_lost
from mens_pipeline.promotion.policy import Thresholds
from mens_pipeline.promotion.receipt import Receipt, digest_of_thresholds, ordinal

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


class Counted(NamedTuple):
    """Number of an evaluation on its eval suite, None where the ledger does not count it; and the id of the store."""

    attempt: int | None
    store_id: str | None


@dataclass(frozen=True, slots=True)
class Conditions:
    """All that a verdict rests on; hashes are SHA-256, hexadecimal.

    What has a default is of one adapter: of what holds now, the caller that promotes one gives the rest.

    Attributes:
        results: Of the figures of the newest evaluation.
        heldout: Of the held-out pairs; None where nobody knows them.
        heldout_problem: Then, why.
        policy: Name of the policy, for people; its thresholds are what is compared.
        adapter: Of the adapter; None for a verdict on figures that could not be read.
        champion: Key of the adapter that it is compared with; None for none.
        copied_results: Of the figures beside the verdict.
        manifest: Of the training manifest; None where it is missing.
        counted: How the ledger counts the evaluation; None for a verdict on figures that could not be read.
        base: Of the base model; None where the manifest does not tell.
    """

    thresholds: Thresholds
    is_benchmark_asked: bool
    results: str | None
    heldout: str | None
    benchmark: str | None
    decoding: Decoding | None
    heldout_problem: str = ""
    policy: str = ""
    adapter: str | None = None
    champion: str | None = None
    manifest: str | None = None
    copied_results: str | None = None
    base: str | None = None
    counted: Counted | None = None


def conditions_of(receipt: Receipt, results: EvalResults | None) -> Conditions:
    """Return what a verdict rests on, by its receipt and the figures that it is on."""
    subject = receipt.subject
    return Conditions(
        policy=receipt.policy,
        adapter=subject.adapter_sha256 if subject is not None else None,
        champion=receipt.champion_key,
        thresholds=receipt.thresholds,
        is_benchmark_asked=receipt.is_benchmark_asked,
        results=receipt.sources.get(RESULTS),
        manifest=receipt.sources.get(MANIFEST),
        copied_results=receipt.sources.get(RESULTS),
        heldout=subject.heldout_sha256 if subject is not None else None,
        benchmark=subject.benchmark_sha256 if subject is not None else None,
        decoding=results.decoding if results is not None else None,
        base=subject.base_sha256 if subject is not None else None,
        counted=Counted(results.progress.attempt, results.progress.store_id) if results is not None else None,
    )


def differences(then: Conditions, now: Conditions) -> Iterator[str]:
    """Yield a sentence with advice for each condition that no longer holds.

    What was evaluated is compared only where it could be read: a verdict on nothing is about no adapter to begin with.
    """
    for field, holds, sentence in _ALWAYS if then.adapter is None else (*_ALWAYS, *_OF_SUBJECT):
        before, present = getattr(then, field), getattr(now, field)
        if holds(before, present):
            continue
        if callable(sentence):
            yield sentence(before, present)
        else:
            yield sentence.format(then=_short(before), now=_short(present), policy=then.policy)


def _short(value: object) -> str:
    return str(value or "nothing")[:12]


def _is_unknown_or_equal(then: str | None, now: str | None) -> bool:
    return now is None or then == now


def _demands_as_much(evaluated_by: Thresholds, present: Thresholds) -> bool:
    """Return whether a verdict was made with the present thresholds; a run may raise that of the benchmark."""
    same = evaluated_by.model_copy(update={"min_benchmark": present.min_benchmark})
    is_same = digest_of_thresholds(same) == digest_of_thresholds(present)
    return is_same and evaluated_by.min_benchmark >= present.min_benchmark


def _changes(then: Decoding, now: Decoding) -> list[str]:
    before, present = dict(then), dict(now)
    return [
        f"{what} was {_format(before[name])}, it is {_format(present[name])}"
        for name, what in _FLAGS.items()
        if before[name] != present[name]
    ]


def _format(value: float | str) -> str:
    """Write a setting of `Decoding` as people do."""
    return str(value) if isinstance(value, bool | str) else f"{value:g}"


def _other_decoding(then: Decoding, now: Decoding) -> str:
    """Say how completions were drawn in another way: that is another eval suite."""
    changes = ", ".join(_changes(then, now))
    return f"Its completions were drawn in another way than config/evaluation.yaml says: {changes}; evaluate again."


def _other_attempt(then: Counted, now: Counted) -> str:
    if now.attempt is None or then.attempt is None:
        found = explain_lost(then.store_id, now.store_id)
    else:
        number, before = ordinal(now.attempt), ordinal(then.attempt)
        counts = f"counts it as the {number} evaluation on its eval suite, it was evaluated as the {before}"
        found = f"{counts}; evaluate again here"
    return f"The ledger of this store {found}."


_Row = tuple[str, Callable[[Any, Any], bool], str | Callable[[Any, Any], str]]

_ALWAYS: Final[tuple[_Row, ...]] = (
    ("adapter", eq, "The verdict is about adapter {then}, this is {now}; evaluate this one."),
    ("champion", eq, "Another champion is in use than the one it was compared with; evaluate again."),
    ("thresholds", _demands_as_much, "The policy {policy} has changed since; run the gate again."),
    ("is_benchmark_asked", lambda then, now: then or not now, "The benchmark had no say; run the gate again."),
    ("results", eq, "It was evaluated again since the verdict; run the gate again."),
    ("manifest", eq, f"{MANIFEST} is not the one of the verdict; run the gate again."),
    ("copied_results", eq, f"{RESULTS} is not the one of the verdict; run the gate again."),
)
"""Condition, whether it still holds, and what to do where it does not."""

_OF_SUBJECT: Final[tuple[_Row, ...]] = (
    ("heldout", _is_unknown_or_equal, "The held-out set is not the one it was evaluated on; evaluate again."),
    ("benchmark", _is_unknown_or_equal, "The benchmark is not the one it was evaluated on; evaluate again."),
    ("decoding", lambda then, now: not (then and now and _changes(then, now)), _other_decoding),
    ("base", eq, "The verdict is about base {then}, the run was trained on {now}; evaluate again."),
    ("counted", lambda then, now: then is None or then.attempt == now.attempt, _other_attempt),
)
"""Likewise, of figures that could be read."""
