"""From an adapter and what was judged of its answers to the next adapter."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from mens_pipeline.errors import RefusedError
from mens_pipeline.feedback.config import FeedbackConfig
from mens_pipeline.feedback.grpo.job import refuse_slow_device, rewards
from mens_pipeline.feedback.method import Method
from mens_pipeline.feedback.pairs import BAND, FEEDBACK, PREFERENCES, RAFT
from mens_pipeline.storage.store import Artifact, ArtifactStore
from mens_pipeline.training.devices import Device
from mens_pipeline.training.manifest import MANIFEST
from mens_pipeline.training.manifest_file import read_manifest
from mens_pipeline.training.preference.job import preference
from mens_pipeline.training.prepare import PreparedRun, prepare_run
from mens_pipeline.training.presets import ResolvedRecipe
from mens_pipeline.training.qlora_adapter import KIND, continued
from mens_pipeline.training.recipe import Recipe
from mens_pipeline.training.run_dir import work_folder

_ORIGIN: Final = "feedback"
_OF_PAIRS: Final = {Method.RAFT: "num_accepted", Method.DPO: "num_pairs", Method.GRPO: "num_band"}
"""Method -> what there must be enough of, in the manifest of the pairs."""

_WHAT: Final = {
    Method.RAFT: "accepted answers",
    Method.DPO: "pairs",
    Method.GRPO: "prompts with answers of different worth",
}


@dataclass(frozen=True, slots=True)
class Learning:
    """Rows, start and method of a training on judged answers: `run` is of the adapter that wrote them."""

    method: Method
    run: Path
    pairs: Artifact
    train: Path
    config: FeedbackConfig


def prepare_feedback(
    learning: Learning, store: ArtifactStore, device: Device, cache: Path, say: Callable[[str], None]
) -> tuple[ResolvedRecipe, PreparedRun]:
    """Prepare the training of the next adapter: it goes on from the one that answered, with a schedule of its own.

    Raises:
        RefusedError: There is too little to learn from, or the adapter was trained on another base than is found here.
    """
    manifest = read_manifest(learning.run / MANIFEST)
    _refuse_too_few(learning)
    resolved = _recipe(manifest, learning)
    # Other rows than those it was trained on: their order begins anew.
    before = continued(learning.run).model_copy(update={"num_batches": 0})
    folder = partial(work_folder, store, KIND)
    specials = {Method.DPO: preference(learning.config.dpo_beta), Method.GRPO: rewards(learning.config)}
    run = prepare_run(
        resolved,
        _rows(learning),
        folder,
        device,
        cache=cache,
        min_rows=1 if learning.method is Method.DPO else learning.config.least_rows,
        say=say,
        continues=before,
        special=specials.get(learning.method),
    )
    if learning.method is Method.GRPO:
        refuse_slow_device(run.base.path, device.kind)
    if run.base.sha256 != manifest["base_model"]["sha256"]:
        found = f"{run.base.name} is {run.base.sha256[:12]}, it was trained on {manifest['base_model']['sha256'][:12]}"
        raise RefusedError(f"{learning.run}: {found}. Set MENS_TRAIN_MODEL_NAME_OR_PATH to the base that it has.")
    return resolved, run


def _rows(learning: Learning) -> Path:
    of_pairs = {Method.RAFT: RAFT, Method.DPO: PREFERENCES, Method.GRPO: BAND}
    name = of_pairs.get(learning.method)
    return learning.train if name is None else learning.pairs.path / name


def _refuse_too_few(learning: Learning) -> None:
    field = _OF_PAIRS.get(learning.method)
    if field is None:
        return
    found, required = learning.pairs.manifest[field], learning.config.least_rows
    if found < required:
        what = _WHAT[learning.method]
        advice = "Ask for longer (sampling_minutes of config/feedback.yaml), or train the adapter further first."
        raise RefusedError(f"{learning.pairs.path}: {found} {what}, {required} are needed to learn from. {advice}")


def _recipe(manifest: dict[str, Any], learning: Learning) -> ResolvedRecipe:
    """Return the recipe of the adapter that answered, with the rate, the shares and the minutes of learning."""
    config, method = learning.config, learning.method
    rates = {Method.DPO: config.dpo_learning_rate, Method.GRPO: config.grpo_learning_rate}
    # Both trainers of the library take their rows as they come, in one process.
    plain = {"token_shares": {}, "devices": 1, "lora_plus_ratio": 1.0, "category_alpha": 1.0}
    asking = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": config.grpo_prompts}
    shares = {kind: share for kind, share in config.token_shares.items() if method is Method.RAFT or kind != FEEDBACK}
    changes = {
        "learning_rate": rates.get(method, config.raft_learning_rate),
        "max_minutes": config.training_minutes,
        "max_steps": None,
        "seed": config.seed,
        "num_train_epochs": 1,
        "curriculum": False,
        "validation_split_ratio": 0.0,
        **(plain if method in rates else {"token_shares": shares}),
        **(asking if method is Method.GRPO else {}),
    }
    # A run of an earlier version may name a field that is gone, since it helped nowhere.
    recorded = {name: value for name, value in manifest["recipe"].items() if name in Recipe.model_fields}
    recipe = Recipe.model_validate({**recorded, **changes})
    origins = {**manifest["recipe_origins"], **dict.fromkeys(changes, _ORIGIN)}
    return ResolvedRecipe(recipe, origins, manifest["preset"], manifest["domain"])


def with_minutes(config: FeedbackConfig, minutes: float | None) -> FeedbackConfig:
    """Return a configuration whose sampling and training take some minutes together, in the proportion they had."""
    if minutes is None:
        return config
    factor = minutes / (config.sampling_minutes + config.training_minutes)
    changes = {name: factor * getattr(config, name) for name in ("sampling_minutes", "training_minutes")}
    return config.model_copy(update=changes)


def as_long_as(config: FeedbackConfig, samples: Artifact) -> FeedbackConfig:
    """Return the configuration of a control: it trains for the minutes that answering took as well."""
    minutes = config.training_minutes + samples.manifest["seconds"] / 60
    return config.model_copy(update={"training_minutes": minutes})
