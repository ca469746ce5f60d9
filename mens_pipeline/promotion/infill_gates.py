"""What the gates ask of completions at a cursor; an adapter that was never shown any is asked nothing."""

from typing import Final

from mens_pipeline.evaluation.results import EvalResults, InfillModel
from mens_pipeline.evaluation.statistics import p_text
from mens_pipeline.promotion.policy import GateStatus, Measured, Thresholds

_NOT_ASKED: Final = Measured(GateStatus.PASSED, None, None, "the adapter was not trained to complete at a cursor")
_OTHERS: Final[dict[InfillModel, str]] = {"base": "the base", "ngram": "an n-gram"}


def infill_parses(results: EvalResults, thresholds: Thresholds) -> Measured:
    """Require that programs are accepted with the pieces that are served in them."""
    found, required = results.infill, thresholds.min_infill_parse_rate
    if found is None:
        return _NOT_ASKED
    shown, free = found.shown, found.models["adapter"]["all"].parses
    what = f"{free.short} pieces stand as they are written freely, {shown.short} holes are served"
    if "served" not in found.models:
        return Measured(not required, 0.0, required, f"no piece stands in its hole; {what}")
    rate = found.models["served"]["all"].parses
    message = f"{rate.short} of what is served stands, required {100 * required:.1f} %; {what}"
    return Measured((rate.value or 0.0) >= required, rate.value, required, message)


def infill_gain(results: EvalResults, thresholds: Thresholds) -> Measured:
    """Require more exact lines than base and n-gram write, beyond chance."""
    found, allowed = results.infill, thresholds.allowed_chance(results.progress)
    if found is None:
        return _NOT_ASKED
    gains = {name: found.exact_difference[model] for model, name in _OTHERS.items() if model in found.exact_difference}
    if len(gains) < len(_OTHERS):
        message = "no line of a held-out program was asked for; hold out more files (config/pipeline.yaml)"
        return Measured(not thresholds.needs_infill_gain, None, None, message)
    worst = max(gains, key=lambda name: gains[name].p_better)
    difference = gains[worst]
    message = (
        f"writes {difference.only_second} of {difference.num_tasks} lines exactly that {worst} does not, misses "
        f"{difference.only_first} ({p_text(difference.p_better)})"
    )
    if not thresholds.needs_infill_gain:
        return Measured(GateStatus.PASSED, difference.difference, None, f"{message}; no gain is required")
    message += f", required p < {allowed:.3g}"
    return Measured(difference.p_better < allowed, difference.difference, 0.0, message)


def infill_regression(results: EvalResults, thresholds: Thresholds) -> Measured:
    """Require that the champion does not write more pieces exactly, beyond chance."""
    if results.infill is None:
        return _NOT_ASKED
    difference, required = results.infill.exact_difference.get("champion"), thresholds.max_regression_p
    if difference is None:
        return Measured(GateStatus.PASSED, None, None, "there is no champion yet")
    is_worse = difference.difference < 0 and difference.p_value < required
    message = (
        f"{100 * difference.difference:+.1f} points of exact pieces against the champion in {difference.num_tasks} "
        f"holes ({p_text(difference.p_value)}), a drop counts below p = {required}"
    )
    return Measured(not is_worse, difference.p_value, required, message)
