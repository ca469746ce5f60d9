"""The last lines of a run of the whole graph."""

import sys
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import typer

from mens_pipeline.cli.run import _minutes, find_command, summarize
from mens_pipeline_tests.every import every

_TRAIN_SET = {"num_distinct": 2704, "num_infill": 487, "reused": False}
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
    assert _lines(mixed_train_set=_TRAIN_SET).splitlines() == [
        "train set   2704 distinct pairs, 487 infill rows cut from them",
        "next        .venv/bin/mens run --preset tiny trains the adapter",
    ]


def test_a_suite_that_the_gate_refuses_is_reported_before_training() -> None:
    split = {"suite_size": "the gate will refuse (policy ci): 4 held-out prompts", "is_suite_enough": False}
    lines = _lines(mixed_train_set=_TRAIN_SET, heldout_split=split).splitlines()

    assert lines[1] == f"eval suite  {split['suite_size']}"
    assert lines[2].startswith(
        "next        enlarge the eval suite first: the gate would refuse an adapter from .venv/bin"
    )
    assert "eval suite  " not in _lines(heldout_split=split, benchmark_gate=_GATE), "the gate says it"
    assert _lines(heldout_split={**split, "is_suite_enough": True}).endswith("trains the adapter")


def test_user_files_come_first() -> None:
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


def test_rows_that_were_never_shown_follow_shown_rows() -> None:
    left = "telemetry (372 rows)"
    lines = _lines(qlora_adapter={**_ADAPTER, "never_shown": left}).splitlines()

    place = next(number for number, line in enumerate(lines) if line.startswith("shown       "))
    assert lines[place + 1] == f"not shown   {left}"
    assert "not shown" not in _lines(qlora_adapter={**_ADAPTER, "never_shown": ""})


@pytest.mark.seed_row(77)
def test_a_refusal_shows_reasons_and_report() -> None:
    """The scores of both models come first; the same training would give the same adapter."""
    text = _lines(
        is_good=False, mixed_train_set=_TRAIN_SET, qlora_adapter=_ADAPTER, eval_results=_RESULTS, benchmark_gate=_GATE
    )

    assert "150 steps in 7.5 min, loss 1.400 at the start, 0.600 at the end, reused" in text
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
        "next        continue the same run for 10 min: .venv/bin/mens run --preset tiny --more 10m"
    )


_TRIAL = {**_PASSED, "policy": "trial (unlike ci: min_parse_rate 0.25)"}
_UNDECIDED = f"undecided, not promoted, policy ci, {_GATE['attempt']}\n            - parse_rate: 0.1 < 0.6\n"
_AGAIN = "next        fix the failure, and run the same command again: finished steps are reused"


def _train(**changes: Any) -> dict[str, Any]:
    return {"qlora_adapter": {**_ADAPTER, **changes}}


def _refuse(**changes: Any) -> dict[str, Any]:
    return {"is_good": False, "benchmark_gate": {**_GATE, **changes}}


def _use(**changes: Any) -> dict[str, Any]:
    return {"promoted_adapter": {**_CHAMPION, **changes}}


@every(
    "case",
    [
        (_refuse(remedy="preset"), "next        use a recipe that accepts longer rows: .venv/bin/mens run --preset"),
        (
            _refuse(remedy="data"),
            "next        use a larger workspace: .venv/bin/mens run --source-root DIR; for its first",
        ),
        (_refuse(remedy="setting"), "next        fix the cause named above, then: .venv/bin/mens run --preset tiny"),
        (_refuse(status="undecided"), f"verdict     {_UNDECIDED}"),
        (_train(num_updates_before=300), "150 steps in 7.5 min after 300 earlier ones, loss"),
        (
            _train(num_updates=142),
            "training    142 of 150 steps in 7.5 min, limited by the time budget, loss 1.4",
        ),
        (_use() | {"benchmark_gate": _PASSED}, "champion    folder\n"),
        (_use(changed=False), "champion    folder, unchanged\n"),
        (_use() | {"benchmark_gate": _TRIAL}, "make ui shows the graph; .venv/bin/mens promote --history shows"),
        (_use(best_recipe="wide, pass@1 40/40"), "best        wide, pass@1 40/40\nchampion    folder\n"),
        ({"is_good": False}, _AGAIN),
        ({"is_good": False, "mixed_train_set": _TRAIN_SET}, _AGAIN),
        (_refuse(**_PASSED), "next        the adapter passed but was not promoted; see the"),
        (_train(recipe_name="wide") | {"benchmark_gate": _PASSED}, "recipe      wide, adapter 0123456789ab"),
        (_train(recipe_name="wide") | {"benchmark_gate": _PASSED}, "tiny promotes it; .venv/bin/mens compare A B"),
        (_train() | {"benchmark_gate": _TRIAL}, "next        a trial is never promoted; .venv/bin/mens run trains"),
    ],
    ids=itemgetter(1),
)
def test_the_summary_names_the_outcome_and_the_next_step(case: tuple[dict[str, Any], str]) -> None:
    figures, said = case

    assert said in _lines(**figures)


def test_parses_a_duration_and_rejects_other_text() -> None:
    assert [_minutes(text) for text in ("90s", "10m", "1h", "1.5h")] == [1.5, 10.0, 60.0, 90.0]
    for text in ("", "10", "m", "0m", "-1m", "1e3m", "ten minutes", "²m"):
        with pytest.raises(typer.BadParameter, match=r"not a duration up to 100,000 minutes\. Use one such as 90s"):
            _minutes(text)


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        (".venv/bin/mens", ".venv/bin/mens"),
        ("{folder}/mens", "mens"),
        ("/lib/mens_pipeline/cli/__main__.py", f"{sys.executable} -m mens_pipeline.cli"),
    ],
    ids=["by its path", "by its name", "as a module"],
)
def test_advice_starts_the_program_as_the_user_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, shown: str
) -> None:
    (tmp_path / "mens").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [program.format(folder=tmp_path), "run"])

    assert find_command() == shown
