"""A slow decline of champions is detected by comparison with earlier ones."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.evaluate import EarlierChampion, _earlier
from mens_pipeline.evaluation.results import RESULTS as EVAL_RESULTS
from mens_pipeline.evaluation.results import SCORED_COMPLETIONS, EvalResults, results_in
from mens_pipeline.evaluation.rounds import evaluate_in_rounds
from mens_pipeline.evaluation.scores import Score
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
from mens_pipeline_tests.evaluation.scored import BROKEN, GOOD, OTHER, evaluation, task
from mens_pipeline_tests.promotion.verdicts import FULL, RESULTS, inputs, outcome_of

_TASKS: Final = tuple(task(number, prompt=f"Write a function `add`, for case {number}.") for number in range(100))
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


def test_repeated_small_drops_are_refused(line: _Line) -> None:
    """Of 100 prompts, each champion completes two fewer; the history says since when."""
    for name in ("100", "98", "96", "94"):
        line.promote(name)
    *_, last = read_history(line.store)
    assert "; down 6.0 points since the champion of 2027-01-16 (" in last.reason
    assert "the oldest 1 of 2 earlier champions, in 100 comparisons on shared prompts (p = 0.031)" in last.reason

    with pytest.raises(RefusedError, match=r"decline: down 7\.0 points since the champion of 2027-01-16 \("):
        line.promote("92")
    assert len(read_history(line.store)) == 4


def test_the_older_champions_are_compared_together(line: _Line) -> None:
    for name in ("91", "95", "94", "96"):
        line.promote(name)
    keys = [event.key for event in read_history(line.store)]
    earlier = line.results("93").earlier
    assert earlier is not None
    assert (earlier.key, earlier.num_champions, earlier.num_compared) == (keys[0], 3, 2)
    assert (earlier.parse_difference.num_tasks, earlier.parse_difference.net_gains) == (200, {-1: 2, 1: 2})
    some = (*_TASKS[:40], *(task(number, prompt="Another one.") for number in range(40, 100)))
    shared = results_in(line.evaluate("90", some)[1].path).earlier
    assert shared is not None
    assert shared.parse_difference.num_tasks == 80

    roll_back(line.store, now=NOW + 9 * _DAY, reason="it writes nonsense")
    again = line.results("93").earlier
    assert again is not None
    assert (again.key, again.num_champions, again.num_compared) == (keys[0], 2, 1)


def test_other_decoding_and_lost_evaluations_are_not_compared(line: _Line) -> None:
    for name in ("91", "95"):
        line.promote(name)
    assert line.results("93").earlier is not None
    assert line.results("93", max_new_tokens=99).earlier is None
    assert line.lines == []
    for path in line.store.root.glob(f"eval_results/*/{SCORED_COMPLETIONS}"):
        path.write_text(path.read_text() + "\n")

    assert line.results("92").earlier is None
    assert [entry.partition(" ")[2][13:] for entry in line.lines] == [
        "is left out: its evaluation is gone or was changed"
    ]


@pytest.mark.parametrize("file", [SCORED_COMPLETIONS, EVAL_RESULTS])
def test_an_evaluation_of_another_version_is_skipped_with_a_note(line: _Line, file: str) -> None:
    """Its rows or figures have an unknown field; its hashes are valid."""
    for name in ("91", "95"):
        line.promote(name)
    for path in line.store.root.glob(f"eval_results/*/{file}"):
        digest = digest_of(path)
        path.write_text(path.read_text().replace("{", '{"later": 1,', 1))
        manifest = path.parent / "manifest.json"
        manifest.write_text(manifest.read_text().replace(digest, digest_of(path)))

    assert line.results("92").earlier is None
    assert [entry.partition(" ")[2][13:] for entry in line.lines] == [
        "is left out: its evaluation was written by another version"
    ]


def test_without_an_earlier_champion_there_is_no_decline() -> None:
    outcome = outcome_of(GateName.DECLINE, inputs(RESULTS))

    assert (outcome.passed, outcome.measured) == (True, None)
    assert outcome.message.startswith("no earlier champion ")


_FILES: Final = (*[1] * 7, *[2] * 3, 3, *[4] * 3, 5, 7, 7, 8, 10, 10, 10, 11, 11, *[1] * 86)
"""Prompts of each file: the held-out ones of `make run`, and those of the benchmark."""
_ASKED: Final = tuple(
    task(100 * file + place, file=str(file), prompt=f"{file} {place}")
    for file, size in enumerate(_FILES)
    for place in range(size)
)
_LIKE: Final = evaluation(adapter=(BROKEN, OTHER, GOOD)).adapter
"""Completions that do not parse, that parse and fail, and that pass."""
_DISAGREEMENT: Final = 0.1
"""Share of the tasks on which two models of one recipe differ."""


class _Drawn:
    """Models of one recipe, which parse 85 % of the prompts, and pass 40 % of those."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._chances = [tuple(self._chance(mean) for mean in (0.85, 0.4)) for _ in _ASKED]
        self.champions = list[EarlierChampion]()

    def _chance(self, mean: float) -> float:
        weight = mean * (1 - mean) / (mean - _DISAGREEMENT / 2 - mean**2) - 1
        return self._random.betavariate(mean * weight, (1 - mean) * weight)

    def draw(self, lost: float) -> list[Score]:
        """A model that parses less by a share of all prompts."""
        parses = [self._random.random() < chance * (1 - lost / 0.85) for chance, _ in self._chances]
        levels = [
            does + (does and self._random.random() < chance)
            for does, (_, chance) in zip(parses, self._chances, strict=True)
        ]
        return [_SCORES[asked.id][level] for asked, level in zip(_ASKED, levels, strict=True)]

    def is_refused(self, candidate: list[Score]) -> bool:
        """Judge a model by the gate, and promote it if it passes."""
        earlier = _earlier(_ASKED, self.champions[-11:-1], candidate)
        outcome = outcome_of(GateName.DECLINE, inputs(RESULTS.model_copy(update={"earlier": earlier})), FULL)
        if outcome.passed:
            scores = {(asked.prompt, asked.reference): score for asked, score in zip(_ASKED, candidate, strict=True)}
            self.champions.append(EarlierChampion("c" * 64, "c" * 64, len(self.champions), scores))
        return not outcome.passed

    def lose(self, loss: float) -> float:
        """Return the points of parse rate lost when the first model is refused, if each loses `loss` more."""
        return next(100 * loss * n for n in range(round(0.3 / loss)) if self.is_refused(self.draw(loss * n)))


_SCORES: Final = {
    asked.id: [like.model_copy(update={"task": asked.id, "program": str(level)}) for level, like in enumerate(_LIKE)]
    for asked in _ASKED
}


@pytest.mark.nightly
def test_a_slow_decline_is_refused_and_chance_refuses_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures of docs/evaluation.md, by the gate itself; only the completions are drawn."""
    monkeypatch.setattr(
        "mens_pipeline.evaluation.evaluate.score_completions",
        lambda _tasks, completions: [_SCORES[one.task][int(one.text)] for one in completions],
    )
    random = Random(1)  # noqa: S311 - no secret
    for loss, most in ((0.0025, 5), (0.005, 6), (0.01, 8), (0.02, 11)):
        assert median(_Drawn(random).lose(loss) for _ in range(40)) <= most
    lines = [_Drawn(random) for _ in range(40)]
    refused = [line.is_refused(line.draw(0)) for number in range(32) for line in lines]

    assert sum(refused[12 * len(lines) :]) / len(refused[12 * len(lines) :]) < 0.03
