"""The plan of a run on this machine: what lies in the store, what a probe measures, and what earlier runs took.

Plans of runs are kept with what the runs took, at the root of the store. The same command on the same data takes up
the plan that it had, so that what was done is reused.
"""

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final, NamedTuple

from pydantic import Field

from mens_pipeline.configured import open_store, thresholds_of
from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.heldout_split import KIND as SPLIT
from mens_pipeline.corpus.curate.mixed_train_set import KIND as MIXED
from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.corpus.extract.sources import vox_files
from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.evaluation.tasks import benchmark_tasks, heldout_tasks
from mens_pipeline.inference.generation import EvaluationConfig
from mens_pipeline.inference.prepare import completion_fits
from mens_pipeline.inference.probe import Probe, Rates, estimated_rates, products
from mens_pipeline.jobs.device import Device
from mens_pipeline.language import analyze
from mens_pipeline.models.base import Base
from mens_pipeline.models.find_base import DEFAULT_CPU_MODEL, DEFAULT_CUDA_MODEL, base_by_name, is_base_here
from mens_pipeline.orchestration.choices import resolve_choices
from mens_pipeline.orchestration.estimate import (
    CORPUS,
    EVALUATION,
    GATE,
    TRAINING,
    Dial,
    Rows,
    Stage,
    Suite,
    corpus_seconds,
    planned_rows,
    stages_of,
    turn_dial,
)
from mens_pipeline.promotion.history import CHAMPION
from mens_pipeline.promotion.history import KIND as PROMOTED
from mens_pipeline.promotion.policy import load_gate_policy
from mens_pipeline.promotion.rounds import rounds_of
from mens_pipeline.settings import EVALUATION as EVALUATION_CONFIG
from mens_pipeline.settings import GATE_POLICY, Settings
from mens_pipeline.storage.jsonl import models_in, open_rows
from mens_pipeline.storage.store import Artifact, ArtifactStore, key_of
from mens_pipeline.storage.validation import Versioned
from mens_pipeline.storage.yaml_file import load_model
from mens_pipeline.training.prepare import PreparedRun, prepare_run
from mens_pipeline.training.presets import ResolvedRecipe
from mens_pipeline.training.recipe import Recipe

PLANS: Final = "plans.jsonl"
"""At the root of a store: what was planned for its runs, and what they took."""

_STAGE_OF: Final = {"base_model": TRAINING, "qlora_adapter": TRAINING, "eval_results": EVALUATION}
_GATES: Final = ("benchmark_gate", "gate_checks", "promoted_adapter", "eval_results_", "qlora_adapter_")

_MAKE_IT: Final = "Run: mens run --no-train"
_PROBE: Final = ".probe"
_SHORT_PRESET: Final = "cpu_demo"
_LONG_PRESET: Final = "cpu_night"
_MUCH: Final = 2
"""Times the steps of the preset for a CPU from which on the preset for a night is the better one."""

_ANALYSIS_SECONDS: Final = 0.5
_SEED_TOKENS: Final = 850_000
_SEED_SUITE: Final = ((100, 149), 86, 0.43)
"""Tokens of the train set of the seed data, and its eval suite: stand for what was not made yet."""


