"""An adapter of a model of the scratch lane, and the model that it is merged into."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch  # noqa: TID253 - these tests train

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.protocol import CHECKPOINTS, RESULT, ExitCode
from mens_pipeline.scratch.recipe import SHAPES, ScratchConfig
from mens_pipeline.scratch.run import (
    WEIGHTS,
    PreparedScratch,
    finish_scratch,
    format_card,
    merge_scratch,
    scratch_sources,
)
from mens_pipeline.scratch.tokenizer import transformers_tokenizer
from mens_pipeline.storage.store import digest_of
from mens_pipeline_tests.scratch.runs import prepare_fast

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with random weights."""
    from mens_pipeline.scratch.train import build_model  # noqa: PLC0415 - loads the deep learning stack

    folder = tmp_path_factory.mktemp("base") / "model"
    build_model(SHAPES[ScratchConfig.SMALL]).save_pretrained(folder)
    transformers_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def lora_run(base: Path, tmp_path_factory: pytest.TempPathFactory) -> PreparedScratch:
    """Train an adapter of it in four steps."""
    run = prepare_fast(tmp_path_factory.mktemp("lora"), base=base, lora_r=4)
    _train(run)
    return run


def _train(run: PreparedScratch) -> None:
    from mens_pipeline.scratch.train import train  # noqa: PLC0415 - loads the deep learning stack

    assert train(run.job)


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file  # noqa: PLC0415 - comes with the stack

    weights: dict[str, torch.Tensor] = load_file(folder / "model.safetensors")
    return weights


def _logits(model: Any) -> torch.Tensor:
    ids = torch.randint(3, 133, (2, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits: torch.Tensor = model.eval()(ids).logits
    return logits


@pytest.mark.seed_row(24)
def test_only_the_matrices_of_the_blocks_change(base: Path, lora_run: PreparedScratch) -> None:
    before, after = _weights(base), _weights(lora_run.job.run_dir / "model")
    changed = {name for name in before if not torch.equal(before[name], after[name])}

    assert before.keys() == after.keys()
    assert changed == {name for name in before if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))}
    assert len(changed) == 4 * 4
    assert lora_run.contract["base_sha256"] == digest_of(base / "model.safetensors")


@pytest.mark.seed_row(22)
def test_the_merged_model_computes_the_same_logits(base: Path, lora_run: PreparedScratch) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    run = lora_run.job.run_dir
    merged = _logits(AutoModelForCausalLM.from_pretrained(run / "model"))
    plain = AutoModelForCausalLM.from_pretrained(base)
    alone = _logits(plain)
    with_adapter = _logits(PeftModel.from_pretrained(plain, run / "adapter"))

    torch.testing.assert_close(merged, with_adapter, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(merged, alone, atol=1e-3)


def test_the_manifest_describes_the_adapter(lora_run: PreparedScratch) -> None:
    manifest = finish_scratch(lora_run, None, ExitCode.DONE)
    result = json.loads((lora_run.job.run_dir / RESULT).read_text())

    assert manifest.base_sha256 == lora_run.contract["base_sha256"]
    assert manifest.num_parameters == SHAPES[ScratchConfig.SMALL].num_parameters
    assert result["num_trained"] == 4 * 4 * (128 + 384 + 128 + 128 + 128 + 512 + 512 + 128)
    assert manifest.recipe["lora_r"] == 4
    assert f"trained from the model `{(manifest.base_sha256 or '')[:12]}` by LoRA" in format_card(manifest)


def test_a_mean_is_of_the_merged_weights(lora_run: PreparedScratch, tmp_path: Path) -> None:
    sources = scratch_sources((lora_run.job.run_dir,), 3)
    merge_scratch(sources, tmp_path / "mean")

    assert sources == (lora_run.job.run_dir / "model",)
    assert digest_of(tmp_path / "mean" / "model.safetensors") == digest_of(lora_run.job.run_dir / WEIGHTS)


def test_an_interrupted_run_is_resumed(base: Path, lora_run: PreparedScratch, tmp_path: Path) -> None:
    again = prepare_fast(tmp_path, base=base, lora_r=4)
    shutil.rmtree(again.job.run_dir)
    shutil.copytree(lora_run.job.run_dir, again.job.run_dir)
    for name in ("model", "adapter", f"{CHECKPOINTS}/checkpoint-3", f"{CHECKPOINTS}/checkpoint-4"):
        shutil.rmtree(again.job.run_dir / name)
    (again.job.run_dir / RESULT).unlink()
    _train(again)

    assert digest_of(again.job.run_dir / WEIGHTS) == digest_of(lora_run.job.run_dir / WEIGHTS)


def test_a_model_of_another_shape_is_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"not the shape of `default`\. Name the --config that it was trained with"):
        prepare_fast(tmp_path, base=base, config="default")

    assert not (tmp_path / "run").exists()


def test_a_run_does_not_replace_its_base(base: Path, tmp_path: Path) -> None:
    shutil.copytree(base, tmp_path / "run" / "model")

    with pytest.raises(RefusedError, match=r"run: holds the model to adapt, .*model\. Name another --output-dir"):
        prepare_fast(tmp_path, base=tmp_path / "run" / "model")


def test_the_rank_does_not_change_a_contract_without_a_base(tmp_path: Path) -> None:
    contracts = [prepare_fast(tmp_path / str(rank), lora_r=rank).contract for rank in (4, 8)]

    assert contracts[0] == contracts[1]
