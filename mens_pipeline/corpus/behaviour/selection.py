"""Choose which observed calls become examples of the prompt, and which become hidden tests."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mens_pipeline.language.interpreter.values import Value, Variant

Goal = tuple[str, object]
"""A goal that a hidden test can cover: a branch, a mutant or another simple function refused, a result shown, or as
many steps taken, to a power of two."""

FEWEST_TESTS: Final = 5
FEWEST_RESULTS: Final = 2
MOST_EXAMPLES: Final = 3
_USUAL_TESTS: Final = 8
"""As many where there are enough calls: fewer let other functions through by chance."""
_MOST_TESTS: Final = 12
_WORTH_OF_A_RESULT: Final = 4
"""Goals that a call with a result of its own may lack, among calls that are not needed."""
_LONGEST_EXAMPLE: Final = 80
"""Characters of a call and its result."""
_LONGEST_EXAMPLES: Final = 150
"""The same of all examples together: a request must leave room for its answer."""
_GLANCE: Final = 50
"""Characters of a call and its result up to which both are read at a glance."""


@dataclass(slots=True, eq=False)
class SeenCall:
    """One call that returned a value that can be written.

    `goals` is what it is good for, `length` the characters of both texts; `oddity` is how much of it is at an edge or
    hard to read: large numbers, empty and single things, long texts.
    """

    arguments: tuple[Value, ...]
    value: Value
    call: str
    result: str
    num_steps: int
    goals: set[Goal]
    length: int = field(init=False)
    oddity: int = field(init=False)

    def __post_init__(self) -> None:
        """Measure it once: it is compared often."""
        self.length = len(self.call) + len(self.result)
        self.oddity = sum(map(_oddity, (*self.arguments, self.value))) + max(0, self.length - _GLANCE) // 10


def _oddity(value: Value) -> int:
    kind = type(value)
    if kind is int:
        return max(0, len(str(abs(value))) - 2)
    if kind is str:
        return int(not value)
    if kind is list:
        return sum(map(_oddity, value)) + max(0, 2 - len(value))
    if kind is dict:
        return sum(map(_oddity, value.values()))
    return sum(map(_oddity, value.fields)) if kind is Variant else 0


def rivals(arguments: Sequence[Value]) -> dict[str, Value]:
    """Compute the results of simple rival functions: the maximum, the sum, the length, each argument as it is."""
    found: dict[str, Value] = {f"argument {index}": value for index, value in enumerate(arguments)}
    ints = [value for value in arguments if type(value) is int]
    texts = [value for value in arguments if type(value) is str]
    lists = [value for value in arguments if type(value) is list]
    for numbers in (ints, *(xs for xs in lists if xs and all(type(x) is int for x in xs))):
        if numbers:
            found |= {"most": max(numbers), "least": min(numbers), "sum": sum(numbers), "size": abs(numbers[0])}
            found |= {"product": math.prod(numbers), "difference": numbers[0] - numbers[-1]}
    for things in texts[:1] or lists[:1]:
        found |= {
            "length": len(things),
            "backwards": things[::-1],
            "is empty": not things,
            "is not empty": bool(things),
        }
    if texts:
        found |= {"together": "".join(texts), "upper": texts[0].upper(), "trimmed": texts[0].strip()}
    if len(arguments) > 1:
        first, second = arguments[:2]
        found |= {"equal": type(first) is type(second) and first == second}
    if len(ints) > 1:
        found |= {"ordered": ints[0] < ints[1], "reversed": ints[0] > ints[1]}
    return found


def goals_of(calls: Iterable[SeenCall]) -> set[Goal]:
    """Unite what several calls cover."""
    return {goal for call in calls for goal in call.goals}


def chosen_examples(calls: Sequence[SeenCall]) -> list[SeenCall]:
    """Return one to three short calls that reach different branches, with other results; no hidden test needs them."""
    left = Counter[Goal]()
    for call in calls:
        left.update(call.goals)
    short = [call for call in calls if call.length <= _LONGEST_EXAMPLE] or [min(calls, key=lambda call: call.length)]
    spare = _spare(short, left)
    if not spare:
        # Every call is needed as a test: the one that is missed least.
        return [min(short, key=lambda call: (sum(left[goal] == 1 for goal in call.goals), call.oddity))]
    examples: list[SeenCall] = []
    reached: set[Goal] = set()
    while spare and len(examples) < min(MOST_EXAMPLES, len(calls) - FEWEST_TESTS):
        best = max(spare, key=lambda call: (len(call.goals - reached), -call.oddity))
        examples.append(best)
        reached |= best.goals
        left.subtract(best.goals)
        room = _LONGEST_EXAMPLES - sum(call.length for call in examples)
        spare = [call for call in spare if call.result != best.result and call.length <= room]
        spare = _spare(spare, left)
    return examples


def _spare(calls: Sequence[SeenCall], left: Mapping[Goal, int]) -> list[SeenCall]:
    """Return the calls all of whose goals others reach as well."""
    rare = {goal for goal, number in left.items() if number <= 1}
    return [call for call in calls if rare.isdisjoint(call.goals)]


def chosen_tests(calls: Iterable[SeenCall]) -> list[SeenCall]:
    """Return as few calls as cover all that any call covers, but eight if there are, with different results.

    `calls` are those that are no examples; earlier ones are preferred.
    """
    left, chosen = list(calls), list[SeenCall]()
    missing = goals_of(left)
    results: set[str] = set()

    def gain(call: SeenCall) -> tuple[int, int]:
        is_new = call.result not in results
        spread = len(call.goals) + (_WORTH_OF_A_RESULT if is_new else 0)
        return len(call.goals & missing) + (is_new and len(results) < FEWEST_RESULTS), spread

    while left and len(chosen) < _MOST_TESTS:
        best = max(left, key=gain)
        if len(chosen) >= _USUAL_TESTS and gain(best)[0] == 0:
            break
        left.remove(best)
        chosen.append(best)
        missing -= best.goals
        results.add(best.result)
    return chosen
