"""Concurrent runs: whatever happens between two steps, every verdict is about its own adapter."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from threading import Condition, Thread, current_thread
from typing import Any

import dagster as dg
import pytest

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.models.adapter import adapter_digest
from mens_pipeline.orchestration.defs.promotion import benchmark_gate, gate_checks, promoted_adapter
from mens_pipeline.orchestration.instance import open_instance
from mens_pipeline.orchestration.resources import ArtifactHandover, ArtifactStoreResource, read_artifact
from mens_pipeline.promotion.receipt import receipt_in
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactRef, ArtifactStore
from mens_pipeline_tests.evaluation.runs import champion_in, evaluated, fill_trained
from mens_pipeline_tests.orchestration.stores import latest_in, take_lenient_gates

_GOOD = {"first": 40, "second": 20, "third": 39}
"""Recipe -> prompts of forty that its adapter completes well."""

_SEEDS = range(8)


class _Turns:
    """Lets one of several threads continue at a time; a seed draws which one, at every switch."""

    def __init__(self, names: list[str], seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 - a reproducible draw, no secret
        self._condition = Condition()
        self._waiting = names
        self._turn = ""
        self.order: list[str] = []

    def next(self, *, is_last: bool = False) -> None:
        name = current_thread().name
        with self._condition:
            if is_last:
                self._waiting.remove(name)
            self.give()
            self._condition.wait_for(lambda: is_last or self._turn == name)

    def give(self) -> None:
        with self._condition:
            self._turn = self._random.choice(self._waiting) if self._waiting else ""
            self.order.append(self._turn)
            self._condition.notify_all()

    def wait(self) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._turn == current_thread().name)


class _Interleaved(ArtifactHandover):
    """Hands over, and lets other runs continue before an output is recorded and before it is read."""

    def __init__(self, turns: _Turns) -> None:
        self._turns = turns

    def handle_output(self, context: dg.OutputContext, obj: ArtifactRef) -> None:
        self._turns.next()
        super().handle_output(context, obj)

    def load_input(self, context: dg.InputContext) -> ArtifactRef:
        self._turns.next()
        return super().load_input(context)


class _Recipe(dg.Config):
    name: str


@dg.asset
def heldout_split(config: _Recipe, store: ArtifactStoreResource) -> dg.MaterializeResult[Any]:
    """The held-out pairs beside the train set of a recipe."""
    made, _ = store.open().build(
        Kind.HELDOUT_SPLIT, {"n": config.name}, lambda folder: {"n": (folder / HELDOUT).write_text("held-out pairs\n")}
    )
    return dg.MaterializeResult(value=made.ref())


@dg.asset
def qlora_adapter(
    config: _Recipe, heldout_split: ArtifactRef, store: ArtifactStoreResource
) -> dg.MaterializeResult[Any]:
    made, _ = store.open().build(
        Kind.QLORA_ADAPTER, {"n": config.name}, lambda folder: fill_trained(folder, config.name)
    )
    return dg.MaterializeResult(value=made.ref(heldout_split))


@dg.asset
def eval_results(
    config: _Recipe, qlora_adapter: ArtifactRef, store: ArtifactStoreResource
) -> dg.MaterializeResult[Any]:
    made = evaluated(store.artifact(qlora_adapter).path, store.open(), _GOOD[config.name])
    return dg.MaterializeResult(value=made.ref(qlora_adapter))


_GRAPH = [heldout_split, qlora_adapter, eval_results, benchmark_gate, gate_checks, promoted_adapter]


def _run(
    recipe: str, store: ArtifactStore, instance: dg.DagsterInstance, turns: _Turns, *selection: str
) -> dg.ExecuteInProcessResult:
    names = selection or ("heldout_split", "qlora_adapter", "eval_results", "benchmark_gate", "promoted_adapter")
    made_up = [name for name in names if name in {"heldout_split", "qlora_adapter", "eval_results"}]
    return dg.materialize(
        _GRAPH,
        instance=instance,
        resources={"store": ArtifactStoreResource(root=str(store.root)), "io_manager": _Interleaved(turns)},
        selection=list(names),
        run_config={"ops": {name: {"config": {"name": recipe}} for name in made_up}},
        raise_on_error=False,
        tags={"recipe": recipe},
    )


def _interleave(seed: int, runs: dict[str, Callable[[_Turns], object]]) -> list[str]:
    turns = _Turns(list(runs), seed)

    def go(run: Callable[[_Turns], object]) -> None:
        turns.wait()
        try:
            run(turns)
        finally:
            turns.next(is_last=True)

    threads = [Thread(target=go, args=(run,), name=name) for name, run in runs.items()]
    for thread in threads:
        thread.start()
    turns.give()
    for thread in threads:
        thread.join()
    return turns.order


def _verdicts(instance: dg.DagsterInstance, limit: int) -> Iterator[tuple[ArtifactRef, str]]:
    for record in instance.fetch_materializations(dg.AssetKey("benchmark_gate"), limit=limit).records:
        run = instance.get_run_by_id(record.run_id)
        assert run is not None
        assert record.asset_materialization is not None
        yield read_artifact(record.asset_materialization), run.tags["recipe"]


@pytest.mark.nightly
def test_every_verdict_is_about_its_own_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take_lenient_gates(monkeypatch)
    store = ArtifactStore(tmp_path / "store")
    orders, ends, crossed = set(), set(), 0
    judged: set[str] = set()
    with open_instance(tmp_path / "home") as instance:
        _interleave(
            0, {"before": lambda turns: _run("third", store, instance, turns, "heldout_split", "qlora_adapter")}
        )
        _interleave(0, {"before": lambda turns: _run("third", store, instance, turns, "eval_results")})
        for seed in _SEEDS:
            order = _interleave(
                seed,
                {
                    "first": lambda turns: _run("first", store, instance, turns),
                    "second": lambda turns: _run("second", store, instance, turns),
                    "page": lambda turns: _run("page", store, instance, turns, "benchmark_gate"),
                },
            )
            orders.add(tuple(order))
            ends.add(order[::-1].index("first") < order[::-1].index("second"))
            found = list(_verdicts(instance, 3))
            assert {recipe for _, recipe in found} == {"first", "second", "page"}
            for gate, recipe in found:
                adapter = store.get(Kind.QLORA_ADAPTER, gate.of(Kind.QLORA_ADAPTER).key)
                subject = receipt_in(store.root / gate.kind / gate.key).subject
                assert adapter is not None
                assert subject is not None
                assert subject.adapter_sha256 == adapter_digest(adapter.path)
                assert gate.of(Kind.HELDOUT_SPLIT) in gate.of(Kind.QLORA_ADAPTER).parents
                assert recipe in {"page", adapter.manifest["inputs"]["n"]}
                judged |= {adapter.manifest["inputs"]["n"]} if recipe == "page" else set()
            crossed += latest_in(store, Kind.QLORA_ADAPTER).manifest["inputs"]["n"] != "first"
            champion = champion_in(store)
            assert (champion.path / "adapter" / "adapter_model.safetensors").read_text() == "first"

    assert len(orders) == len(_SEEDS)
    assert ends == {True, False}
    assert judged >= {"first", "second"}
    assert 0 < crossed < len(_SEEDS)
