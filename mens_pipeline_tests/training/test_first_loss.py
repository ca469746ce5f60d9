"""Training begins with the loss of the base in plain transformers, or not at all."""

import json
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline_tests.architectures import write_architecture
from mens_pipeline_tests.training.runs import prepare_fast, train_here


def test_a_fused_layer_that_drops_its_bias_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mens_pipeline.training import cpu_kernels  # noqa: PLC0415 - loads the deep learning stack

    base = write_architecture(tmp_path / "base", "qwen2", initializer_range=0.02)
    result = train_here(prepare_fast(base, tmp_path / "right", max_steps=1))
    make = cpu_kernels._FusedLayer.__init__  # noqa: SLF001 - what gets a defect

    def drop_bias(self: Any, *arguments: Any) -> None:
        make(self, *arguments)
        self._bias = None

    monkeypatch.setattr(cpu_kernels._FusedLayer, "__init__", drop_bias)  # noqa: SLF001 - likewise
    run = prepare_fast(base, tmp_path / "wrong", max_steps=1)
    found = rf"the first loss of training is \d\.\d+, that of PEFT and transformers {result['first_loss']:.4f} on the"

    with pytest.raises(RefusedError, match=f"{found} same rows"):
        train_here(run)
    assert "step" not in _events(run.job.run_dir)


def test_a_base_that_is_worse_than_chance_is_refused(tmp_path: Path) -> None:
    run = prepare_fast(write_architecture(tmp_path / "base", "llama", initializer_range=1.0), tmp_path, max_steps=1)
    guess = r"a uniform guess among 258 tokens has 5\.55\. Fetch the base again"

    with pytest.raises(RefusedError, match=rf"base: its loss on the first rows is \d+\.\d\d, {guess}"):
        train_here(run)


def test_layers_that_peft_computes_keep_their_weights(tiny_base: Path, tmp_path: Path) -> None:
    """With dropout a CPU fuses no layer, and bitsandbytes would evaluate packed weights, which did not train."""
    run = prepare_fast(tiny_base, tmp_path, number=40, validation_split_ratio=0.2, max_steps=2, lora_dropout=0.1)
    result = train_here(run)

    assert result["computed_by"].startswith("0 of 14 adapted layers fused, PEFT computes 14 with dropout")
    assert result["num_train"] + result["num_validation"] == 40
    assert 0 < result["num_validation"] < 20
    assert result["validation_loss"] == pytest.approx(result["first_loss"], rel=0.2)


def _events(folder: Path) -> list[str]:
    log = folder / "telemetry.jsonl"
    return [json.loads(line)["event"] for line in log.read_text().splitlines()] if log.is_file() else []
