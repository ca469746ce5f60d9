"""Checks before any weight is loaded."""

import importlib.metadata
import re
import sys
import sysconfig
from collections import Counter
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from mens_pipeline.corpus.schema.reasons import NotShown
from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs import device as devices
from mens_pipeline.jobs.device import Device
from mens_pipeline.models.chat import IM_END, IM_START
from mens_pipeline.settings import PRESETS
from mens_pipeline.training import preflight
from mens_pipeline.training.examples import Example, Examples
from mens_pipeline.training.plan import BatchPlan, build_columns
from mens_pipeline.training.preflight import (
    MemoryEstimate,
    check_disk,
    check_examples,
    check_logits,
    check_tokenizer,
    compute_dtype,
    estimate_memory,
    has_linear_kernels,
    installed_memory_gb,
    kernel_notes,
    kernels_found,
    layer_bytes,
    preflight_document,
)
from mens_pipeline.training.presets import load_named
from mens_pipeline.training.qlora import keep_adapter_in_float32, keep_input_precision, lora_config
from mens_pipeline.training.recipe import Recipe
from mens_pipeline_tests.every import every
from mens_pipeline_tests.training.encoded import Row, batches_of
from mens_pipeline_tests.training.small_folder import Encoder, described_base, write_folder

_SAID = {"max_length": "--seq-len", "min_rating": "preset tiny"}
_ORIGINS = {**dict.fromkeys(Recipe.model_fields, "default"), **_SAID}
_MEGA = 2**20
_PROCESSOR = Device("cpu", "x86_64, 2 threads", None, has_bfloat16=False)


def _examples(number: int, **counts: Any) -> Examples:
    rows, columns = [Example((1, 2), (3, 7))] * number, build_columns([Row(4)] * number)
    return Examples(**{"train": rows, "columns": columns, "seen": number, "kept": number, **counts})


def test_memory_is_estimated_from_sizes() -> None:
    """The base in 4.5 bits except its embeddings, the adapter with its optimiser, activations and logits.

    It grows with rank, tokens and the width of values; logits never cover more than a few thousand positions.
    """
    base = described_base(num_layers=3, hidden_size=64, vocab_size=1000, num_parameters=1_064_000)
    memory = estimate_memory(base, Recipe(lora_r=8), tokens_at_once=512, computed_on=("cpu", "float32"), layer=0)

    assert memory.base == pytest.approx((1_000_000 * (4.5 / 8 + 4) + 64_000 * 4) / _MEGA)
    assert memory.adapter == pytest.approx(3 * 7 * 3 * 64 * 8 * 16 / _MEGA)
    assert memory.activations == pytest.approx(512 * 3 * 64 * 34 * 2 / _MEGA)
    assert memory.logits == pytest.approx(256 * 1000 * 8 / _MEGA)
    assert memory.total == pytest.approx(memory.base + memory.adapter + memory.activations + memory.logits)
    small = estimate_memory(base, Recipe(lora_r=8), 4096, ("cpu", "bfloat16"), 0)
    large = estimate_memory(base, Recipe(lora_r=16), 8192, ("cpu", "float32"), 0)
    rounded = estimate_memory(base, Recipe(), 4096, ("cpu", "int8"), 0)
    assert rounded.base == pytest.approx((1_000_000 * (4.5 / 8 + 2) + 64_000 * 4) / _MEGA)
    assert (large.adapter, large.activations) == (2 * small.adapter, 4 * small.activations)
    assert (large.logits, large.checkpoints) == (small.logits, 4 * large.adapter)
    assert large.base > small.base


@pytest.mark.parametrize(
    ("every_n", "widths"), [(None, 2 * 32 + 34), (1, 2 * 32 + 34), (2, 2 * 16 + 17 * 34), (0, 32 * 34)]
)
def test_layers_that_keep_their_activations_need_memory(every_n: int | None, widths: int) -> None:
    """All activations of layers that do not recompute; of the others the inputs, and all of one layer at a time.

    On a GPU all recompute by default, so that many layers need little more than one.
    """
    base = described_base(num_layers=32, hidden_size=64, vocab_size=1000, num_parameters=1_064_000)
    recipe = Recipe(checkpoint_every_n_layers=every_n)

    memory = estimate_memory(base, recipe, 4096, ("cuda", "bfloat16"), 64 * 34)
    on_cpu = estimate_memory(base, Recipe(), 4096, ("cpu", "bfloat16"), 64 * 34)

    assert memory.activations == pytest.approx(4096 * 64 * widths / _MEGA)
    assert memory.logits == pytest.approx(4096 * 1000 * 2 / _MEGA)
    assert every_n is not None or memory.activations < on_cpu.activations / 10


