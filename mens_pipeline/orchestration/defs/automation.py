"""Jobs, the nightly schedule, and sensors that run jobs when programs, pages, the grammar or the champion change."""

import time
from typing import Final

import dagster as dg
from pydantic import Field, ValidationError

from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.corpus.extract.extracted_corpus import READ, CorpusDetails
from mens_pipeline.corpus.extract.sources import sight
from mens_pipeline.errors import RefusedError
from mens_pipeline.language import grammar_fingerprint
from mens_pipeline.orchestration.asset import load_nightly
from mens_pipeline.orchestration.defs.extraction import ExtractionConfig
from mens_pipeline.orchestration.resources import ArtifactStoreResource, SourceWatch, VoxWorkspace, find_executor
from mens_pipeline.promotion.history import champion_key
from mens_pipeline.settings import PIPELINE_CONFIG, RECIPES, load_settings
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.validation import Strict
from mens_pipeline.training.presets import load_recipes

_DELIVERED: Final = dg.AssetSelection.assets("merged_model", "serving_handoff")
"""Assets after a promotion: as large as the base, and needed only to serve the model elsewhere."""

_ASIDE: Final = _DELIVERED | dg.AssetSelection.groups("scratch") | dg.AssetSelection.assets("recipe_scores")

_ONE_PROCESS: Final = find_executor(dg.in_process_executor)
"""Runs steps one after another in the process of the run: starting a process for each would take most of the time of
an unchanged graph. Steps that load a model start a separate process anyway."""

whole_graph = dg.define_asset_job(
    "whole_graph",
    selection=dg.AssetSelection.all() - _ASIDE,
    executor_def=_ONE_PROCESS,
    description="Everything from the sources to the adapter in use, with all checks.",
)

deliver = dg.define_asset_job(
    "deliver",
    selection=_DELIVERED,
    description="Merges the adapter in use, proves that the result is the model that was evaluated, and delivers it.",
)

train_set = dg.define_asset_job(
    "train_set",
    selection=dg.AssetSelection.groups("corpus"),
    executor_def=_ONE_PROCESS,
    description="From the sources to the train set, with all checks; nothing is trained.",
)

experiments = dg.define_asset_job(
    "experiments",
    selection=dg.AssetSelection.assets(
        "base_model", "qlora_adapter", "eval_results", "benchmark_gate", "recipe_scores"
    ),
    description="Trains and evaluates recipes of config/recipes.yaml, one per partition, on the latest train set. "
    "Promotes nothing.",
)

_COMPARED: Final = [name for name, recipe in load_recipes(RECIPES).items() if recipe.trial is None]

promote_best = dg.define_asset_job(
    "promote_best",
    selection=dg.AssetSelection.assets("promoted_adapter"),
    executor_def=_ONE_PROCESS,
    config={"ops": {"promoted_adapter": {"config": {"best_of": _COMPARED}}}},
    description="Promotes the best evaluated recipe that passed its gate, such as after `experiments`. Trains nothing.",
)

_EVERY_SECONDS: Final = 60
_SOURCES: Final = "sources_changed"
_GRAMMAR: Final = "grammar_changed"


class SensorCursor(Strict):
    """Cursor of a sensor that watches a fingerprint."""

    n: int = Field(ge=0, description="Rises with every change; starts with the Unix time of the first look.")
    fingerprint: str = Field(description="The last fingerprint seen.")
    num_files: int = Field(default=0, ge=0, description="Number of files at that time.")
    gone: str = Field(default="", description="Fingerprint seen after files vanished; a second sighting is a change.")

    def advance(self, fingerprint: str, num_files: int = 0) -> "SensorCursor":
        """Return the cursor after a change."""
        return SensorCursor(n=self.n + 1, fingerprint=fingerprint, num_files=num_files)

    def run_key(self, sensor: str) -> str:
        """Return the key that keeps Dagster from starting the same run twice.

        Dagster never runs a key again, so the key contains the counter: after A, B, A the last A must run. The counter
        starts with a time, so a cursor that was reset does not reuse old keys.
        """
        return f"{sensor}-{self.n}-{self.fingerprint[:16]}"


def read_cursor(text: str | None) -> SensorCursor | None:
    """Parse a stored cursor; None before the first look, or if a person put something else there."""
    if text is None:
        return None
    try:
        return SensorCursor.model_validate_json(text)
    except ValidationError:
        return None


@dg.definitions
def automation() -> dg.Definitions:
    """Define jobs, schedule and sensors; all but the champion sensor start running in production."""
    is_production = load_settings().environment == "prod"
    times = load_nightly()
    nightly = dg.ScheduleDefinition(
        name="nightly",
        job=whole_graph,
        cron_schedule=times.schedule,
        execution_timezone=times.timezone,
        run_config=dg.RunConfig(ops={"extracted_corpus": ExtractionConfig(full=True)}),
        tags={"mens/job": "nightly"},
        default_status=dg.DefaultScheduleStatus.RUNNING if is_production else dg.DefaultScheduleStatus.STOPPED,
        description="Extracts every file again, and rebuilds only changed assets.",
    )
    status = dg.DefaultSensorStatus.RUNNING if is_production else dg.DefaultSensorStatus.STOPPED
    return dg.Definitions(
        jobs=[whole_graph, deliver, train_set, experiments, promote_best],
        schedules=[nightly],
        sensors=[_sources_sensor(status), _grammar_sensor(status), _champion_sensor()],
    )


