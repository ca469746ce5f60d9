"""The sources of the workspace as Dagster sees them."""

import math
from pathlib import Path

import dagster as dg
import pytest

from mens_pipeline.definitions import defs
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.settings import DOMAINS, PRESETS, RECIPES
from mens_pipeline.training.presets import load_named, load_recipes
from mens_pipeline_tests.orchestration.stores import read_failure


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The workspace that the code location sees."""
    monkeypatch.setenv("MENS_SOURCE_ROOT", str(tmp_path))
    monkeypatch.setenv("MENS_STORE_ROOT", str(tmp_path / "store"))
    return tmp_path


def _run(instance: dg.DagsterInstance, *names: str) -> dg.ExecuteInProcessResult:
    job = defs().resolve_job_def("train_set")
    selection = [dg.AssetKey(name) for name in names or ("workspace_snapshot",)]
    return job.execute_in_process(instance=instance, asset_selection=selection, raise_on_error=False)


def _fill(root: Path, num_good: int, num_bad: int) -> None:
    for number in range(num_good):
        (root / f"good_{number}.vox").write_text(f"fn f{number}() {{ }}\n")
    for number in range(num_bad):
        (root / f"bad_{number}.vox").write_text("fn f(\n")


@pytest.mark.slow
@pytest.mark.seed_row(67)
@pytest.mark.parametrize(
    ("num_good", "num_bad", "passed"),
    [(3, 0, True), (7, 3, True), (2, 1, False), (69, 31, False), (0, 1, False), (0, 0, False)],
    ids=["all good", "at the threshold", "two thirds", "below it", "all bad", "no files"],
)
def test_the_parse_rate_of_the_sources_is_a_gate(tmp_path: Path, num_good: int, num_bad: int, passed: bool) -> None:  # noqa: FBT001 - a column
    """The check passes from 70 % on, and a refusal fails the run; an empty workspace is refused."""
    _fill(tmp_path, num_good, num_bad)
    with dg.DagsterInstance.ephemeral() as instance:
        result = _run(instance)
    (evaluation,) = result.get_asset_check_evaluations()

    assert (evaluation.passed, result.success) == (passed, passed)
    assert [name for name in evaluation.metadata if name != "broken_files"] == [
        "golden_accepted",
        "measured" if num_good + num_bad else "advice",
        "required",
        "set_by",
        *([] if passed else ["next"]),
    ]
    if num_good + num_bad:
        assert evaluation.metadata["measured"].value == round(num_good / (num_good + num_bad), 4)


def test_a_refusal_names_the_files(tmp_path: Path) -> None:
    _fill(tmp_path, 0, 1)
    with dg.DagsterInstance.ephemeral() as instance:
        (evaluation,) = _run(instance).get_asset_check_evaluations()
    table = evaluation.metadata["broken_files"]

    assert min(evaluation.metadata) == "broken_files"
    assert isinstance(table, dg.TableMetadataValue)
    assert [record.data for record in table.records] == [
        {"file": "bad_0.vox", "line": 1, "code": "expected-name", "message": "expected a parameter, found end of line"}
    ]


def _version(instance: dg.DagsterInstance) -> str:
    made = instance.get_latest_materialization_event(dg.AssetKey("workspace_snapshot"))
    assert made is not None
    assert made.asset_materialization is not None
    assert made.asset_materialization.tags is not None
    return made.asset_materialization.tags["dagster/data_version"]


def test_the_data_version_follows_the_content(tmp_path: Path) -> None:
    _fill(tmp_path, 2, 0)
    versions = []
    with dg.DagsterInstance.ephemeral() as instance:
        for content in (None, None, "let x = 1\n"):
            if content:
                (tmp_path / "good_0.vox").write_text(content)
            _run(instance)
            versions.append(_version(instance))

    assert versions[0] == versions[1] != versions[2]


def test_every_asset_is_materializable() -> None:
    graph = defs().resolve_asset_graph()
    made = {key.to_user_string() for key in graph.materializable_asset_keys}

    assert "workspace_snapshot" in made
    assert {key.to_user_string() for key in graph.get_all_asset_keys()} == made


def test_a_corpus_is_extracted_from_checked_sources(tmp_path: Path) -> None:
    """Materialised alone: refused after a refused snapshot, and if the workspace has changed since."""
    said = []
    with dg.DagsterInstance.ephemeral() as instance:
        _fill(tmp_path, 1, 2)
        _run(instance)
        for change in ("mend", "change"):
            result = _run(instance, "extracted_corpus")
            said.append(read_failure(result))
            if change == "mend":
                for number in range(2):
                    (tmp_path / f"bad_{number}.vox").unlink()
                _run(instance)
                (tmp_path / "good_0.vox").write_text("fn g() { }\n")

        assert "workspace_snapshot was refused: see its check source_parse_rate" in said[0]
        assert "sources changed since the workspace was pinned" in said[1]
        _run(instance)
        (made,) = _run(instance, "extracted_corpus").asset_materializations_for_node("extracted_corpus")
        assert made.metadata["files_extracted"].value == 1


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("recipe", tuple(load_recipes(RECIPES))),
        ("preset", ("auto", *load_named(PRESETS))),
        ("domain", tuple(load_named(DOMAINS))),
    ],
)
def test_an_unknown_choice_starts_no_run(field: str, names: tuple[str, ...]) -> None:
    job = defs().resolve_job_def("whole_graph")

    def is_accepted(name: str) -> bool | None:
        return dg.validate_run_config(job, {"ops": {"qlora_adapter": {"config": {field: name}}}}) is not None

    assert all(map(is_accepted, names))
    with pytest.raises(dg.DagsterInvalidConfigError) as refused:
        is_accepted("nope")
    assert all(f"'{name}'" in str(refused.value) for name in names)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "config", "message"),
    [
        ({}, {"overrides": {"lora_r": 0}}, "lora_r: Input should be greater than or equal to 1 (flag)"),
        ({}, {"more_minutes": [-1.0]}, "Use minutes above 0"),
        ({}, {"more_minutes": [math.nan]}, "Use minutes above 0"),
        ({}, {"native_train": False}, "Leave native_train out"),
        ({"MENS_TRAIN_LERNING_RATE": "1"}, {}, "did you mean `learning_rate`?"),
    ],
)
def test_an_error_in_the_launchpad_shows_before_any_asset(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    config: dict[str, object],
    message: str,
) -> None:
    _fill(tmp_path, 1, 0)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with dg.DagsterInstance.ephemeral() as instance:
        result = (
            defs()
            .resolve_job_def("whole_graph")
            .execute_in_process(
                instance=instance, run_config={"ops": {"qlora_adapter": {"config": config}}}, raise_on_error=False
            )
        )
    failures = {event.step_key: str(event.step_failure_data.error) for event in result.get_step_failure_events()}

    assert set(failures) == {"workspace_snapshot", "base_model"}
    assert message in failures["workspace_snapshot"]
    assert not any(event.is_step_materialization for event in result.all_events)


def test_an_unknown_policy_shows_when_the_location_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOX_EVAL_POLICY", "nope")
    with pytest.raises(ConfigurationError, match=r"policy nope: not in config/gates\.yaml"):
        defs()
