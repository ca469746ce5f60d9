"""Observe a function by running it: examples for its prompt, and hidden tests that refuse mutants.

The function is called with drawn arguments. Up to twelve of the calls that return become hidden tests, chosen to reach
every branch that any call reaches, and to refuse every mutant (changed body) and every simple alternative, such as
returning an argument or the maximum, that any call detects. Everything runs in this process, bounded by the
interpreter's limits on steps, size and depth. Untrusted programs are observed in worker processes (`workers.py`).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from mens_pipeline.corpus.behaviour.arguments import Drawing, UndrawableError
from mens_pipeline.corpus.behaviour.examples import (
    FEWEST_RESULTS,
    FEWEST_TESTS,
    MOST_EXAMPLES,
    Goal,
    Observation,
    SeenCall,
    alternatives,
    chosen_examples,
    chosen_tests,
    collect_goals,
    example_tests,
)
from mens_pipeline.corpus.behaviour.mutants import PROBE, Probes, build_mutants
from mens_pipeline.corpus.schema.reasons import NoBehaviour
from mens_pipeline.errors import RefusedError
from mens_pipeline.language import analyze, name_of
from mens_pipeline.language.ast import Activity, Declaration, Forall, Function, Module, Test, Workflow, walk
from mens_pipeline.language.interpreter import (
    UNIT,
    CallableProgram,
    CallResult,
    Features,
    LimitKind,
    Limits,
    Machine,
    Native,
    Outcome,
    Refusal,
    Value,
    equal,
    literal_of,
    run_with_tests,
)

FEATURES: Final = Features(check_contracts=True, database=False)
"""Contracts are checked, as in evaluations; a function that needs a database has no observable behaviour."""

LIMITS: Final = Limits(max_steps=20_000, max_depth=100, max_size=10_000, max_allocation=100_000)
"""Limits of one call."""

_SECONDS: Final = 5.0
"""Limit for all calls of a function. The step limit almost always applies earlier, so load does not change results."""
_NUM_DRAWS: Final = 24
"""Argument lists drawn at first, and again if results are scarce or mutants survive."""
_NUM_MUTANTS: Final = 24
_MOST_NODES: Final = 2_000  # syntax nodes of an observed function
_MUTANT: Final = "mutant"
_MOST_CHOICES: Final = 6
"""With at most this many different results, hidden tests must show each of them."""
_LONGEST_TEST: Final = 200  # characters of a call and its result
_ENOUGH_KILLS: Final = 3  # stop once this many calls refuse a mutant
_COMPARED_BY_PYTHON: Final = frozenset((int, bool, str))
"""Frequent result types that Python compares like Vox."""

_LASTING: Final = frozenset((NoBehaviour.NOT_PURE, NoBehaviour.NONDETERMINISTIC))
"""Reasons that more calls cannot change."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The observed behaviour of a function: 1 to 3 examples for its prompt, and at least 5 hidden observations.

    `tests` holds the hidden ones as `@test` functions. They refuse `num_killed` of the `num_mutants` changed bodies
    that at least one observed call detects.
    """

    examples: tuple[Observation, ...]
    hidden: tuple[Observation, ...]
    tests: str
    num_mutants: int
    num_killed: int

    @property
    def is_sharp(self) -> bool:
        """Whether the hidden tests refuse every mutant that any observed call detects."""
        return self.num_killed == self.num_mutants


def observe_behaviour(
    source: str, function: str, *, seed: str, arguments: Iterable[tuple[Value, ...]] | None = None
) -> Behaviour | NoBehaviour:
    """Observe a function and return its behaviour, or the reason for having none; equal arguments give equal results.

    `seed` selects the mutants, and the arguments if they are not passed.

    Raises `RefusedError` if the front end rejects the program, or if it declares no such function.
    """
    module = analyze(source).module
    if module is None:
        raise RefusedError("the front end rejects the program to observe. Check it first with `mens check`.")
    return observe_function(module, function, seed=seed, arguments=arguments)


def observe_function(
    module: Module, function: str, *, seed: str, arguments: Iterable[tuple[Value, ...]] | None = None
) -> Behaviour | NoBehaviour:
    """Observe a function of a parsed program, like `observe_behaviour`."""
    declaration = function_in(module, function)
    syntax: Any = getattr(declaration, "function", declaration)
    if not syntax.body:
        return NoBehaviour.NO_BODY
    if not syntax.params:
        return NoBehaviour.NO_PARAMETERS
    if len(list(islice(walk(declaration), _MOST_NODES))) == _MOST_NODES:
        return NoBehaviour.TOO_LARGE
    observing = _Observing(module, declaration, function)
    try:
        with observing.program.running(_SECONDS):
            return observing.behaviour(seed, arguments)
    except UndrawableError:
        return NoBehaviour.UNDRAWABLE


def passes(program: str, tests: str) -> bool:
    """Return whether a program passes all of its hidden tests, which the front end must accept."""
    return run_with_tests(program, tests, features=Features(check_contracts=True, database=True)).passed


def callable_syntax(declaration: Declaration) -> Function | Workflow | Activity | None:
    """Return the function, workflow or activity that a declaration wraps; None for tests and everything else."""
    syntax = getattr(declaration, "function", declaration)
    is_test = isinstance(declaration, Test | Forall)
    return syntax if isinstance(syntax, Function | Workflow | Activity) and not is_test else None


def function_in(module: Module, function: str) -> Declaration:
    """Return the last declaration of a function, which is in effect (C1); raise `RefusedError` if there is none."""
    for declaration in reversed(module.declarations):
        syntax = callable_syntax(declaration)
        if syntax is not None and syntax.name == function:
            return declaration
    raise RefusedError(f"the program declares no function `{function}`. Name one that it declares.")


class _Observing:
    def __init__(self, module: Module, declaration: Declaration, function: str) -> None:
        self.module = module
        self.declaration = declaration
        self.function = function
        self.syntax: Any = getattr(declaration, "function", declaration)
        self.probed = Probes().inside(declaration)
        self.program = CallableProgram(module, LIMITS, FEATURES)
        self.judge = Machine(LIMITS)
        self.reached = reached = set[Goal]()

        def reach(_machine: Machine, number: Value) -> Value:
            # Not a method: a reference to this object would be a cycle that only the garbage collector frees.
            reached.add(("branch", number))
            return UNIT

        self.program.define(Native(PROBE, reach, 1, 1))
        self.calls: list[SeenCall] = []
        self.ends: list[CallResult] = []
        self.seen: set[str] = set()

    def behaviour(self, seed: str, arguments: Iterable[tuple[Value, ...]] | None) -> Behaviour | NoBehaviour:
        drawing = None
        if arguments is None:
            drawing = Drawing(self.module)
            generics = getattr(self.syntax, "generics", ())
            arguments = drawing.lists(self.syntax.params, generics, f"{seed}:{self.function}")
        drawn = iter(arguments)
        self._observe(islice(drawn, _NUM_DRAWS))
        if self._refusal() not in _LASTING and self._is_scarce():
            self._observe(islice(drawn, _NUM_DRAWS))
        reason = self._refusal() or self._triviality()
        if reason is not None:
            return reason
        mutants = dict(enumerate(build_mutants(self.declaration, _NUM_MUTANTS, f"{seed}:{self.function}")))
        survivors = self._survivors(mutants, self.calls)
        if survivors:
            num_calls = len(self.calls)
            if drawing is not None:
                drawing.literal_share = 1.0
            self._observe(islice(drawn, _NUM_DRAWS))
            self._survivors(survivors, self.calls[num_calls:])
        self._set_goals()
        self.calls.sort(key=lambda call: call.oddity)
        examples = chosen_examples(self.calls)
        hidden = chosen_tests(call for call in self.calls if call not in examples)
        observations = _observations(hidden)
        num_mutants, num_killed = (
            sum(goal[0] == _MUTANT for goal in collect_goals(seen)) for seen in (self.calls, hidden)
        )
        tests = _tests(self.module, observations)
        return Behaviour(_observations(examples), observations, tests, num_mutants, num_killed)

    def _observe(self, arguments: Iterable[tuple[Value, ...]]) -> None:
        self.program.redefine(self.probed)
        for values in arguments:
            texts = [literal_of(value) for value in values]
            call = f"{self.function}({', '.join(map(str, texts))})"
            if call in self.seen or None in texts:
                continue
            self.seen.add(call)
            self.reached.clear()
            result = self.program.call(self.function, values)
            self.ends.append(result)
            text = literal_of(result.value) if result.returned else None
            if text is not None and len(call) + len(text) <= _LONGEST_TEST and self._same(result.value, result.value):
                self.calls.append(SeenCall(values, result.value, call, text, result.num_steps, set(self.reached)))
            if isinstance(result.reason, Refusal):
                return

    def _same(self, left: Value, right: Value) -> bool:
        if type(left) is not type(right):
            return False
        if type(left) in _COMPARED_BY_PYTHON:
            return bool(left == right)
        self.judge.begin()
        return equal(self.judge, left, right)

    def _is_scarce(self) -> bool:
        counts = Counter(call.result for call in self.calls)
        is_rare = len(counts) <= _MOST_CHOICES and min(counts.values(), default=0) < FEWEST_RESULTS
        branches = Counter(goal for call in self.calls for goal in call.goals)
        is_alone = min(branches.values(), default=FEWEST_RESULTS) < FEWEST_RESULTS
        return len(self.calls) < _NUM_DRAWS // 2 or len(counts) < MOST_EXAMPLES or is_rare or is_alone

    def _results(self) -> list[SeenCall]:
        return list({call.result: call for call in reversed(self.calls)}.values())

    def _refusal(self) -> NoBehaviour | None:
        refusals = {end.reason for end in self.ends if isinstance(end.reason, Refusal)}
        if refusals:
            is_random = refusals <= {Refusal.CLOCK, Refusal.RANDOM}
            return NoBehaviour.NONDETERMINISTIC if is_random else NoBehaviour.NOT_PURE
        if len(self.calls) > FEWEST_TESTS:
            return None
        num_returned = sum(end.returned for end in self.ends)
        if num_returned > FEWEST_TESTS:
            return NoBehaviour.NO_LITERAL
        if len(self.ends) <= FEWEST_TESTS:
            return NoBehaviour.TOO_FEW_INPUTS
        num_endless = sum(isinstance(end.reason, LimitKind) for end in self.ends)
        return NoBehaviour.DOES_NOT_END if num_endless > len(self.ends) // 2 else NoBehaviour.FAILS

    def _triviality(self) -> NoBehaviour | None:
        if len(self._results()) == 1:
            return NoBehaviour.CONSTANT
        for index in range(len(self.syntax.params)):
            given = [call for call in self.calls if index < len(call.arguments)]
            if given and all(self._same(call.arguments[index], call.value) for call in given):
                return NoBehaviour.IDENTITY
        return None

    def _set_goals(self) -> None:
        is_choice = len(self._results()) <= _MOST_CHOICES
        for call in self.calls:
            call.goals.add(("steps", call.num_steps.bit_length()))
            if is_choice:
                call.goals.add(("result", call.result))
            given = alternatives(call.arguments)
            call.goals |= {("alternative", name) for name, value in given.items() if not self._same(value, call.value)}

    def _survivors(self, mutants: dict[int, Declaration], calls: Sequence[SeenCall]) -> dict[int, Declaration]:
        # The fastest first: an endless mutant is stopped after a multiple of the steps of its first call.
        ordered = sorted(calls, key=lambda call: call.num_steps)
        survivors = dict(mutants)
        for number, mutant in mutants.items():
            self.program.redefine(mutant)
            num_kills = 0
            for call in ordered:
                result = self.program.call(self.function, call.arguments, 10 * call.num_steps + 1_000)
                if not result.returned or not self._same(result.value, call.value):
                    call.goals.add((_MUTANT, number))
                    survivors.pop(number, None)
                    num_kills += 1
                if num_kills == _ENOUGH_KILLS or result.outcome is Outcome.LIMIT:
                    break
        return survivors


def _observations(calls: Iterable[SeenCall]) -> tuple[Observation, ...]:
    return tuple(Observation(call.call, call.result) for call in calls)


def _tests(module: Module, hidden: Sequence[Observation]) -> str:
    declared = {name_of(declaration) or "" for declaration in module.declarations}
    prefix = "observed"
    while any(name.startswith(prefix) for name in declared):
        prefix += "_"
    return example_tests(hidden, prefix, 1)
