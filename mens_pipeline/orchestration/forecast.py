"""Forecast a run: fit it into minutes, plan it from measured speeds, estimate presets on GPUs.

The plan of `mens run --minutes` is an artifact: the same command on the same data reuses it, and therefore everything
made with it.
"""

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple

from pydantic import Field

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.evaluation.infill import infill_decoding, infill_tasks
from mens_pipeline.evaluation.suite import divide_into_rounds
from mens_pipeline.evaluation.tasks import Task, benchmark_tasks, heldout_tasks
from mens_pipeline.inference.generation import EvaluationConfig
from mens_pipeline.inference.prepare import completion_fits
from mens_pipeline.inference.probe import AT_ONCE, Rates, SpeedProbe
from mens_pipeline.jobs.device import UNCOUNTED, Device
from mens_pipeline.models.base import Base
from mens_pipeline.models.find_base import DEFAULT_CPU_MODEL, DEFAULT_CUDA_MODEL, is_base_here
from mens_pipeline.orchestration.choices import resolve_choices
from mens_pipeline.promotion.history import CHAMPION
from mens_pipeline.promotion.policy import load_gate_policy
from mens_pipeline.settings import EVALUATION, GATE_POLICY, Settings, open_store, read_thresholds
from mens_pipeline.storage.kinds import Kind, PlanFile
from mens_pipeline.storage.store import Artifact, ArtifactStore, key_of
from mens_pipeline.storage.validation import Strict, read_document
from mens_pipeline.storage.yaml_file import load_model
from mens_pipeline.training.plan import EVALUATIONS, MOST_PASSES
from mens_pipeline.training.preflight import LINEAR, estimate_memory, fit_memory, layer_bytes
from mens_pipeline.training.prepare import PreparedRun, prepare_run
from mens_pipeline.training.presets import Preset, ResolvedRecipe
from mens_pipeline.training.recipe import Recipe

GATE_SECONDS: Final = 4.0
_SCORING: Final = 15.0  # seconds to prepare prompts, score completions and run their tests
_MOST_EVALUATION: Final = 0.5
"""Largest share of the available time for evaluation; training gets the rest."""

_ROOM: Final = 1.25
"""Factor by which the planned steps exceed the predicted ones; the time budget ends the training."""

_LEAST_STEPS: Final = 3
_ROW_LENGTH: Final = 160  # tokens of a row of the seed data, prompt included
_GPU_SHARE: Final = 0.3
"""Share of peak FLOP/s and of peak bandwidth that generation reaches on a GPU, by published figures."""

_PRODUCTS_SHARE, _TRAFFIC_SHARE = 0.6, 0.8
"""The same shares in training, of products and of all other operations, which are memory-bound; not measured."""

_TRAFFIC: Final = {True: 2_000, False: 4_400}
"""Bytes that training moves per token, layer and unit of width, with and without kernels of linear attention.

Counted on a CPU from the operations of Qwen3.5-4B on rows of 512 tokens: 164 and 359 MB per token.
"""

_HEADS: Final = {"linear_num_value_heads": 32, "linear_value_head_dim": 128, "linear_key_head_dim": 128}
_LAYER: Final = {"intermediate_size": 9216, "layer_types": [LINEAR], **_HEADS}
"""The largest layer of Qwen3.5-4B, the base of all preset estimates."""

_START: Final = 20.0  # seconds to load libraries and a small base; loading 8 GB takes as long again


class SuiteSize(Strict):
    """Numbers of tasks and holes in the eval suite of a run; a number above the total selects all."""

    heldout_tasks: int = Field(ge=1, description="Held-out prompts of one round, from whole files.")
    benchmark_tasks: int = Field(ge=0, description="Benchmark tasks.")
    base_tasks: int = Field(ge=1, description="Approximate number of these prompts for the base.")
    few_shot_tasks: int = Field(ge=0, description="Tasks for the base with examples in its prompt.")
    family_tasks: int = Field(ge=0, description="Synthetic tasks per group.")
    infill_holes: int = Field(ge=0, description="Holes that the adapter fills.")
    infill_lines: int = Field(ge=1, description="Single-line holes among these for models without a suffix.")


