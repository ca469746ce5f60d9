"""The gate and the adapter in use as Dagster sees them."""

import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.orchestration.defs.promotion import benchmark_gate, gate_checks, promoted_adapter
from mens_pipeline.orchestration.resources import paths_in
from mens_pipeline.promotion.history import champion_key
from mens_pipeline.promotion.receipt import receipt_in
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.evaluation.runs import evaluated, trained
from mens_pipeline_tests.orchestration.stores import artifact_in, build_resources, hand_over, latest_in, read_failure


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    """An adapter that completes one prompt of forty."""
    for name in ("VOX_EVAL_STRICT", "VOX_BENCHMARK_MIN_PASS_RATE", "VOX_EVAL_POLICY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VOX_BENCHMARK", "0")
    root = tmp_path / "store"
    adapter = artifact_in(root, Kind.QLORA_ADAPTER, {}, trained)
    artifact_in(root, Kind.HELDOUT_SPLIT, {}, lambda folder: (folder / HELDOUT).touch())
    evaluated(adapter.path, ArtifactStore(root), num_good=1)
    return ArtifactStore(root)


def _run(store: ArtifactStore, *, alone: bool = False, **config: Any) -> dg.ExecuteInProcessResult:
    ops = {} if alone else {"benchmark_gate": {"config": config}}
    before = dg.AssetSpec("benchmark_gate" if alone else "eval_results")
    assets: list[Any] = [before, promoted_adapter] if alone else [before, benchmark_gate, gate_checks, promoted_adapter]
    with dg.DagsterInstance.ephemeral() as instance:
        split, adapter = (latest_in(store, kind).ref() for kind in (Kind.HELDOUT_SPLIT, Kind.QLORA_ADAPTER))
        evaluation = latest_in(store, Kind.EVAL_RESULTS).ref(replace(adapter, parents=(split,)))
        hand_over(instance, latest_in(store, Kind.BENCHMARK_GATE).ref(evaluation) if alone else evaluation)
        result = dg.materialize(
            assets,
            instance=instance,
            resources=build_resources(store.root),
            run_config={"ops": ops},
            raise_on_error=False,
        )
        run = instance.get_run_by_id(result.run_id)
        assert run is not None
        _TAGS.clear()
        _TAGS.update({name: value for name, value in run.tags.items() if name.startswith("mens/")})
        return result


_TAGS: dict[str, str] = {}
"""Tags of the latest run."""


def _severities(result: dg.ExecuteInProcessResult) -> set[tuple[bool, str]]:
    return {(check.passed, check.severity.value) for check in result.get_asset_check_evaluations()}


@pytest.mark.seed_row(30, 78)
@pytest.mark.parametrize(
    ("environment", "config", "strict"),
    [(None, {"strict_quality_gate": True}, True), ("1", {"strict_quality_gate": False}, False)],
)
def test_a_failing_gate_warns_or_fails_the_run(
    store: ArtifactStore,
    monkeypatch: pytest.MonkeyPatch,
    environment: str | None,
    config: dict[str, Any],
    *,
    strict: bool,
) -> None:
    if environment is not None:
        monkeypatch.setenv("VOX_EVAL_STRICT", environment)
    result = _run(store, **config)
    receipt = receipt_in(latest_in(store, Kind.BENCHMARK_GATE).path)

    assert result.success is not strict
    assert (False, "ERROR" if strict else "WARN") in _severities(result)
    assert receipt.strict is strict
    assert champion_key(store) is None


def test_a_refusal_is_shown_in_tags_and_checks(store: ArtifactStore) -> None:
    result = _run(store)
    found = {check.check_name: check for check in result.get_asset_check_evaluations()}
    checks = {name: check.metadata for name, check in found.items()}

    assert {name: _TAGS[name] for name in ("mens/verdict", "mens/recipe", "mens/base")} == {
        "mens/verdict": "failed",
        "mens/recipe": "night",
        "mens/base": "tiny",
    }
    assert found["not_refused"].asset_key == promoted_adapter.key
    assert (found["not_refused"].description or "").startswith("parse rate 2.5 % measured, 70.0 % required; ")
    assert isinstance(checks["model_parse_rate"]["measured"].value, float)
    assert checks["model_parse_rate"]["required"].value == 0.7
    assert checks["gate_passed"]["gates_closed"].value


