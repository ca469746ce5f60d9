"""Named recipes: trained, evaluated and compared, and the best one promoted."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from typer.testing import CliRunner

from mens_pipeline.cli.main import app
from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.definitions import defs
from mens_pipeline.evaluation.results import RESULTS
from mens_pipeline.evaluation.run_folder import remember
from mens_pipeline.models.adapter import ADAPTER as FOLDER
from mens_pipeline.models.adapter import WEIGHTS, Adapter
from mens_pipeline.orchestration.choices import TrainConfig, training_of
from mens_pipeline.orchestration.defs.evaluation import EvalConfig, recipe_scores
from mens_pipeline.orchestration.defs.promotion import benchmark_gate, gate_checks, promoted_adapter
from mens_pipeline.orchestration.forecast import SuiteSize
from mens_pipeline.orchestration.instance import open_instance, progress_logger
from mens_pipeline.orchestration.metadata import RECIPE_TAG, identify
from mens_pipeline.orchestration.resources import ArtifactStoreResource
from mens_pipeline.promotion.history import champion_key
from mens_pipeline.promotion.receipt import RECEIPT
from mens_pipeline.settings import RECIPES
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline.training.presets import load_recipes
from mens_pipeline_tests.cli.invoking import invoke
from mens_pipeline_tests.evaluation.runs import champion_in, evaluated, fill_trained
from mens_pipeline_tests.orchestration.stores import (
    artifact_in,
    build_resources,
    latest_in,
    read_failure,
    take_lenient_gates,
)

_GOOD = {"default": 20, "long": 10, "wide": 40}
"""Recipe -> prompts of forty that its adapter completes well."""

_ALL = {**_GOOD, "small": 34, "tiny": 14}
"""The same, with one that passes and is not the best."""

_COUNTS = ("num_updates", "num_planned_updates", "num_updates_before", "train/seconds", "first_loss", "last_loss")
_TRAINING: dict[str, Any] = {**dict.fromkeys(_COUNTS, 1), "shown": "all"}
"""Metadata of an adapter that the summary of a run reads."""


@dg.asset
def qlora_adapter(
    context: dg.AssetExecutionContext, config: TrainConfig, store: ArtifactStoreResource
) -> dg.MaterializeResult[Any]:
    """An adapter without a model, of the recipe that the run names."""
    assert config.native_train is None
    details, opened = training_of(context), store.open()
    name = details.choice()["recipe"]
    split = artifact_in(
        opened.root, Kind.HELDOUT_SPLIT, {"train": {}}, lambda folder: (folder / HELDOUT).write_text("held-out pairs\n")
    )
    made, _ = opened.build(Kind.QLORA_ADAPTER, {"n": name}, lambda folder: fill_trained(folder, name))
    context.instance.add_run_tags(context.run.run_id, {RECIPE_TAG: details.label()})
    facts = identify(context, Adapter.open(made.path))
    return dg.MaterializeResult(value=made.ref(split.ref()), metadata={**_TRAINING, **facts})


@dg.asset
def eval_results(
    context: dg.AssetExecutionContext, qlora_adapter: Any, store: ArtifactStoreResource
) -> dg.MaterializeResult[Any]:
    run = store.artifact(qlora_adapter).path
    made = evaluated(run, store.open(), _ALL[(run / FOLDER / WEIGHTS).read_text()])
    facts = identify(context, Adapter.open(run))
    return dg.MaterializeResult(
        value=made.ref(qlora_adapter), metadata={"coverage": "30/30", "missing_constructs": "none", **facts}
    )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Dagster home beside a store; forty prompts, no benchmark."""
    take_lenient_gates(monkeypatch)
    monkeypatch.setenv("MENS_STORE_ROOT", str(tmp_path / "store"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance in memory, which takes a third of the time of a home."""
    with dg.DagsterInstance.ephemeral() as found:
        yield found


@pytest.fixture
def kept(home: Path) -> Iterator[dg.DagsterInstance]:
    """An instance that commands find."""
    with open_instance(home) as found:
        yield found


def _run(
    home: Path,
    instance: dg.DagsterInstance,
    partition: str | None = None,
    last: str = "recipe_scores",
    **ops: dict[str, Any],
) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        [qlora_adapter, eval_results, benchmark_gate, gate_checks, promoted_adapter, recipe_scores],
        instance=instance,
        resources=build_resources(home.parent / "store"),
        selection=["qlora_adapter", "eval_results", "benchmark_gate", last],
        partition_key=partition,
        run_config={"ops": {name: {"config": config} for name, config in ops.items()}},
        raise_on_error=False,
    )


@pytest.mark.slow
def test_a_backfill_evaluates_each_recipe_and_promotes_none(home: Path, instance: dg.DagsterInstance) -> None:
    runs = {name: _run(home, instance, partition=name) for name in _GOOD}
    tags = {name: instance.get_run_by_id(run.run_id).tags for name, run in runs.items()}  # type: ignore[union-attr]
    scored = {name: run.asset_materializations_for_node("benchmark_gate")[0].metadata for name, run in runs.items()}
    last = runs["wide"].asset_materializations_for_node("recipe_scores")[0]
    rows: Any = last.metadata["recipes"].value

    assert all(run.success for run in runs.values())
    assert {name: found["mens/verdict"] for name, found in tags.items()} == {
        "default": "failed",
        "long": "failed",
        "wide": "passed",
    }
    for name, run in runs.items():
        made = [event.step_materialization_data.materialization for event in run.get_asset_materialization_events()]
        digests = {entry.asset_key.to_user_string(): entry.metadata["adapter_sha256"].value for entry in made}
        assert digests == dict.fromkeys(
            ("qlora_adapter", "eval_results", "benchmark_gate", "recipe_scores"), tags[name]["mens/adapter"]
        )
        assert {entry.metadata["adapter_name"].value for entry in made} == {"lora-adapter-0123abcd"}
    for name, metadata in scored.items():
        assert tags[name][RECIPE_TAG] == metadata["recipe_name"].value == name
        assert tags[name]["mens/adapter"] == metadata["adapter_sha256"].value
        assert tags[name]["mens/base"] == metadata["base_model"].value == "tiny"
    assert last.partition == "wide"
    shown = {record.data["recipe"]: record.data["heldout: parse rate"] for record in rows.records}
    assert {name: str(rate)[:6] for name, rate in shown.items()} == {
        "wide": "40/40 ",
        "default": "20/40 ",
        "long": "10/40 ",
    }
    assert champion_key(ArtifactStore(home.parent / "store")) is None


def test_a_run_without_promotion_promotes_nothing(home: Path, instance: dg.DagsterInstance) -> None:
    store, wide = ArtifactStore(home.parent / "store"), {"recipe": "wide"}
    first = _run(home, instance, last="promoted_adapter", qlora_adapter=wide, promoted_adapter={"promote": False})

    assert first.success
    assert not first.asset_materializations_for_node("promoted_adapter")
    assert champion_key(store) is None

    second = _run(home, instance, last="promoted_adapter", qlora_adapter=wide)
    champion = champion_in(store)

    assert second.success
    assert (champion.path / FOLDER / WEIGHTS).read_text() == "wide"


def _promote_best(instance: dg.DagsterInstance, **config: Any) -> dg.ExecuteInProcessResult:
    run_config = {"ops": {"promoted_adapter": {"config": config}}} if config else None
    job = defs().resolve_job_def("promote_best")
    return job.execute_in_process(instance=instance, raise_on_error=False, run_config=run_config)


@pytest.mark.slow
def test_the_best_passing_recipe_is_promoted(
    home: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MENS_STORE_PAGES", "http://pages.test/")
    for name in ("default", "small", "wide"):
        _run(home, instance, partition=name)
    first, again = _promote_best(instance), _promote_best(instance)
    (made,) = first.asset_materializations_for_node("promoted_adapter")
    champion = champion_in(ArtifactStore(home.parent / "store"))
    rows: Any = made.metadata["recipes"].value
    details = {record.data["recipe"]: (record.data["pass@1"], record.data["why"]) for record in rows.records}
    tags = instance.get_run_by_id(first.run_id).tags  # type: ignore[union-attr]

    assert (champion.path / FOLDER / WEIGHTS).read_text() == "wide"
    assert (tags[RECIPE_TAG], tags["mens/verdict"]) == ("wide", "passed")
    url = f"http://pages.test/promoted_adapter/{champion.key}/report.html"
    assert made.metadata["report_page"].value == f"[report.html]({url})"
    assert list(details)[:3] == ["wide", "small", "default"]
    assert details["wide"][0].startswith("40/40 ")
    assert details["small"][0].startswith("34/40 ")
    assert details["small"][1] == "-15.0 points (p = 0.031)"
    assert details["default"][1].startswith("The gate failed: parse_rate: ")
    assert details["long"][1].startswith("long: no recipe or run with this name")
    assert again.success
    assert again.asset_materializations_for_node("promoted_adapter")[0].metadata["changed"].value is False


@pytest.mark.nightly
def test_a_verdict_against_another_champion_is_skipped(home: Path, instance: dg.DagsterInstance) -> None:
    runs = {name: _run(home, instance, qlora_adapter={"recipe": name}).run_id for name in ("small", "wide")}
    assert _promote_best(instance, best_of=[runs["small"]]).success
    result = _promote_best(instance, best_of=["wide"])

    assert "none of 1 recipes may be promoted. wide: The champion has changed" in read_failure(result)
    _run(home, instance, qlora_adapter={"recipe": "wide"})
    assert _promote_best(instance, best_of=["wide"]).success
    champion = champion_in(ArtifactStore(home.parent / "store"))
    assert (champion.path / FOLDER / WEIGHTS).read_text() == "wide"


@pytest.mark.nightly
def test_a_recipe_with_missing_artifacts_is_skipped(home: Path, instance: dg.DagsterInstance) -> None:
    for name in ("small", "wide"):
        _run(home, instance, partition=name)
    store = ArtifactStore(home.parent / "store")
    wide = next(
        run for run in (store.root / Kind.QLORA_ADAPTER).glob("*/adapter") if (run / WEIGHTS).read_text() == "wide"
    )
    (wide / WEIGHTS).unlink()
    (made,) = _promote_best(instance).asset_materializations_for_node("promoted_adapter")

    assert str(made.metadata["best_recipe"].value).startswith("small, pass@1 34/40")


@pytest.fixture
def location(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A code location that trains nothing, in place of the real one."""
    jobs = {"whole_graph": dg.AssetSelection.all(), "promote_best": dg.AssetSelection.assets("promoted_adapter")}
    monkeypatch.setattr(
        "mens_pipeline.definitions.defs",
        lambda: dg.Definitions(
            assets=[qlora_adapter, eval_results, benchmark_gate, promoted_adapter],
            asset_checks=[gate_checks],
            jobs=[dg.define_asset_job(*job) for job in jobs.items()],
            resources=build_resources(home.parent / "store"),
            loggers={"progress": progress_logger},
        ),
    )


@pytest.mark.slow
@pytest.mark.usefixtures("location")
def test_a_command_runs_recipes_and_promotes_the_best(home: Path) -> None:
    recipes = [f"--recipe={name}" for name in ("default", "wide", "wide")]
    result = invoke("run", *recipes, "--json")
    *scored, best = json.loads(result.stdout)
    champion = champion_in(ArtifactStore(home.parent / "store"))

    assert result.exit_code == 0, result.output
    assert [run["figures"]["benchmark_gate"]["recipe_name"] for run in scored] == ["default", "wide"]
    assert [run["figures"]["benchmark_gate"]["passed"] for run in scored] == [False, True]
    assert not any("promoted_adapter" in run["figures"] for run in scored)
    assert best["figures"]["promoted_adapter"]["best_recipe"].startswith("wide, pass@1 40/40 ")
    assert (champion.path / FOLDER / WEIGHTS).read_text() == "wide"


@pytest.mark.nightly
@pytest.mark.usefixtures("location")
@pytest.mark.parametrize(
    ("names", "code"),
    [("default long --promote", 1), ("default wide --no-promote", 0), ("wide default --promote", 0)],
    ids=["none passes", "nothing is to be promoted", "trials"],
)
def test_a_command_promotes_nothing(home: Path, monkeypatch: pytest.MonkeyPatch, names: str, code: int) -> None:
    *recipes, switch = names.split()
    monkeypatch.setattr("mens_pipeline.cli.run._are_trials", lambda chosen: chosen[0] == {"recipe": "wide"})
    result = invoke("run", *(f"--recipe={name}" for name in recipes), switch, "--json")

    assert result.exit_code == code, result.output
    assert len(json.loads(result.stdout)) == 2
    assert champion_key(ArtifactStore(home.parent / "store")) is None


@pytest.mark.slow
def test_a_trial_passes_by_its_own_policy_and_is_never_promoted(
    home: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VOX_EVAL_MIN_PARSE_RATE")
    monkeypatch.setenv("VOX_EVAL_POLICY", "ci")
    trial = load_recipes(RECIPES)["tiny"].trial
    run = _run(home, instance, last="promoted_adapter", qlora_adapter={"recipe": "tiny"})
    gate = run.asset_materializations_for_node("benchmark_gate")[0].metadata
    checks = {check.check_name: check for check in run.get_asset_check_evaluations()}

    assert trial is not None
    assert EvalConfig().size(trial) == SuiteSize.model_validate(trial)
    assert trial["heldout_tasks"] == 24
    assert (gate["passed"].value, str(gate["policy"].value)[:5]) == (True, "trial")
    assert checks["gate_passed"].passed
    assert checks["not_refused"].passed
    assert "not promoted: its recipe is a trial; no adapter is in use" in (checks["not_refused"].description or "")
    assert not _promote_best(instance, best_of=["tiny"]).success
    assert champion_key(ArtifactStore(home.parent / "store")) is None


@pytest.mark.nightly
@pytest.mark.usefixtures("location")
def test_the_command_in_a_refusal_continues_the_same_run(home: Path, tmp_path: Path) -> None:
    workspace, labels = tmp_path / "a workspace", []
    workspace.mkdir()
    command = ["run", "--recipe=default", f"--source-root={workspace}"]
    for _ in range(2):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 1
        (advice,) = re.findall("\nnext .* the same run for 10 min: .* (run .*)\n", result.stdout)
        command = shlex.split(advice)
        with open_instance(home) as instance:
            labels.append(instance.get_runs(limit=1)[0].tags[RECIPE_TAG])

    assert labels == ["default", "default, 10 min more"]
    assert command == ["run", "--source-root", str(workspace), "--recipe", "default", *["--more", "10m"] * 2]


def test_a_manual_verdict_does_not_affect_the_graph(home: Path, kept: dg.DagsterInstance, tmp_path: Path) -> None:
    store, run = ArtifactStore(home.parent / "store"), tmp_path / "by hand"
    _run(home, kept, last="promoted_adapter", qlora_adapter={"recipe": "wide"}, promoted_adapter={"promote": False})
    run.mkdir()
    fill_trained(run, "by hand")
    evaluation = evaluated(run, store, 10)
    remember(run, evaluation, [RESULTS])
    events = kept.event_log_storage.get_maximum_record_id()
    scored = invoke("gate", "--run-dir", run)
    after = kept.event_log_storage.get_maximum_record_id()
    promoted = _promote_best(kept, best_of=[])
    champion = champion_in(store)

    assert (scored.exit_code, after) == (1, events), scored.output
    assert (run / RECEIPT).is_file()
    assert (latest_in(store, Kind.BENCHMARK_GATE).path / RECEIPT).read_bytes() == (run / RECEIPT).read_bytes()
    assert promoted.success
    assert (champion.path / FOLDER / WEIGHTS).read_text() == "wide"


def test_a_run_of_two_recipes_is_refused(home: Path, instance: dg.DagsterInstance) -> None:
    result = _run(home, instance, partition="wide", qlora_adapter={"recipe": "long"})

    assert "has the partition wide, but its configuration names the recipe long" in read_failure(result)


@pytest.mark.nightly
def test_two_recipes_are_compared(home: Path, kept: dg.DagsterInstance, tmp_path: Path) -> None:
    for name in ("default", "wide"):
        _run(home, kept, qlora_adapter={"recipe": name})
    page = tmp_path / "page.html"
    command = ["compare", "default", "wide", "-o", str(page)]
    details, data = CliRunner().invoke(app, command), invoke(*command, "--json")
    (row,) = [row for row in json.loads(data.stdout)["rows"] if row["label"] == "parse rate"]
    (line,) = [line for line in details.stdout.splitlines() if line.startswith("heldout  parse rate ")]

    assert details.exit_code == 0, details.output
    assert "20/40 (50.0 %)" in line
    assert "40/40 (100.0 %)" in line
    assert "+50.0 points" in line
    assert "p < 0.001" in line
    assert [cell["rate"]["denominator"] for cell in row["cells"]] == [40, 40]
    assert row["cells"][1]["difference"]["tone"] == "good"
    html = page.read_text()
    assert 'Only wide passes <span class="count">20</span>' in html
    assert 'All pass <span class="count">20</span>' in html
    assert html.count("fn t39() to int") == 2, "by the second, and as the reference"


def test_a_recipe_that_was_never_run_is_named(home: Path, kept: dg.DagsterInstance) -> None:
    run = _run(home, kept, qlora_adapter={"recipe": "wide", "preset": "tiny"})
    result = invoke("compare", run.run_id, "long")

    assert result.exit_code == 1
    assert "long: no recipe or run with this name" in str(result.exception)
    assert "Evaluated so far: wide, preset tiny. Train it: mens run --recipe long --no-promote" in str(result.exception)
    assert "Recipes: default, tiny, " in str(invoke("compare", run.run_id, "a").exception)


def test_recipes_do_not_affect_schedules_and_staleness() -> None:
    """Only the table of scores has partitions: a partitioned asset is never shown as stale, and needs a choice."""
    graph = defs().resolve_asset_graph()
    partitioned = [key.to_user_string() for key in graph.get_all_asset_keys() if graph.get(key).partitions_def]

    assert partitioned == ["recipe_scores"]
    assert defs().resolve_job_def("whole_graph").partitions_def is None
    job = defs().resolve_job_def("experiments").partitions_def
    assert job is not None
    assert set(job.get_partition_keys()) >= set(_GOOD)
