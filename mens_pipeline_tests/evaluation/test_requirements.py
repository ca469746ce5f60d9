"""Requirements for the declarations of a completion, checked on its syntax tree."""

from typing import Any

from pydantic import ValidationError

from mens_pipeline.evaluation.requirements import Part, Requirement, unmet
from mens_pipeline.language import CONSTRUCTS, Mode, analyze
from mens_pipeline_tests.every import every
from mens_pipeline_tests.language.examples import golden_programs

_PROGRAM = """
import clinic.limits as { minimum_for, Limit }, std.log as out

let patience: Map[str,int] = limits()
let loose = 1

@table type Task {
    title: str
    open: bool
}

@index Task.by_title on (title, open)

type Shape =
    | Circle(radius: float)
    | Dot

@pure
fn area(shape: Shape, scale: fn(int) to int) uses clock to Option[ int ] {
    let rows = db.Task.filter({ open: true }).map(row => row.title)
    return match shape {
        Dot => None
        Circle(radius) => if not (len(rows) % 2 is 0) { Some(1) } else { None }
    }
}

@test("a dot is flat")
fn flat() { assert(area(Dot, same) is None) }
@test
fn other() { assert(true) }
@forall("always") fn law(n: int) to Unit { assert(true) }
@scheduled("6h") fn nightly() to Unit { }
@endpoint(kind: query) fn tasks(owner: str) to List[Task] { return db.Task.all() }
@endpoint(kind: server) fn clock() to int { return 1 }
@loading fn Pending() to Element { return text() { "..." } }
@mcp.tool "Add a task" fn add_task() to str { return "ok" }
@mcp.resource("task://all", "All tasks") fn all_tasks() to str { return "" }

component Board(tasks: List[Task]) {
    state count: int = 0
    state draft = ""
    effect depends_on (count): { print(count) }
    view: column(gap=2) { button(on_click=fn() { count += 1 }) { "Add" } }
}

fragment Row(task: Task) { text() { task.title } }
@v0 "b_1" Chart {
    values: List[int]
    tall?: bool
}
@v0 from "chart.png" Other { wide: bool }

state_machine Door {
    state Closed
    terminal state Broken(by: str)
    on kick(by) from Closed -> Broken(by)
    on slam from any -> Closed
}

actor Bell {
    on ring(times: int) to str { return "ding" }
    on mute() { }
}

activity fetch(id: str) to Result[str] { return Ok(id) }
workflow run(id: str) to Result[str] { return fetch(id) with { retries: 3 } }

url Link { Home, Page(slug: str, ?at: int) }
routes {
    "/" to Home with (loader: tasks, pending: Pending) { "/deep" to Deep }
    not_found: Lost
    error: Broken
}
@form TaskForm {
    field title: str required max_len(40)
    field owner: str hidden
    on_submit: add
    success_redirect: "/done"
    error_message: "Again"
}
@tokens { color ink light: "#000" dark: "#fff" spacing gap: "8px" }
@back_button { on_press: leave }
@deep_link { scheme: "tasks" on_link: open }
@push { on_register: keep }
"""

