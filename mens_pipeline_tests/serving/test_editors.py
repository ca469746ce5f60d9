"""Requests as editor plugins send them: each gets a piece that parses, or none."""

import re
from html import unescape
from typing import Any

import pytest

from mens_pipeline.language import analyze
from mens_pipeline.language.surroundings import read_surroundings
from mens_pipeline.models.infill import split_at_marks
from mens_pipeline_tests.bench.editor import Frame, draw
from mens_pipeline_tests.every import every
from mens_pipeline_tests.serving.running import Running

_PREFIX, _LINE, _SUFFIX = "fn double(n: int) to int {\n", "    return n ", "\n}\n"
_MARKED = f"<fim_prefix>{_PREFIX}{_LINE}<fim_suffix>{_SUFFIX}<fim_middle>"
_EXTRA = [{"text": "fn f() {}\n", "filename": "a.vox", "time": [1, 2]}]
_TIMES = [f"timings/{part}_{unit}" for part in ("prompt", "predicted") for unit in ("n", "ms", "per_second")]

_LLAMA_VIM: dict[str, Any] = {
    "id_slot": 0,
    "input_prefix": _PREFIX,
    "input_suffix": _SUFFIX,
    "input_extra": _EXTRA,
    "prompt": _LINE,
    "n_predict": 12,
    "stop": [],
    "n_indent": 4,
    "top_k": 40,
    "top_p": 0.9,
    "samplers": ["top_k", "top_p", "infill"],
    "stream": False,
    "cache_prompt": True,
    "t_max_prompt_ms": 500,
    "t_max_predict_ms": 250,
    "response_fields": ["content", *_TIMES, "truncated", "tokens_cached"],
    # Sent empty if the user names none.
    "model": "",
}
_LLAMA_VSCODE: dict[str, Any] = {
    **{name: _LLAMA_VIM[name] for name in ("id_slot", "input_prefix", "input_suffix", "input_extra", "prompt")},
    **{name: _LLAMA_VIM[name] for name in ("n_predict", "samplers", "stream", "cache_prompt", "n_indent")},
    "n_cmpl": 3,
    "top_k": 40,
    "top_p": 0.99,
    "t_max_prompt_ms": 500,
    "t_max_predict_ms": 500,
}
_CONTINUE_STOPS = ["<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<file_sep>", "<|endoftext|>", "</code>", "/src/"]
_CONTINUE_OLLAMA: dict[str, Any] = {
    "model": "mens",
    "prompt": f"// Path: other.vox\n{_PREFIX}{_LINE}",
    "suffix": _SUFFIX,
    "options": {"temperature": 0.01, "num_predict": 12, "stop": _CONTINUE_STOPS, "num_ctx": 8192, "num_gpu": 1},
    "keep_alive": 1800,
    "stream": True,
}
_CONTINUE_MISTRAL: dict[str, Any] = {
    "model": "mens",
    "prompt": _PREFIX + _LINE,
    "suffix": _SUFFIX,
    "max_tokens": 12,
    "temperature": 0.01,
    "frequency_penalty": 0.5,
    "presence_penalty": 0.5,
    "stop": _CONTINUE_STOPS,
    "stream": True,
}
_CONTINUE_LLAMA: dict[str, Any] = {
    "model": "mens",
    "prompt": _MARKED,
    "stream": True,
    "n_predict": 12,
    "min_p": 0.1,
    "mirostat": 0,
    "stop": _CONTINUE_STOPS,
    "temperature": 0.01,
}
_TABBY_LLAMA: dict[str, Any] = {
    "seed": 7,
    "prompt": _MARKED,
    "n_predict": 12,
    "temperature": 0.1,
    "stream": True,
    "penalty_last_n": 0,
    "presence_penalty": 0.0,
}
_TABBY_MISTRAL: dict[str, Any] = {
    "prompt": _PREFIX + _LINE,
    "suffix": _SUFFIX,
    "model": "mens",
    "temperature": 0.1,
    "max_tokens": 12,
    "stream": True,
    "random_seed": 7,
}
_TABBY_OPENAI: dict[str, Any] = {
    **{name: _TABBY_MISTRAL[name] for name in ("prompt", "suffix", "model", "temperature", "max_tokens", "stream")},
    "presence_penalty": 0.0,
}
_TABBY_OLLAMA: dict[str, Any] = {
    "model": "mens",
    "prompt": _MARKED,
    "images": [],
    "options": {"num_predict": 12, "seed": 7, "repeat_last_n": 0, "temperature": 0.1},
    "template": "{{ .Prompt }}",
    "stream": True,
}
_TABBY_PLUGIN: dict[str, Any] = {
    "language": "vox",
    "segments": {"prefix": _PREFIX + _LINE, "suffix": _SUFFIX, "filepath": "a.vox", "declarations": []},
    "user": "somebody",
    "temperature": 0.1,
}
_VLLM: dict[str, Any] = {"prompt": _PREFIX + _LINE, "suffix": _SUFFIX, "min_p": 0.1, "top_k": 20, "cache_salt": "x"}


