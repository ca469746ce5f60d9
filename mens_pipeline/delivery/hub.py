"""Push a promoted adapter, its train set or the benchmark to a repository on the Hub."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml
from pydantic import SecretStr

from mens_pipeline.corpus.curate.mixed_train_set import write_parquet
from mens_pipeline.corpus.schema.records import TrainingPair, read_pairs
from mens_pipeline.corpus.telemetry.redaction import RedactionPolicy, SensitiveKind, redact_row
from mens_pipeline.delivery.merge import MergeSource, card_of_source, find_weights
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.evaluation.benchmark import MANIFEST, BenchmarkTask, load_benchmark
from mens_pipeline.evaluation.results import RESULTS
from mens_pipeline.models.adapter import ADAPTER, CARD, CONFIGURATION, WEIGHTS
from mens_pipeline.models.base import find_recorded_base, shapes_in
from mens_pipeline.models.card import base_name, data_sources, markdown_table, plain
from mens_pipeline.promotion.bill import BILL, copy_bill
from mens_pipeline.storage.files import copy_folder
from mens_pipeline.storage.store import ArtifactStore, digest_of

_HEAD: Final = "base_model.model."


def name_as_published(weights: Path, base: Path) -> bool:
    """Rename the matrices of an adapter to the layers of its published base; return whether any name changed.

    `RefusedError` if a layer is not exactly one tensor of the checkpoint.
    """
    published = {name for file in base.glob("*.safetensors") for name in shapes_in(file)}
    names = {name: _find_published(name, published, weights) for name in shapes_in(weights)}
    if all(name == new for name, new in names.items()):
        return False
    from safetensors.numpy import load_file, save_file  # noqa: PLC0415 - comes with the deep learning stack

    tensors = load_file(weights)
    save_file({names[name]: tensor for name, tensor in tensors.items()}, weights, metadata={"format": "pt"})
    return True


def _find_published(name: str, published: set[str], weights: Path) -> str:
    layer, half = name.removeprefix(_HEAD).rsplit(".lora_", 1)
    found = sorted(find_weights(layer, published))
    if len(found) != 1:
        places = ", ".join(found) or "none"
        raise RefusedError(f"{weights}: expected one layer {layer} in the published base, found {places}. Report this.")
    return f"{_HEAD}{found[0].removesuffix('.weight')}.lora_{half}"


MAIN: Final = "main"
_REPO: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_REVISION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file to upload: its name in the repository, and its path on this machine."""

    name: str
    path: Path
    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Target:
    """A branch of a repository `OWNER/NAME`."""

    repo: str
    revision: str = MAIN
    kind: Literal["model", "dataset"] = "model"

    def __post_init__(self) -> None:
        if not _REPO.fullmatch(self.repo) or ".." in self.repo or "--" in self.repo:
            raise ConfigurationError(f"--repo {self.repo}: not a repository name. Write OWNER/NAME.")
        if not _REVISION.fullmatch(self.revision) or ".." in self.revision:
            message = f"--revision {self.revision}: not a branch name. Write {MAIN}, or another branch."
            raise ConfigurationError(message)


