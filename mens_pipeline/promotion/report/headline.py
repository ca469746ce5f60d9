"""The headline of a report: the verdict in words, with a row for each gate."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mens_pipeline.evaluation.results import EvalResults
from mens_pipeline.promotion.gate import GATES
from mens_pipeline.promotion.policy import GateOutcome, GateStatus
from mens_pipeline.promotion.receipt import Receipt
from mens_pipeline.promotion.report.table import Tone

_BRACKETS: Final = re.compile(r" \([^()]*\)")


@dataclass(frozen=True, slots=True)
class GateRow:
    """One gate of the verdict.

    Attributes:
        word: Its outcome: `passes`, `refuses`, `cannot tell`, `warns`.
    """

    title: str
    word: str
    tone: Tone
    message: str
    measured: float | None
    required: float | None

    @property
    def sentence(self) -> str:
        """The message in a sentence, without intervals and probabilities."""
        return _BRACKETS.sub("", self.message).split(";")[0]


@dataclass(frozen=True, slots=True)
class Headline:
    """The verdict.

    Attributes:
        gates: Those that refuse first, then those that cannot tell, those that warn, and the others.
    """

    title: str
    tone: Tone
    sentence: str
    gates: tuple[GateRow, ...] = ()


def headline(results: EvalResults, receipt: Receipt | None) -> Headline:
    """Return the headline for the verdict on an adapter.

    Returns:
        `No verdict yet` also where the receipt is about other models, prompts or another adapter.
    """
    if receipt is None:
        return Headline("No verdict yet", Tone.OPEN, "No gate has looked at these figures; nothing may be promoted.")
    if receipt.subject is not None and receipt.subject != results.subject:
        other = receipt.subject.adapter_sha256[:12]
        sentence = f"The receipt at hand is of other models, prompts or adapter {other}; it says nothing of these."
        return Headline("No verdict yet", Tone.OPEN, sentence)
    gates = gate_rows(receipt.gates)
    num_refusing = sum(row.tone is Tone.BAD for row in gates)
    num_open = sum(row.tone is Tone.OPEN for row in gates)
    num_warning = sum(row.tone is Tone.WARN for row in gates)
    warnings = (
        f" {_format_count(num_warning, 'gate')} {'warns' if num_warning == 1 else 'warn'}." if num_warning else ""
    )
    tried = f" It is the {receipt.tried}." if receipt.tried else ""
    if receipt.overall_passed:
        sentence = f"No gate of the policy {receipt.policy} stands in its way.{tried}{warnings}"
        return Headline("Good enough to promote", Tone.GOOD, sentence, gates)
    refuse = "refuses" if num_refusing == 1 else "refuse"
    if not num_refusing:
        cannot = f"{_format_count(num_open, 'gate')} of the policy {receipt.policy} cannot tell yet"
        sentence = f"{cannot}: the eval suite was too small for a model so near to its threshold.{tried}{warnings}"
        return Headline("Undecided, not promoted", Tone.OPEN, sentence, gates)
    sentence = f"{_format_count(num_refusing, 'gate')} of the policy {receipt.policy} {refuse} it.{tried}{warnings}"
    return Headline("Refused", Tone.BAD, sentence, gates)


def gate_rows(gates: Iterable[GateOutcome]) -> tuple[GateRow, ...]:
    """Return a row for each gate: those that refuse first, then those that cannot tell, those that warn, the others."""
    return tuple(sorted(map(_row, gates), key=lambda row: _ORDER[row.tone]))


_ORDER: Final = {Tone.BAD: 0, Tone.OPEN: 1, Tone.WARN: 2, Tone.GOOD: 3}


def _row(gate: GateOutcome) -> GateRow:
    if gate.passed:
        word, tone = "passes", Tone.GOOD
    elif not gate.block:
        word, tone = "warns", Tone.WARN
    elif gate.status is GateStatus.UNDECIDED:
        word, tone = "cannot tell", Tone.OPEN
    else:
        word, tone = "refuses", Tone.BAD
    return GateRow(GATES[gate.name].title, word, tone, gate.message, gate.measured, gate.required)


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
