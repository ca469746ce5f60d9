"""Models that can be served, and models that are rejected before they are loaded."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generate import generate
from mens_pipeline.inference.generation import Completion, Decoding, GenerationJob, Request
from mens_pipeline.inference.prepare import Conditions, prepare_generation
from mens_pipeline.jobs import progress
from mens_pipeline.models.adapter import ADAPTER, MANIFEST, WEIGHTS, Adapter, adapter_digest
from mens_pipeline.models.chat import CHATML, TEMPLATE
from mens_pipeline.promotion.history import champion_key
from mens_pipeline.promotion.policy import GateName
from mens_pipeline.promotion.receipt import write_receipt
from mens_pipeline.serving.queue import ServerLimits
from mens_pipeline.serving.served_model import adapter_model, candidate_model, champion_model, merged_model
from mens_pipeline.serving.server import load
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.remote import Remote
from mens_pipeline.storage.signing import Signing
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline_tests.delivery.delivered import promoted_run
from mens_pipeline_tests.evaluation.scored import SUBJECT
from mens_pipeline_tests.promotion.verdicts import receipt_of, said
from mens_pipeline_tests.serving.running import CPU, running
from mens_pipeline_tests.serving.talkative import make_champion, write_run

_REQUESTS = ("Write a function.", "x", "Why?", "A type `Point`, please.")


@pytest.fixture(scope="module")
def run(merged: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an adapter that changes the completions."""
    return write_run(tmp_path_factory.mktemp("run"), merged)


@pytest.fixture
def copy(merged: Path, tmp_path: Path) -> Path:
    """A merged model that a test may change."""
    return Path(shutil.copytree(merged, tmp_path / "copy"))


def _change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_an_adapter_completes_as_in_its_evaluation(run: Path, tmp_path: Path) -> None:
    """The server has room for many completions at once.

    For few the weights are rounded to float16, which random weights do not tolerate.
    """
    decoding = Decoding(max_new_tokens=60)
    replies: dict[str, list[Completion]] = {}
    for model in ("adapter", "base"):
        folder = tmp_path / model
        folder.mkdir()
        conditions = Conditions(decoding, CPU, folder / "lock")
        requests = tuple(Request(task=text, prompt=text) for text in _REQUESTS)
        asked = prepare_generation(
            "adapter" if model == "adapter" else "base",
            Adapter.open(run),
            requests,
            conditions,
            system_prompt="You write Vox, in a run.",
        )
        both = {"once": asked, "again": asked.model_copy(update={"requests": requests[::-1]})}
        generate(job := GenerationJob(generations=both, run_dir=folder, lock_path=folder / "lock"))
        lines = [job.completions(name).read_text().splitlines() for name in both]
        assert lines[0] == lines[1][::-1]
        replies[model] = [Completion.model_validate_json(line) for line in lines[0]]

    with running(run, ServerLimits(16, 20_000, 60.0, 60)) as server:
        client = server.openai()
        served = [
            client.chat.completions.create(model=server.served.name, messages=[{"role": "user", "content": text}])
            for text in _REQUESTS
        ]

    assert [reply.choices[0].message.content for reply in served] == [reply.text for reply in replies["adapter"]]
    assert [reply.choices[0].finish_reason == "stop" for reply in served] == [
        reply.stopped for reply in replies["adapter"]
    ]
    assert [reply.text for reply in replies["adapter"]] != [reply.text for reply in replies["base"]]


def test_a_run_has_names_and_a_fingerprint(run: Path) -> None:
    served = adapter_model(Adapter.open(run), CPU)

    assert served.names == ("lora-adapter-0123abcd", "mens")
    assert served.fingerprint == f"fp_{adapter_digest(run)[:12]}"
    assert (served.system_prompt, served.max_context) == ("You write Vox, in a run.", 512)


def test_the_champion_is_served(run: Path, tmp_path: Path) -> None:
    signing, other = Signing.of("5b" * 32, None), Signing.of("6c" * 32, None)
    assert signing is not None
    store = ArtifactStore(tmp_path, signing=signing)
    with pytest.raises(
        RefusedError, match=r"no adapter is promoted\. Promote one with `mens promote`, serve the last .* --candidate"
    ):
        champion_model(store, CPU)
    champion = make_champion(store, run, signing)

    for keys in (None, signing, Signing.of(None, signing.public_key)):
        known = ArtifactStore(tmp_path, signing=keys)
        assert champion_model(known, CPU).evaluated.adapter_path == champion.path / ADAPTER
    with pytest.raises(RefusedError, match="its signature does not match the key"):
        champion_model(ArtifactStore(tmp_path, signing=other), CPU)
    (champion.path / ADAPTER / WEIGHTS).write_bytes(b"others")
    with pytest.raises(RefusedError, match=r"changed since it was promoted\. Restore it"):
        champion_model(store, CPU)