class SuiteCounts(NamedTuple):
    """Counts of the whole eval suite.

    `heldout` counts the prompts of the first round and of all rounds, `tasks` holds all of them. `with_tests` is the
    share of tasks with hidden tests; the base completes all of these. With `has_champion`, so does the champion.
    """

    heldout: tuple[int, int]
    benchmark: int
    with_tests: float
    config: EvaluationConfig
    has_champion: bool = False
    tasks: tuple[Task, ...] = ()

    def take_share(self, share: float) -> SuiteSize:
        """Return a part of the suite: up to 1 prompts for the gates, up to 2 other figures, up to 3 the reserve."""
        main, side, reserve = (min(1.0, max(0.0, share - start)) for start in (0.0, 1.0, 2.0))
        config, (first, every) = self.config, self.heldout
        base, few = config.base_tasks or first + self.benchmark, config.few_shot_tasks
        return SuiteSize(
            heldout_tasks=max(1, round(first * main + (every - first) * reserve)),
            benchmark_tasks=max(min(1, self.benchmark), round(self.benchmark * main)),
            base_tasks=max(1, round(base * main)),
            few_shot_tasks=round(min(first + self.benchmark, first if few is None else few) * side),
            family_tasks=round(config.family_tasks * side),
            infill_holes=round(config.infill_holes * side),
            infill_lines=max(1, round(config.infill_lines * side)),
        )


def evaluation_seconds(rates: Rates, suite: SuiteCounts, size: SuiteSize) -> float:
    """Estimate the seconds of an evaluation from the tokens that each model reads and writes."""
    tasks = size.heldout_tasks + size.benchmark_tasks
    of_base = max(min(size.base_tasks, tasks), ceil(suite.with_tests * tasks))
    # (number, tokens read, tokens written), the means of the evaluation after 162 steps (docs/results.md). For the
    # adapter they include the constrained second try of 36 % of the tasks and 45 % of the holes, at 0.78 of the speed.
    asked = [
        (tasks, 163, 152),
        (of_base, 140, 230),
        (size.few_shot_tasks, 770, 256),
        (2 * size.family_tasks, 95, 64),
        (size.infill_holes, 167, 39),
        (2 * min(size.infill_lines, size.infill_holes), 80, 12),
    ]
    asked += [(tasks, 120, 90), (size.infill_holes, 115, 14)] if suite.has_champion else []
    most = suite.config.max_new_tokens
    seconds = sum(number * rates.completion(read, min(written, most)) for number, read, written in asked)
    return seconds * suite.config.num_samples + (2 + suite.has_champion) * rates.generate_start + _SCORING


class Rows(NamedTuple):
    """Amount of training of a recipe: optimizer steps, tokens of all steps, validation tokens."""

    num_steps: int
    tokens: float
    validation: float = 0.0

    @property
    def step(self) -> float:
        """Tokens per step."""
        return self.tokens / max(1, self.num_steps)

    def seconds(self, rates: Rates, max_minutes: float | None) -> float:
        """Estimate the seconds of training within its budget, loading and validation included."""
        limit = float("inf") if max_minutes is None else 60 * max_minutes
        return rates.train_start + min(limit, self.tokens * rates.train_token) + self.validation * rates.train_token / 3

    def steps_within(self, rates: Rates, max_minutes: float | None) -> int:
        """Return the number of steps that fit into a budget."""
        each = self.step * rates.train_token
        return self.num_steps if max_minutes is None else min(self.num_steps, max(1, int(60 * max_minutes / each)))


class Dial(Strict):
    """Budget, steps and suite that fit into the minutes of a run."""

    max_minutes: float = Field(gt=0, description="Time budget of training.")
    max_steps: int = Field(ge=1, description="Largest number of optimizer steps; the budget ends them.")
    num_train_epochs: int = Field(ge=1)
    suite: SuiteSize

    def fields(self) -> dict[str, float]:
        """Return the recipe fields that it sets."""
        return self.model_dump(exclude={"suite"})


def turn_dial(  # noqa: PLR0913, PLR0917 - everything a run can be cut by
    minutes: float, spent: float, rates: Rates, rows: Rows, recipe: Recipe, suite: SuiteCounts
) -> Dial:
    """Choose steps, prompts and holes that use the remaining minutes without exceeding them.

    Evaluation gets up to half of the time, first for the prompts of the gates. Training gets the rest.
    `spent` are the seconds used so far, `rows` the training without a limit. If not even a few steps and prompts fit,
    a `RefusedError` names the minutes that are needed.
    """
    sizes = [suite.take_share(percent / 100) for percent in range(301)]
    costs = [evaluation_seconds(rates, suite, size) for size in sizes]
    step = rows.step * rates.train_token
    fixed = spent + GATE_SECONDS + rows.seconds(rates, 0.0)
    left, needed = 60 * minutes - fixed, costs[0] + _LEAST_STEPS * step
    if needed > left:
        least = ceil((fixed + needed) / 60)
        raise RefusedError(f"--minutes {minutes:g}: a few steps and prompts need {least} min. Use --minutes {least}.")
    budget = max(costs[0], _MOST_EVALUATION * left)
    size, cost = [one for one in zip(sizes, costs, strict=True) if one[1] <= budget][-1]
    steps = max(_LEAST_STEPS, ceil(_ROOM * (left - cost) / step))
    epochs = recipe.num_train_epochs if steps <= rows.num_steps else max(recipe.num_train_epochs, MOST_PASSES)
    max_minutes = max(0.05, round((left - cost) / 60, 2))
    return Dial(max_minutes=max_minutes, max_steps=steps, num_train_epochs=epochs, suite=size)


