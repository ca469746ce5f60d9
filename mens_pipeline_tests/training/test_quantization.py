"""Quantization of a base: four bits or bfloat16, as requested or as the memory allows."""

import sys
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.prepare import Model, evaluated_model
from mens_pipeline.jobs.device import Device
from mens_pipeline.jobs.protocol import ExitCode
from mens_pipeline.models.adapter import ADAPTER, Adapter
from mens_pipeline.models.base import Base
from mens_pipeline.models.find_base import base_by_name
from mens_pipeline.settings import DOMAINS, PRESETS
from mens_pipeline.training.preflight import estimate_memory, fit_memory, layer_bytes
from mens_pipeline.training.presets import load_named, resolve_recipe
from mens_pipeline.training.qlora_adapter import finish_run, training_manifest
from mens_pipeline.training.recipe import Recipe, TrainingJob
from mens_pipeline_tests.every import every
from mens_pipeline_tests.training.runs import prepare_fast, train_here
from mens_pipeline_tests.training.small_folder import described_base
from mens_pipeline_tests.training.test_manifest import RESULT
from mens_pipeline_tests.training.tiny_base import LAYERS

_BASE = base_by_name("Qwen/Qwen3.5-4B")
_LAYER: Final = 350_000
"""About the bytes that a layer of this base keeps for a token, without the kernels of linear attention."""

_WITH_KERNELS: Final = 224_256

_CPU = Device("cpu", "cores", None, has_bfloat16=True)
_MEGA = 2**20


def _card(gigabytes: float | None, *, has_bfloat16: bool = True, kind: Literal["cuda", "mps"] = "cuda") -> Device:
    return Device(kind, "a GPU", gigabytes, has_bfloat16=has_bfloat16)


def _choose(device: Device, **fields: Any) -> str:
    preset = "cpu_demo" if device.preset_gb is None else "auto"
    choice: dict[str, Any] = {"preset": preset, "domain": None, "environment": {}, "flags": fields}
    recipe = resolve_recipe(load_named(PRESETS), load_named(DOMAINS), **choice, vram_gb=device.preset_gb).recipe
    assert recipe.tokens_at_once is not None
    held = fit_memory(recipe, _BASE, recipe.tokens_at_once, device, _LAYER).quantization
    assert held is not None
    return held


@every(
    "case",
    [
        *((_card(gigabytes), {}, "nf4") for gigabytes in (5.8, 7.8, 9.7, 11.8, 15.7, None)),
        (_card(23.7), {}, "bf16"),
        (_card(139.8), {}, "bf16"),
        (_card(31.7, has_bfloat16=False), {}, "nf4"),  # V100
        (_card(64.0, has_bfloat16=False, kind="mps"), {}, "nf4"),
        (_CPU, {}, "nf4"),
        (_card(139.8), {"quantization": "nf4"}, "nf4"),
        (_card(7.8), {"quantization": "bf16"}, "bf16"),
        (_CPU, {"quantization": "bf16"}, "bf16"),
        (_card(139.8), {"bnb_4bit_compute_dtype": "float32"}, "nf4"),  # bf16 has no float32
    ],
)
def test_a_base_of_four_billion_is_in_bfloat16_from_24_gigabytes_on(case: tuple[Device, dict[str, Any], str]) -> None:
    """With the preset of the GPU, if it fits in training and beside completions; up to 16 GB in four bits.

    An explicit value wins on any device.
    """
    device, fields, expected = case

    assert _choose(device, **fields) == expected


_CODER_7B = described_base(num_layers=28, hidden_size=3584, vocab_size=152_064, num_parameters=7_615_616_512)
_QWEN_2B = described_base(num_layers=24, hidden_size=2048, vocab_size=248_320, num_parameters=2_300_000_000)
"""With its part for images, which is held as well."""
_HEADS: Final = {"linear_num_value_heads": 16, "linear_value_head_dim": 128, "linear_key_head_dim": 128}
_OTHERS: Final[dict[str, tuple[Base, dict[str, Any]]]] = {
    "coder_7b": (_CODER_7B, {"intermediate_size": 18_944, "num_attention_heads": 28}),
    "qwen_2b_8g": (
        _QWEN_2B,
        {"intermediate_size": 6144, "num_attention_heads": 8, "layer_types": ["linear_attention"], **_HEADS},
    ),
}
_HELD: Final = {
    ("coder_7b", 11.8): "nf4",
    ("coder_7b", 15.7): "nf4",
    ("coder_7b", 23.7): "bf16",
    ("qwen_2b_8g", 7.6): "bf16",
}


