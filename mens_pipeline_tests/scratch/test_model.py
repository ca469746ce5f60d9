"""The model: its size, its attention, and a saved folder that loads without custom code."""

from pathlib import Path
from typing import Any

import pytest
import torch  # noqa: TID253 - these tests compute
from torch.nn.functional import cross_entropy  # noqa: TID253 - likewise

from mens_pipeline.models.chat import Encoded
from mens_pipeline.scratch.recipe import SHAPES, ScratchConfig, Shape
from mens_pipeline.scratch.tokenizer import PAD, transformers_tokenizer
from mens_pipeline.training.common_trainer import pad_rows

pytestmark = pytest.mark.filterwarnings("ignore")


def _model(shape: Shape = SHAPES[ScratchConfig.SMALL]) -> Any:
    from mens_pipeline.scratch.train import build_model  # noqa: PLC0415 - loads the deep learning stack

    torch.manual_seed(0)
    return build_model(shape).eval()


def _ids(rows: int, length: int) -> torch.Tensor:
    return torch.randint(3, 133, (rows, length), generator=torch.Generator().manual_seed(1))


def _logits(model: Any, ids: torch.Tensor, **inputs: Any) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(ids, **inputs).logits
    return logits


@pytest.mark.seed_row(54)
@pytest.mark.parametrize("config", list(ScratchConfig))
def test_a_model_has_the_number_of_parameters_of_its_shape(config: ScratchConfig) -> None:
    model = _model(SHAPES[config])

    assert sum(parameter.numel() for parameter in model.parameters()) == SHAPES[config].num_parameters


@pytest.mark.seed_row(54)
def test_no_token_attends_to_later_tokens() -> None:
    """Another token at position 30 changes all logits from there on, and none before it."""
    model, ids = _model(), _ids(2, 40)
    other = ids.clone()
    other[:, 30] = (ids[:, 30] - 3 + 1) % 130 + 3
    before, after = _logits(model, ids), _logits(model, other)

    assert torch.equal(before[:, :30], after[:, :30])
    assert (before[:, 30:] != after[:, 30:]).any(dim=-1).all()


def test_the_loss_is_that_of_the_labelled_positions() -> None:
    model = _model()
    batch = pad_rows([Encoded((5, 6, 7), (8, 9, 2)), Encoded((5,), (6, 2))], PAD)
    with torch.no_grad():
        loss = model(**batch).loss
    logits = _logits(model, batch["input_ids"], attention_mask=batch["attention_mask"])[:, :-1]
    expected = cross_entropy(logits.transpose(1, 2), batch["labels"][:, 1:], ignore_index=-100)

    torch.testing.assert_close(loss, expected)


def test_a_saved_model_computes_the_same_logits(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, ids = _model(), _ids(1, 12)
    model.save_pretrained(tmp_path)
    transformers_tokenizer().save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, use_safetensors=True, trust_remote_code=False)

    assert not list(tmp_path.glob("*.py"))
    assert len(AutoTokenizer.from_pretrained(tmp_path, trust_remote_code=False)) == 133
    assert torch.equal(_logits(loaded.eval(), ids), _logits(model, ids))


def test_dropout_applies_only_in_training() -> None:
    model, ids = _model(Shape(num_hidden_layers=1, hidden_size=64, intermediate_size=64)), _ids(1, 12)
    still = [_logits(model, ids) for _ in range(2)]
    model.train()

    assert torch.equal(*still)
    assert not torch.equal(_logits(model, ids), _logits(model, ids))