def _sources_sensor(status: dg.DefaultSensorStatus) -> dg.SensorDefinition:
    """Build one sensor for programs and pages, so that a change of both starts one run."""

    @dg.sensor(
        name=_SOURCES,
        job=whole_graph,
        minimum_interval_seconds=_EVERY_SECONDS,
        default_status=status,
        description="Runs the graph when programs or pages of the workspace were added, changed or removed.",
    )
    def watch_sources(
        context: dg.SensorEvaluationContext, workspace: VoxWorkspace, source_watch: SourceWatch
    ) -> dg.SensorResult | dg.SkipReason:
        policy = load_pipeline_config(PIPELINE_CONFIG)
        try:
            seen = sight(workspace.folder(), READ, source_watch.most_files, policy.watch.counts, policy.include)
        except RefusedError as error:
            advice = "Set MENS_SOURCE_ROOT to a smaller folder; until then, only the nightly run sees changes."
            return dg.SkipReason(f"not watched: {error} {advice}")
        now = time.time()  # after the scan, so that no scanned file was modified later
        before = read_cursor(context.cursor)
        if before is not None and before.fingerprint == seen.fingerprint:
            return dg.SkipReason(f"no change in {seen.num_files} watched files")
        if not seen.is_settled(now, source_watch.settle_seconds):
            seconds = f"{source_watch.settle_seconds:g} s"
            return dg.SkipReason(f"sources are still changing: a file was modified in the last {seconds}")
        if before is None:
            # A sensor that is switched on watches from now on. It must not occupy the device at once, because the
            # nightly run needs it.
            return _skip_run(
                SensorCursor(n=int(now), fingerprint=seen.fingerprint, num_files=seen.num_files),
                f"first check: {seen.num_files} watched files recorded. The next change starts a run; to run now, "
                "launch one by hand",
            )
        is_fewer = seen.num_files < before.num_files and source_watch.settle_seconds > 0
        if is_fewer and before.gone != seen.fingerprint:
            # The remaining files do not show when others vanished, so a checkout may be in progress.
            waiting = before.model_copy(update={"gone": seen.fingerprint})
            return _skip_run(waiting, "files are missing; if the next check finds the same, a run starts")
        return _request_run(_SOURCES, before.advance(seen.fingerprint, seen.num_files))

    return watch_sources


def _grammar_sensor(status: dg.DefaultSensorStatus) -> dg.SensorDefinition:
    @dg.sensor(
        name=_GRAMMAR,
        job=whole_graph,
        minimum_interval_seconds=_EVERY_SECONDS,
        default_status=status,
        description="Runs the graph and extracts every file when lexer, parser or tables have changed.",
    )
    def watch_grammar(
        context: dg.SensorEvaluationContext, store: ArtifactStoreResource
    ) -> dg.SensorResult | dg.SkipReason:
        now, fingerprint = time.time(), grammar_fingerprint()
        before = read_cursor(context.cursor)
        if before is None:
            # The latest corpus records its grammar, so a change made while the sensor was off is not missed.
            corpus = store.open().latest(Kind.EXTRACTED_CORPUS)
            if corpus is None:
                return dg.SkipReason("no corpus yet; the first run uses the current grammar")
            before = SensorCursor(n=int(now), fingerprint=CorpusDetails.of(corpus).grammar)
        if before.fingerprint == fingerprint:
            return _skip_run(before, f"no change: the grammar is still {fingerprint[:12]}")
        return _request_run(_GRAMMAR, before.advance(fingerprint), ExtractionConfig(full=True))

    return watch_grammar


def _champion_sensor() -> dg.SensorDefinition:
    @dg.sensor(
        name="champion_changed",
        job=deliver,
        minimum_interval_seconds=_EVERY_SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,  # a merged model is as large as its base
        description="Merges and delivers a new champion. Off by default; turn it on in the UI.",
    )
    def watch_champion(
        context: dg.SensorEvaluationContext, store: ArtifactStoreResource
    ) -> dg.SensorResult | dg.SkipReason:
        # Read the pointer, not the newest event: a night that confirms a champion may hide its promotion.
        champion = champion_key(store.open())
        if champion is None:
            return dg.SkipReason("no adapter has been promoted yet")
        if champion == context.cursor:
            return dg.SkipReason(f"the champion is still {champion[:12]}")
        return dg.SensorResult(run_requests=[dg.RunRequest()], cursor=champion)

    return watch_champion


def _skip_run(cursor: SensorCursor, reason: str) -> dg.SensorResult:
    return dg.SensorResult(skip_reason=dg.SkipReason(reason), cursor=cursor.model_dump_json())


def _request_run(name: str, cursor: SensorCursor, extraction: ExtractionConfig | None = None) -> dg.SensorResult:
    request = dg.RunRequest(
        run_key=cursor.run_key(name),
        run_config=dg.RunConfig(ops={"extracted_corpus": extraction}) if extraction is not None else {},
        tags={"mens/job": name, "mens/fingerprint": cursor.fingerprint[:12]},
    )
    return dg.SensorResult(run_requests=[request], cursor=cursor.model_dump_json())
