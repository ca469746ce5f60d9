"""Repair and fresh samples, asked of a real server of ours."""

import sys
from pathlib import Path

import pytest

from mens_pipeline.delivery.serving.engine import Limits
from mens_pipeline.inference.answer_code import program_in
from mens_pipeline.inference.endpoint import Endpoint
from mens_pipeline.inference.sampling import Syntax
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline_tests.bench import repair as bench
from mens_pipeline_tests.delivery.serving.running import running
from mens_pipeline_tests.training.runs import pairs


def test_noise_is_not_repaired_and_steered_answers_need_none(
    merged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that knows nothing of Vox, free; and the same server held to the language."""
    write_jsonl(tmp_path / "pairs.jsonl", pairs(3))
    with running(merged, Limits(4, 20_000, 300.0, 400)) as server:
        url = f"{server.url}/v1"
        options = ["--endpoint", url, "--prompts", "2", "--max-tokens", "12"]
        monkeypatch.setattr(sys, "argv", ["repair", str(tmp_path / "pairs.jsonl"), *options])
        bench.main()
    printed = capsys.readouterr().out
    with running(merged, Limits(4, 20_000, 300.0, 400), syntax=Syntax.CONSTRAINED) as server:
        endpoint = Endpoint(f"{server.url}/v1", "mens", max_new_tokens=24)
        steered = bench.compare_repair(endpoint, bench.requests_of(tmp_path / "pairs.jsonl", 2), program_in)

    assert printed.startswith(
        "0/2 requests are answered in Vox at once\nafter 1 more for each other: 0 with repairs, 0"
    )
    assert printed.endswith("4 repairs and 4 fresh samples were answered\n")
    assert (steered.accepted, steered.num_repairs, steered.num_fresh) == (2, 0, 0)
