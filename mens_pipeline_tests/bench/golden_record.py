"""Record the results of a small run, and compare two records: a pure refactoring must keep every line.

`python -m mens_pipeline_tests.bench.golden_record RECORD.json [--steps 6] [--preset cpu_demo] [--against OLDER.json]`
runs the whole graph in minutes, with few optimizer steps. Held-out prompts and the benchmark are completed once,
unconstrained, all by the adapter and some by the base. Versions of code are left out.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PROJECT: Final = Path(__file__).parents[2]
_FEWER: Final = {
    "syntax: fallback": "syntax: free",
    "few_shot_tasks: 16": "few_shot_tasks: 0",
    "family_tasks: 24": "family_tasks: 0",
}
_MADE: Final = {
    "extracted_corpus": "*.jsonl",
    "synthetic_corpus": "*.jsonl",
    "validated_pairs": "*.jsonl",
    "heldout_split": "*.jsonl",
    "mixed_train_set": "train.jsonl",
    "qlora_adapter": "adapter/adapter_*",
}
_WRITTEN: Final = ("docs/reference/commands.md", "docs/reference/settings.md", "config/schemas")


def main() -> None:
    """Run, write the record, and list its differences from an older one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("--steps", type=int, default=6, help="optimizer steps")
    parser.add_argument("--preset", default="cpu_demo", help="preset of config/presets.yaml; smol takes half an hour")
    parser.add_argument("--against", type=Path, metavar="RECORD", help="an older record")
    given = parser.parse_args()
    store = given.record.with_suffix(".store").absolute()
    _run(store, given.steps, given.preset)
    record = dict(_list_files(store))
    given.record.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(f"{given.record}: {len(record)} lines")
    if given.against is not None:
        older = json.loads(given.against.read_text(encoding="utf-8"))
        different = [name for name in sorted({*older, *record}) if older.get(name) != record.get(name)]
        sys.exit("\n".join(f"differs: {name}" for name in different) or 0)


def _run(store: Path, steps: int, preset: str) -> None:
    config = store.with_suffix(".config")
    shutil.rmtree(config, ignore_errors=True)
    shutil.copytree(_PROJECT / "config", config)
    evaluation = config / "evaluation.yaml"
    text = evaluation.read_text(encoding="utf-8")
    for old, new in _FEWER.items():
        if old not in text:
            raise LookupError(f"{evaluation}: no `{old}`. Correct _FEWER.")
        text = text.replace(old, new)
    evaluation.write_text(text, encoding="utf-8")
    environment = {
        "MENS_CONFIG_ROOT": str(config),
        "MENS_STORE_ROOT": str(store),
        "DAGSTER_HOME": str(store.with_suffix(".dagster")),
        "MENS_TRAIN_MAX_STEPS": str(steps),
        "MENS_TRAIN_MAX_MINUTES": "600",
    }
    variables = [f"{name}={value}" for name, value in environment.items()]
    mens = str(Path(sys.executable).with_name("mens"))
    subprocess.run(["env", *variables, mens, "run", "--no-promote", "--preset", preset], check=False)


def _list_files(store: Path) -> Iterator[tuple[str, str]]:
    for kind, files in _MADE.items():
        folder = _latest(store, kind)
        for path in sorted(folder.glob(files)):
            yield f"{kind}/{path.relative_to(folder)}", _digest(path.read_bytes())
    results = _latest(store, "eval_results")
    for line in (results / "scored_completions.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        score = row["score"]
        yield f"completion/{row['model']}/{score['task']}/{score['sample']}", score["program"]
    for name in _WRITTEN:
        path = _PROJECT / name
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            yield f"{name}/{file.name}" if path.is_dir() else name, _digest(file.read_bytes())


def _latest(store: Path, kind: str) -> Path:
    return store / kind / (store / kind / "latest").read_text(encoding="utf-8").strip()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    main()
