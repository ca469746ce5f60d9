"""The extracted corpus and its checks as Dagster sees them."""

import json
from base64 import b64decode
from pathlib import Path
from xml.etree import ElementTree as ET

import dagster as dg
import pytest

from mens_pipeline.corpus.extracted_corpus import KIND
from mens_pipeline.corpus.store import MANIFEST, ArtifactStore
from mens_pipeline.corpus.validated_pairs import KIND as PAIRS_KIND
from mens_pipeline.definitions import defs
from mens_pipeline.language import CONSTRUCTS
from mens_pipeline.orchestration.charts import bar_chart
from mens_pipeline.orchestration.defs.extraction import everything_accounted_for
from mens_pipeline.orchestration.defs.pairs import enough_pairs, rows_accounted_for
from mens_pipeline.orchestration.resources.artifact_store import ArtifactStoreResource
from mens_pipeline.orchestration.resources.workspace import VoxWorkspace
from mens_pipeline.settings import PROJECT_ROOT

_CHECKS = ("source_parse_rate", "everything_accounted_for", "corpus_coverage", "rows_accounted_for", "enough_pairs")


def _run(root: Path, store: Path, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    resources = {"workspace": VoxWorkspace(root=str(root)), "store": ArtifactStoreResource(root=str(store))}
    job = defs().resolve_job_def("whole_graph")
    return job.execute_in_process(instance=instance, resources=resources, raise_on_error=False)


def _passed(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {evaluation.check_name: evaluation.passed for evaluation in result.get_asset_check_evaluations()}


def test_seed_data_passes_and_the_second_run_reuses_it(tmp_path: Path) -> None:
    """Every check passes, rows are counted, an unchanged workspace is not extracted again."""
    with dg.DagsterInstance.ephemeral() as instance:
        first = _run(PROJECT_ROOT / "data", tmp_path / "store", instance)
        second = _run(PROJECT_ROOT / "data", tmp_path / "store", instance)
    nodes = ("extracted_corpus", "validated_pairs")
    metadata = [run.asset_materializations_for_node(node)[0].metadata for node in nodes for run in (first, second)]

    assert first.success
    assert _passed(first) == dict.fromkeys(_CHECKS, True)
    assert [entry["reused"].value for entry in metadata] == [False, True, False, True]
    assert metadata[0]["dagster/row_count"] == metadata[1]["dagster/row_count"]
    assert metadata[2]["kept"] == metadata[3]["kept"]


def test_a_narrow_corpus_is_refused(tmp_path: Path) -> None:
    """One construct of thirty is too few, and the check names what is missing."""
    (tmp_path / "a.vox").write_text("fn a() { }\n")
    with dg.DagsterInstance.ephemeral() as instance:
        result = _run(tmp_path, tmp_path / "store", instance)
    coverage = next(e for e in result.get_asset_check_evaluations() if e.check_name == "corpus_coverage")

    assert not result.success
    assert not coverage.passed
    assert coverage.metadata["constructs_present"].value == f"1/{len(CONSTRUCTS)} (3.3 %)"
    assert "workflow" in str(coverage.metadata["missing"].value)


def test_a_broken_workspace_is_not_extracted(tmp_path: Path) -> None:
    """The blocking check on the sources stops what depends on them."""
    (tmp_path / "bad.vox").write_text("fn (")
    with dg.DagsterInstance.ephemeral() as instance:
        result = _run(tmp_path, tmp_path / "store", instance)

    assert not result.success
    assert ArtifactStore(tmp_path / "store").pointed(KIND, "latest") is None


def test_an_account_that_does_not_add_up_is_refused(tmp_path: Path) -> None:
    """The check can fail: a manifest with a lost block does not pass, and none at all is an error."""
    store = ArtifactStore(tmp_path)
    resource = ArtifactStoreResource(root=str(tmp_path))
    with pytest.raises(dg.Failure, match="Materialise it first"):
        everything_accounted_for(resource)
    with store.writing(KIND, {}) as draft:
        draft.extra = {"units": {"block": {"seen": 3, "kept": 1, "dropped": {"rejected": 1}}}}
    corpus = store.find(KIND, {})
    assert corpus is not None
    store.point("latest", corpus)
    result = everything_accounted_for(resource)

    assert isinstance(result, dg.AssetCheckResult)
    assert not result.passed
    assert result.metadata["unaccounted_block"].value == 1
    assert json.loads((corpus.path / MANIFEST).read_text())["key"] == corpus.key


@pytest.mark.parametrize(("num_pairs", "passed"), [(50, True), (49, False)])
def test_too_few_pairs_are_refused(tmp_path: Path, num_pairs: int, passed: bool) -> None:  # noqa: FBT001 - a column
    """Fifty are enough, forty-nine are not."""
    store = ArtifactStore(tmp_path)
    with store.writing(PAIRS_KIND, {}) as draft:
        draft.extra = {"num_pairs": num_pairs}
    pairs = store.find(PAIRS_KIND, {})
    assert pairs is not None
    store.point("latest", pairs)
    result = enough_pairs(ArtifactStoreResource(root=str(tmp_path)))

    assert isinstance(result, dg.AssetCheckResult)
    assert result.passed is passed


def test_a_lost_pair_is_refused(tmp_path: Path) -> None:
    """The check on the rows can fail."""
    store = ArtifactStore(tmp_path)
    with store.writing(PAIRS_KIND, {}) as draft:
        draft.extra = {"validation": {"seen": 3, "kept": 1, "rejected": {"schema": 1}}}
    pairs = store.find(PAIRS_KIND, {})
    assert pairs is not None
    store.point("latest", pairs)
    result = rows_accounted_for(ArtifactStoreResource(root=str(tmp_path)))

    assert isinstance(result, dg.AssetCheckResult)
    assert not result.passed
    assert result.metadata["unaccounted"].value == 1


def test_the_chart_is_a_picture_of_the_numbers() -> None:
    """Well-formed SVG in a data URL, a bar and a number for each name, names escaped."""
    chart = bar_chart("records", {"a<b": 3, "c": 0})
    svg = b64decode(chart.split("base64,")[1].removesuffix(")"))
    texts = [element.text for element in ET.fromstring(svg).iter() if element.text]  # noqa: S314 - our own picture

    assert chart.startswith("![records](data:image/svg+xml;base64,")
    assert texts == ["records", "a<b", "3", "c", "0"]