def _shape(kind: str, hidden: int, inner: int, heads: int, groups: int, **more: Any) -> dict[str, Any]:
    sizes = {"hidden_size": hidden, "intermediate_size": inner}
    return {"model_type": kind, **sizes, "num_attention_heads": heads, "num_key_value_heads": groups, **more}


_LINEAR = {"linear_num_value_heads": 32, "linear_num_key_heads": 16}
_WIDTHS = {"head_dim": 256, "linear_key_head_dim": 128, "linear_value_head_dim": 128}
_QWEN35 = _shape("qwen3_5_text", 2560, 9216, 16, 4, **_LINEAR, **_WIDTHS)
_SHAPES = {
    "SmolLM2-135M": _shape("llama", 576, 1536, 9, 3),
    "Qwen3-4B": _shape("qwen3", 2560, 9728, 32, 8, head_dim=128),
    "Qwen3.5-4B, linear": {**_QWEN35, "layer_types": ["linear_attention"]},
    "Qwen3.5-4B, full": {**_QWEN35, "layer_types": ["full_attention"]},
}


@pytest.mark.parametrize("name", [name for name, preset in load_named(PRESETS).items() if preset.min_vram_gb])
def test_every_preset_fits_the_gpu_that_selects_it(name: str) -> None:
    """With Qwen3.5-4B and without its kernels: its largest micro-batch, with the margin that preflight requires."""
    preset = load_named(PRESETS)[name]
    assert preset.min_vram_gb is not None
    base = described_base(num_layers=32, hidden_size=2560, vocab_size=248_320, num_parameters=4_205_000_000)
    recipe = Recipe.model_validate(preset.values)
    layer = layer_bytes(_QWEN35 | {"layer_types": ["linear_attention", "full_attention"]}, has_kernels=False)
    assert recipe.tokens_at_once is not None
    memory = estimate_memory(base, recipe, recipe.tokens_at_once, ("cuda", "bfloat16"), layer)

    assert recipe.max_length >= 2048
    assert memory.total < 0.85 * 1024 * preset.min_vram_gb


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _SHAPES)
def test_a_layer_saves_the_estimated_bytes(name: str) -> None:
    """Within a tenth of the bytes that autograd saves for a token, on one layer of real width with an adapter."""
    shape = _SHAPES[name]
    measured = _measure_saved_bytes(shape, num_tokens=128)

    assert layer_bytes(shape, has_kernels=False) == pytest.approx(measured, rel=0.1)


def _measure_saved_bytes(shape: dict[str, Any], num_tokens: int) -> float:
    """Measure the bytes that one layer saves for the gradients of a token, without weights."""
    import torch
    from peft import get_peft_model
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    config = AutoConfig.for_model(**shape, vocab_size=256, num_hidden_layers=1, use_cache=False)
    with no_init_weights():  # values do not matter
        plain = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model = get_peft_model(plain, lora_config(Recipe(lora_r=4, lora_alpha=8), plain)).train()
    keep_adapter_in_float32(model)
    keep_input_precision(model)
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    saved: dict[int, Any] = {}  # the storages, so that none is given to another tensor

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage
        return tensor

    states = torch.randn(1, num_tokens, shape["hidden_size"], dtype=torch.bfloat16, requires_grad=True)
    places = torch.arange(num_tokens)[None]
    body = model.get_base_model().model
    rotary = body.rotary_emb(states, places)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t), torch.autocast("cpu", dtype=torch.bfloat16):
        body.layers[0](states, position_embeddings=rotary, attention_mask=None, position_ids=places)
    return float(sum(storage.nbytes() for storage in saved.values())) / num_tokens


def test_a_model_that_scales_its_logits_does_not_train_on_a_cpu(tmp_path: Path) -> None:
    """On a CPU the loss uses unscaled logits; a scale of one changes nothing."""
    plain = described_base(write_folder(tmp_path / "plain", logit_scale=1.0, final_logit_softcapping=None))
    scaled = described_base(write_folder(tmp_path / "scaled", logits_scaling=8.0))
    check_logits(plain, "cpu")
    check_logits(scaled, "cuda")

    with pytest.raises(RefusedError, match=r"org/model: logits_scaling in config\.json scales .* Train it on a GPU"):
        check_logits(scaled, "cpu")


