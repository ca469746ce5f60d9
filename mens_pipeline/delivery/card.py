"""The card of a model from what stands on record about it: run, figures, verdict."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mens_pipeline.delivery.merge_source import MergeSource
from mens_pipeline.evaluation.results import RESULTS, EvalResults
from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline.promotion.receipt import read_results
from mens_pipeline.training.manifest import data_sources
from mens_pipeline.training.model_card import Form, Score, Standing, model_card

if TYPE_CHECKING:
    from mens_pipeline.evaluation.statistics import Rate

_SUITES: Final = {Suite.HELDOUT: "held-out prompts of the workspace", Suite.BENCHMARK: "benchmark"}
_METRICS: Final = (("parse_rate", "parse rate"), ("pass_at_1", "pass@1"))


def card_of_source(source: MergeSource, form: Form, data_licence: str | None) -> str:
    """Write the model card of an adapter, or of what it was merged into."""
    return model_card(
        source.manifest,
        form,
        sources=data_sources(source.manifest),
        standing=_standing(source),
        data_licence=data_licence,
    )


def _standing(source: MergeSource) -> Standing | None:
    """Return the evaluation results of this very adapter; None without them."""
    folder = source.promoted.path if source.promoted is not None else source.run
    results = _results_in(folder, source.adapter_sha256)
    if results is None:
        return None
    receipt = source.receipt
    return Standing(
        scores=tuple(_scores(results)),
        how=_how(results),
        missing=results.adapter.overall.coverage.missing,
        policy=receipt.policy if receipt is not None else None,
        passed=receipt.overall_passed if receipt is not None else None,
        verdict_sha256=source.verdict_sha256,
    )


def _how(results: EvalResults) -> str:
    decoding = results.decoding
    if decoding.temperature == 0:
        return "greedily"
    return f"at temperature {decoding.temperature:g}, {decoding.num_samples} times"


def _results_in(folder: Path, adapter_sha256: str) -> EvalResults | None:
    path = folder / RESULTS
    results = read_results(path) if path.is_file() else None
    return results if results is not None and results.subject.adapter_sha256 == adapter_sha256 else None


def _scores(results: EvalResults) -> Iterator[Score]:
    for suite, name in _SUITES.items():
        if suite in results.adapter.suites:
            base, adapter = results.base.suites[suite], results.adapter.suites[suite]
            for field, metric in _METRICS:
                of_base: Rate = getattr(base, field)
                of_adapter: Rate = getattr(adapter, field)
                yield Score(name, metric, str(of_base), str(of_adapter), of_adapter.value)
