"""One case, which is a test or a property, run to its result (section 5 of the run-time rules)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from traceback import walk_tb
from typing import Final

from mens_pipeline.language.ast.functions import Forall, Test
from mens_pipeline.language.interpreter.faults import VoxError
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.program import Program
from mens_pipeline.language.interpreter.properties import cases
from mens_pipeline.language.interpreter.results import CaseResult, ErrorKind, LimitKind, Outcome, Reason, TextName
from mens_pipeline.language.interpreter.text_form import shown
from mens_pipeline.language.interpreter.time_limit import time_limit
from mens_pipeline.language.interpreter.values import Refused, Value, Variant, arity_error
from mens_pipeline.language.source_text import SourceText

_OURS: Final = __name__.split(".", maxsplit=1)[0]


@dataclass(frozen=True, slots=True)
class CaseRunner:
    """What all cases of a program share.

    Attributes:
        program: The program that declares them.
        machine: What it runs on.
        name: Which text declares them.
        texts: The texts that places may lie in.
        seed: What draws for properties depend on.
    """

    program: Program
    machine: Machine
    name: TextName
    texts: Mapping[TextName, SourceText]
    seed: str

    def result_of(self, test: Test | Forall, seconds: float) -> CaseResult:
        """Run a test.

        Args:
            test: Which.
            seconds: How long it may take.

        Returns:
            Its result; a program can neither raise nor hang here.
        """
        self.machine.begin()
        with time_limit(self.machine, seconds):
            error = error_of(partial(self._execute, test))
        if error is None:
            return self.ended(test, Outcome.PASSED)
        return self.ended(test, error.outcome, error.reason, error.message, error.place)

    def ended(
        self,
        test: Test | Forall,
        outcome: Outcome,
        reason: Reason | None = None,
        message: str = "",
        place: tuple[TextName, int] | None = None,
    ) -> CaseResult:
        """Build the result of a test that ended on this machine, or never began.

        Args:
            test: Which.
            outcome: How it ended.
            reason: Why.
            message: What was found and what was expected.
            place: Where; by default where the test begins.
        """
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

    def _execute(self, test: Test | Forall) -> None:
        self.program.begin()
        function = self.program.names[test.function.name]
        if type(function) is Refused:
            raise function.fault()
        if isinstance(test, Forall):
            self._check_property(test, function.invoke)
            return
        if test.function.params:
            raise arity_error(test.function.name, str(len(test.function.params)), 0)
        self._judge(function.invoke(self.machine, []))

    def _check_property(self, test: Forall, invoke: Callable[[Machine, list[Value]], Value]) -> None:
        params = test.function.params
        for arguments in cases(params, f"{self.seed}:{test.function.name}"):
            try:
                self._judge(invoke(self.machine, list(arguments)))
            except VoxError as error:
                pairs = zip(params, arguments, strict=True)
                drawn = ", ".join(f"{param.name} = {shown(self.machine, value)}" for param, value in pairs)
                error.message = f"with {drawn}: {error.message}" if drawn else error.message
                raise

    def _judge(self, value: Value) -> None:
        """Fail a test that returns an `Error`; whatever else it returns is a pass, `false` included (T3)."""
        if type(value) is Variant and value.name == "Error":
            raise VoxError(None, f"the test returned {shown(self.machine, value)}")


def error_of(body: Callable[[], object]) -> VoxError | None:
    """Run a part of a program.

    Args:
        body: Runs it.

    Returns:
        How it ended before its time; None when it came to its end.
    """
    try:
        body()
    except VoxError as error:
        return error
    except RecursionError:
        return VoxError(LimitKind.DEPTH, "the program is nested or recurses too deeply")
    except MemoryError:
        return VoxError(LimitKind.SIZE, "the memory is used up")
    except Exception as error:  # noqa: BLE001 - a mistake of ours must not take the other tests along
        return VoxError(ErrorKind.INTERNAL, _internal_message(error))
    return None


def _internal_message(error: Exception) -> str:
    """Describe what went wrong in the interpreter, and where; read no file for it, since a worker may not read any."""
    frames = [(frame.f_globals["__name__"], line) for frame, line in walk_tb(error.__traceback__)]
    module, line = [place for place in frames if place[0].split(".")[0] == _OURS][-1]
    return (
        f"the interpreter failed with {type(error).__name__}: {error}, at {module}:{line}; expected no failure of its "
        "own, whatever the program does. Report it together with the program."
    )
