"""An eval suite is evaluated in rounds, with a launcher that writes completions at a known rate."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import RESULTS, EvalResults
from mens_pipeline.evaluation.rounds import evaluate_in_rounds
from mens_pipeline.evaluation.suite import EvalSuite
from mens_pipeline.evaluation.tasks import Suite
from mens_pipeline.inference.generation import Completion, Decoding, GenerationJob
from mens_pipeline.inference.prepare import Conditions
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.models.adapter import MANIFEST, Adapter
from mens_pipeline.models.base import digest_of_folder
from mens_pipeline.promotion.referee import StoreReferee
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.evaluation.runs import NOW, PRESENT, THRESHOLDS, evaluated, promote, scored, trained
from mens_pipeline_tests.evaluation.scored import BROKEN, GOOD, task

_LENIENT = THRESHOLDS.model_copy(update={"min_coverage": 0.0})
_TASKS = tuple(task(100 * n + place, file=f"{n}.vox") for n in range(40) for place in range(5))


class _Models:
    def __init__(self, num_good: int) -> None:
        self.num_good = num_good
        self.asked: list[tuple[str, int]] = []

    def __call__(self, job: GenerationJob) -> int:
        model = "base" if job.first.adapter_path is None else "adapter"
        for name, asked in job.generations.items():
            self.asked.append((model, len(asked.requests)))
            write_jsonl(job.completions(name), [self._reply(model, request.task) for request in asked.requests])
        return 0

    def _reply(self, model: str, name: str) -> Completion:
        file, place = divmod(int(name.rpartition("/")[2]), 100)
        is_good = model == "adapter" and place < self.num_good + (file % 3 > 0)
        return Completion(task=name, sample=0, text=GOOD if is_good else BROKEN, num_tokens=7, stopped=True)


@pytest.fixture
def run(tmp_path: Path, tiny_base: Path) -> Callable[[str], Path]:

    def make(weights: str) -> Path:
        folder = trained(tmp_path / f"run-{weights}", weights)
        manifest = json.loads((folder / MANIFEST).read_text())
        manifest["base_model"] |= {"path": str(tiny_base), "sha256": digest_of_folder(tiny_base)}
        (folder / MANIFEST).write_text(json.dumps(manifest))
        return folder

    return make


def _evaluate(folder: Path, store: ArtifactStore, models: _Models, log_line: Callable[[str], None]) -> EvalResults:
    conditions = Conditions(Decoding(), resolve_device(DeviceChoice.CPU), store.root / "cpu.lock")
    evaluation, _ = evaluate_in_rounds(
        Adapter.open(folder),
        EvalSuite(_TASKS, "cd" * 32, None, _LENIENT.first_heldout_tasks, _LENIENT.max_rounds),
        conditions,
        store,
        StoreReferee(store, _LENIENT, is_benchmark_asked=False, now=NOW, log_line=log_line),
        launch=models,
        log_line=log_line,
    )
    return EvalResults.model_validate_json((evaluation.path / RESULTS).read_text())


@pytest.mark.parametrize(
    ("num_good", "rounds"), [(5, 1), (4, 1), (3, 2), (1, 1)], ids=["all", "good", "near the floor", "bad"]
)
def test_later_files_are_evaluated_only_if_the_first_are_undecided(
    tmp_path: Path, run: Callable[[str], Path], num_good: int, rounds: int
) -> None:
    models, details = _Models(num_good), list[str]()
    results = _evaluate(run("one"), ArtifactStore(tmp_path / "store"), models, details.append)
    rate = results.adapter.suites[Suite.HELDOUT].parse_rate

    assert (results.progress.round, results.progress.num_rounds, results.progress.attempt) == (rounds, 2, 1)
    assert (rate.denominator, rate.num_units) == (100 * rounds, 20 * rounds)
    assert results.progress.num_reserve == 200 - rate.denominator
    assert sorted(models.asked) == [("adapter", 100)] * rounds + [("base", 100)] * rounds
    assert results.parse_difference.num_tasks == rate.denominator
    assert len(details) == rounds - 1
    assert all("parse_rate" in line and "round 2 of 2 evaluates 100 more" in line for line in details)


def test_completions_are_generated_once(tmp_path: Path, run: Callable[[str], Path]) -> None:
    store, models = ArtifactStore(tmp_path / "store"), _Models(3)
    first = _evaluate(run("one"), store, models, print)
    num_asked = len(models.asked)
    again = _evaluate(tmp_path / "run-one", store, models, print)
    other = _evaluate(run("two"), store, models, print)

    assert again == first
    assert num_asked == 4
    assert models.asked[num_asked:] == [("adapter", 100)] * 2
    assert (first.progress.attempt, other.progress.attempt) == (1, 2)


@pytest.mark.parametrize("is_first", [False, True])
def test_a_promotion_during_the_evaluation_is_refused(
    tmp_path: Path, run: Callable[[str], Path], *, is_first: bool
) -> None:
    store = ArtifactStore(tmp_path / "store")
    champions = [run("first"), run("second")]

    def promote_next(_line: str) -> None:
        folder = champions.pop(0)
        promote(scored(folder, store, evaluated(folder, store)), folder, store, PRESENT, now=NOW)

    if is_first:
        champions.pop()
    else:
        promote_next("")
    with pytest.raises(RefusedError, match=r"another adapter was promoted during the evaluation\. Evaluate"):
        _evaluate(run("candidate"), store, _Models(3), promote_next)
    assert champions == []
