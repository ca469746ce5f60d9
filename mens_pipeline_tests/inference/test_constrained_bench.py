"""The bench that counts accepted completions, with a model that knows nothing of Vox."""

import sys
from pathlib import Path

import pytest

from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline_tests.bench import constrained as bench
from mens_pipeline_tests.training.runs import pairs


@pytest.fixture
def heldout(tmp_path: Path) -> Path:
    write_jsonl(tmp_path / "heldout.jsonl", pairs(3))
    return tmp_path / "heldout.jsonl"


@pytest.mark.slow
def test_every_completion_is_accepted(
    tiny_base: Path, heldout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = tmp_path / "failed.jsonl"
    options = ["--base", str(tiny_base), "--device", "cpu", "--samples", "9", "--budgets", "14,24,40"]
    monkeypatch.setattr(sys, "argv", ["constrained", str(heldout), *options, "-o", str(failed)])
    with pytest.raises(SystemExit) as ending:
        bench.main()
    lines = capsys.readouterr().out.splitlines()

    assert ending.value.code == 0
    assert lines[-1].startswith("9/9 accepted, ")
    assert {line.partition(":")[0] for line in lines[2:-1]} == {
        *("source benchmark", "source benchmark/humaneval_vox", "source heldout"),
        *("budget 14", "budget 24", "budget 40"),
    }
    assert failed.read_text(encoding="utf-8") == ""


def test_what_is_not_accepted_is_counted_and_kept() -> None:
    made = bench.Completion(
        source="heldout", task="t", sample=0, budget=64, text="fn (", stopped=True, forced=False, accepted=False
    )
    good = made.model_copy(update={"accepted": True, "forced": True})

    assert bench.build_table([made, good], 2.4).splitlines() == [
        "source heldout: 1/2 accepted",
        "budget 64: 1/2 accepted",
        "1/2 accepted, 1 ended by the shortest way, 2 s",
    ]


def test_requests_of_all_kinds_take_turns(heldout: Path) -> None:
    asked = bench.read_requests(heldout, bench.BENCHMARKS)

    assert len(asked) > 250
    assert {task.id.partition("/")[0] for task in asked[:4]} == {"heldout", "benchmark"}
    assert any("/hev_" in task.id for task in asked[:6])
