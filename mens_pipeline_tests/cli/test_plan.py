"""`mens plan`, and `mens run --minutes`."""

import json
import re
from pathlib import Path

import pytest

from mens_pipeline.cli.plan import compare_lines, finish_plan
from mens_pipeline.inference.generation import EvaluationConfig
from mens_pipeline.orchestration.estimate import Dial, Stage, Suite, SuiteSize
from mens_pipeline.orchestration.forecast import Plan, read_plans
from mens_pipeline.orchestration.headless import GraphOutcome
from mens_pipeline_tests.cli.invoking import run_main


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """A machine with nothing on it."""
    variables = {"MENS_STORE_ROOT": "store", "MENS_CACHE_ROOT": "cache", "DAGSTER_HOME": "home", "HF_HUB_CACHE": "hub"}
    source = tmp_path / "workspace"
    source.mkdir()
    (source / "one.vox").write_text("fn one() to int {\n    return 1\n}\n")
    paths = {name: str(tmp_path / folder) for name, folder in variables.items()}
    return {**paths, "MENS_SOURCE_ROOT": str(source), "VOX_BACKEND": "cpu"}


def test_a_plan_of_an_empty_machine_is_arithmetic_and_makes_nothing(tmp_path: Path, places: dict[str, str]) -> None:
    """Every line says how it is known; energy and cost stand where watts and a price are given."""
    done = run_main("plan", "--price-per-hour", 2, "--watts", 100, folder=tmp_path, variables=places)
    here, _, there = done.stdout.partition("\n\n")
    rows = {line.split()[0]: line for line in here.splitlines()}

    assert done.returncode == 0, done.stderr
    assert [*rows] == ["stage", "corpus", "training", "evaluation", "gate", "all", "note:"]
    assert all(rows[stage].endswith("estimated") for stage in ("corpus", "training", "evaluation", "gate"))
    assert "830 steps" in rows["training"], "of one pass over the rows; its minutes hold fewer where it is slow"
    assert "kWh" in rows["all"]
    assert "no train set is in the store yet" in rows["note:"]
    assert re.search(r"^qwen_4080_16g +RTX 4080 +311 +8,192 +0\.0002 +\d+ min", there, re.MULTILINE)
    assert re.search(r"^cpu_demo +- +830 +1,024 +0\.00015 +not measured", there, re.MULTILINE)
    assert re.search(r"^smol +- +400 +1,024 +0\.0008 +not measured", there, re.MULTILINE)
    assert not any((tmp_path / name).exists() for name in ("store", "home"))


def test_a_plan_as_a_document(tmp_path: Path, places: dict[str, str]) -> None:
    """The same figures; a preset that is asked for stands alone, and its budget bounds the training."""
    done = run_main("plan", "--preset", "h100", "--json", folder=tmp_path, variables=places)
    found = json.loads(done.stdout)

    assert [stage["name"] for stage in found["stages"]] == ["corpus", "training", "evaluation", "gate"]
    assert found["is_measured"] is False
    assert [*found["presets"]] == ["h100"]
    assert (found["presets"]["h100"]["gpu"], found["presets"]["h100"]["steps"]) == ("H100", 311)
    assert found["dial"] is None


def test_minutes_need_a_train_set(tmp_path: Path, places: dict[str, str]) -> None:
    """What they come to depends on it, so nothing is guessed; the message says how it is made."""
    done = run_main("plan", "--minutes", 20, folder=tmp_path, variables=places)

    assert done.returncode == 1
    assert f"{tmp_path / 'store'}: no train set" in done.stderr
    assert "mens run --no-train" in done.stderr


@pytest.mark.parametrize("words", [("--no-train",), ("--recipe", "default", "--recipe", "wide")])
def test_minutes_are_of_one_recipe_that_trains(tmp_path: Path, places: dict[str, str], words: tuple[str, ...]) -> None:
    """Told before anything is made."""
    done = run_main("run", "--minutes", 20, *words, folder=tmp_path, variables=places)

    assert done.returncode == 2
    assert "--minutes plans the training of one recipe" in done.stderr
    assert not (tmp_path / "home").exists()


def test_a_run_is_told_its_plan_and_keeps_what_it_took(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fields of the recipe, the preset that the minutes chose, the part of the suite; then all by stage."""
    size = Suite((100, 149), 86, 0.4, EvaluationConfig()).take_share(1.0)
    dial = Dial(max_minutes=400.25, max_steps=1_234_567, num_train_epochs=6, suite=size)
    planned = {"corpus": 10.0, "training": 60.0, "evaluation": 50.0, "gate": 4.0}
    rest = {"does": "", "basis": "measured", "memory_mb": 1.0, "disk_mb": 1.0}
    stages = tuple(Stage(name=name, seconds=seconds, **rest) for name, seconds in planned.items())
    plan = Plan(key="k", machine="m", base_sha256="b", dial=dial, stages=stages, preset="cpu_night")
    configs = plan.configs({"overrides": {"seed": 2}, "force_train": False})
    took = {"qlora_adapter": 66.0, "eval_results": 55.0, "benchmark_gate": 4.0}
    outcome = GraphOutcome("id", True, False, (), {"qlora_adapter": {"reused": False}}, 133.0, took)  # noqa: FBT003
    found = finish_plan(tmp_path, plan, 8.0, outcome, as_json=False)

    training = configs["qlora_adapter"]
    fields = {"seed": 2, "max_minutes": 400.25, "max_steps": 1_234_567, "num_train_epochs": 6}
    assert training == {"overrides": fields, "preset": "cpu_night", "force_train": False}
    assert SuiteSize(**configs["eval_results"]["suite"]) == size
    assert found["actual_seconds"] == {"training": 66.0, "evaluation": 55.0, "gate": 4.0, "corpus": 8.0}
    assert [record.actual for record in read_plans(tmp_path)] == [found["actual_seconds"]]
    assert "training    1.0 min  1.1 min  +10 %" in capsys.readouterr().out


def test_planned_stands_beside_actual() -> None:
    """What was reused is not counted."""
    planned = {"corpus": 60.0, "training": 600.0, "evaluation": 300.0}
    lines = [*compare_lines(planned, {"corpus": 66.0, "evaluation": 240.0})]

    assert lines == [
        "stage       planned   actual   off by",
        "corpus      1.0 min   1.1 min  +10 %",
        "training    10.0 min  reused",
        "evaluation  5.0 min   4.0 min  -20 %",
        "all         6.0 min   5.1 min  -15 %",
    ]
