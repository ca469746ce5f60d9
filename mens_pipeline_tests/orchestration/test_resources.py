"""Resources that follow from the settings alone."""

from pathlib import Path

import pytest

from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.corpus.extract.batches import Pool
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.orchestration.resources import ArtifactStoreResource, find_pools


def test_the_corpus_is_worked_on_where_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENS_NUM_WORKERS", "3")
    assert find_pools() == (Pool(3), BehaviourWorkers)

    monkeypatch.setenv("MENS_LAUNCHER", "ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ConfigurationError, match=r"RAY_ADDRESS=127\.0\.0\.1:1: no cluster to work on"):
        find_pools()


def test_a_step_opens_one_store(tmp_path: Path) -> None:
    resource = ArtifactStoreResource(root=str(tmp_path))

    assert resource.open() is resource.open()
    assert ArtifactStoreResource(root=str(tmp_path)).open() is not resource.open()