_AROUND = (_PREFIX + _LINE, _SUFFIX)
_ZED_FORMS = {
    "code_llama": "<PRE> {} <SUF>{} <MID>".format(*_AROUND),
    "star_coder": "<fim_prefix>{}<fim_suffix>{}<fim_middle>".format(*_AROUND),
    "deepseek_coder": "<\uff5cfim\u2581begin\uff5c>{}<\uff5cfim\u2581hole\uff5c>{}<\uff5cfim\u2581end\uff5c>".format(
        *_AROUND
    ),
    "qwen": "<|fim_prefix|>{}<|fim_suffix|>{}<|fim_middle|>".format(*_AROUND),
    "codestral": "[SUFFIX]{1}[PREFIX]{0}".format(*_AROUND),
    "glm": "<|code_prefix|>{}<|code_suffix|>{}<|code_middle|>".format(*_AROUND),
}
"""The prompt formats of Zed; CodeGemma has that of Qwen."""
_ZED_STOPS = [
    *("<|endoftext|>", "<|file_separator|>", "<|fim_pad|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"),
    *("<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<PRE>", "<SUF>", "<MID>", "[PREFIX]", "[SUFFIX]"),
]
_ZED: dict[str, Any] = {
    "model": "mens",
    "max_tokens": 12,
    "temperature": 0.2,
    "stop": _ZED_STOPS[:4],
    "environment": None,
}
_ZED_OLLAMA: dict[str, Any] = {
    "model": "mens",
    "prompt": _ZED_FORMS["qwen"],
    "raw": True,
    "stream": False,
    "options": {"num_predict": 12, "stop": _ZED_STOPS},
}


def _read_text(document: dict[str, Any]) -> str:
    if "choices" not in document:
        return str(document["content"] if "content" in document else document["response"])
    choice = document["choices"][0]
    return str(choice["text"] if "text" in choice else choice["delta"]["content"])


_REQUESTS = {
    "llama.vim": ("/infill", _LLAMA_VIM),
    "llama.vscode": ("/infill", _LLAMA_VSCODE),
    "Continue, ollama": ("/api/generate", _CONTINUE_OLLAMA),
    "Continue, mistral": ("/v1/fim/completions", _CONTINUE_MISTRAL),
    "Continue, llama.cpp": ("/completion", _CONTINUE_LLAMA),
    "Tabby, llama.cpp": ("/completion", _TABBY_LLAMA),
    "Tabby, mistral": ("/v1/fim/completions", _TABBY_MISTRAL),
    "Tabby, openai": ("/v1/completions", _TABBY_OPENAI),
    "Tabby, ollama": ("/api/generate", _TABBY_OLLAMA),
    "Tabby's plugins": ("/v1/completions", _TABBY_PLUGIN),
    "fields of vLLM": ("/v1/completions", _VLLM),
    **{f"Zed, {name}": ("/v1/completions", _ZED | {"prompt": text}) for name, text in _ZED_FORMS.items()},
    "Zed, ollama": ("/api/generate", _ZED_OLLAMA),
    "raw": ("/api/generate", {"prompt": _MARKED, "raw": True, "options": {"num_predict": 12}}),
}


@every("plugin", _REQUESTS)
def test_each_plugin_gets_pieces_that_parse(infill: Running, plugin: str) -> None:
    path, body = _REQUESTS[plugin]
    piece = "".join(map(_read_text, infill.events(path, **body)))

    assert analyze(_PREFIX + _LINE + piece + _SUFFIX).ok


def test_marks_and_fields_describe_the_same_cursor(infill: Running) -> None:
    marked = infill.post("/completion", prompt=_MARKED, n_predict=12).json()
    fields = infill.post("/infill", input_prefix=_PREFIX, prompt=_LINE, input_suffix=_SUFFIX)

    assert marked["tokens_evaluated"] == fields.json()["tokens_evaluated"]
    assert fields.json()["content"].startswith(marked["content"])


