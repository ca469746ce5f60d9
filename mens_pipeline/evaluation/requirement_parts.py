"""The parts and traits of a declaration, each in all the ways in which it may be asked for."""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, get_args

from mens_pipeline.corpus.curate.near_duplicates import words_of
from mens_pipeline.corpus.schema.prompts import text_of
from mens_pipeline.errors import did_you_mean
from mens_pipeline.language import EFFECTS, FUNCTION_DECORATORS, ast

Spellings = tuple[str, ...]
"""The ways to ask for one part, from its name alone to all that is said of it."""


class Part(StrEnum):
    """A list that a requirement may give; each of its entries must be there, others may stand beside them."""

    FIELDS = "fields"
    """Fields `id` or `id: int`; the entries of a form, of design tokens and of a mobile block as well."""
    VARIANTS = "variants"
    """`Circle` or `Circle(radius: float)`."""
    STATES = "states"
    """`Draft`, `terminal Sent` or `Sent(at: int)`; of a component, `count` or `count: int`."""
    EVENTS = "events"
    """`send` or `send from Draft -> Sent`."""
    HANDLERS = "handlers"
    """`add`, `add(amount: int)` or `add(amount: int) to int`."""
    COLUMNS = "columns"
    ROUTES = "routes"
    """`/` or `/ to Home`."""


def normalise_spacing(text: str) -> str:
    """Normalise the spacing of a text."""
    return " ".join(words_of(text))


def format_param(param: ast.Param, source: str) -> str:
    """Format a parameter with its type and without its default: `count: int`."""
    return f"{param.name}: {text_of(param.type, source)}" if param.type is not None else param.name


def has_part(part: Part, construct: str) -> bool:
    """Return whether declarations of a construct can have such parts."""
    return construct in _FORMS[part]


def parts_of(part: Part, construct: str, declaration: ast.Declaration, source: str) -> tuple[Spellings, ...]:
    """Return the parts of one kind that a declaration has, in order.

    Declarations of the construct must be able to have them.
    """
    return tuple(_FORMS[part][construct](declaration, source))


def _field(field: ast.Field, source: str) -> Spellings:
    plain = f"{field.name}: {text_of(field.type, source)}"
    return (field.name, plain, text_of(field, source))


def _fields(declaration: ast.TypeDef | ast.Table, source: str) -> Iterator[Spellings]:
    return (_field(field, source) for field in declaration.fields)


def _form_entries(form: ast.Form, source: str) -> Iterator[Spellings]:
    for field in form.fields:
        plain = f"{field.name}: {text_of(field.type, source)}"
        yield (field.name, plain, *(f"{plain} {modifier}" for modifier in _modifiers(field)))
    for clause in ("on_submit", "success_redirect", "error_message"):
        value = getattr(form, clause)
        if value is not None:
            yield (clause, f"{clause}: {value}")


def _modifiers(field: ast.FormField) -> Iterator[str]:
    yield "required" if field.required else "optional"
    if field.hidden:
        yield "hidden"
    yield from (f"{word}({text})" for word, text in field.constraints)


def _block_entries(block: ast.BackButton | ast.DeepLink | ast.Push, _: str) -> Iterator[Spellings]:
    return ((key, f"{key}: {value}") for key, value in block.entries)


def _tokens(tokens: ast.Tokens, _: str) -> Iterator[Spellings]:
    for token in tokens.entries:
        plain = f"{token.category} {token.name}"
        yield (token.name, plain, " ".join((plain, *token.values)))


def _variants(declaration: ast.TypeDef | ast.Url, source: str) -> Iterator[Spellings]:
    for variant in declaration.variants:
        fields = ", ".join(text_of(field, source) for field in variant.fields)
        yield (variant.name, f"{variant.name}({fields})" if fields else variant.name)


def _machine_states(machine: ast.StateMachine, source: str) -> Iterator[Spellings]:
    for state in machine.states:
        fields = ", ".join(text_of(field, source) for field in state.fields)
        plain = (state.name, f"{state.name}({fields})") if fields else (state.name,)
        yield (*plain, *(f"terminal {text}" for text in plain)) if state.is_terminal else plain


def _reactive_states(declaration: ast.ReactiveComponent | ast.ReactiveModule, source: str) -> Iterator[Spellings]:
    for member in declaration.members:
        if member.role == "state" and member.name is not None:
            whole = (f"{member.name}: {text_of(member.type, source)}",) if member.type is not None else ()
            yield (member.name, *whole)


def _events(machine: ast.StateMachine, _: str) -> Iterator[Spellings]:
    for transition in machine.transitions:
        way = f"from {transition.source or 'any'} -> {transition.target}"
        params = ", ".join(transition.params)
        whole = (f"{transition.event}({params}) {way}",) if params else ()
        yield (transition.event, f"{transition.event} {way}", *whole)


def _handlers(actor: ast.Actor, source: str) -> Iterator[Spellings]:
    for handler in actor.handlers:
        called = f"{handler.event}({', '.join(format_param(param, source) for param in handler.params)})"
        returned = (f"{called} to {text_of(handler.return_type, source)}",) if handler.return_type is not None else ()
        yield (handler.event, called, *returned)


