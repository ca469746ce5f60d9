"""Whether Python helps a code base to write Vox: rows that cross from one to the other, and plans in Python.

`python -m mens_pipeline_tests.bench.python_beside_vox rows TRAIN OUT` adds two rows to each function of a train set
that is printed as Python and passes its tests there: the Python as the prompt, and the Python after the prompt.
`plans RUN OUT` has the base of a run, without its adapter, solve the functions of HumanEval-Vox in Python.
`vox RUN PLANS` has the adapter write them in Vox, as served, with these plans in its prompts; `--direct`, without them.
"""

import argparse
import ast
import json
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from mens_pipeline.evaluation.benchmark import load_benchmark
from mens_pipeline.evaluation.evaluate import score_completions
from mens_pipeline.evaluation.scores import scores_of_model
from mens_pipeline.evaluation.tasks import Task, benchmark_tasks
from mens_pipeline.inference.generate import generate
from mens_pipeline.inference.generation import Completion, Decoding, GenerationJob, Request, Syntax, as_served
from mens_pipeline.inference.prepare import Conditions, Model, prepare_generation
from mens_pipeline.jobs.device import DeviceChoice, resolve_device
from mens_pipeline.language import analyze
from mens_pipeline.language.ast import Function
from mens_pipeline.language.ast import nodes as n
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.storage.jsonl import read_models

_BENCH = Path("data/heldout_bench/humaneval_vox")
_ASKED = (
    "Write this Python function in Vox:",
    "Translate this Python function into Vox.",
    "What is this Python function in Vox?",
    "The same in Vox, please. Answer with the code alone.",
)
_SIGNS = {"Add": "+", "Sub": "-", "Mul": "*", "Mod": "%", "Div": "//", "And": "and", "Or": "or"} | {
    "Lt": "<", "Gt": ">", "Lte": "<=", "Gte": ">=", "Is": "==", "Isnt": "!=",
}  # fmt: skip
_BINDS = {"or": 1, "and": 2, "+": 5, "-": 5, "*": 6, "//": 6, "%": 6}
_COMPARED = 4
_TYPES = {"int": "int", "str": "str", "bool": "bool", "float": "float", "Unit": "None"}
_FUNCTIONS = {"len", "str", "range", "int", "float", "bool"}
_METHODS = {
    ("push", 1): "{0}.append({1})", ("append", 1): "{0}.append({1})", ("len", 0): "len({0})",
    ("length", 0): "len({0})", ("is_empty", 0): "(not {0})", ("contains", 1): "({1} in {0})",
    ("join", 1): "{1}.join({0})",
    ("reverse", 0): "{0}[::-1]", ("slice", 2): "{0}[{1}:{2}]", ("abs", 0): "abs({0})", ("min", 1): "min({0}, {1})",
    ("max", 1): "max({0}, {1})", ("trim", 0): "{0}.strip()", ("to_upper", 0): "{0}.upper()",
    ("to_lower", 0): "{0}.lower()", ("starts_with", 1): "{0}.startswith({1})", ("ends_with", 1): "{0}.endswith({1})",
    ("replace", 2): "{0}.replace({1}, {2})", ("repeat", 1): "({0} * {1})", ("index_of", 1): "{0}.find({1})",
    ("to_str", 0): "str({0})", ("to_string", 0): "str({0})",
}  # fmt: skip
_OF_VOX = re.compile(
    r"Result\[|`type |sum type|struct|@\w+|table|endpoint|workflow|activity|component|variants|Error\("
)
_SIGNATURE = re.compile(r"`(?:fn )?(\w+)\(([^`]*?)\) to ([^`]+?)`")


class UntranslatedError(Exception):
    """A program that is more than the functions that both languages have."""