@every("case", _HELD)
def test_other_bases_fit_the_gpus_that_their_presets_name(case: tuple[str, float]) -> None:
    """By the estimate, without kernels: 7 billion parameters in bf16 from 24 GB on, in four bits from 12; 2 from 8."""
    name, gigabytes = case
    base, sizes = _OTHERS[name]
    recipe = Recipe.model_validate(load_named(PRESETS)[name].values)
    layer = layer_bytes({"hidden_size": base.hidden_size, **sizes}, has_kernels=False)
    tokens = recipe.tokens_at_once or 0
    held = fit_memory(recipe, base, tokens, _card(gigabytes), layer)
    needed = estimate_memory(base, held, tokens, ("cuda", "bfloat16"), layer).total
    is_packed = held.quantization == "nf4"
    head = 2 * base.vocab_size * base.hidden_size / _MEGA if is_packed else 0.0  # of 7B, neither tied nor quantised

    assert held.quantization == _HELD[case]
    assert needed + head < 0.85 * 1024 * gigabytes


@pytest.mark.seed_row(19, 56)
def test_the_preset_of_the_pages_is_qlora_unless_a_flag_differs() -> None:
    """`--preset qwen_4080_16g` on a GPU with room for more: NF4, double quantisation, and their origins."""
    choice: dict[str, Any] = {"preset": "qwen_4080_16g", "domain": None, "environment": {}, "vram_gb": 15.7}
    presets, domains = load_named(PRESETS), load_named(DOMAINS)
    found = resolve_recipe(presets, domains, flags={}, **choice)
    asked = resolve_recipe(presets, domains, flags={"quantization": "bf16"}, **choice)
    device, tokens = _card(15.7), found.recipe.tokens_at_once or 0

    assert fit_memory(found.recipe, _BASE, tokens, device, _LAYER).quantization == "nf4"
    assert found.recipe.bnb_4bit_use_double_quant
    assert found.origins["quantization"] == found.origins["bnb_4bit_use_double_quant"] == "preset qwen_4080_16g"
    assert fit_memory(asked.recipe, _BASE, tokens, device, _LAYER).quantization == "bf16"
    unset = found.recipe.model_copy(update={"quantization": None})
    found_room = fit_memory(unset, _BASE, tokens, device, _LAYER).quantization
    assert found_room == "bf16", "there is room: the preset decides"


@pytest.mark.parametrize(
    ("device", "fields", "expected"),
    [
        (_card(139.8), {}, "none"),
        (_card(79.1), {}, "none"),
        (_card(79.1, has_bfloat16=False), {}, "1 in 2"),
        (_card(47.5), {}, "1 in 2"),
        (_card(39.4), {}, "all"),
        (_card(5.8), {}, "all"),
        (_card(5.8), {"max_tokens_per_batch": 2048, "max_length": 128, "tokens_per_step": 128}, "none"),
        (_card(139.8), {"checkpoint_every_n_layers": 4}, "1 in 4"),
        (_card(None), {}, "all"),
        (_card(64.0, kind="mps"), {}, "all"),
        (_CPU, {}, "none"),
    ],
)
def test_layers_are_recomputed_only_as_far_as_memory_requires(
    device: Device, fields: dict[str, Any], expected: str
) -> None:
    """Qwen3.5-4B with its kernels. In smaller steps a small GPU keeps all activations too."""
    preset = "auto" if device.preset_gb is not None else "h200"
    asked: dict[str, Any] = {"preset": preset, "domain": None, "environment": {}, "flags": fields}
    recipe = resolve_recipe(load_named(PRESETS), load_named(DOMAINS), **asked, vram_gb=device.preset_gb).recipe

    assert fit_memory(recipe, _BASE, recipe.tokens_at_once or 0, device, _WITH_KERNELS).recomputed_layers == expected


def test_bfloat16_that_is_only_emulated_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"quantization bf16: a GPU does not compute in bfloat16\. Use quantiz"):
        _choose(_card(31.7, has_bfloat16=False), quantization="bf16")


