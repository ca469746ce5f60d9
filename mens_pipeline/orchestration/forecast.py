"""The plan of a run on this machine: what lies in the store, what a probe measures, and what earlier runs took.

The same command on the same data takes up the plan that it had, so that what was done is reused.
"""

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from mens_pipeline.configured import open_store, thresholds_of
from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.heldout_split import KIND as SPLIT
from mens_pipeline.corpus.curate.mixed_train_set import KIND as MIXED
from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.corpus.extract.sources import vox_files
from mens_pipeline.corpus.schema.training_pair import read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.evaluation.tasks import benchmark_tasks, heldout_tasks
from mens_pipeline.inference.generation import EvaluationConfig
from mens_pipeline.inference.prepare import completion_fits
from mens_pipeline.inference.probe import Probe, Rates, estimated_rates, products
from mens_pipeline.jobs.device import Device
from mens_pipeline.language import analyze
from mens_pipeline.models.base import HUB, RECORD, Base
from mens_pipeline.models.find_base import DEFAULT_CPU_MODEL, DEFAULT_CUDA_MODEL
from mens_pipeline.orchestration.choices import resolve_choices
from mens_pipeline.orchestration.estimate import (
    Dial,
    Rows,
    Stage,
    Suite,
    SuiteSize,
    corpus_seconds,
    stages_of,
    turn_dial,
)
from mens_pipeline.orchestration.planned import PlanRecord, add_plan, ratios_in, read_plans
from mens_pipeline.promotion.history import CHAMPION
from mens_pipeline.promotion.history import KIND as PROMOTED
from mens_pipeline.promotion.policy import load_gate_policy
from mens_pipeline.promotion.rounds import rounds_of
from mens_pipeline.settings import EVALUATION as EVALUATION_CONFIG
from mens_pipeline.settings import GATE_POLICY, Settings
from mens_pipeline.storage.store import Artifact, ArtifactStore, key_of
from mens_pipeline.storage.yaml_file import load_model
from mens_pipeline.training.prepare import PreparedRun, prepare_run
from mens_pipeline.training.presets import ResolvedRecipe

_MAKE_IT: Final = "Run: mens run --no-train"
_PROBE: Final = ".probe"
_SHORT_PRESET: Final = "cpu_demo"
_LONG_PRESET: Final = "cpu_night"
_MUCH: Final = 2
"""Times the steps of the preset for a CPU from which on the preset for a night is the better one."""

_ANALYSIS_SECONDS: Final = 0.5
SEED_TOKENS: Final = 850_000
_SEED_SUITE: Final = ((100, 149), 86, 0.43)
_SEED_LENGTH: Final = 160
"""Tokens of the train set of the seed data, its eval suite, tokens of a row: stand for what was not made yet."""

_KNOWN: Final[Mapping[str, tuple[int, int, int, int, int]]] = {
    DEFAULT_CPU_MODEL: (30, 9, 576, 49_152, 134_515_008),
    DEFAULT_CUDA_MODEL: (32, 16, 2560, 248_320, 4_205_000_000),
    "Qwen/Qwen2.5-Coder-0.5B-Instruct": (24, 14, 896, 151_936, 494_032_768),
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": (28, 12, 1536, 151_936, 1_543_714_304),
}
"""Base -> layers, heads, width, vocabulary, parameters: for arithmetic where it is not on this machine."""


@dataclass(frozen=True)
class Forecast:
    """A plan of a run.

    Attributes:
        stages: In order.
        suite: The eval suite.
        tokens: Of the train set.
        note: What a person should know.
        is_measured: Whether a probe measured; else all is arithmetic, and the note says why.
        record: Of a plan with minutes, what is kept of it.
    """

    stages: tuple[Stage, ...]
    suite: Suite
    tokens: float
    note: str = ""
    is_measured: bool = True
    record: PlanRecord | None = None

    @property
    def seconds(self) -> float:
        """Of all stages."""
        return sum(stage.seconds for stage in self.stages)


