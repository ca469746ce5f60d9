"""Requirements of a task in a manifest, and the check of completions against them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mens_pipeline.corpus.curate.near_duplicates import words_of
from mens_pipeline.corpus.schema.prompts import noun_of, text_of
from mens_pipeline.errors import did_you_mean
from mens_pipeline.language import CONSTRUCTS, EFFECTS, FUNCTION_DECORATORS, ast, construct_of, name_of
from mens_pipeline.language.ast import Const, Declaration, Import, Module, Param

Spellings = tuple[str, ...]
"""Accepted spellings of a part, from its name alone to full detail."""


class Part(StrEnum):
    """Lists of a requirement; a declaration needs all entries of a list, and may have others."""

    FIELDS = "fields"
    """Fields, `id` or `id: int`; also the entries of forms, design tokens and mobile blocks."""
    VARIANTS = "variants"  # `Circle` or `Circle(radius: float)`
    STATES = "states"
    """`Draft`, `terminal Sent` or `Sent(at: int)`; of a component, `count` or `count: int`."""
    EVENTS = "events"  # `send` or `send from Draft -> Sent`
    HANDLERS = "handlers"  # `add`, `add(amount: int)` or `add(amount: int) to int`
    COLUMNS = "columns"
    ROUTES = "routes"  # `/` or `/ to Home`


def normalise_spacing(text: str) -> str:
    """Put single spaces between the words and signs of a text."""
    return " ".join(words_of(text))


def format_param(param: ast.Param, source: str) -> str:
    """Format a parameter with its type and without its default: `count: int`."""
    return f"{param.name}: {text_of(param.type, source)}" if param.type is not None else param.name


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
"""Kind of part -> construct that has it -> function that lists the parts of a declaration."""


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
"""Prefix of a trait -> names allowed after the colon; None: any."""


def list_traits(declaration: ast.Declaration) -> frozenset[str]:
    """Return all traits of a declaration that `contains` may require.

    Returns:
        Kinds such as `For`, and traits such as `call:len`, `call:db.Task.insert`, `view:button`, `key:retries` (of an
        object), `attribute:href`, `member:derived`, `decorator:@pure`, `operator:Mod`, `uses:net`. A view also counts
        as a call, since a call without positional arguments is parsed as a view (G41).
    """
    return frozenset(trait for node in ast.walk(declaration) for trait in _traits(node))


def find_trait_error(trait: str) -> str | None:
    """Return a message about a malformed trait; None if it is valid."""
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
"""Type of a node -> its traits besides its kind."""


_UNNAMED: Final = frozenset(("routes", "design_tokens", "back_button", "deep_link", "push", "reactive_module"))
_CALLED: Final = frozenset(
    (
        *("function", "test", "forall", "loading", "scheduled", "query", "mutation", "server"),
        *("mcp_tool", "mcp_resource", "workflow", "activity"),
    )
)
LABEL_FIELDS: Final = {
    "test": ("label",),
    "forall": ("label",),
    "scheduled": ("interval",),
    "mcp_tool": ("description",),
    "mcp_resource": ("uri",),
    "v0_component": ("id", "image_path"),
}
"""Construct with a label -> fields of its node; the first nonempty one is the label."""

_HAS_KEY: Final = {
    "name": frozenset(CONSTRUCTS) - _UNNAMED,
    "label": frozenset(LABEL_FIELDS),
    "params": _CALLED | {"component", "fragment"},
    "returns": _CALLED | {"const"},
}
"""Key of a requirement -> constructs that have it; `_FORMS` covers the keys of `Part`."""

_Texts = tuple[str, ...]


class Requirement(BaseModel):
    """Declarations that a completion must contain: of one construct, each with all properties set here."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)

    construct_: str = Field(alias="construct", description="A name of `CONSTRUCTS`: `function`, `table`, `workflow`.")
    name: str | None = Field(default=None, description="Name of the declaration; for an index, `Table.index`.")
    label: str | None = Field(
        default=None,
        description="Label of a test, interval of a schedule, description of a tool, URI of a resource, or v0 id.",
    )
    params: _Texts | None = Field(default=None, description="All parameters in order: `int`, or with names `a: int`.")
    returns: str | None = Field(default=None, description="Return type; for a constant, its declared type.")
    fields: _Texts | None = Field(default=None, description="Required fields or entries.")
    variants: _Texts | None = Field(default=None, description="Required variants.")
    states: _Texts | None = Field(default=None, description="Required states.")
    events: _Texts | None = Field(default=None, description="Required transitions.")
    handlers: _Texts | None = Field(default=None, description="Required handlers.")
    columns: _Texts | None = Field(default=None, description="Required columns.")
    routes: _Texts | None = Field(default=None, description="Required routes.")
    count_at_least: int | None = Field(default=None, ge=1, description="Fewest such declarations; null: 1.")
    contains: _Texts | None = Field(default=None, description="Required traits: `Match`, `call:len`, ...")

    @model_validator(mode="after")
    def _fits_its_construct(self) -> "Requirement":
        found_faults: list[str] = []
        if self.construct_ not in CONSTRUCTS:
            advice = did_you_mean(self.construct_, CONSTRUCTS) or f"It is one of: {', '.join(CONSTRUCTS)}."
            found_faults.append(f"construct: found `{self.construct_}`, expected a known construct. {advice}")
        else:
            found_faults += self._misplaced_keys()
        wrong = (find_trait_error(trait) for trait in self.contains or ())
        found_faults += [f"contains: {found_fault}" for found_fault in wrong if found_fault is not None]
        if found_faults:
            raise ValueError("; ".join(found_faults))
        return self

    def parts(self, part: Part) -> tuple[str, ...]:
        """Return the required parts of one kind."""
        asked: tuple[str, ...] | None = getattr(self, part)
        return asked or ()

    def _misplaced_keys(self) -> Iterator[str]:
        allowed: list[str] = [key for key, constructs in _HAS_KEY.items() if self.construct_ in constructs]
        allowed += [part for part in Part if self.construct_ in _FORMS[part]]
        for key in (*_HAS_KEY, *Part):
            if getattr(self, key) is not None and key not in allowed:
                advice = did_you_mean(key, allowed)
                known = advice or f"It has {', '.join(f'`{name}`' for name in (*allowed, 'contains'))}."
                yield f"{key}: found it with `{self.construct_}`, which has no {key}. {known}"


