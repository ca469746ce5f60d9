"""Manifests and configurations that training writes are read; anything else is refused with its place."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generation import EvaluatedModel
from mens_pipeline.inference.model import load_evaluated
from mens_pipeline.models.adapter import MANIFEST, WEIGHTS, TrainingManifest, read_adapter_config
from mens_pipeline_tests.training.manifests import manifest_about
from mens_pipeline_tests.training.small_folder import described_base


def _change(at: tuple[str, ...], *value: Any) -> str:
    """Return a manifest with another value at a path, or without it."""
    manifest = manifest_about(described_base())
    part = manifest
    for key in at[:-1]:
        part = part[key]
    del part[at[-1]]
    if value:
        part[at[-1]] = value[0]
    return json.dumps(manifest)


def test_a_manifest_that_training_writes_is_read(tmp_path: Path) -> None:
    manifest = manifest_about(described_base(), libraries={"torch": "2"}, n_layers=30)
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))

    assert TrainingManifest.read(tmp_path / MANIFEST).as_json() == manifest


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "expected a JSON object, found list"),
        ("{}", "backend is nothing, expected qlora"),
        ("null", "expected a JSON object, found NoneType"),
        ('{"backend": ["lora"]}', r"backend is \['lora'\]"),
        (
            '{"backend": "qlora", "manifest_schema_version": 8}',
            "adapter_method: Field required; tokenizer: Field required; name: Field required; .* and 9 more",
        ),
        (_change(("name",), "../../home/x"), "name: String should match"),
        (_change(("name",), "x" * 129), "name: String should match"),
        (_change(("base_model",), "HuggingFaceTB"), "base_model: Input should be"),
        (_change(("base_model", "path"), 3), r"base_model\.path: Input should be a path"),
        (_change(("base_model", "path"), ""), r"base_model\.path: Input should be a path"),
        (_change(("base_model", "path"), "a\0b"), r"base_model\.path: Input should be a path"),
        (_change(("base_model", "sha256"), "A" * 64), r"base_model\.sha256: String should match"),
        (_change(("recipe", "target_modules"), [["q"]]), r"recipe\.target_modules\."),
        (_change(("result", "seconds"), "9"), r"result\.seconds: Input should be a valid number"),
        (_change(("result", "train_loss"), float("nan")), r"result\.train_loss: Input should be a finite number"),
        (_change(("result", "longest"), 7.5), r"result\.longest: Input should be a valid integer"),
        (_change(("result", "longest"), -1), r"result\.longest: Input should be greater"),
        (_change(("system_prompt",), None), "system_prompt: Input should be a valid string"),
        (_change(("base_model", "architecture")), r"base_model\.architecture: Field required"),
        (_change(("result", "compute_dtype")), r"result\.compute_dtype: Field required"),
        (_change(("train_file",)), "train_file: Field required"),
    ],
)
def test_an_invalid_manifest_is_refused(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / MANIFEST).write_text(content)

    with pytest.raises(RefusedError, match=rf"{MANIFEST}: .*{problem}.*Name the folder of a complete run"):
        TrainingManifest.read(tmp_path / MANIFEST)


def test_an_unreadable_manifest_is_refused(tmp_path: Path) -> None:
    """One of newer code asks for an upgrade."""
    path = tmp_path / MANIFEST
    with pytest.raises(RefusedError, match="No such file or directory"):
        TrainingManifest.read(path)
    with pytest.raises(RefusedError, match="Is a directory"):
        TrainingManifest.read(tmp_path)
    path.write_text('{"backend": "qlora", "manifest_schema_version": 9}')
    with pytest.raises(RefusedError, match=r"written by a newer version .*format 9, .*Upgrade it\.$"):
        TrainingManifest.read(path)


def test_an_adapter_without_an_order_has_the_suffix_first(tmp_path: Path) -> None:
    """Older runs did not record the order; all of them had the suffix first."""
    for order in ({}, {"infill_order": "prefix_first"}):
        (tmp_path / MANIFEST).write_text(json.dumps(manifest_about(described_base(), **order)))

        assert TrainingManifest.read(tmp_path / MANIFEST).infill_order == order.get("infill_order", "suffix_first")


_WRITTEN: dict[str, Any] = {
    "alora_invocation_tokens": None,
    "alpha_pattern": {},
    "base_model_name_or_path": "tiny",
    "bias": "none",
    "corda_config": None,
    "fan_in_fan_out": False,
    "inference_mode": True,
    "init_lora_weights": True,
    "layers_pattern": None,
    "loftq_config": {},
    "lora_alpha": 8,
    "lora_dropout": 0.05,
    "megatron_core": "megatron.core",
    "peft_type": "LORA",
    "peft_version": "0.21.2",
    "qalora_group_size": 16,
    "r": 2,
    "rank_pattern": {},
    "revision": None,
    "target_modules": ["q_proj", "model.layers.0.mlp.up_proj"],
    "task_type": "CAUSAL_LM",
    "use_dora": False,
    "use_rslora": False,
}


def _write_adapter(folder: Path, document: str) -> Path:
    save_file({"base_model.model.x.lora_A.weight": np.zeros((2, 8), np.float32)}, folder / WEIGHTS)
    (folder / "adapter_config.json").write_text(document)
    return folder


def test_a_configuration_that_training_writes_is_read(tmp_path: Path) -> None:
    """With all fields that the library adds at neutral values, and a field of a later version that is null."""
    config = read_adapter_config(_write_adapter(tmp_path, json.dumps({**_WRITTEN, "of_a_later_version": None})))

    assert (config.r, config.lora_alpha, config.target_modules) == (2, 8, _WRITTEN["target_modules"])


@pytest.mark.threat("M19")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target_modules": "([a-z0-9_.]+)+!"}, "target_modules"),
        ({"target_modules": ["([a-z0-9_.]+)+!"]}, "target_modules"),
        ({"rank_pattern": {"([a-z0-9_.]+)+!": 2}}, "rank_pattern"),
        ({"alpha_pattern": {"q_proj": 1e300}}, "alpha_pattern"),
        ({"r": "x"}, "r: "),
        ({"r": 100_000_000}, "r: "),
        ({"r": 0}, "r: "),
        ({"r": True}, "r: "),
        ({"r": 4}, r"r is 4, adapter_model\.safetensors holds matrices of rank 2"),
        ({"lora_alpha": float("nan")}, "lora_alpha"),
        ({"lora_alpha": 1e300}, "lora_alpha"),
        ({"use_dora": True}, "use_dora"),
        ({"use_rslora": True}, "use_rslora"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
        ({"init_lora_weights": "eva"}, "init_lora_weights"),
        ({"auto_mapping": {"base_model_class": "X", "parent_library": "os"}}, "auto_mapping"),
        ({"megatron_config": {"a": 1}, "megatron_core": "os"}, "megatron"),
        ({"layer_replication": [[0, 1_000_000]]}, "layer_replication"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"unknown": 1}, "unknown"),
        ({"peft_type": "PROMPT_TUNING"}, "peft_type is PROMPT_TUNING, expected LORA"),
        ({"peft_type": None}, "peft_type"),
    ],
)
def test_a_configuration_with_other_values_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """Before any weight is loaded: endless patterns, code paths, other kinds of adapters, invalid numbers."""
    adapter = _write_adapter(tmp_path, json.dumps({**_WRITTEN, **changes}))

    with pytest.raises(RefusedError, match=f"adapter_config\\.json: .*{message}"):
        read_adapter_config(adapter)


@pytest.mark.parametrize("document", ["[]", "null", "{}", "[" * 100_000, "", "\0"])
def test_a_document_of_another_kind_is_refused(tmp_path: Path, document: str) -> None:
    with pytest.raises(RefusedError, match=r"adapter_config\.json: .* Name the run that it was trained in"):
        read_adapter_config(_write_adapter(tmp_path, document))


@pytest.mark.threat("M19")
def test_nothing_is_loaded_for_a_refused_adapter(tmp_path: Path) -> None:
    """Evaluation and server load through one function, which checks the adapter first; there is no base here."""
    adapter = _write_adapter(tmp_path, json.dumps({**_WRITTEN, "target_modules": "([a-z0-9_.]+)+!"}))
    job = EvaluatedModel(
        base_path=tmp_path / "nowhere",
        adapter_path=adapter,
        quantization="none",
        double_quant=False,
        trained_in="float32",
        device="cpu",
        compute_dtype="float32",
    )

    with pytest.raises(RefusedError, match="target_modules"):
        load_evaluated(job)
