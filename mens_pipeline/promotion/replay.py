"""A replayed history as an artifact: an adapter, its predecessor, base and n-gram complete lines added later."""

from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Final

from mens_pipeline.corpus.infill.history import read_history
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.eval_results import prepare_infill, read_completions
from mens_pipeline.evaluation.infill import Holes, infill_decoding
from mens_pipeline.evaluation.replay import (
    RESULTS,
    ReplayFacts,
    ReplayResults,
    build_replay_holes,
    describe_replay,
    score_replay,
)
from mens_pipeline.evaluation.results import INSERTS
from mens_pipeline.inference.generation import EvaluationConfig, GenerationJob
from mens_pipeline.inference.prepare import Conditions, completion_fits, generate_all
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.promotion.history import find_baseline
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.stage import DecidedBy, Params, Parent, Stage
from mens_pipeline.storage.store import Artifact, ArtifactStore


class ReplayParams(Params):
    """Holes of a history, and the completions of all models."""

    completions: dict[str, Parent]
    holes: Annotated[Holes, DecidedBy(attrgetter("digest"))]
    facts: ReplayFacts


def write_replay(folder: Path, params: ReplayParams) -> dict[str, Any]:
    """Score a replay, and write `replay_results.json` and `infill_completions.jsonl` into the folder."""
    completions = {name: read_completions([made]) for name, made in params.completions.items()}
    results, scores = score_replay(params.holes, completions, params.facts)
    (folder / RESULTS).write_text(results.model_dump_json(indent=2) + "\n", encoding="utf-8")
    write_jsonl(folder / INSERTS, scores)
    return {"drift": results.drift.verdict}


STAGE: Final = Stage(Kind.HISTORY_REPLAY, (__name__,), write_replay)


def replay_history(  # noqa: PLR0913 - the inputs of a replay
    adapter: Adapter,
    workspace: Path,
    store: ArtifactStore,
    *,
    since: str | None,
    number: int,
    config: EvaluationConfig,
    conditions: Conditions,
    launch: Callable[[GenerationJob], int],
) -> tuple[Artifact, bool]:
    """Complete lines that were added to a workspace later, with an adapter, its base, an n-gram and the baseline.

    `since` is the commit or date after which they were added; None: the commit that the adapter was trained on.
    `number` limits the holes. `launch` runs a generation process, and returns its exit code. Return the replay, and
    whether it was reused. `SourceNotFoundError` if there is no such workspace, commit or date; `RefusedError` if there
    is no history, its start is unknown, the adapter cannot fill holes, or a generation failed.
    """
    manifest = adapter.manifest
    since = since or manifest.vcs_sha
    if since is None:
        raise RefusedError(f"{adapter.path}: no commit is recorded. Name the commit it was trained on with --since.")
    history = read_history(workspace, since, number)
    fits = completion_fits(manifest.base_model, infill_decoding(config))
    holes = build_replay_holes(history, store.locate(manifest.train_file), manifest, config, fits)
    baseline = find_baseline(store, adapter.digest)
    facts = describe_replay(history, holes, since, adapter, baseline.key if baseline is not None else None)
    asked = prepare_infill(holes, adapter, baseline, conditions) if holes.tasks else {}
    completions = generate_all(asked, store, launch, conditions.lock_path)
    return STAGE.build(
        store, ReplayParams(completions=completions, holes=holes, facts=facts, origins=store.holding(adapter.path))
    )


def replay_in(folder: Path) -> ReplayResults:
    """Read the figures of a replay."""
    return ReplayResults.model_validate_json((folder / RESULTS).read_bytes())
