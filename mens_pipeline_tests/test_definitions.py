"""The code location: its contents, and the modules that it loads."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import dagster as dg
import pytest

from mens_pipeline.definitions import defs
from mens_pipeline.settings import PROJECT_ROOT

_HEAVY = {
    *("torch", "transformers", "peft", "trl", "bitsandbytes", "datasets", "accelerate", "pandas", "pyarrow", "scipy")
}


_DECIDED_BY: Final = {
    "extracted_corpus": {"pipeline.yaml", "forgotten.yaml"},
    "synthetic_corpus": {"pipeline.yaml"},
    "validated_pairs": {"pipeline.yaml"},
    "heldout_split": {"pipeline.yaml"},
    "mixed_train_set": {"mix.yaml", "pipeline.yaml"},
    "base_model": {"recipes.yaml", "presets.yaml"},
    "qlora_adapter": {"recipes.yaml", "presets.yaml", "domains.yaml"},
    "eval_results": {"evaluation.yaml", "few_shot.md", "gates.yaml"},
    "benchmark_gate": {"gates.yaml"},
}
"""Asset -> the files of config/ that determine it; its dependents become stale with it."""

_LOAD: Final = """
import sys
from mens_pipeline.orchestration import asset
asset.version_with_config = lambda _stage, *paths: "\\t".join(path.name for path in paths)
from mens_pipeline.definitions import defs
specs = defs().resolve_all_asset_specs()
print(*sys.modules)
graph = defs().resolve_asset_graph()
print(*(key.to_user_string() for key in graph.get_all_asset_keys()))
print(*(job.name for job in defs().resolve_all_job_defs() if not job.name.startswith("__")))
for spec in specs:
    print(spec.key.to_user_string(), spec.code_version, sep="\\t")
