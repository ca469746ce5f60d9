"""Arithmetic of `mens run --minutes` and `mens plan`: fit a run into minutes, estimate presets on GPUs."""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Final, NamedTuple

from pydantic import Field

from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.generation import EvaluationConfig
from mens_pipeline.inference.probe import AT_ONCE, Rates
from mens_pipeline.jobs.device import Device
from mens_pipeline.models.base import Base
from mens_pipeline.storage.validation import Strict
from mens_pipeline.training.plan import MOST_PASSES
from mens_pipeline.training.preflight import choose_quantization, estimate_memory, layer_bytes
from mens_pipeline.training.presets import Named
from mens_pipeline.training.recipe import Recipe

GATE_SECONDS: Final = 4.0
_SCORING: Final = 15.0
"""Seconds to prepare prompts, score completions and run their tests."""

_MOST_EVALUATION: Final = 0.5
"""Largest share of the available time for evaluation; training gets the rest."""

_ROOM: Final = 1.25
"""Ask for more steps than the probe predicts; the time budget of training ends them."""

_LEAST_STEPS: Final = 3

_ROW_LENGTH: Final = 160
"""Tokens of a row of the seed data, prompt included."""

_GPU_SHARE: Final = 0.3
"""Share of peak FLOP/s and of peak bandwidth that a GPU reaches, by published figures; not measured here."""

_START: Final = 20.0
"""Seconds to load libraries and a small base; loading 8 GB takes as long again."""


class SuiteSize(Strict):
    """How much of the eval suite a run asks; a number above the total takes all."""

    heldout_tasks: int = Field(ge=1, description="Held-out prompts of one round, by whole files.")
    benchmark_tasks: int = Field(ge=0, description="Benchmark tasks.")
    base_tasks: int = Field(ge=1, description="About how many of these prompts the base gets.")
    few_shot_tasks: int = Field(ge=0, description="Tasks that the base gets with examples in its prompt.")
    family_tasks: int = Field(ge=0, description="Synthetic tasks per group.")
    infill_holes: int = Field(ge=0, description="Holes that the adapter fills.")
    infill_lines: int = Field(ge=1, description="Single-line holes among these that models without a suffix get.")


class SuiteCounts(NamedTuple):
    """Counts of the whole eval suite.

    Attributes:
        heldout: Held-out prompts of the first round and of all rounds.
        benchmark: Benchmark tasks.
        with_tests: Share of the tasks with hidden tests; the base gets all of them.
        config: Decoding, and the other parts of the evaluation.
        has_champion: Whether a champion completes the same prompts.
    """

    heldout: tuple[int, int]
    benchmark: int
    with_tests: float
    config: EvaluationConfig
    has_champion: bool = False

    def take_share(self, share: float) -> SuiteSize:
        """Return a part of the suite: 0-1 grows prompts of the gates, 1-2 adds other figures, 2-3 the reserve."""
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
    """Rows that a recipe shows: optimizer steps, tokens of all steps, validation tokens."""

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
        """Return how many steps fit into a budget."""
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

    Evaluation gets up to half of the time, first for the prompts that the gates judge by. Training gets the rest.

    Args:
        minutes: Of the whole run.
        spent: Seconds already used.
        rates: Measured speeds.
        rows: What the recipe would show without a limit.
        recipe: The recipe.
        suite: The whole eval suite.

    Raises:
        RefusedError: Not even a few steps and prompts fit; the message says how many minutes would do.
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
    """Data sheet of a GPU: memory (GB), dense bfloat16 products (TFLOP/s), memory bandwidth (GB/s)."""

    name: str
    memory_gb: float
    tflops: float
    bandwidth: float

    def estimate_rates(self, base: Base) -> Rates:
        """Estimate the speeds of training, with recomputed activations, and of generation."""
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
"""From NVIDIA's data sheets: bfloat16 products with float32 accumulation, without sparsity."""


class PresetEstimate(NamedTuple):
    """Estimate of a preset: steps; on its GPU also seconds of training and evaluation, and memory in MB.

    `gpu` is None if `auto` never picks the preset for a GPU.
    """

    preset: str
    recipe: Recipe
    rows: Rows
    gpu: str | None = None
    training: float = 0.0
    evaluation: float = 0.0
    memory_mb: float = 0.0


def estimate_presets(
    presets: Mapping[str, Named], base: Base, tokens: float, suite: SuiteCounts
) -> Iterator[PresetEstimate]:
    """Estimate each preset on the smallest GPU that `auto` picks it for; `tokens` are those of an epoch."""
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
