"""Verdicts, adapters, pointers and folders of runs that somebody changed or forged."""

import json
import shutil
from pathlib import Path

import pytest

from mens_pipeline.corpus.curate.mix import load_mix_config
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.evaluation.results import RESULTS
from mens_pipeline.evaluation.run_folder import FILE, recall_artifact
from mens_pipeline.models.adapter import ADAPTER, CONFIGURATION, MANIFEST, WEIGHTS, adapter_digest
from mens_pipeline.promotion.history import CHAMPION, HISTORY, champion_key, find_champion
from mens_pipeline.promotion.promote import roll_back
from mens_pipeline.promotion.receipt import RECEIPT, Override, read_override, sign_override
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import MANIFEST as STORE_MANIFEST
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline_tests.cli.invoking import invoke
from mens_pipeline_tests.evaluation.runs import NOW, PRESENT, evaluated, promote, scored, trained


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    monkeypatch.setenv("MENS_STORE_ROOT", str(tmp_path / "store"))
    monkeypatch.setenv("VOX_BENCHMARK", "0")
    return ArtifactStore(tmp_path / "store")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = trained(tmp_path / "run")
    (folder / ADAPTER / CONFIGURATION).write_text(json.dumps({"lora_alpha": 32, "target_modules": ["a", "b"]}))
    return folder


def _judge(run: Path, store: ArtifactStore) -> Artifact:
    return scored(run, store, evaluated(run, store))


@pytest.mark.threat("M11")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        (CONFIGURATION, '{"lora_alpha": 3200, "target_modules": ["a", "b"]}'),
        ("chat_template.jinja", "{{ ''.__class__ }}"),
        ("modeling.py", "import os\n"),
        ("other/adapter_model.bin", "pickle"),
    ],
)
def test_a_verdict_covers_every_file_of_an_adapter(run: Path, store: ArtifactStore, name: str, content: str) -> None:
    """The weights are those of the evaluation, but their scale, the template or other loaded files are not."""
    gate = _judge(run, store)
    (run / ADAPTER / name).parent.mkdir(exist_ok=True)
    (run / ADAPTER / name).write_text(content)

    with pytest.raises(RefusedError, match="The verdict is for adapter"):
        promote(gate, run, store, PRESENT, now=NOW)
    assert champion_key(store) is None


def test_a_changed_evaluation_gets_no_verdict(run: Path, store: ArtifactStore) -> None:
    evaluation = evaluated(run, store, num_good=20)
    path = evaluation.path / RESULTS
    path.write_text(path.read_text().replace("0.5", "0.9"))

    with pytest.raises(RefusedError, match=rf"changed since it was written: {RESULTS}\. Evaluate again"):
        scored(run, store, evaluation)
    assert not (store.root / Kind.BENCHMARK_GATE).exists()


def test_a_changed_verdict_is_computed_again(run: Path, store: ArtifactStore) -> None:
    gate = _judge(run, store)
    (gate.path / RECEIPT).write_text("{}")

    with pytest.raises(RefusedError, match="run the gate again"):
        promote(gate, run, store, PRESENT, now=NOW)
    assert promote(_judge(run, store), run, store, PRESENT, now=NOW).changed


def test_the_digest_ignores_the_card_and_the_order_of_layers(run: Path) -> None:
    """PEFT writes the names of layers in any order; the card contains the duration of training."""
    before = adapter_digest(run)
    (run / ADAPTER / CONFIGURATION).write_text(json.dumps({"target_modules": ["b", "a"], "lora_alpha": 32}, indent=2))
    (run / ADAPTER / "README.md").write_text("# Another card\n")

    assert adapter_digest(run) == before


@pytest.mark.parametrize("content", ["[1]", "{", "[" * 100_000])
def test_the_digest_includes_a_malformed_configuration(run: Path, content: str) -> None:
    before = adapter_digest(run)
    (run / ADAPTER / CONFIGURATION).write_text(content)

    assert adapter_digest(run) != before