def test_plugins_of_tabby_find_the_server_healthy(infill: Running) -> None:
    with infill.http() as client:
        health = client.get("/v1/health").json()
    malformed = infill.post("/v1/completions", segments={"suffix": "x"})
    whole = infill.post("/v1/completions", language="vox", segments={"prefix": _PREFIX}).json()

    assert (health["model"], health["device"]) == (infill.served.name, "cpu")
    assert health["version"]["git_describe"] == "v0.1.0"
    assert malformed.json()["error"]["message"].startswith("prompt.")
    assert (list(whole["choices"][0])[:2], whole["id"][:5]) == (["index", "text"], "cmpl-")


def test_llama_vim_gets_flat_fields(infill: Running) -> None:
    document = infill.post("/infill", **_LLAMA_VIM).json()

    assert set(document) == {"content", *_TIMES, "truncated"}
    assert document["timings/predicted_n"] > 0 < document["timings/predicted_per_second"]


def test_warnings_name_ignored_fields(infill: Running) -> None:
    odd = {"x\r\nX-Own: 1": 1, "\u4e2d": 1, "n" * 5_000: 1, **{f"f{number:04}": 1 for number in range(500)}}
    requests = [_REQUESTS[plugin] for plugin in ("llama.vim", "fields of vLLM", "Continue, ollama")]
    plain = [infill.post(path, **body).headers["X-Mens-Warning"].split("; ")[0] for path, body in requests[:2]]
    mixed = [infill.post(path, **body, **odd) for path, body in requests]

    assert plain[0] == "ignored: input_extra, t_max_predict_ms, t_max_prompt_ms, top_k"
    assert plain[1] == "ignored: cache_salt, min_p, top_k"
    assert [reply.status_code for reply in mixed] == [200, 200, 200]
    assert all(len(reply.headers["X-Mens-Warning"]) < 500 for reply in mixed)
    assert all("X-Own" not in reply.headers for reply in mixed)


def test_a_warm_up_request_generates_nothing(infill: Running) -> None:
    fields = {"input_prefix": "", "input_suffix": "", "prompt": "", "n_predict": 0, "response_fields": [""]}
    vim = infill.post("/infill", **{**_LLAMA_VIM, **fields, "samplers": [], "t_max_predict_ms": 1})
    vscode = infill.post("/infill", **{**_LLAMA_VSCODE, "n_predict": 0})

    assert (vim.status_code, vim.json()) == (200, {})
    assert (vscode.json()["content"], vscode.json()["tokens_predicted"]) == ("", 0)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/infill", "/api/generate"])
def test_unsupported_fields_are_named_or_rejected(infill: Running, path: str) -> None:
    fields = {"min_p": 0.1, "cache_prompt": False, "top_k": 5, "typical_p": 0.9, "repetition_penalty": 1.1}
    body: dict[str, Any] = {"prompt": "fn f", **fields}
    if path.startswith("/v1"):
        body["max_tokens"] = 2
    if "chat" in path:
        body = {**body, "messages": [{"role": "user", "content": "Write a function."}]}
        del body["prompt"]
    if path.startswith("/api"):
        body = {"prompt": "fn f", "options": {**fields, "num_predict": 2}, "stream": False}
    with infill.http() as client:
        lenient = client.post(path, json=body)
        strict = client.post(path, json=body, headers={"X-Mens-Strict": "1"})

    assert lenient.status_code == 200, lenient.text
    assert "min_p" in lenient.headers["X-Mens-Warning"]
    assert strict.status_code == 400
    assert "min_p" in strict.text
    assert "X-Mens-Strict" in strict.text


def test_rejects_unsupported_fields_without_a_suffix(infill: Running) -> None:
    ollama = infill.post("/api/generate", model="mens", prompt="Write a function.", logprobs=True)

    assert ollama.json()["error"].startswith("logprobs: not supported here")


_OWN = "fn total(prices: list[int]) to int {\n    let mut sum = 0\n    "
_WINDOW = "        return price / 10\n    }\n    return 0\n}\n\n" + _OWN
_REST = "\n    return sum\n}\n\n@test fn half() {\n    assert(total([1"


@pytest.mark.parametrize(
    ("prefix", "skipped"),
    [
        (_WINDOW, "an unfinished beginning"),
        ("fn broken() {\n    let x = )\n}\n\n" + _OWN, "a declaration with an error"),
        ("// a long file\n" * 1_700 + _OWN, "text far from the cursor"),
    ],
    ids=["a window", "an error above", "a long file"],
)
def test_skips_only_the_part_that_cannot_be_parsed(infill: Running, prefix: str, skipped: str) -> None:
    reply = infill.post("/infill", input_prefix=prefix, input_suffix=_REST, n_predict=8)
    piece = reply.json()["content"]

    assert reply.status_code == 200, reply.text
    assert skipped in reply.headers["X-Mens-Warning"]
    assert read_surroundings(prefix, _REST).accept(piece)