def test_control_tokens_must_be_one_id_each() -> None:
    chatml, other = Encoder(), Encoder(special=(IM_START,))

    assert check_tokenizer(chatml, Path("base")) == chatml.id_of(IM_END)

    with pytest.raises(
        RefusedError,
        match=r"base: <\|im_end\|> is \d+ tokens, not one\. Choose a base model that was trained on ChatML",
    ):
        check_tokenizer(other, Path("base"))


@pytest.mark.seed_row(62)
def test_rejects_too_few_rows_with_the_reasons_for_the_others() -> None:
    examples = _examples(2, seen=6, dropped=Counter({NotShown.TOO_LONG: 3, NotShown.LOW_RATING: 1}))
    check_examples(_examples(3), 3, _ORIGINS)
    check_examples(_examples(0), 0, _ORIGINS)

    with pytest.raises(
        RefusedError,
        match=r"2 training rows, 3 needed \(left out: 3 too_long, 1 low_rating\)\. Change max_length \(--seq-len\)"
        r", min_rating \(preset tiny\), or extract",
    ):
        check_examples(examples, 3, _ORIGINS)
    with pytest.raises(RefusedError, match=r"1 other_difficulty\)\. Change min_difficulty \(\w+\), max_difficulty"):
        check_examples(_examples(2, seen=3, dropped=Counter({NotShown.OTHER_DIFFICULTY: 1})), 3, _ORIGINS)
    with pytest.raises(RefusedError, match=r"0 training rows, 1 needed \(left out: none\)"):
        check_examples(_examples(0), 1, _ORIGINS)
    with pytest.raises(RefusedError, match=r"some of 3 rows are neither shown nor left out\. Report this bug"):
        check_examples(_examples(2, seen=3), 1, _ORIGINS)


def test_checks_the_space_on_disk(tmp_path: Path) -> None:
    check_disk(tmp_path, 0.0)

    with pytest.raises(RefusedError, match=r"\d+ MB free, 1099511627776 MB needed\. Make room, or use another disk"):
        check_disk(tmp_path, 2.0**40)


def _document(device: Device, memory: MemoryEstimate, **recipe: Any) -> dict[str, Any]:
    plan, base = BatchPlan(batches_of((0, 1), (2,)), 1, (0,)), described_base(Path("/models/base"))
    return preflight_document("c" * 64, base, device, Recipe(**recipe), _examples(3), plan, memory)


def test_the_document_contains_the_checked_values() -> None:
    document = _document(_PROCESSOR, MemoryEstimate(1.0, 2.0, 3.0, 4.0))

    assert document["schema_version"] == "vox.mens.preflight.v0"
    assert (document["contract_digest"], document["execution_kernel"]) == ("c" * 64, "qlora")
    assert document["base_model"]["path"] == "/models/base"
    assert document["device"] == {"kind": "cpu", "name": "x86_64, 2 threads", "memory_gb": None}
    assert (document["data"]["num_rows"], document["num_steps"], document["num_micro_batches"]) == (3, 1, 2)
    assert document["memory_mb"] == {"base": 1.0, "adapter": 2.0, "activations": 3.0, "logits": 4.0, "total": 10.0}
    assert document["notes"] == []
    assert document["kinds"]["vox_codegen"]["rows_shown"] == 3


_CARD = Device("cuda", "card", 8.0, has_bfloat16=True)
_MACHINE_MB = 1024 * installed_memory_gb()


@pytest.mark.parametrize(
    ("device", "needed_mb", "shares", "notes"),
    [
        (_PROCESSOR, 10.0, {"task": 0.1, "vox_codegen": 0.2, "raw": 0.1}, ["token_shares: no rows of raw, task "]),
        (_PROCESSOR, 2 * _MACHINE_MB, {}, [f"about {2 * _MACHINE_MB:.0f} MB, but .*{_MACHINE_MB:.0f} MB"]),
        (_CARD, 6900.0, {}, []),
        (_CARD, 7100.0, {}, ["about 7100 MB, but the device has 8192 MB$"]),
    ],
    ids=["shares", "machine", "card", "small card"],
)
def test_notes_possible_problems(device: Device, needed_mb: float, shares: dict[str, float], notes: list[str]) -> None:
    """Memory is noted from 85 % on; the estimate is rough, so nothing is refused."""
    found = _document(device, MemoryEstimate(needed_mb, 0.0, 0.0, 0.0), token_shares=shares)["notes"]

    assert len(found) == len(notes)
    assert all(re.search(expected, note) for expected, note in zip(notes, found, strict=True))


