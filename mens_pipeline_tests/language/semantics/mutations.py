"""Correct programs with one planted mistake of a known kind."""

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Any, Final, NamedTuple

from mens_pipeline.language import Mode, analyze, ast
from mens_pipeline.language.interpreter.library.builtins import BUILT_INS, METHODS
from mens_pipeline.language.interpreter.values import Native
from mens_pipeline.language.names.declarations import METHOD_NAMES, VALUES, VARIANTS
from mens_pipeline_tests.language.examples import parse

_OTHER_LITERALS: Final = {"int": '"seven"', "str": "7", "bool": '"yes"', "float": '"one"'}
_PLAIN: Final = frozenset(_OTHER_LITERALS)


class Edit(NamedTuple):
    """One replacement in a text."""

    start: int
    end: int
    text: str


Edits = tuple[Edit, ...]


class Program:
    """A correct program, and the places where a mistake can be planted."""

    def __init__(self, source: str, mode: Mode) -> None:
        self.source = source
        self.mode = mode
        module = parse(source, mode)
        self.nodes = list(ast.walk(module))
        self.words = {getattr(node, "name", None) for node in self.nodes} | VALUES | METHOD_NAMES
        self.functions = {node.name: node for node in self.nodes if isinstance(node, ast.Function)}
        self.structs = [node for node in self.nodes if isinstance(node, ast.TypeDef | ast.Table) and node.fields]
        self.variants = {node.name: node for node in self.nodes if isinstance(node, ast.Variant)}
        self.is_closed = not any(isinstance(node, ast.ImportPath) for node in self.nodes)

    def of(self, *kinds: type[ast.Node]) -> Iterator[Any]:
        """Return the nodes of some classes."""
        return (node for node in self.nodes if isinstance(node, kinds))

    def misspell(self, word: str) -> str:
        """Return a similar word that is not a name of the program."""
        middle = len(word) // 2
        for wrong in (word[:middle] + word[middle + 1 :], word + "s", word + "x", word + "_" + word):
            if wrong and wrong not in self.words and wrong[0] == word[0]:
                return wrong
        return word + "_qx"


def _misspell_at(node: ast.Node, name: str, program: Program, after: int | None = None) -> Edits:
    start = program.source.index(name, node.start if after is None else after, node.end)
    return (Edit(start, start + len(name), program.misspell(name)),)


def _rename_field(program: Program) -> Iterator[Edits]:
    for node in program.of(ast.FieldAccess):
        if not _is_foreign(node.object, program):
            yield _misspell_at(node, node.field, program, node.end - len(node.field))
    known = {field.name for struct in program.structs for field in struct.fields}
    for record in program.of(ast.ObjectLit):
        if _struct_of(record, program) is not None:
            yield from (_misspell_at(entry, entry.key, program) for entry in record.fields if entry.key in known)


def _is_foreign(node: ast.Expr, program: Program) -> bool:
    """Return whether a value comes from outside, so that its fields are unknown."""
    while isinstance(node, ast.MethodCall | ast.FieldAccess | ast.IndexAccess | ast.Call | ast.Try):
        node = node.callee if isinstance(node, ast.Call) else node.operand if isinstance(node, ast.Try) else node.object
    return not program.is_closed or (isinstance(node, ast.Ident) and node.name in {"db", "std", "env", "fs", "process"})


def _change_arity(program: Program) -> Iterator[Edits]:
    for node in program.of(ast.Call, ast.MethodCall):
        if not _has_fixed_arity(node, program):
            continue
        if node.arguments:
            last = node.arguments[-1]
            before = node.arguments[-2].end if len(node.arguments) > 1 else last.start
            yield (Edit(before, last.end, ""),)
            yield (Edit(last.end, last.end, ", 1"),)
        else:
            yield (Edit(node.end - 1, node.end - 1, "1"),)


def _has_fixed_arity(node: ast.Call | ast.MethodCall, program: Program) -> bool:
    if isinstance(node, ast.MethodCall):
        counts = {(m[node.method].fewest, m[node.method].most) for m in METHODS.values() if node.method in m}
        return program.is_closed and len(counts) == 1 and all(few == most for few, most in counts)
    if not isinstance(node.callee, ast.Ident):
        return False
    name = node.callee.name
    if name in program.functions:
        return all(param.default is None for param in program.functions[name].params)
    if name in program.variants:
        return not any(field.optional for field in program.variants[name].fields)
    native = BUILT_INS.get(name)
    return isinstance(native, Native) and native.fewest == native.most


