"""The last lines of a run of the whole graph."""

from typing import Any

from mens_pipeline.cli.run_summary import summary_of

_TRAIN_SET = {"num_distinct": 2704, "reused": False}
_ADAPTER = {"num_updates": 150, "train/seconds": 450.0, "first_loss": 1.4, "last_loss": 0.6, "reused": True}
_RESULTS = {"heldout: parse rate": "80/112 (71.4 %), base 0/112 (0.0 %)", "missing_constructs": "form"}
_GATE = {"passed": False, "policy": "ci", "reused": False, "reasons": "- parse_rate: too low", "report": "r.html"}
_CHAMPION = {"champion": "folder", "changed": True}


def _lines(**figures: dict[str, Any]) -> str:
    return "\n".join(summary_of(figures))


def test_a_train_set_alone_leads_to_the_adapter() -> None:
    """What `--no-train` gives."""
    assert _lines(mixed_train_set=_TRAIN_SET) == (
        "train set   2704 different pairs\nnext        mens run goes on to the adapter"
    )


def test_a_refusal_shows_reasons_and_report() -> None:
    """The scores of both models stand above it."""
    text = _lines(mixed_train_set=_TRAIN_SET, qlora_adapter=_ADAPTER, eval_results=_RESULTS, benchmark_gate=_GATE)

    assert "150 updates in 7.5 min, loss 1.400 at first, 0.600 at last, nothing had changed" in text
    assert "heldout     parse rate 80/112 (71.4 %), base 0/112 (0.0 %)" in text
    assert "verdict     refused, policy ci\n            - parse_rate: too low\nreport      r.html" in text
    assert text.endswith("next        open the report; mens run --force-train trains again")


def test_a_champion_is_named() -> None:
    """With the folder it lies in, and whether it is a new one."""
    gate = {**_GATE, "passed": True}

    assert "champion    folder\n" in _lines(benchmark_gate=gate, promoted_adapter=_CHAMPION)
    assert "champion    folder, as before\n" in _lines(promoted_adapter={**_CHAMPION, "changed": False})


def test_a_run_that_made_nothing_says_nothing() -> None:
    """Its checks and errors stand above."""
    assert _lines() == ""
