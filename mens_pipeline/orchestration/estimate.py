"""Turn the dial of `mens run --minutes`, and estimate what presets take on GPUs. Pure arithmetic."""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Final, NamedTuple

from pydantic import Field

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.config import EvaluationConfig
from mens_pipeline.inference.probe import AT_ONCE, Rates
from mens_pipeline.jobs.device import Device
from mens_pipeline.models.base import Base
from mens_pipeline.storage.validation import Strict
from mens_pipeline.training.plan import MOST_PASSES
from mens_pipeline.training.preflight import choose_quantization, estimate_memory, layer_bytes
from mens_pipeline.training.presets import Preset
from mens_pipeline.training.recipe import Recipe

GATE_SECONDS: Final = 4.0
_SCORING: Final = 15.0
"""Seconds in which prompts are prepared, and completions scored and their tests run."""

_MOST_EVALUATION: Final = 0.5
"""Share of the time of the dial that evaluation takes at most; training gets the rest, and what is left over."""

_ROOM: Final = 1.25
"""Steps that the dial asks for beyond what the probe says will fit: the budget of training decides."""

_LEAST_STEPS: Final = 3

_ROW_LENGTH: Final = 160
"""Tokens of a row of the seed data, with the prompt before it."""

_GPU_SHARE: Final = 0.3
"""Of products and of the memory of a GPU: taken from what others report, and not measured."""

_START: Final = 20.0
"""Seconds in which a process loads libraries and a small base; a large base takes as long again for 8 GB."""


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
    minutes: float, spent: float, rates: Rates, rows: Rows, recipe: Recipe, suite: Suite
) -> Dial:
    """Choose steps, prompts, samples and holes with which what is left of the minutes is used and not exceeded.

    Of the whole eval suite what fits half of the time is asked: first what the gates judge by, then what stands beside
    it. Training gets the rest. `spent` are seconds that are gone.

    Raises:
        RefusedError: Not even a few steps and prompts fit.
    """
    sizes = [suite.take_share(percent / 100) for percent in range(301)]
    costs = [evaluation_seconds(rates, suite, size) for size in sizes]
    step = rows.step * rates.train_token
    fixed = spent + GATE_SECONDS + rows.seconds(rates, 0.0)
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


class Gpu(NamedTuple):
    """A GPU as its maker describes it: gigabytes, dense products in 16 bits (TFLOP/s), memory (GB/s)."""

    name: str
    memory_gb: float
    tflops: float
    bandwidth: float

    def estimate_rates(self, base: Base) -> Rates:
        """Estimate the speeds of training, which computes all products once more, and of completions."""
        frozen = max(1, base.num_parameters - base.vocab_size * base.hidden_size)
        products, start = 1e12 * self.tflops * _GPU_SHARE, _START + 2 * base.num_parameters / 8e9 * _START
        read, weights = 2 * base.num_parameters / products, 2 * base.num_parameters / (1e9 * self.bandwidth)
        return Rates(
            train_token=6 * frozen / products,
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
"""The data sheets of NVIDIA; products of bfloat16 that sum in float32, without sparsity."""


class PresetEstimate(NamedTuple):
    """A preset: its steps, and on its GPU seconds of training and evaluation and megabytes.

    Without a GPU, where `auto` never picks it, these are zero.
    """

    preset: str
    recipe: Recipe
    rows: Rows
    gpu: str | None = None
    training: float = 0.0
    evaluation: float = 0.0
    memory_mb: float = 0.0


def estimate_presets(
    presets: Mapping[str, Preset], base: Base, tokens: float, suite: Suite
) -> Iterator[PresetEstimate]:
    """Yield all presets, those that `auto` picks on the smallest GPU that each is for; `tokens` are of an epoch."""
    layer = layer_bytes({"hidden_size": base.hidden_size, "num_attention_heads": base.num_heads}, has_kernels=True)
    for name, preset in presets.items():
        recipe = Recipe.model_validate(preset.values)
        at_once = recipe.tokens_at_once or recipe.rows_at_once * recipe.max_length
        row_tokens = recipe.rows_at_once * min(recipe.max_length, _ROW_LENGTH)
        step = min(recipe.tokens_at_once or row_tokens, row_tokens) * recipe.accumulation
        steps = max(1, round(tokens * recipe.num_train_epochs / step))
        steps = min(steps, recipe.max_steps or steps)
        rows = Rows(steps, steps * step)
        if preset.min_vram_gb is None:
            yield PresetEstimate(name, recipe, rows)
            continue
        gpu = next(one for one in GPUS if one.memory_gb >= preset.min_vram_gb)
        rates, device = gpu.estimate_rates(base), Device("cuda", gpu.name, gpu.memory_gb, has_bfloat16=True)
        held = recipe.model_copy(update={"quantization": choose_quantization(recipe, base, at_once, device, layer)})
        yield PresetEstimate(
            name,
            recipe,
            rows,
            gpu.name,
            rows.seconds(rates, recipe.max_minutes),
            evaluation_seconds(rates, suite, suite.take_share(2.0)),
            estimate_memory(base, held, at_once, ("cuda", "bfloat16"), layer).total,
        )
