"""The parts a declaration consists of, each in all the ways in which it may be asked for."""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from mens_pipeline.corpus.curate.shingles import words_of
from mens_pipeline.language.ast.base import Node, walk
from mens_pipeline.language.ast.behaviour import Actor, BackButton, DeepLink, Form, FormField, Push, Tokens
from mens_pipeline.language.ast.data import Field, Index, StateMachine, Table, TypeDef, Url, Variant
from mens_pipeline.language.ast.declarations import Declaration
from mens_pipeline.language.ast.types import Param
from mens_pipeline.language.ast.ui import ReactiveComponent, ReactiveModule, Route, Routes, V0Component

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


def normalised(text: str) -> str:
    """Normalise the spacing of a text."""
    return " ".join(words_of(text))


def text_of(node: Node, source: str) -> str:
    """Return the source text of a piece of syntax, on one line."""
    return " ".join(source[node.start : node.end].split())


def typed(param: Param, source: str) -> str:
    """Format a parameter with its type and without its default: `count: int`."""
    return f"{param.name}: {text_of(param.type, source)}" if param.type is not None else param.name


def has_part(part: Part, construct: str) -> bool:
    """Return whether declarations of a construct can have such parts."""
    return construct in _FORMS[part]


def parts_of(part: Part, construct: str, declaration: Declaration, source: str) -> tuple[Spellings, ...]:
    """Return the parts of one kind that a declaration has, in order.

    Declarations of the construct must be able to have them.
    """
    return tuple(_FORMS[part][construct](declaration, source))


def _field(field: Field, source: str) -> Spellings:
    plain = f"{field.name}: {text_of(field.type, source)}"
    return (field.name, plain, text_of(field, source))


def _fields(declaration: TypeDef | Table, source: str) -> Iterator[Spellings]:
    return (_field(field, source) for field in declaration.fields)


def _properties(component: V0Component, source: str) -> Iterator[Spellings]:
    return (_field(prop, source) for prop in component.props)


def _form_entries(form: Form, source: str) -> Iterator[Spellings]:
    for field in form.fields:
        plain = f"{field.name}: {text_of(field.type, source)}"
        yield (field.name, plain, *(f"{plain} {modifier}" for modifier in _modifiers(field)))
    for clause in ("on_submit", "success_redirect", "error_message"):
        value = getattr(form, clause)
        if value is not None:
            yield (clause, f"{clause}: {value}")


def _modifiers(field: FormField) -> Iterator[str]:
    if field.required:
        yield "required"
    if field.hidden:
        yield "hidden"
    yield from (f"{word}({text})" for word, text in field.constraints)


def _block_entries(block: BackButton | DeepLink | Push, _: str) -> Iterator[Spellings]:
    return ((key, f"{key}: {value}") for key, value in block.entries)


def _tokens(tokens: Tokens, _: str) -> Iterator[Spellings]:
    return ((token.name, f"{token.category} {token.name}") for token in tokens.entries)


def _variants(declaration: TypeDef | Url, source: str) -> Iterator[Spellings]:
    return ((variant.name, _whole_variant(variant, source)) for variant in declaration.variants)


def _whole_variant(variant: Variant, source: str) -> str:
    fields = ", ".join(text_of(field, source) for field in variant.fields)
    return f"{variant.name}({fields})" if fields else variant.name


def _machine_states(machine: StateMachine, source: str) -> Iterator[Spellings]:
    for state in machine.states:
        fields = ", ".join(text_of(field, source) for field in state.fields)
        plain = (state.name, f"{state.name}({fields})") if fields else (state.name,)
        yield (*plain, *(f"terminal {text}" for text in plain)) if state.is_terminal else plain


def _reactive_states(declaration: ReactiveComponent | ReactiveModule, source: str) -> Iterator[Spellings]:
    for member in declaration.members:
        if member.role == "state" and member.name is not None:
            whole = (f"{member.name}: {text_of(member.type, source)}",) if member.type is not None else ()
            yield (member.name, *whole)


def _events(machine: StateMachine, _: str) -> Iterator[Spellings]:
    for transition in machine.transitions:
        way = f"from {transition.source or 'any'} -> {transition.target}"
        params = ", ".join(transition.params)
        whole = (f"{transition.event}({params}) {way}",) if params else ()
        yield (transition.event, f"{transition.event} {way}", *whole)


def _handlers(actor: Actor, source: str) -> Iterator[Spellings]:
    for handler in actor.handlers:
        called = f"{handler.event}({', '.join(typed(param, source) for param in handler.params)})"
        returned = (f"{called} to {text_of(handler.return_type, source)}",) if handler.return_type is not None else ()
        yield (handler.event, called, *returned)


def _columns(index: Index, _: str) -> Iterator[Spellings]:
    return ((column,) for column in index.columns)


def _routes(routes: Routes, _: str) -> Iterator[Spellings]:
    for route in (node for node in walk(routes) if isinstance(node, Route)):
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
        "v0_component": _properties,
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
    Part.COLUMNS: {"index": _columns},
    Part.ROUTES: {"routes": _routes},
}
"""Kind of part -> construct that has it -> how its parts are found."""
