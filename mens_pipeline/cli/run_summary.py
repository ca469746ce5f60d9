"""What a run of the whole graph came to, in a few lines."""

import shutil
import sys
from collections.abc import Iterator, Mapping
from html import unescape
from pathlib import Path
from typing import Any, Final

Figures = Mapping[str, Mapping[str, Any]]
"""Asset -> its metadata, plain values only."""

_FIGURES: Final = ("parse rate", "hidden tests")
"""Figures of a suite that become metadata entries, such as `heldout: parse rate`."""


def summary_of(figures: Figures, *, is_good: bool, command: str) -> Iterator[str]:
    """Pairs, training, scores, verdict, champion, what was reused, and what to type next.

    Args:
        figures: Of the assets that were materialised.
        is_good: Whether the run came to what it was started for.
        command: How `mens` is called here.
    """
    train_set, adapter = figures.get("mixed_train_set", {}), figures.get("qlora_adapter", {})
    results, gate, champion = (figures.get(name, {}) for name in ("eval_results", "benchmark_gate", "promoted_adapter"))
    if train_set:
        yield f"train set   {train_set['num_distinct']} different pairs{_reused(train_set)}"
    if adapter:
        losses = f"loss {adapter['first_loss']:.3f} at first, {adapter['last_loss']:.3f} at last"
        yield f"training    {_updates(adapter)}, {losses}{_reused(adapter)}"
        yield f"shown       {adapter['shown']}"
    for name, value in results.items():
        suite, _, figure = name.partition(": ")
        if figure in _FIGURES:
            yield f"{suite:<11} {figure} {value}"
    if results:
        yield f"missing     {results['missing_constructs']}"
    if gate:
        word = {"passed": "passed", "failed": "refused", "undecided": "undecided, not promoted"}[gate["status"]]
        yield f"verdict     {word}, policy {gate['policy']}, {gate['attempt']}{_reused(gate)}"
        if not gate["passed"]:
            # Written for Markdown, which a terminal does not read.
            yield from (f"            {line}" for line in unescape(str(gate["reasons"])).splitlines())
        yield f"report      {gate['report']}"
    if champion:
        yield f"champion    {champion['champion']}{'' if champion['changed'] else ', as before'}"
    reused = [values["reused"] for values in figures.values() if "reused" in values]
    if any(reused):
        yield f"reused      {sum(reused)}/{len(reused)} stages"
    yield f"next        {_next(figures, command, is_good=is_good)}"


def called_as() -> str:
    """How the user called this program, for advice that can be typed as it stands."""
    program = sys.argv[0]
    if Path(program).name == "__main__.py":
        return f"{sys.executable} -m mens_pipeline.cli"
    return "mens" if shutil.which("mens") == program else program


def _reused(figures: Mapping[str, Any]) -> str:
    return ", nothing had changed" if figures.get("reused") else ""


def _updates(adapter: Mapping[str, Any]) -> str:
    done, planned, minutes = adapter["num_updates"], adapter["num_planned_updates"], adapter["train/seconds"] / 60
    if done < planned:
        return f"{done} of {planned} steps in {minutes:.1f} min, as many as fit into the budget"
    return f"{done} steps in {minutes:.1f} min"


def _next(figures: Figures, command: str, *, is_good: bool) -> str:
    if not is_good and figures.get("benchmark_gate", {}).get("passed") is False:
        return f"open the report; other data or another recipe make another adapter: {command} run --preset NAME"
    if not is_good and "benchmark_gate" in figures and "promoted_adapter" not in figures:
        return "see above why an adapter that passed was not promoted"
    if not is_good:
        return "mend what failed, and run the same again: what is done is reused"
    if "promoted_adapter" in figures:
        return f"make ui shows the graph; {command} promote --history shows every champion"
    return f"{command} run goes on to the adapter"
