"""Datasets on the Hub: the train set of a promoted adapter, and the benchmark, each with licence and origin."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from mens_pipeline.corpus.curate.mix_files import write_parquet
from mens_pipeline.corpus.schema.reading import read_pairs
from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.delivery.hub import PushPlan, Target, planned_files
from mens_pipeline.delivery.merge_source import MergeSource
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.evaluation.benchmark import MANIFEST, Benchmark, BenchmarkTask, load_benchmark
from mens_pipeline.storage.store import ArtifactStore, digest_of
from mens_pipeline.training.manifest import CARD, data_sources
from mens_pipeline.training.markdown import plain

_TRAIN: Final = "train.parquet"
_TAGS: Final = ("vox", "code")


def plan_train_set(
    source: MergeSource, store: ArtifactStore, target: Target, licence: str | None, staging: Path
) -> PushPlan:
    """Gather the rows that a promoted adapter was trained on, with a card that says where they come from.

    Raises:
        ConfigurationError: Nobody said under which licence.
        RefusedError: The adapter was not promoted, or its train set is gone or another one.
    """
    stated = _stated(licence)
    if source.promoted is None:
        raise RefusedError(f"{source.run}: not promoted. Only the train set of a promoted adapter goes to the Hub.")
    manifest = source.manifest
    path = store.located(Path(manifest["train_file"]))
    if not path.is_file() or digest_of(path) != manifest["train_sha256"]:
        found = "changed since" if path.is_file() else "gone"
        raise RefusedError(f"{path}: the train set of this adapter is {found}. Restore it, or train and promote again.")
    rows = tuple(read_pairs(path))
    staging.mkdir(parents=True, exist_ok=True)
    write_parquet(rows, staging / _TRAIN)
    head = {"task_categories": ["text-generation"], "configs": [_config("default", "train", _TRAIN)]}
    sources = [(plain(found.name), f"{found.num_rows} different rows") for found in data_sources(manifest)]
    lines = _table(
        ("rows", f"{len(rows)}, {len(set(rows))} of them different"),
        ("SHA-256 of the rows as they trained", f"`{manifest['train_sha256']}`"),
        ("adapter that was trained on them", f"{plain(manifest['name'])}, SHA-256 `{source.adapter_sha256}`"),
        *sources,
        *_origins(rows),
    )
    about = "Requests and answers in Vox. Whole source files were held out of them, and what is near to those."
    _write_card(staging, f"Train set of {plain(manifest['name'])}", stated, head, f"{about}\n\n{lines}")
    return PushPlan(target, planned_files(staging), f"{manifest['name']}: train set {manifest['train_sha256'][:12]}")


def plan_benchmark(folder: Path, target: Target, licence: str | None, staging: Path) -> PushPlan:
    """Gather a benchmark and those below its folder, a configuration each, with solutions and hidden tests as texts.

    Raises:
        ConfigurationError: Nobody said under which licence, or a benchmark does not hold together.
    """
    stated = _stated(licence)
    benchmarks = [load_benchmark(path.parent) for path in sorted(folder.rglob(MANIFEST))]
    if not benchmarks:
        raise ConfigurationError(f"{folder / MANIFEST}: not there. Name a folder that holds a benchmark.")
    staging.mkdir(parents=True, exist_ok=True)
    for benchmark in benchmarks:
        text = "".join(json.dumps(_row(task), ensure_ascii=False) + "\n" for task in benchmark.tasks)
        (staging / _file_of(benchmark)).write_text(text, encoding="utf-8")
    configs = [_config(found.folder.name, "test", _file_of(found)) for found in benchmarks]
    rows = [
        (plain(found.folder.name), f"{len(found.tasks)} tasks, SHA-256 `{found.digest}`. {plain(found.description)}")
        for found in benchmarks
    ]
    about = "Tasks to judge models of Vox by. Nothing here may train a model."
    _write_card(staging, "Held-out benchmark of Vox", stated, {"configs": configs}, f"{about}\n\n{_table(*rows)}")
    return PushPlan(target, planned_files(staging), f"benchmark {benchmarks[0].digest[:12]}")


def _stated(licence: str | None) -> str:
    if licence is None or not licence.strip():
        raise ConfigurationError("MENS_DATA_LICENCE: not set. Set the licence of the data, such as apache-2.0.")
    return licence


def _config(name: str, split: str, file: str) -> dict[str, Any]:
    return {"config_name": name, "data_files": [{"split": split, "path": file}]}


def _file_of(benchmark: Benchmark) -> str:
    return f"{benchmark.folder.name}.jsonl"


def _row(task: BenchmarkTask) -> dict[str, Any]:
    """Return a task with the texts of its files; what it requires is JSON, since its keys differ from task to task."""
    spec = task.spec
    return {
        "id": spec.id,
        "category": spec.category,
        "difficulty": spec.difficulty,
        "mode": str(spec.mode),
        "prompt": spec.description,
        "requires": json.dumps([found.model_dump(mode="json", exclude_none=True) for found in spec.requires]),
        "solution": task.solution,
        "tests": task.tests,
        "wrong": list(task.wrong),
        "context": list(task.context),
    }


def _origins(rows: tuple[TrainingPair, ...]) -> Iterator[tuple[str, str]]:
    """Yield from which commits rows were cut, and which models wrote rows."""
    commits = sorted({row.source.commit for row in rows if row.source is not None and row.source.commit})
    yield "commits of the workspace", ", ".join(f"`{commit}`" for commit in commits) or "none on record"
    written = Counter(row.lineage.generator for row in rows if row.lineage is not None)
    yield "rows that models wrote", ", ".join(f"{plain(name)}: {n}" for name, n in sorted(written.items())) or "none"


def _table(*rows: tuple[str, str]) -> str:
    return "\n".join(["| what | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def _write_card(staging: Path, title: str, licence: str, head: Mapping[str, Any], text: str) -> None:
    document = yaml.safe_dump({"license": licence, "pretty_name": title, "tags": list(_TAGS), **head}, sort_keys=False)
    page = f"---\n{document}---\n\n# {title}\n\nLicence of the data: {plain(licence)}\n\n{text}\n"
    (staging / CARD).write_text(page, encoding="utf-8")
