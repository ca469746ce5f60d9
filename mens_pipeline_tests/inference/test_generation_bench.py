"""The cost of constraining, as the generation bench reports it."""

import sys
from pathlib import Path

import pytest

from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline_tests.bench import generation as bench
from mens_pipeline_tests.training.runs import pairs


def test_the_share_counts_only_the_constraint() -> None:
    free = bench.Outcome([[1, 2]], 10.0, (0.25, 0.75))
    constrained = bench.Outcome([[1, 2, 3, 4]], 20.0, (0.5, 0.5, 1.0, 2.0))

    assert constrained.steering_share(free) == pytest.approx(0.1)
    assert free.steering_share(constrained) == 0
    assert bench.steering_lines(free, constrained, 32) == (
        "the same, constrained by the parser: 0.2 tokens/s",
        "the constraint takes 10.0 % of its time at batch 32: more than 5 %",
        "a token of it: median 750.00 ms, p99 2000.00 ms",
    )
    assert bench.steering_lines(free, free, 8)[1] == "the constraint takes 0.0 % of its time at batch 8: at most 5 %"


def test_prints_the_share(
    tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(tmp_path / "heldout.jsonl", pairs(3))
    options = ["--base", str(tiny_base), "--device", "cpu", "--batch", "2", "--max-new-tokens", "12", "--steering"]
    monkeypatch.setattr(sys, "argv", ["generation", str(tmp_path / "heldout.jsonl"), *options])
    bench.main()
    lines = capsys.readouterr().out.splitlines()

    assert lines[3].startswith("3 requests, at most 12 tokens each, greedy, on ")
    assert lines[4].startswith("dense, packed, 2 at a time, rows leave when done: ")
    (constraint,) = (line for line in lines if line.startswith("the constraint takes "))
    assert "% of its time at batch 2: " in constraint
