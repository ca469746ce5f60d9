"""Plan a run on this machine: measured speeds times the rows to train on and the prompts to complete.

The plan of `mens run --minutes` is an artifact: the same command on the same data reuses it, and so everything made
by it.
"""

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple

from pydantic import Field

from mens_pipeline.configured import open_store, thresholds_of
from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.heldout_split import KIND as SPLIT
from mens_pipeline.corpus.curate.mixed_train_set import KIND as MIXED
from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.evaluation.tasks import benchmark_tasks, heldout_tasks
from mens_pipeline.inference.generation import EvaluationConfig
from mens_pipeline.inference.prepare import completion_fits
from mens_pipeline.inference.probe import Probe, Rates
from mens_pipeline.jobs.device import Device
from mens_pipeline.models.base import Base
from mens_pipeline.models.find_base import DEFAULT_CPU_MODEL, DEFAULT_CUDA_MODEL, is_base_here
from mens_pipeline.orchestration.choices import resolve_choices
from mens_pipeline.orchestration.estimate import GATE_SECONDS, Dial, Rows, SuiteCounts, evaluation_seconds, turn_dial
from mens_pipeline.promotion.history import CHAMPION
from mens_pipeline.promotion.history import KIND as PROMOTED
from mens_pipeline.promotion.policy import load_gate_policy
from mens_pipeline.promotion.rounds import rounds_of
from mens_pipeline.settings import EVALUATION, GATE_POLICY, Settings
from mens_pipeline.storage.store import Artifact, ArtifactStore, key_of
from mens_pipeline.storage.validation import Strict, read_document
from mens_pipeline.storage.yaml_file import load_model
from mens_pipeline.training.prepare import PreparedRun, prepare_run
from mens_pipeline.training.presets import ResolvedRecipe

KIND: Final = "run_plan"
_PLAN: Final = "plan.json"
_MAKE_IT: Final = "Run: mens run --no-train"
_PROBE: Final = ".probe"
_SHORT_PRESET: Final = "cpu_demo"
_LONG_PRESET: Final = "cpu_night"
_MUCH: Final = 2
"""From this multiple of its steps on, the night preset is better than the short CPU preset."""


class PlannedStage(Strict):
    """A stage of a plan with its seconds."""

    name: str
    does: str
    seconds: float


