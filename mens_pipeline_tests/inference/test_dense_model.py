"""The fast forward pass of a model on the CPU, and linear layers with other layouts of weights."""

from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.cli.demo import DEMO
from mens_pipeline.errors import RefusedError
from mens_pipeline.inference import dense_model
from mens_pipeline.inference.dense_model import (
    DenseModel,
    EightLinear,
    PackedLinear,
    replace_linear,
    speed_up,
)
from mens_pipeline.inference.engine import Engine, Slot
from mens_pipeline.inference.model import load_evaluated
from mens_pipeline.inference.prepare import evaluated_model
from mens_pipeline.inference.sampling import Sampler
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.models.find_base import find_base_model
from mens_pipeline.settings import load_settings
from mens_pipeline_tests.architectures import EACH, write_architecture
from mens_pipeline_tests.bench.engine import complete_plainly, complete_staggered, random_prompts

_DENSE = ("llama", "llama-biased", "qwen2", "qwen2-untied", "qwen3", "mistral")


@pytest.mark.parametrize("rows", [(1,), (3, 1), (2, 70)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("linear", "tolerance"), [(PackedLinear, 1e-5), (EightLinear, 0.08)])
@pytest.mark.parametrize("outputs", [80, 24])
def test_a_layer_computes_the_product_of_the_plain_layer(
    linear: Any,
    tolerance: float,
    rows: tuple[int, ...],
    bias: bool,  # noqa: FBT001 - pytest's way
    outputs: int,
) -> None:
    import torch

    torch.manual_seed(1)
    plain = torch.nn.Linear(48, outputs, bias=bias)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4).bfloat16(), torch.nn.Linear(4, 4))
    replace_linear(model, linear)
    assert [type(module) for module in model] == [torch.nn.Linear, linear], "other types stay"
    inputs = torch.randn(*rows, 48)
    with torch.inference_mode():
        torch.testing.assert_close(linear(plain)(inputs), plain(inputs), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", _DENSE)
def test_a_packed_model_gives_the_logits_of_the_library_bit_for_bit(name: str, tmp_path: Path) -> None:
    """The library's modules with packed weights and ours differ in no bit."""
    import torch

    folder = write_architecture(tmp_path, name)
    packed = _load(folder)
    replace_linear(packed, PackedLinear)
    fast = speed_up(_load(folder), in_eight_bits=False)

    assert isinstance(fast, DenseModel)
    assert not any(type(module) is torch.nn.Linear for module in packed.modules())
    for ours, theirs in zip(_logits(fast), _logits(packed), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", EACH)
def test_logits_equal_those_of_the_library(name: str, tmp_path: Path) -> None:
    """Up to rounding: of float32, or of eight bits."""
    folder = write_architecture(tmp_path, name)
    expected = _logits(_load(folder))
    for in_eight_bits, limit in ((False, 1e-5), (True, 0.2)):
        model = _load(folder)
        fast = speed_up(model, in_eight_bits=in_eight_bits)
        assert isinstance(fast, DenseModel) == (fast is not model) == (name in _DENSE)
        for ours, theirs in zip(_logits(fast), expected, strict=True):
            assert (ours - theirs).norm() < limit * theirs.norm()


@pytest.mark.parametrize("name", EACH)
def test_the_engine_writes_the_tokens_of_the_plain_loop(name: str, tmp_path: Path) -> None:
    plain = _load(write_architecture(tmp_path, name))
    prompts = random_prompts(plain)
    expected = [complete_plainly(plain, prompt, 10) for prompt in prompts]

    assert complete_staggered(speed_up(plain, in_eight_bits=False), prompts, 10) == expected


@pytest.mark.parametrize("name", _DENSE)
def test_typing_reads_only_new_tokens(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one layer, keys and values do not depend on the text before them, so nothing may change."""
    before, after, other = tuple(range(3, 43)), tuple(range(50, 70)), tuple(range(75, 95))
    cases = (
        (before, after, 62),
        ((*before, 7, 8, 9), after, 5),  # with the mark and the last token
        ((*before, 7, 8, 10), after, 3),  # a token grew
        ((*before, 7), after, 2),  # two were deleted
        ((*before, 7), (*after[:1], 6, *after[2:]), 2),  # the text after the cursor was edited
        ((*before, 7), other, 21),
        (before[:30], other, 22),  # too many were deleted
        ((*before[:30], *range(100, 121)), other, 23),
        ((*before[:30], *range(100, 121)), other, 1),
        ((*before[:30], *range(100, 180)), other, 61),
        ((*before[:30], *range(100, 200)), other, 42),  # too many since the text after the cursor was read
    )
    prompts = [((*left, 1, *right, 2), len(right), num_read) for left, right, num_read in cases]
    plain = _load(write_architecture(tmp_path, name, num_hidden_layers=1))
    expected = [complete_plainly(plain, prompt, 6) for prompt, _, _ in prompts]
    engine = Engine[Slot](speed_up(plain, in_eight_bits=False), frozenset(), 1, piece=512)
    widths, compute = list[int](), DenseModel.__call__

    def watch(model: DenseModel, **named: Any) -> Any:
        widths.append(named["input_ids"].shape[1])
        return compute(model, **named)

    monkeypatch.setattr(DenseModel, "__call__", watch)
    for (prompt, num_after, num_read), tokens in zip(prompts, expected, strict=True):
        engine.admit(slot := Slot(prompt, Sampler(0.0, 1.0, ""), 6, num_after=num_after))
        widths.clear()
        while engine.slots:
            engine.step()
        assert (slot.tokens, widths[0]) == (tokens, num_read)


@pytest.mark.parametrize(
    "changed", [{"hidden_act": "gelu"}, {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}]
)
def test_a_model_with_other_operations_keeps_its_own_forward_pass(changed: dict[str, Any], tmp_path: Path) -> None:
    folder = write_architecture(tmp_path, "llama", **changed)
    for in_eight_bits, expected in ((False, PackedLinear), (True, EightLinear)):
        model = _load(folder)
        assert speed_up(model, in_eight_bits=in_eight_bits) is model
        assert isinstance(model.model.layers[0].mlp.up_proj, expected)


@pytest.mark.parametrize(("name", "biased"), [("qwen2", "q_proj"), ("mistral-windowed", "down_proj")])
def test_rejects_a_forward_pass_with_other_results(
    name: str, biased: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    class Unbiased(PackedLinear):
        def __init__(self, linear: torch.nn.Linear) -> None:
            super().__init__(linear)
            self._bias = None

    folder = write_architecture(tmp_path, name)
    model = _load(folder)
    for layer, module in model.named_modules():
        if layer.endswith(biased):
            module.bias = torch.nn.Parameter(torch.randn(module.out_features))
    monkeypatch.setattr(dense_model, "PackedLinear", Unbiased)
    monkeypatch.setitem(dense_model._MOST_ROUNDED, Unbiased, dense_model._MOST_ROUNDED[PackedLinear])  # noqa: SLF001 - its limit
    found = r"its fast forward pass gives logits that are \d+\.\d+% off those of transformers, at most 0\.10% is"

    with pytest.raises(RefusedError, match=f"^{folder}: {found} expected. Report this"):
        speed_up(model, in_eight_bits=False)


@pytest.mark.parametrize("in_eight_bits", [False, True])
def test_rejects_an_error_as_small_as_rounding(
    in_eight_bits: bool,  # noqa: FBT001 - pytest's way
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wrong scale of one norm moves the logits less than eight bits may."""

    class Mistaken(DenseModel):
        def __init__(self, model: Any) -> None:
            super().__init__(model)
            self._norm = self._norm * 1.02

    monkeypatch.setattr(dense_model, "DenseModel", Mistaken)
    with pytest.raises(RefusedError, match=r"logits that are \d\.\d+% off .*, at most 0\.10% is expected"):
        speed_up(_load(write_architecture(tmp_path, "qwen2")), in_eight_bits=in_eight_bits)


@pytest.mark.nightly
def test_eight_bits_hardly_change_the_likeliest_token() -> None:
    """The adapter of the demo prefers the same token at nearly all positions of programs."""
    import torch
    from transformers import AutoTokenizer, DynamicCache

    adapter = Adapter.open(DEMO)
    find_base_model(adapter.manifest.base_model.name, None, load_settings().cache_root / "base_models")
    evaluated = evaluated_model("adapter", adapter, resolve_device(DeviceChoice.CPU))
    tokenizer = AutoTokenizer.from_pretrained(evaluated.base_path)
    texts = [path.read_text(encoding="utf-8") for path in sorted(Path("data/golden").rglob("*.vox"))[::40]]
    programs = [torch.tensor([tokenizer.encode(text)[:300]]) for text in texts]
    likeliest = []
    for load in (load_evaluated, lambda model: speed_up(load_evaluated(model), in_eight_bits=True)):
        model = load(evaluated)
        with torch.inference_mode():
            passes = [
                model(input_ids=ids, past_key_values=DynamicCache(config=model.config)).logits[0] for ids in programs
            ]
        likeliest.append(torch.cat([logits.argmax(-1) for logits in passes]))

    assert len(likeliest[0]) >= 1500
    assert (likeliest[0] == likeliest[1]).float().mean() >= 0.94


def _load(base: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()


def _logits(model: Any) -> list[Any]:
    import torch
    from transformers import DynamicCache

    ids = torch.arange(60) % model.config.vocab_size
    alone, together = DynamicCache(config=model.config), DynamicCache(config=model.config)
    mask = torch.ones(3, 10, dtype=torch.long)
    mask[1, :4] = 0
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    longer = torch.nn.functional.pad(mask, (0, 1), value=1)
    passes = [
        {"input_ids": ids[None, :20], "past_key_values": alone, "logits_to_keep": 1},
        {"input_ids": ids[None, 20:40], "attention_mask": torch.ones(1, 40).long(), "past_key_values": alone},
        {"input_ids": ids[None, 40:41], "past_key_values": alone, "position_ids": torch.tensor([[40]])},
        {"input_ids": ids[:30].view(3, 10), "attention_mask": mask, "position_ids": positions},
        {"input_ids": ids[30:33, None], "attention_mask": longer, "position_ids": positions[:, -1:] + 1},
    ]
    with torch.inference_mode():
        return [model(**{"past_key_values": together, "use_cache": True, **each}).logits for each in passes]
