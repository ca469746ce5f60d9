"""The verdict in plain words, for the head of the page."""

from dataclasses import dataclass
from typing import Final

from mens_pipeline.evaluation.results import EvalResults
from mens_pipeline.promotion.gate import GateOutcome, GateStatus
from mens_pipeline.promotion.policy import GateName
from mens_pipeline.promotion.receipt import Receipt
from mens_pipeline.promotion.report.table import Tone

TITLES: Final = {
    GateName.PARSE_RATE: "Parse rate",
    GateName.RESOLVE_RATE: "Resolve rate",
    GateName.FALLBACK_PARSE_RATE: "All that is served is Vox",
    GateName.EXAM_SIZE: "The exam is large enough",
    GateName.COVERAGE: "Coverage of constructs",
    GateName.BENCHMARK: "Benchmark",
    GateName.TEST_RATE: "Hidden tests",
    GateName.ASKED_SHARE: "Most of the exam was asked",
    GateName.GAIN_OVER_BASE: "Better than the base",
    GateName.TEST_GAIN: "Passes more hidden tests than the base",
    GateName.REGRESSION: "No worse than the champion",
    GateName.ANTI_STUB: "Few stubs",
    GateName.STOP_RATE: "Answers end",
    GateName.SUPERVISED_RATIO: "Enough tokens carry the loss",
    GateName.TRUNCATION: "Few rows too long",
    GateName.THROUGHPUT: "Speed of training",
}
"""Gate -> what it asks for, for people."""


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
        `Not judged yet` as well where the receipt is of something else: it says nothing of this adapter.
    """
    if receipt is None:
        return Headline("Not judged yet", Tone.OPEN, "No gate has looked at these figures; nothing may be promoted.")
    if receipt.subject is not None and receipt.subject != results.subject:
        other = receipt.subject.adapter_sha256[:12]
        sentence = f"The receipt at hand is of other models, prompts or adapter {other}; it says nothing of these."
        return Headline("Not judged yet", Tone.OPEN, sentence)
    gates = tuple(sorted(map(_row, receipt.gates), key=lambda row: _ORDER[row.tone]))
    num_refusing = sum(row.tone is Tone.BAD for row in gates)
    num_open = sum(row.tone is Tone.OPEN for row in gates)
    num_warning = sum(row.tone is Tone.WARN for row in gates)
    warnings = f" {_counted(num_warning, 'gate')} {'warns' if num_warning == 1 else 'warn'}." if num_warning else ""
    tried = f" It is the {receipt.tried}." if receipt.tried else ""
    if receipt.overall_passed:
        sentence = f"No gate of the policy {receipt.policy} stands in its way.{tried}{warnings}"
        return Headline("Good enough to promote", Tone.GOOD, sentence, gates)
    refuse = "refuses" if num_refusing == 1 else "refuse"
    if not num_refusing:
        cannot = f"{_counted(num_open, 'gate')} of the policy {receipt.policy} cannot tell yet"
        sentence = f"{cannot}: the exam was too small for a model so near to its threshold.{tried}{warnings}"
        return Headline("Undecided, not promoted", Tone.OPEN, sentence, gates)
    sentence = f"{_counted(num_refusing, 'gate')} of the policy {receipt.policy} {refuse} it.{tried}{warnings}"
    return Headline("Refused", Tone.BAD, sentence, gates)


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
    return GateRow(TITLES[gate.name], word, tone, gate.message)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