def _struct_of(node: ast.ObjectLit, program: Program) -> ast.TypeDef | ast.Table | None:
    keys = {entry.key for entry in node.fields}
    found = [struct for struct in program.structs if {field.name for field in struct.fields} == keys]
    return found[0] if len(found) == 1 and keys else None


def _drop_field(program: Program) -> Iterator[Edits]:
    for node in program.of(ast.ObjectLit):
        struct = _struct_of(node, program)
        if struct is None or len(node.fields) < 2:
            continue
        optional = {f.name for f in struct.fields if isinstance(f.type, ast.GenericType) and f.type.name == "Option"}
        for index, entry in enumerate(node.fields):
            if entry.key not in optional:
                yield (_without(index, node.fields),)
    read = {node.field for node in program.of(ast.FieldAccess)}
    owners = [field.name for struct in program.structs for field in struct.fields]
    for struct in program.structs:
        for index, field in enumerate(struct.fields):
            if field.name in read and owners.count(field.name) == 1 and field.name not in {"id", "_id"}:
                yield (_without(index, struct.fields),)


def _without(index: int, nodes: tuple[ast.Node, ...]) -> Edit:
    if index + 1 < len(nodes):
        return Edit(nodes[index].start, nodes[index + 1].start, "")
    return Edit(nodes[index - 1].end if index else nodes[index].start, nodes[index].end, "")


def _swap_arguments(program: Program) -> Iterator[Edits]:
    for node, types in _plain_calls(program):
        for one in range(len(types)):
            for other in range(one + 1, len(types)):
                kinds = {types[one], types[other]}
                if len(kinds) == 2 and kinds <= _PLAIN and kinds != {"int", "float"}:
                    first, second = node.arguments[one].value, node.arguments[other].value
                    yield (
                        Edit(first.start, first.end, program.source[second.start : second.end]),
                        Edit(second.start, second.end, program.source[first.start : first.end]),
                    )


def _plain_calls(program: Program) -> Iterator[tuple[ast.Call, list[str]]]:
    for node in program.of(ast.Call):
        if not isinstance(node.callee, ast.Ident):
            continue
        name = node.callee.name
        owner = program.functions.get(name)
        types = [param.type for param in owner.params] if owner is not None else None
        if types is None and name in program.variants:
            types = [field.type for field in program.variants[name].fields]
        if types is None or len(types) != len(node.arguments) or any(a.name for a in node.arguments):
            continue
        yield node, [type_.name if isinstance(type_, ast.NamedType) else "" for type_ in types]


def _wrong_literal(program: Program) -> Iterator[Edits]:
    for node, types in _plain_calls(program):
        for argument, type_ in zip(node.arguments, types, strict=True):
            if type_ in _PLAIN:
                yield (Edit(argument.start, argument.end, _OTHER_LITERALS[type_]),)


def _wrong_return(program: Program) -> Iterator[Edits]:
    for function in program.functions.values():
        type_ = function.return_type
        if isinstance(type_, ast.NamedType) and type_.name in _PLAIN and type_.name not in function.generics:
            for node in function.body:
                if isinstance(node, ast.Return) and node.value is not None:
                    yield (Edit(node.value.start, node.value.end, _OTHER_LITERALS[type_.name]),)


def _drop_return(program: Program) -> Iterator[Edits]:
    for function in program.functions.values():
        type_, last = function.return_type, function.body[-1] if function.body else None
        is_unit = isinstance(type_, ast.NamedType) and type_.name in {"Unit", *function.generics}
        if type_ is not None and not is_unit and isinstance(last, ast.Return) and last.value is not None:
            yield (Edit(last.start, last.end, ""),)


def _drop_mut(program: Program) -> Iterator[Edits]:
    targets = [node.target for node in program.of(ast.Assign)]
    assigned = {target.name for target in targets if isinstance(target, ast.Ident)}
    lets = [node for node in program.of(ast.Let) if isinstance(node.pattern, ast.IdentPattern)]
    names = [node.pattern.name for node in lets if isinstance(node.pattern, ast.IdentPattern)]
    for node in lets:
        if node.mutable and isinstance(node.pattern, ast.IdentPattern) and node.pattern.name in assigned:
            start = program.source.index("mut", node.start)
            if names.count(node.pattern.name) == 1:
                yield (Edit(start, start + len("mut "), ""),)


