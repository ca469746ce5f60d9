"""The verdict at the head of the page for people."""

import re

import pytest

from mens_pipeline.promotion.policy import GateName, GateStatus
from mens_pipeline.promotion.receipt import Receipt
from mens_pipeline.promotion.report.page import report_page
from mens_pipeline_tests.evaluation.scored import SUBJECT, evaluation, scored_completions
from mens_pipeline_tests.promotion.verdicts import receipt_of, said

_OTHER = SUBJECT.model_copy(update={"adapter_sha256": "f" * 64})
_SMALL = "the eval suite was too small for a model so near to its threshold"
_TRIED = "evaluation on this eval suite"


def _page(receipt: Receipt | None) -> str:
    evaluated = evaluation()
    return report_page(evaluated.results, scored_completions(evaluated), {}, receipt)


@pytest.mark.parametrize(
    ("receipt", "title", "sentence"),
    [
        (None, "No verdict yet", "No gate has looked at these figures; nothing may be promoted."),
        (
            receipt_of(said(GateName.COVERAGE, passed=True)),
            "Good enough to promote",
            "No gate of the policy ci refuses it.",
        ),
        (
            receipt_of(said(GateName.COVERAGE, passed=True), said(GateName.THROUGHPUT, passed=False, block=False)),
            "Good enough to promote",
            "No gate of the policy ci refuses it. 1 gate warns.",
        ),
        (
            receipt_of(said(GateName.COVERAGE, passed=False), said(GateName.PARSE_RATE, passed=True)),
            "Refused",
            "1 gate of the policy ci refuses it.",
        ),
        (
            receipt_of(
                *(said(name, passed=False) for name in (GateName.COVERAGE, GateName.PARSE_RATE)),
                *(said(name, passed=False, block=False) for name in (GateName.STOP_RATE, GateName.THROUGHPUT)),
            ),
            "Refused",
            "2 gates of the policy ci refuse it. 2 gates warn.",
        ),
        (
            receipt_of(
                said(GateName.COVERAGE, passed=True),
                subject=_OTHER,
            ),
            "No verdict yet",
            "The receipt at hand is of other models, prompts or adapter ffffffffffff; it says nothing of these.",
        ),
        (
            receipt_of(
                said(GateName.PARSE_RATE, passed=False, status=GateStatus.UNDECIDED),
                said(GateName.THROUGHPUT, passed=False, block=False),
                attempt=3,
            ),
            "Undecided, not promoted",
            f"1 gate of the policy ci cannot tell yet: {_SMALL}. It is the third {_TRIED}. 1 gate warns.",
        ),
        (
            receipt_of(
                said(GateName.PARSE_RATE, passed=False, status=GateStatus.UNDECIDED),
                said(GateName.COVERAGE, passed=False),
            ),
            "Refused",
            "1 gate of the policy ci refuses it.",
        ),
        (
            receipt_of(said(GateName.COVERAGE, passed=False), subject=None),
            "Refused",
            "1 gate of the policy ci refuses it.",
        ),
    ],
    ids=[
        "none",
        "passes",
        "passes with a warning",
        "refused",
        "refused twice",
        "of another",
        "undecided",
        "both",
        "unreadable",
    ],
)
def test_the_verdict_stands_first(receipt: Receipt | None, title: str, sentence: str) -> None:
    page = _page(receipt=receipt)

    assert re.findall(r"<h1>(.*)</h1>\n  <p>(.*)</p>", page) == [(title, sentence)]
    assert f"<title>{title}: adapter adadadadadad</title>" in page


def test_the_reasons_come_before_what_passes() -> None:
    gates = (
        said(GateName.PARSE_RATE, passed=True),
        said(GateName.THROUGHPUT, passed=False, block=False),
        said(GateName.STOP_RATE, passed=False, status=GateStatus.UNDECIDED),
        said(GateName.COVERAGE, passed=False, message="shows 2/30 (6.7 %), floor 50.0 %; 9 to go"),
    )
    page = _page(receipt=receipt_of(*gates))

    assert re.findall(r'class="word">([\w ]+)<', page) == ["refuses", "cannot tell", "warns", "passes"]
    assert (
        "<summary><strong>Coverage of constructs</strong>: shows 2/30, floor 50.0\u00a0%.</summary>"
        "shows 2/30 (6.7\u00a0%), floor 50.0\u00a0%; 9 to go." in page
    )


def test_every_gate_has_a_title() -> None:
    page = _page(receipt=receipt_of(*(said(name, passed=True) for name in GateName)))

    assert page.count('class="word">passes<') == len(GateName)
