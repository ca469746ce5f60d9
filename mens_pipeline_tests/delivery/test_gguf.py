"""A GGUF file is the merged model, or is not written."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from gguf import GGUFReader
from pydantic import ValidationError

from mens_pipeline.delivery.agreement import COMPARISONS, GgufJob, GgufType, PromptComparison
from mens_pipeline.delivery.gguf import (
    DEMANDS,
    GGUF_REPORT,
    GgufReport,
    build_gguf_model,
    find_splitter,
    gguf_report_in,
    refuse_unsupported,
)
from mens_pipeline.delivery.merge import MergeManifest, PreparedMerge, build_merged_model
from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.models.base import FileTokenizer
from mens_pipeline.models.chat import IM_END, IM_START
from mens_pipeline.models.infill import encode_infill_prompt
from mens_pipeline.storage.jsonl import read_models, write_jsonl
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline_tests.delivery.delivered import prepare
from mens_pipeline_tests.inference.llama_server import llama_server
from mens_pipeline_tests.jobs.processes import do_here
from mens_pipeline_tests.serving.talkative import write_talkative
from mens_pipeline_tests.training.small_folder import Encoder

_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
_Merged = tuple[Artifact, PreparedMerge, ArtifactStore]
_DIGITS = {"type": "Digits", "individual_digits": True}


def _folder(folder: Path, tokenizer: dict[str, Any] | None = None, **config: Any) -> Path:
    Encoder().inner.save(str(folder / "tokenizer.json"))
    known = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**known, **(tokenizer or {})}))
    (folder / "config.json").write_text(json.dumps({**_CONFIG, **config}))
    return folder


def _sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(steps)}}


def test_the_splitter_depends_on_the_tokenizer(tmp_path: Path) -> None:
    """Tokenizers of the same model from the Hub and from the package split differently; each has its own name."""
    of_package = _folder(tmp_path)
    assert find_splitter(of_package) == "gpt-2"
    refuse_unsupported(of_package)

    bytes_only = json.loads((of_package / "tokenizer.json").read_text())["pre_tokenizer"]
    assert find_splitter(_folder(tmp_path, _sequence(_DIGITS, bytes_only))) == "smollm"


@pytest.mark.threat("M6")
@pytest.mark.parametrize("name", ["../../x", "/x", "x/y", "x\ny", "", "x" * 137, 'x"'])
def test_a_name_cannot_leave_its_folder(name: str) -> None:
    for document, field, value in (
        (MergeManifest, "name", name),
        (GgufJob, "file_name", f"{name}-f32.gguf" if name else ""),
        (GgufReport, "file_name", f"{name}-f32.gguf" if name else ""),
    ):
        with pytest.raises(ValidationError) as refusal:
            document.model_validate({field: value})
        assert field in {str(error["loc"][0]) for error in refusal.value.errors() if error["type"] != "missing"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"architectures": ["GPT2LMHeadModel"]},
            "GPT2LMHeadModel is not supported in GGUF, only LlamaForCausalLM, Qwen2",
        ),
        ({"architectures": []}, "an unnamed architecture is not supported"),
        ({"rope_parameters": {"rope_type": "llama3"}}, "rope_type llama3 is not supported"),
        ({"attention_bias": True, "mlp_bias": True}, "attention_bias, mlp_bias is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act gelu is not supported"),
    ],
    ids=["architecture", "none", "rope", "bias", "activation"],
)
def test_rejects_other_architectures_by_name(tmp_path: Path, config: dict[str, Any], message: str) -> None:
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
def test_rejects_other_tokenizers_by_name(tmp_path: Path, tokenizer: dict[str, Any], message: str) -> None:
    with pytest.raises(RefusedError, match=rf"{message}.*convert_hf_to_gguf\.py"):
        find_splitter(_folder(tmp_path, tokenizer))


def test_llama_cpp_completes_at_a_cursor(tmp_path: Path) -> None:
    prefix, suffix = "fn f() to int {\n    return ", "\n}\n"
    marks = ("<issue_start>", "<issue_closed>", "<issue_comment>")
    folder = write_talkative(tmp_path / "marked", Encoder((IM_START, IM_END, *marks)).inner)
    ids = encode_infill_prompt(FileTokenizer(folder), prefix, suffix, 512, "prefix_first")
    with llama_server(folder) as url:
        rest = {"n_predict": 12, "temperature": 0}
        cursor = {"input_prefix": prefix, "input_suffix": suffix, "prompt": ""}
        infill = httpx2.post(f"{url}/infill", json=rest | cursor, timeout=60).json()
        plain = httpx2.post(f"{url}/completion", json=rest | {"prompt": list(ids)}, timeout=60).json()

    assert infill["tokens_evaluated"] == len(ids)
    assert infill["content"] == plain["content"] != ""


def test_a_file_without_single_token_marks_names_no_marks(tmp_path: Path) -> None:
    """A mark of several tokens has no id; llama.cpp then reports that the model does not support a cursor."""
    folder = write_talkative(tmp_path / "plain", Encoder().inner)
    with llama_server(folder) as url:
        refused = httpx2.post(f"{url}/infill", json={"input_prefix": "", "input_suffix": "", "prompt": ""}, timeout=60)

    assert refused.status_code == 501
    assert "token is missing" in refused.text


@pytest.fixture(scope="module")
def merged(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> _Merged:
    """A merged model, its prepared merge, and the store."""
    store = ArtifactStore(tmp_path_factory.mktemp("gguf") / "store")
    prepared = prepare(trained, store, resolve_device(DeviceChoice.CPU), 40, dtype="bfloat16")
    return build_merged_model(prepared, store, do_here)[0], prepared, store


@pytest.mark.slow
@pytest.mark.parametrize("file_type", ["f32", "f16", "q8_0"])
def test_the_file_equals_the_merged_model(merged: _Merged, file_type: GgufType) -> None:
    model, prepared, store = merged
    gguf, reused = build_gguf_model(model, prepared, file_type, store, do_here)
    report = gguf_report_in(gguf.path)
    fields = GGUFReader(gguf.path / report.file_name).fields

    assert not reused
    assert report.agreement.led_agreement >= DEMANDS[file_type].min_led_agreement
    assert file_type != "f32" or report.agreement.num_same_completions == 4
    assert fields["tokenizer.ggml.pre"].contents() == "gpt-2"
    assert fields["tokenizer.ggml.add_bos_token"].contents() is False
    assert fields["llama.context_length"].contents() == 512
    assert fields["tokenizer.chat_template"].contents() == (model.path / "chat_template.jinja").read_text()


@pytest.mark.slow
def test_rejects_a_file_that_differs_from_the_merged_model(merged: _Merged) -> None:
    model, prepared, store = merged

    def launch(job_path: Path) -> int:
        code = do_here(job_path)
        path = job_path.with_name(COMPARISONS)
        led = [found.model_copy(update={"num_led": 0}) for found in read_models(path, PromptComparison)]
        write_jsonl(path, led)
        return code

    before = {path.parent for path in store.root.rglob(GGUF_REPORT)}
    fewer = replace(prepared, prompts=replace(prepared.prompts, tasks=prepared.prompts.tasks[:1]))
    with pytest.raises(RefusedError, match=r"differs from the merged model\. Teacher-forced along the reference, 0/"):
        build_gguf_model(model, fewer, "f32", store, launch)
    assert {path.parent for path in store.root.rglob(GGUF_REPORT)} == before