"""


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    """Lines of a process that loads the code location without side branches: modules, assets, jobs, code versions."""
    environment = {**os.environ, "MENS_SIDE_BRANCHES": ""}
    done = subprocess.run([sys.executable, "-c", _LOAD], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.slow
def test_side_branches_exist_only_if_they_are_named(loaded: list[str]) -> None:
    assets, jobs = (set(line.split()) for line in loaded[1:3])

    assert assets == {*_PARENTS} - {"scratch_model"}
    assert jobs == {*_JOBS} - {"scratch"}


@pytest.fixture(scope="module")
def location() -> dg.Definitions:
    return defs()


_PARENTS = {
    "base_model": set(),
    "benchmark_gate": {"eval_results"},
    "eval_results": {"heldout_split", "qlora_adapter"},
    "extracted_corpus": {"workspace_snapshot"},
    "heldout_split": {"validated_pairs"},
    "merged_model": {"promoted_adapter"},
    "mixed_train_set": {"heldout_split"},
    "promoted_adapter": {"benchmark_gate"},
    "qlora_adapter": {"base_model", "mixed_train_set"},
    "recipe_scores": {"benchmark_gate"},
    "scratch_model": {"mixed_train_set"},
    "serving_handoff": {"merged_model"},
    "synthetic_corpus": {"extracted_corpus"},
    "validated_pairs": {"extracted_corpus", "synthetic_corpus"},
    "workspace_snapshot": set(),
}
_TRAIN_SET = {
    *("workspace_snapshot", "extracted_corpus", "heldout_split", "mixed_train_set", "synthetic_corpus"),
    "validated_pairs",
}
_JOBS = {
    "deliver": {"merged_model", "serving_handoff"},
    "experiments": {"base_model", "benchmark_gate", "eval_results", "qlora_adapter", "recipe_scores"},
    "maintenance": set(),
    "promote_best": {"promoted_adapter"},
    "scratch": {"scratch_model"},
    "train_set": _TRAIN_SET,
    "whole_graph": _TRAIN_SET | {"base_model", "benchmark_gate", "eval_results", "promoted_adapter", "qlora_adapter"},
}


def test_the_location_has_all_assets_checks_jobs_and_sensors(location: dg.Definitions) -> None:
    """Assets with their parents, checks, jobs with their assets, schedules and sensors."""
    graph = location.resolve_asset_graph()

    found = {key.to_user_string(): graph.get(key).parent_keys for key in graph.get_all_asset_keys()}
    assert {name: {key.to_user_string() for key in keys} for name, keys in found.items()} == _PARENTS
    assert sorted(key.to_user_string() for key in graph.asset_check_keys) == [
        "benchmark_gate:gate_passed",
        "benchmark_gate:model_coverage",
        "benchmark_gate:model_parse_rate",
        "eval_results:beats_the_base",
        "eval_results:completes_lines",
        "extracted_corpus:corpus_coverage",
        "extracted_corpus:everything_accounted_for",
        "heldout_split:no_overlap",
        "heldout_split:pairs_accounted_for",
        "merged_model:writes_what_was_evaluated",
        "mixed_train_set:enough_pairs",
        "mixed_train_set:mixed_rows_accounted_for",
        "mixed_train_set:shares_as_asked",
        "promoted_adapter:not_refused",
        "qlora_adapter:every_kind_shown",
        "qlora_adapter:loss_fell",
        "qlora_adapter:only_the_adapter_changed",
        "scratch_model:scratch_loss_fell",
        "scratch_model:scratch_parameters_as_declared",
        "serving_handoff:handed_files_as_written",
        "synthetic_corpus:as_many_as_asked",
        "validated_pairs:rows_accounted_for",
        "workspace_snapshot:source_parse_rate",
    ]
    jobs = {job.name: job.asset_layer.executable_asset_keys for job in location.resolve_all_job_defs()}
    made = {name: {key.to_user_string() for key in keys} for name, keys in jobs.items() if not name.startswith("__")}
    assert made == _JOBS
    repository = location.get_repository_def()
    assert sorted(schedule.name for schedule in repository.schedule_defs) == ["nightly", "weekly_maintenance"]
    assert sorted(sensor.name for sensor in repository.sensor_defs) == [
        "adapter_stale",
        "champion_changed",
        "grammar_changed",
        "run_failed",
        "run_without_promotion",
        "sources_changed",
    ]


def test_the_location_can_be_loaded(location: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(location)


def test_no_automation_continues_after_a_gate(location: dg.Definitions) -> None:
    graph = location.resolve_asset_graph()
    repository = location.get_repository_def()
    night = dg.build_schedule_context(scheduled_execution_time=datetime(2026, 3, 29, 4, tzinfo=UTC))
    requests = [
        request for schedule in repository.schedule_defs for request in schedule.evaluate_tick(night).run_requests or ()
    ]
    code = PROJECT_ROOT / "mens_pipeline"

    assert len(requests) == 2
    assert not any(request.stale_assets_only for request in requests)
    assert [key for key in graph.get_all_asset_keys() if graph.get(key).automation_condition is not None] == []
    assert not any(isinstance(sensor, dg.AutomationConditionSensorDefinition) for sensor in repository.sensor_defs)
    assert [path for path in code.rglob("*.py") if "stale_assets_only" in path.read_text(encoding="utf-8")] == []


def test_the_nightly_run_is_one_process(location: dg.Definitions) -> None:
    """A process for each of its steps would take most of the time of an unchanged graph; other jobs are forked."""
    jobs = {job.name: job.executor_def.name for job in location.resolve_all_job_defs()}

    assert {name for name, executor in jobs.items() if executor == "in_process"} == {
        *("promote_best", "train_set", "whole_graph")
    }
    assert {executor for executor in jobs.values() if executor != "in_process"} == {"forking_executor"}


def test_every_asset_is_described(location: dg.Definitions) -> None:
    for spec in location.resolve_all_asset_specs():
        assert spec.group_name not in {None, "default"}
        assert spec.description
        assert spec.kinds
        assert list(spec.owners) == ["team:mens"]
        assert spec.code_version


def test_everything_that_runs_is_described(location: dg.Definitions) -> None:
    repository = location.get_repository_def()
    described = {
        **{job.name: job.description for job in repository.get_all_jobs() if not job.name.startswith("__")},
        **{schedule.name: schedule.description for schedule in repository.schedule_defs},
        **{sensor.name: sensor.description for sensor in repository.sensor_defs},
    }

    assert all(described.values()), described
    runbook = (PROJECT_ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert [name for name in described if f"`{name}`" not in runbook] == []


@pytest.mark.seed_row(66)
def test_the_location_loads_without_heavy_libraries(loaded: list[str]) -> None:
    modules = set(loaded[0].split())

    assert "dagster" in modules
    assert not _HEAVY & modules


def test_every_asset_names_the_files_that_determine_it(loaded: list[str]) -> None:
    versions = {line.split("\t")[0]: set(line.split("\t")[1:]) for line in loaded[3:]}

    assert {name: files for name, files in versions.items() if any("." in file for file in files)} == _DECIDED_BY


def test_assets_and_checks_can_be_opened_in_an_editor(location: dg.Definitions) -> None:
    graph = location.resolve_asset_graph()
    for spec in location.resolve_all_asset_specs():
        places = spec.metadata["dagster/code_references"].code_references
        named = {
            place.label: Path(place.file_path).read_text().splitlines()[place.line_number - 1 :] for place in places
        }
        own = {check.name for check in location.resolve_assets_def(spec.key).check_specs}
        checks = {key.name for key in graph.asset_check_keys if key.asset_key == spec.key} - own
        functions = {"gate_checks"} if spec.key == dg.AssetKey("benchmark_gate") else checks

        assert sorted(place.label for place in places) == sorted({spec.key.to_user_string(), *functions})
        for name, lines in named.items():
            assert lines[0].startswith(("@dg.", "@declare_asset(", "@blocking_check("))
            assert next(line for line in lines if line.startswith("def ")).startswith(f"def {name}(")


def test_a_server_does_not_link_to_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENS_ENV", "prod")

    assert not any("dagster/code_references" in spec.metadata for spec in defs().resolve_all_asset_specs())


def test_assets_with_rows_have_columns(location: dg.Definitions) -> None:
    specs = {spec.key.to_user_string(): spec for spec in location.resolve_all_asset_specs()}
    shown = {
        name: spec.metadata["dagster/column_schema"]
        for name, spec in specs.items()
        if "dagster/column_schema" in spec.metadata
    }
    train = {column.name: column for column in shown["mixed_train_set"].columns}

    assert set(shown) == set(_TRAIN_SET) - {"workspace_snapshot"}
    assert train["prompt"].constraints.nullable is False
    assert train["source"].type == "Source or null"
    assert train["tests"].description.startswith("Hidden tests")
    columns = [(name, column) for name, table in shown.items() for column in table.columns]
    assert [(name, column.name) for name, column in columns if not column.description] == []
    assert [n for n, c in columns if c.constraints.nullable is not ("null" in c.type.split(" or "))] == []


def test_assets_link_to_their_pages_if_this_session_serves_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The link is made when the location is loaded, so that it has the port of that session."""
    monkeypatch.setenv("MENS_STORE_PAGES", "http://127.0.0.1:8077")
    served = {spec.key.to_user_string(): spec.metadata.get("report_pages") for spec in defs().resolve_all_asset_specs()}
    monkeypatch.delenv("MENS_STORE_PAGES")
    other = [spec.metadata.get("report_pages") for spec in defs().resolve_all_asset_specs()]

    assert {name: value.value for name, value in served.items() if value is not None} == {
        "benchmark_gate": "http://127.0.0.1:8077/benchmark_gate/",
        "recipe_scores": "http://127.0.0.1:8077/benchmark_gate/",
        "promoted_adapter": "http://127.0.0.1:8077/promoted_adapter/",
    }
    assert set(other) == {None}