@pytest.mark.threat("M10")
@pytest.mark.parametrize("key", ["{tmp}/forged", "../../forged"], ids=["absolute", "relative"])
def test_ignores_a_verdict_outside_the_store(run: Path, store: ArtifactStore, tmp_path: Path, key: str) -> None:
    gate = _judge(run, store)
    forged = tmp_path / "forged"
    shutil.copytree(gate.path, forged)
    shutil.copy(forged / RECEIPT, run / RECEIPT)
    shutil.rmtree(store.root / Kind.BENCHMARK_GATE)
    (store.root / Kind.BENCHMARK_GATE).mkdir()
    key = key.format(tmp=tmp_path)
    (run / FILE).write_text(json.dumps({Kind.BENCHMARK_GATE: key}))
    assert (store.root / Kind.BENCHMARK_GATE / key / RECEIPT).is_file()

    with pytest.raises(RefusedError, match="not found, or not in"):
        recall_artifact(run, Kind.BENCHMARK_GATE, RECEIPT, store, "Judge it.")
    assert invoke("promote", "--run-dir", run).exit_code == 1
    assert champion_key(store) is None


@pytest.mark.threat("M10")
@pytest.mark.parametrize("key", ["..", "../x", "/etc", "latest", "A" * 64, "a" * 63, "a" * 64 + "\n", ""])
def test_a_key_must_be_a_digest(store: ArtifactStore, key: str) -> None:
    (store.root / "kind").mkdir(parents=True)
    (store.root / STORE_MANIFEST).write_text("{}")

    assert store.get("kind", key) is None


@pytest.mark.threat("M10")
@pytest.mark.parametrize(
    "manifest",
    ["{", "[]", "{}", '{"kind": "other", "inputs": {}}', '{"kind": "kind", "inputs": {"a": 2}}', "[" * 99_999],
)
def test_a_manifest_of_another_artifact_is_ignored(store: ArtifactStore, manifest: str) -> None:
    with store.writing("kind", {"a": 1}) as draft:
        draft.extra = {}
    (path,) = (store.root / "kind").glob("*/manifest.json")
    assert store.find("kind", {"a": 1}) is not None
    path.write_text(manifest)

    assert store.find("kind", {"a": 1}) is None


@pytest.mark.parametrize("content", ["[]", '{"a": 1}', "{", "x" * 100_000, "[" * 60_000])
def test_rejects_malformed_notes(run: Path, store: ArtifactStore, content: str) -> None:
    (run / FILE).write_text(content)

    with pytest.raises(RefusedError, match="Delete it, and evaluate the run again"):
        recall_artifact(run, Kind.BENCHMARK_GATE, RECEIPT, store, "")


@pytest.mark.threat("M17")
@pytest.mark.parametrize("place", [f"{ADAPTER}/merges.txt", MANIFEST, RECEIPT, FILE, "checkpoints"])
@pytest.mark.parametrize("command", ["eval-local", "gate", "promote", "override"])
def test_rejects_a_run_with_links_before_reading_or_writing(
    run: Path, store: ArtifactStore, tmp_path: Path, place: str, command: str
) -> None:
    """Through links a command would copy a secret into the store, or overwrite a file elsewhere."""
    secret = tmp_path / "home" / "secret"
    secret.parent.mkdir()
    secret.write_text("hunter2\n")
    (run / place).unlink(missing_ok=True)
    (run / place).symlink_to(secret.parent if place == "checkpoints" else secret)
    signer = ("--by", "me", "--reason", "for a reason") if command == "override" else ()
    result = invoke(command, "--run-dir", run, *signer)

    assert isinstance(result.exception, RefusedError)
    assert "a link, a pipe or a device" in str(result.exception)
    assert secret.read_text() == "hunter2\n"
    assert not any("hunter2" in path.read_text() for path in store.root.rglob("*") if path.is_file())


@pytest.mark.threat("M17")
def test_does_not_promote_an_adapter_with_links(run: Path, store: ArtifactStore, tmp_path: Path) -> None:
    gate = _judge(run, store)
    (tmp_path / "secret").write_text("hunter2")
    (run / ADAPTER / "merges.txt").symlink_to(tmp_path / "secret")

    with pytest.raises(RefusedError, match="a link, a pipe or a device"):
        promote(gate, run, store, PRESENT, now=NOW)