@pytest.mark.parametrize("half", [b"\\ud83d", b"\xf0\x9f"], ids=["a surrogate", "bytes"])
def test_tolerates_half_a_character(infill: Running, half: bytes) -> None:
    """Editors count in units of UTF-16, and cut a text between two of them."""
    body = b'{"input_prefix": "// ' + half + b' \\nlet x = ", "input_suffix": "\\n", "n_predict": 4}'
    with infill.http() as client:
        reply = client.post("/infill", content=body, headers={"Content-Type": "application/json"})

    assert reply.status_code == 200, reply.text


def test_a_request_without_a_piece_is_logged(infill: Running) -> None:
    before = len(infill.lines)
    infill.post("/infill", input_prefix="fn f() { let x = = ", input_suffix="\n", n_predict=8)

    assert any(line.startswith("no completion at a cursor: the model found no piece") for line in infill.lines[before:])


@pytest.mark.parametrize("path", ["/props", "/v1/props?model=mens&autoload=false"])
def test_clients_of_llama_cpp_learn_the_context_length(infill: Running, path: str) -> None:
    with infill.http() as client:
        described = client.get(path).json()

    assert described["default_generation_settings"]["n_ctx"] == infill.served.max_context
    assert described["total_slots"] == 2


@pytest.mark.parametrize(
    ("text", "cursor"),
    [
        ("<fim_prefix>a<fim_suffix>b<fim_middle>", ("a", "b")),
        ("<|fim_prefix|><|fim_suffix|>b<|fim_middle|>", ("", "b")),
        ("<fim_prefix>a<fim_suffix><fim_middle>", ("a", "")),
        ("<fim_suffix>b<fim_prefix>a<fim_middle>", ("a", "b")),
        ("<filename>x.vox\n<fim_suffix>b<fim_prefix>a<fim_middle>c", ("ac", "b")),
        ("<|file_sep|>x.vox\nfn f() {}\n<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>", ("a", "b")),
        ("<fim_prefix>a<fim_suffix>b", ("a", "b")),
        ("<PRE> a <SUF>b <MID>", ("a", "b")),
        ("\u2581<PRE>a\u2581<SUF>b\u2581<MID>", ("a", "b")),
        ("<\uff5cfim\u2581begin\uff5c>a<\uff5cfim\u2581hole\uff5c>b<\uff5cfim\u2581end\uff5c>", ("a", "b")),
        ("[SUFFIX]b[PREFIX]a", ("a", "b")),
        ("[SUFFIX]b[PREFIX]a[MIDDLE]", ("a", "b")),
        ("<fim-prefix>a<fim-suffix>b<fim-middle>", ("a", "b")),
        ("<|code_prefix|>a<|code_suffix|>b<|code_middle|>", ("a", "b")),
        ("fn f() {}", None),
        ("", None),
    ],
)
def test_marks_of_every_family_are_read(text: str, cursor: tuple[str, str] | None) -> None:
    assert split_at_marks(text) == cursor


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("<fim_prefix>a<fim_middle>", "<fim_prefix>"),
        ("<|editable_region_start|>\nfn f() {<|user_cursor_is_here|>}", "<|user_cursor_is_here|>"),
        (f"fn f() {{<FILL>}}<fim_{'x' * 9_000}>", f"<FILL>, <fim_{'x' * 59}: not supported"),
        ("<|cursor|>", "<|cursor|>"),
    ],
)
def test_rejects_unknown_marks_by_name(infill: Running, text: str, mark: str) -> None:
    reply = infill.post("/v1/completions", prompt=text, max_tokens=4)

    assert reply.status_code == 400
    assert mark in reply.json()["error"]["message"]
    assert reply.json()["error"]["param"] == "prompt"


def test_a_session_is_drawn_as_an_animation() -> None:
    frames = [
        Frame(1.0, ("a < b ",), 0, 6, ""),
        Frame(1.5, ("a < b ",), 0, 6, "& c"),
        Frame(3.0, ("a < b & c",), 0, 9, ""),
    ]
    groups = re.findall(r"<g(.*?)>.*?keyTimes=\"(.*?)\".*?/>(.*?)</g>", draw(frames))

    assert [unescape(re.sub("<.*?>", "", text)) for _, _, text in groups] == ["a < b ", "a < b & c", "a < b & c"]
    assert [times for _, times, _ in groups] == ["0;0.1000", "0;0.1000;0.4000", "0;0.4000;1.0000"]
    assert [style for style, _, _ in groups] == ["", "", ' style="visibility:visible"']
