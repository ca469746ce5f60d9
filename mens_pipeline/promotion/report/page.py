"""The report page, one self-contained file: models side by side, or one evaluation in full."""

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mens_pipeline.evaluation.results import EvalResults, InsertScore, ScoredCompletion
from mens_pipeline.evaluation.scores import ModelScores
from mens_pipeline.evaluation.statistics import p_text
from mens_pipeline.evaluation.tasks import FAMILIES, Suite
from mens_pipeline.language import visible_text
from mens_pipeline.promotion.gate import GATES
from mens_pipeline.promotion.policy import GateOutcome, GateStatus
from mens_pipeline.promotion.receipt import Receipt
from mens_pipeline.promotion.report.completions import Group, TaskView, group_by_construct, group_by_passing, task_views
from mens_pipeline.promotion.report.side_by_side import FigureTable, SideBySide, Tone, build_table, list_columns, points

_BRACKETS: Final = re.compile(r" \([^()]*\)")


@dataclass(frozen=True, slots=True)
class GateRow:
    """One gate of the verdict; `word` is `passes`, `refuses`, `undecided` or `warns`."""

    title: str
    word: str
    tone: Tone
    message: str
    measured: str
    required: str

    @property
    def sentence(self) -> str:
        """The message in a sentence, without intervals and probabilities."""
        return _BRACKETS.sub("", self.message).split(";")[0]


@dataclass(frozen=True, slots=True)
class Headline:
    """The verdict, with its gates in order: refusing, undecided, warning, passing."""

    title: str
    tone: Tone
    sentence: str
    gates: tuple[GateRow, ...] = ()


def headline(results: EvalResults, receipt: Receipt | None) -> Headline:
    """Return the headline of a verdict; `No verdict yet` also for a receipt on other models, prompts or adapters."""
    if receipt is None:
        return Headline("No verdict yet", Tone.OPEN, "No gate has checked these figures; no promotion is possible.")
    if receipt.subject is not None and receipt.subject != results.subject:
        other = receipt.subject.adapter_sha256[:12]
        sentence = f"The receipt is for other models or prompts, or adapter {other}; it does not apply to these."
        return Headline("No verdict yet", Tone.OPEN, sentence)
    gates = gate_rows(receipt.gates)
    num_refusing = sum(row.tone is Tone.BAD for row in gates)
    num_open = sum(row.tone is Tone.OPEN for row in gates)
    num_warning = sum(row.tone is Tone.WARN for row in gates)
    warnings = (
        f" {_format_count(num_warning, 'gate')} {'warns' if num_warning == 1 else 'warn'}." if num_warning else ""
    )
    tried = f" It is the {receipt.tried}." if receipt.tried else ""
    if receipt.overall_passed:
        sentence = f"No gate of the policy {receipt.policy} refuses it.{tried}{warnings}"
        return Headline("Good enough to promote", Tone.GOOD, sentence, gates)
    refuse = "refuses" if num_refusing == 1 else "refuse"
    if not num_refusing:
        undecided = f"{_format_count(num_open, 'gate')} of the policy {receipt.policy} could not decide"
        sentence = f"{undecided}: the eval suite was too small for a model so near the threshold.{tried}{warnings}"
        return Headline("Undecided, not promoted", Tone.OPEN, sentence, gates)
    sentence = f"{_format_count(num_refusing, 'gate')} of the policy {receipt.policy} {refuse} it.{tried}{warnings}"
    return Headline("Refused", Tone.BAD, sentence, gates)


def gate_rows(gates: Iterable[GateOutcome]) -> tuple[GateRow, ...]:
    """Return a row for each gate: refusing, undecided, warning, passing."""
    return tuple(sorted(map(_row, gates), key=lambda row: _ORDER[row.tone]))


_ORDER: Final = {Tone.BAD: 0, Tone.OPEN: 1, Tone.WARN: 2, Tone.GOOD: 3}


def _row(gate: GateOutcome) -> GateRow:
    if gate.passed:
        word, tone = "passes", Tone.GOOD
    elif not gate.block:
        word, tone = "warns", Tone.WARN
    elif gate.status is GateStatus.UNDECIDED:
        word, tone = "undecided", Tone.OPEN
    else:
        word, tone = "refuses", Tone.BAD
    about = GATES[gate.name]
    return GateRow(about.title, word, tone, gate.message, *about.format_figures(gate))


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