class RunPlan(Strict):
    """Plan of a run."""

    preset: str | None = Field(default=None, description="Preset that the minutes chose, if they did.")
    dial: Dial | None = Field(default=None, description="What fits into the minutes; null without minutes.")
    stages: tuple[PlannedStage, ...]
    note: str = Field(default="", description="A warning for people.")

    def configs(self, training: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the run configuration of each asset; `training` is what the command line sets for the training."""
        assert self.dial is not None, "of a run with minutes"  # noqa: S101 - our own impossibility
        preset = {} if self.preset is None else {"preset": self.preset}
        adapter = {**training, "overrides": {**training["overrides"], **self.dial.fields()}, **preset}
        return {"qlora_adapter": adapter, "eval_results": {"suite": self.dial.suite.model_dump()}}


class Counts(NamedTuple):
    """Rows that are shown, tokens of the train set, and counts of the eval suite."""

    rows: Rows
    tokens: float
    suite: SuiteCounts


@dataclass(frozen=True)
class Planner:
    """Plans a run on this machine with the newest train set.

    Attributes:
        launch: Runs a job in a process and returns its exit code.
        choice: Recipe, preset and domain, if named.
        overrides: Recipe fields that are set.
        minutes: Of the whole run; None for no limit.
        began: Start of these minutes, by `perf_counter`.
    """

    settings: Settings
    device: Device
    launch: Callable[[Path], int]
    log_line: Callable[[str], None]
    choice: Mapping[str, str]
    overrides: Mapping[str, Any]
    minutes: float | None
    began: float

    def plan(self, *, is_kept: bool) -> tuple[RunPlan, Counts]:
        """Plan from measured speeds, or return the stored plan of the same run.

        Only a plan that is kept may download the base.

        Raises:
            RefusedError: Train set or base is missing, the minutes are too few, or the probe failed.
            ConfigurationError: A name is unknown, or values do not hold together.
        """
        resolved = self._resolve()
        default = DEFAULT_CUDA_MODEL if self.device.kind == "cuda" else DEFAULT_CPU_MODEL
        name, cache = resolved.recipe.model_name_or_path or default, self.settings.cache_root / "base_models"
        if not is_kept and not is_base_here(name, cache):
            advice = "`mens run` fetches it; nothing is downloaded for a plan."
            raise RefusedError(f"{name}: this base is not on this machine, so nothing can be measured. {advice}")
        run, counts = self._prepare(resolved)
        inputs = self._inputs(resolved, run.base)
        if not is_kept:
            found = self._store.get(KIND, key_of(inputs))
            return _read_plan(found) if found is not None else self._measure(resolved, run, counts), counts

        def write(folder: Path) -> dict[str, Any]:
            plan = self._measure(resolved, run, counts)
            (folder / _PLAN).write_text(plan.model_dump_json(indent=2) + "\n", encoding="utf-8")
            return {}

        return _read_plan(self._store.build(KIND, inputs, write)[0]), counts

    @cached_property
    def _store(self) -> ArtifactStore:
        return open_store(self.settings)

    @cached_property
    def _train_set(self) -> Artifact:
        found = self._store.latest(MIXED)
        if found is None:
            message = "no train set, and nothing can be planned without one"
            raise RefusedError(f"{self._store.root}: {message}. {_MAKE_IT}")
        return found

    def _inputs(self, resolved: ResolvedRecipe, base: Base) -> dict[str, Any]:
        """Return everything that decides a plan, except the speed of the machine."""
        config = load_model(EVALUATION, EvaluationConfig).model_dump(mode="json")
        return {
            "machine": f"{platform.node()}, {self.device.name}",
            "minutes": self.minutes,
            "choice": dict(self.choice),
            "set": dict(self.overrides),
            "train": self._train_set.key,
            "base": base.sha256,
            # A name may mean another recipe by the next plan.
            "recipe": resolved.recipe.model_dump(mode="json"),
            "evaluation": [config, self.settings.benchmark, _has_champion(self._store)],
        }

    def _measure(self, resolved: ResolvedRecipe, run: PreparedRun, counts: Counts) -> RunPlan:
        self.log_line("measuring a few steps of training and some completions")
        rates = Probe(self._store.root / _PROBE, self.device, self.launch).measure(run)
        if self.minutes is None:
            return RunPlan(stages=_list_stages(resolved, rates, counts, None))
        preset, dial = None, self._turn(rates, counts, resolved)
        is_own = {"preset", "recipe"}.isdisjoint(self.choice) and resolved.preset == _SHORT_PRESET
        if is_own and dial.max_steps > _MUCH * counts.rows.num_steps:
            preset, longer = _LONG_PRESET, self._resolve(_LONG_PRESET)
            dial = self._turn(rates, self._prepare(longer)[1], longer)
        turned = self._resolve(preset, dial)
        stages = _list_stages(turned, rates, self._prepare(turned)[1], dial)
        return RunPlan(preset=preset, dial=dial, stages=stages, note=_find_too_few(self.settings, dial))

    def _resolve(self, preset: str | None = None, dial: Dial | None = None) -> ResolvedRecipe:
        choice: dict[str, Any] = {**self.choice, **({} if preset is None else {"preset": preset})}
        overrides = {**self.overrides, **(dial.fields() if dial is not None else {})}
        return resolve_choices(self.settings, self.device, **choice, overrides=overrides).resolved

    def _turn(self, rates: Rates, counts: Counts, resolved: ResolvedRecipe) -> Dial:
        assert self.minutes is not None, "without minutes there is no dial"  # noqa: S101 - our own impossibility
        spent = perf_counter() - self.began
        return turn_dial(self.minutes, spent, rates, counts.rows, resolved.recipe, counts.suite)

    def _prepare(self, resolved: ResolvedRecipe) -> tuple[PreparedRun, Counts]:
        run = prepare_run(
            resolved,
            self._train_set.path / TRAIN,
            self._store.root / _PROBE,
            self.device,
            cache=self.settings.cache_root,
            min_rows=load_gate_policy(GATE_POLICY).min_pairs,
            log_line=self.log_line,
            is_trial=True,
        )
        kinds, data = run.preflight["kinds"].values(), run.preflight["data"]
        mean = data["num_tokens"] / max(1, data["num_train"])
        shown = sum(kind["tokens_shown"] for kind in kinds)
        tokens = sum(kind["tokens"] + kind["tokens_too_long"] for kind in kinds)
        rows = Rows(run.preflight["num_steps"], shown, data["num_validation"] * mean)
        return run, Counts(rows, tokens, _count_suite(run.base, self._train_set, self._store, self.settings))


def _read_plan(plan: Artifact) -> RunPlan:
    return read_document(plan.path / _PLAN, RunPlan, "plan", "Delete its folder, and run again.")


def _list_stages(resolved: ResolvedRecipe, rates: Rates, counts: Counts, dial: Dial | None) -> tuple[PlannedStage, ...]:
    recipe, rows, whole = resolved.recipe, counts.rows, counts.suite
    size = whole.take_share(2.0) if dial is None else dial.suite
    steps = rows.steps_within(rates, recipe.max_minutes)
    fit = f"{steps} steps" if steps == rows.num_steps else f"{steps} of {rows.num_steps} steps"
    trains = f"{fit}, {steps * rows.step:,.0f} tokens, rank {recipe.lora_r}, rows of {recipe.max_length}"
    samples = f", {whole.config.num_samples} samples" if whole.config.num_samples > 1 else ""
    prompts = f"{size.heldout_tasks} held-out and {size.benchmark_tasks} benchmark prompts"
    lines = {
        "training": (trains, rows.seconds(rates, recipe.max_minutes)),
        "evaluation": (f"{prompts}{samples}, {size.infill_holes} holes", evaluation_seconds(rates, whole, size)),
        "gate": ("verdict, report, promotion", GATE_SECONDS),
    }
    return tuple(PlannedStage(name=name, does=does, seconds=seconds) for name, (does, seconds) in lines.items())


def _count_suite(base: Base, mixed: Artifact, store: ArtifactStore, settings: Settings) -> SuiteCounts:
    split = next((ref for ref in mixed.parents if ref.kind == SPLIT), None)
    found = store.get(split.kind, split.key) if split is not None else None
    if found is None:
        raise RefusedError(f"{mixed.path}: the held-out split that it was made with is gone. {_MAKE_IT}")
    config = load_model(EVALUATION, EvaluationConfig)
    fits = completion_fits(base, config.decoding)
    of_benchmark = benchmark_tasks(load_benchmark(settings.benchmark_dir)) if settings.benchmark else ()
    heldout = [task for task in heldout_tasks(read_pairs(found.path / HELDOUT)) if fits(task.reference)]
    bench = [task for task in of_benchmark if fits(task.reference)]
    first = sum(map(len, rounds_of(heldout, thresholds_of(settings))[:1]))
    tested = sum(task.tests is not None for task in (*heldout, *bench)) / max(1, len(heldout) + len(bench))
    return SuiteCounts((first, len(heldout)), len(bench), tested, config, _has_champion(store))


def _has_champion(store: ArtifactStore) -> bool:
    return store.read_pointer(PROMOTED, CHAMPION) is not None


def _find_too_few(settings: Settings, dial: Dial) -> str:
    least, asked = thresholds_of(settings).min_heldout_tasks, dial.suite.heldout_tasks
    few = f"{asked} held-out prompts are too few to promote: the policy asks for {least}; take more minutes"
    return few if asked < least else ""