def _routes(routes: ast.Routes, _: str) -> Iterator[Spellings]:
    for route in (node for node in ast.walk(routes) if isinstance(node, ast.Route)):
        plain = f"{route.path} to {route.component}"
        yield (route.path, plain, *(f"{plain} with {kind}: {name}" for kind, name in route.handlers))
    for clause in ("not_found", "error"):
        value = getattr(routes, clause)
        if value is not None:
            yield (clause, f"{clause}: {value}")


_Form = Callable[[Any, str], Iterator[Spellings]]

_FORMS: Final[Mapping[Part, Mapping[str, _Form]]] = {
    Part.FIELDS: {
        "type": _fields,
        "table": _fields,
        "v0_component": lambda component, source: (_field(prop, source) for prop in component.props),
        "form": _form_entries,
        "design_tokens": _tokens,
        "back_button": _block_entries,
        "deep_link": _block_entries,
        "push": _block_entries,
    },
    Part.VARIANTS: {"type": _variants, "url": _variants},
    Part.STATES: {
        "state_machine": _machine_states,
        "component": _reactive_states,
        "reactive_module": _reactive_states,
    },
    Part.EVENTS: {"state_machine": _events},
    Part.HANDLERS: {"actor": _handlers},
    Part.COLUMNS: {"index": lambda index, _: ((column,) for column in index.columns)},
    Part.ROUTES: {"routes": _routes},
}
"""Kind of part -> construct that has it -> how its parts are found."""


KINDS: Final = frozenset(kind.__name__ for kind in (*get_args(ast.Expr), *get_args(ast.Statement)))
"""The kinds of expressions and statements, such as `Match` and `While`."""

_OPERATORS: Final = frozenset(
    (
        *("Add", "Sub", "Mul", "Div", "Mod", "Lt", "Gt", "Lte", "Gte"),
        *("And", "Or", "Is", "Isnt", "Pipe", "Not", "Neg"),
    )
)

_PREFIXES: Final[Mapping[str, frozenset[str] | None]] = {
    "call": None,
    "view": None,
    "key": None,
    "attribute": None,
    "member": frozenset(("state", "derived", "effect", "mount", "cleanup")),
    "decorator": frozenset(FUNCTION_DECORATORS),
    "operator": _OPERATORS,
    "uses": EFFECTS,
}
"""What stands before the colon of a trait -> what may follow; None where any name may."""


def traits_of(declaration: ast.Declaration) -> frozenset[str]:
    """Return everything that a requirement may say a declaration contains.

    Returns:
        Kinds such as `For`, and traits such as `call:len`, `call:db.Task.insert`, `view:button`, `key:retries` (of an
        object), `attribute:href`, `member:derived`, `decorator:@pure`, `operator:Mod`, `uses:net`. A view counts as a
        call too, since a call without positional arguments is read as one (G41).
    """
    return frozenset(trait for node in ast.walk(declaration) for trait in _traits(node))


def find_trait_error(trait: str) -> str | None:
    """Return what is wrong with the wording of a trait; None when nothing is."""
    prefix, colon, word = trait.partition(":")
    if not colon:
        return None if trait in KINDS else _unknown(trait, "kind of expression or statement", KINDS)
    if prefix not in _PREFIXES:
        return _unknown(prefix, "prefix", _PREFIXES)
    known = _PREFIXES[prefix]
    if not word.strip():
        return f"found `{trait}`, expected a name after the colon"
    return None if known is None or word in known else _unknown(word, prefix, known)


def _unknown(found: str, what: str, known: Mapping[str, object] | frozenset[str]) -> str:
    advice = did_you_mean(found, known) or f"It is one of: {', '.join(sorted(known))}."
    return f"found `{found}`, expected a known {what}. {advice}"


def _traits(node: ast.Node) -> Iterator[str]:
    kind = type(node).__name__
    if kind in KINDS:
        yield kind
    for type_, traits in _TRAITS:
        if isinstance(node, type_):
            yield from traits(node)


def _method_traits(call: ast.MethodCall) -> tuple[str, ...]:
    path = _path(call.object)
    return (f"call:{call.method}", f"call:{path}.{call.method}") if path else (f"call:{call.method}",)


def _path(node: ast.Node) -> str | None:
    """Return the dotted name that a method is called on: `db.Task`; None for anything but names."""
    names: list[str] = []
    while isinstance(node, ast.FieldAccess):
        names.append(node.field)
        node = node.object
    return ".".join([node.name, *reversed(names)]) if isinstance(node, ast.Ident) else None


_TRAITS: Final[tuple[tuple[type | tuple[type, ...], Callable[[Any], tuple[str, ...]]], ...]] = (
    (ast.Call, lambda n: (f"call:{n.callee.name}",) if isinstance(n.callee, ast.Ident) else ()),
    (ast.MethodCall, _method_traits),
    ((ast.View, ast.SelfClosingView), lambda n: (f"view:{n.tag}", f"call:{n.tag}")),
    (ast.ObjectField, lambda n: (f"key:{n.key}",)),
    (ast.Attribute, lambda n: (f"attribute:{n.name}",)),
    (ast.ReactiveMember, lambda n: (f"member:{n.role}",)),
    (ast.Decorator, lambda n: (f"decorator:{n.name}",)),
    ((ast.Binary, ast.Unary), lambda n: (f"operator:{n.op}",)),
    (ast.Function, lambda n: tuple(f"uses:{effect}" for effect in n.effects)),
)
"""Kind of node -> what a requirement may call it, beside its kind."""