WIDTH: Final = 720
HEIGHT: Final = 240
LEFT: Final = 68
RIGHT: Final = 14
TOP: Final = 12
BOTTOM: Final = 44
_MOST_POINTS: Final = 400
_TICKS: Final = 5
_SMOOTHNESS: Final = 0.1
"""Weight of a new value in the moving average."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve in a picture of WIDTH by HEIGHT.

    Attributes:
        values: Points of the line through the values, in SVG syntax.
        average: Points of their exponential moving average, which starts at the mean of the first values.
        x_ticks: Place on the axis -> optimizer step.
        y_ticks: Place on the axis -> value.
        summary: Text alternative.
        num_left_out: Values that are not finite.
    """

    values: str
    average: str
    x_ticks: dict[float, str]
    y_ticks: dict[float, str]
    summary: str
    num_left_out: int


def build_curve(measured: Mapping[int, float]) -> Curve | None:
    """Build the curve of losses by step; None if fewer than two values are finite."""
    numbers = {step: value for step, value in sorted(measured.items()) if math.isfinite(value)}
    if len(numbers) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    steps, values = list(numbers), list(numbers.values())
    begin = values[: round(1 / _SMOOTHNESS)]
    averages, current = [], sum(begin) / len(begin)
    for value in values:
        current += _SMOOTHNESS * (value - current)
        averages.append(current)
    first, last, low, high = steps[0], steps[-1], min(values), max(values)
    x_values, y_values = _round_values(first, last), _round_values(low, high)
    bottom, top = min(low, y_values[0]), max(high, y_values[-1])

    def place_x(step: float) -> float:
        return LEFT + (step - first) * (WIDTH - RIGHT - LEFT) / (last - first)

    def place_y(loss: float) -> float:
        return HEIGHT - BOTTOM + (loss - bottom) * (TOP - HEIGHT + BOTTOM) / ((top - bottom) or 1)

    def corners(line: list[float]) -> str:
        every = math.ceil(len(steps) / _MOST_POINTS)
        shown = [*zip(steps, line, strict=True)]
        return " ".join(f"{place_x(x):.1f},{place_y(y):.1f}" for x, y in (*shown[:-1:every], shown[-1]))

    return Curve(
        values=corners(values),
        average=corners(averages),
        x_ticks={place_x(x): f"{x:.0f}" for x in x_values if x.is_integer() and first <= x <= last},
        y_ticks={place_y(y): f"{y:g}" for y in y_values},
        summary=f"Loss from {values[0]:.3f} at step {first} to {values[-1]:.3f} at step {last}, lowest {low:.3f}",
        num_left_out=len(measured) - len(numbers),
    )


def _round_values(low: float, high: float) -> list[float]:
    """Return about `_TICKS` round numbers around a range: multiples of 1, 2 or 5 times a power of ten."""
    rough = ((high - low) or 1) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    return [number * step for number in range(math.floor(low / step), math.ceil(high / step) + 1)]