_MOST_NAMED: Final = 5


def unmet(requirements: Iterable[Requirement], module: Module, source: str) -> tuple[str, ...]:
    """Return a sentence for each requirement that a completion does not meet, by its syntax tree."""
    return tuple(
        sentence for requirement in requirements if (sentence := _find_reason(requirement, module, source)) is not None
    )


def _find_reason(requirement: Requirement, module: Module, source: str) -> str | None:
    alike = [d for d in module.declarations if construct_of(d).name == requirement.construct_]
    named = [d for d in alike if requirement.name is None or requirement.name in list_names(d)]
    faults = [list(_faults(requirement, declaration, source)) for declaration in named]
    num_met = sum(not fault for fault in faults)
    wanted = requirement.count_at_least or 1
    if num_met >= wanted:
        return None
    if not named:
        return f"Expected {_subject(requirement)}; found {_listing(alike or module.declarations)}."
    wrong = sorted((fault for fault in faults if fault), key=len)
    detail = "; ".join(wrong[0]) if wrong else ""
    if wanted > 1:
        detail = f"found {num_met} that match" + (f" ({detail})" if detail else "")
        return f"Expected {_subject(requirement)} at least {wanted} times; {detail}."
    subject = _subject(requirement)
    return f"{subject[0].upper()}{subject[1:]}: {detail}."


def _faults(requirement: Requirement, declaration: Declaration, source: str) -> Iterator[str]:
    if requirement.label is not None and requirement.label != (label := _label(requirement, declaration)):
        yield f"expected the text `{requirement.label}`, found {_quote([label]) if label else 'none'}"
    if requirement.params is not None:
        yield from _param_fault(requirement.params, declaration, source)
    if requirement.returns is not None:
        yield from _type_fault(requirement.returns, declaration, source)
    for part in Part:
        asked = requirement.parts(part)
        if asked:
            yield from _part_fault(asked, part, tuple(_FORMS[part][requirement.construct_](declaration, source)))
    if requirement.contains:
        traits = list_traits(declaration)
        missing = [trait for trait in requirement.contains if trait not in traits]
        if missing:
            yield f"expected {_quote(missing)} in it, found none"


def _param_fault(asked: Sequence[str], declaration: Declaration, source: str) -> Iterator[str]:
    params: tuple[Param, ...] = _function_in(declaration).params
    if len(asked) != len(params) or not all(map(_fits, asked, params, [source] * len(params))):
        written = [format_param(param, source) for param in params]
        wanted = f"the parameters {_quote(asked)}" if asked else "no parameters"
        yield f"expected {wanted}, found {_quote(written) or 'none'}"


def _fits(asked: str, param: Param, source: str) -> bool:
    written = format_param(param, source) if ":" in asked else text_of(param.type, source) if param.type else ""
    return normalise_spacing(asked) == normalise_spacing(written)


def _type_fault(asked: str, declaration: Declaration, source: str) -> Iterator[str]:
    given = declaration.type if isinstance(declaration, Const) else _function_in(declaration).return_type
    written = text_of(given, source) if given is not None else None
    if written is None or normalise_spacing(written) != normalise_spacing(asked):
        yield f"expected the type `{asked}`, found {f'`{written}`' if written is not None else 'none'}"


def _part_fault(asked: Sequence[str], part: Part, parts: Sequence[Spellings]) -> Iterator[str]:
    known = {normalise_spacing(spelling) for spellings in parts for spelling in spellings}
    missing = [text for text in asked if normalise_spacing(text) not in known]
    if missing:
        fullest = [max(spellings, key=len) for spellings in parts]
        yield f"expected the {part} {_quote(missing)}, found {_quote(fullest) or 'none'}"


def _function_in(declaration: Declaration) -> Any:
    return getattr(declaration, "function", declaration)


def list_names(declaration: Declaration) -> frozenset[str | None]:
    """Return the names of a declaration; for an import, the path, last segment and alias of each imported item."""
    if not isinstance(declaration, Import):
        return frozenset((name_of(declaration),))
    paths = declaration.paths
    return frozenset(
        name for path in paths for name in (".".join(path.segments), path.segments[-1], path.alias) if name is not None
    )


def _label(requirement: Requirement, declaration: Declaration) -> str | None:
    texts = (getattr(declaration, field) for field in LABEL_FIELDS[requirement.construct_])
    return next((text for text in texts if text), None)


def _subject(requirement: Requirement) -> str:
    noun = noun_of(requirement.construct_)
    return f"{noun} `{requirement.name}`" if requirement.name is not None else noun


def _listing(declarations: Sequence[Declaration]) -> str:
    found = [_describe(declaration) for declaration in declarations[:_MOST_NAMED]]
    more = len(declarations) - _MOST_NAMED
    return ", ".join([*found, *([f"{more} more"] if more > 0 else [])]) or "no declaration"


def _describe(declaration: Declaration) -> str:
    noun, name = noun_of(construct_of(declaration).name), name_of(declaration)
    return f"{noun} `{name}`" if name else noun


def _quote(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)
