"""`mens run` on a base model that is small enough for every night's tests, with an exam to match."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline.training.environment import own_environment
from mens_pipeline_tests.training.runs import FAST

_EXAM: Final = {"max_new_tokens": 100, "base_tasks": 4, "few_shot_tasks": 2, "family_tasks": 2}
"""To hold what random weights write in full length to the language takes minutes."""


def write_config(folder: Path, *, exam: Mapping[str, Any], policy: Mapping[str, Any]) -> Path:
    """Copy the configuration with another exam and other thresholds of the policy `ci`, and return where it is.

    Args:
        folder: Where the copy goes.
        exam: Fields of evaluation.yaml besides those of a short exam.
        policy: Thresholds that take the place of the shipped ones.
    """
    config = folder / "config"
    shutil.copytree(PROJECT_ROOT / "config", config)
    (config / "evaluation.yaml").write_text(yaml.safe_dump({**_EXAM, **exam}))
    gates = yaml.safe_load((config / "gates.yaml").read_text())
    gates["policies"]["ci"] |= policy
    (config / "gates.yaml").write_text(yaml.safe_dump(gates))
    return config


def run_whole_graph(
    folder: Path, base: Path, config: Path, variables: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    """Run the graph from the seed data to a verdict.

    Args:
        folder: Home, store and cache of the machine that runs it.
        base: The base model.
        config: The configuration.
        variables: Set besides.
    """
    recipe = {**FAST, "model_name_or_path": base, "max_steps": 12, "max_length": 512}
    environment = {
        **own_environment(),
        **{f"MENS_TRAIN_{name.upper()}": str(value) for name, value in recipe.items()},
        "DAGSTER_HOME": str(folder / "home"),
        "MENS_STORE_ROOT": str(folder / "store"),
        "MENS_CACHE_ROOT": str(folder / "cache"),
        "MENS_CONFIG_ROOT": str(config),
        "VOX_BACKEND": "cpu",
        "VOX_BENCHMARK": "0",
        **variables,
    }
    command = [sys.executable, "-m", "mens_pipeline.cli", "run", "--preset", "tiny"]
    return subprocess.run(command, cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True, check=False)
