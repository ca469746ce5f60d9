"""Uploads of a promoted adapter, its train set and the benchmark to the Hub."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from subprocess import CompletedProcess
from typing import Any

import pytest
from huggingface_hub import DatasetCard, ModelCard
from typer.testing import CliRunner

from mens_pipeline.cli.main import app
from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.delivery.hub import Target, plan_benchmark, plan_push, plan_train_set
from mens_pipeline.delivery.merge import merge_source
from mens_pipeline.errors import ConfigurationError, MensError, RefusedError
from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.models.adapter import adapter_digest
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import ArtifactStore, digest_of
from mens_pipeline_tests.delivery.delivered import promoted_run, with_manifest
from mens_pipeline_tests.delivery.hub_server import TOKEN, Hub, push, serving

pytestmark = pytest.mark.slow

_REPO = "vox/coder"
_Promoted = tuple[Path, ArtifactStore]
_Sent = tuple[Hub, CompletedProcess[str]]


def test_a_dry_run_sends_nothing(hub: Hub, promoted: _Promoted) -> None:
    run, store = promoted
    done = push(hub, store.root, _REPO)
    weights = run / "adapter" / "adapter_model.safetensors"

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        f"{_REPO} at main: lora-adapter-0123abcd: adapter {adapter_digest(run)[:12]}, verdict "
    )
    assert f"{weights.stat().st_size:>12,}  {digest_of(weights)[:12]}  adapter_model.safetensors" in done.stdout
    assert "nothing was sent. Add --yes to send the files." in done.stderr
    assert hub.requests == []


@pytest.fixture(scope="module")
def sent(promoted: _Promoted) -> Iterator[_Sent]:
    """A Hub to which the adapter was sent, and the finished command."""
    with serving() as hub:
        yield hub, push(hub, promoted[1].root, _REPO, "--yes")


def test_yes_sends_the_adapter(sent: _Sent, promoted: _Promoted) -> None:
    (hub, done), run = sent, promoted[0]
    files = hub.files[_REPO, "main"]
    commit = hub.branches[_REPO, "main"][-1]

    assert done.returncode == 0, done.stderr
    assert f"commit {commit}\n{hub.url}/{_REPO}/commit/{commit}\n" in done.stdout
    assert hub.private == {_REPO: True}
    weights = (run / "adapter" / "adapter_model.safetensors").read_bytes()
    assert files["adapter_model.safetensors"] == weights
    assert hashlib.sha256(weights).hexdigest() in hub.large
    assert set(files) == {
        *("README.md", "adapter_config.json", "adapter_model.safetensors", "chat_template.jinja"),
        *("eval_results.json", "system_prompt.json", "tokenizer.json", "tokenizer_config.json"),
        "bom.cdx.json",
    }
    assert TOKEN not in done.stdout + done.stderr


def test_the_sent_card_has_the_figures(sent: _Sent, promoted: _Promoted) -> None:
    hub, run = sent[0], promoted[0]
    card = hub.files[_REPO, "main"]["README.md"].decode()

    assert "This model has not been evaluated." in (run / "adapter" / "README.md").read_text()
    assert "parse rate | 0/40 (0.0 %, 95 % interval 0.0 to 6.0) | 40/40 (100.0 %" in card
    head = ModelCard(card).data
    assert head.license == "other"
    (result,) = [found for found in head.eval_results or [] if found.dataset_name.startswith("held-out")][:1]
    assert (result.metric_type, result.metric_value) == ("parse_rate", 1.0)
    assert head.to_dict()["model-index"][0]["results"]


def test_no_sent_file_names_this_machine(sent: _Sent, promoted: _Promoted, trained: Path) -> None:
    hub, run = sent[0], promoted[0]
    files = hub.files[_REPO, "main"]
    config = json.loads(files["adapter_config.json"])
    assert config["target_modules"] == sorted(config["target_modules"])  # equal runs write equal bytes
    places = [str(place).encode() for place in (trained.parent, run.parent)]

    assert str(trained.parent) in (run / "adapter" / "adapter_config.json").read_text()
    assert config["base_model_name_or_path"] == "base"
    assert [name for name, content in files.items() if any(place in content for place in places)] == []


@pytest.mark.nightly
def test_creates_a_branch_and_adds_commits(hub: Hub, promoted: _Promoted) -> None:
    store = promoted[1]
    first, second = (push(hub, store.root, _REPO, "--yes", "--revision", "nightly") for _ in range(2))

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert (len(hub.branches[_REPO, "main"]), len(hub.branches[_REPO, "nightly"])) == (1, 3)
    assert "adapter_model.safetensors" in hub.files[_REPO, "nightly"]


@pytest.mark.parametrize(
    "refuse",
    ["/commit/", *(pytest.param(path, marks=pytest.mark.nightly) for path in ("/api/repos/create", "/large/"))],
)
def test_reports_a_refusal_of_the_hub(hub: Hub, promoted: _Promoted, refuse: str) -> None:
    hub.refuse = refuse
    done = push(hub, promoted[1].root, _REPO, "--yes")

    assert done.returncode == 1
    assert f"mens: {_REPO}: the upload failed." in done.stderr
    assert "commits are atomic" in done.stderr
    assert "Traceback" not in done.stderr
    assert TOKEN not in done.stdout + done.stderr
    assert not any(hub.files.values())


def test_sends_no_request_without_a_token(hub: Hub, promoted: _Promoted) -> None:
    done = push(hub, promoted[1].root, _REPO, "--yes", token="")

    assert done.returncode == 2
    assert "HF_TOKEN: not set." in done.stderr
    assert hub.requests == []


def test_does_not_send_a_run_without_a_promotion(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MENS_STORE_ROOT", str(tmp_path))
    result = CliRunner().invoke(app, ["push", "--run-dir", str(trained), "--repo", _REPO])

    assert isinstance(result.exception, MensError)
    assert "not promoted, or rolled back. Run `mens promote` first" in str(result.exception)


def test_does_not_send_a_changed_adapter(trained: Path, tmp_path: Path) -> None:
    _, store = promoted_run(trained, tmp_path)
    source = merge_source(None, store)
    (source.adapter.path / "adapter" / "tokenizer_config.json").write_text("{}")

    with pytest.raises(RefusedError, match=r"tokenizer_config\.json: changed since it was promoted\. Restore it"):
        plan_push(source, Target(_REPO), None, tmp_path / "staging")


@pytest.mark.parametrize(
    ("repo", "revision", "message"),
    [
        ("coder", "main", "--repo coder: not a repository name. Write OWNER/NAME"),
        ("a/b/c", "main", "--repo a/b/c"),
        ("../x", "main", "--repo"),
        ("vox/coder", "a..b", "--revision a..b: not a branch name. Write main, or another branch."),
        ("vox/coder", "-x", "--revision"),
    ],
)
def test_rejects_malformed_names(repo: str, revision: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Target(repo, revision)


_DATASET = "vox/data"
_BENCH = PROJECT_ROOT / "data" / "heldout_bench"


def _clone(hub: Hub, folder: Path) -> Path:
    folder.mkdir()
    for name, content in hub.files[_DATASET, "main"].items():
        (folder / name).write_bytes(content)
    return folder


def _load(folder: Path, cache: Path, name: str | None = None) -> Any:
    import datasets

    return datasets.load_dataset(str(folder), name, cache_dir=str(cache))


def test_sends_the_train_set_of_a_champion(hub: Hub, promoted: _Promoted, tmp_path: Path) -> None:
    run, store = promoted
    done = push(hub, store.root, _DATASET, "--what", "train-set", "--yes", MENS_DATA_LICENCE="apache-2.0")
    assert done.returncode == 0, done.stderr
    manifest = json.loads((run / "training_manifest.json").read_text())
    rows = list(read_pairs(Path(manifest["train_file"])))
    folder = _clone(hub, tmp_path / "clone")
    loaded, card = _load(folder, tmp_path / "cache")["train"], DatasetCard.load(folder / "README.md")

    assert (hub.private, hub.kinds) == ({_DATASET: True}, {_DATASET: "dataset"})
    assert loaded["prompt"][:] == [row.prompt for row in rows]
    assert loaded["response"][:] == [row.response for row in rows]
    assert card.data.license == "apache-2.0"
    assert manifest["train_sha256"] in card.text
    assert merge_source(None, store).adapter.digest in card.text
    assert str(run.parent) not in card.text


def test_datasets_loads_the_benchmark(hub: Hub, tmp_path: Path) -> None:
    kept, what = tmp_path / "kept", ("--what", "benchmark", "--into")
    done, again, inside = (
        push(hub, tmp_path, _DATASET, *what, str(into), *more, MENS_DATA_LICENCE="apache-2.0")
        for into, *more in ((kept, "--yes"), (kept,), (kept / "README.md" / "x",))
    )
    assert done.returncode == 0, done.stderr
    assert f"--into {kept}: already exists. Name a new folder." in again.stderr
    assert f"--into {kept}/README.md/x: Not a directory. Name another folder." in inside.stderr
    tasks = load_benchmark(_BENCH / "humaneval_vox").tasks

    for folder in (_clone(hub, tmp_path / "clone"), kept):
        loaded = _load(folder, tmp_path / f"cache-{folder.name}", "humaneval_vox")["test"]
        assert loaded["id"][:] == [task.id for task in tasks]
        assert loaded["tests"][:] == [task.tests for task in tasks]
        assert loaded["wrong"][:] == [list(task.wrong) for task in tasks]
        assert json.loads(loaded[0]["requires"])[0]["name"] == "count_odd"
    assert len(_load(kept, tmp_path / "other", "heldout_bench")["test"]) == len(load_benchmark(_BENCH).tasks)


@pytest.mark.parametrize(
    ("folders", "licence", "message"),
    [
        (["v1"], None, r"MENS_DATA_LICENCE: not set\. Set the licence of the data"),
        ([], "mit", r"manifest\.json: not found\. Name a folder"),
        (["a/v1", "b/v1"], "mit", r"2 benchmarks are called v1\. Give each folder another name"),
    ],
)
def test_no_benchmark_is_sent(tmp_path: Path, folders: list[str], licence: str | None, message: str) -> None:
    for folder in folders:
        copytree(_BENCH / "humaneval_vox", tmp_path / folder)
    with pytest.raises(ConfigurationError, match=message):
        plan_benchmark(tmp_path, Target(_DATASET), licence, tmp_path / "staging")
    assert not (tmp_path / "staging").exists()


@pytest.mark.parametrize(("damage", "found"), [("", "gone"), ("{}\n", "changed")])
def test_does_not_send_another_train_set(trained: Path, tmp_path: Path, damage: str, found: str) -> None:
    run, store = promoted_run(trained, tmp_path)
    source = merge_source(run, store)
    other = tmp_path / "other.jsonl"
    if damage:
        other.write_text(damage)
    source = with_manifest(source, train_file=other)

    with pytest.raises(RefusedError, match=f"other.jsonl: the train set of this adapter is {found}"):
        plan_train_set(source, store, Target(_DATASET), "mit", tmp_path / "staging")


def test_does_not_send_the_train_set_of_an_adapter_without_a_promotion(trained: Path, tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store")
    with pytest.raises(RefusedError, match="not promoted"):
        plan_train_set(merge_source(trained, store), store, Target(_DATASET), "mit", tmp_path / "staging")


@pytest.mark.threat("R6")
def test_does_not_send_a_train_set_without_redaction(promoted: _Promoted, tmp_path: Path) -> None:
    run, store = promoted
    source = merge_source(run, store)
    path = tmp_path / "told.jsonl"
    rows = list(read_pairs(source.adapter.manifest.train_file))
    write_jsonl(path, [*rows, rows[0].model_copy(update={"prompt": "Mail ada.planted@firm.de, by Maria Gonzalez."})])
    source = with_manifest(source, train_file=path, train_sha256=digest_of(path))

    with pytest.raises(RefusedError, match=r"1 rows contain personal data or secrets \(1 email\)\. Set `redaction"):
        plan_train_set(source, store, Target(_DATASET), "mit", tmp_path / "staging")
    assert not (tmp_path / "staging").exists()
