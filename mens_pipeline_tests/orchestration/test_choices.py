"""What decides an asset beside its code."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from mens_pipeline.corpus.curate.mixed_train_set import STAGE
from mens_pipeline.definitions import defs
from mens_pipeline.orchestration.choices import configured
from mens_pipeline.settings import MIX_CONFIG

_DECIDED_BY: Final = {
    "synthetic_corpus": {"pipeline.yaml"},
    "validated_pairs": {"pipeline.yaml"},
    "heldout_split": {"pipeline.yaml"},
    "mixed_train_set": {"mix.yaml"},
    "base_model": {"recipes.yaml", "presets.yaml"},
    "qlora_adapter": {"recipes.yaml", "presets.yaml", "domains.yaml"},
    "eval_results": {"evaluation.yaml", "few_shot.md", "gates.yaml"},
    "benchmark_gate": {"gates.yaml"},
    "feedback_samples": {"feedback.yaml"},
    "feedback_pairs": {"feedback.yaml"},
    "feedback_adapter": {"feedback.yaml"},
}
"""Asset -> the files of config/ that decide it; what rests on it is stale with it."""


def test_another_configuration_is_another_version(tmp_path: Path) -> None:
    """So that what was made by the old one is shown as stale."""
    path = tmp_path / "mix.yaml"
    versions = [configured(STAGE, path)]
    for text in ("a: 1\n", "a: 2\n"):
        path.write_text(text)
        versions.append(configured(STAGE, path))

    assert len(set(versions)) == 3
    (spec,) = defs().resolve_assets_def("mixed_train_set").specs
    assert spec.code_version == configured(STAGE, MIX_CONFIG)


def test_every_asset_names_what_decides_it() -> None:
    """Of each, all files of its configuration are in its version; of those that are not here none is."""
    code = """
from mens_pipeline.orchestration import choices
choices.configured = lambda _stage, *paths: "\\t".join(path.name for path in paths)
from mens_pipeline.definitions import defs
for spec in defs().resolve_all_asset_specs():
    print(spec.key.to_user_string(), spec.code_version, sep="\\t")
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    versions = {line.split("\t")[0]: set(line.split("\t")[1:]) for line in told.splitlines()}

    assert {name: files for name, files in versions.items() if any("." in file for file in files)} == _DECIDED_BY