def test_a_server_logs_that_it_is_still_loading(merged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.005)
    with running(merged, ServerLimits(1, 20_000, 60.0, 8)) as server:
        *waits, ready = server.lines

    assert waits
    assert all(re.fullmatch(r"loading: \d+ s so far", line) for line in waits)
    assert ready.startswith("ready: ")


def test_a_merged_model_is_served(copy: Path) -> None:
    plain = merged_model(copy, CPU)
    (copy / "chat_template.jinja").write_text(CHATML.template("Be brief."))
    details = merged_model(copy, CPU)

    assert plain.names == ("copy", "mens")
    assert (plain.system_prompt, details.system_prompt) == ("You write Vox. Answer with code alone.", "Be brief.")


def test_the_template_may_be_in_the_tokenizer_config(copy: Path) -> None:
    (copy / "chat_template.jinja").unlink()
    _change(copy / "tokenizer_config.json", chat_template=TEMPLATE)

    assert merged_model(copy, CPU).name == "copy"


@pytest.mark.threat("N7")
@pytest.mark.parametrize("template", ["{{ messages[0].content }}", "{{ cycler.__init__.__globals__ }}", None])
def test_another_template_is_refused_and_never_rendered(copy: Path, template: str | None) -> None:
    """Such a model was trained on another format."""
    (copy / "chat_template.jinja").unlink()
    if template is not None:
        (copy / "chat_template.jinja").write_text(template)

    with pytest.raises(RefusedError, match=r"its chat template differs from .* Serve a model that `mens merge` wrote"):
        merged_model(copy, CPU)


