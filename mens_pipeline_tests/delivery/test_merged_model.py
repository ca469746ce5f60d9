"""From a champion to a merged, verified folder that any program can load."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from huggingface_hub import ModelCard
from typer.testing import Result

from mens_pipeline.delivery.agreement import ROUNDED, STRICT, Dtype
from mens_pipeline.delivery.merge import build_merged_model, manifest_in, merge_source, report_in
from mens_pipeline.delivery.serving_handoff import (
    DETAILS,
    HANDOFF,
    Delivery,
    ServingHandoff,
    build_serving_handoff,
    changed_files,
    read_details,
    refuse_foreign,
    write_folder,
)
from mens_pipeline.errors import RefusedError
from mens_pipeline.inference import prepare as preparing
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.models.adapter import adapter_digest
from mens_pipeline.promotion.bill import BILL
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline_tests.cli.invoking import invoke
from mens_pipeline_tests.delivery.delivered import HELDOUT, prepare, promoted_run
from mens_pipeline_tests.jobs.processes import do_here
from mens_pipeline_tests.schemas import schema_of

pytestmark = pytest.mark.slow

_Delivered = tuple[Path, ArtifactStore, Result]

_PLAIN = """
import sys
sys.modules["peft"] = sys.modules["bitsandbytes"] = None  # an import of either fails
from transformers import AutoModelForCausalLM, AutoTokenizer
folder = sys.argv[1]
model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
chat = [{"role": "user", "content": "Write a function f9."}]
ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
output = model.generate(**ids, max_new_tokens=8, do_sample=False)
print(model.dtype, tokenizer.decode(ids["input_ids"][0]), output.shape[1] > ids["input_ids"].shape[1])
"""

_UPSTREAM = {
    **{
        key: {"type": "string", "minLength": 1}
        for key in ("base_model", "tokenizer_source", "artifact_dir", "prompt_format")
    },
    **{key: {"type": ["string", "null"]} for key in ("adapter_path", "openai_base_url", "notes")},
    "schema": {"const": "vox_external_serving_handoff_v1"},
    "schema_version": {"const": 1},
    "backend_family": {"enum": ["vllm", "ollama", "hf-transformers", "openai-compatible", "other"]},
}
_OPTIONAL = {"adapter_path", "openai_base_url", "notes"}


@pytest.fixture(scope="module")
def delivered(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> _Delivered:
    folder = tmp_path_factory.mktemp("delivered")
    _, store = promoted_run(trained, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MENS_STORE_ROOT", str(store.root))
        patch.setenv("MENS_CACHE_ROOT", str(folder / "cache"))
        patch.setenv("MENS_DATA_LICENCE", "cc-by-4.0")
        patch.setattr("mens_pipeline.cli.terminal.run_job", do_here)
        result = invoke("merge", "-o", folder / "out", "--gguf", "f32", "--device", "cpu")
    assert result.exit_code == 0, (result.stderr, result.exception)
    return folder / "out", store, result


def _find_merged(store: ArtifactStore) -> Artifact:
    found = store.latest(Kind.MERGED_MODEL)
    assert found is not None
    return found


def test_the_command_lists_its_results(delivered: _Delivered) -> None:
    folder, _, result = delivered

    assert "lora-adapter-0123abcd, promoted: " in result.stdout
    assert "(100.00 %) and 4/4 completions the same, parse rate 0/4 (0.0 %), before 0/4 (0.0 %)" in result.stdout
    assert f"gguf     {folder / 'lora-adapter-0123abcd-f32.gguf'}" in result.stdout
    assert result.stdout.endswith(f"hand-off {folder / HANDOFF}\n")
    assert "judged: 4/4 completions" in result.stderr
    assert "merged: 4/4 completions" in result.stderr


@pytest.mark.seed_row(22)
def test_the_report_shows_no_difference(delivered: _Delivered) -> None:
    report = report_in(delivered[0])
    found = report.agreement

    assert report.passed
    assert found.num_tokens == found.num_same_tokens == found.num_led_tokens > 100
    assert found.num_same_prompts == 4
    assert found.largest_logit_difference == 0
    assert report.reference == "base in nf4 restored, adapter merged, float32"


@pytest.mark.parametrize("dtype", [None, "float32"])
def test_delivers_a_model_evaluated_in_bfloat16(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: Dtype | None
) -> None:
    """As on a GPU: stored in bfloat16, every token is the same; stored in float32, rounding is allowed."""
    monkeypatch.setattr(preparing, "computed_in", lambda _device: "bfloat16")
    _, store = promoted_run(trained, tmp_path)
    cpu, heldout = resolve_device(DeviceChoice.CPU), trained.parent / HELDOUT
    prepared = prepare(None, store, cpu, dtype=dtype, heldout=heldout)
    report = report_in(build_merged_model(prepared, store, do_here)[0].path)

    assert report.computed_on == ("cpu", "bfloat16")
    assert report.demand == (STRICT if dtype is None else ROUNDED)
    assert report.passed, report.reasons
    if dtype is None:
        assert (report.agreement.token_agreement, report.agreement.led_agreement) == (1.0, 1.0)
        assert report.agreement.largest_logit_difference == 0


def test_the_weights_are_the_restored_base_plus_the_adapter(delivered: _Delivered, trained: Path) -> None:
    """Restored from four bits, plus the product of both matrices times alpha over rank; other weights do not change."""
    import torch
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit
    from safetensors.torch import load_file  # noqa: PLC0415 - loads torch

    name = "model.layers.1.mlp.down_proj"
    base = load_file(trained.parent / "base" / "model.safetensors")
    merged = load_file(delivered[0] / "model.safetensors")
    adapter = load_file(trained / "adapter" / "adapter_model.safetensors")
    one, other = (adapter[f"base_model.model.{name}.lora_{half}.weight"] for half in "BA")
    packed, state = quantize_4bit(base[f"{name}.weight"], quant_type="nf4", compress_statistics=True)
    expected = dequantize_4bit(packed, state) + one @ other * (8 / 4)

    torch.testing.assert_close(merged[f"{name}.weight"], expected, rtol=0, atol=1e-6)
    assert not torch.allclose(merged[f"{name}.weight"], base[f"{name}.weight"] + one @ other * 2, atol=1e-3)
    assert torch.equal(merged["model.embed_tokens.weight"], base["model.embed_tokens.weight"])
    assert set(merged) == set(base)


def test_any_program_can_load_the_folder(delivered: _Delivered) -> None:
    """Only transformers, offline, without PEFT and bitsandbytes; the template adds the system prompt."""
    command = [sys.executable, "-c", _PLAIN, str(delivered[0])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"HF_HUB_OFFLINE": "1"})
    config = json.loads((delivered[0] / "config.json").read_text())

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("torch.float32 <|im_start|>system\nYou write Vox. Answer with code alone.<|im_end|>")
    assert done.stdout.endswith("True\n")
    assert "quantization_config" not in config


def test_no_file_names_this_machine(delivered: _Delivered, trained: Path) -> None:
    folder, store, _ = delivered
    places = [str(trained.parent), str(store.root.parent)]

    texts = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert [name for name, text in texts.items() if any(place.encode() in text for place in places)] == []


def test_the_manifest_names_the_parts_of_the_model(delivered: _Delivered, trained: Path) -> None:
    manifest = manifest_in(delivered[0])

    assert manifest.adapter_sha256 == adapter_digest(trained)
    assert (manifest.merged_into.weights, manifest.merged_into.quantization) == ("restored", "nf4")
    assert manifest.merged_into.why.startswith("The adapter was evaluated on these weights.")
    assert (manifest.base_model, manifest.dtype) == ("base", "float32")


def test_the_hand_off_names_every_file_by_its_hash(delivered: _Delivered) -> None:
    folder, store, _ = delivered
    handoff = ServingHandoff.model_validate_json((folder / HANDOFF).read_text())
    ours, source = read_details(folder / HANDOFF), merge_source(None, store)

    assert {file.path for file in ours.files} == {path.name for path in folder.iterdir()} - {DETAILS}
    assert BILL in {file.path for file in ours.files}
    assert changed_files(folder / HANDOFF) == ()
    assert (handoff.artifact_dir, handoff.backend_family, handoff.adapter_path) == (".", "ollama", None)
    assert (ours.is_promoted, ours.verdict_passed, ours.verdict_sha256) == (True, True, source.verdict_sha256)
    assert (ours.stop_tokens, ours.context_length, ours.data_licence) == (("<|im_end|>",), 512, "cc-by-4.0")
    assert ours.merge_report_sha256 == digest_of(folder / "merge_report.json")
    assert ours.gguf is not None
    assert (ours.gguf.path, ours.gguf.led_agreement) == ("lora-adapter-0123abcd-f32.gguf", 1.0)


def test_the_hand_off_matches_the_schema_of_upstream(delivered: _Delivered) -> None:
    document = json.loads((delivered[0] / HANDOFF).read_text())
    required = sorted(set(_UPSTREAM) - _OPTIONAL)
    schema = {"type": "object", "properties": _UPSTREAM, "required": required, "additionalProperties": False}

    jsonschema.validate(document, schema)
    assert DETAILS in document["notes"]


def test_documents_match_their_schemas(delivered: _Delivered) -> None:
    names = {name: f"{name}.json" for name in ("merge_report", "merge_manifest", "gguf_report")}
    for name, file in {"external_serving_handoff_v1": HANDOFF, "mens_handoff_v1": DETAILS, **names}.items():
        jsonschema.validate(json.loads((delivered[0] / file).read_text()), json.loads(schema_of(name)))


def test_the_hand_off_in_the_store_finds_its_files(delivered: _Delivered) -> None:
    store = delivered[1]
    path = store.root / "serving_handoff" / (store.read_pointer("serving_handoff", "latest") or "") / HANDOFF
    handoff = ServingHandoff.model_validate_json(path.read_text())

    assert handoff.artifact_dir == f"../../merged_model/{_find_merged(store).key}"
    assert changed_files(path) == ()


def test_the_card_shows_figures_and_verdict(delivered: _Delivered) -> None:
    card = (delivered[0] / "README.md").read_text()
    data = ModelCard(card).data
    verdict = merge_source(None, delivered[1]).verdict_sha256

    assert "| held-out prompts of the workspace | parse rate | 0/40 (0.0 %, 95 % interval 0.0 to 6.0) | 40/40" in card
    assert verdict is not None
    assert verdict in card
    assert (data.library_name, len(data.eval_results or [])) == ("transformers", 2)


def test_does_not_repeat_a_merge(delivered: _Delivered, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, store, _ = delivered
    monkeypatch.setenv("MENS_STORE_ROOT", str(store.root))
    monkeypatch.setenv("MENS_DATA_LICENCE", "cc-by-4.0")
    again = invoke("merge", "-o", folder, "--gguf", "f32", "--device", "cpu", "--json")

    assert again.exit_code == 0, again.exception
    assert "nothing has changed since the last merge" in again.stderr
    assert "completions" not in again.stderr.replace("completions the same", "")
    assert json.loads(again.stdout) == json.loads((folder / HANDOFF).read_text())


def test_does_not_deliver_a_model_that_differs(delivered: _Delivered, tmp_path: Path) -> None:
    store = delivered[1]
    merged = _find_merged(store)
    copy = tmp_path / "merged"
    copy.mkdir()
    for path in merged.path.iterdir():
        (copy / path.name).symlink_to(path)
    report = report_in(merged.path).model_copy(update={"passed": False, "reasons": ("3/9 of the tokens.",)})
    (copy / "merge_report.json").unlink()
    (copy / "merge_report.json").write_text(report.model_dump_json())
    delivery = Delivery(
        source=merge_source(None, store), merged=replace(merged, path=copy), gguf=None, data_licence=None
    )

    with pytest.raises(RefusedError, match=r"differs from the evaluated model\. 3/9 of the tokens\. Merge"):
        build_serving_handoff(delivery, store)
    with pytest.raises(RefusedError, match="differs from the evaluated model"):
        write_folder(delivery, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_does_not_write_into_a_folder_with_other_files(
    delivered: _Delivered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MENS_STORE_ROOT", str(delivered[1].root))
    (tmp_path / "letters.txt").write_text("dear")
    result = invoke("merge", "-o", tmp_path)

    assert isinstance(result.exception, RefusedError)
    assert "contains files that are not part of a hand-off (letters.txt). Name an empty folder" in str(result.exception)
    assert (tmp_path / "letters.txt").read_text() == "dear"


@pytest.mark.parametrize(
    ("name", "content", "output", "message"),
    [
        ("file", "x", "file", r"file: not a folder\. Name an empty folder, or a new one"),
        ("file", "x", "file/out", r"out: cannot be written \(.*\)\. Name another folder"),
        (HANDOFF, "{", "", r"handoff_v1\.json: its details cannot be read\. Name an empty folder"),
        (HANDOFF, "[" * 100_000, "", r"handoff_v1\.json: its details cannot be read\. Name an empty folder"),
        ("link", None, "", r"contains files that are not part of a hand-off \(link\)"),
    ],
)
def test_rejects_an_unusable_output_before_the_merge(
    tmp_path: Path, name: str, content: str | None, output: str, message: str
) -> None:
    if content is None:
        (tmp_path / name).symlink_to("nowhere")
    else:
        (tmp_path / name).write_text(content)
    before = sorted(tmp_path.iterdir())

    with pytest.raises(RefusedError, match=message):
        refuse_foreign(tmp_path / output)
    assert sorted(tmp_path.iterdir()) == before


def test_writes_to_the_current_folder_and_through_a_link(
    delivered: _Delivered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = delivered[1]
    delivery = Delivery(source=merge_source(None, store), merged=_find_merged(store), gguf=None, data_licence=None)
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("there")
    monkeypatch.chdir(tmp_path / "here")

    assert write_folder(delivery, Path()).resolve() == tmp_path / "here" / HANDOFF
    assert write_folder(delivery, tmp_path / "link").resolve() == tmp_path / "there" / HANDOFF
    assert {path.name for path in tmp_path.iterdir()} == {"here", "there", "link"}
    assert not changed_files(tmp_path / "link" / HANDOFF)