_MET: dict[str, dict[str, Any]] = {
    "name": {"construct": "function", "name": "area"},
    "name of an import": {"construct": "import", "name": "clinic.limits.Limit"},
    "last part of an import": {"construct": "import", "name": "minimum_for"},
    "alias of an import": {"construct": "import", "name": "out"},
    "name of an index": {"construct": "index", "name": "Task.by_title"},
    "name of a wrapped function": {"construct": "query", "name": "tasks"},
    "construct alone": {"construct": "routes"},
    "params by type": {"construct": "function", "params": ["Shape", "fn( int )  to int"]},
    "params by name": {"construct": "function", "params": ["shape: Shape", "scale:fn(int) to int"]},
    "no params": {"construct": "server", "params": []},
    "params of a component": {"construct": "component", "params": ["tasks: List[Task]"]},
    "returns": {"construct": "function", "returns": "Option[int]"},
    "returns of a workflow": {"construct": "workflow", "returns": "Result[str]"},
    "returns of a constant": {"construct": "const", "returns": "Map[str, int]"},
    "label of a test": {"construct": "test", "label": "a dot is flat"},
    "label of a property": {"construct": "forall", "label": "always"},
    "label of a schedule": {"construct": "scheduled", "label": "6h"},
    "label of a tool": {"construct": "mcp_tool", "label": "Add a task"},
    "label of a resource": {"construct": "mcp_resource", "label": "task://all"},
    "label of a stub": {"construct": "v0_component", "label": "b_1"},
    "label of a stub from an image": {"construct": "v0_component", "label": "chart.png"},
    "fields of a table": {"construct": "table", "fields": ["title", "open: bool"]},
    "fields of a stub": {"construct": "v0_component", "fields": ["values:List[int]", "tall?: bool", "tall: bool"]},
    "fields of a form": {
        "construct": "form",
        "fields": ["title: str required", "title: str max_len(40)", "owner: str"],
    },
    "hidden field": {"construct": "form", "fields": ["owner: str hidden"]},
    "clauses of a form": {
        "construct": "form",
        "fields": ["on_submit: add", "success_redirect: /done", "error_message: Again"],
    },
    "design tokens": {"construct": "design_tokens", "fields": ["color ink", "gap"]},
    "back button": {"construct": "back_button", "fields": ["on_press: leave"]},
    "deep link": {"construct": "deep_link", "fields": ["scheme: tasks", "on_link"]},
    "push": {"construct": "push", "fields": ["on_register: keep"]},
    "variants": {"construct": "type", "variants": ["Circle( radius: float )", "Dot"]},
    "variants of a url": {"construct": "url", "variants": ["Home", "Page(slug: str, ?at: int)"]},
    "states": {"construct": "state_machine", "states": ["Closed", "Broken", "Broken(by: str)", "terminal Broken"]},
    "states of a component": {"construct": "component", "states": ["count: int", "draft"]},
    "events": {"construct": "state_machine", "events": ["kick", "kick from Closed -> Broken", "slam from any->Closed"]},
    "events with values": {"construct": "state_machine", "events": ["kick(by) from Closed -> Broken"]},
    "handlers": {"construct": "actor", "handlers": ["ring", "ring(times: int)", "ring(times:int) to str", "mute()"]},
    "columns": {"construct": "index", "columns": ["open"]},
    "routes": {"construct": "routes", "routes": ["/", "/ to Home", "/ to Home with loader: tasks", "/deep to Deep"]},
    "clauses of routes": {"construct": "routes", "routes": ["not_found: Lost", "error: Broken"]},
    "count": {"construct": "test", "count_at_least": 2},
    "kinds": {"construct": "function", "contains": ["Match", "If", "Lambda", "Let"]},
    "calls": {"construct": "function", "contains": ["call:len", "call:map", "call:db.Task.filter", "call:Some"]},
    "operators, keys and effects": {
        "construct": "function",
        "contains": ["operator:Mod", "operator:Not", "key:open", "uses:clock", "decorator:@pure"],
    },
    "views": {
        "construct": "component",
        "contains": ["view:button", "call:column", "attribute:on_click", "member:effect", "member:state"],
    },
}

_UNMET: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"construct": "activity", "name": "store"}, "Expected an activity `store`; found an activity `fetch`."),
    "params": (
        {"construct": "function", "name": "area", "params": ["Shape"]},
        "A function `area`: expected the parameters `Shape`, found `shape: Shape`, `scale: fn(int) to int`.",
    ),
    "order of params": (
        {"construct": "function", "params": ["fn(int) to int", "Shape"]},
        (
            "A function: expected the parameters `fn(int) to int`, `Shape`, "
            "found `shape: Shape`, `scale: fn(int) to int`."
        ),
    ),
    "no params": ({"construct": "activity", "params": []}, "An activity: expected no parameters, found `id: str`."),
    "returns": (
        {"construct": "workflow", "name": "run", "returns": "str"},
        "A workflow `run`: expected the type `str`, found `Result[str]`.",
    ),
    "returns nothing": (
        {"construct": "test", "name": "flat", "returns": "Unit"},
        "A test `flat`: expected the type `Unit`, found none.",
    ),
    "type of a constant": (
        {"construct": "const", "name": "loose", "returns": "int"},
        "A module-level constant `loose`: expected the type `int`, found none.",
    ),
    "label": (
        {"construct": "scheduled", "label": "12h"},
        "A scheduled function: expected the text `12h`, found `6h`.",
    ),
    "no label": (
        {"construct": "test", "name": "other", "label": "x"},
        "A test `other`: expected the text `x`, found none.",
    ),
    "fields": (
        {"construct": "table", "fields": ["title: int", "open: bool"]},
        "A table: expected the fields `title: int`, found `title: str`, `open: bool`.",
    ),
    "fields of a sum type": ({"construct": "type", "fields": ["x"]}, "A type: expected the fields `x`, found none."),
    "variants": (
        {"construct": "type", "variants": ["Square"]},
        "A type: expected the variants `Square`, found `Circle(radius: float)`, `Dot`.",
    ),
    "states": (
        {"construct": "state_machine", "states": ["terminal Closed"]},
        "A state machine: expected the states `terminal Closed`, found `Closed`, `terminal Broken(by: str)`.",
    ),
    "events": (
        {"construct": "state_machine", "events": ["slam from Closed -> Broken"]},
        (
            "A state machine: expected the events `slam from Closed -> Broken`, "
            "found `kick(by) from Closed -> Broken`, `slam from any -> Closed`."
        ),
    ),
    "handlers": (
        {"construct": "actor", "handlers": ["ring() to str"]},
        "An actor: expected the handlers `ring() to str`, found `ring(times: int) to str`, `mute()`.",
    ),
    "columns": (
        {"construct": "index", "columns": ["owner"]},
        "A table index: expected the columns `owner`, found `title`, `open`.",
    ),
    "routes": (
        {"construct": "routes", "routes": ["/ to Away"]},
        (
            "A routes block: expected the routes `/ to Away`, found `/ to Home with pending: Pending`, "
            "`/deep to Deep`, `not_found: Lost`, `error: Broken`."
        ),
    ),
    "count": ({"construct": "test", "count_at_least": 3}, "Expected a test at least 3 times; found 2 that match."),
    "count of those that fit": (
        {"construct": "test", "count_at_least": 2, "label": "a dot is flat"},
        "Expected a test at least 2 times; found 1 that match (expected the text `a dot is flat`, found none).",
    ),
    "contains": (
        {"construct": "function", "contains": ["While", "Match", "call:filter_map"]},
        "A function: expected `While`, `call:filter_map` in it, found none.",
    ),
    "several faults": (
        {"construct": "activity", "params": [], "returns": "str"},
        "An activity: expected no parameters, found `id: str`; expected the type `str`, found `Result[str]`.",
    ),
}


