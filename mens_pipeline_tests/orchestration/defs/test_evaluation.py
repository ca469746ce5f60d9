"""The evaluation as Dagster sees it."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.evaluation.evaluate import evaluate_completions
from mens_pipeline.evaluation.tasks import FewShot, Suite
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.models.adapter import MANIFEST
from mens_pipeline.orchestration.defs.evaluation import beats_the_base, eval_results, list_figures, list_rows
from mens_pipeline.orchestration.launchers import JobLauncher
from mens_pipeline.orchestration.resources import ArtifactStoreResource
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactRef, ArtifactStore
from mens_pipeline_tests.evaluation.runs import evaluated, fill_trained, trained
from mens_pipeline_tests.evaluation.scored import BROKEN, GOOD, PROGRESS, SUBJECT, answers_to, task
from mens_pipeline_tests.orchestration.stores import build_resources, hand_over, judge, read_failure
from mens_pipeline_tests.training.tiny_base import write_tiny_base

_TESTS = "@test fn hidden() { assert(add(1, 2) is 3) }\n"


def _split(store: ArtifactStore, share: float) -> ArtifactRef:
    return store.build(Kind.HELDOUT_SPLIT, {"share": share}, lambda folder: {"n": (folder / HELDOUT).write_text("")})[
        0
    ].ref()


def _adapter(store: ArtifactStore, split: ArtifactRef) -> ArtifactRef:
    def write(folder: Path) -> dict[str, Any]:
        fill_trained(folder, "weights")
        path = folder / MANIFEST
        base = write_tiny_base(store.root / "base")
        manifest = json.loads(path.read_text())
        manifest["base_model"]["path"] = str(base)
        path.write_text(json.dumps(manifest))
        return {}

    return store.build(Kind.QLORA_ADAPTER, {"beside": split.key}, write)[0].ref(
        ArtifactRef(Kind.MIXED_TRAIN_SET, "0" * 64, (split,))
    )


def _failure(store: ArtifactStore, adapter: ArtifactRef, **config: object) -> str:
    with dg.DagsterInstance.ephemeral() as instance:
        hand_over(instance, adapter)
        result = dg.materialize(
            [dg.AssetSpec("qlora_adapter"), eval_results],
            instance=instance,
            resources=build_resources(store.root, generator=JobLauncher()),
            run_config={"ops": {"eval_results": {"config": config}}},
            raise_on_error=False,
        )
    return read_failure(result)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    monkeypatch.setenv("VOX_BENCHMARK", "0")
    return ArtifactStore(tmp_path / "store")


def test_an_adapter_is_evaluated_on_its_own_held_out_pairs(store: ArtifactStore) -> None:
    split = _split(store, 0.06)
    adapter = _adapter(store, split)
    _split(store, 0.2)

    assert f"{Kind.HELDOUT_SPLIT}/{split.key}/{HELDOUT}: no held-out code" in _failure(store, adapter)


def test_an_incomplete_suite_size_is_refused(store: ArtifactStore) -> None:
    failure = _failure(store, _adapter(store, _split(store, 0.1)), suite={"heldout_tasks": 5})

    assert "eval_results: suite: benchmark_tasks: " in failure
    assert "as `mens plan --minutes M --json` prints them" in failure


@pytest.mark.parametrize(("num_good", "passed"), [(40, True), (6, True), (5, False), (0, False)])
def test_a_gain_within_chance_is_a_warning(tmp_path: Path, num_good: int, *, passed: bool) -> None:
    """The base passes none of forty; five good completions have a p-value of 1/16."""
    store = ArtifactStore(tmp_path / "store")
    evaluation = evaluated(trained(tmp_path / "run"), store, num_good)
    result = judge(beats_the_base, evaluation.ref(), ArtifactStoreResource(root=str(store.root)))

    assert (result.passed, result.severity) == (passed, dg.AssetCheckSeverity.WARN)
    assert str(result.metadata["measured"].value).startswith(f"+{100 * num_good / 40:.1f} points (p ")
    assert result.metadata["required"].value == "above the base, p < 0.05"
    assert str(result.metadata["adapter"].value).startswith(f"{num_good}/40")


@pytest.mark.seed_row(68, 77)
def test_hidden_tests_are_shown_if_a_task_has_them() -> None:
    tasks = [task(), task(1, Suite.BENCHMARK, tests=_TESTS)]
    completions = {"base": answers_to(tasks, [BROKEN] * 2), "adapter": answers_to(tasks, [GOOD] * 2)}
    results = evaluate_completions(tasks, completions, SUBJECT, Decoding(), PROGRESS, num_too_long=0).results
    rows = {row["metric"]: row for row in list_rows(results)}
    figures = list_figures(results)

    assert [*rows["hidden tests"]] == ["metric", "adapter", "interval", "base"], "the adapter must be in view"
    assert str(rows["hidden tests"]["base"]).startswith("0/1 (0.0 %")
    assert rows["hidden tests"]["adapter"] == "1/1 (100.0 %)"
    assert rows["hidden tests"]["interval"] == results.adapter.overall.test_rate.interval == "14.7 to 100.0"
    assert str(rows["pass@1"]["adapter"]).startswith("2/2 (100.0 %")
    assert figures["eval/benchmark/test_rate"] == 1.0
    assert "eval/heldout/test_rate" not in figures
    assert str(figures["benchmark: hidden tests"]).startswith("1/1 (100.0 %")
    assert "few_shot: parse rate" not in figures
    assert figures["coverage"] == "1/30 (3.3 %) of the constructs"


def test_examples_and_families_are_shown_if_evaluated() -> None:
    tasks, known = [task(), task(1)], task(2, Suite.NEW_CONSTANTS, tests=_TESTS)
    completions = {
        "base": answers_to(tasks, [BROKEN] * 2),
        "adapter": answers_to(tasks, [GOOD] * 2),
        "few_shot": answers_to(tasks[:1], [BROKEN]),
        "families": answers_to([known], [GOOD]),
    }
    few_shot = FewShot("Told.", (tasks[0],))
    results = evaluate_completions(
        tasks, completions, SUBJECT, Decoding(), PROGRESS, few_shot=few_shot, families=[known]
    ).results
    figures = list_figures(results)

    assert str(figures["few_shot: parse rate"]).startswith("0/1 (0.0 %")
    assert "adapter +100.0 points (p = 1.000) on the same prompts" in figures["few_shot: parse rate"]
    assert figures["eval/new_constants/test_rate"] == 1.0
    assert str(figures["new_constants: hidden tests"]).startswith("1/1 (100.0 %")
    assert results.adapter.overall.num_tasks == 2
