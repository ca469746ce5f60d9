"""Train set and benchmark are sent to the Hub as datasets, which `datasets` loads."""

import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import DatasetCard

from mens_pipeline.corpus.schema.reading import read_pairs
from mens_pipeline.delivery.hub import Target
from mens_pipeline.delivery.hub_datasets import plan_benchmark, plan_train_set
from mens_pipeline.delivery.merge_source import merge_source
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.delivery.delivered import promoted_run
from mens_pipeline_tests.delivery.hub_server import Hub, push

_REPO = "vox/data"
_BENCH = PROJECT_ROOT / "data" / "heldout_bench"


def _taken(hub: Hub, folder: Path) -> Path:
    """A clone of the repository on the Hub."""
    folder.mkdir()
    for name, content in hub.files[_REPO, "main"].items():
        (folder / name).write_bytes(content)
    return folder


def _loaded(folder: Path, cache: Path, name: str | None = None) -> Any:
    import datasets

    return datasets.load_dataset(str(folder), name, cache_dir=str(cache))


@pytest.mark.slow
def test_the_train_set_of_a_champion_is_sent(hub: Hub, promoted: tuple[Path, ArtifactStore], tmp_path: Path) -> None:
    """Row by row what trained, with licence and origin, in a private repository for datasets."""
    run, store = promoted
    done = push(hub, store.root, _REPO, "--what", "train-set", "--yes", MENS_DATA_LICENCE="apache-2.0")
    assert done.returncode == 0, done.stderr
    manifest = json.loads((run / "training_manifest.json").read_text())
    rows = list(read_pairs(Path(manifest["train_file"])))
    folder = _taken(hub, tmp_path / "clone")
    loaded, card = _loaded(folder, tmp_path / "cache")["train"], DatasetCard.load(folder / "README.md")

    assert (hub.private, hub.kinds) == ({_REPO: True}, {_REPO: "dataset"})
    assert loaded["prompt"][:] == [row.prompt for row in rows]
    assert loaded["response"][:] == [row.response for row in rows]
    assert card.data.license == "apache-2.0"
    assert manifest["train_sha256"] in card.text
    assert merge_source(None, store).adapter_sha256 in card.text
    assert str(run.parent) not in card.text


@pytest.mark.slow
def test_the_benchmark_is_loaded_by_datasets(hub: Hub, tmp_path: Path) -> None:
    """HumanEval-Vox with its hidden tests as texts; also from a folder, before anything is sent."""
    kept = tmp_path / "kept"
    done = push(
        hub, tmp_path, _REPO, "--what", "benchmark", "--into", str(kept), "--yes", MENS_DATA_LICENCE="apache-2.0"
    )
    assert done.returncode == 0, done.stderr
    tasks = load_benchmark(_BENCH / "humaneval_vox").tasks

    for folder in (_taken(hub, tmp_path / "clone"), kept):
        loaded = _loaded(folder, tmp_path / f"cache-{folder.name}", "humaneval_vox")["test"]
        assert loaded["id"][:] == [task.id for task in tasks]
        assert loaded["tests"][:] == [task.tests for task in tasks]
        assert loaded["wrong"][:] == [list(task.wrong) for task in tasks]
        assert json.loads(loaded[0]["requires"])[0]["name"] == "count_odd"
    assert len(_loaded(kept, tmp_path / "other", "heldout_bench")["test"]) == len(load_benchmark(_BENCH).tasks)


def test_nothing_is_sent_without_a_licence(tmp_path: Path) -> None:
    """A dataset without a licence is refused before anything is sent."""
    with pytest.raises(ConfigurationError, match=r"MENS_DATA_LICENCE: not set\. Set the licence of the data"):
        plan_benchmark(_BENCH, Target(_REPO), None, tmp_path / "staging")
    assert not (tmp_path / "staging").exists()


def test_a_folder_without_a_benchmark_is_refused(tmp_path: Path) -> None:
    """By its manifest."""
    with pytest.raises(ConfigurationError, match=r"manifest\.json: not there\. Name a folder"):
        plan_benchmark(tmp_path, Target(_REPO), "mit", tmp_path / "staging")


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "found"), [("", "gone"), ("{}\n", "changed since")])
def test_another_train_set_is_not_sent(trained: Path, tmp_path: Path, damage: str, found: str) -> None:
    """Only the very rows that trained."""
    run, store = promoted_run(trained, tmp_path)
    source = merge_source(run, store)
    other = tmp_path / "other.jsonl"
    if damage:
        other.write_text(damage)
    source.manifest["train_file"] = str(other)

    with pytest.raises(RefusedError, match=f"other.jsonl: the train set of this adapter is {found}"):
        plan_train_set(source, store, Target(_REPO), "mit", tmp_path / "staging")


@pytest.mark.slow
def test_only_the_train_set_of_what_is_promoted_is_sent(trained: Path, tmp_path: Path) -> None:
    """As with the adapter itself."""
    store = ArtifactStore(tmp_path / "store")
    with pytest.raises(RefusedError, match="not promoted"):
        plan_train_set(merge_source(trained, store), store, Target(_REPO), "mit", tmp_path / "staging")
