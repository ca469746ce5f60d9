"""Choose one of several completions from the prompt alone, and measure how often the choice is correct.

Hidden tests are not used. Each step narrows the remaining completions: to programs that parse; to programs without
errors in names and types; to those that pass the most examples in the prompt; to those whose outputs on random
arguments agree with the most others; and to the likeliest one.

Source: CodeT (Chen et al. 2022) for the examples; MBR-EXEC (Shi et al. 2022) for the vote of the outputs.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from time import monotonic
from typing import Final, Self

from mens_pipeline.corpus.behaviour.examples import example_tests, shown_code, stated_examples
from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.corpus.schema.prompts import mentioned_names
from mens_pipeline.evaluation.judge import FEATURES, errors_beside, prepend_given
from mens_pipeline.evaluation.results import BestOf, BestOfScores
from mens_pipeline.evaluation.scores import Score, Scores, compare_scores, scores_of_model
from mens_pipeline.evaluation.tasks import Task
from mens_pipeline.inference.generation import Completion, is_program, program_in
from mens_pipeline.language import Mode, analyze, name_of
from mens_pipeline.language.interpreter import Limits, ProgramStatus, Sandbox, with_given
from mens_pipeline.language.surroundings import Surroundings

LIMITS: Final = Limits(
    max_steps=200_000, max_size=100_000, max_allocation=1_000_000, test_seconds=1.0, program_seconds=3.0
)
"""Limits for running the examples on one completion; the step limit stops nearly all programs before the time limit."""
_SECONDS: Final = 3.0
"""Time limit for the calls of one completion with random arguments; then their process is killed."""
_STOPPED: Final = -inf  # score of a completion that was stopped or never returns
_NAMED: Final = re.compile(r"`(?:fn )?([a-z_]\w*)")
_MOST_NAMED: Final = 3  # most functions to call


@dataclass(frozen=True, slots=True)
class SampledText:
    """A sampled completion.

    `likelihood` is the mean log-probability of its tokens.
    """

    text: str
    likelihood: float


class Step(StrEnum):
    """Step that decided a selection: the first to leave one completion, or copies of it."""

    PARSER = "parser"
    NAMES = "names"
    EXAMPLES = "examples"
    OUTPUTS = "outputs"
    LIKELIHOOD = "likelihood"


@dataclass(frozen=True, slots=True)
class Selection:
    """Index of the chosen completion, and the step that decided."""

    place: int
    step: Step


def choose_insert(around: Surroundings, candidates: Sequence[SampledText]) -> int:
    """Return the index of the best piece at a cursor.

    Pieces that fit the syntax come first, then pieces without new errors in names and types, then the likeliest, then
    the first; empty pieces come last. `around` is the text around the cursor; `candidates` must not be empty.
    """

    def worth(place: int) -> tuple[bool, bool, bool, float]:
        text = candidates[place].text
        return bool(text), around.accept(text), around.find_error(text) is None, candidates[place].likelihood

    return max(range(len(candidates)), key=worth)


class Selector(ExitStack):
    """Chooses completions; a context manager, because it runs them in separate processes.

    Processes start when they are first needed. Several threads may share a selector.
    """

    def __init__(self, num_workers: int = 2) -> None:
        super().__init__()
        self._sandbox = Sandbox(num_workers, LIMITS, features=FEATURES)
        self._workers = BehaviourWorkers(num_workers, seconds=_SECONDS)

    def __enter__(self) -> Self:
        self.enter_context(self._sandbox)
        self.enter_context(self._workers)
        return self

    def choose(self, prompt: str, mode: Mode, candidates: Sequence[SampledText], end: float = inf) -> Selection:
        """Choose the best completion, and the first of equally good ones.

        Programs run only in source mode. After `end`, in seconds of the monotonic clock, no further step runs programs,
        and the likeliest remaining completion is chosen.
        """
        left, step = self._narrow(prompt, mode, [candidate.text for candidate in candidates], end)
        return Selection(max(left, key=lambda place: candidates[place].likelihood), step)

    def _narrow(self, prompt: str, mode: Mode, texts: Sequence[str], end: float) -> tuple[list[int], Step]:
        programs = [program_in(text) for text in texts]
        left = _best(range(len(texts)), lambda place: is_program(texts[place], mode))
        if _is_one(left, programs):
            return left, Step.PARSER
        if not is_program(texts[left[0]], mode):
            return left, Step.LIKELIHOOD
        given, mentioned = shown_code(prompt), frozenset(mentioned_names(prompt))
        left = _best(left, lambda place: not errors_beside(given, programs[place], mode, mentioned))
        if _is_one(left, programs):
            return left, Step.NAMES
        if mode is Mode.SOURCE:
            whole = {place: prepend_given(programs[place], given, mode) for place in left}
            steps = ((Step.EXAMPLES, self._passed_examples), (Step.OUTPUTS, self._agreement))
            for step, measure in steps:
                if monotonic() >= end:
                    break
                figures = measure(prompt, [whole[place] for place in left])
                by_place = dict(zip(left, figures, strict=True))
                left = _best(left, by_place.__getitem__)
                if _is_one(left, programs):
                    return left, step
        return left, Step.LIKELIHOOD

    def _passed_examples(self, prompt: str, programs: Sequence[str]) -> list[float]:
        examples = stated_examples(prompt)
        if not examples:
            return [0.0] * len(programs)
        tests = with_given(shown_code(prompt), example_tests(examples))
        different = list(dict.fromkeys(programs))
        reports = self._sandbox.map_with_tests((program, tests) for program in different)
        passed = {
            program: _STOPPED if report.status is ProgramStatus.STOPPED else float(report.num_passed)
            for program, report in zip(different, reports, strict=True)
        }
        return [passed[program] for program in programs]

    def _agreement(self, prompt: str, programs: Sequence[str]) -> list[float]:
        different = list(dict.fromkeys(programs))
        agreed = [0.0] * len(programs)
        for function in _functions_asked(prompt, different):
            outputs = dict(zip(different, self._workers.outputs(different, function, prompt), strict=True))
            called = [outputs[program] for program in programs]
            votes = [Counter(results) for results in zip(*(some for some in called if some is not None), strict=True)]
            for place, some in enumerate(called):
                if some is None or set(some) == {None}:
                    agreed[place] = _STOPPED
                else:
                    agreed[place] += sum(votes[n][result] - 1 for n, result in enumerate(some) if result is not None)
        return agreed


def _functions_asked(prompt: str, programs: Sequence[str]) -> list[str]:
    examples = (example.call.partition("(")[0] for example in stated_examples(prompt))
    named = dict.fromkeys([*examples, *(match[1] for match in _NAMED.finditer(prompt))])
    modules = (analyze(program).module for program in programs)
    declared = {name_of(declaration) for module in modules if module is not None for declaration in module.declarations}
    return [name for name in named if name in declared][:_MOST_NAMED]


def _best(places: Sequence[int], figure: Callable[[int], float]) -> list[int]:
    figures = {place: figure(place) for place in places}
    most = max(figures.values())
    return [place for place in places if figures[place] == most]


def _is_one(places: Sequence[int], programs: Sequence[str]) -> bool:
    return len({programs[place] for place in places}) == 1


def best_of(tasks: Sequence[Task], completions: Sequence[Completion], evaluated: Sequence[Score]) -> BestOf | None:
    """Choose a completion of each prompt and score the choices; None if each prompt has only one.

    `completions` are as served; `evaluated` holds their scores in the same order.
    """
    samples: defaultdict[str, list[tuple[Completion, Score]]] = defaultdict(list)
    for completion, score in zip(completions, evaluated, strict=True):
        samples[completion.task].append((completion, score))
    n = len(samples[tasks[0].id])
    if n <= 1:
        return None
    steps: Counter[str] = Counter()
    chosen: dict[str, Score] = {}
    with Selector() as selector:
        for task in tasks:
            candidates = [
                SampledText(completion.text, completion.likelihood or 0.0) for completion, _ in samples[task.id]
            ]
            choice = selector.choose(task.prompt, task.mode, candidates)
            steps[choice.step] += 1
            chosen[task.id] = samples[task.id][choice.place][1]
    scores = scores_of_model(tasks, chosen.values())
    pairs = [(samples[task.id][0][1], chosen[task.id]) for task in tasks]
    differences = compare_scores(pairs, {task.id: task.file for task in tasks})
    return BestOf(
        n=n,
        overall=_scores(scores.overall),
        suites={suite: _scores(of_suite) for suite, of_suite in scores.suites.items()},
        steps=dict(steps),
        chosen={name: score.sample for name, score in chosen.items()},
        pass_difference=differences["pass_difference"],
        test_difference=differences["test_difference"],
    )


def _scores(scores: Scores) -> BestOfScores:
    return BestOfScores(
        num_tasks=scores.num_tasks,
        parse_rate=scores.parse_rate,
        resolve_rate=scores.resolve_rate,
        pass_rate=scores.pass_at_1,
        test_rate=scores.test_rate,
    )
