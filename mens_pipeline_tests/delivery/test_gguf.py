"""A GGUF file is the merged model, or is not written."""

import json
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader
from pydantic import ValidationError

from mens_pipeline.delivery.agreement import MergeManifest
from mens_pipeline.delivery.gguf_model import (
    DEMANDS,
    GGUF_REPORT,
    GgufReport,
    build_gguf_model,
    gguf_report_in,
    refuse_unsupported,
    splitter_of,
)
from mens_pipeline.delivery.merge_job import COMPARISONS, Comparison, GgufJob, GgufType
from mens_pipeline.delivery.merge_source import merge_source, prompts_of
from mens_pipeline.delivery.merged_model import PreparedMerge, build_merged_model, prepare_merge
from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.inference.prepare import Conditions
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.jobs.local import run_job
from mens_pipeline.storage.jsonl import read_models, write_jsonl
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline_tests.training.small_folder import Encoder

_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
_DIGITS = {"type": "Digits", "individual_digits": True}


def _folder(folder: Path, tokenizer: dict[str, Any] | None = None, **config: Any) -> Path:
    """What is looked at before anything is written."""
    Encoder().inner.save(str(folder / "tokenizer.json"))
    known = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**known, **(tokenizer or {})}))
    (folder / "config.json").write_text(json.dumps({**_CONFIG, **config}))
    return folder


def _sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(steps)}}


def test_the_splitter_is_that_of_the_tokenizer(tmp_path: Path) -> None:
    """The same model is split otherwise from the Hub than from the package; each gets its own name."""
    of_package = _folder(tmp_path)
    assert splitter_of(of_package) == "gpt-2"
    refuse_unsupported(of_package)

    bytes_only = json.loads((of_package / "tokenizer.json").read_text())["pre_tokenizer"]
    assert splitter_of(_folder(tmp_path, _sequence(_DIGITS, bytes_only))) == "smollm"


@pytest.mark.threat("M6")
@pytest.mark.parametrize("name", ["../../x", "/x", "x/y", "x\ny", "", "x" * 137, 'x"'])
def test_a_name_leads_out_of_no_folder(name: str) -> None:
    """It becomes the name of a file, and a line of the Modelfile."""
    for document, field, value in (
        (MergeManifest, "name", name),
        (GgufJob, "file_name", f"{name}-f32.gguf" if name else ""),
        (GgufReport, "file_name", f"{name}-f32.gguf" if name else ""),
    ):
        with pytest.raises(ValidationError) as refusal:
            document.model_validate({field: value})
        assert field in {str(mistake["loc"][0]) for mistake in refusal.value.errors() if mistake["type"] != "missing"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architectures": ["Qwen3ForCausalLM"]}, "Qwen3ForCausalLM is not written as GGUF, only LlamaForCausalLM"),
        ({"architectures": []}, "none named is not written"),
        ({"rope_parameters": {"rope_type": "llama3"}}, "rope_type llama3 is not written"),
        ({"attention_bias": True, "mlp_bias": True}, "attention_bias, mlp_bias is not written"),
        ({"hidden_act": "gelu"}, "hidden_act gelu is not written"),
    ],
    ids=["architecture", "none", "rope", "bias", "activation"],
)
def test_another_architecture_is_refused_by_name(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    """And the way on is named."""
    with pytest.raises(RefusedError, match=rf"{message}.*llama\.cpp's own convert_hf_to_gguf\.py"):
        refuse_unsupported(_folder(tmp_path, **config))


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        ({"pre_tokenizer": {"type": "Whitespace"}}, "splits text by Whitespace"),
        ({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}}, "by ByteLevel"),
        (_sequence(_DIGITS, _DIGITS), "by Digits, Digits"),
        ({"pre_tokenizer": None}, "by None"),
        ({"normalizer": {"type": "NFC"}}, "a tokenizer of kind BPE, with its normalizer"),
        ({"model": {"type": "Unigram", "vocab": []}}, "a tokenizer of kind Unigram"),
    ],
    ids=["words", "bytes", "digits", "none", "normalizer", "kind"],
)
def test_another_tokenizer_is_refused_by_name(tmp_path: Path, tokenizer: dict[str, Any], message: str) -> None:
    """It would load, and read every request wrongly."""
    with pytest.raises(RefusedError, match=rf"{message}.*convert_hf_to_gguf\.py"):
        splitter_of(_folder(tmp_path, tokenizer))


def _launch(job_path: Path) -> int:
    return run_job(job_path)


@pytest.fixture(scope="module")
def merged(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, PreparedMerge, ArtifactStore]:
    """A merged model, and what it was merged by."""
    folder = tmp_path_factory.mktemp("gguf")
    store = ArtifactStore(folder / "store")
    source = merge_source(trained, store)
    conditions = Conditions(Decoding(max_new_tokens=40), resolve_device(DeviceChoice.CPU), folder / "lock")
    prompts = prompts_of(source, None, store, lambda _text: True, 4)
    prepared = prepare_merge(source, prompts, conditions, "bfloat16", store.root / "work")
    return build_merged_model(prepared, store, _launch)[0], prepared, store


@pytest.mark.slow
@pytest.mark.parametrize("file_type", ["f32", "f16", "q8_0"])
def test_what_is_read_back_is_the_merged_model(
    merged: tuple[Artifact, PreparedMerge, ArtifactStore], file_type: GgufType
) -> None:
    """Another program's reader gets the same tokens from it, all of them where nothing is rounded."""
    model, prepared, store = merged
    gguf, reused = build_gguf_model(model, prepared, file_type, store, _launch)
    report = gguf_report_in(gguf.path)
    fields = GGUFReader(gguf.path / report.file_name).fields

    assert not reused
    assert report.passed
    assert report.agreement.led_agreement >= DEMANDS[file_type].min_led_agreement
    assert file_type != "f32" or report.agreement.num_same_answers == 4
    assert fields["tokenizer.ggml.pre"].contents() == "gpt-2"
    assert fields["tokenizer.ggml.add_bos_token"].contents() is False
    assert fields["llama.context_length"].contents() == 512
    assert fields["tokenizer.chat_template"].contents() == (model.path / "chat_template.jinja").read_text()


@pytest.mark.slow
def test_another_model_is_not_kept(merged: tuple[Artifact, PreparedMerge, ArtifactStore]) -> None:
    """The process came to its end, and what it wrote says otherwise than the merged model."""
    model, prepared, store = merged

    def launch(job_path: Path) -> int:
        code = _launch(job_path)
        path = job_path.with_name(COMPARISONS)
        led = [found.model_copy(update={"num_led": 0}) for found in read_models(path, Comparison)]
        write_jsonl(path, led)
        return code

    before = {path.parent for path in store.root.rglob(GGUF_REPORT)}
    fewer = type(prepared)(
        prepared.job,
        prepared.job_path,
        prepared.source,
        type(prepared.prompts)(prepared.prompts.tasks[:1], prepared.prompts.heldout_sha256),
        prepared.inputs,
    )
    with pytest.raises(RefusedError, match=r"not the merged model\. Teacher-forced along what is expected, 0/"):
        build_gguf_model(model, fewer, "f32", store, launch)
    assert {path.parent for path in store.root.rglob(GGUF_REPORT)} == before
