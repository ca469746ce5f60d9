"""The last lines of a run of the whole graph."""

import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from mens_pipeline.cli.run import _minutes, find_command, summarize

_TRAIN_SET = {"num_distinct": 2704, "reused": False}
_ADAPTER = {
    "recipe_name": "default",
    "adapter_sha256": "0123456789ab",
    "num_updates": 150,
    "num_planned_updates": 150,
    "num_updates_before": 0,
    "train/seconds": 450.0,
    "first_loss": 1.4,
    "last_loss": 0.6,
    "shown": "vox_codegen 100 % (140,000 tokens, 0.5 epochs)",
    "reused": True,
}
_RESULTS = {
    "heldout: parse rate": "80/112 (71.4 %), base 0/112 (0.0 %)",
    "heldout: resolve rate": "46/112 (41.1 %), base 0/112 (0.0 %)",
    "unknown_task: hidden tests": "2/24 (8.3 %)",
    "coverage": "29/30 (96.7 %) of the constructs",
    "missing_constructs": "form",
}
_GATE = {
    "passed": False,
    "status": "failed",
    "policy": "ci",
    "attempt": "second evaluation on this eval suite",
    "reused": False,
    "likely_cause": "the time budget of 10 min ended training after 142 of 150 steps",
    "remedy": "more",
    "reasons": "- parse_rate: 0.1 < 0.6",
    "report": "r.html",
}
_PASSED = {**_GATE, "passed": True, "status": "passed"}
_CHAMPION = {"champion": "folder", "changed": True}


def _lines(*, is_good: bool = True, **figures: Any) -> str:
    return "\n".join(summarize(figures, is_good=is_good, command=".venv/bin/mens", options=" --preset tiny"))


def test_a_train_set_alone_leads_to_the_adapter() -> None:
    assert _lines(mixed_train_set=_TRAIN_SET) == (
        "train set   2704 different pairs\nnext        .venv/bin/mens run --preset tiny goes on to the adapter"
    )


def test_the_own_files_come_first() -> None:
    seen, read = {"yours": "2 programs"}, {"yours": "2 vox files", "report": "report.json"}
    pairs, mixed = {"yours": "2 records"}, {**_TRAIN_SET, "yours": "mixed: 3 pairs"}
    made: dict[str, Any] = {"extracted_corpus": read, "validated_pairs": pairs, "mixed_train_set": mixed}
    blank = " " * 11

    assert _lines(workspace_snapshot=seen).startswith("yours       2 programs\nnext ")
    assert _lines(workspace_snapshot=seen, extracted_corpus=read).startswith(
        "yours       2 vox files\nreasons     report.json\nnext "
    )
    assert _lines(workspace_snapshot=seen, **made).startswith(
        f"yours       2 vox files\n{blank} 2 records\n{blank} mixed: 3 pairs\nreasons     report.json\ntrain set "
    )


def test_what_was_never_shown_stands_below_what_was() -> None:
    left = "telemetry (372 rows)"
    lines = _lines(qlora_adapter={**_ADAPTER, "never_shown": left}).splitlines()

    place = next(number for number, line in enumerate(lines) if line.startswith("shown       "))
    assert lines[place + 1] == f"not shown   {left}"
    assert "not shown" not in _lines(qlora_adapter={**_ADAPTER, "never_shown": ""})


@pytest.mark.seed_row(77)
def test_a_refusal_shows_reasons_and_report() -> None:
    """The scores of both models stand above it; training the same again would give the same adapter."""
    text = _lines(
        is_good=False, mixed_train_set=_TRAIN_SET, qlora_adapter=_ADAPTER, eval_results=_RESULTS, benchmark_gate=_GATE
    )

    assert "150 steps in 7.5 min, loss 1.400 at first, 0.600 at last, nothing had changed" in text
    assert (
        "heldout     parse rate 80/112 (71.4 %), base 0/112 (0.0 %)\n"
        "heldout     resolve rate 46/112 (41.1 %), base 0/112 (0.0 %)\n"
        "unknown_task hidden tests 2/24 (8.3 %)\n"
        "coverage    29/30 (96.7 %) of the constructs, missing form\n" in text
    )
    verdict = "refused, policy ci, second evaluation on this eval suite"
    assert (
        f"verdict     {verdict}\n            - parse_rate: 0.1 < 0.6\ncause       the time budget of 10 min ended"
        in text
    )
    assert text.endswith(
        "report      r.html\nreused      1/3 stages\n"
        "next        the same run goes on for 10 min with: .venv/bin/mens run --preset tiny --more 10m"
    )


