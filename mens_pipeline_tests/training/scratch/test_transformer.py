"""VoxTransformer: what each token sees, what padding does, and that it is a model like any other."""

from pathlib import Path
from typing import Any

import pytest
import torch  # noqa: TID253 - these tests compute
from torch.nn.functional import cross_entropy  # noqa: TID253 - likewise

from mens_pipeline.training.chat import Encoded
from mens_pipeline.training.scratch.architecture import SHAPES, ScratchConfig, Shape
from mens_pipeline.training.scratch.data import collate

pytestmark = pytest.mark.filterwarnings("ignore")


def _model(shape: Shape = SHAPES[ScratchConfig.SMALL]) -> Any:
    from mens_pipeline.training.scratch.transformer import VoxTransformer, config_of  # noqa: PLC0415 - loads the stack

    torch.manual_seed(0)
    return VoxTransformer(config_of(shape)).eval()


def _ids(rows: int, length: int) -> torch.Tensor:
    return torch.randint(3, 133, (rows, length), generator=torch.Generator().manual_seed(1))


def _logits(model: Any, ids: torch.Tensor, **inputs: Any) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(ids, **inputs).logits
    return logits


@pytest.mark.seed_row(54)
@pytest.mark.parametrize("config", list(ScratchConfig))
def test_a_model_has_as_many_values_as_its_shape_says(config: ScratchConfig) -> None:
    """The formula, counted."""
    model = _model(SHAPES[config])

    assert sum(parameter.numel() for parameter in model.parameters()) == SHAPES[config].num_parameters


def test_the_default_configuration_is_the_full_model() -> None:
    """Without any argument."""
    from mens_pipeline.training.scratch.transformer import VoxTransformerConfig, config_of  # noqa: PLC0415 - likewise

    assert VoxTransformerConfig().to_dict() == config_of(Shape()).to_dict()


@pytest.mark.seed_row(54)
def test_no_token_sees_what_comes_after_it() -> None:
    """Another token at place 30 changes nothing before it, and everything from it on."""
    model, ids = _model(), _ids(2, 40)
    other = ids.clone()
    other[:, 30] = (ids[:, 30] - 3 + 1) % 130 + 3
    before, after = _logits(model, ids), _logits(model, other)

    assert torch.equal(before[:, :30], after[:, :30])
    assert (before[:, 30:] != after[:, 30:]).any(dim=-1).all()


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_has_no_influence(side: str) -> None:
    """On either side, whatever stands in it."""
    model, ids = _model(), _ids(2, 40)
    padding, ones = torch.full((2, 9), 77), torch.ones_like(ids)
    parts = [(padding, torch.zeros_like(padding)), (ids, ones)]
    padded, mask = (torch.cat(part, 1) for part in zip(*(parts if side == "left" else parts[::-1]), strict=True))
    place = slice(9, None) if side == "left" else slice(0, 40)

    torch.testing.assert_close(
        _logits(model, padded, attention_mask=mask)[:, place], _logits(model, ids), rtol=1e-4, atol=1e-5
    )


def test_the_loss_is_that_of_the_labelled_positions() -> None:
    """The next token at each, prompt and padding left out."""
    model = _model()
    batch = collate([Encoded((5, 6, 7), (8, 9, 2)), Encoded((5,), (6, 2))])
    with torch.no_grad():
        loss = model(**batch).loss
    logits = _logits(model, batch["input_ids"], attention_mask=batch["attention_mask"])[:, :-1]
    expected = cross_entropy(logits.transpose(1, 2), batch["labels"][:, 1:], ignore_index=-100)

    torch.testing.assert_close(loss, expected)


def test_answers_do_not_depend_on_the_cache() -> None:
    """Token by token with what was kept, and every time from the start, with rows of different lengths."""
    model, ids = _model(), _ids(2, 20)
    mask = torch.ones_like(ids)
    mask[0, :6] = 0
    answers = [
        model.generate(ids, attention_mask=mask, max_new_tokens=24, do_sample=False, use_cache=use_cache)
        for use_cache in (True, False)
    ]
    alone = model.generate(ids[:1, 6:], max_new_tokens=24, do_sample=False)

    assert torch.equal(*answers)
    assert torch.equal(answers[0][0, 20:], alone[0, 14:])


def test_rows_beyond_the_last_place_are_refused() -> None:
    """With both numbers."""
    with pytest.raises(ValueError, match=r"a row of 513 tokens, and the model has 512 positions\. Give it short"):
        _model()(_ids(1, 513))


def test_heads_must_share_the_width() -> None:
    """Three of them cannot share 128."""
    with pytest.raises(ValueError, match=r"3 heads cannot share a width of 128\. Choose a hidden_size that is a mult"):
        _model(Shape(num_attention_heads=3, hidden_size=128))


def test_a_saved_model_is_the_same_model(tmp_path: Path) -> None:
    """Safetensors, through the Auto classes, without running code of the folder."""
    from mens_pipeline.training.scratch.auto import load_scratch_model  # noqa: PLC0415 - loads the stack
    from mens_pipeline.training.scratch.tokenizer import VoxTokenizer  # noqa: PLC0415 - likewise

    model, ids = _model(), _ids(1, 12)
    model.save_pretrained(tmp_path)
    VoxTokenizer().save_pretrained(tmp_path)
    loaded, tokenizer = load_scratch_model(tmp_path)

    assert (tmp_path / "model.safetensors").is_file()
    assert not list(tmp_path.glob("*.py"))
    assert type(loaded) is type(model)
    assert type(tokenizer) is VoxTokenizer
    assert torch.equal(_logits(loaded.eval(), ids), _logits(model, ids))


def test_dropout_is_only_for_training() -> None:
    """The full model's tenth changes what a training pass gives, and nothing else."""
    model, ids = _model(Shape(num_hidden_layers=1, hidden_size=64, intermediate_size=64)), _ids(1, 12)
    still = [_logits(model, ids) for _ in range(2)]
    model.train()

    assert torch.equal(*still)
    assert not torch.equal(_logits(model, ids), _logits(model, ids))
