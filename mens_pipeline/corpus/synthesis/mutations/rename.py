"""Renaming what a program declares, everywhere in it."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from mens_pipeline.corpus.synthesis.edits import Edit
from mens_pipeline.corpus.synthesis.mutations.naming import is_built_in, new_name
from mens_pipeline.corpus.synthesis.mutations.task import Change, capitalised, described, listed, task_of, with_remark
from mens_pipeline.corpus.synthesis.program import Program
from mens_pipeline.corpus.synthesis.sample import Sample
from mens_pipeline.language import DeclarationSpan, histogram
from mens_pipeline.language.ast.base import Node, field_names, walk
from mens_pipeline.language.ast.expressions import Attribute, FieldAccess, Ident, Lambda, SelfClosingView, View
from mens_pipeline.language.ast.patterns import IdentPattern
from mens_pipeline.language.ast.ui import ReactiveMember
from mens_pipeline.language.vocabulary import VIEW_TAGS


def roles_of_names(program: Program) -> dict[str, tuple[tuple[str, DeclarationSpan], ...]]:
    """Name -> each of its roles with the declaration it stands in, in source order of the declarations.

    A role is the node and the field of it that holds the text: `Param.name`. Some are finer than that: members by
    their role (`state.name`), parameters of lambdas (`LambdaParam.name`), upper-case patterns (`VariantPattern.name`),
    tables behind `db` (`Database.field`), and the attributes of components that the program declares itself
    (`OwnAttribute.name`). Texts that are no names (string literals, operators) have roles too.
    """
    own = frozenset(span.name for span in program.spans if span.construct.name in {"component", "fragment"})
    found: dict[str, list[tuple[str, DeclarationSpan]]] = {}
    for span in program.spans:
        for node in _each_once(span.declaration):
            for role, text in _texts(node, own):
                found.setdefault(text, []).append((role, span))
    return {name: tuple(roles) for name, roles in found.items()}


def _each_once(root: Node) -> Iterator[Node]:
    """Yield every node below a root once; the target of a compound assignment is visited twice, by `walk`.

    What is spoken of by the node above, parameters of lambdas and attributes of views, is left out.
    """
    seen: set[int] = set()
    for node in walk(root):
        if isinstance(node, Lambda):
            seen.update(map(id, node.params))
        if id(node) not in seen and not isinstance(node, Attribute):
            seen.add(id(node))
            yield node


def _texts(node: Node, own: frozenset[str | None]) -> Iterator[tuple[str, str]]:
    kind = _kind(node)
    for name in field_names(node):
        for text in _strings(getattr(node, name)):
            yield f"{kind}.{name}", text
    if isinstance(node, Lambda):
        yield from (("LambdaParam.name", param.name) for param in node.params)
    if isinstance(node, View | SelfClosingView):
        attribute = "OwnAttribute.name" if node.tag in own else "Attribute.name"
        yield from ((attribute, each.name) for each in node.attributes)


def _kind(node: Node) -> str:
    if isinstance(node, ReactiveMember):
        return node.role
    if isinstance(node, IdentPattern) and node.name[0].isupper():
        return "VariantPattern"
    if isinstance(node, FieldAccess) and isinstance(node.object, Ident) and node.object.name == "db":
        return "Database"
    return type(node).__name__


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _strings(item)


_IDENTIFIERS: Final = frozenset(("IDENT", "TYPEIDENT"))
_TEXTS: Final = frozenset(("STRING", "SSTRING"))
_CALLED_AS_VIEW: Final = frozenset(("View.tag", "SelfClosingView.tag"))
_VALUE: Final = frozenset(("Ident.name",))
_MEMBER: Final = frozenset(("FieldAccess.field", "ObjectField.key", "Index.columns"))
_TOP: Final = frozenset((
    "Ident.name", "NamedType.name", "GenericType.name", "Index.table", "Database.field", "Route.component",
    "Route.handlers", "Routes.not_found", "Routes.error", "Form.on_submit", "BackButton.entries", "DeepLink.entries",
    "Push.entries", "View.tag", "SelfClosingView.tag", "Decorator.fallback",
))  # fmt: skip

_LOCAL: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    "Field.name": ("field", _MEMBER),
    "FormField.name": ("form field", frozenset()),
    "state.name": ("state", _VALUE | {"effect.depends_on"}),
    "derived.name": ("derived value", _VALUE | {"effect.depends_on"}),
    "Param.name": ("parameter", _VALUE | {"OwnAttribute.name", "effect.depends_on"}),
    "LambdaParam.name": ("lambda parameter", _VALUE),
    "IdentPattern.name": ("variable", _VALUE),
    "For.binding": ("loop variable", _VALUE),
    "For.index": ("loop variable", _VALUE),
}
"""Roles that declare what other declarations may share a name with -> its noun and the roles that use it."""

_SINGLE: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    **{
        f"{kind}.name": ("", _TOP)
        for kind in (
            "Function", "TypeDef", "Table", "Url", "StateMachine", "Workflow", "Activity", "Actor", "Const", "Form",
            "ReactiveComponent", "Fragment", "V0Component",
        )
    },
    "Variant.name": (
        "variant",
        frozenset(("Ident.name", "VariantPattern.name", "ConstructorPattern.name", "SelfClosingView.tag")),
    ),
    "Index.index": ("index", frozenset()),
    "Handler.event": ("handler", frozenset(("MethodCall.method",))),
    "Transition.event": ("event", frozenset()),
    "MachineState.name": ("state", frozenset(("Transition.source", "Transition.target"))),
}  # fmt: skip
"""Roles that declare what nothing else may share a name with; no noun: that of the declaration."""

_FRAMES: Final = (
    "Rename {what} to `{new}` everywhere in this Vox program:",
    "In the following Vox program, rename {what} to `{new}`. Change every use of the name.",
    "Please rename {what} to `{new}` in this Vox program and leave everything else as it is.",
    "{what} should be called `{new}`. Change this Vox program accordingly, in every place:",
)


@dataclass(frozen=True, slots=True)
class _Target:
    """A name that can be renamed: what it is and where it is declared."""

    name: str
    noun: str
    what: str
    span: DeclarationSpan


def rename(program: Program, random: Random) -> Sample | None:
    """Make a task: a prompt to rename one thing the program declares, and the program with every use of it renamed.

    Only names whose every occurrence the syntax tree accounts for are renamed, so nothing of the same spelling but
    another meaning is touched.

    Returns:
        The task; None when no name can be renamed safely.
    """
    targets = _targets(program)
    if not targets:
        return None
    noun = random.choice(sorted({target.noun for target in targets}))
    target = random.choice([target for target in targets if target.noun == noun])
    new = new_name(target.name, target.noun, program.identifiers, random)
    if new is None:
        return None
    request = random.choice(_FRAMES).format(what=target.what, new=new)
    if _mentioned(program, target.name, _TEXTS):
        request = with_remark(request, "Leave the text of strings as it is.")
    edits = _edits(program, target.name, new)
    return task_of(
        program, Change("rename", target.span.construct.name, capitalised(request), edits, _check(program, target.name))
    )


def _check(program: Program, old: str) -> Callable[[Program], bool]:
    constructs = histogram(program.module)
    return lambda after: old not in after.identifiers and histogram(after.module) == constructs


def _edits(program: Program, old: str, new: str) -> tuple[Edit, ...]:
    word = re.compile(rf"\b{old}\b")
    return tuple(
        Edit(token.start, token.end, word.sub(new, token.text))
        for token in program.tokens
        if token.text == old or (token.kind == "COMMENT" and word.search(token.text))
    )


def _targets(program: Program) -> list[_Target]:
    counts = Counter(token.text for token in program.tokens if token.kind in _IDENTIFIERS)
    roles = roles_of_names(program)
    targets = (
        _target(name, roles[name])
        for name, count in counts.items()
        if len(roles.get(name, ())) == count and not is_built_in(name) and not _is_spoken_of(program, name)
    )
    return [target for target in targets if target is not None]


def _target(name: str, roles: Sequence[tuple[str, DeclarationSpan]]) -> _Target | None:
    kinds = [role for role, _ in roles]
    single = [role for role in kinds if role in _SINGLE]
    declaring = single[:1] or [role for role in kinds if role in _LOCAL]
    known = {**_LOCAL, **_SINGLE}
    allowed = set(declaring).union(*(known[role][1] for role in declaring))
    if name in VIEW_TAGS:
        allowed -= _CALLED_AS_VIEW
    if not declaring or not allowed.issuperset(kinds):
        return None
    owners = [span for role, span in roles if role in declaring]
    nouns = list(dict.fromkeys(known[role][0] for role in declaring))
    if nouns == [""]:
        return _Target(name, owners[0].construct.name, described(owners[0]), owners[0])
    where = _where(nouns, owners)
    return _Target(name, nouns[0], f"{listed([f'the {noun}' for noun in nouns])} `{name}`{where}", owners[0])


def _where(nouns: Sequence[str], owners: Sequence[DeclarationSpan]) -> str:
    """Format where a name is declared, for a prompt; empty where several declarations have one."""
    if len(nouns) > 1 or any(owner is not owners[0] for owner in owners):
        return ""
    if nouns[0] == "index":
        return f" of the table `{str(owners[0].name).split('.', maxsplit=1)[0]}`"
    preposition = "in" if nouns[0] in {"variable", "loop variable", "lambda parameter"} else "of"
    return f" {preposition} {described(owners[0])}"


def _is_spoken_of(program: Program, name: str) -> bool:
    """Return whether texts or comments speak of a name in a way that a renaming would leave behind or get wrong.

    A name of several words means the name wherever it stands: comments follow it, strings must not have it. A name of
    one word may be a plain word: strings keep it, comments must not have it.
    """
    of_several_words = "_" in name.strip("_") or re.search("[a-z][A-Z]", name) is not None
    return _mentioned(program, name, _TEXTS if of_several_words else frozenset(("COMMENT",)))


def _mentioned(program: Program, name: str, kinds: frozenset[str]) -> bool:
    word = re.compile(rf"\b{name}\b")
    return any(word.search(token.text) for token in program.tokens if token.kind in kinds)
