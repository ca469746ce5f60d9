"""A repository of the Hub: what would be sent of a promoted adapter, and the commit that it, or a dataset, became."""

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import SecretStr

from mens_pipeline.delivery.card import card_of_source
from mens_pipeline.delivery.merge_source import MergeSource
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.evaluation.results import RESULTS
from mens_pipeline.inference.prepare import CONFIGURATION, WEIGHTS
from mens_pipeline.storage.store import digest_of
from mens_pipeline.training.job import ADAPTER
from mens_pipeline.training.manifest import CARD
from mens_pipeline.training.model_card import base_name
from mens_pipeline.training.recorded_base import recorded_base
from mens_pipeline.training.safetensors_header import shapes_in

_HEAD: Final = "base_model.model."
_LAYERS: Final = "layers."


def name_as_published(weights: Path, base: Path) -> bool:
    """Give the matrices of an adapter, written anew, the names of their layers in the base; tell whether they differed.

    Raises:
        RefusedError: A layer has no one place in the checkpoint.
    """
    published = {name for file in base.glob("*.safetensors") for name in shapes_in(file)}
    names = {name: _published(name, published, weights) for name in shapes_in(weights)}
    if all(name == new for name, new in names.items()):
        return False
    from safetensors.numpy import load_file, save_file  # noqa: PLC0415 - comes with the deep learning stack

    tensors = load_file(weights)
    save_file({names[name]: tensor for name, tensor in tensors.items()}, weights, metadata={"format": "pt"})
    return True


def _published(name: str, published: set[str], weights: Path) -> str:
    """Return the name of a matrix, with the words that the checkpoint puts before `layers.`."""
    layer, half = name.removeprefix(_HEAD).rsplit(".lora_", 1)
    if f"{layer}.weight" in published:
        return name
    tail = layer[layer.find(_LAYERS) :]
    found = sorted(other for other in published if other.endswith(f".{tail}.weight"))
    if len(found) != 1:
        places = ", ".join(found) or "none"
        raise RefusedError(f"{weights}: {layer} is no one layer of the published base ({places}). Report this.")
    return f"{_HEAD}{found[0].removesuffix('.weight')}.lora_{half}"


MAIN: Final = "main"
_REPO: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_REVISION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One file that would be sent, by its name in the repository and its path on this machine."""

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
        """Refuse what the Hub would not take for a name.

        Raises:
            ConfigurationError: That is no name of a repository or of a branch.
        """
        if not _REPO.fullmatch(self.repo) or ".." in self.repo or "--" in self.repo:
            raise ConfigurationError(f"--repo {self.repo}: no name of a repository. Write OWNER/NAME.")
        if not _REVISION.fullmatch(self.revision) or ".." in self.revision:
            message = f"--revision {self.revision}: no name of a branch. Write {MAIN}, or another branch."
            raise ConfigurationError(message)


@dataclass(frozen=True, slots=True)
class PushPlan:
    """Files of an upload, and the repository that they go to."""

    target: Target
    files: tuple[PlannedFile, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Pushed:
    """Commit of an upload, to pin, and the address where a person sees it."""

    commit: str
    url: str


def plan_push(source: MergeSource, target: Target, data_licence: str | None, staging: Path) -> PushPlan:
    """Gather what would be sent: the adapter as it was promoted, its card, its figures; nothing names this machine.

    The staging folder is empty.

    Raises:
        RefusedError: The adapter was not promoted, was taken out of use since, or was changed since.
    """
    promoted = source.promoted
    if promoted is None:
        advice = (
            "Only a promoted adapter goes to the Hub. Run `mens promote` first; `mens promote --history` shows what is."
        )
        raise RefusedError(f"{source.run}: not promoted, or taken out of use by a rollback. {advice}")
    for name, output in promoted.manifest["outputs"].items():
        path = promoted.path / name
        if name.startswith((f"{ADAPTER}/", RESULTS)) and (not path.is_file() or digest_of(path) != output["sha256"]):
            raise RefusedError(f"{path}: changed since it was promoted. Restore it, or promote again.")
    shutil.copytree(promoted.path / ADAPTER, staging, dirs_exist_ok=True)
    shutil.copy2(promoted.path / RESULTS, staging / RESULTS)
    name_as_published(staging / WEIGHTS, recorded_base(source.manifest["base_model"]))
    (staging / CARD).write_text(card_of_source(source, "adapter", data_licence), encoding="utf-8")
    _name_base(staging / CONFIGURATION, base_name(source.manifest))
    verdict = source.verdict_sha256 or "none"
    message = f"{source.manifest['name']}: adapter {source.adapter_sha256[:12]}, verdict {verdict[:12]}"
    return PushPlan(target, planned_files(staging), message)


def push(plan: PushPlan, token: SecretStr | None) -> Pushed:
    """Send it, as one commit on what the branch holds now; a repository that is not there is made, private.

    Raises:
        ConfigurationError: There is no token.
        RefusedError: The Hub cannot be reached, or does not take it.
    """
    from httpx2 import HTTPError  # noqa: PLC0415 - comes with huggingface_hub
    from huggingface_hub import CommitOperationAdd, HfApi  # noqa: PLC0415 - loads in a command or a step alone
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled  # noqa: PLC0415 - likewise

    if token is None or not token.get_secret_value().strip():
        raise ConfigurationError("HF_TOKEN: not set. Set the token of a user who may write to the repository.")
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
        advice = "Look at token, name and network, and run the same again: a commit is taken whole or not at all."
        raise RefusedError(f"{to.repo}: not sent. {words[0][:300]} {advice}") from error
    return Pushed(info.oid, str(info.commit_url))


def _name_base(path: Path, name: str) -> None:
    """Call the base what it is called elsewhere: training leaves the path of one that is a folder on this machine."""
    config = json.loads(path.read_text(encoding="utf-8"))
    text = json.dumps({**config, "base_model_name_or_path": name}, indent=2, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")


def planned_files(staging: Path) -> tuple[PlannedFile, ...]:
    """Return the files of a folder, as they would be sent."""
    paths = (path for path in sorted(staging.rglob("*")) if path.is_file())
    return tuple(
        PlannedFile(path.relative_to(staging).as_posix(), path, path.stat().st_size, digest_of(path)) for path in paths
    )
