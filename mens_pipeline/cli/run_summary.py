"""What a run of the whole graph came to, in a few lines."""

from collections.abc import Iterator, Mapping
from typing import Any

Figures = Mapping[str, Mapping[str, Any]]
"""Asset -> its metadata, plain values only."""


def summary_of(figures: Figures) -> Iterator[str]:
    """Pairs, training, scores, verdict, champion, and what to type next.

    Args:
        figures: Of the assets that were materialised.
    """
    train_set, adapter = figures.get("mixed_train_set", {}), figures.get("qlora_adapter", {})
    results, gate, champion = (figures.get(name, {}) for name in ("eval_results", "benchmark_gate", "promoted_adapter"))
    if train_set:
        yield f"train set   {train_set['num_distinct']} different pairs{_reused(train_set)}"
    if adapter:
        minutes = adapter["train/seconds"] / 60
        losses = f"loss {adapter['first_loss']:.3f} at first, {adapter['last_loss']:.3f} at last"
        yield f"training    {adapter['num_updates']} updates in {minutes:.1f} min, {losses}{_reused(adapter)}"
    for name, value in results.items():
        if name.endswith(": parse rate"):
            yield f"{name.removesuffix(': parse rate'):<11} parse rate {value}"
    if results:
        yield f"missing     {results['missing_constructs']}"
    if gate:
        yield f"verdict     {'passed' if gate['passed'] else 'refused'}, policy {gate['policy']}{_reused(gate)}"
        if not gate["passed"]:
            yield from (f"            {line}" for line in str(gate["reasons"]).splitlines())
        yield f"report      {gate['report']}"
    if champion:
        yield f"champion    {champion['champion']}{'' if champion['changed'] else ', as before'}"
    yield from _next(figures)


def _reused(figures: Mapping[str, Any]) -> str:
    return ", nothing had changed" if figures.get("reused") else ""


def _next(figures: Figures) -> Iterator[str]:
    if "promoted_adapter" in figures:
        yield "next        make ui shows the graph; mens promote --history shows every champion"
    elif "benchmark_gate" in figures:
        yield "next        open the report; mens run --force-train trains again"
    elif "mixed_train_set" in figures:
        yield "next        mens run goes on to the adapter"
