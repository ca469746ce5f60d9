"""The page: models side by side in one file that asks for nothing else; of an evaluation all that is known of it."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
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
from mens_pipeline.promotion.receipt import Receipt
from mens_pipeline.promotion.report import curve
from mens_pipeline.promotion.report.comparison import Comparison
from mens_pipeline.promotion.report.completions import Group, TaskView, group_by_construct, group_by_passing, task_views
from mens_pipeline.promotion.report.headline import Headline, headline
from mens_pipeline.promotion.report.table import Table, Tone, columns_of, points, table_of

_FOLDER: Final = Path(__file__).parent
_NUM_EXAMPLES: Final = 10
_NUM_FIRST: Final = 3
"""Completions that are shown before all else."""
_DIFFICULTIES: Final = ("easy", "medium", "hard")
_SUITES: Final = {
    Suite.HELDOUT: "Held-out prompts: what the workspace itself contains",
    Suite.BENCHMARK: "Benchmark: prompts written to evaluate with",
    Suite.NEW_CONSTANTS: "Synthetic tasks that it was trained on, with new constants; part of no other figure",
    Suite.UNKNOWN_TASK: "Synthetic tasks of a family that never trained; part of no other figure",
}


@dataclass(frozen=True, slots=True)
class Fact:
    """What was evaluated; `sha256` is shown in short."""

    label: str
    text: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """Prompts with completions."""

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

    Of the pieces at a cursor, `inserts`, some are shown. The same arguments give the same page.
    """
    kinds = {"adapter": "adapter", "constrained by the parser": "fallback", "base": "base", "few-shot": "few_shot"}
    tasks = task_views({name: [a for a in completions if a.model == kind] for name, kind in kinds.items()})
    eval_suite = [task for task in tasks if task.suite not in FAMILIES]
    failures = [task for task in eval_suite if not task.completions["adapter"].passed]
    passes = [task for task in eval_suite if task.completions["adapter"].passed]
    synthetic = [task for task in tasks if task.suite in FAMILIES]
    first = _by_hash(passes)[:1]
    sections = [
        Section("failures", "Failures", group_by_construct(failures, is_open=True)),
        Section("passes", "Passes", group_by_construct(passes, is_open=False)),
        Section("synthetic", "Synthetic tasks", group_by_construct(synthetic, is_open=False)),
    ]
    adapter_sha256 = results.subject.adapter_sha256
    verdict = headline(results, receipt)
    return _render(
        table_of(columns_of(results, completions)),
        title=f"{verdict.title}: adapter {adapter_sha256[:12]}",
        kicker=f"What the model writes, base beside adapter {adapter_sha256[:12]}",
        verdict=verdict,
        sentences=[verdict.sentence],
        first=[*first, *_by_hash(failures)[: _NUM_FIRST - len(first)]],
        facts=_facts(results, receipt),
        sections=[section for section in sections if section.groups or section.id != "synthetic"],
        shown=("adapter",),
        results=results,
        curve=curve.curve_of(losses),
        constructs=_by_need(results.adapter),
        difficulties=sorted(results.adapter.difficulties, key=_difficulty),
        missing=_missing(results.adapter),
        inserts=_examples(inserts),
    )


def _by_hash(tasks: Sequence[TaskView]) -> list[TaskView]:
    """Return prompts in an order that no score decides."""
    return sorted(tasks, key=lambda task: hashlib.sha256(task.id.encode()).digest())


def _examples(inserts: Sequence[InsertScore]) -> list[tuple[str, list[InsertScore]]]:
    """Return pieces of the adapter to show, exact ones and others, drawn by the hash of what stands around them."""
    own = [score for score in inserts if score.model == "adapter"]
    own.sort(key=lambda score: hashlib.sha256(f"{score.before}\0{score.after}".encode()).digest())
    parts = {"Exact pieces": True, "Other pieces, each above what was cut out": False}
    found = [(title, [s for s in own if s.exact is is_exact][:_NUM_EXAMPLES]) for title, is_exact in parts.items()]
    return [(title, some) for title, some in found if some]


