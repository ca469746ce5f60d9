"""The page: everything that is known of an evaluation, in one file that asks for nothing else."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mens_pipeline.evaluation.results import EvalResults, JudgedAnswer
from mens_pipeline.evaluation.statistics import p_text
from mens_pipeline.language.visible_text import visible_text
from mens_pipeline.promotion.receipt import Receipt
from mens_pipeline.promotion.report import curve
from mens_pipeline.promotion.report.answers import groups_of, task_views
from mens_pipeline.promotion.report.parts import construct_rows, difficulty_rows, error_rows, missing_constructs
from mens_pipeline.promotion.report.score_table import family_rows, models_of, points, score_rows
from mens_pipeline.promotion.report.verdict import headline

_FOLDER: Final = Path(__file__).parent


def report_page(
    results: EvalResults, answers: Sequence[JudgedAnswer], losses: Mapping[int, float], receipt: Receipt | None
) -> str:
    """Render the page: what was judged, the verdict and its reasons, figures, and every completion with its prompt.

    The same arguments give the same page.
    """
    tasks, base, adapter = task_views(answers), results.base.overall, results.adapter.overall
    failures = [task for task in tasks if not task.adapter.passed]
    passes = [task for task in tasks if task.adapter.passed]
    return rendered(
        "page.html.jinja",
        verdict=headline(results, receipt),
        results=results,
        receipt=receipt,
        judged_at=_utc(receipt.timestamp_unix) if receipt is not None else None,
        models=tuple(models_of(results)),
        scores=tuple(score_rows(results, answers)),
        families=family_rows(results),
        curve=curve.loss_curve(losses),
        picture=curve,
        constructs=construct_rows(results),
        difficulties=difficulty_rows(results),
        errors=error_rows(base.errors, adapter.errors),
        meanings=error_rows(base.semantic_errors, adapter.semantic_errors),
        runs=error_rows(base.execution_errors, adapter.execution_errors),
        num_tested=adapter.test_rate.denominator,
        missing=missing_constructs(results),
        failures=groups_of(failures),
        passes=groups_of(passes),
        num_failures=len(failures),
        num_passes=len(passes),
    )


def rendered(template: str, **values: Any) -> str:
    """Render a page with the style sheet and the script that all pages carry.

    It needs no other file, network or script. What a model wrote is text in it and never markup.
    """
    style, script = ((_FOLDER / name).read_text("utf-8") for name in ("style.css", "filter.js"))
    return _ENVIRONMENT.get_template(template).render(
        **values, style=style, script=script, style_hash=_hash_of(style), script_hash=_hash_of(script)
    )


def visible(value: Any) -> Any:
    """Replace each character of a text that would not show with a mark; return anything else as it is."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return visible_text(value)


def _hash_of(text: str) -> str:
    """Return the hash by which a page's content security policy allows a style sheet or script: no other runs."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _utc(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


_ENVIRONMENT: Final = Environment(
    loader=FileSystemLoader(_FOLDER),
    autoescape=True,
    finalize=visible,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters.update(percent=_percent, points=points, p_text=p_text)