class Plan(Versioned):
    """A plan of a run, and what came of it: a line of `plans.jsonl`."""

    newest_format = 2

    key: str = Field(description="Of all that decides it but the speed of the machine.")
    machine: str
    base_sha256: str
    preset: str | None = Field(default=None, description="That the minutes chose, if they did.")
    dial: Dial | None = Field(description="What the minutes come to; null without minutes.")
    stages: tuple[Stage, ...]
    note: str = Field(default="", description="What a person should know.")
    correction: float = Field(default=1.0, description="Of the evaluation, by what earlier ones took.")
    actual: dict[str, float] = Field(default={}, description="Stage -> seconds that it took, if it was not reused.")

    @property
    def seconds_by_stage(self) -> dict[str, float]:
        """Stage -> seconds."""
        return {stage.name: stage.seconds for stage in self.stages}

    @property
    def is_measured(self) -> bool:
        """Whether a probe measured; else all is arithmetic, and the note says why."""
        return any(stage.basis == "measured" for stage in self.stages)

    def configs(self, training: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return what the assets of the graph are told; `training` is what was asked for besides."""
        assert self.dial is not None, "of a run with minutes"  # noqa: S101 - our own impossibility
        preset = {} if self.preset is None else {"preset": self.preset}
        adapter = {**training, "overrides": {**training["overrides"], **self.dial.fields()}, **preset}
        return {"qlora_adapter": adapter, "eval_results": {"suite": self.dial.suite.model_dump()}}


class Counts(NamedTuple):
    """Counts of a run: rows that are shown, tokens of the train set, prompts of the eval suite."""

    rows: Rows
    tokens: float
    suite: Suite


@dataclass(frozen=True)
class Planner:
    """Plans a run of a machine.

    Attributes:
        launch: Does a job in a process and returns its exit code.
        choice: Recipe, preset and domain, as far as they are named.
        overrides: Fields of the recipe that are set.
        minutes: Of the whole run; None where it may take what it takes. They need the train set.
        began: When these began, by the clock of `perf_counter`.
        made_in: Seconds that the train set took where a run made it: the plan of such a run is kept.
    """

    settings: Settings
    device: Device
    launch: Callable[[Path], int]
    log_line: Callable[[str], None]
    choice: Mapping[str, str]
    overrides: Mapping[str, Any]
    minutes: float | None
    began: float
    made_in: float | None = None

    def plan(self) -> tuple[Plan, Counts]:
        """Plan: measured where train set and base are here, else by arithmetic; nothing is downloaded for a plan.

        Raises:
            RefusedError: The minutes hold nothing, or a probe failed.
            ConfigurationError: A name is unknown, or values do not hold together.
        """
        resolved, minutes, root = self._resolve(), self.minutes, self._store.root
        default = DEFAULT_CUDA_MODEL if self.device.kind == "cuda" else DEFAULT_CPU_MODEL
        name = resolved.recipe.model_name_or_path or default
        if self._train_set is None and minutes is not None:
            raise RefusedError(f"{root}: no train set, and minutes cannot be planned without one. {_MAKE_IT}")
        if self._train_set is None or (
            minutes is None and not is_base_here(name, self.settings.cache_root / "base_models")
        ):
            missing = f"the base {name} is not on this machine" if self._train_set else "no train set is in the store"
            speed = "only products of matrices were measured; `mens run` makes the one, fetches the other"
            base, counts = base_by_name(name), _seed_counts(resolved.recipe)
            rates = estimated_rates(base, products(self.device), is_cpu=self.device.kind == "cpu")
            plan = self._finish(resolved, base, (rates, "estimated"), counts)
            return plan.model_copy(update={"note": f"{missing} yet, so {speed}"}), counts
        run, counts = self._prepare(resolved)
        before = [plan for plan in read_plans(root) if plan.machine == self._machine]
        if same := [plan for plan in before if (plan.key, plan.base_sha256) == (self._key, run.base.sha256)]:
            return same[-1], counts
        self.log_line("measuring a few steps of training and some completions")
        rates = Probe(root / _PROBE, self.device, self.launch).measure(run)
        correction = correction_in(before, run.base.sha256)
        if minutes is None:
            return self._finish(resolved, run.base, (rates, "measured"), counts, correction), counts
        preset, dial = None, self._turn(rates, counts, resolved, correction)
        is_own = {"preset", "recipe"}.isdisjoint(self.choice) and resolved.preset == _SHORT_PRESET
        if is_own and dial.max_steps > _MUCH * counts.rows.num_steps:
            preset, resolved = _LONG_PRESET, self._resolve(_LONG_PRESET)
            dial = self._turn(rates, self._prepare(resolved)[1], resolved, correction)
        resolved = self._resolve(preset, dial)
        run, counts = self._prepare(resolved)
        plan = self._finish(resolved, run.base, (rates, "measured"), counts, correction, dial)
        plan = plan.model_copy(update={"preset": preset, "note": _find_too_few(self.settings, dial)})
        if self.made_in is not None:
            add_plan(root, plan)
        return plan, counts

    @cached_property
    def _store(self) -> ArtifactStore:
        return open_store(self.settings)

    @cached_property
    def _train_set(self) -> Artifact | None:
        """The newest train set."""
        return self._store.latest(MIXED)

    @cached_property
    def _corpus(self) -> float:
        """Seconds of the corpus stages."""
        return _estimate_corpus(self.settings) if self.made_in is None else self.made_in

    @property
    def _machine(self) -> str:
        return f"{platform.node()}, {self.device.name}"

    @property
    def _key(self) -> str:
        """Hash of all that decides a plan but the base model and the speed of the machine."""
        given = {"minutes": self.minutes, "choice": dict(self.choice), "set": dict(self.overrides)}
        train = self._train_set.key if self._train_set is not None else None
        # What a name stands for can change between two plans.
        recipe = self._resolve().recipe.model_dump(mode="json")
        config = load_model(EVALUATION_CONFIG, EvaluationConfig).model_dump(mode="json")
        suite = {"config": config, "benchmark": self.settings.benchmark, "champion": _has_champion(self._store)}
        return key_of({**given, "train": train, "recipe": recipe, "evaluation": suite})

    def _resolve(self, preset: str | None = None, dial: Dial | None = None) -> ResolvedRecipe:
        """Return the recipe, perhaps of another preset, and with what minutes come to."""
        choice: dict[str, Any] = {**self.choice, **({} if preset is None else {"preset": preset})}
        overrides = {**self.overrides, **(dial.fields() if dial is not None else {})}
        return resolve_choices(self.settings, self.device, **choice, overrides=overrides).resolved

    def _turn(self, rates: Rates, counts: Counts, resolved: ResolvedRecipe, correction: float) -> Dial:
        spent = perf_counter() - self.began + (self._corpus if self.made_in is None else 0.0)
        assert self.minutes is not None, "without minutes there is no dial"  # noqa: S101 - our own impossibility
        return turn_dial(self.minutes, spent, rates, counts.rows, resolved.recipe, counts.suite, correction)

    def _prepare(self, resolved: ResolvedRecipe) -> tuple[PreparedRun, Counts]:
        """Look at all that a training needs, and count what it would show and be asked; nothing is written."""
        assert self._train_set is not None, "looked at before"  # noqa: S101 - our own impossibility
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

    def _finish(  # noqa: PLR0913, PLR0917 - all that a plan rests on
        self,
        resolved: ResolvedRecipe,
        base: Base,
        known: tuple[Rates, str],
        counts: Counts,
        correction: float = 1.0,
        dial: Dial | None = None,
    ) -> Plan:
        """Return the plan by rates that are known in some way, and by counts."""
        size = counts.suite.take_share(2.0) if dial is None else dial.suite
        what, suite = (resolved.recipe, base, self.device), (counts.suite, size)
        first, *others = stages_of(self._corpus, known[0], counts.rows, what, suite, known[1], correction)
        first = first if self.made_in is None else first.model_copy(update={"basis": "done"})
        where = {"key": self._key, "machine": self._machine, "base_sha256": base.sha256}
        return Plan(**where, dial=dial, stages=(first, *others), correction=correction)


def _count_suite(base: Base, mixed: Artifact, store: ArtifactStore, settings: Settings) -> Suite:
    """Count the eval suite of a train set."""
    split = next((ref for ref in mixed.parents if ref.kind == SPLIT), None)
    found = store.get(split.kind, split.key) if split is not None else None
    if found is None:
        raise RefusedError(f"{mixed.path}: the held-out split that it was made with is gone. {_MAKE_IT}")
    config = load_model(EVALUATION_CONFIG, EvaluationConfig)
    fits = completion_fits(base, config.decoding)
    of_benchmark = benchmark_tasks(load_benchmark(settings.benchmark_dir)) if settings.benchmark else ()
    heldout = [task for task in heldout_tasks(read_pairs(found.path / HELDOUT)) if fits(task.reference)]
    bench = [task for task in of_benchmark if fits(task.reference)]
    first = sum(map(len, rounds_of(heldout, thresholds_of(settings))[:1]))
    tested = sum(task.tests is not None for task in (*heldout, *bench)) / max(1, len(heldout) + len(bench))
    return Suite((first, len(heldout)), len(bench), tested, config, _has_champion(store))


def _has_champion(store: ArtifactStore) -> bool:
    return store.read_pointer(PROMOTED, CHAMPION) is not None


def _seed_counts(recipe: Recipe) -> Counts:
    """Count what stands for a train set that was not made yet: that of the seed data."""
    suite = Suite(*_SEED_SUITE, load_model(EVALUATION_CONFIG, EvaluationConfig))
    return Counts(planned_rows(recipe, _SEED_TOKENS), _SEED_TOKENS, suite)


def _find_too_few(settings: Settings, dial: Dial) -> str:
    """Say where the gates refuse an evaluation for its size, whatever it finds."""
    least, asked = thresholds_of(settings).min_heldout_tasks, dial.suite.heldout_tasks
    few = f"{asked} held-out prompts are too few to promote: the policy asks for {least}; take more minutes"
    return few if asked < least else ""


def _estimate_corpus(settings: Settings) -> float:
    """Estimate the seconds of the corpus stages from how fast this machine analyses programs of the workspace now."""
    programs = [path.read_text(encoding="utf-8", errors="replace") for path in vox_files(settings.source_root)]
    began, done = perf_counter(), 0
    for program in programs:
        analyze(program)
        done += len(program)
        if perf_counter() - began > _ANALYSIS_SECONDS:
            break
    rate = done / max(perf_counter() - began, 1e-6)
    return corpus_seconds(sum(map(len, programs)), max(rate, 1.0), settings.num_workers)


def read_plans(root: Path) -> tuple[Plan, ...]:
    """Read the plans of a store; refuse (`RefusedError`) a line that is none, or that a newer version wrote."""
    path = root / PLANS
    if not path.is_file():
        return ()
    with open_rows(path) as lines:
        return tuple(models_in(lines, path, Plan, "plan", "Delete this line, and run again."))


def add_plan(root: Path, plan: Plan) -> None:
    """Add a plan to those of a store."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / PLANS).open("a", encoding="utf-8") as log:
        log.write(plan.model_dump_json() + "\n")


def correction_in(plans: Sequence[Plan], base_sha256: str) -> float:
    """Return by how much evaluations took longer than was planned before corrections, the median of the last three."""
    ratios = [
        plan.actual[EVALUATION] * plan.correction / plan.seconds_by_stage[EVALUATION]
        for plan in plans
        if plan.base_sha256 == base_sha256 and EVALUATION in plan.actual
    ]
    return median(ratios[-3:]) if ratios else 1.0


def actual_seconds(steps: Mapping[str, float], figures: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Sum the seconds of the steps of a run by stage; a stage whose asset was reused is left out."""
    seconds: dict[str, float] = {}
    for step, took in steps.items():
        stage = _STAGE_OF.get(step) or (GATE if step.startswith(_GATES) else CORPUS)
        seconds[stage] = seconds.get(stage, 0.0) + took
    reused = {stage for name, stage in _STAGE_OF.items() if figures.get(name, {}).get("reused")}
    return {stage: took for stage, took in seconds.items() if stage not in reused}
