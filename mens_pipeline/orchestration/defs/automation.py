"""The nightly schedule, and sensors that start a run when programs, pages, the grammar or the champion have changed."""

import time
from typing import Final

import dagster as dg
from pydantic import Field, ValidationError

from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.corpus.extract.extracted_corpus import CorpusDetails
from mens_pipeline.corpus.extract.sources import PAGE_SUFFIXES, ROOTS_FILE, VOX_SUFFIXES, sight
from mens_pipeline.errors import RefusedError
from mens_pipeline.language import grammar_fingerprint
from mens_pipeline.orchestration.defs.extraction import ExtractionConfig
from mens_pipeline.orchestration.defs.jobs import deliver, whole_graph
from mens_pipeline.orchestration.resources import ArtifactStoreResource, SourceWatch, VoxWorkspace
from mens_pipeline.promotion.history import champion_key
from mens_pipeline.settings import PIPELINE_CONFIG, load_settings
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.validation import Strict

_EVERY_SECONDS: Final = 60
_SOURCES: Final = "sources_changed"
_SUFFIXES: Final = (*VOX_SUFFIXES, ROOTS_FILE, *PAGE_SUFFIXES)
_GRAMMAR: Final = "grammar_changed"


class Cursor(Strict):
    """The cursor of a sensor that watches one fingerprint."""

    n: int = Field(ge=0, description="Goes up with every change; begins with the second of the first look.")
    fingerprint: str = Field(description="What was seen last.")
    num_files: int = Field(default=0, ge=0, description="How many files there were then.")
    gone: str = Field(default="", description="What was seen when files were gone; seen once more, it is a change.")

    def advance(self, fingerprint: str, num_files: int = 0) -> "Cursor":
        """Return the cursor after a change."""
        return Cursor(n=self.n + 1, fingerprint=fingerprint, num_files=num_files)

    def run_key(self, sensor: str) -> str:
        """Return the key that keeps Dagster from starting the same run twice.

        It holds the counter, because Dagster never runs a key again: after A, B, A the last A is another key. The
        counter begins with a time, so that a cursor which was reset does not meet its old keys.
        """
        return f"{sensor}-{self.n}-{self.fingerprint[:16]}"


def read_cursor(text: str | None) -> Cursor | None:
    """Parse the cursor as Dagster kept it; None before the first look, and where a person put something else there."""
    if text is None:
        return None
    try:
        return Cursor.model_validate_json(text)
    except ValidationError:
        return None


@dg.definitions
def automation() -> dg.Definitions:
    """Define schedule and sensors; in production all but the champion's are on from the start, else they wait."""
    is_production = load_settings().environment == "prod"
    nightly = dg.ScheduleDefinition(
        name="nightly",
        job=whole_graph,
        cron_schedule="0 4 * * *",
        execution_timezone="UTC",
        run_config=dg.RunConfig(ops={"extracted_corpus": ExtractionConfig(full=True)}),
        tags={"mens/job": "nightly"},
        default_status=dg.DefaultScheduleStatus.RUNNING if is_production else dg.DefaultScheduleStatus.STOPPED,
        description="Every file is extracted again; what then has not changed is not made again.",
    )
    status = dg.DefaultSensorStatus.RUNNING if is_production else dg.DefaultSensorStatus.STOPPED
    return dg.Definitions(
        schedules=[nightly], sensors=[_sources_sensor(status), _grammar_sensor(status), _champion_sensor()]
    )


def _sources_sensor(status: dg.DefaultSensorStatus) -> dg.SensorDefinition:
    """Build a sensor of programs and pages: one, so that a change of both starts one run."""

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
        counts = load_pipeline_config(PIPELINE_CONFIG).watch.counts
        try:
            seen = sight(workspace.folder(), _SUFFIXES, source_watch.most_files, counts)
        except RefusedError as error:
            advice = "Name a smaller MENS_SOURCE_ROOT; until then only the nightly run sees changes."
            return dg.SkipReason(f"not watched: {error} {advice}")
        now = time.time()  # after the look: what was touched meanwhile is not of a time to come
        before = read_cursor(context.cursor)
        if before is not None and before.fingerprint == seen.fingerprint:
            return dg.SkipReason(f"no change: {seen.num_files} watched files are as they were")
        if not seen.is_settled(now, source_watch.settle_seconds):
            seconds = f"{source_watch.settle_seconds:g} s"
            return dg.SkipReason(
                f"sources are being written: one was touched in the last {seconds}, waiting for the rest"
            )
        if before is None:
            # Switching a sensor on means: from now on. It must not take the device at once; the nightly run comes too.
            return _skip_run(
                Cursor(n=int(now), fingerprint=seen.fingerprint, num_files=seen.num_files),
                f"first look: {seen.num_files} watched files recorded. The next change starts a run; for one now, "
                "launch it",
            )
        is_fewer = seen.num_files < before.num_files and source_watch.settle_seconds > 0
        if is_fewer and before.gone != seen.fingerprint:
            # Nothing that is left tells when a file went: half a checkout may be on its way.
            waiting = before.model_copy(update={"gone": seen.fingerprint})
            return _skip_run(waiting, "files are gone; if the next look finds the same, it is a change")
        return _run(_SOURCES, before.advance(seen.fingerprint, seen.num_files))

    return watch_sources


def _grammar_sensor(status: dg.DefaultSensorStatus) -> dg.SensorDefinition:
    """Build a sensor of the grammar that the code server has loaded."""

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
            # Unlike files, the grammar that the latest corpus was made with is on record: a change that came while the
            # sensor was off is not missed.
            corpus = store.open().latest(Kind.EXTRACTED_CORPUS)
            if corpus is None:
                return dg.SkipReason("there is no corpus yet; its first run takes the grammar as it is")
            before = Cursor(n=int(now), fingerprint=CorpusDetails.of(corpus).grammar)
        if before.fingerprint == fingerprint:
            return _skip_run(before, f"no change: the grammar is still {fingerprint[:12]}")
        return _run(_GRAMMAR, before.advance(fingerprint), ExtractionConfig(full=True))

    return watch_grammar


def _champion_sensor() -> dg.SensorDefinition:
    """Build the sensor of the champion; off until a person switches it on: a merged model is as large as its base."""

    @dg.sensor(
        name="champion_changed",
        job=deliver,
        minimum_interval_seconds=_EVERY_SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Merges a new champion and hands it on. Off until a person switches it on.",
    )
    def watch_champion(
        context: dg.SensorEvaluationContext, store: ArtifactStoreResource
    ) -> dg.SensorResult | dg.SkipReason:
        # The pointer, not the newest event: a night that confirms a champion may hide the one that promoted it.
        champion = champion_key(store.open())
        if champion is None:
            return dg.SkipReason("nothing was promoted yet")
        if champion == context.cursor:
            return dg.SkipReason(f"the champion is still {champion[:12]}")
        return dg.SensorResult(run_requests=[dg.RunRequest()], cursor=champion)

    return watch_champion


def _skip_run(cursor: Cursor, reason: str) -> dg.SensorResult:
    return dg.SensorResult(skip_reason=dg.SkipReason(reason), cursor=cursor.model_dump_json())


def _run(name: str, cursor: Cursor, extraction: ExtractionConfig | None = None) -> dg.SensorResult:
    request = dg.RunRequest(
        run_key=cursor.run_key(name),
        run_config=dg.RunConfig(ops={"extracted_corpus": extraction}) if extraction is not None else {},
        tags={"mens/job": name, "mens/fingerprint": cursor.fingerprint[:12]},
    )
    return dg.SensorResult(run_requests=[request], cursor=cursor.model_dump_json())