_FOLDER: Final = Path(__file__).parent
_NUM_EXAMPLES: Final = 10
_NUM_FIRST: Final = 3
"""Completions at the top of the page."""
_DIFFICULTIES: Final = ("easy", "medium", "hard")
_SUITES: Final = {
    Suite.HELDOUT: "Held-out prompts from the workspace",
    Suite.BENCHMARK: "Benchmark: prompts written for evaluation",
    Suite.NEW_CONSTANTS: "Synthetic tasks from training with new constants; not part of other figures",
    Suite.UNKNOWN_TASK: "Synthetic tasks of a family that is not in training; not part of other figures",
}


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact about the evaluation; `sha256` is shown in short."""

    label: str
    text: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class PageSection:
    """A section of prompts with completions."""

    id: str
    title: str
    groups: tuple[Group, ...]

    @property
    def num_tasks(self) -> int:
        """Number of prompts."""
        return sum(len(group.tasks) for group in self.groups)


def report_page(
    results: EvalResults,
    completions: Sequence[ScoredCompletion],
    losses: Mapping[int, float],
    receipt: Receipt | None,
    inserts: Sequence[InsertScore] = (),
) -> str:
    """Render the page of an evaluation: verdict and reasons, figures, and every completion with its prompt.

    Of the pieces at a cursor, `inserts`, show only some. The same arguments give the same page.
    """
    kinds = {"adapter": "adapter", "constrained by the parser": "fallback", "base": "base", "few-shot": "few_shot"}
    tasks = task_views({name: [a for a in completions if a.model == kind] for name, kind in kinds.items()})
    eval_suite = [task for task in tasks if task.suite not in FAMILIES]
    failures = [task for task in eval_suite if not task.completions["adapter"].passed]
    passes = [task for task in eval_suite if task.completions["adapter"].passed]
    synthetic = [task for task in tasks if task.suite in FAMILIES]
    first = _by_hash(passes)[:1]
    sections = [
        PageSection("failures", "Failures", group_by_construct(failures, is_open=True)),
        PageSection("passes", "Passes", group_by_construct(passes, is_open=False)),
        PageSection("synthetic", "Synthetic tasks", group_by_construct(synthetic, is_open=False)),
    ]
    adapter_sha256 = results.subject.adapter_sha256
    verdict = headline(results, receipt)
    return _render(
        build_table(list_columns(results, completions)),
        title=f"{verdict.title}: adapter {adapter_sha256[:12]}",
        kicker=f"Completions of the base and of adapter {adapter_sha256[:12]}",
        verdict=verdict,
        sentences=[verdict.sentence],
        first=[*first, *_by_hash(failures)[: _NUM_FIRST - len(first)]],
        facts=_facts(results, receipt),
        sections=[section for section in sections if section.groups or section.id != "synthetic"],
        shown=("adapter",),
        results=results,
        curve=build_curve(losses),
        constructs=_by_need(results.adapter),
        difficulties=sorted(results.adapter.difficulties, key=_difficulty),
        missing=_missing(results.adapter),
        inserts=_examples(inserts),
    )


def _by_hash(tasks: Sequence[TaskView]) -> list[TaskView]:
    """Order prompts by hash, so that no score decides which are shown."""
    return sorted(tasks, key=lambda task: hashlib.sha256(task.id.encode()).digest())


def _examples(inserts: Sequence[InsertScore]) -> list[tuple[str, list[InsertScore]]]:
    own = [score for score in inserts if score.model == "adapter"]
    own.sort(key=lambda score: hashlib.sha256(f"{score.before}\0{score.after}".encode()).digest())
    parts = {"Exact pieces": True, "Other pieces, each above its reference": False}
    found = [(title, [s for s in own if s.exact is is_exact][:_NUM_EXAMPLES]) for title, is_exact in parts.items()]
    return [(title, some) for title, some in found if some]


def comparison_page(comparison: SideBySide) -> str:
    """Render the page of several models: figures, differences, and every completion with its prompt."""
    names = [entry.name for entry in comparison.entries]
    title = f"{len(names)} models on {comparison.num_tasks} tasks"
    facts = []
    for entry in comparison.entries:
        subject = entry.results.subject if entry.results is not None else None
        details = f"adapter of {subject.base_model}, {entry.verdict}" if subject is not None else "no verdict"
        facts.append(Fact(entry.name, details, subject.adapter_sha256 if subject is not None else None))
    views = task_views({column.name: column.completions for column in comparison.columns})
    eval_suite = [view for view in views if view.suite not in FAMILIES]
    synthetic = [view for view in views if view.suite in FAMILIES]
    sections = [PageSection("answers", "Completions", group_by_passing(eval_suite))]
    sections += [PageSection("synthetic", "Synthetic tasks", group_by_passing(synthetic))] if synthetic else []
    return _render(
        comparison.table,
        title=title,
        kicker="The same prompts, scored the same way; no verdict is based on this page",
        verdict=Headline(" and ".join(names) if len(names) == 2 else title, Tone.OPEN, ""),  # noqa: PLR2004 - a pair
        sentences=comparison.notes,
        first=(),
        facts=facts,
        sections=sections,
        shown=names,
        results=None,
        inserts=(),
    )


def visible(value: Any) -> Any:
    """Replace invisible characters of a text with marks; return anything else unchanged."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return visible_text(value)