def _unmet(requirement: dict[str, Any], source: str = _PROGRAM, mode: Mode = Mode.SOURCE) -> tuple[str, ...]:
    module = analyze(source, mode).module
    assert module is not None
    return unmet([Requirement.model_validate(requirement)], module, source)


@every("name", _MET)
def test_a_matching_declaration_meets_the_requirement(name: str) -> None:
    assert _unmet(_MET[name]) == ()


@every("name", _UNMET)
def test_an_unmet_requirement_is_explained(name: str) -> None:
    requirement, sentence = _UNMET[name]
    assert _unmet(requirement) == (sentence,)


def test_each_unmet_requirement_gives_one_sentence() -> None:
    module = analyze("fn f() { }").module
    wanted = [Requirement(construct_=name) for name in ("function", "table", "workflow")]

    assert module is not None
    assert unmet(wanted, module, "fn f() { }") == (
        "Expected a table; found a function `f`.",
        "Expected a workflow; found a function `f`.",
    )


_F = "fn f(a: int) to int { return a }\nfn f() to str { return 1 }"
_REACTIVE = "state n: int = 0\nderived m = n * 2\n"
_MANY = "routes { }\n" + "\n".join(f"fn f{number}() {{ }}" for number in range(7))
_COMMENT = '// fn add(a: int) to int\nlet text = "fn add(a: int) to int"\n'
_FUNCTION: dict[str, Any] = {"construct": "function", "name": "f", "returns": "int"}
_STATE: dict[str, Any] = {"construct": "reactive_module"}
_FOUND = "found a routes block, a function `f0`, a function `f1`, a function `f2`, a function `f3`, 3 more."


@every(
    "case",
    [
        ("", {"construct": "table"}, "Expected a table; found no declaration."),
        (_MANY, {"construct": "table"}, f"Expected a table; {_FOUND}"),
        (
            _COMMENT,
            {"construct": "function", "name": "add"},
            "Expected a function `add`; found a module-level constant `text`.",
        ),
        (_F, _FUNCTION | {"params": ["int"]}, ""),
        (_F, _FUNCTION | {"params": []}, "A function `f`: expected no parameters, found `a: int`."),
        (
            "fn f(a) { }",
            {"construct": "function", "params": ["int"]},
            "A function: expected the parameters `int`, found `a`.",
        ),
        (_REACTIVE, _STATE | {"states": ["n: int"]}, ""),
        (
            _REACTIVE,
            _STATE | {"states": ["m"]},
            "The reactive members of a `.vox.ui` file: expected the states `m`, found `n: int`.",
        ),
    ],
)
def test_checks_a_short_program(case: tuple[str, dict[str, Any], str]) -> None:
    source, requirement, sentence = case
    mode = Mode.UI if source == _REACTIVE else Mode.SOURCE
    assert _unmet(requirement, source, mode) == ((sentence,) if sentence else ())


@every("construct", CONSTRUCTS)
def test_every_construct_can_be_required(construct: str) -> None:
    wanted = Requirement.model_validate({"construct": construct})
    parts = {str(part): ["nothing like it"] for part in Part if not _refuse(construct, part)}
    impossible = Requirement.model_validate({"construct": construct, **parts, "contains": ["call:nothing_like_it"]})
    found = 0
    for path, source in golden_programs().items():
        module = analyze(source, Mode.UI if path.endswith(".ui") else Mode.SOURCE).module
        assert module is not None
        found += unmet([wanted], module, source) == ()
        assert len(unmet([impossible], module, source)) == 1

    assert found >= 8


def _refuse(construct: str, part: Part) -> bool:
    try:
        Requirement.model_validate({"construct": construct, str(part): []})
    except ValidationError:
        return True
    return False
