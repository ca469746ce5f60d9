"""Estimate the time of a run of the whole graph, stage by stage, and turn the dial of `mens run --minutes`.

Pure arithmetic: measured or estimated `Rates` times how much is trained and asked.
"""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Final, NamedTuple

from pydantic import Field

from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generation import EvaluationConfig
from mens_pipeline.inference.probe import Rates, estimated_rates
from mens_pipeline.jobs.device import Device
from mens_pipeline.models.base import Base
from mens_pipeline.storage.validation import Strict
from mens_pipeline.training.plan import MOST_PASSES
from mens_pipeline.training.preflight import choose_quantization, estimate_memory, fits_dense, layer_bytes
from mens_pipeline.training.presets import Named
from mens_pipeline.training.recipe import Recipe

CORPUS: Final = "corpus"
TRAINING: Final = "training"
EVALUATION: Final = "evaluation"
GATE: Final = "gate"

_CORPUS_CHARACTERS: Final = 88e6
"""Of Vox that take as long to analyse as the corpus stages of the seed data take on one core; 0.4 of it by the size."""

_SEED_CHARACTERS: Final = 480_000
_CORPUS_CORES: Final = 2
"""More help little: some of the stages are one process."""

_SCORING: Final = 15.0
"""Seconds in which prompts are prepared, and completions scored and their tests run."""

_ROW_LENGTH: Final = 160
"""Tokens of a row of the seed data, with the prompt before it."""

_LIBRARIES_MB: Final = 1000
"""Of the deep learning stack and the allocator, beside what is computed."""

_SHAPES_MB: Final = 1700
"""Megabytes that a training on a CPU grows by, since oneDNN keeps memory for each new shape of a product: the first
step of `smol` takes 1.7 GB, as its sizes say; runs of 160 to 400 steps ended at 3.6 to 5.4 GB."""

_GATE_SECONDS: Final = 4.0
_MOST_EVALUATION: Final = 0.5
"""Share of the time of the dial that evaluation takes at most; training gets the rest, and what is left over."""

_ROOM: Final = 1.25
"""Steps that the dial asks for beyond what the probe says will fit: the budget of training decides."""

_LEAST_STEPS: Final = 3


class SuiteSize(Strict):
    """Numbers of tasks of the eval suite to evaluate on; a number above what there is takes all."""

    heldout_tasks: int = Field(ge=1, description="Held-out prompts, by whole files, in one round.")
    benchmark_tasks: int = Field(ge=0, description="Tasks of the benchmark.")
    base_tasks: int = Field(ge=1, description="About how many of these the base is asked.")
    few_shot_tasks: int = Field(ge=0, description="Tasks that the base is asked with examples in its prompt.")
    family_tasks: int = Field(ge=0, description="Synthetic tasks of each group.")
    infill_holes: int = Field(ge=0, description="Holes that the adapter fills.")
    infill_lines: int = Field(ge=1, description="Of these, lines that models without a suffix are asked for.")


class Suite(NamedTuple):
    """The whole eval suite of a run.

    Attributes:
        heldout: Held-out prompts of the first round, and of all rounds.
        benchmark: Tasks of the benchmark.
        with_tests: Share of the tasks that have hidden tests; the base is asked all of these.
        config: What is asked besides, and how.
        has_champion: Whether an adapter is in use, which is asked as well.
    """

    heldout: tuple[int, int]
    benchmark: int
    with_tests: float
    config: EvaluationConfig
    has_champion: bool = False

    def take_share(self, share: float) -> SuiteSize:
        """Return a part: up to 1 grows what the gates rest on, up to 2 what stands beside it, up to 3 the reserve."""
        main, side, reserve = (min(1.0, max(0.0, share - start)) for start in (0.0, 1.0, 2.0))
        config, (first, every) = self.config, self.heldout
        base, few = config.base_tasks or first + self.benchmark, config.few_shot_tasks
        return SuiteSize(
            heldout_tasks=max(1, round(first * main + (every - first) * reserve)),
            benchmark_tasks=max(min(1, self.benchmark), round(self.benchmark * main)),
            base_tasks=max(1, round(base * main)),
            few_shot_tasks=round((first if few is None else few) * side),
            family_tasks=round(config.family_tasks * side),
            infill_holes=round(config.infill_holes * side),
            infill_lines=max(1, round(config.infill_lines * side)),
        )


def corpus_seconds(characters: int, rate: float, cores: int) -> float:
    """Return the seconds of the corpus stages; so many characters of Vox, analysed at so many a second on one core."""
    work = _CORPUS_CHARACTERS * (0.6 + 0.4 * characters / _SEED_CHARACTERS)
    return work / rate / min(_CORPUS_CORES, max(1, cores))