@dataclass(frozen=True, slots=True)
class PushPlan:
    """Files of an upload, and their repository."""

    target: Target
    files: tuple[PlannedFile, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Pushed:
    """Commit of an upload, and the URL of its page."""

    commit: str
    url: str


def plan_push(source: MergeSource, target: Target, data_licence: str | None, staging: Path) -> PushPlan:
    """Collect a promoted adapter with card, figures and bill of materials in an empty folder.

    Nothing in it names this machine. `RefusedError` if the adapter was not promoted, was rolled back, or changed since.
    """
    promoted, base = source.promoted, source.adapter.manifest.base_model
    if promoted is None:
        advice = "Run `mens promote` first; `mens promote --history` lists promoted adapters."
        raise RefusedError(f"{source.adapter.path}: not promoted, or rolled back. {advice}")
    for name, sha256 in promoted.outputs.items():
        path = promoted.path / name
        if name.startswith((f"{ADAPTER}/", RESULTS, BILL)) and (not path.is_file() or digest_of(path) != sha256):
            raise RefusedError(f"{path}: changed since it was promoted. Restore it, or promote again.")
    copy_folder(promoted.file(ADAPTER), staging)
    shutil.copy2(promoted.file(RESULTS), staging / RESULTS)
    copy_bill(promoted, staging)
    name_as_published(staging / WEIGHTS, find_recorded_base(base))
    (staging / CARD).write_text(card_of_source(source, "adapter", data_licence), encoding="utf-8")
    _name_base(staging / CONFIGURATION, base_name(base))
    verdict = (source.verdict_sha256 or "none")[:12]
    message = f"{source.adapter.manifest.name}: adapter {source.adapter.digest[:12]}, verdict {verdict}"
    return PushPlan(target, _list_files(staging), message)


def push(plan: PushPlan, token: SecretStr | None) -> Pushed:
    """Upload the files as one commit on the head of the branch, and create a missing repository as private.

    `RefusedError` if the Hub cannot be reached or refuses; `ConfigurationError` without a token.
    """
    from httpx2 import HTTPError  # noqa: PLC0415 - comes with huggingface_hub
    from huggingface_hub import CommitOperationAdd, HfApi  # noqa: PLC0415 - only when sending
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled  # noqa: PLC0415 - likewise

    if token is None or not token.get_secret_value().strip():
        raise ConfigurationError("HF_TOKEN: not set. Set a token with write access to the repository.")
    api = HfApi(token=token.get_secret_value())
    operations = [CommitOperationAdd(path_in_repo=file.name, path_or_fileobj=str(file.path)) for file in plan.files]
    to, kind = plan.target, plan.target.kind
    try:
        api.create_repo(to.repo, private=True, exist_ok=True, repo_type=kind)
        if to.revision != MAIN:
            api.create_branch(to.repo, branch=to.revision, exist_ok=True, repo_type=kind)
        head = api.repo_info(to.repo, revision=to.revision, repo_type=kind).sha
        info = api.create_commit(
            to.repo, operations, commit_message=plan.message, revision=to.revision, parent_commit=head, repo_type=kind
        )
    except (HfHubHTTPError, HTTPError, OfflineModeIsEnabled, RuntimeError, ValueError, OSError) as error:
        words = str(error).strip().splitlines() or [type(error).__name__]
        advice = "Check token, name and network, and run the command again; commits are atomic."
        raise RefusedError(f"{to.repo}: the upload failed. {words[0][:300]} {advice}") from error
    return Pushed(info.oid, str(info.commit_url))


def _name_base(path: Path, name: str) -> None:
    """Replace the local path of the base, which training wrote, with its public name."""
    config = json.loads(path.read_text(encoding="utf-8"))
    text = json.dumps({**config, "base_model_name_or_path": name}, indent=2, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")


def _list_files(staging: Path) -> tuple[PlannedFile, ...]:
    paths = (path for path in sorted(staging.rglob("*")) if path.is_file())
    return tuple(
        PlannedFile(path.relative_to(staging).as_posix(), path, path.stat().st_size, digest_of(path)) for path in paths
    )


_TRAIN: Final = "train.parquet"
_TAGS: Final = ("vox", "code")


def plan_train_set(
    source: MergeSource, store: ArtifactStore, target: Target, licence: str | None, staging: Path
) -> PushPlan:
    """Collect the rows that a promoted adapter was trained on, with a card of their sources.

    `ConfigurationError` if no licence is set; `RefusedError` if the adapter was not promoted, or its train set is gone,
    changed or not redacted.
    """
    stated = _require_licence(licence)
    if source.promoted is None:
        raise RefusedError(f"{source.adapter.path}: not promoted. Promote it first; only then is its train set sent.")
    if source.notice:
        raise RefusedError(f"{source.adapter.path}: its train set is not published. {source.notice}")
    manifest = source.adapter.manifest
    path = store.locate(manifest.train_file)
    if not path.is_file() or digest_of(path) != manifest.train_sha256:
        found = "changed" if path.is_file() else "gone"
        raise RefusedError(f"{path}: the train set of this adapter is {found}. Restore it, or train and promote again.")
    rows = tuple(read_pairs(path))
    _refuse_secrets(rows, path)
    staging.mkdir(parents=True, exist_ok=True)
    write_parquet(rows, staging / _TRAIN)
    head = {"task_categories": ["text-generation"], "configs": [_config("default", "train", _TRAIN)]}
    lines = _table(
        ("rows", f"{len(rows)}, {len(set(rows))} of them different"),
        ("SHA-256 of the rows as they trained", f"`{manifest.train_sha256}`"),
        ("adapter that was trained on them", f"{plain(manifest.name)}, SHA-256 `{source.adapter.digest}`"),
        *((plain(found.name), f"{found.num_rows} different rows") for found in data_sources(manifest)),
        *_list_origins(rows),
    )
    about = "Prompts and completions in Vox. Whole source files, and near copies of them, are held out."
    _write_card(staging, f"Train set of {plain(manifest.name)}", stated, head, f"{about}\n\n{lines}")
    return PushPlan(target, _list_files(staging), f"{manifest.name}: train set {manifest.train_sha256[:12]}")


def _refuse_secrets(rows: tuple[TrainingPair, ...], path: Path) -> None:
    """Check every row again, whatever its source: a publication cannot be undone."""
    found = [redacted for row in dict.fromkeys(rows) if (redacted := redact_row(row, RedactionPolicy.DROP)).counts]
    if found:
        total: Counter[SensitiveKind] = sum((redacted.counts for redacted in found), Counter())
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(total.items()))
        advice = "Set `redaction: mask` in config/pipeline.yaml, then run, train and promote again."
        raise RefusedError(f"{path}: {len(found)} rows contain personal data or secrets ({kinds}). {advice}")


def plan_benchmark(folder: Path, target: Target, licence: str | None, staging: Path) -> PushPlan:
    """Collect a benchmark and all others below its folder, one configuration each, with solutions and hidden tests.

    `ConfigurationError` if no licence is set, or a benchmark is invalid.
    """
    stated = _require_licence(licence)
    folders = [path.parent.resolve() for path in sorted(folder.rglob(MANIFEST))]
    benchmarks = {path.name: load_benchmark(path) for path in folders}
    if not benchmarks:
        raise ConfigurationError(f"{folder / MANIFEST}: not found. Name a folder that holds a benchmark.")
    if len(benchmarks) < len(folders):
        (name, number), *_ = Counter(path.name for path in folders).most_common(1)
        raise ConfigurationError(f"{folder}: {number} benchmarks are called {name}. Give each folder another name.")
    staging.mkdir(parents=True, exist_ok=True)
    for name, benchmark in benchmarks.items():
        text = "".join(json.dumps(_to_row(task), ensure_ascii=False) + "\n" for task in benchmark.tasks)
        (staging / f"{name}.jsonl").write_text(text, encoding="utf-8")
    configs = [_config(name, "test", f"{name}.jsonl") for name in benchmarks]
    rows = [
        (plain(name), f"{len(found.tasks)} tasks, SHA-256 `{found.digest}`. {plain(found.description)}")
        for name, found in benchmarks.items()
    ]
    about = "Tasks for evaluating models of Vox. Do not train on them."
    _write_card(staging, "Held-out benchmark of Vox", stated, {"configs": configs}, f"{about}\n\n{_table(*rows)}")
    return PushPlan(target, _list_files(staging), f"benchmark {next(iter(benchmarks.values())).digest[:12]}")


def _require_licence(licence: str | None) -> str:
    if licence is None or not licence.strip():
        raise ConfigurationError("MENS_DATA_LICENCE: not set. Set the licence of the data, such as apache-2.0.")
    return licence


def _config(name: str, split: str, file: str) -> dict[str, Any]:
    return {"config_name": name, "data_files": [{"split": split, "path": file}]}


def _to_row(task: BenchmarkTask) -> dict[str, Any]:
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


def _list_origins(rows: tuple[TrainingPair, ...]) -> Iterator[tuple[str, str]]:
    commits = sorted({row.source.commit for row in rows if row.source is not None and row.source.commit})
    yield "commits of the workspace", ", ".join(f"`{commit}`" for commit in commits) or "unknown"
    written = Counter(row.lineage.generator for row in rows if row.lineage is not None)
    yield "rows written by models", ", ".join(f"{plain(name)}: {n}" for name, n in sorted(written.items())) or "none"


def _table(*rows: tuple[str, str]) -> str:
    return "\n".join(markdown_table(("property", "value"), rows))


def _write_card(staging: Path, title: str, licence: str, head: Mapping[str, Any], text: str) -> None:
    document = yaml.safe_dump({"license": licence, "pretty_name": title, "tags": list(_TAGS), **head}, sort_keys=False)
    page = f"---\n{document}---\n\n# {title}\n\nLicence of the data: {plain(licence)}\n\n{text}\n"
    (staging / CARD).write_text(page, encoding="utf-8")
