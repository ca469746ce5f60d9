"""Choose and write observed calls as prompt examples and hidden tests, and read examples back from prompts."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mens_pipeline.language import analyze, tokenize
from mens_pipeline.language.interpreter import Value, VariantValue

Goal = tuple[str, object]
"""A coverage goal of hidden tests: a branch to reach, a mutant or simple alternative to refuse, a result to show, or a
number of steps, rounded to a power of two."""

FEWEST_TESTS: Final = 5
FEWEST_RESULTS: Final = 2
MOST_EXAMPLES: Final = 3
_USUAL_TESTS: Final = 8  # fewer tests let other functions pass by chance
_MOST_TESTS: Final = 12
_WORTH_OF_A_RESULT: Final = 4
"""Value of a new result, in goals, when choosing among calls that cover no missing goal."""
_LONGEST_EXAMPLE: Final = 80  # characters of a call and its result
_LONGEST_EXAMPLES: Final = 150
"""Characters of all examples together: a prompt must leave room for its completion."""
_GLANCE: Final = 50  # characters of a call and its result that a person reads at a glance


@dataclass(frozen=True, slots=True)
class Observation:
    """One call that returned, as Vox text: `area(Rect(2, 3))`, and its result: `6`."""

    call: str
    result: str


@dataclass(slots=True, eq=False)
class SeenCall:
    """A call whose result can be written as Vox text, with its goals; a high `oddity` means hard to read."""

    arguments: tuple[Value, ...]
    value: Value
    call: str
    result: str
    num_steps: int
    goals: set[Goal]
    length: int = field(init=False)
    oddity: int = field(init=False)

    def __post_init__(self) -> None:
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
    """Compute simple alternative functions of the arguments: maximum, sum, length, each argument itself."""
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


def collect_goals(calls: Iterable[SeenCall]) -> set[Goal]:
    """Return the goals that any of the calls covers."""
    return {goal for call in calls for goal in call.goals}


def chosen_examples(calls: Sequence[SeenCall]) -> list[SeenCall]:
    """Choose one to three short calls that the hidden tests can spare, with different branches and results."""
    left = Counter[Goal]()
    for call in calls:
        left.update(call.goals)
    short = [call for call in calls if call.length <= _LONGEST_EXAMPLE] or [min(calls, key=lambda call: call.length)]
    spare = _spare(short, left)
    if not spare:
        # Every call is needed as a test: choose the one that alone covers the fewest goals.
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
    rare = {goal for goal, number in left.items() if number <= 1}
    return [call for call in calls if rare.isdisjoint(call.goals)]


def chosen_tests(calls: Iterable[SeenCall]) -> list[SeenCall]:
    """Choose 8 to 12 calls, or all if there are fewer, that cover as many goals as possible; prefer earlier calls."""
    left, chosen = list(calls), list[SeenCall]()
    missing = collect_goals(left)
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
"""An example; its result may follow without backticks."""
_MOST_STATED: Final = 16  # examples to read from one prompt
_LONGEST_RESULT: Final = 400  # characters of a result without backticks
_OPENERS: Final = frozenset("([{")
_CLOSERS: Final = frozenset(")]}")
_VALUES: Final = frozenset(("INT", "FLOAT", "DECIMAL", "STRING", "SSTRING", "TYPEIDENT", "true", "false"))
_SHOWN: Final = ":\n\n"
"""Separates a sentence such as `This is there already:` from the code after it in a prompt."""
_MOST_SHOWN: Final = 4  # places in a prompt where code may begin


def examples_sentence(examples: Sequence[Observation]) -> str:
    """Format examples as a sentence: ``For example, `f(1)` is 2 and `f(2)` is 3.``."""
    parts = [f"`{example.call}` is {example.result}" for example in examples]
    listed = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
    return f"For example, {listed}."


def stated_examples(prompt: str) -> tuple[Observation, ...]:
    """Read the examples in a prompt, such as ``f(1)` is 2``; skip anything that is not a Vox call and value."""
    found: list[Observation] = []
    for match in _STATED.finditer(prompt):
        if len(found) == _MOST_STATED:
            break
        result = match["result"] or _value_in(prompt[match.end() : match.end() + _LONGEST_RESULT])
        example = Observation(match["call"], result)
        if result and analyze(example_tests([example])).ok:
            found.append(example)
    return tuple(found)


def example_tests(examples: Sequence[Observation], prefix: str = "stated", first: int = 0) -> str:
    """Format each example as a `@test` function, in order."""
    numbered = enumerate(examples, first)
    return "".join(f"@test fn {prefix}_{n}() {{ assert({seen.call} is {seen.result}) }}\n" for n, seen in numbered)


def shown_code(prompt: str) -> str:
    """Return the program at the end of a prompt, after a sentence such as `This is there already:`; else ""."""
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
