"""`mens` on a base model that is small enough for nightly tests, with a small eval suite."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from mens_pipeline.jobs.environment import own_environment
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.training.runs import FAST

_EVAL_SUITE: Final = {
    "max_new_tokens": 100,
    "base_tasks": 4,
    "few_shot_tasks": 2,
    "family_tasks": 1,
    "infill_holes": 8,
    "infill_lines": 4,
    "infill_tokens": 12,
}
"""Constrained completions of random weights take minutes at full length."""


def write_config(
    folder: Path, eval_suite: Mapping[str, Any] | None = None, policy: Mapping[str, Any] | None = None
) -> Path:
    """Copy the configuration with a short eval suite, and return where it is.

    `eval_suite` has more fields of evaluation.yaml; `policy` replaces thresholds of the policy `ci`.
    """
    config = folder / "config"
    shutil.copytree(PROJECT_ROOT / "config", config)
    (config / "evaluation.yaml").write_text(yaml.safe_dump({**_EVAL_SUITE, **(eval_suite or {})}))
    gates = yaml.safe_load((config / "gates.yaml").read_text())
    gates["policies"]["ci"] |= policy or {}
    (config / "gates.yaml").write_text(yaml.safe_dump(gates))
    return config


def mens(
    folder: Path, base: Path, config: Path, *arguments: str, variables: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
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
        **(variables or {}),
    }
    command = [sys.executable, "-m", "mens_pipeline.cli", *arguments]
    return subprocess.run(command, cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True, check=False)
