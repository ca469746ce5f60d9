"""`mens plan`, and `mens run --minutes`."""

import json
import re
from pathlib import Path

import pytest

from mens_pipeline.inference.generation import EvaluationConfig
from mens_pipeline.jobs.device import Device
from mens_pipeline.orchestration.forecast import (
    Counts,
    Dial,
    PlannedStage,
    Planner,
    Rows,
    RunPlan,
    SuiteCounts,
    SuiteSize,
)
from mens_pipeline.orchestration.resources import Compute
from mens_pipeline.training import preflight
from mens_pipeline_tests.cli.invoking import run_main


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    variables = {"MENS_STORE_ROOT": "store", "MENS_CACHE_ROOT": "cache", "DAGSTER_HOME": "home", "HF_HUB_CACHE": "hub"}
    source = tmp_path / "workspace"
    source.mkdir()
    (source / "one.vox").write_text("fn one() to int {\n    return 1\n}\n")
    paths = {name: str(tmp_path / folder) for name, folder in variables.items()}
    return {**paths, "MENS_SOURCE_ROOT": str(source), "VOX_BACKEND": "cpu"}


@pytest.mark.parametrize("words", [(), ("--minutes", 20)])
def test_a_plan_needs_a_train_set(tmp_path: Path, places: dict[str, str], words: tuple[object, ...]) -> None:
    places = {**places, "MENS_TRAIN_MODEL_NAME_OR_PATH": str(tmp_path)}
    done = run_main("plan", *words, folder=tmp_path, variables=places)

    assert done.returncode == 1
    assert f"{tmp_path / 'store'}: no train set" in done.stderr
    assert "mens run --no-train" in done.stderr
    assert not any((tmp_path / name).exists() for name in ("store", "home"))


@pytest.mark.parametrize("words", [("--no-train",), ("--recipe", "default", "--recipe", "wide")])
def test_minutes_require_one_recipe_that_trains(tmp_path: Path, places: dict[str, str], words: tuple[str, ...]) -> None:
    done = run_main("run", "--minutes", 20, *words, folder=tmp_path, variables=places)

    assert done.returncode == 2
    assert "--minutes plans the training of one recipe" in done.stderr
    assert not (tmp_path / "home").exists()


_SIZE = SuiteCounts((100, 149), 86, 0.4, EvaluationConfig()).take_share(1.0)
_PLAN = RunPlan(
    preset="cpu_night",
    dial=Dial(max_minutes=400.25, max_steps=1_234_567, num_train_epochs=6, suite=_SIZE),
    stages=(
        PlannedStage(name="training", does="15 steps", seconds=600.0),
        PlannedStage(name="evaluation", does="6 prompts", seconds=66.0),
    ),
    note="take more minutes",
)


def test_a_plan_configures_a_run() -> None:
    configs = _PLAN.configs({"overrides": {"seed": 2}, "force_train": False})

    fields = {"seed": 2, "max_minutes": 400.25, "max_steps": 1_234_567, "num_train_epochs": 6}
    assert configs["qlora_adapter"] == {"overrides": fields, "preset": "cpu_night", "force_train": False}
    assert SuiteSize(**configs["eval_results"]["suite"]) == _SIZE


@pytest.fixture
def _planned(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Counts(Rows(400, 360_000), 850_000, SuiteCounts((100, 149), 86, 0.43, EvaluationConfig()))
    monkeypatch.setattr(Planner, "plan", lambda _planner, *, is_kept: (_PLAN, counts) if not is_kept else None)


@pytest.mark.usefixtures("_planned")
def test_a_plan_is_shown_with_the_presets(tmp_path: Path, places: dict[str, str]) -> None:
    said = run_main("plan", folder=tmp_path, variables=places).stdout
    found = json.loads(run_main("plan", "--preset", "h100", "--json", folder=tmp_path, variables=places).stdout)

    assert re.search(r"^training +15 steps +10\.0\n", said, re.MULTILINE)
    assert re.search(r"^total +11\.1\nnote: take more minutes\n", said, re.MULTILINE)
    assert re.search(r"^qwen_4080_16g +RTX 4080 +311 +8,192 +0\.0002 +\d+ min", said, re.MULTILINE)
    assert not re.search(r"^(cpu_demo|smol) ", said, re.MULTILINE), "`auto` picks them only without a GPU"
    assert run_main("plan", "--preset", "smol", folder=tmp_path, variables=places).stdout.endswith(
        "take more minutes\n"
    )
    assert [stage["name"] for stage in found["stages"]] == ["training", "evaluation"]
    assert {name: (one["gpu"], one["steps"]) for name, one in found["presets"].items()} == {"h100": ("H100", 311)}
    assert found["presets"]["h100"].items() >= {"quantization": "bf16", "checkpoint_every_n_layers": 0}.items()
    assert found["dial"]["max_steps"] == 1_234_567


@pytest.mark.usefixtures("_planned")
def test_presets_are_estimated_with_the_kernels_of_this_gpu(
    tmp_path: Path, places: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    card, seconds = Device("cuda", "a GPU", 80.0, has_bfloat16=True, capability=(8, 0)), {}
    monkeypatch.setattr(Compute, "resolve", lambda _compute: card)
    for is_there in (True, False):
        monkeypatch.setattr(preflight, "_can_import", lambda _module, found=is_there: found)
        said = run_main("plan", folder=tmp_path, variables=places).stdout
        found = json.loads(run_main("plan", "--preset", "h100", "--json", folder=tmp_path, variables=places).stdout)
        seconds[is_there] = found["presets"]["h100"]["seconds"]
        assert f"{'with' if is_there else 'without'} linear-attention kernels" in said

    assert seconds[False] > 1.2 * seconds[True]
