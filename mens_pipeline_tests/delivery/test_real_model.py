"""The real base: merged and written as GGUF it remains the evaluated model."""

import json
from pathlib import Path

import pytest

from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.delivery.gguf import build_gguf_model, gguf_report_in
from mens_pipeline.delivery.merge import build_merged_model, report_in
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.jobs.local import run_job
from mens_pipeline.models.adapter import ADAPTER, MANIFEST
from mens_pipeline.models.base import Base
from mens_pipeline.models.base_wheels import SMOLLM2
from mens_pipeline.models.find_base import find_base_model
from mens_pipeline.settings import load_settings
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.delivery.delivered import prepare
from mens_pipeline_tests.training.manifests import manifest_about
from mens_pipeline_tests.training.runs import pairs

pytestmark = pytest.mark.nightly


def _run(folder: Path, base: Base) -> Path:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    config = LoraConfig(r=4, lora_alpha=4, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base.path), config)
    model.save_pretrained(folder / ADAPTER, save_embedding_layers=False)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / ADAPTER / name).write_bytes((base.path / name).read_bytes())
    changes = {"name": "lora-adapter", "system_prompt": SYSTEM_PROMPT, "train_file": str(folder / "train.jsonl")}
    manifest = manifest_about(base, **changes)
    manifest["result"]["compute_dtype"] = "bfloat16"
    (folder / MANIFEST).write_text(json.dumps(manifest))
    write_jsonl(folder / "heldout.jsonl", pairs(2))
    return folder


def test_smollm2_is_the_same_model_merged_and_as_gguf(tmp_path: Path) -> None:
    base = find_base_model(SMOLLM2, None, load_settings().cache_root / "base_models")
    store = ArtifactStore(tmp_path / "store")
    prepared = prepare(_run(tmp_path, base), store, resolve_device(DeviceChoice.CPU), 24, number=2)
    merged, _ = build_merged_model(prepared, store, run_job)
    gguf, _ = build_gguf_model(merged, prepared, "f32", store, run_job)
    report, written = report_in(merged.path), gguf_report_in(gguf.path)
    assert report.passed, report.reasons
    assert report.agreement.num_tokens > 10
    assert written.agreement.led_agreement == written.agreement.token_agreement == 1.0