@pytest.mark.parametrize(
    ("remedy", "advice"),
    [
        ("preset", "a recipe that takes longer rows: .venv/bin/mens run --preset auto"),
        ("data", "a larger workspace: .venv/bin/mens run --source-root DIR; for its first model: VOX_EVAL_POLICY="),
        ("setting", "change what the cause names, then: .venv/bin/mens run --preset tiny"),
    ],
)
def test_a_refusal_names_one_command_that_helps(remedy: str, advice: str) -> None:
    assert f"next        {advice}" in _lines(is_good=False, benchmark_gate={**_GATE, "remedy": remedy})


def test_a_run_that_went_on_says_after_how_much() -> None:
    text = _lines(qlora_adapter={**_ADAPTER, "num_updates_before": 300})

    assert "150 steps in 7.5 min after 300 earlier ones, loss" in text


@pytest.mark.parametrize(("text", "minutes"), [("90s", 1.5), ("10m", 10.0), ("1h", 60.0), ("1.5h", 90.0)])
def test_a_time_is_read(text: str, minutes: float) -> None:
    assert _minutes(text) == minutes


@pytest.mark.parametrize("text", ["", "10", "m", "0m", "-1m", "1e3m", "ten minutes"])
def test_what_is_no_time_is_misuse(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"not a duration\. Write one such as 90s, 10m or 1h"):
        _minutes(text)


def test_an_undecided_verdict_is_shown() -> None:
    text = _lines(is_good=False, benchmark_gate={**_GATE, "status": "undecided"})

    assert "verdict     undecided, not promoted, policy ci, second evaluation on this eval suite\n" in text
    assert "            - parse_rate: 0.1 < 0.6\n" in text


def test_training_that_the_clock_ended_says_so() -> None:
    text = _lines(qlora_adapter={**_ADAPTER, "num_updates": 142, "train/seconds": 545.0})

    assert "training    142 of 150 steps in 9.1 min, as many as fit into the budget, loss 1.400 at first" in text


def test_a_champion_is_named() -> None:
    assert "champion    folder\n" in _lines(benchmark_gate=_PASSED, promoted_adapter=_CHAMPION)
    text = _lines(promoted_adapter={**_CHAMPION, "changed": False})
    assert "champion    folder, as before\n" in text
    assert text.endswith("make ui shows the graph; .venv/bin/mens promote --history shows every champion")
    best = _lines(promoted_adapter={**_CHAMPION, "best_recipe": "wide, pass@1 40/40 (100.0 %)"})
    assert best.startswith("best        wide, pass@1 40/40 (100.0 %)\nchampion    folder\n")


@pytest.mark.parametrize("figures", [{}, {"mixed_train_set": _TRAIN_SET}], ids=["a check of the sources", "training"])
def test_what_failed_is_to_be_mended(figures: dict[str, dict[str, Any]]) -> None:
    text = _lines(is_good=False, **figures)

    assert text.endswith("next        correct what failed, and run the same again: finished steps are reused")


def test_an_adapter_that_passed_and_was_not_promoted_has_its_reason_above() -> None:
    text = _lines(is_good=False, benchmark_gate=_PASSED)

    assert text.endswith("next        see above why an adapter that passed was not promoted")


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        (".venv/bin/mens", ".venv/bin/mens"),
        ("{folder}/mens", "mens"),
        ("/lib/mens_pipeline/cli/__main__.py", f"{sys.executable} -m mens_pipeline.cli"),
    ],
    ids=["by its path", "by its name", "as a module"],
)
def test_advice_can_be_typed_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, shown: str
) -> None:
    (tmp_path / "mens").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [program.format(folder=tmp_path), "run"])

    assert find_command() == shown


def test_a_recipe_is_named_where_one_was_chosen() -> None:
    adapter = {**_ADAPTER, "recipe_name": "wide"}
    text = _lines(qlora_adapter=adapter, benchmark_gate=_PASSED)

    assert "recipe      wide, adapter 0123456789ab" in text
    assert "run --preset tiny puts it in use; .venv/bin/mens compare A B" in text


def test_a_trial_is_not_said_to_be_put_in_use() -> None:
    text = _lines(qlora_adapter=_ADAPTER, benchmark_gate=_PASSED | {"policy": "trial (unlike ci: min_parse_rate 0.25)"})

    assert "next        a trial is never promoted; .venv/bin/mens run trains an adapter that may be" in text