class Gpu(NamedTuple):
    """Data sheet of a GPU: memory (GB), dense bfloat16 products (TFLOP/s), memory bandwidth (GB/s)."""

    name: str
    memory_gb: float
    tflops: float
    bandwidth: float

    def estimate_rates(self, base: Base, *, has_kernels: bool) -> Rates:
        """Estimate the speeds of training, with recomputed activations, and of generation."""
        moved = base.num_layers * base.hidden_size * _TRAFFIC[has_kernels] / (1e9 * self.bandwidth * _TRAFFIC_SHARE)
        frozen = max(1, base.num_parameters - base.vocab_size * base.hidden_size)
        products, start = 1e12 * self.tflops * _GPU_SHARE, _START + 2 * base.num_parameters / 8e9 * _START
        read, weights = 2 * base.num_parameters / products, 2 * base.num_parameters / (1e9 * self.bandwidth)
        return Rates(
            train_token=6 * frozen / (1e12 * self.tflops * _PRODUCTS_SHARE) + moved,
            train_start=start,
            generate_start=start,
            read_token=read,
            write_token=weights / _GPU_SHARE / AT_ONCE + read,
        )


GPUS: Final = (
    Gpu("RTX 4060", 8, 30, 272),
    Gpu("RTX 4080", 16, 97, 717),
    Gpu("RTX 3090", 24, 71, 936),
    Gpu("A100 40 GB", 40, 312, 1555),
    Gpu("H100", 80, 989, 3350),
    Gpu("H200", 141, 989, 4800),
)
"""From NVIDIA's data sheets: bfloat16 products with float32 accumulation, without sparsity."""


class PresetEstimate(NamedTuple):
    """Estimate of a preset on its GPU: steps, seconds of training and evaluation, and memory in MB."""

    preset: str
    recipe: Recipe
    rows: Rows
    gpu: str
    training: float
    evaluation: float
    memory_mb: float


def estimate_presets(
    presets: Mapping[str, Preset], base: Base, tokens: float, suite: SuiteCounts, *, has_kernels: bool
) -> Iterator[PresetEstimate]:
    """Estimate each preset that `auto` can pick, on the smallest GPU with enough memory, if there is one.

    `tokens` are per epoch.
    With `has_kernels`, flash-linear-attention computes the layers of linear attention.
    """
    sizes = {"hidden_size": base.hidden_size, "num_attention_heads": base.num_heads}
    layer = layer_bytes({**_LAYER, **sizes}, has_kernels=has_kernels)
    for name, preset in presets.items():
        least = preset.min_vram_gb
        gpu = next((one for one in GPUS if one.memory_gb >= least), None) if least is not None else None
        if gpu is None:
            continue
        recipe = Recipe.model_validate(preset.values)
        at_once = recipe.tokens_at_once or recipe.rows_at_once * recipe.max_length
        row_tokens = recipe.rows_at_once * min(recipe.max_length, _ROW_LENGTH)
        step = min(recipe.tokens_at_once or row_tokens, row_tokens) * recipe.accumulation
        steps = max(1, round(tokens * recipe.num_train_epochs / step))
        steps = min(steps, recipe.max_steps or steps)
        rows = Rows(steps, steps * step)
        rates = gpu.estimate_rates(base, has_kernels=has_kernels)
        device = Device("cuda", gpu.name, gpu.memory_gb, has_bfloat16=True)
        held = fit_memory(recipe, base, at_once, device, layer)
        yield PresetEstimate(
            name,
            held,
            rows,
            gpu.name,
            rows.seconds(rates, recipe.max_minutes),
            evaluation_seconds(rates, suite, suite.take_share(2.0)),
            estimate_memory(base, held, at_once, ("cuda", "bfloat16"), layer).total,
        )