@pytest.mark.parametrize(
    ("has_bfloat16", "has_int8", "requested", "expected"),
    [
        (True, True, "auto", "bfloat16"),
        (False, True, "auto", "int8"),
        (False, False, "auto", "float32"),
        (False, True, "float32", "float32"),
        (True, False, "int8", "int8"),
    ],
)
def test_a_cpu_computes_in_its_fastest_type(
    has_bfloat16: bool,  # noqa: FBT001 - of the processor
    has_int8: bool,  # noqa: FBT001 - of the processor
    requested: str,
    expected: str,
) -> None:
    processor = Device("cpu", "cores", None, has_bfloat16, has_int8=has_int8)

    assert compute_dtype(Recipe(bnb_4bit_compute_dtype=requested), processor) == expected


def test_a_gpu_does_not_compute_in_eight_bits() -> None:
    with pytest.raises(RefusedError, match=r"^bnb_4bit_compute_dtype is int8, .* only a CPU .*, not card\. Use auto\."):
        compute_dtype(Recipe(bnb_4bit_compute_dtype="int8"), _CARD)


_HYBRID = {"text_config": {"layer_types": ["linear_attention", "full_attention"]}}


def test_notes_missing_compilers_and_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton needs a compiler and headers, some bases kernels of linear attention; notes name the missing ones."""
    monkeypatch.setenv("CC", "/nowhere/cc")
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path))
    found = kernels_found({"layer_types": None}, (8, 0))

    assert found == {"c_compiler": False, "python_headers": False}
    assert [note.split(":")[0] for note in kernel_notes(found)] == ["no C compiler", "no Python.h"]
    monkeypatch.setenv("CC", "/bin/sh")
    (tmp_path / "Python.h").touch()
    assert kernel_notes(kernels_found({"layer_types": None}, (8, 0))) == []


@every("number", range(3))
def test_detects_an_incomplete_package_of_kernels(number: int) -> None:
    """`fla` alone, as in one of its two wheels; with operations whose imports fail; and complete."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        package = Path(folder, "fla")
        (package / "ops").mkdir(parents=True)
        (package / "__init__.py").touch()
        if number:
            (package / "ops" / "gated_delta_rule.py").write_text(("import nowhere", "")[number - 1])
        patch.setenv("PYTHONPATH", folder)
        preflight._can_import.cache_clear()  # noqa: SLF001 - a process asks once
        found = kernels_found(_HYBRID, (8, 0))
    preflight._can_import.cache_clear()  # noqa: SLF001 - likewise

    assert has_linear_kernels(found) == (number == 2)
    assert any(note.startswith("fla.ops.gated_delta_rule cannot be") for note in kernel_notes(found)) == (number < 2)


@every("given", list(product((8, 9, 12), ("3.3.1", "3.6.0", "3.7.0+cu130", "3.7.1", None), (False, True))))
def test_only_a_hopper_gpu_with_some_versions_of_triton_is_slow(given: tuple[int, str | None, bool]) -> None:
    """Training raises there unless flash-qla is installed, and a CPU never runs kernels of Triton."""
    major, triton, has_other = given

    def version(name: str) -> str:
        if triton is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return triton

    with pytest.MonkeyPatch.context() as patch:
        # First, since it loads torch, which asks for versions of its own.
        patch.setattr("torch.cuda.get_device_capability", lambda _device: (major, 0))
        patch.setattr(importlib.metadata, "version", version)
        patch.setattr(devices, "find_spec", lambda name: has_other or None if name == "flash_qla" else None)
        patch.setattr(preflight, "_can_import", lambda _module: True)
        found = kernels_found(_HYBRID, (major, 0))
        is_left_out = {}
        for where in ("cuda", 0, "cpu"):
            patch.delitem(sys.modules, "fla", raising=False)
            devices.leave_out_kernels(where)
            is_left_out[where] = "fla" in sys.modules
        patch.delitem(sys.modules, "fla", raising=False)
    is_raising = major == 9 and triton in {"3.6.0", "3.7.0+cu130"} and not has_other

    assert has_linear_kernels(found) == (not is_raising)
    assert is_left_out == {"cuda": is_raising, 0: is_raising, "cpu": True}
    assert any("Install Triton 3.7.1, or flash-qla 0.1.3" in note for note in kernel_notes(found)) == is_raising