@dataclass(frozen=True)
class Asked:
    """What a plan is asked for: the recipe that is chosen, fields that are set, and minutes, if any.

    `spent` returns the seconds of these that are gone. `corpus` are those that the train set took where a run made it:
    the plan of such a run is kept.
    """

    choice: Mapping[str, str]
    overrides: Mapping[str, str]
    minutes: float | None = None
    spent: Callable[[], float] = lambda: 0.0
    corpus: float | None = None


def look_ahead(
    asked: Asked, settings: Settings, device: Device, launch: Callable[[Path], int], log_line: Callable[[str], None]
) -> Forecast:
    """Plan a run: measured where train set and base are here, else by arithmetic; nothing is downloaded for a plan.

    `launch` does a job in a process and returns its exit code. A plan with minutes needs the train set.

    Raises:
        RefusedError: The minutes hold nothing, or a probe failed.
        ConfigurationError: A name is unknown, or values do not hold together.
    """
    ahead = _Ahead(asked, settings, device, open_store(settings), log_line)
    before = ahead.planned_before()
    preset = before.preset if before is not None else None
    resolved = ahead.resolve(preset)
    recipe = resolved.recipe
    name = recipe.model_name_or_path or (DEFAULT_CUDA_MODEL if device.kind == "cuda" else DEFAULT_CPU_MODEL)
    if ahead.mixed is None and asked.minutes is not None:
        raise RefusedError(f"{ahead.store.root}: no train set, and minutes cannot be planned without one. {_MAKE_IT}")
    if ahead.mixed is None or (asked.minutes is None and not is_base_here(name, settings)):
        is_missing = (
            "no train set is in the store" if ahead.mixed is None else f"the base {name} is not on this machine"
        )
        note = (
            f"{is_missing} yet, so only products of matrices were measured; `mens run` makes the one, fetches the other"
        )
        return _by_arithmetic(resolved, device, name, ahead.corpus, note)
    if before is not None:
        return ahead.plan(resolved, before.rates, before.dial, before.ratios, preset, is_new=False)
    run, rows = ahead.prepare(resolved)
    log_line("measuring a few steps of training and some completions")
    rates = Probe(ahead.store.root / _PROBE, device, launch).measure(run)
    ratios = ratios_in(ahead.records, run.base.sha256)
    if asked.minutes is None:
        return ahead.plan(resolved, rates, None, ratios, None)
    suite = ahead.suite(run.base)
    dial = turn_dial(asked.minutes, ahead.spent, rates, rows, recipe, suite, ratios)
    is_own = {"preset", "recipe"}.isdisjoint(asked.choice) and resolved.preset == _SHORT_PRESET
    if is_own and dial.max_steps > _MUCH * rows.num_steps:
        preset = _LONG_PRESET
        resolved = ahead.resolve(preset)
        run, rows = ahead.prepare(resolved)
        dial = turn_dial(asked.minutes, ahead.spent, rates, rows, resolved.recipe, suite, ratios)
    return ahead.plan(resolved, rates, dial, ratios, preset)