class Printer:
    """Prints functions of Vox as Python; `UntranslatedError` names what it does not know."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0

    def function(self, function: Any) -> None:
        """Print a function."""
        if function.is_async or function.extern_module or function.decorators:
            raise UntranslatedError("a decorator")
        params = ", ".join(f"{param.name}: {_print_type(param.type)}" for param in function.params)
        returned = f" -> {_print_type(function.return_type)}" if function.return_type else ""
        self._put(f"def {function.name}({params}){returned}:")
        self._block(function.body, None)

    def _put(self, line: str) -> None:
        self.lines.append("    " * self._depth + line)

    def _block(self, statements: Any, head: str | None) -> None:
        """Print statements; with a head such as `return`, the last one is the value of the block."""
        self._depth += 1
        if not statements:
            self._put("pass")
        for statement in statements if head is None else statements[:-1]:
            self.statement(statement)
        if head is not None:
            last = statements[-1] if statements else None
            if isinstance(last, n.ExprStatement):
                self._deliver(head, last.expression)
            elif isinstance(last, n.Return | n.Break | n.Continue):
                self.statement(last)
            else:
                raise UntranslatedError("a block without a value")
        self._depth -= 1

    def statement(self, statement: Any) -> None:  # noqa: C901, PLR0912 - one case for each kind
        """Print a statement."""
        match statement:
            case n.Let(pattern=n.IdentPattern(name=name), value=value):
                self._deliver(f"{name} = ", value)
            case n.Assign(target=target, value=value):
                self._deliver(f"{self.text(target)} = ", value)
            case n.Return(value=None):
                self._put("return")
            case n.Return(value=value):
                self._deliver("return ", value)
            case n.While(condition=condition, body=body):
                self._put(f"while {self.text(condition)}:")
                self._block(body, None)
            case n.Loop(body=body):
                self._put("while True:")
                self._block(body, None)
            case n.Break():
                self._put("break")
            case n.Continue():
                self._put("continue")
            case n.ExprStatement(expression=n.If() as branch):
                self._branch(branch, None, "if")
            case n.ExprStatement(expression=n.Match() as choice):
                self._choose(choice, None)
            case n.ExprStatement(expression=n.For(binding=name, index=index, iterable=rows, key=None, body=body)):
                names, over = (f"{index}, {name}", "enumerate({})") if index else (name, "{}")
                self._put(f"for {names} in {over.format(self.text(rows))}:")
                self._block(_statements(body), None)
            case n.ExprStatement(expression=n.Call(callee=n.Ident(name="assert"), arguments=(claim, *_))):
                self._put(f"assert {self.text(claim.value)}")
            case n.ExprStatement(expression=expression):
                self._put(self.text(expression))
            case _:
                raise UntranslatedError(type(statement).__name__)

    def _deliver(self, head: str, value: Any) -> None:
        if isinstance(value, n.Match):
            self._choose(value, head)
        elif isinstance(value, n.If) and _single(value) is None:
            self._branch(value, head, "if")
        else:
            self._put(head + self.text(value))

    def _branch(self, branch: Any, head: str | None, word: str) -> None:
        self._put(f"{word} {self.text(branch.condition)}:")
        self._block(branch.then, head)
        match branch.otherwise:
            case None if head is not None:
                raise UntranslatedError("an if without a value")
            case None:
                pass
            case (n.ExprStatement(expression=n.If() as other),):
                self._branch(other, head, "elif")
            case other:
                self._put("else:")
                self._block(other, head)

    def _choose(self, choice: Any, head: str | None) -> None:
        self._put(f"match {self.text(choice.subject)}:")
        self._depth += 1
        for arm in choice.arms:
            match arm.pattern:
                case n.WildcardPattern():
                    pattern = "_"
                case n.LiteralPattern(value=value):
                    pattern = repr(value)
                case _:
                    raise UntranslatedError("a pattern")
            self._put(f"case {pattern}:")
            self._block(_statements(arm.body), head)
        self._depth -= 1

    def text(self, expression: Any, outer: int = 0) -> str:  # noqa: C901 - one case for each kind
        """Return an expression, in parentheses if what is around it binds closer than `outer`."""
        match expression:
            case n.IntLit(value=value) | n.BoolLit(value=value) | n.FloatLit(value=value):
                return repr(value)
            case n.StringLit(value=value):
                return json.dumps(value, ensure_ascii=False)
            case n.Ident(name=name) if name[0].islower():
                return str(name)
            case n.ListLit(elements=elements):
                return f"[{', '.join(map(self.text, elements))}]"
            case n.Binary(op=op, left=left, right=right) if op in _SIGNS:
                sign = _SIGNS[op]
                binds = _BINDS.get(sign, _COMPARED)
                both = f"{self.text(left, binds + (binds == _COMPARED))} {sign} {self.text(right, binds + 1)}"
                return f"({both})" if binds < outer else both
            case n.Unary(op=op, operand=operand):
                return f"({'not ' if op == 'Not' else '-'}{self.text(operand, 8)})"
            case n.If() if (sides := _single(expression)) is not None:
                return f"({self.text(sides[0])} if {self.text(expression.condition)} else {self.text(sides[1])})"
            case n.IndexAccess(object=rows, index=index):
                return f"{self.text(rows, 9)}[{self.text(index)}]"
            case n.Call(callee=n.Ident(name=name), arguments=given) if name in _FUNCTIONS or name[0].islower():
                return f"{name}({', '.join(self.text(each.value) for each in given)})"
            case n.MethodCall(object=rows, method="map" | "filter" as method, arguments=(given,)):
                match given.value:
                    case n.Lambda(params=(param,), body=body) if not isinstance(body, n.Block):
                        kept, condition = (self.text(body), "") if method == "map" else (param.name, self.text(body))
                        over = f"for {param.name} in {self.text(rows)}"
                        return f"[{kept} {over}{f' if {condition}' if condition else ''}]"
            case n.MethodCall(object=rows, method=method, arguments=given) if (method, len(given)) in _METHODS:
                parts = (self.text(each, 9) for each in (rows, *(one.value for one in given)))
                return _METHODS[method, len(given)].format(*parts)
        raise UntranslatedError(type(expression).__name__)


def _print_type(kind: Any) -> str:
    match kind:
        case n.NamedType(name=name) if name in _TYPES:
            return _TYPES[name]
        case n.GenericType(name="List" | "list", arguments=(element,)):
            return f"list[{_print_type(element)}]"
    raise UntranslatedError("a type")


def _statements(body: Any) -> Any:
    return body.statements if isinstance(body, n.Block) else (n.ExprStatement(body.start, body.end, body),)


def _single(branch: Any) -> tuple[Any, Any] | None:
    """Return the values of both sides of an `if`, if each is one expression."""
    match (branch.then, branch.otherwise):
        case ((n.ExprStatement(expression=one),), (n.ExprStatement(expression=other),)):
            nested = isinstance(one, n.If | n.Match) or isinstance(other, n.If | n.Match)
            return None if nested else (one, other)
    return None


def print_functions(program: str) -> str:
    """Return a program of functions in Python; raise `UntranslatedError` for any other."""
    module = analyze(program).module
    if module is None:
        raise UntranslatedError("a program that does not parse")
    parts = []
    for declaration in module.declarations:
        if not isinstance(declaration, Function):
            raise UntranslatedError(type(declaration).__name__)
        printer = Printer()
        printer.function(declaration)
        parts.append("\n".join(printer.lines))
    return "\n\n\n".join(parts)


def print_claims(tests: str) -> str:
    """Return the assertions of hidden tests in Python; raise `UntranslatedError`."""
    module = analyze(tests).module
    if module is None:
        raise UntranslatedError("tests that do not parse")
    printer = Printer()
    for declaration in module.declarations:
        function = getattr(declaration, "function", declaration)
        if not isinstance(function, Function):
            raise UntranslatedError("tests with declarations")
        for statement in function.body:
            printer.statement(statement)
    return "\n".join(printer.lines)


def passes(program: str, claims: str) -> bool:
    """Run a program of Python and its assertions in a process of their own, for five seconds at most."""
    command = [sys.executable, "-I", "-c", f"import math\nfrom typing import *\n{program}\n{claims}"]
    try:
        return subprocess.run(command, capture_output=True, timeout=5, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def write_rows(train: Path, out: Path) -> None:
    """Write a train set with rows that cross from Python to Vox, and print why other functions have none."""
    random.seed(0)
    found: Counter[str] = Counter()
    rows = [json.loads(line) for line in train.read_text(encoding="utf-8").splitlines()]
    with out.open("w", encoding="utf-8") as lines:
        for row in rows:
            more: list[dict[str, Any]] = []
            if row.get("tests") and row["task_family"] != "infill":
                program = ""
                try:
                    program, claims = print_functions(row["response"]), print_claims(row["tests"])
                    reason = "printed" if passes(program, claims) else "disagrees"
                except UntranslatedError as error:
                    reason = str(error)
                found[reason] += 1
                if reason == "printed":
                    block = f"```python\n{program}\n```"
                    prompts = (
                        f"{random.choice(_ASKED)}\n\n{block}",  # noqa: S311 - decides nothing that is secret
                        f"{row['prompt']}\n\nIn Python it is:\n\n{block}",
                    )
                    more = [row | {"prompt": prompt} for prompt in prompts]
            lines.writelines(json.dumps(each) + "\n" for each in (row, *more))
    print(found.most_common())


def ask_in_python(prompt: str) -> str | None:
    """Return a task of the benchmark as one of Python; None if its types are more than Python's own."""

    def print_signature(match: re.Match[str]) -> str:
        params = [param.split(": ", 1) for param in re.split(r", (?=\w+: )", match[2])] if match[2] else []
        given = ", ".join(f"{name}: {_translate_type(kind)}" for name, kind in params)
        return f"`def {match[1]}({given}) -> {_translate_type(match[3])}`"

    if _OF_VOX.search(prompt) or not _SIGNATURE.search(prompt):
        return None
    try:
        asked = _SIGNATURE.sub(print_signature, prompt).replace("Vox", "Python")
    except UntranslatedError:
        return None
    return re.sub(r"`true`|(?<= is )true", "True", re.sub(r"`false`|(?<= is )false", "False", asked))


