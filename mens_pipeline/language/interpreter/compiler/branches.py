"""`if`, `match`, `for` and blocks as expressions (O13)."""

from mens_pipeline.language.ast.expressions import Block, For, If, Match, WorkflowVersion
from mens_pipeline.language.interpreter.arithmetic import truth
from mens_pipeline.language.interpreter.compiler.blocks import block, unit
from mens_pipeline.language.interpreter.compiler.patterns import matcher
from mens_pipeline.language.interpreter.compiler.scope import Code, Frame, Scope
from mens_pipeline.language.interpreter.faults import BreakSignal, ContinueSignal, VoxError
from mens_pipeline.language.interpreter.results import ErrorKind
from mens_pipeline.language.interpreter.text_form import shown
from mens_pipeline.language.interpreter.values import Value, kind_name, type_error


def block_expression(node: Block, scope: Scope) -> Code:
    """Compile a block where an expression may stand."""
    return block(node.statements, scope)


def if_(node: If, scope: Scope) -> Code:
    """`if`: the value of the branch taken, Unit if there is none (B4)."""
    condition, then = scope.code(node.condition), block(node.then, scope)
    otherwise = block(node.otherwise, scope) if node.otherwise is not None else unit

    def run(frame: Frame) -> Value:
        verdict = condition(frame)
        if verdict is True:
            return then(frame)
        if verdict is False:
            return otherwise(frame)
        try:
            return truth(verdict, "`if`")
        except VoxError as error:
            scope.placed(error, node.condition)
            raise

    return run


def match(node: Match, scope: Scope) -> Code:
    """`match`: the first arm that fits (K1)."""
    subject, machine = scope.code(node.subject), scope.module.machine
    arms = []
    for arm in node.arms:
        inner = scope.child()
        matches = matcher(arm.pattern, inner)
        arms.append((matches, *inner.stretch(arm.body)))

    def run(frame: Frame) -> Value:
        value = subject(frame)
        for matches, body, cost in arms:
            if matches(value, frame):
                machine.charge(cost)
                return body(frame)
        message = f"no arm of `match` fits {shown(machine, value)}"
        raise scope.placed(VoxError(ErrorKind.NON_EXHAUSTIVE_MATCH, message), node)

    return run


def for_(node: For, scope: Scope) -> Code:
    """`for`: the list of the values of its body; the second name is the index from 0 (B5)."""
    iterable, machine = scope.code(node.iterable), scope.module.machine
    inner = scope.child(in_loop=True)
    element = inner.declare(node.binding, mutable=False)
    index = inner.declare(node.index, mutable=False) if node.index is not None else None
    body, cost = inner.stretch(node.body)

    def run(frame: Frame) -> Value:
        values = iterable(frame)
        if type(values) is not list:
            raise scope.placed(type_error(f"`for` takes a list, found {kind_name(values)}"), node.iterable)
        results = []
        for number, value in enumerate(values):
            machine.charge(1 + cost)
            frame[element] = value
            if index is not None:
                frame[index] = number
            try:
                results.append(body(frame))
            except ContinueSignal:
                continue
            except BreakSignal:
                break
        return results

    return run


def workflow_version(node: WorkflowVersion, _scope: Scope) -> Code:
    """`workflow.version`: what a new run would use (U2)."""
    version = node.maximum
    return lambda _frame: version