@dataclass(frozen=True)
class _Ahead:
    """What a plan is made of: what is asked for, the machine, and what lies in the store."""

    asked: Asked
    settings: Settings
    device: Device
    store: ArtifactStore
    log_line: Callable[[str], None]

    @cached_property
    def mixed(self) -> Artifact | None:
        """The newest train set."""
        key = self.store.read_pointer(MIXED, "latest")
        return self.store.get(MIXED, key) if key is not None else None

    @cached_property
    def corpus(self) -> float:
        """Seconds of the corpus stages."""
        return measure_corpus(self.settings) if self.asked.corpus is None else self.asked.corpus

    @property
    def spent(self) -> float:
        """Seconds of the minutes that are gone, or will be once the train set is made."""
        return self.asked.spent() + (self.corpus if self.asked.corpus is None else 0.0)

    @cached_property
    def records(self) -> list["PlanRecord"]:
        """The plans of this machine."""
        return [one for one in read_plans(self.store.root) if one.machine == self._machine]

    @property
    def _machine(self) -> str:
        return f"{platform.node()}, {self.device.name}"

    @property
    def _key(self) -> str:
        asked = {"minutes": self.asked.minutes, "choice": dict(self.asked.choice), "set": dict(self.asked.overrides)}
        train = self.mixed.key if self.mixed is not None else None
        return key_of({**asked, "train": train, "evaluation": evaluation_config().model_dump(mode="json")})

    def planned_before(self) -> PlanRecord | None:
        """Return the plan that the same command had on the same data, on this machine."""
        if self.asked.minutes is None:
            return None
        return next((one for one in reversed(self.records) if one.key == self._key), None)

    def resolve(self, preset: str | None) -> ResolvedRecipe:
        """Return the recipe, perhaps of another preset."""
        choice: dict[str, Any] = {**self.asked.choice, **({} if preset is None else {"preset": preset})}
        return resolve_choices(self.settings, self.device, **choice, overrides=self.asked.overrides).resolved

    def prepare(self, resolved: ResolvedRecipe) -> tuple[PreparedRun, Rows]:
        """Look at all that a training needs, and count what it would show; nothing is written."""
        assert self.mixed is not None, "looked at before"  # noqa: S101 - our own impossibility
        run = prepare_run(
            resolved,
            self.mixed.path / TRAIN,
            self.store.root / _PROBE,
            self.device,
            cache=self.settings.cache_root,
            min_rows=load_gate_policy(GATE_POLICY).min_pairs,
            log_line=self.log_line,
            is_trial=True,
        )
        kinds, data = run.preflight["kinds"].values(), run.preflight["data"]
        mean = data["num_tokens"] / max(1, data["num_train"])
        tokens = sum(kind["tokens_shown"] for kind in kinds)
        return run, Rows(run.preflight["num_steps"], tokens, data["num_validation"] * mean)

    def plan(  # noqa: PLR0913 - all that a plan rests on
        self,
        resolved: ResolvedRecipe,
        rates: Rates,
        dial: Dial | None,
        ratios: Mapping[str, float],
        preset: str | None,
        *,
        is_new: bool = True,
    ) -> Forecast:
        """Return the plan, and keep that of a run if it is new; `preset` is one that the minutes chose."""
        if dial is not None:
            resolved = replace(resolved, recipe=resolved.recipe.model_copy(update=dial.fields()))
        run, rows = self.prepare(resolved)
        suite = self.suite(run.base)
        size = suite.take_share(2.0) if dial is None else dial.suite
        what = (resolved.recipe, run.base, self.device)
        stages = stages_of(self.corpus, rates, rows, what, (suite, size), ratios, is_measured=True)
        if self.asked.corpus is not None:
            stages = (stages[0]._replace(basis="done"), *stages[1:])
        kinds = run.preflight["kinds"].values()
        tokens = sum(kind["tokens"] + kind["tokens_too_long"] for kind in kinds)
        if dial is None:
            return Forecast(stages, suite, tokens)
        record = PlanRecord(
            key=self._key,
            machine=self._machine,
            base_sha256=run.base.sha256,
            preset=preset,
            rates=rates,
            dial=dial,
            planned={stage.name: stage.seconds for stage in stages},
            ratios=dict(ratios),
        )
        if is_new and self.asked.corpus is not None:
            add_plan(self.store.root, record)
        return Forecast(stages, suite, tokens, note=_find_too_few(self.settings, size), record=record)

    def suite(self, base: Base) -> Suite:
        """Count the eval suite of the train set."""
        assert self.mixed is not None, "looked at before"  # noqa: S101 - our own impossibility
        split = next((ref for ref in self.mixed.parents if ref.kind == SPLIT), None)
        found = self.store.get(split.kind, split.key) if split is not None else None
        if found is None:
            raise RefusedError(f"{self.mixed.path}: the held-out split that it was made with is gone. {_MAKE_IT}")
        config = evaluation_config()
        fits = completion_fits(base, config.decoding)
        benchmark = load_benchmark(self.settings.benchmark_dir) if self.settings.benchmark else None
        heldout = [task for task in heldout_tasks(read_pairs(found.path / HELDOUT)) if fits(task.reference)]
        of_benchmark = benchmark_tasks(benchmark) if benchmark is not None else ()
        bench = [task for task in of_benchmark if fits(task.reference)]
        first = rounds_of(heldout, thresholds_of(self.settings))[:1]
        tested = sum(task.tests is not None for task in (*heldout, *bench)) / max(1, len(heldout) + len(bench))
        has_champion = self.store.read_pointer(PROMOTED, CHAMPION) is not None
        return Suite((sum(map(len, first)), len(heldout)), len(bench), tested, config, has_champion)


