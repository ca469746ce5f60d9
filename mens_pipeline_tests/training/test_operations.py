"""Limits on the operations of a training step and of a generated token: on a GPU launches dominate their time."""

from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.inference.generate import complete_slots, new_slot
from mens_pipeline.inference.generation import Decoding
from mens_pipeline_tests.architectures import ARCHITECTURES, write_architecture
from mens_pipeline_tests.delivery.vision_base import write_vision_base
from mens_pipeline_tests.evaluation.hybrid import hybrid_model
from mens_pipeline_tests.every import every
from mens_pipeline_tests.training.operations import count_operations
from mens_pipeline_tests.training.runs import prepare_fast, trainer_of

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries warn about their own future changes


def _trainer(base: Path, folder: Path) -> tuple[Any, dict[str, Any]]:
    """A trainer as on a GPU, without parts that need a GPU: the library's loss, activations recomputed."""
    trainer, batch = trainer_of(prepare_fast(base, folder, lora_dropout=0.01))  # no fused adapters of a CPU
    trainer.model.train()
    trainer.model.gradient_checkpointing_enable({"use_reentrant": False})
    return trainer, batch


def test_the_loss_of_a_gpu_equals_that_of_a_cpu(tiny_base: Path, tmp_path: Path) -> None:
    """The library's own loss, with row weights."""
    import torch

    from mens_pipeline.training.sft import refuse_other_loss  # noqa: PLC0415 - loads the deep learning stack

    trainer, batch = _trainer(tiny_base, tmp_path)
    trainer.model.eval()
    batch["weights"] = torch.tensor([1.0, 2.0, 0.5, 1.0])
    with torch.no_grad():
        ours = trainer.compute_loss(trainer.model, batch, num_items_in_batch=100)
        trainer.scores_labels_alone = False
        theirs = trainer.compute_loss(trainer.model, batch, num_items_in_batch=100)
    refuse_other_loss(trainer, trainer.first_loss, "base", "float32")

    torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=1e-6)


def _step(trainer: Any, model: Any, **more: Any) -> dict[str, Any]:
    """Return the loss of a GPU for rows padded on the right, and its gradients by name."""
    import torch

    from mens_pipeline_tests.training.test_cpu_path import padded_batch  # noqa: PLC0415 - loads the deep learning stack

    model.zero_grad(set_to_none=True)
    batch = {**padded_batch(), "weights": torch.tensor([1.0, 2.0, 0.5]), "counts": (59, 32)}
    loss = trainer.compute_loss(lambda **given: model(**given, **more), batch, num_items_in_batch=32)
    loss.backward()
    return {"loss": loss.detach()} | {name: each.grad for name, each in model.named_parameters() if each.requires_grad}


@pytest.fixture
def gpu(tiny_base: Path, tmp_path: Path) -> Any:
    """A trainer with the loss of a GPU, for any model."""
    trainer, _ = _trainer(tiny_base, tmp_path)
    trainer.scores_labels_alone = False
    return trainer


@pytest.mark.slow
@every("name", ARCHITECTURES)
def test_rows_padded_on_the_right_need_no_mask_on_a_gpu(gpu: Any, tmp_path: Path, name: str) -> None:
    """Neither do states of linear attention: with a mask the loss and every gradient are the same to six digits."""
    import torch
    from trl.trainer.utils import add_fused_lm_head

    from mens_pipeline_tests.training.test_cpu_path import load_adapted, padded_batch  # noqa: PLC0415 - likewise

    model = load_adapted(write_architecture(tmp_path / name, name), torch.float32)
    add_fused_lm_head(model.get_base_model())
    found, masked = _step(gpu, model), _step(gpu, model, attention_mask=padded_batch()["attention_mask"])

    for matrix, expected in masked.items():
        assert float((found[matrix] - expected).norm()) <= 1e-6 * float(expected.norm()) > 0, matrix


@pytest.mark.slow
@every("name", ARCHITECTURES)
def test_inputs_of_adapters_are_not_cast_back_and_forth(gpu: Any, tmp_path: Path, name: str) -> None:
    """The gradients are the same bit for bit, with at least two operations fewer in each adapted layer."""
    import torch
    from trl.trainer.utils import add_fused_lm_head

    from mens_pipeline.training.qlora import keep_input_precision  # noqa: PLC0415 - loads the deep learning stack
    from mens_pipeline_tests.training.test_cpu_path import load_adapted  # noqa: PLC0415 - likewise

    model = load_adapted(write_architecture(tmp_path / name, name), torch.bfloat16, quantization="bf16")
    add_fused_lm_head(model.get_base_model())
    num_layers = sum("lora_A" in name for name, _ in model.named_parameters())

    def measure() -> tuple[dict[str, Any], int]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return _step(gpu, model), count_operations(lambda: _step(gpu, model))

    cast, num_before = measure()
    keep_input_precision(model)
    found, num_after = measure()

    assert all(torch.equal(found[matrix], expected) for matrix, expected in cast.items())
    assert num_before - num_after >= 2 * num_layers > 0


@pytest.mark.parametrize(("kind", "most"), [("llama", 950), ("hybrid", 3_000)])
def test_a_training_step_launches_no_more_than_before(tiny_base: Path, tmp_path: Path, kind: str, most: int) -> None:
    """One micro-batch, forward twice and backward; two layers of Llama, or four of Qwen3.5 without its kernels."""
    base = tiny_base if kind == "llama" else write_vision_base(tmp_path / "vision")
    trainer, batch = _trainer(base, tmp_path)
    trainer.scores_labels_alone = False

    number = count_operations(lambda: trainer.compute_loss(trainer.model, batch, num_items_in_batch=100).backward())

    assert most / 2 < number <= most


@pytest.mark.parametrize(("temperature", "most"), [(0.0, 330), (0.8, 410)])
def test_a_generated_token_launches_no_more_than_before(temperature: float, most: int) -> None:
    """Of eight completions together, by a model of four layers; sampling is a small part of it."""
    model = hybrid_model()
    prompts = [tuple(range(number + 1, number + 9)) for number in range(8)]

    def count_completion_operations(num_tokens: int) -> int:
        decoding = Decoding(max_new_tokens=num_tokens, temperature=temperature)
        rows = [new_slot(str(number), 0, prompt, decoding) for number, prompt in enumerate(prompts)]
        return count_operations(lambda: complete_slots(model, rows, frozenset(), 12_288, lambda _row: None))

    each = (count_completion_operations(12) - count_completion_operations(4)) / 8

    assert most / 2 < each <= most
