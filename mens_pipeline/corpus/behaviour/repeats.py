"""Find training rows whose function passes the hidden tests of a held-out or benchmark task."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from mens_pipeline.corpus.behaviour.arguments import type_key
from mens_pipeline.corpus.behaviour.observe import callable_syntax
from mens_pipeline.corpus.behaviour.screening import TaskFunction, TaskStatus
from mens_pipeline.corpus.behaviour.workers import BehaviourWorkers
from mens_pipeline.corpus.schema.records import TrainingPair, parsed_code
from mens_pipeline.language import DEEP_STACK, Mode, analyze, name_of
from mens_pipeline.language.ast import Ident, Module, Node, walk
from mens_pipeline.language.interpreter import GIVEN_END, hidden_module

_Signature = tuple[str, ...]  # types of the parameters, then the return type
_MOST_TASKS_AT_ONCE: Final = 64
"""Most tasks of one request, so that one slow function cannot use up the time of all."""
_Entry = tuple[TaskFunction, str]  # a tested function, and the label of its task


class TaskFunctions:
    """The functions that the hidden tests of tasks call, by signature."""

    def __init__(self, tasks: Iterable[TrainingPair], workers: BehaviourWorkers) -> None:
        self._workers = workers
        self._entries: defaultdict[_Signature, list[_Entry]] = defaultdict(list)
        self.counts: Counter[str] = Counter()
        found: dict[TaskFunction, tuple[_Signature, str]] = {}
        for pair in tasks:
            program = _read_program(pair)
            module = analyze(program).module if program is not None and pair.tests is not None else None
            if module is None or program is None or pair.tests is None:
                self.counts["without_tests"] += 1
                continue
            label = pair.source.path if pair.source is not None else "a row without a source"
            signatures = _signatures(module)
            for name in _tested_functions(module, signatures, hidden_module(pair.tests)):
                found.setdefault(TaskFunction(program, pair.tests, name), (signatures[name], label))
        for (task, (signature, label)), status in zip(found.items(), workers.statuses(found), strict=True):
            self.counts[status] += 1
            if status is TaskStatus.COMPARED:
                self._entries[signature].append((task, label))

    def account(self) -> dict[str, int]:
        """Count tested functions by status, and tasks without tests."""
        return {str(status): self.counts[status] for status in (*TaskStatus, "without_tests")}

    def find_repeats(self, rows: Sequence[TrainingPair]) -> list[str | None]:
        """Return for each row the label of a task that one of its functions solves, or None."""
        tried: dict[tuple[str, str, int], list[_Entry]] = {}
        functions: list[list[tuple[str, str, int]]] = []
        for row in rows:
            functions.append([])
            program = _read_program(row) if self._entries else None
            module = analyze(program).module if program is not None else None
            if program is None or module is None:
                continue
            for name, signature in _signatures(module).items():
                entries = self._entries.get(signature, [])
                for first in range(0, len(entries), _MOST_TASKS_AT_ONCE):
                    tried[program, name, first] = entries[first : first + _MOST_TASKS_AT_ONCE]
                    functions[-1].append((program, name, first))
        requests = ((program, name, [task for task, _ in entries]) for (program, name, _), entries in tried.items())
        passed = dict(zip(tried, self._workers.first_passed(requests), strict=True))
        labels: list[str | None] = []
        for keys in functions:
            solved = [tried[key][place][1] for key in keys if (place := passed[key]) is not None]
            labels.append(solved[0] if solved else None)
        return labels


def _tested_functions(reference: Module, signatures: Iterable[str], tests: Module) -> list[str]:
    """Return the functions that tests call, except helpers of other such functions: a helper alone solves no task."""
    called = (_names_in(tests) - _signatures(tests).keys()) & set(signatures)
    uses = {name: set[str]() for name in called}
    for declaration in reference.declarations:
        name = name_of(declaration)
        if name in called:
            uses[name] |= _names_in(declaration) - {name}
    return sorted(called - set().union(*uses.values()) or called)


def _names_in(node: Node) -> set[str]:
    return {inner.name for inner in walk(node) if isinstance(inner, Ident)}


def _read_program(pair: TrainingPair) -> str | None:
    code = parsed_code(pair)
    if code is None or code[1] is not Mode.SOURCE:
        return None
    given, mark, _ = (pair.tests or "").partition(GIVEN_END)
    return f"{given}\n{code[0]}" if mark else code[0]


def _signatures(module: Module) -> dict[str, _Signature]:
    signatures = {}
    with DEEP_STACK.parse():
        DEEP_STACK.deepen()
        for declaration in module.declarations:
            syntax = callable_syntax(declaration)
            if syntax is not None and syntax.params:
                generics = getattr(syntax, "generics", ())
                types = [*(param.type for param in syntax.params), syntax.return_type]
                signatures[syntax.name] = tuple(type_key(annotation, generics) for annotation in types)
    return signatures