def test_estimates_memory_for_both_quantizations() -> None:
    """Two bytes for a value instead of 4.5 bits, with nothing copied; all else is the same."""
    sizes: tuple[Any, ...] = (8192, ("cuda", "bfloat16"), _LAYER)
    packed, whole = (estimate_memory(_BASE, Recipe(quantization=held), *sizes) for held in ("nf4", "bf16"))
    values = _BASE.num_parameters - _BASE.vocab_size * _BASE.hidden_size

    assert whole.base == pytest.approx(2 * _BASE.num_parameters / _MEGA)
    assert whole.base - packed.base == pytest.approx(values * (2 - 4.5 / 8) / _MEGA)
    assert whole[1:] == packed[1:]


@pytest.mark.filterwarnings("ignore")
def test_adapters_train_on_a_base_in_bfloat16(tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where only autocast casts: the base in bfloat16, trained parameters in float32.

    With the optimizer of a GPU, and without bitsandbytes, which only four bits need.
    The manifest records the quantization; evaluation requires the base's own values, and is refused if they do not fit.
    """
    import torch

    from mens_pipeline.training import train  # noqa: PLC0415 - loads the deep learning stack
    from mens_pipeline.training.qlora import keep_input_precision  # noqa: PLC0415 - likewise

    made, trainers = train.build_arguments, []
    make_trainer = train._trainer  # noqa: SLF001 - to look at what it makes

    def build_gpu_arguments(job: TrainingJob, *given: Any) -> dict[str, Any]:
        there = made(job.model_copy(update={"device": "cuda"}), *given)
        again = ("activation_checkpointing", "activation_checkpointing_kwargs", "optim")
        return {**made(job, *given), **{name: there[name] for name in again}}

    def keep_trainer(*given: Any) -> Any:
        trainers.append(make_trainer(*given))
        trainers[-1].scores_labels_alone = False
        return trainers[-1]

    monkeypatch.setattr(train, "build_arguments", build_gpu_arguments)
    monkeypatch.setattr(train, "replace_slow_parts", lambda model, *_, **__: keep_input_precision(model))
    monkeypatch.setattr(train, "_trainer", keep_trainer)
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    fields: dict[str, Any] = {"max_steps": 3, "quantization": "bf16", "validation_split_ratio": 0.2}
    run = prepare_fast(tiny_base, tmp_path, bnb_4bit_compute_dtype="auto", **fields)
    result = train_here(run)
    manifest = finish_run(run, None, ExitCode.DONE)
    (trainer,) = trainers
    adapter, no_room = Adapter.open(run.job.run_dir), _card(1.0)

    assert run.job.compute_dtype == result["compute_dtype"] == "bfloat16"
    assert result["validation_loss"] > 0
    assert result["num_changed_matrices"] == result["num_adapter_matrices"] == 14 * LAYERS
    assert {p.dtype for p in trainer.model.parameters() if p.requires_grad} == {torch.float32}
    assert {p.dtype for p in trainer.model.parameters() if not p.requires_grad} == {torch.bfloat16}
    assert (manifest.recipe.quantization, manifest.recipe_origins["quantization"]) == ("bf16", "flag")
    assert (manifest.backend, manifest.adapter_method) == ("qlora", "lora")
    assert manifest.as_json()["quant"] == {"base_quant": "none", "double_quant": False}
    assert "| method | LoRA: base in bfloat16 |" in (run.job.run_dir / ADAPTER / "README.md").read_text()
    assert evaluated_model("adapter", adapter, _CPU).quantization == "none"
    assert evaluated_model("base", adapter, _CPU).quantization == "none"
    with pytest.raises(RefusedError, match=r"a GPU has no room for .* in bfloat16, on which the adapter was trained"):
        evaluated_model("adapter", adapter, no_room)


@pytest.mark.parametrize(
    ("device", "model", "expected"),
    [
        (_CPU, "adapter", ("nf4", True, "dense")),
        (_CPU, "base", ("none", False, "dense")),
        (_card(1.0), "adapter", ("nf4", True, "nf4")),
        (_card(1.0), "base", ("nf4", True, "nf4")),
    ],
)
def test_the_base_is_evaluated_as_its_users_run_it(
    tiny_base: Path, tmp_path: Path, device: Device, model: Model, expected: tuple[str, bool, str]
) -> None:
    """In full if it fits, although its adapter is evaluated on the values of four bits; otherwise in four bits too."""
    run = prepare_fast(tiny_base, tmp_path)
    manifest = training_manifest(run, RESULT, None)
    found = evaluated_model(model, Adapter(run.job.run_dir, "0" * 64, manifest), device)

    assert manifest.recipe_origins["quantization"] == "device cpu"
    assert (found.quantization, found.double_quant, found.held) == expected