@pytest.mark.threat("N7")
def test_code_of_the_tokenizer_is_not_run(copy: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    (copy / "evil.py").write_text(f"open({str(trace)!r}, 'w').close()\nclass Tokenizer: pass\n")
    _change(copy / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.Tokenizer", "evil.Tokenizer"]})
    loaded = load(merged_model(copy, CPU))

    assert loaded.decode(b"fn") == loaded.decode(list(b"fn"))
    assert not trace.exists()


def test_rejects_weights_that_are_not_safetensors(copy: Path) -> None:
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    with pytest.raises(RefusedError, match=r"no \*\.safetensors\."):
        merged_model(copy, CPU)
    (copy / "model.safetensors").write_bytes((copy / "pytorch_model.bin").read_bytes()[:5_000])

    with pytest.raises(RefusedError, match=r"copy: cannot be loaded \(.*\)\. Write the model again"):
        load(merged_model(copy, CPU))


def test_a_tokenizer_without_control_tokens_is_refused(copy: Path) -> None:
    text = (copy / "tokenizer.json").read_text().replace("<|im_start|>", "<|other|>")
    (copy / "tokenizer.json").write_text(text)

    with pytest.raises(RefusedError, match=r"<\|im_start\|> is \d+ tokens, not one"):
        merged_model(copy, CPU)


def test_rejects_an_incomplete_run(run: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    with pytest.raises(RefusedError, match=r"Name the folder of a complete run"):
        adapter_model(Adapter.open(broken), CPU)
    shutil.copytree(run, broken)
    (broken / ADAPTER / WEIGHTS).unlink()
    with pytest.raises(RefusedError, match=r"adapter_model\.safetensors: not found"):
        adapter_model(Adapter.open(broken), CPU)
    shutil.copy2(run / ADAPTER / WEIGHTS, broken / ADAPTER / WEIGHTS)
    base = json.loads((run / MANIFEST).read_text())["base_model"]
    _change(broken / MANIFEST, base_model={**base, "sha256": "0" * 64})

    with pytest.raises(RefusedError, match=r"the base model .* is changed\. Restore it, put it below"):
        adapter_model(Adapter.open(broken), CPU)


_TOKENIZER = "tokenizer_config.json"


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (_TOKENIZER, b"[]", "tokenizer_config.json: expected a JSON object, found list"),
        (_TOKENIZER, b'"x"', "tokenizer_config.json: expected a JSON object, found str"),
        (_TOKENIZER, b"[" * 100_000, "tokenizer_config.json: not JSON"),
        (_TOKENIZER, b"{", "tokenizer_config.json: not JSON"),
        (_TOKENIZER, b"\xff", "tokenizer_config.json: not JSON"),
        (_TOKENIZER, b" " * 10_000_001, "tokenizer_config.json: larger than 10000000 bytes"),
        ("chat_template.jinja", b"\xff", "chat_template.jinja: cannot be read .* Write the model again"),
        ("config.json", {"auto_map": {"AutoModelForCausalLM": "evil.Model"}}, "requires custom code"),
        *(
            ("config.json", {"max_position_embeddings": length}, "does not give a context length")
            for length in ("8192", None, [8192], 1e400, 0, -1, True, 8192.5)
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_rejects_a_malformed_file(copy: Path, file: str, change: bytes | dict[str, Any], message: str) -> None:
    if file == _TOKENIZER:
        (copy / "chat_template.jinja").unlink()
        message += ".* Write the model again"
    if isinstance(change, bytes):
        (copy / file).write_bytes(change)
    else:
        _change(copy / file, **change)

    with pytest.raises(RefusedError, match=message):
        merged_model(copy, CPU)


def _evaluate(store: ArtifactStore, run: Path, **changes: Any) -> Artifact:
    def copy_run(folder: Path) -> dict[str, Any]:
        shutil.copytree(run, folder, dirs_exist_ok=True)
        return {}

    adapter = store.build(Kind.QLORA_ADAPTER, {}, copy_run)[0]
    subject = SUBJECT.model_copy(update={"adapter_sha256": adapter_digest(run), **changes})
    verdict = receipt_of(said(GateName.COVERAGE, passed=False), subject=subject, policy="café")

    def write(folder: Path) -> dict[str, Any]:
        write_receipt(folder, verdict, None)
        return {}

    return store.build(Kind.BENCHMARK_GATE, {}, write, [adapter])[0]


def test_every_response_of_a_refused_candidate_says_so(run: Path, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    _evaluate(store, run)
    served = candidate_model(store, CPU)
    verdict = "refused by its gate, policy caf\\xe9"
    ask = {"model": "mens", "messages": [{"role": "user", "content": "x"}]}
    with running(served, ServerLimits(4, 20_000, 60.0, 8)) as server, server.http() as client:
        replies = [
            client.get("/health"),
            client.get("/ready"),
            client.get("/v1/models"),
            client.get("/nothing"),
            client.post("/v1/chat/completions", json=ask),
            client.post("/v1/chat/completions", json={**ask, "stream": True}),
            client.post("/api/chat", json=ask),
            client.post("/api/chat", json={}),
        ]
        page = client.get("/")
        lines = list(server.lines)

    assert f'<p class="bad" role="note">A candidate: {verdict}.</p>' in page.text
    assert [reply.headers["X-Mens-Candidate"] for reply in replies] == [verdict] * len(replies)
    assert [reply.json()["candidate"] for reply in replies[:2]] == [verdict] * 2
    assert replies[4].status_code == 200
    assert f"candidate: {verdict}; every response says so" in lines
    assert adapter_model(Adapter.open(run), CPU).candidate is None


def test_a_candidate_must_be_the_evaluated_adapter(run: Path, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "empty")
    with pytest.raises(RefusedError, match=r"no evaluated adapter\. Run `mens run`"):
        candidate_model(store, CPU)

    store = ArtifactStore(tmp_path / "other")
    _evaluate(store, run, adapter_sha256="0" * 64)
    with pytest.raises(RefusedError, match=r"differs from the evaluated adapter\. Run `mens run` again"):
        candidate_model(store, CPU)
    shutil.rmtree(store.root / Kind.QLORA_ADAPTER)
    with pytest.raises(RefusedError, match="no evaluated adapter"):
        candidate_model(store, CPU)


def test_an_empty_machine_serves_the_champion_of_a_bucket(trained: Path, tmp_path: Path, store_url: str) -> None:
    _, first = promoted_run(trained, tmp_path / "first", Remote(store_url))
    champion = champion_key(first)
    shutil.rmtree(tmp_path / "first")
    store = ArtifactStore(tmp_path / "empty", Remote(store_url))
    served = champion_model(store, CPU)
    with running(served, ServerLimits(1, 20_000, 20.0, 64)) as server:
        answer = server.openai().chat.completions.create(
            model="mens", messages=[{"role": "user", "content": "Write a function."}], max_tokens=8
        )

    assert answer.choices[0].finish_reason == "length"
    assert served.evaluated.adapter_path == store.root / Kind.PROMOTED_ADAPTER / str(champion) / ADAPTER
    assert digest_of(served.evaluated.adapter_path / WEIGHTS) == digest_of(trained / ADAPTER / WEIGHTS)
