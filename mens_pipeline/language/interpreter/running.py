"""Run a program: single calls, one case (T2-T10 of the run-time rules), its own tests, or hidden tests (T5)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from time import thread_time
from traceback import walk_tb
from typing import Final

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.language import ast
from mens_pipeline.language.ast.nodes import walk
from mens_pipeline.language.diagnostics import SourceText
from mens_pipeline.language.front_end import DEEP_STACK, analyze
from mens_pipeline.language.interpreter.compiler.calls import CALLABLE
from mens_pipeline.language.interpreter.compiler.expressions import ASSERTIONS
from mens_pipeline.language.interpreter.library.builtins import BUILT_INS
from mens_pipeline.language.interpreter.machine import Machine, time_limit
from mens_pipeline.language.interpreter.program import Program
from mens_pipeline.language.interpreter.results import (
    CaseResult,
    ErrorKind,
    Features,
    LimitKind,
    Limits,
    Outcome,
    ProgramReport,
    ProgramStatus,
    Reason,
    Refusal,
    TextName,
    VoxError,
)
from mens_pipeline.language.interpreter.values import (
    NONE,
    Native,
    Refused,
    Value,
    VariantValue,
    arity_error,
    byte_length,
    kind_name,
    quote_value,
    some,
)
from mens_pipeline.language.parser.modules import Mode

NUM_CASES: Final = 100
_NUM_EDGE_CASES: Final = 25
_MOST_LENGTH: Final = 8
_INT_BOUND: Final = 2**31
_FLOAT_BOUND: Final = 1e6
_INTS: Final = (0, 1, -1, 2, -2, 3, 7, 10, 100, -100, 255, 1000)
_FLOATS: Final = (0.0, 1.0, -1.0, 0.5, -0.5, 0.1, 1e-9, 100.0, -1e6, 1e6)
_CHARACTERS: Final = "abcxyzABC019 ._-,\"'\\\n\té日"

_Draw = Callable[[Random, bool], Value]  # draws a value; the second argument requests an edge case


def cases(params: Sequence[ast.Param], seed: str) -> list[list[Value]]:
    """Draw the arguments of a property, edge cases first; raise a `VoxError` for a type that cannot be drawn."""
    random = Random(seed)  # noqa: S311 - a reproducible draw, no secret
    draws = [_find_draw(param.type) for param in params]
    first = [[draw(SmallestDraws(), True) for draw in draws]]  # noqa: FBT003 - the signature of a draw
    return first + [[draw(random, number < _NUM_EDGE_CASES) for draw in draws] for number in range(1, NUM_CASES)]


class SmallestDraws(Random):
    """Random source that draws the first choice: the smallest case, or the smallest arguments."""

    def random(self) -> float:
        """Return a number above almost every threshold."""
        return 0.99

    def getrandbits(self, _k: int, /) -> int:
        return 0


_PLAIN: Final[dict[str, _Draw]] = {
    "int": lambda random, edge: random.choice(_INTS) if edge else random.randint(-_INT_BOUND, _INT_BOUND - 1),
    "float": lambda random, edge: random.choice(_FLOATS) if edge else random.uniform(-_FLOAT_BOUND, _FLOAT_BOUND),
    "bool": lambda random, _edge: random.choice((False, True)),
    "str": lambda random, _edge: "".join(random.choices(_CHARACTERS, k=random.randint(0, _MOST_LENGTH))),
}


def _find_draw(annotation: ast.Type | None) -> _Draw:
    if annotation is None:
        return _PLAIN["int"]
    if isinstance(annotation, ast.NamedType) and annotation.name in _PLAIN:
        return _PLAIN[annotation.name]
    if isinstance(annotation, ast.GenericType) and len(annotation.arguments) == 1:
        inner = _find_draw(annotation.arguments[0])
        if annotation.name in {"List", "list"}:
            return lambda random, edge: [inner(random, edge) for _ in range(random.randint(0, _MOST_LENGTH))]
        if annotation.name == "Option":
            return lambda random, edge: some(inner(random, edge)) if random.choice((False, True)) else NONE
    name = getattr(annotation, "name", type(annotation).__name__)
    raise VoxError(Refusal.PROPERTY_TYPE, f"no values of the type `{name}` can be drawn for a property")


_OURS: Final = __name__.split(".", maxsplit=1)[0]


@dataclass(frozen=True, slots=True)
class CaseRunner:
    """State shared by all cases of the text `name`; errors may point to any of `texts`, `seed` is for properties."""

    program: Program
    machine: Machine
    name: TextName
    texts: Mapping[TextName, SourceText]
    seed: str

    def run_case(self, test: ast.Test | ast.Forall, seconds: float) -> CaseResult:
        """Run a test for up to `seconds`; the result contains any error of the program."""
        self.machine.begin()
        with time_limit(self.machine, seconds):
            error = catch_error(partial(self._execute, test))
        if error is None:
            return self.end_case(test, Outcome.PASSED)
        return self.end_case(test, error.outcome, error.reason, error.message, error.place)

    def end_case(
        self,
        test: ast.Test | ast.Forall,
        outcome: Outcome,
        reason: Reason | None = None,
        message: str = "",
        place: tuple[TextName, int] | None = None,
    ) -> CaseResult:
        """Build the result of a test from the state of the machine; by default the place is the start of the test."""
        text, start = place or (self.name, test.function.start)
        position = self.texts[text].position(start)
        machine = self.machine
        notes = tuple(machine.notes)
        if outcome is Outcome.PASSED and machine.num_assertions == 0:
            notes += ("vacuous",)
        return CaseResult(
            test.function.name,
            outcome,
            reason,
            message,
            text,
            position.line,
            position.column,
            "".join(machine.output),
            machine.steps,
            machine.num_assertions,
            notes,
        )

    def _execute(self, test: ast.Test | ast.Forall) -> None:
        self.program.begin()
        function = self.program.names[test.function.name]
        if type(function) is Refused:
            raise function.fault()
        if isinstance(test, ast.Forall):
            self._check_property(test, function.invoke)
            return
        if test.function.params:
            raise arity_error(test.function.name, str(len(test.function.params)), 0)
        self._judge(function.invoke(self.machine, []))

    def _check_property(self, test: ast.Forall, invoke: Callable[[Machine, list[Value]], Value]) -> None:
        params = test.function.params
        for arguments in cases(params, f"{self.seed}:{test.function.name}"):
            try:
                self._judge(invoke(self.machine, list(arguments)))
            except VoxError as error:
                pairs = zip(params, arguments, strict=True)
                drawn = ", ".join(f"{param.name} = {quote_value(self.machine, value)}" for param, value in pairs)
                error.message = f"with {drawn}: {error.message}" if drawn else error.message
                raise

    def _judge(self, value: Value) -> None:
        """Raise a `VoxError` if the test returned an `Error`; even `false` is a pass (T3)."""
        if type(value) is VariantValue and value.name == "Error":
            raise VoxError(None, f"the test returned {quote_value(self.machine, value)}")


def catch_error(body: Callable[[], object]) -> VoxError | None:
    """Run a part of a program, and return the error that ended it; None if it completed."""
    try:
        body()
    except VoxError as error:
        # The traceback references the caller's frame, and that frame the error: a cycle that only the collector frees.
        error.__context__ = None
        return error.with_traceback(None)
    except RecursionError:
        return VoxError(LimitKind.DEPTH, "the program is nested or recurses too deeply")
    except MemoryError:
        return VoxError(LimitKind.SIZE, "the memory is used up")
    except Exception as error:  # noqa: BLE001 - a bug of ours must not fail the other tests
        return VoxError(ErrorKind.INTERNAL, _internal_message(error))
    return None


def _internal_message(error: Exception) -> str:
    """Describe a bug without reading source files, because a worker may not open any."""
    frames = [(frame.f_globals["__name__"], line) for frame, line in walk_tb(error.__traceback__)]
    module, line = [place for place in frames if place[0].split(".")[0] == _OURS][-1]
    return (
        f"the interpreter failed with {type(error).__name__}: {error}, at {module}:{line}; expected no failure of its "
        "own, whatever the program does. Report it together with the program."
    )


@dataclass(frozen=True, slots=True)
class CallResult:
    """Outcome of one call; `value` is None unless it returned: no Vox value is None.

    `reason` is None if it returned or an assertion failed. `num_steps` counts statements and expressions.
    """

    outcome: Outcome
    value: Value = None
    reason: Reason | None = None
    message: str = ""
    num_steps: int = 0

    @property
    def returned(self) -> bool:
        return self.outcome is Outcome.PASSED


class CallableProgram:
    """A parsed program whose functions can be called one by one, each call in a fresh state.

    Memory is bounded by counting, time by counting and, in the main thread, by a signal. Run untrusted programs in a
    separate process.
    """

    def __init__(self, module: ast.Module, limits: Limits, features: Features) -> None:
        self.machine = Machine(limits)
        self._program = Program(module, TextName.PROGRAM, self.machine, features)
        self._is_ready = False

    def redefine(self, declaration: ast.Declaration) -> None:
        """Replace a function for later calls."""
        self._program.redefine(declaration)
        self._is_ready = False

    def define(self, native: Native) -> None:
        self._program.define(native.name, native)
        self._is_ready = False

    @contextmanager
    def running(self, seconds: float) -> Iterator[None]:
        """Allow calls while the block runs, for `seconds` in total; later calls exceed the time limit."""
        self.machine.begin()
        with DEEP_STACK.parse(), time_limit(self.machine, seconds):
            DEEP_STACK.deepen()
            yield

    def call(self, function: str, arguments: Sequence[Value], max_steps: int | None = None) -> CallResult:
        """Call a function in a fresh state; `max_steps` overrides the step limit."""
        machine = self.machine
        if machine.seconds_over is not None:
            message = f"the calls took more than {machine.seconds_over:g} s"
            return CallResult(Outcome.LIMIT, reason=LimitKind.TIME, message=message)
        machine.begin()
        if max_steps is not None:
            machine.max_steps = max_steps
        found: list[Value] = []
        error = catch_error(lambda: found.append(self._invoke(function, arguments)))
        if error is not None:
            return CallResult(error.outcome, None, error.reason, error.message, machine.steps)
        return CallResult(Outcome.PASSED, found[0], num_steps=machine.steps)

    def _invoke(self, function: str, arguments: Sequence[Value]) -> Value:
        names = self._program.names
        if not self._is_ready:
            self._program.begin()
            self._is_ready = True
            self.machine.steps = 0
        callee: Value = names.get(function)
        if type(callee) is Refused:
            raise callee.fault()
        if type(callee) not in CALLABLE:
            found = f"{kind_name(callee)} cannot be called" if callee is not None else f"`{function}` is not defined"
            raise VoxError(ErrorKind.NOT_CALLABLE, found)
        return callee.invoke(self.machine, list(arguments))


DEFAULT_LIMITS = Limits()
NO_FEATURES = Features()


def run_tests(
    source: str,
    limits: Limits = DEFAULT_LIMITS,
    seed: int = 0,
    *,
    features: Features = NO_FEATURES,
    mode: Mode = Mode.SOURCE,
) -> ProgramReport:
    """Run the `@test` functions and `@forall` properties of a program; `seed` is for the arguments of properties.

    Reports are deterministic, except for time limits. Memory is bounded only by counting: use `Sandbox` for untrusted
    programs.
    """
    module, report = parse_program(source, limits, mode)
    if module is None:
        return report
    machine = Machine(limits)
    program = Program(module, TextName.PROGRAM, machine, features)
    texts = {TextName.PROGRAM: SourceText(source)}
    return run_all(CaseRunner(program, machine, TextName.PROGRAM, texts, f"{seed}:{source}"), limits)


def parse_program(source: str, limits: Limits, mode: Mode = Mode.SOURCE) -> tuple[ast.Module | None, ProgramReport]:
    """Parse a program; return its syntax tree, or None and a report on its rejection (J1, R8)."""
    if (size := byte_length(source)) > limits.max_source:
        message = f"the program has {size:,} bytes; the most is {limits.max_source:,}"
        return None, ProgramReport(ProgramStatus.REJECTED, message=message)
    analysis = analyze(source, mode)
    return analysis.module, ProgramReport(ProgramStatus.REJECTED, diagnostics=analysis.errors)


def run_all(run: CaseRunner, limits: Limits) -> ProgramReport:
    with DEEP_STACK.parse():
        DEEP_STACK.deepen()
        if not (tests := run.program.tests):
            return ProgramReport(ProgramStatus.NO_TESTS, message="the program has no tests")
        end = thread_time() + limits.program_seconds
        results = []
        for test in list(tests.values())[: limits.max_tests]:
            left = end - thread_time()
            if left > 0:
                results.append(run.run_case(test, min(left, limits.test_seconds)))
                if results[-1].reason is LimitKind.TIME and left < limits.test_seconds:
                    end = 0.0  # the signal of the limit may come a little before this clock says so
            else:
                run.machine.begin()
                message = f"the program took more than {limits.program_seconds:g} s before this test"
                results.append(run.end_case(test, Outcome.LIMIT, LimitKind.TIME, message))
        num_left_out = len(tests) - len(results)
        notes = (f"{num_left_out} tests beyond the first {limits.max_tests} were left out",) if num_left_out else ()
        return ProgramReport(ProgramStatus.RAN, tuple(results), notes=notes)


_NAMED_VALUES = (
    ast.Function
    | ast.Workflow
    | ast.Activity
    | ast.Actor
    | ast.Const
    | ast.ReactiveComponent
    | ast.Fragment
    | ast.V0Component
)

GIVEN_END: Final = "// The answer sees what stands above this line."
"""Line of hidden tests: the code above it is given by the task, and a candidate may use it without declaring it."""


def run_with_tests(
    candidate: str,
    tests: str,
    limits: Limits = DEFAULT_LIMITS,
    seed: int = 0,
    *,
    features: Features = NO_FEATURES,
) -> ProgramReport:
    """Run hidden tests against a candidate, without its own tests.

    The two texts are parsed separately. The tests see all names of the candidate, and `hidden_output()`, the output so
    far. The candidate sees only names that the tests declare above the line `GIVEN_END`. If both declare a name, each
    uses its own. A candidate that redefines a name that the tests rely on fails all of them. Raise a
    `ConfigurationError` if the tests are rejected, or there are no tests.
    """
    hidden = hidden_module(tests)
    # The UI mode accepts pages; source files mean the same in both modes (M5).
    module, report = parse_program(candidate, limits, Mode.UI if features.views else Mode.SOURCE)
    if module is None:
        return report
    machine = Machine(limits)
    program, _ = put_below(tests, module, machine, features)
    texts = {TextName.PROGRAM: SourceText(candidate), TextName.TESTS: SourceText(tests)}
    run = CaseRunner(program, machine, TextName.TESTS, texts, f"{seed}:{tests}")
    redefined = sorted(_find_redefined(module, hidden))
    if redefined:
        message = f"the program redefines {', '.join(f'`{name}`' for name in redefined)}, which the tests rely on"
        failed = tuple(run.end_case(test, Outcome.FAILED, message=message) for test in program.tests.values())
        return ProgramReport(ProgramStatus.RAN, failed)
    return run_all(run, limits)


def put_below(tests: str, candidate: ast.Module, machine: Machine, features: Features) -> tuple[Program, Program]:
    """Return hidden tests as a program on top of the candidate, and the candidate on top of the given code."""
    given = given_module(tests)
    lowest = Program(given, TextName.TESTS, machine, features) if given is not None else None
    own = tuple(d for d in candidate.declarations if isinstance(d, ast.Test | ast.Forall))
    # Its own tests come first, so that other declarations of the same names replace them (C1).
    ordered = replace(candidate, declarations=(*own, *without_tests(candidate).declarations))
    below = Program(ordered, TextName.PROGRAM, machine, features, lowest)
    program = Program(hidden_module(tests), TextName.TESTS, machine, features, below)
    program.define("hidden_output", Native("hidden_output", lambda machine: "".join(machine.output), 0, 0))
    return program, below


def hidden_module(tests: str) -> ast.Module:
    """Parse hidden tests; raise a `ConfigurationError` if they are rejected or there are no tests."""
    analysis = analyze(tests)
    if analysis.module is None:
        first = analysis.errors[0]
        place = f"line {first.start.line}, column {first.start.column + 1}"
        raise ConfigurationError(f"hidden tests are rejected at {place}: {first.message}. Mend the task.")
    if not any(isinstance(declaration, ast.Test | ast.Forall) for declaration in analysis.module.declarations):
        raise ConfigurationError("hidden tests hold no `@test` and no `@forall`. Add one to the task.")
    return analysis.module


def given_module(tests: str) -> ast.Module | None:
    """Return the syntax tree of the code that a task gives; None if it gives no code."""
    end = tests.find(GIVEN_END)
    if end < 0:
        return None
    module = hidden_module(tests)
    return replace(module, declarations=tuple(d for d in module.declarations if d.start < end))


def with_given(given: str, tests: str) -> str:
    """Put the given code of a task above its hidden tests."""
    return f"{given.rstrip()}\n\n{GIVEN_END}\n{tests}" if given.strip() else tests


def without_tests(module: ast.Module) -> ast.Module:
    return replace(
        module, declarations=tuple(d for d in module.declarations if not isinstance(d, ast.Test | ast.Forall))
    )


def _find_redefined(candidate: ast.Module, tests: ast.Module) -> set[str]:
    nodes = list(walk(tests))
    used = {node.name for node in nodes if isinstance(node, ast.Ident)}
    bound = {node.name for node in nodes if isinstance(node, ast.IdentPattern) and not node.name[:1].isupper()}
    functions, variants = _declared_names(candidate)
    own_functions, own_variants = _declared_names(tests)
    built_in = (used & BUILT_INS.keys()) - own_functions - own_variants
    return (functions & built_in) | (variants & bound) | ((functions | variants) & ASSERTIONS.keys())


def _declared_names(module: ast.Module) -> tuple[set[str], set[str]]:
    values: set[str] = set()
    variants: set[str] = set()
    for declaration in module.declarations:
        wrapped = getattr(declaration, "function", declaration)
        if isinstance(wrapped, _NAMED_VALUES):
            values.add(wrapped.name)
        elif isinstance(declaration, ast.TypeDef | ast.Url):
            variants.update(variant.name for variant in declaration.variants)
        elif isinstance(declaration, ast.Import):
            values.update(path.alias for path in declaration.paths if path.alias is not None)
    return values, variants