def evaluation_seconds(rates: Rates, suite: Suite, size: SuiteSize) -> float:
    """Return the seconds of an evaluation: what is read and written by adapter and base, with their starts."""
    tasks = size.heldout_tasks + size.benchmark_tasks
    of_base = max(min(size.base_tasks, tasks), ceil(suite.with_tests * tasks))
    # Tokens read and written as the evaluation after 162 steps had them on average (docs/results.md). Of the adapter
    # with second tries: 36 % of the tasks and 45 % of the holes, each constrained, at 0.78 of the speed.
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
    """What a recipe trains on: optimizer steps, tokens of all of them, and tokens that measure at the end."""

    num_steps: int
    tokens: float
    validation: float = 0.0

    @property
    def step(self) -> float:
        """Tokens of a step."""
        return self.tokens / max(1, self.num_steps)

    def seconds(self, rates: Rates, max_minutes: float | None) -> float:
        """Return the seconds of training, within its budget, with loading and with the loss on other files."""
        limit = float("inf") if max_minutes is None else 60 * max_minutes
        return rates.train_start + min(limit, self.tokens * rates.train_token) + self.validation * rates.train_token / 3

    def fitting(self, rates: Rates, max_minutes: float | None) -> int:
        """Return the steps that fit a budget."""
        each = self.step * rates.train_token
        return self.num_steps if max_minutes is None else min(self.num_steps, max(1, int(60 * max_minutes / each)))


def planned_rows(recipe: Recipe, tokens: float) -> Rows:
    """Estimate what a recipe trains on from sizes alone: an epoch has so many tokens, in rows like the seed data's."""
    rows = recipe.rows_at_once * min(recipe.max_length, _ROW_LENGTH)
    step = min(recipe.tokens_at_once or rows, rows) * recipe.accumulation
    steps = max(1, round(tokens * recipe.num_train_epochs / step))
    steps = min(steps, recipe.max_steps or steps)
    return Rows(steps, steps * step)


class Dial(Strict):
    """What the minutes of a run come to."""

    max_minutes: float = Field(gt=0, description="The budget of training.")
    max_steps: int = Field(ge=1, description="Optimizer steps at most; the budget decides.")
    num_train_epochs: int = Field(ge=1)
    suite: SuiteSize

    def fields(self) -> dict[str, float]:
        """Return the fields of the recipe that it sets."""
        return self.model_dump(exclude={"suite"})


def turn_dial(  # noqa: PLR0913, PLR0917 - all that a run can be cut by
    minutes: float, spent: float, rates: Rates, rows: Rows, recipe: Recipe, suite: Suite, correction: float = 1.0
) -> Dial:
    """Choose steps, prompts, samples and holes with which what is left of the minutes is used and not exceeded.

    Of the whole eval suite what fits half of the time is asked: first what the gates judge by, then what stands beside
    it. Training gets the rest. `spent` are seconds that are gone; evaluations took `correction` times what was planned.

    Raises:
        RefusedError: Not even a few steps and prompts fit.
    """
    sizes = [suite.take_share(percent / 100) for percent in range(301)]
    costs = [correction * evaluation_seconds(rates, suite, size) for size in sizes]
    step = rows.step * rates.train_token
    fixed = spent + _GATE_SECONDS + rows.seconds(rates, 0.0)
    left, needed = 60 * minutes - fixed, costs[0] + _LEAST_STEPS * step
    if needed > left:
        least = ceil((fixed + needed) / 60)
        raise RefusedError(f"--minutes {minutes:g}: a few steps and prompts take {least} min here. Ask for {least}.")
    budget = max(costs[0], _MOST_EVALUATION * left)
    size, cost = [one for one in zip(sizes, costs, strict=True) if one[1] <= budget][-1]
    steps = max(_LEAST_STEPS, ceil(_ROOM * (left - cost) / step))
    epochs = recipe.num_train_epochs if steps <= rows.num_steps else max(recipe.num_train_epochs, MOST_PASSES)
    max_minutes = max(0.05, round((left - cost) / 60, 2))
    return Dial(max_minutes=max_minutes, max_steps=steps, num_train_epochs=epochs, suite=size)


class Stage(Strict):
    """A line of a plan: what a stage does, its seconds and how they are known, and megabytes at most."""

    name: str
    does: str
    seconds: float
    basis: str
    memory_mb: float
    disk_mb: float


