"""`mens run` with the services that machines share: a Ray cluster, object storage, and Dagster in PostgreSQL."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from mens_pipeline.models.adapter import ADAPTER, TELEMETRY, WEIGHTS
from mens_pipeline.promotion.policy import GateName
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.storage.remote import Remote
from mens_pipeline.storage.store import ArtifactStore, digest_of
from mens_pipeline_tests.e2e.whole_graph import mens, write_config
from mens_pipeline_tests.evaluation.runs import champion_in
from mens_pipeline_tests.jobs.ray_head import RayHead, ray_head
from mens_pipeline_tests.training.tiny_base import write_tiny_base

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.postgres]

_OWN = ("eval_results", "benchmark_gate", "promoted_adapter")
"""Their figures contain seconds, and an evaluation names the store of its ledger."""

_WARNS = {"warn_only": [str(gate) for gate in GateName], "first_heldout_tasks": 20, "max_rounds": 1}
"""Random weights pass no gate: here all of them only warn, so that the adapter is promoted."""


@pytest.fixture
def head() -> Iterator[RayHead]:
    """Two nodes on this machine."""
    yield from ray_head(num_others=1)


def _list_folder(store: Path) -> set[tuple[str, str]]:
    return {(path.parent.parent.name, path.parent.name) for path in store.glob("*/*/manifest.json")}


def _list_bucket(url: str) -> set[tuple[str, str]]:
    return {(found.kind, found.key) for found in Remote(url).list_artifacts() if found.is_whole}


def _read_digests(store: Path) -> dict[str, str]:
    """Path in a store -> digest, for all files of rows: those of the corpus, and the scored completions.

    Evaluations and later artifacts have other keys, since they name their store. The log of a training contains
    seconds.
    """
    found: dict[str, str] = {}
    for manifest in store.glob("*/*/manifest.json"):
        kind = manifest.parent.parent.name
        place = kind if kind in _OWN else f"{kind}/{manifest.parent.name}"
        outputs = json.loads(manifest.read_text())["outputs"]
        rows = {name for name in outputs if name.endswith(".jsonl") and not (name == TELEMETRY and "adapter" in kind)}
        found |= {f"{place}/{name}": outputs[name]["sha256"] for name in rows}
    return found


def _hash_weights(store: ArtifactStore) -> str:
    champion = champion_in(store)
    return digest_of(champion.path / ADAPTER / WEIGHTS)


def test_a_cluster_makes_the_artifacts_of_one_machine(
    tmp_path: Path, head: RayHead, store_url: str, postgres_url: str, seed_run: Path
) -> None:
    base = write_tiny_base(tmp_path / "base")
    config = write_config(tmp_path, {"syntax": "free"}, _WARNS)
    database = sa.make_url(postgres_url).set(drivername="postgresql+psycopg2").render_as_string(hide_password=False)
    one_thread = {"OMP_NUM_THREADS": "1"}  # bits depend on threads
    shared = {"MENS_LAUNCHER": "ray", "MENS_STORE_URL": store_url, "MENS_DAGSTER_POSTGRES_URL": database}
    for name in ("first", "second"):
        (tmp_path / name / "home").mkdir(parents=True)
        link = tmp_path / name / "home" / "dagster.yaml"
        link.symlink_to(PROJECT_ROOT / "config" / "dagster-postgres.yaml")

    shutil.copytree(seed_run / "store", tmp_path / "alone" / "store")
    run = ("run", "--preset", "tiny")
    alone = mens(tmp_path / "alone", base, config, *run, variables=one_thread)
    first, second = (
        mens(tmp_path / name, base, config, *run, variables={**one_thread, **head.variables, **shared})
        for name in ("first", "second")
    )
    stores = (ArtifactStore(tmp_path / "third", Remote(store_url)), ArtifactStore(tmp_path / "alone" / "store"))
    with sa.create_engine(database, poolclass=sa.NullPool).connect() as connection:
        statuses = connection.exec_driver_sql("SELECT status FROM runs").scalars().all()
        observed = (
            "SELECT count(*) FROM event_logs WHERE dagster_event_type = 'ASSET_OBSERVATION' AND asset_key LIKE %s"
        )
        num_observed = connection.exec_driver_sql(observed, ("%qlora_adapter%",)).scalar_one()

    for done in (alone, first, second):
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    made, made_alone = _list_bucket(store_url), _list_folder(tmp_path / "alone" / "store")
    assert {ref for ref in made if ref[0] not in _OWN} == {ref for ref in made_alone if ref[0] not in _OWN}
    assert _read_digests(tmp_path / "first" / "store") == _read_digests(tmp_path / "alone" / "store")
    assert Counter(kind for kind, _ in made) == Counter(kind for kind, _ in made_alone)
    assert dict.fromkeys(_OWN, 1).items() <= Counter(kind for kind, _ in made).items()
    assert _hash_weights(stores[0]) == _hash_weights(stores[1])
    assert "reused      9/9 stages" in second.stdout
    assert statuses == ["SUCCESS", "SUCCESS"]
    assert num_observed
