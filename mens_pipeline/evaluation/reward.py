"""Rewards for completions of executable training prompts: tiers, and nothing for fake solutions.

Shortcuts that a model may find, and their reward:

- Declare only the requested name, give up, leave a placeholder, or write nothing: no reward.
- Write its own tests, or leave out requested ones: no difference. Only hidden tests count; they appear in no prompt
  and no completion, and never belong to an evaluation, since the tasks are rows of the train set.
- Return a constant, or copy the examples of the prompt into a ladder of `if`: no more than for the right name. Only
  passed tests beyond those that the best constant and the stated examples pass add to the reward.
- Redefine names that the tests use, run forever, or attack the machine: the sandbox fails the program.
- Ramble until cut off: a penalty, and never the full reward.
"""

from collections import Counter
from enum import StrEnum
from functools import lru_cache
from typing import Final

from pydantic import Field

from mens_pipeline.corpus.behaviour.examples import stated_examples
from mens_pipeline.corpus.schema.prompts import collapse_spaces, text_of
from mens_pipeline.evaluation.scores import Score, count_from_one
from mens_pipeline.evaluation.tasks import Task
from mens_pipeline.language import analyze
from mens_pipeline.language.ast import Binary, Function, Test, walk
from mens_pipeline.language.interpreter import hidden_module, without_tests
from mens_pipeline.storage.validation import Strict

LEAST_TELLING: Final = 2
"""Fewest hidden tests that neither a constant nor the stated examples pass, for a task to distinguish solutions."""

_VOX: Final = 0.05
_RESOLVES: Final = 0.1
_OF_TESTS: Final = 0.4
_PASSED: Final = 1.0
_UNENDED: Final = 0.1


class Tier(StrEnum):
    """Tiers of a completion, the lowest first."""

    NOTHING = "nothing"  # no Vox, or Vox that does nothing
    VOX = "vox"  # the front end accepts it
    RESOLVES = "resolves"
    """It also declares the requested construct, without errors in names and types."""
    TESTS = "tests"  # it also passes some hidden tests that a constant does not
    PASSED = "passed"
    """It ended by itself, and passes as in an evaluation: all hidden tests and all requirements."""


class Reward(Strict):
    """Reward of a completion, with its reason."""

    tier: Tier
    value: float = Field(ge=-_UNENDED, le=_PASSED, description="Higher is better.")
    why: str = Field(description="Reason, for people.")


def compute_reward(task: Task, score: Score) -> Reward:
    """Compute the reward of a completion, with the reason."""
    tier, value, why = _grade(task, score)
    if score.stopped:
        return Reward(tier=tier, value=value, why=why)
    return Reward(tier=tier, value=value - _UNENDED, why=f"{why}; it was cut off")


def _grade(task: Task, score: Score) -> tuple[Tier, float, str]:
    if not score.parses:
        return Tier.NOTHING, 0.0, f"not Vox: {count_from_one(score.error or '')}"
    if score.stub or does_nothing(task, score.program):
        return Tier.NOTHING, 0.0, "it does nothing"
    if not score.has_construct or score.has_name is False:
        return Tier.VOX, _VOX, f"it declares no {task.construct} `{task.name}`"
    if not score.resolves:
        return Tier.VOX, _VOX, f"names or types: {count_from_one(score.semantic_error or '')}"
    num_free, num_tests = num_given_away(task), score.execution.num_tests if score.execution is not None else 0
    num_passed = score.execution.num_passed if score.execution is not None else 0
    details = f"{num_passed} of {num_tests} hidden tests, {num_free} of them given away"
    if num_tests - num_free < LEAST_TELLING:
        return Tier.RESOLVES, _RESOLVES, f"its tests prove nothing: {details}"
    if score.passed:
        return Tier.PASSED, _PASSED, f"passed: {details}"
    share = max(0.0, (num_passed - num_free) / (num_tests - num_free))
    if share == 0:
        return Tier.RESOLVES, _RESOLVES, details
    return Tier.TESTS, _RESOLVES + _OF_TESTS * share, details


def is_telling(task: Task) -> bool:
    """Return whether hidden tests distinguish a solution of a task from a fake one."""
    assert task.tests is not None, "only executable tasks are asked"  # noqa: S101 - an internal invariant
    num_tests = sum(isinstance(declaration, Test) for declaration in hidden_module(task.tests).declarations)
    return num_tests - num_given_away(task) >= LEAST_TELLING


def num_given_away(task: Task) -> int:
    """Count the hidden tests that the best constant passes, and those that the prompt gives away as examples."""
    assert task.tests is not None, "only executable tasks are asked"  # noqa: S101 - an internal invariant
    return _num_given_away(task.prompt, task.tests)


@lru_cache(maxsize=1024)
def _num_given_away(prompt: str, tests: str) -> int:
    stated = {collapse_spaces(example.call) for example in stated_examples(prompt)}
    expected: Counter[str] = Counter()
    num_stated = 0
    for declaration in hidden_module(tests).declarations:
        compared = next((n for n in walk(declaration) if isinstance(n, Binary) and n.op == "Is"), None)
        if not isinstance(declaration, Test) or compared is None:
            continue
        if text_of(compared.left, tests) in stated:
            num_stated += 1
        else:
            expected[tests[compared.right.start : compared.right.end]] += 1
    return num_stated + max(expected.values(), default=0)


def does_nothing(task: Task, program: str) -> bool:
    """Return whether an accepted completion is only tests, or its requested function has no body."""
    module = analyze(program, task.mode).module
    assert module is not None, "only accepted completions are looked at"  # noqa: S101 - an internal invariant
    own = without_tests(module).declarations
    functions = [node for declaration in own for node in walk(declaration) if isinstance(node, Function)]
    asked = [function for function in functions if task.name is None or function.name == task.name]
    return not own or (task.construct == "function" and bool(asked) and not any(function.body for function in asked))