def _translate_type(kind: str) -> str:
    if kind in _TYPES:
        return _TYPES[kind]
    if found := re.fullmatch(r"(List|Option|Map)\[(.*)\]", kind):
        inner = ", ".join(map(_translate_type, found[2].split(", ")))
        return {"List": "list[{}]", "Option": "{} | None", "Map": "dict[{}]"}[found[1]].format(inner)
    raise UntranslatedError("a type")


def cut_code(answer: str) -> str | None:
    """Return the functions of an answer, without what is said about them; None if it has none that parse."""
    fenced = re.search(r"```(?:python)?\n(.*?)(?:```|$)", answer, re.DOTALL)
    lines = (fenced[1] if fenced else answer).splitlines()
    for end in range(len(lines), 0, -1):
        try:
            tree = ast.parse("\n".join(lines[:end]))
        except SyntaxError:
            continue
        functions: list[ast.stmt] = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
        for function in functions:
            if isinstance(function, ast.FunctionDef) and len(function.body) > 1 and ast.get_docstring(function):
                del function.body[0]
        return ast.unparse(ast.Module(functions, [])) or None
    return None


def complete(model: Model, adapter: Adapter, requests: list[Request], tokens: int, syntax: Syntax) -> Any:
    """Return completions of the base or the adapter."""
    decoding = Decoding(max_new_tokens=tokens, num_samples=1, temperature=0.0, syntax=syntax)
    system = "You are a helpful assistant." if syntax is Syntax.FREE else None
    with tempfile.TemporaryDirectory(prefix="mens-bench-") as folder:
        conditions = Conditions(decoding, resolve_device(DeviceChoice.CPU), Path(folder) / "lock")
        asked = prepare_generation(model, adapter, requests, conditions, system_prompt=system)
        job = GenerationJob(generations={"asked": asked}, run_dir=Path(folder), lock_path=conditions.lock_path)
        generate(job)
        return tuple(read_models(job.completions("asked"), Completion))