def test_the_page_of_the_gate_begins_with_its_table(store: ArtifactStore) -> None:
    (made,) = _run(store).asset_materializations_for_node("benchmark_gate")
    rows: Any = made.metadata["gates"].value
    first = rows.records[0].data
    texts = [text for row in rows.records for text in row.data.values()]
    texts += [json.dumps(value.value) for name, value in made.metadata.items() if name not in {"gates", "report_page"}]
    longest = max((word for text in texts for word in re.split(r"[\s/]", text)), key=len)

    assert next(iter(made.metadata)) == "gates"
    assert first == {"gate": "Parse rate", "measured": "2.5 %", "required": "70.0 %", "verdict": "refuses"}
    assert rows.records[-1].data["verdict"] == "passes"
    assert len(longest) < 40, longest


def test_the_page_of_a_verdict_is_linked_if_a_host_serves_the_store(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local address lasts for one session: the event has the path of the page in its place."""
    monkeypatch.setenv("MENS_STORE_PAGES", "https://pages.test/")
    (made,) = _run(store).asset_materializations_for_node("benchmark_gate")
    monkeypatch.setenv("MENS_STORE_PAGES", "http://127.0.0.1:8001")
    (again,) = _run(store).asset_materializations_for_node("benchmark_gate")
    page = Path(paths_in(again)["report"])

    url = f"https://pages.test/benchmark_gate/{page.parent.name}/report.html"
    assert isinstance(made.metadata["report_page"], dg.MarkdownMetadataValue)
    assert made.metadata["report_page"].value == f"[report.html]({url})"
    assert page.is_file()
    assert "8001" not in json.dumps({name: str(value.value) for name, value in again.metadata.items()})


def test_a_promotion_with_an_unknown_policy_is_refused_in_the_first_line(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _run(store)
    monkeypatch.setenv("VOX_EVAL_POLICY", "nope")

    assert read_failure(_run(store, alone=True)).startswith("dagster._core.definitions.events.Failure: policy nope: ")


@pytest.mark.parametrize(
    ("config", "environment", "message"),
    [
        ({"benchmark_min_pass_rate": 0.2}, {"VOX_BENCHMARK": "0"}, "VOX_BENCHMARK=0: the gate ignores the benchmark"),
        (
            {"benchmark_min_pass_rate": 0.2},
            {"VOX_BENCHMARK": "1", "VOX_BENCHMARK_MIN_PASS_RATE": "0.3"},
            "benchmark_min_pass_rate is 0.2, expected at least 0.3 .*only be overruled with `mens override`",
        ),
    ],
)
def test_an_impossible_threshold_is_refused_before_evaluation(
    store: ArtifactStore,
    monkeypatch: pytest.MonkeyPatch,
    config: dict[str, Any],
    environment: dict[str, str],
    message: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    result = _run(store, **config)

    assert not result.success
    assert re.search(message, read_failure(result))
    assert store.read_pointer(Kind.BENCHMARK_GATE, "latest") is None


def test_a_run_may_raise_the_threshold(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOX_BENCHMARK", "1")
    _run(store, benchmark_min_pass_rate=0.8)

    assert receipt_in(latest_in(store, Kind.BENCHMARK_GATE).path).thresholds.min_benchmark == 0.8


def test_the_adapter_in_use_must_be_fresh_in_the_morning() -> None:
    """Promoted or confirmed between 04:00 and 08:00 UTC."""
    policy = promoted_adapter.get_asset_spec().freshness_policy

    assert policy == dg.FreshnessPolicy.cron(
        deadline_cron="0 8 * * *", lower_bound_delta=timedelta(hours=4), timezone="UTC"
    )