def _render(table: FigureTable, **values: Any) -> str:
    """Render the page without other files or network; model output is always escaped."""
    parts = [
        ("All prompts" if suite is None else _SUITES[suite], [*rows])
        for suite, rows in groupby(table.rows, key=lambda row: row.suite)
    ]
    style, script = ((_FOLDER / name).read_text("utf-8") for name in ("style.css", "filter.js"))
    return _ENVIRONMENT.get_template("page.html.jinja").render(
        **values,
        models=table.models,
        parts=parts,
        picture={"WIDTH": WIDTH, "HEIGHT": HEIGHT, "LEFT": LEFT, "RIGHT": RIGHT, "TOP": TOP, "BOTTOM": BOTTOM},
        style=style,
        script=script,
        style_hash=_hash_source(style),
        script_hash=_hash_source(script),
    )


def _hash_source(text: str) -> str:
    """Hash a style sheet or script for the content security policy of the page."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _facts(results: EvalResults, receipt: Receipt | None) -> list[Fact]:
    subject, decoding, suites = results.subject, results.decoding, results.adapter.suites
    asked = {suite: str(suites[suite].num_tasks if suite in suites else 0) for suite in Suite}
    has_benchmark = subject.benchmark_sha256 is not None
    how = f"temperature {decoding.temperature}, seed {decoding.seed}"
    how = "greedy" if decoding.temperature == 0 else how
    champion = results.champion
    facts = [
        Fact("Base model", subject.base_model, subject.base_sha256),
        Fact("Adapter", "", subject.adapter_sha256),
        Fact("Champion", "none") if champion is None else Fact("Champion", "", champion.adapter_sha256),
        Fact("Held-out prompts", asked[Suite.HELDOUT], subject.heldout_sha256),
        Fact("Benchmark", asked[Suite.BENCHMARK] if has_benchmark else "left out", subject.benchmark_sha256),
        Fact("Completions", f"{decoding.num_samples} per prompt, up to {decoding.max_new_tokens} tokens, {how}"),
    ]
    if results.num_too_long:
        facts.append(Fact("Not evaluated", f"{results.num_too_long} prompts whose reference is too long"))
    if results.num_tests_dropped:
        facts.append(
            Fact("Without hidden tests", f"{results.num_tests_dropped} prompts whose reference fails their tests")
        )
    if receipt is None:
        return [*facts, Fact("Evaluated", "not yet")]
    when = datetime.fromtimestamp(receipt.timestamp_unix, UTC)
    return [*facts, Fact("Evaluated", f"{when:%Y-%m-%d %H:%M} UTC, policy {receipt.policy}")]


def _by_need(adapter: ModelScores) -> list[str]:
    return sorted(
        adapter.constructs,
        key=lambda name: (
            adapter.constructs[name].pass_at_1.value or 0.0,
            -adapter.constructs[name].num_tasks,
            name,
        ),
    )


def _difficulty(name: str) -> int:
    return [*_DIFFICULTIES, name].index(name)


def _missing(adapter: ModelScores) -> list[tuple[str, int]]:
    asked = {name: scores.num_tasks for name, scores in adapter.constructs.items()}
    missing = ((name, asked.get(name, 0)) for name in adapter.overall.coverage.missing)
    return sorted(missing, key=lambda item: (-item[1], item[0]))


def _errors(base: Mapping[str, int], adapter: Mapping[str, int]) -> list[tuple[str, int, int]]:
    rows = ((code, base.get(code, 0), adapter.get(code, 0)) for code in {**adapter, **base})
    return sorted(rows, key=lambda row: (-row[2], -row[1], row[0]))


_ENVIRONMENT: Final = Environment(
    loader=FileSystemLoader(_FOLDER),
    autoescape=True,
    finalize=visible,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters.update(percent=lambda share: f"{100 * share:.1f}", points=points, p_text=p_text, errors=_errors)