def evaluation_config() -> EvaluationConfig:
    """Read what the eval suite asks, and how."""
    return load_model(EVALUATION_CONFIG, EvaluationConfig)


def _find_too_few(settings: Settings, size: SuiteSize) -> str:
    """Say where the gates refuse an evaluation for its size, whatever it finds."""
    least = thresholds_of(settings).min_heldout_tasks
    if size.heldout_tasks >= least:
        return ""
    return (
        f"{size.heldout_tasks} held-out prompts are too few to promote: the policy asks for {least}; take more minutes"
    )


def _by_arithmetic(resolved: ResolvedRecipe, device: Device, name: str, corpus: float, note: str) -> Forecast:
    """Plan with the sizes of the seed data and the speed of products alone."""
    base, recipe = base_by_name(name), resolved.recipe
    rates = estimated_rates(base, products(device), is_cpu=device.kind == "cpu")
    rows_at_once = recipe.per_device_train_batch_size * min(recipe.max_length, _SEED_LENGTH)
    step = min(recipe.max_tokens_per_batch or rows_at_once, rows_at_once) * recipe.gradient_accumulation_steps
    steps = max(1, round(SEED_TOKENS * recipe.num_train_epochs / step))
    steps = min(steps, recipe.max_steps or steps)
    suite = Suite(*_SEED_SUITE, evaluation_config())
    what, parts = (recipe, base, device), (suite, suite.take_share(2.0))
    stages = stages_of(corpus, rates, Rows(steps, steps * step), what, parts, {}, is_measured=False)
    return Forecast(stages, suite, SEED_TOKENS, note=note, is_measured=False)


def base_by_name(name: str) -> Base:
    """Describe a base that is not here by its published sizes; refuse (`RefusedError`) one that is not known."""
    if name not in _KNOWN:
        advice = "Fetch it first: mens train --dry-run --model NAME does."
        raise RefusedError(f"base model {name}: not on this machine, and its sizes are not known. {advice}")
    layers, heads, width, vocabulary, parameters = _KNOWN[name]
    return Base(
        name=name,
        revision=None,
        path=Path(name),
        origin="hub",
        sha256="0" * 64,
        licence=None,
        architecture="unknown",
        num_layers=layers,
        num_heads=heads,
        hidden_size=width,
        vocab_size=vocabulary,
        num_parameters=parameters,
    )


def is_base_here(name: str, settings: Settings) -> bool:
    """Check whether a base can be had without the network."""
    from huggingface_hub.constants import HF_HUB_CACHE  # noqa: PLC0415 - loads in a command alone

    if Path(name).is_dir() or (settings.cache_root / "base_models" / name.replace("/", "--") / RECORD).is_file():
        return True
    hubs = (settings.cache_root / "base_models" / HUB, Path(HF_HUB_CACHE))
    return any(any(hub.glob(f"models--{name.replace('/', '--')}/snapshots/*/*.safetensors")) for hub in hubs)


def measure_corpus(settings: Settings) -> float:
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
