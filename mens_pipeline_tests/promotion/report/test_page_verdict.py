"""The verdict at the head of the page for people."""

import re
from operator import itemgetter

from mens_pipeline.promotion.policy import GateName, GateStatus
from mens_pipeline.promotion.receipt import Receipt
from mens_pipeline.promotion.report.page import report_page
from mens_pipeline_tests.evaluation.scored import SUBJECT, evaluation, scored_completions
from mens_pipeline_tests.every import every
from mens_pipeline_tests.promotion.verdicts import receipt_of, said

_OTHER = SUBJECT.model_copy(update={"adapter_sha256": "f" * 64})
_SMALL = "the eval suite was too small for a model so near the threshold"
_TRIED = "evaluation on this eval suite"


def _page(receipt: Receipt | None) -> str:
    evaluated = evaluation()
    return report_page(evaluated.results, scored_completions(evaluated), {}, receipt)


_COVERED, _UNCOVERED = said(GateName.COVERAGE, passed=True), said(GateName.COVERAGE, passed=False)
_SLOW = said(GateName.THROUGHPUT, passed=False, block=False)
_UNDECIDED = said(GateName.PARSE_RATE, passed=False, status=GateStatus.UNDECIDED)
_OTHERS = "The receipt is for other models or prompts, or adapter ffffffffffff; it does not apply to these."
_REFUSES = "1 gate of the policy ci refuses it."
_FOUR = (
    _UNCOVERED,
    said(GateName.PARSE_RATE, passed=False),
    said(GateName.STOP_RATE, passed=False, block=False),
    _SLOW,
)


@every(
    "case",
    [
        (None, "No verdict yet", "No gate has checked these figures; no promotion is possible."),
        (receipt_of(_COVERED), "Good enough to promote", "No gate of the policy ci refuses it."),
        (receipt_of(_COVERED, _SLOW), "Good enough to promote", "No gate of the policy ci refuses it. 1 gate warns."),
        (receipt_of(_UNCOVERED, said(GateName.PARSE_RATE, passed=True)), "Refused", _REFUSES),
        (receipt_of(*_FOUR), "Refused", "2 gates of the policy ci refuse it. 2 gates warn."),
        (receipt_of(_COVERED, subject=_OTHER), "No verdict yet", _OTHERS),
        (
            receipt_of(_UNDECIDED, _SLOW, attempt=3),
            "Undecided, not promoted",
            f"1 gate of the policy ci could not decide: {_SMALL}. It is the third {_TRIED}. 1 gate warns.",
        ),
        (receipt_of(_UNDECIDED, _UNCOVERED), "Refused", _REFUSES),
        (receipt_of(_UNCOVERED, subject=None), "Refused", _REFUSES),
    ],
    ids=itemgetter(1, 2),
)
def test_the_verdict_comes_first(case: tuple[Receipt | None, str, str]) -> None:
    receipt, title, sentence = case
    page = _page(receipt=receipt)

    assert re.findall(r"<h1>(.*)</h1>\n  <p>(.*)</p>", page) == [(title, sentence)]
    assert f"<title>{title}: adapter adadadadadad</title>" in page


def test_the_reasons_come_before_passed_gates() -> None:
    gates = (
        said(GateName.PARSE_RATE, passed=True),
        said(GateName.THROUGHPUT, passed=False, block=False),
        said(GateName.STOP_RATE, passed=False, status=GateStatus.UNDECIDED),
        said(GateName.COVERAGE, passed=False, message="shows 2/30 (6.7 %), floor 50.0 %; 9 to go"),
    )
    page = _page(receipt=receipt_of(*gates))

    assert re.findall(r'class="word">([\w ]+)<', page) == ["refuses", "undecided", "warns", "passes"]
    assert (
        "<summary><strong>Coverage of constructs</strong>: shows 2/30, floor 50.0\u00a0%.</summary>"
        "shows 2/30 (6.7\u00a0%), floor 50.0\u00a0%; 9 to go." in page
    )


def test_every_gate_has_a_title() -> None:
    page = _page(receipt=receipt_of(*(said(name, passed=True) for name in GateName)))

    assert page.count('class="word">passes<') == len(GateName)
