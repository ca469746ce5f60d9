"""The store and the Dagster home of each release are read, and gone on with, by the present code."""

import tarfile
from pathlib import Path

import dagster as dg
import pytest

from mens_pipeline.delivery.retention import read_store
from mens_pipeline.evaluation.results import RESULTS
from mens_pipeline.orchestration.instance import open_instance
from mens_pipeline.promotion.history import KIND, history_of
from mens_pipeline.promotion.promote import roll_back
from mens_pipeline.promotion.receipt import read_results, receipt_in
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.evaluation.runs import NOW, champion_in, promoted, trained
from mens_pipeline_tests.storage.release_fixtures import FOLDER

_RELEASES = sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("*.tar.xz"))


@pytest.fixture(params=_RELEASES)
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A release, unpacked."""
    with tarfile.open(FOLDER / f"{request.param}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path


def test_each_release_is_kept() -> None:
    """One for each version that was given out, the present one among them."""
    assert "0.1.0" in _RELEASES


def test_a_store_of_a_release_is_gone_on_with(release: Path) -> None:
    """Champion, history, receipt and figures are read; what comes next is promoted, and rolled back."""
    store = ArtifactStore(release / "store")
    champion = champion_in(store)
    assert champion.find_changed() == ()
    assert len(history_of(store)) == 2
    assert receipt_in(champion.path).overall_passed
    assert read_results(champion.path / RESULTS) is not None
    assert all(item.is_artifact for item in read_store(store).items)

    newer = promoted(trained(release / "newer", "newer"), store)
    assert newer != champion.key
    assert roll_back(store, now=NOW, reason="tried").champion.key == champion.key


def test_a_home_of_a_release_is_opened(release: Path) -> None:
    """Its events are there, and new ones are taken."""
    with open_instance(release / "home") as instance:
        key = dg.AssetKey(KIND)
        found = instance.fetch_materializations(key, limit=5).records
        instance.report_runless_asset_event(dg.AssetMaterialization(KIND))

        assert len(found) == 1
        assert len(instance.fetch_materializations(key, limit=5).records) == 2
