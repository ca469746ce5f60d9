"""The extracted corpus and its checks as Dagster sees them."""

import json
import re
import shutil
from base64 import b64decode
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import dagster as dg
import pytest
from typer.testing import CliRunner

from mens_pipeline.cli.main import app
from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.corpus.synthesis.synthetic_corpus import KINDS
from mens_pipeline.definitions import defs
from mens_pipeline.language import CONSTRUCTS
from mens_pipeline.orchestration.charts import bar_chart
from mens_pipeline.orchestration.defs.extraction import everything_accounted_for
from mens_pipeline.orchestration.instance import open_instance
from mens_pipeline.orchestration.resources import ArtifactStoreResource, VoxWorkspace
from mens_pipeline.settings import GATE_POLICY, PIPELINE_CONFIG, PROJECT_ROOT
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import MANIFEST, ArtifactRef, ArtifactStore
from mens_pipeline_tests.orchestration.stores import judge, latest_in

_CHECKS = (
    *("source_parse_rate", "everything_accounted_for", "corpus_coverage", "as_many_as_asked", "rows_accounted_for"),
    *("no_overlap", "pairs_accounted_for", "enough_pairs", "mixed_rows_accounted_for", "shares_as_asked"),
)


def _run(root: Path, store: Path, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    resources = {"workspace": VoxWorkspace(root=str(root)), "store": ArtifactStoreResource(root=str(store))}
    job = defs().resolve_job_def("train_set")
    return job.execute_in_process(instance=instance, resources=resources, raise_on_error=False)


def _read_checks(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {evaluation.check_name: evaluation.passed for evaluation in result.get_asset_check_evaluations()}


@pytest.mark.slow
def test_seed_data_passes_and_the_second_run_reuses_it(seed_run: Path, tmp_path: Path) -> None:
    nodes = ("extracted_corpus", "synthetic_corpus", "validated_pairs", "heldout_split", "mixed_train_set")
    with open_instance(seed_run / "home") as instance:
        events = [instance.get_latest_materialization_event(dg.AssetKey(node)) for node in nodes]
    with dg.DagsterInstance.ephemeral() as instance:
        second = _run(PROJECT_ROOT / "data", shutil.copytree(seed_run / "store", tmp_path / "store"), instance)
    passed = re.findall(r"^passed +\w+/(\w+)$", (seed_run / "stdout").read_text(), re.MULTILINE)

    assert (seed_run / "exit_code").read_text() == "0"
    assert sorted(passed) == sorted(_CHECKS)
    assert _read_checks(second) == dict.fromkeys(_CHECKS, True)
    for node, event in zip(nodes, events, strict=True):
        made, (again,) = event and event.asset_materialization, second.asset_materializations_for_node(node)
        assert made is not None
        assert (made.metadata["reused"].value, again.metadata["reused"].value) == (False, True)
        assert made.metadata["dagster/row_count"] == again.metadata["dagster/row_count"]
        assert made.tags is not None
        assert again.tags is not None
        assert made.tags["dagster/data_version"] == again.tags["dagster/data_version"]


@pytest.mark.nightly
def test_commands_and_assets_give_the_same_train_set(seed_run: Path, tmp_path: Path) -> None:
    """extract, validate, pairs --docs, generate-data, mix: the same bytes, as JSON lines and as Parquet."""
    data = str(PROJECT_ROOT / "data")
    limit = str(load_pipeline_config(PIPELINE_CONFIG).synthesize.limit)
    records, valid, synthetic, pairs = (
        str(tmp_path / f"{n}.jsonl") for n in ("records", "valid", "synthetic", "pairs")
    )
    for arguments in (
        ["corpus", "extract", data, "-o", records],
        ["corpus", "validate", records, "-o", valid],
        ["corpus", "pairs", valid, "-o", pairs, "--docs", f"{data}/docs"],
        ["generate-data", "--limit", limit, "--corpus", records, "-o", synthetic],
        ["corpus", "mix", "--data-dir", str(tmp_path)],
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    mixed = latest_in(ArtifactStore(seed_run / "store"), Kind.MIXED_TRAIN_SET)

    for name in ("train.jsonl", "train.parquet"):
        assert (mixed.path / name).read_bytes() == (tmp_path / name).read_bytes()
    kinds = Counter(pair.task_family in KINDS for pair in set(read_pairs(mixed.path / TRAIN)))
    assert kinds[False] >= 1500
    assert kinds[True] >= 500


def test_a_narrow_corpus_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.vox").write_text("fn a() { }\n")
    with dg.DagsterInstance.ephemeral() as instance:
        result = _run(tmp_path, tmp_path / "store", instance)
    coverage = next(e for e in result.get_asset_check_evaluations() if e.check_name == "corpus_coverage")

    assert not result.success
    assert not coverage.passed
    assert coverage.metadata["constructs_present"].value == f"1/{len(CONSTRUCTS)} (3.3 %)"
    assert (coverage.metadata["measured"].value, coverage.metadata["required"].value) == (0.0333, 0.5)
    assert "workflow" in str(coverage.metadata["absent"].value)
    assert coverage.metadata["set_by"].value == f"min_corpus_coverage in {GATE_POLICY}"
    assert coverage.metadata["advice"].value == (
        "Programs read: 1; constructs in them: 1, required 15. "
        "Add programs; for a small workspace set min_corpus_coverage to 0.03."
    )


def test_a_broken_workspace_is_not_extracted(tmp_path: Path) -> None:
    (tmp_path / "bad.vox").write_text("fn (")
    with dg.DagsterInstance.ephemeral() as instance:
        result = _run(tmp_path, tmp_path / "store", instance)

    assert not result.success
    assert ArtifactStore(tmp_path / "store").read_pointer(Kind.EXTRACTED_CORPUS, "latest") is None


def test_an_account_that_does_not_add_up_is_refused(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    resource = ArtifactStoreResource(root=str(tmp_path))
    with pytest.raises(dg.Failure, match=r"extracted_corpus 0{12} is gone\. Materialise extracted_corpus again"):
        everything_accounted_for(ArtifactRef(Kind.EXTRACTED_CORPUS, "0" * 64), resource)
    units = {"block": {"seen": 3, "kept": 1, "dropped": {"rejected": 1}}}
    with store.writing(Kind.EXTRACTED_CORPUS, {"commit": None}) as draft:
        draft.extra = {"units": units, "num_records": 1, "telemetry": None, "grammar": "a", "redactions": {}}
    corpus = store.find(Kind.EXTRACTED_CORPUS, {"commit": None})
    assert corpus is not None
    result = judge(everything_accounted_for, corpus.ref(), resource)

    assert not result.passed
    assert result.metadata["unaccounted_block"].value == 1
    assert json.loads((corpus.path / MANIFEST).read_text())["key"] == corpus.key


def test_the_chart_draws_the_numbers() -> None:
    chart = bar_chart("records", {"a<b": 3, "c": 0})
    svg = b64decode(chart.split("base64,")[1].removesuffix(")"))
    texts = [element.text for element in ET.fromstring(svg).iter() if element.text]  # noqa: S314 - our own picture

    assert chart.startswith("![records](data:image/svg+xml;base64,")
    assert texts == ["records", "a<b", "3", "c", "0"]