def stages_of(  # noqa: PLR0913, PLR0917 - all that a plan rests on
    corpus: float,
    rates: Rates,
    rows: Rows,
    what: tuple[Recipe, Base, Device],
    suite: tuple[Suite, SuiteSize],
    basis: str,
    correction: float = 1.0,
) -> tuple[Stage, ...]:
    """Return the stages of a run in order; `corpus` are the seconds of the first, `correction` as for `turn_dial`."""
    (recipe, base, device), (whole, size) = what, suite
    steps = rows.fitting(rates, recipe.max_minutes)
    fit = f"{steps} steps" if steps == rows.num_steps else f"{steps} of {rows.num_steps} steps"
    tokens = f"{steps * rows.step:,.0f} tokens, rank {recipe.lora_r}, rows of {recipe.max_length}"
    samples = f", {whole.config.num_samples} samples" if whole.config.num_samples > 1 else ""
    prompts = f"{size.heldout_tasks} held-out and {size.benchmark_tasks} benchmark prompts"
    at_once, dtype = recipe.tokens_at_once or recipe.rows_at_once * recipe.max_length, "bfloat16"
    layer = layer_bytes({"hidden_size": base.hidden_size, "num_attention_heads": base.num_heads}, has_kernels=True)
    chosen = recipe.model_copy(update={"quantization": choose_quantization(recipe, base, at_once, device, layer)})
    computed_on = device.kind, dtype if device.has_bfloat16 else "float32"
    trained = estimate_memory(base, chosen, at_once, computed_on, layer)
    libraries, shapes = (_LIBRARIES_MB, _SHAPES_MB) if device.kind == "cpu" else (0, 0)
    memory = (rates.memory_mb or trained.total + libraries) + shapes
    width = 0.75 if not fits_dense(device, base.num_parameters, dtype) else 4 if device.kind == "cpu" else 2
    held = _LIBRARIES_MB + base.num_parameters * width / 2**20
    lines = (
        (CORPUS, "pairs, held-out split, train set", corpus, "estimated", 500, 6),
        (TRAINING, f"{fit}, {tokens}", rows.seconds(rates, recipe.max_minutes), basis, memory, trained.checkpoints),
        (
            EVALUATION,
            f"{prompts}{samples}, {size.infill_holes} holes",
            correction * evaluation_seconds(rates, whole, size),
            basis,
            held,
            2,
        ),
        (GATE, "verdict, report, promotion", _GATE_SECONDS, "estimated", 500, 1),
    )
    return tuple(Stage(**dict(zip(Stage.model_fields, line, strict=True))) for line in lines)


class Gpu(NamedTuple):
    """A GPU as its maker describes it: gigabytes, dense products in 16 bits (TFLOP/s), memory (GB/s), watts."""

    name: str
    memory_gb: float
    tflops: float
    bandwidth: float
    watts: float


GPUS: Final = (
    Gpu("RTX 4060", 8, 30, 272, 115),
    Gpu("RTX 4080", 16, 97, 717, 320),
    Gpu("RTX 3090", 24, 71, 936, 350),
    Gpu("A100 40 GB", 40, 312, 1555, 400),
    Gpu("H100", 80, 989, 3350, 700),
    Gpu("H200", 141, 989, 4800, 700),
)
"""The data sheets of NVIDIA; products of bfloat16 that sum in float32, without sparsity."""


class PricedPreset(NamedTuple):
    """Estimated steps and stages of a preset on its GPU; without GPU and stages where `auto` never picks it."""

    preset: str
    recipe: Recipe
    rows: Rows
    gpu: Gpu | None
    stages: tuple[Stage, ...]


def price_presets(
    presets: Mapping[str, Named], base: Base, tokens: float, suite: Suite, corpus: float
) -> Iterator[PricedPreset]:
    """Yield all presets, those that `auto` picks on the smallest GPU that each is for; `tokens` are of an epoch."""
    for name, preset in presets.items():
        recipe = Recipe.model_validate(preset.values)
        rows = planned_rows(recipe, tokens)
        if preset.min_vram_gb is None:
            yield PricedPreset(name, recipe, rows, None, ())
            continue
        gpu = next(one for one in GPUS if one.memory_gb >= preset.min_vram_gb)
        rates = estimated_rates(base, 1000 * gpu.tflops, gpu.bandwidth, is_cpu=False)
        what = recipe, base, Device("cuda", gpu.name, gpu.memory_gb, has_bfloat16=True)
        stages = stages_of(corpus, rates, rows, what, (suite, suite.take_share(2.0)), "estimated")
        yield PricedPreset(name, recipe, rows, gpu, stages)
