"""Champions that each lose a little are found out by those before them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import RESULTS as EVAL_RESULTS
from mens_pipeline.evaluation.results import SCORED_COMPLETIONS, EvalResults, results_in
from mens_pipeline.evaluation.rounds import evaluate_in_rounds
from mens_pipeline.evaluation.suite import EvalSuite
from mens_pipeline.inference.generation import Completion, Decoding, GenerationJob
from mens_pipeline.inference.prepare import Conditions
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.models.adapter import MANIFEST, WEIGHTS, Adapter
from mens_pipeline.models.base import digest_of_folder
from mens_pipeline.promotion.history import read_history
from mens_pipeline.promotion.policy import GateName
from mens_pipeline.promotion.promote import roll_back
from mens_pipeline.promotion.referee import StoreReferee
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline_tests.evaluation.runs import HELDOUT, NOW, PRESENT, THRESHOLDS, promote, scored, trained
from mens_pipeline_tests.evaluation.scored import BROKEN, GOOD, task
from mens_pipeline_tests.promotion.verdicts import RESULTS, inputs, outcome_of

_TASKS: Final = tuple(task(number) for number in range(100))
_DAY: Final = 86_400
_CI: Final = THRESHOLDS.model_copy(update={"min_coverage": 0.0})
_PRESENT: Final = replace(PRESENT, thresholds=_CI, heldout=HELDOUT, decoding=Decoding())


class _Line:
    def __init__(self, folder: Path, base: Path) -> None:
        self.store, self.lines, self.num_days = ArtifactStore(folder / "store"), list[str](), 0
        self._folder, self._base = folder, {"path": str(base), "sha256": digest_of_folder(base)}

    def evaluate(self, name: str, prompts: tuple[Any, ...] = _TASKS, **changes: Any) -> tuple[Path, Artifact]:
        run = self._folder / name
        if not run.is_dir():
            trained(run, name)
            manifest = json.loads((run / MANIFEST).read_text())
            manifest["base_model"] |= self._base
            (run / MANIFEST).write_text(json.dumps(manifest))
        conditions = Conditions(Decoding(**changes), resolve_device(DeviceChoice.CPU), self.store.root / "cpu.lock")
        evaluation, _ = evaluate_in_rounds(
            Adapter.open(run),
            EvalSuite(prompts, HELDOUT, None, _CI.first_heldout_tasks, _CI.max_rounds),
            conditions,
            self.store,
            StoreReferee(self.store, _CI, is_benchmark_asked=False, now=NOW, log_line=self.lines.append),
            launch=_complete,
            log_line=self.lines.append,
        )
        return run, evaluation

    def results(self, name: str, **changes: Any) -> EvalResults:
        return results_in(self.evaluate(name, **changes)[1].path)

    def promote(self, name: str) -> str:
        run, evaluation = self.evaluate(name)
        self.num_days += 1
        gate = scored(run, self.store, evaluation, _CI)
        return promote(gate, run, self.store, _PRESENT, now=NOW + self.num_days * _DAY).champion.key


def _complete(job: GenerationJob) -> int:
    path = job.first.adapter_path
    num_good = int((path / WEIGHTS).read_text()) if path is not None else 0
    for name, asked in job.generations.items():
        completions = [
            Completion(task=r.task, sample=0, text=GOOD if place < num_good else BROKEN, num_tokens=7, stopped=True)
            for place, r in enumerate(asked.requests)
        ]
        write_jsonl(job.completions(name), completions)
    return 0


@pytest.fixture
def line(tmp_path: Path, tiny_base: Path) -> _Line:
    return _Line(tmp_path, tiny_base)


def test_two_points_a_promotion_are_refused_though_each_step_is_small(line: _Line) -> None:
    """Of 100 prompts, each champion does two fewer; history, receipt and figures say since when."""
    for name in ("100", "98", "96", "94"):
        line.promote(name)
    *_, last = read_history(line.store)
    assert "; down 6.0 points since the champion of 2027-01-16 (" in last.reason
    assert "the best of 2 before the one in use, on 100 tasks that both were asked (p = 0.031)" in last.reason

    with pytest.raises(RefusedError, match=r"decline: down 8\.0 points since the champion of 2027-01-16 \("):
        line.promote("92")
    assert len(read_history(line.store)) == 4


def test_the_best_champion_before_is_meant_not_the_first(line: _Line) -> None:
    for name in ("91", "95", "94"):
        line.promote(name)
    keys = [event.key for event in read_history(line.store)]
    earlier = line.results("93").earlier
    assert earlier is not None
    assert (earlier.key, earlier.num_champions, earlier.parse_difference.num_tasks) == (keys[1], 2, 100)
    some = (*_TASKS[:40], *(task(number, prompt="Another one.") for number in range(40, 100)))
    shared = results_in(line.evaluate("90", some)[1].path).earlier
    assert shared is not None
    assert shared.parse_difference.num_tasks == 40

    roll_back(line.store, now=NOW + 9 * _DAY, reason="it writes nonsense")
    again = line.results("93").earlier
    assert again is not None
    assert (again.key, again.num_champions) == (keys[0], 1)


def test_another_way_of_completing_and_a_lost_evaluation_are_not_compared(line: _Line) -> None:
    for name in ("91", "95"):
        line.promote(name)
    assert line.results("93").earlier is not None
    assert line.results("93", max_new_tokens=99).earlier is None
    assert line.lines == []
    for path in line.store.root.glob(f"eval_results/*/{SCORED_COMPLETIONS}"):
        path.write_text(path.read_text() + "\n")

    assert line.results("92").earlier is None
    assert [entry.partition(" ")[2][13:] for entry in line.lines] == [
        "is not compared with: its evaluation is gone or was changed"
    ]


@pytest.mark.parametrize("file", [SCORED_COMPLETIONS, EVAL_RESULTS])
def test_an_evaluation_of_another_version_is_told_and_blocks_nothing(line: _Line, file: str) -> None:
    """Its rows or figures have a field that is not known here; its hashes are as they were written."""
    for name in ("91", "95"):
        line.promote(name)
    for path in line.store.root.glob(f"eval_results/*/{file}"):
        digest = digest_of(path)
        path.write_text(path.read_text().replace("{", '{"later": 1,', 1))
        manifest = path.parent / "manifest.json"
        manifest.write_text(manifest.read_text().replace(digest, digest_of(path)))

    assert line.results("92").earlier is None
    assert [entry.partition(" ")[2][13:] for entry in line.lines] == [
        "is not compared with: its evaluation was written by another version"
    ]


def test_without_an_earlier_champion_there_is_no_decline() -> None:
    outcome = outcome_of(GateName.DECLINE, inputs(RESULTS))

    assert (outcome.passed, outcome.measured) == (True, None)
    assert outcome.message.startswith("no champion before the one in use ")
