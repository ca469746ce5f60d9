"""What is learnt of evaluated completions: rows of the accepted ones, and the training of the next adapter on them."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

from mens_pipeline.corpus.schema.prompts import collapse_spaces
from mens_pipeline.corpus.schema.records import Lineage, Source, SourceKind, TrainingPair, read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.tasks import training_tasks
from mens_pipeline.feedback.config import FeedbackConfig, Method
from mens_pipeline.feedback.samples import SAMPLES, Sample
from mens_pipeline.jobs.device import Device
from mens_pipeline.models.adapter import KIND as ADAPTER
from mens_pipeline.models.adapter import MANIFEST, TrainingManifest
from mens_pipeline.storage.jsonl import read_models, write_jsonl
from mens_pipeline.storage.stage import Content, Params, Parent, Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore, Details
from mens_pipeline.training.prepare import PreparedRun, prepare_run, work_folder
from mens_pipeline.training.presets import ResolvedRecipe
from mens_pipeline.training.qlora_adapter import continue_from
from mens_pipeline.training.recipe import Recipe

KIND: Final = "feedback_pairs"
FEEDBACK: Final = "feedback"
"""The kind (`task_family`) of accepted completions among the rows that train."""

RAFT: Final = "raft.jsonl"
"""The rows of the train set, and the accepted completions behind them."""


class PairsDetails(Details):
    """Counts in the manifest of learnt rows."""

    num_accepted: int


class FeedbackPairsParams(Params):
    """Evaluated completions, the rows they stand beside, and the held-out pairs."""

    samples: Parent
    train: Content
    heldout: Content
    per_prompt: int
    seed: int


def write_feedback_pairs(folder: Path, params: FeedbackPairsParams) -> dict[str, Any]:
    """Choose what is learnt of evaluated completions, and write it into `raft.jsonl`.

    A completion that is the response of a held-out pair is not learnt either.
    """
    rows = {name: pair for name, (_, pair) in training_tasks(read_pairs(params.train)).items()}
    every = list(read_models(params.samples.path / SAMPLES, Sample))
    never = {collapse_spaces(pair.response) for pair in read_pairs(params.heldout)}
    evaluated = [sample for sample in every if collapse_spaces(sample.program) not in never]
    accepted = list(accepted_rows(evaluated, rows, params.per_prompt, params.seed))
    write_jsonl(folder / RAFT, chain(read_pairs(params.train), accepted))
    return {"num_accepted": len(accepted), "num_held_out": len(every) - len(evaluated)}


STAGE: Final = Stage(KIND, (f"{__name__}:write_feedback_pairs",), write_feedback_pairs)


def build_feedback_pairs(
    samples: Artifact, train: Path, heldout: Path, config: FeedbackConfig, store: ArtifactStore
) -> tuple[Artifact, bool]:
    """Return the rows that are learnt of evaluated completions, and whether they were reused."""
    seed = samples.inputs["config"]["seed"]
    params = FeedbackPairsParams(samples=samples, train=train, heldout=heldout, per_prompt=config.per_prompt, seed=seed)
    return STAGE.build(store, params)


def accepted_rows(
    samples: Iterable[Sample], rows: Mapping[str, TrainingPair], per_prompt: int, seed: int
) -> Iterator[TrainingPair]:
    """Yield the accepted completions as rows; of each prompt the first of every structure, a few at most."""
    by_task: defaultdict[str, dict[str | None, Sample]] = defaultdict(dict)
    for sample in samples:
        if sample.is_accepted:
            by_task[sample.task].setdefault(sample.structure, sample)
    for task, different in by_task.items():
        for sample in islice(different.values(), per_prompt):
            yield _row(sample, rows[task], seed)


def _row(sample: Sample, row: TrainingPair, seed: int) -> TrainingPair:
    """Return an accepted completion as a training row, with the path and the prompt of the row that it completes."""
    program = sample.program.rstrip() + "\n"
    source = row.source and Source(
        path=row.source.path,
        blob=hashlib.sha256(program.encode()).hexdigest(),
        span=(0, len(program)),
        lines=(1, program.count("\n")),
        kind=SourceKind.EVOLVED,
    )
    lineage = Lineage(
        parent=row.digest.hex(),
        operator=FEEDBACK,
        generation=1,
        generator="adapter",
        generator_digest=sample.adapter_sha256,
        seed=seed,
        root_kind=row.source and row.source.kind,
    )
    changes = {"response": program, "task_family": FEEDBACK, "source": source, "lineage": lineage}
    return row.model_copy(update=changes)


@dataclass(frozen=True, slots=True)
class Learning:
    """Rows, start and method of a training on evaluated completions: `run` is of the adapter that wrote them."""

    method: Method
    run: Path
    pairs: Artifact
    train: Path
    config: FeedbackConfig


def prepare_feedback(
    learning: Learning, store: ArtifactStore, device: Device, cache: Path, log_line: Callable[[str], None]
) -> PreparedRun:
    """Prepare the training of the next adapter: it goes on from the one that was sampled, with a schedule of its own.

    Refuse (`RefusedError`) too few accepted completions, and another base than that of the adapter.
    """
    manifest, rows = TrainingManifest.read(learning.run / MANIFEST), learning.train
    if learning.method is Method.RAFT:
        rows = learning.pairs.path / RAFT
        num_accepted, required = PairsDetails.of(learning.pairs).num_accepted, learning.config.least_rows
        if num_accepted < required:
            advice = "Ask for longer (sampling_minutes of config/feedback.yaml), or train the adapter further first."
            few = f"{num_accepted} accepted completions, {required} are needed to learn from"
            raise RefusedError(f"{learning.pairs.path}: {few}. {advice}")
    # Other rows than those it was trained on: their order begins again.
    before = continue_from(learning.run).model_copy(update={"num_batches": 0})
    run = prepare_run(
        _recipe(manifest, learning),
        rows,
        partial(work_folder, store, ADAPTER),
        device,
        cache=cache,
        min_rows=max(1, learning.config.least_rows),
        log_line=log_line,
        continues=before,
    )
    if run.base.sha256 != manifest.base_model.sha256:
        found = f"{run.base.name} is {run.base.sha256[:12]}, it was trained on {manifest.base_model.sha256[:12]}"
        raise RefusedError(f"{learning.run}: {found}. Set MENS_TRAIN_MODEL_NAME_OR_PATH to the base that it has.")
    return run


def _recipe(manifest: TrainingManifest, learning: Learning) -> ResolvedRecipe:
    """Return the recipe of the adapter that was sampled, with the rate, the shares and the minutes of learning."""
    config, is_raft = learning.config, learning.method is Method.RAFT
    changes = {
        "learning_rate": config.raft_learning_rate,
        "max_minutes": config.training_minutes,
        "max_steps": None,
        "seed": config.seed,
        "num_train_epochs": 1,
        "curriculum": False,
        "validation_split_ratio": 0.0,
        "token_shares": {kind: share for kind, share in config.token_shares.items() if is_raft or kind != FEEDBACK},
    }
    # A run of an earlier version may name a field that is gone, since it helped nowhere.
    recorded = {name: value for name, value in manifest.recipe.as_json().items() if name in Recipe.model_fields}
    recipe = Recipe.model_validate({**recorded, "quantization": manifest.recipe.quantization, **changes})
    origins = {**manifest.recipe_origins, **dict.fromkeys(changes, "feedback")}
    return ResolvedRecipe(recipe, origins, manifest.preset, manifest.domain)