_MAKE_IT: Final = "Run: mens run --no-train"
_PROBE: Final = ".probe"
_SHORT_PRESET: Final = "cpu_demo"
_LONG_PRESET: Final = "cpu_night"
_MUCH: Final = 2
"""If more than this multiple of the short CPU preset's steps fits, the night preset is better."""


class PlannedStage(Strict):
    """A stage of a plan with its seconds."""

    name: str
    does: str
    seconds: float


class RunPlan(Strict):
    """Plan of a run."""

    preset: str | None = Field(default=None, description="Preset that the planner chose for the minutes, if any.")
    dial: Dial | None = Field(default=None, description="Budget, steps and suite that fit; null without minutes.")
    stages: tuple[PlannedStage, ...]
    note: str = Field(default="", description="A warning for people.")

    def configs(self, training: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the run configuration of each asset; `training` holds the settings of the command line."""
        assert self.dial is not None, "of a run with minutes"  # noqa: S101 - an internal invariant
        preset = {} if self.preset is None else {"preset": self.preset}
        adapter = {**training, "overrides": {**training["overrides"], **self.dial.fields()}, **preset}
        return {"qlora_adapter": adapter, "eval_results": {"suite": self.dial.suite.model_dump()}}


class Counts(NamedTuple):
    """Amount of training, tokens of the train set, and counts of the eval suite."""

    rows: Rows
    tokens: float
    suite: SuiteCounts


@dataclass(frozen=True)
class Planner:
    """Plans a run on this machine with the newest train set.

    `choice` holds the recipe, preset and domain that a person named. `minutes` limits the whole run, counted from
    `began` by `perf_counter`; None means no limit.
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

        Only a plan that is kept may download the base. `RefusedError` if train set or base is missing, the minutes are
        too few, or the probe failed.
        """
        resolved = self._resolve()
        default = DEFAULT_CUDA_MODEL if self.device.kind == "cuda" else DEFAULT_CPU_MODEL
        name, cache = resolved.recipe.model_name_or_path or default, self.settings.cache_root / "base_models"
        if not is_kept and not is_base_here(name, cache):
            advice = "Download it with `mens run`; a plan downloads nothing."
            raise RefusedError(f"{name}: this base is not on this machine, so nothing can be measured. {advice}")
        run, counts = self._prepare(resolved)
        inputs = self._inputs(resolved, run.base)
        if not is_kept:
            found = self._store.get(Kind.RUN_PLAN, key_of(inputs))
            return _read_plan(found) if found is not None else self._measure(resolved, run, counts), counts

        def write(folder: Path) -> dict[str, Any]:
            plan = self._measure(resolved, run, counts)
            (folder / PlanFile.PLAN).write_text(plan.model_dump_json(indent=2) + "\n", encoding="utf-8")
            return {}

        return _read_plan(self._store.build(Kind.RUN_PLAN, inputs, write)[0]), counts

    @cached_property
    def _store(self) -> ArtifactStore:
        return open_store(self.settings)

    @cached_property
    def _train_set(self) -> Artifact:
        found = self._store.latest(Kind.MIXED_TRAIN_SET)
        if found is None:
            message = "no train set to plan with"
            raise RefusedError(f"{self._store.root}: {message}. {_MAKE_IT}")
        return found

    def _inputs(self, resolved: ResolvedRecipe, base: Base) -> dict[str, Any]:
        config = load_model(EVALUATION, EvaluationConfig).model_dump(mode="json")
        return {
            "machine": f"{platform.node()}, {self.device.name}",
            "minutes": self.minutes,
            "choice": dict(self.choice),
            "set": dict(self.overrides),
            "train": self._train_set.key,
            "base": base.sha256,
            # By the next plan, a name may mean another recipe.
            "recipe": resolved.recipe.model_dump(mode="json"),
            "evaluation": [config, self.settings.benchmark, _has_champion(self._store)],
        }

    def _measure(self, resolved: ResolvedRecipe, run: PreparedRun, counts: Counts) -> RunPlan:
        rates = SpeedProbe(self._store.root / _PROBE, self.device, self.launch, self.log_line).measure(run)
        if self.minutes is None:
            stages = _list_stages(resolved, rates, counts, None)
            return RunPlan(stages=stages, note=_note_size(counts.suite, None, self.settings))
        preset, dial = None, self._turn(rates, counts, resolved)
        is_own = {"preset", "recipe"}.isdisjoint(self.choice) and resolved.preset == _SHORT_PRESET
        if is_own and dial.max_steps > _MUCH * counts.rows.num_steps:
            preset, longer = _LONG_PRESET, self._resolve(_LONG_PRESET)
            dial = self._turn(rates, self._prepare(longer)[1], longer)
        turned = self._resolve(preset, dial)
        stages = _list_stages(turned, rates, self._prepare(turned)[1], dial)
        return RunPlan(preset=preset, dial=dial, stages=stages, note=_note_size(counts.suite, dial, self.settings))

    def _resolve(self, preset: str | None = None, dial: Dial | None = None) -> ResolvedRecipe:
        choice: dict[str, Any] = {**self.choice, **({} if preset is None else {"preset": preset})}
        overrides = {**self.overrides, **(dial.fields() if dial is not None else {})}
        return resolve_choices(self.settings, self.device, **choice, overrides=overrides).resolved

    def _turn(self, rates: Rates, counts: Counts, resolved: ResolvedRecipe) -> Dial:
        assert self.minutes is not None, "only a plan in minutes has a dial"  # noqa: S101 - an internal invariant
        spent = perf_counter() - self.began
        return turn_dial(self.minutes, spent, rates, counts.rows, resolved.recipe, counts.suite)

    def _prepare(self, resolved: ResolvedRecipe) -> tuple[PreparedRun, Counts]:
        is_local = self.settings.launcher == "local"
        run = prepare_run(
            resolved,
            self._train_set.file(TRAIN),
            self._store.root / _PROBE,
            self.device if is_local else replace(self.device, number=UNCOUNTED),
            cache=self.settings.cache_root,
            min_rows=load_gate_policy(GATE_POLICY).min_pairs,
            log_line=self.log_line,
            is_trial=True,
        )
        kinds, data = run.preflight["kinds"].values(), run.preflight["data"]
        mean = data["num_tokens"] / max(1, data["num_train"])
        shown = sum(kind["tokens_shown"] for kind in kinds)
        tokens = sum(kind["tokens"] + kind["tokens_too_long"] for kind in kinds)
        rows = Rows(run.preflight["num_steps"], shown, EVALUATIONS * data["num_validation"] * mean)
        return run, Counts(rows, tokens, _count_suite(run.base, self._train_set, self._store, self.settings))


def _read_plan(plan: Artifact) -> RunPlan:
    return read_document(plan.file(PlanFile.PLAN), RunPlan, "plan", "Delete its folder, and run again.")


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


def _note_size(suite: SuiteCounts, dial: Dial | None, settings: Settings) -> str:
    def check_size(tasks: Sequence[Task]) -> tuple[bool, str]:
        return read_thresholds(settings).check_size(len(tasks), len({task.file for task in tasks}))

    is_enough, size = check_size(suite.tasks)
    if is_enough and dial is not None and dial.suite.heldout_tasks < len(suite.tasks):
        is_enough, size = check_size(divide_into_rounds(suite.tasks, dial.suite.heldout_tasks, 2)[0])
        size = f"{size.partition(';')[0]}; use more minutes"
    return "" if is_enough else f"the gate will refuse (policy {settings.eval_policy}): {size}"


def _count_suite(base: Base, mixed: Artifact, store: ArtifactStore, settings: Settings) -> SuiteCounts:
    split = next((ref for ref in mixed.parents if ref.kind == Kind.HELDOUT_SPLIT), None)
    found = store.get(split.kind, split.key) if split is not None else None
    if found is None:
        raise RefusedError(f"{mixed.path}: its held-out split is gone. {_MAKE_IT}")
    config = load_model(EVALUATION, EvaluationConfig)
    fits = completion_fits(base, config.decoding)
    of_benchmark = benchmark_tasks(load_benchmark(settings.benchmark_dir)) if settings.benchmark else ()
    pairs = list(read_pairs(found.file(HELDOUT)))
    heldout = tuple(task for task in heldout_tasks(pairs) if fits(task.reference))
    holes = infill_tasks(pairs, config.infill_holes, completion_fits(base, infill_decoding(config)))
    bench = [task for task in of_benchmark if fits(task.reference)]
    thresholds = read_thresholds(settings)
    rounds = divide_into_rounds(heldout, thresholds.first_heldout_tasks, thresholds.max_rounds)
    first = sum(map(len, rounds[:1]))
    tested = sum(task.tests is not None for task in (*heldout, *bench)) / max(1, len(heldout) + len(bench))
    config = config.model_copy(update={"infill_holes": len(holes)})
    return SuiteCounts((first, len(heldout)), len(bench), tested, config, _has_champion(store), heldout)


def _has_champion(store: ArtifactStore) -> bool:
    return store.read_pointer(Kind.PROMOTED_ADAPTER, CHAMPION) is not None
