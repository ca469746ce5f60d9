"""Observed calls as examples of a prompt and as hidden tests: chosen, written, and read where a prompt states them."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mens_pipeline.language import analyze, tokenize
from mens_pipeline.language.interpreter import Value, VariantValue

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
"""The same of all examples together: a prompt must leave room for its completion."""
_GLANCE: Final = 50
"""Characters of a call and its result up to which both are read at a glance."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One call that returned, as Vox text: `area(Rect(2, 3))`, and its result: `6`."""

    call: str
    result: str


@dataclass(slots=True, eq=False)
class SeenCall:
    """One call that returned a value that can be written, and the goals that it covers.

    `length` is the characters of both texts; `oddity` how much is at an edge or hard to read, as large numbers are.
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
    return sum(map(_oddity, value.fields)) if kind is VariantValue else 0


def alternatives(arguments: Sequence[Value]) -> dict[str, Value]:
    """Compute the results of simple other functions: the maximum, the sum, the length, each argument as it is."""
    found: dict[str, Value] = {f"argument {index}": value for index, value in enumerate(arguments)}
    ints = [value for value in arguments if type(value) is int]
    texts = [value for value in arguments if type(value) is str]
    lists = [value for value in arguments if type(value) is list]
    for numbers in (ints, *(xs for xs in lists if xs and all(type(x) is int for x in xs))):
        if numbers:
            found |= {"most": max(numbers), "least": min(numbers), "sum": sum(numbers), "size": abs(numbers[0])}
            found |= {"product": math.prod(numbers), "difference": numbers[0] - numbers[-1]}
    for things in texts[:1] or lists[:1]:
        found |= {"length": len(things), "backwards": things[::-1]}
        found |= {"is empty": not things, "is not empty": bool(things)}
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
        spare = _spare([call for call in spare if call.result != best.result and call.length <= room], left)
    return examples


def _spare(calls: Sequence[SeenCall], left: Mapping[Goal, int]) -> list[SeenCall]:
    """Return the calls all of whose goals others reach as well."""
    rare = {goal for goal, number in left.items() if number <= 1}
    return [call for call in calls if rare.isdisjoint(call.goals)]


def chosen_tests(calls: Iterable[SeenCall]) -> list[SeenCall]:
    """Return as few calls as cover all that any covers, but eight if there are; earlier ones are preferred."""
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


_STATED: Final = re.compile(r"`(?P<call>[a-z_]\w*\([^`]*\))` (?:is|gives|returns|equals) (?:`(?P<result>[^`]+)`)?")
"""An example, which a result without marks may follow."""
_MOST_STATED: Final = 16
"""Examples of a prompt that are read."""
_LONGEST_RESULT: Final = 400
"""Characters of a result without marks."""
_OPENERS: Final = frozenset("([{")
_CLOSERS: Final = frozenset(")]}")
_VALUES: Final = frozenset(("INT", "FLOAT", "DECIMAL", "STRING", "SSTRING", "TYPEIDENT", "true", "false"))
_SHOWN: Final = ":\n\n"
"""The sentence between a prompt and the code that it shows: `This is there already:` and a blank line."""
_MOST_SHOWN: Final = 4
"""Places of a prompt at which code may begin."""


def examples_sentence(examples: Sequence[Observation]) -> str:
    """Return the examples as a sentence: ``For example, `f(1)` is 2 and `f(2)` is 3.``."""
    parts = [f"`{example.call}` is {example.result}" for example in examples]
    listed = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
    return f"For example, {listed}."


def stated_examples(prompt: str) -> tuple[Observation, ...]:
    """Return the examples that a prompt states, as ``f(1)` is 2``; what is no call or no value of Vox is left out."""
    found: list[Observation] = []
    for match in _STATED.finditer(prompt):
        if len(found) == _MOST_STATED:
            break
        result = match["result"] or _value_in(prompt[match.end() : match.end() + _LONGEST_RESULT])
        example = Observation(match["call"], result)
        if result and analyze(example_tests([example])).ok:
            found.append(example)
    return tuple(found)


def example_tests(examples: Sequence[Observation]) -> str:
    """Return the examples as `@test` functions, one each, in their order."""
    lines = (f"@test fn stated_{n}() {{ assert({seen.call} is {seen.result}) }}" for n, seen in enumerate(examples))
    return "\n".join(lines) + "\n"


def shown_code(prompt: str) -> str:
    """Return the program that a prompt ends with, behind a sentence such as `This is there already:`; else nothing."""
    start = prompt.find(_SHOWN)
    for _ in range(_MOST_SHOWN):
        if start < 0:
            break
        code = prompt[start + len(_SHOWN) :]
        module = analyze(code).module
        if module is not None and module.declarations:
            return code
        start = prompt.find(_SHOWN, start + 1)
    return ""


def _value_in(text: str) -> str:
    """Return the value that a text begins with; empty where it begins with none."""
    tokens = [token for token in tokenize(text) if not token.is_trivia]
    if not tokens or tokens[0].start:
        return ""
    rest = tokens[1:] if tokens[0].text == "-" else tokens
    if rest and rest[0].kind in _VALUES:
        first, *more = rest
        if first.kind != "TYPEIDENT" or not more or (more[0].text, more[0].start) != ("(", first.end):
            return text[: first.end]
        rest = more
    depth = 0
    for token in rest:
        depth += (token.text in _OPENERS) - (token.text in _CLOSERS)
        if depth <= 0:
            return text[: token.end] if token.text in _CLOSERS and depth == 0 else ""
    return ""