def comparison_page(comparison: Comparison) -> str:
    """Render the page of models that are compared: figures, differences, and every completion with its prompt."""
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
    sections = [Section("answers", "Completions", group_by_passing(eval_suite))]
    sections += [Section("synthetic", "Synthetic tasks", group_by_passing(synthetic))] if synthetic else []
    return _render(
        comparison.table,
        title=title,
        kicker="The same prompts, scored the same way; no verdict rests on this page",
        verdict=Headline(" beside ".join(names) if len(names) == 2 else title, Tone.OPEN, ""),  # noqa: PLR2004 - a pair
        sentences=comparison.notes,
        first=(),
        facts=facts,
        sections=sections,
        shown=names,
        results=None,
        inserts=(),
    )


def visible(value: Any) -> Any:
    """Replace each character of a text that would not show with a mark; return anything else as it is."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return visible_text(value)


def _render(table: Table, **values: Any) -> str:
    """Render the page; it needs no other file, network or script, and what a model wrote is text, never markup."""
    parts = [
        ("All prompts" if suite is None else _SUITES[suite], [*rows])
        for suite, rows in groupby(table.rows, key=lambda row: row.suite)
    ]
    style, script = ((_FOLDER / name).read_text("utf-8") for name in ("style.css", "filter.js"))
    return _ENVIRONMENT.get_template("page.html.jinja").render(
        **values,
        models=table.models,
        parts=parts,
        picture=curve,
        style=style,
        script=script,
        style_hash=_hash_of(style),
        script_hash=_hash_of(script),
    )


def _hash_of(text: str) -> str:
    """Return the hash by which a page's content security policy allows a style sheet or script: no other runs."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _facts(results: EvalResults, receipt: Receipt | None) -> list[Fact]:
    subject, decoding, suites = results.subject, results.decoding, results.adapter.suites
    asked = {suite: str(suites[suite].num_tasks if suite in suites else 0) for suite in Suite}
    has_benchmark = subject.benchmark_sha256 is not None
    how = f"temperature {decoding.temperature}, seed {decoding.seed}"
    how = "always the most likely token" if decoding.temperature == 0 else how
    champion = results.champion
    facts = [
        Fact("Base model", subject.base_model, subject.base_sha256),
        Fact("Adapter", "", subject.adapter_sha256),
        Fact("Champion", "none") if champion is None else Fact("Champion", "", champion.adapter_sha256),
        Fact("Held-out prompts", asked[Suite.HELDOUT], subject.heldout_sha256),
        Fact("Benchmark", asked[Suite.BENCHMARK] if has_benchmark else "left out", subject.benchmark_sha256),
        Fact("Completions", f"{decoding.num_samples} to each prompt, up to {decoding.max_new_tokens} tokens, {how}"),
    ]
    if results.num_too_long:
        facts.append(Fact("Not asked", f"{results.num_too_long} prompts: not even their reference fits"))
    if results.num_tests_dropped:
        facts.append(
            Fact("Without hidden tests", f"{results.num_tests_dropped} prompts: their own reference fails them")
        )
    if receipt is None:
        return [*facts, Fact("Evaluated", "not yet")]
    when = datetime.fromtimestamp(receipt.timestamp_unix, UTC)
    return [*facts, Fact("Evaluated", f"{when:%Y-%m-%d %H:%M} UTC, policy {receipt.policy}")]


def _by_need(adapter: ModelScores) -> list[str]:
    """Return the constructs that were asked for; those that the adapter does least well first."""
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
    """Return the constructs that no accepted completion shows, with the prompts that ask for each; most asked first."""
    asked = {name: scores.num_tasks for name, scores in adapter.constructs.items()}
    missing = ((name, asked.get(name, 0)) for name in adapter.overall.coverage.missing)
    return sorted(missing, key=lambda item: (-item[1], item[0]))


def _errors(base: Mapping[str, int], adapter: Mapping[str, int]) -> list[tuple[str, int, int]]:
    """Return how many completions of base and adapter fail with each code; those that the adapter makes most first."""
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