def _drop_arm(program: Program) -> Iterator[Edits]:
    for node in program.of(ast.Match):
        if len(node.arms) < 2:
            continue
        heads = [_head(arm, program) for arm in node.arms]
        for index, arm in enumerate(node.arms):
            is_sole = heads[index] is not None and heads.count(heads[index]) == 1 and "" not in heads
            is_catch_all = heads[index] == "" and any(isinstance(a.pattern, ast.LiteralPattern) for a in node.arms)
            if is_sole or is_catch_all:
                end = node.arms[index + 1].start if index + 1 < len(node.arms) else arm.end
                yield (Edit(arm.start, end, ""),)


def _head(arm: ast.MatchArm, program: Program) -> str | None:
    pattern = arm.pattern
    if isinstance(pattern, ast.WildcardPattern):
        return ""
    if isinstance(pattern, ast.ConstructorPattern):
        return pattern.name
    if isinstance(pattern, ast.IdentPattern):
        return pattern.name if pattern.name in program.variants or pattern.name in VARIANTS else ""
    return None


def _repeat_declaration(program: Program) -> Iterator[Edits]:
    for owner in program.of(ast.TypeDef, ast.Table, ast.Url):
        fields: tuple[ast.Field | ast.Variant, ...] = getattr(owner, "fields", ()) or getattr(owner, "variants", ())
        for part in fields:
            if isinstance(part, ast.Field):
                yield (Edit(part.end, part.end, f"\n{program.source[part.start : part.end]}\n"),)
    for function in program.functions.values():
        yield (Edit(len(program.source), len(program.source), f"\nfn {function.name}() {{ }}\n"),)


def _unwrap_plain(program: Program) -> Iterator[Edits]:
    for function in program.functions.values():
        type_ = function.return_type
        if isinstance(type_, ast.NamedType) and type_.name in _PLAIN and function.body:
            start = function.body[0].start
            yield (Edit(start, start, "let unwrapped_here = Ok(1)?\n"),)


def _is_variant(name: str, program: Program) -> bool:
    return program.is_closed and (name in program.variants or name in VARIANTS)


KINDS: Final[dict[str, Callable[[Program], Iterator[Edits]]]] = {
    "rename a name": lambda p: (
        _misspell_at(node, node.name, p) for node in p.of(ast.Ident) if p.is_closed or node.name[0].islower()
    ),
    "rename a type": lambda p: (_misspell_at(node, node.name, p) for node in p.of(ast.NamedType, ast.GenericType)),
    "rename a variant": lambda p: (
        _misspell_at(node, node.name, p)
        for node in p.of(ast.ConstructorPattern, ast.IdentPattern)
        if _is_variant(node.name, p)
    ),
    "rename a field": _rename_field,
    "unknown method": lambda p: (
        _misspell_at(node, node.method, p, node.object.end) for node in p.of(ast.MethodCall) if p.is_closed
    ),
    "change arity": _change_arity,
    "drop a field": _drop_field,
    "swap arguments": _swap_arguments,
    "argument of another type": _wrong_literal,
    "return of another type": _wrong_return,
    "drop a return": _drop_return,
    "drop `mut`": _drop_mut,
    "drop an arm": _drop_arm,
    "declare twice": _repeat_declaration,
    "`?` outside of Result": _unwrap_plain,
}
"""Kind of mistake -> all places of a program where it can be planted."""


def mutants(
    programs: dict[str, str], mode_of: Callable[[str], Mode], number: int, seed: int
) -> Iterator[tuple[str, str, ast.Module]]:
    """Yield wrong programs with the kind of their mistake, equally many of each kind, drawn without repetition."""
    parsed = [Program(source, mode_of(name)) for name, source in programs.items()]
    random = Random(seed)  # noqa: S311 - a reproducible draw
    places = {kind: [(program, edits) for program in parsed for edits in make(program)] for kind, make in KINDS.items()}
    left = number
    # The rarest kinds first: other kinds make up for what they lack.
    for done, kind in enumerate(sorted(KINDS, key=lambda kind: len(places[kind]))):
        random.shuffle(places[kind])
        made = filter(None, (_apply_edits(program, edits) for program, edits in places[kind]))
        chosen = list(islice(made, left // (len(KINDS) - done)))
        left -= len(chosen)
        yield from ((kind, *mistaken) for mistaken in chosen)


def _apply_edits(program: Program, edits: Edits) -> tuple[str, ast.Module] | None:
    source = program.source
    for edit in sorted(edits, key=lambda edit: -edit.start):
        source = source[: edit.start] + edit.text + source[edit.end :]
    module = analyze(source, program.mode).module
    return None if module is None or source == program.source else (source, module)
