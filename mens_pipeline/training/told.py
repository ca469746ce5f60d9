"""One-line summaries of the plan and progress of a run."""

from collections.abc import Mapping
from typing import Any, Final

_FEW_MINUTES: Final = 5


def told_plan(plan: Mapping[str, Any]) -> str:
    """Format a `plan` event: `118 of 150 steps, about 20 min; budget 20 min: 150 steps would take ...`."""
    planned, target, budget = plan["num_steps"], plan["target_steps"], plan["budget_seconds"]
    steps = f"{planned} steps" if planned == target else f"{planned} of {target} steps"
    limit = "" if budget is None else f"; budget {_minutes(budget)} min"
    reason = "" if plan["reason"] is None else f": {plan['reason']}"
    return f"{steps}, about {_minutes(plan['end_seconds'])} min{limit}{reason}"


def told_kinds(kinds: Mapping[str, Mapping[str, float]]) -> str:
    """Format what was shown of each kind, the most first: `task 45 % (63,000 tokens, 0.8 epochs), ...`."""
    return ", ".join(
        f"{kind} {100 * counts['share']:.0f} % ({counts['tokens_shown']:,} tokens, {counts['epochs']:.1f} epochs)"
        for kind, counts in sorted(kinds.items(), key=lambda item: (-item[1]["tokens_shown"], item[0]))
    )


def told_too_long(kinds: Mapping[str, Mapping[str, float]]) -> str:
    """Return rows of each kind that are too long: `task 12 rows (7 % of its tokens)`; nothing where there is none."""
    return ", ".join(
        f"{kind} {counts['rows_too_long']} rows ({_share(counts['tokens_too_long'], counts['tokens'])} of its tokens)"
        for kind, counts in sorted(kinds.items())
        if counts["rows_too_long"]
    )


def _share(part: float, rest: float) -> str:
    return f"{100 * part / (part + rest):.0f} %"


def _minutes(seconds: float) -> str:
    """Format whole minutes, or tenths of one where there are few."""
    minutes = seconds / 60
    return f"{minutes:.1f}" if minutes < _FEW_MINUTES else f"{minutes:.0f}"