@pytest.mark.threat("M15")
def test_does_not_roll_back_to_a_changed_champion(run: Path, store: ArtifactStore, tmp_path: Path) -> None:
    first = promote(_judge(run, store), run, store, PRESENT, now=NOW).champion
    other = trained(tmp_path / "other", "other weights")
    second = promote(_judge(other, store), other, store, PRESENT, now=NOW + 1).champion
    (first.path / ADAPTER / "modeling.py").write_text("import os\n")

    with pytest.raises(RefusedError, match=f"changed since it was promoted: files in {ADAPTER}"):
        roll_back(store, now=NOW + 2, reason="a test")
    (first.path / ADAPTER / WEIGHTS).write_text("planted")
    with pytest.raises(RefusedError, match=rf"changed since it was promoted: {ADAPTER}/{WEIGHTS}"):
        roll_back(store, now=NOW + 2, reason="a test")
    assert champion_key(store) == second.key


@pytest.mark.threat("M15")
def test_does_not_use_a_champion_planted_in_advance(run: Path, store: ArtifactStore) -> None:
    gate = _judge(run, store)
    champion = promote(gate, run, store, PRESENT, now=NOW).champion
    for name in (CHAMPION, HISTORY):
        (store.root / champion.kind / name).unlink()
    (champion.path / ADAPTER / "planted.json").write_text("{}")

    with pytest.raises(RefusedError, match="changed since it was promoted"):
        promote(gate, run, store, PRESENT, now=NOW)
    assert find_champion(store) is None


def test_rebuilds_a_champion_with_changed_weights(run: Path, store: ArtifactStore) -> None:
    gate = _judge(run, store)
    champion = promote(gate, run, store, PRESENT, now=NOW).champion
    for name in (CHAMPION, HISTORY):
        (store.root / champion.kind / name).unlink()
    (champion.path / ADAPTER / WEIGHTS).write_text("planted")
    again = promote(gate, run, store, PRESENT, now=NOW).champion

    assert find_champion(store) == again == champion
    assert digest_of(run / ADAPTER / WEIGHTS) == digest_of(again.path / ADAPTER / WEIGHTS)


_KEY = "a secret of maintainers"


@pytest.mark.threat("M16")
@pytest.mark.parametrize(
    "changes",
    [
        {"by": "another"},
        {"reason": "another reason, as long"},
        {"adapter_sha256": "b" * 64},
        {"receipt_sha256": "b" * 64},
        {"timestamp_unix": NOW + 1},
        {"signature": ""},
        {"signature": "0" * 64},
        {"signature": "\u00e9" * 64},
    ],
    ids="-".join,
)
def test_rejects_a_changed_override(tmp_path: Path, changes: dict[str, object]) -> None:
    record = Override(
        adapter_sha256="a" * 64, receipt_sha256="a" * 64, by="me", reason="a reason for it", timestamp_unix=NOW
    )
    path = tmp_path / "override.json"
    path.write_text(sign_override(record, _KEY).model_dump_json())
    assert read_override(path, _KEY).by == "me"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    for key in (_KEY, "another secret of others"):
        with pytest.raises(RefusedError, match="the signature does not match"):
            read_override(path, key)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match=r"override\.json: not text \(.*Write one with `mens override`"):
        read_override(path, _KEY)


@pytest.mark.threat("W11")
@pytest.mark.parametrize("path", ["/etc/passwd", "../x.jsonl", "a/../../x.jsonl", "a\\\\x.jsonl", "a\\0.jsonl"])
@pytest.mark.parametrize("content", ['sources: [{path: "%s"}]', 'sources: [{path: a}]\noutput: "%s.jsonl"'])
def test_a_mix_stays_in_its_folder(tmp_path: Path, content: str, path: str) -> None:
    (tmp_path / "mix.yaml").write_text(content % path)

    with pytest.raises(ConfigurationError, match="expected a path below the data folder"):
        load_mix_config(tmp_path / "mix.yaml")