def write_plans(run: Path, out: Path, model: Model) -> None:
    """Write what a model answers in Python, by task, and print how many answers pass the hidden tests."""
    asked = {task: prompt for task in _tasks() if (prompt := ask_in_python(task.prompt)) is not None}
    requests = [task.request.model_copy(update={"prompt": prompt}) for task, prompt in asked.items()]
    answers = {each.task: each.text for each in complete(model, Adapter.open(run), requests, 256, Syntax.FREE)}
    plans, passed, num_tested = {}, 0, 0
    for task in asked:
        plans[task.id] = cut_code(answers[task.id])
        try:
            claims = print_claims(task.tests or "")
        except UntranslatedError:
            continue
        num_tested += 1
        passed += (code := plans[task.id]) is not None and passes(code, claims)
    out.write_text(json.dumps(plans, indent=1), encoding="utf-8")
    print(f"{len(asked)} tasks asked in Python, {passed} of {num_tested} pass")


def solve(run: Path, plans: Path, *, is_direct: bool) -> None:
    """Print what the adapter solves in Vox of the tasks that have a plan."""
    known: dict[str, str | None] = json.loads(plans.read_text(encoding="utf-8"))
    tasks = [task for task in _tasks() if known.get(task.id)]
    planned = "{}\n\nIn Python it is:\n\n```python\n{}\n```"
    requests = [
        task.request.model_copy(update={} if is_direct else {"prompt": planned.format(task.prompt, known[task.id])})
        for task in tasks
    ]
    served = as_served(complete("adapter", Adapter.open(run), requests, 320, Syntax.FALLBACK))
    scores = scores_of_model(tasks, score_completions(tasks, served)).overall
    print(f"parse {scores.parse_rate}\nresolve {scores.resolve_rate}\nhidden tests {scores.test_rate}")


def _tasks() -> tuple[Task, ...]:
    return tuple(benchmark_tasks(load_benchmark(_BENCH)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["rows", "plans", "vox"])
    parser.add_argument("given", type=Path)
    parser.add_argument("other", type=Path)
    parser.add_argument("--direct", action="store_true")
    parser.add_argument("--model", choices=["base", "adapter"], default="base")
    options = parser.parse_args()
    if options.step == "rows":
        write_rows(options.given, options.other)
    elif options.step == "plans":
        write_plans(options.given, options.other, options.model)
    else:
        solve(options.given, options.other, is_direct=options.direct)


if __name__ == "__main__":
    main()
