"""The version of the code that decides what a stage makes: a hash over every definition that its entries reach.

The syntax trees are walked, nothing is imported: from the names that a function, class or constant uses to where they
are defined, inside functions as well, through packages and re-exports. A string that names a module of this package,
for a child process, is followed like an import; one that names data files beside its module (`page.html.jinja`,
`*_atoms.yaml`) counts their bytes. Comments, docstrings and formatting count for nothing. What is passed in at run time
without an annotation that names its class, and what other packages do, is not seen.
"""

import ast
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[1]
_PACKAGE: Final = __name__.partition(".")[0]
_DATA: Final = (".yaml", ".jinja", ".css", ".js", ".lark")
_STORE: Final = tuple(
    f"{_PACKAGE}.storage.{name}" for name in ("code_version", "documents", "remote", "stage", "store")
)
"""Modules that keep what stages make, and decide nothing of it."""

_VERSIONS: Final = "__pycache__/code_versions.json"
"""Versions that were computed: reading every module that stages rest on takes a process two seconds at its start."""

_HASH: Final = "package"

_NAMED: Final = re.compile(rf"\b{_PACKAGE}(?:\.\w+)+")

_VERSIONED: Final = ("code_version", "Stage")

_Symbol = tuple[str, str]
"""A module and a name in it; the name is `*` for all of the module, and empty for what runs when it is imported."""


def code_version(*entries: str, without: tuple[str, ...] = (), root: Path = _ROOT) -> str:
    """Return a SHA-256 over the code that entries reach, hexadecimal.

    Entries are modules of this package by their full names, `module:name` for one definition of it. What is `without`
    is not followed, because it does not decide what the entries make. `root` is the package, or a copy of it.
    """
    kept, asked = _load_versions(root), repr((entries, without))
    if asked not in kept:
        kept[asked] = _digest(repr(sorted(trace_code(entries, without, root).items())).encode())
        _save_versions(root, kept)
    return kept[asked]


@cache
def _load_versions(root: Path) -> dict[str, str]:
    """Return the versions that were computed for the package as it is, by what was asked; `package` is its hash."""
    hashed = hashlib.sha256(sys.version.encode())  # another Python reads other trees
    for path in sorted(path for path in root.rglob("*") if path.suffix in {".py", *_DATA}):
        hashed.update(f"{path.relative_to(root)}\0{_digest(path.read_bytes())}\n".encode())
    now = {_HASH: hashed.hexdigest()}
    try:
        found = json.loads((root / _VERSIONS).read_bytes())
    except (OSError, ValueError):
        return now
    return found if isinstance(found, dict) and found.get(_HASH) == now[_HASH] else now


def _save_versions(root: Path, kept: dict[str, str]) -> None:
    """Write versions beside the compiled modules; as for those, where that cannot be they are computed each time."""
    place = root / _VERSIONS
    draft = place.with_name(f"{place.name}.{os.getpid()}")
    with suppress(OSError):
        place.parent.mkdir(exist_ok=True)
        draft.write_text(json.dumps(kept))
        draft.replace(place)


@cache
def trace_code(entries: tuple[str, ...], without: tuple[str, ...] = (), root: Path = _ROOT) -> dict[str, str]:
    """Return what entries reach: definitions (`module:name`) and data files, each with a hash."""
    waiting: list[_Symbol] = []
    for entry in entries:
        name, _, what = entry.partition(":")
        module = _module(root, name)
        if module is None or (what and what not in module.bound):
            raise LookupError(f"{entry}: no such module or definition in {root}")
        waiting.append((name, what or "*"))
    found: dict[str, str] = {}
    skipped = tuple(f"{name}." for name in (*without, *_STORE))
    seen: set[_Symbol] = set()
    while waiting:
        symbol = waiting.pop()
        if symbol not in seen and not f"{symbol[0]}.".startswith(skipped):
            seen.add(symbol)
            hashes, uses = _look(root, *symbol)
            found.update(hashes)
            waiting += uses
    return found


@cache
def _look(root: Path, name: str, what: str) -> tuple[dict[str, str], set[_Symbol]]:
    """Hash what a symbol is, and list what it uses of the package."""
    module = _module(root, name)
    if module is None:
        return {}, set()
    if what == "*":
        return {}, {(name, bound) for bound in ("", *module.bound)}
    if not what:
        hashes, uses = _read(module.effects, module)
        return hashes, {*uses, (name.rpartition(".")[0], "")}
    target = module.bound.get(what, (f"{name}.{what}", "*"))
    hashes, uses = ({}, {target}) if isinstance(target, tuple) else _read([target], module)
    return hashes, {*uses, (name, "")}


@dataclass(frozen=True, eq=False, slots=True)
class _Definition:
    """A statement at the top of a module; `name` is what it binds first, or its place among those that bind nothing."""

    name: str
    node: ast.stmt


@dataclass(slots=True)
class _Module:
    """A parsed module: name -> its definition or, if it is imported, where that stands; and what runs on import."""

    name: str
    root: Path
    path: Path
    bound: dict[str, "_Definition | _Symbol"] = field(default_factory=dict)
    effects: list[_Definition] = field(default_factory=list)


@cache
def _module(root: Path, name: str) -> _Module | None:
    """Return a module of the package; None for anything else."""
    package, *parts = name.split(".")
    path = root.joinpath(*parts)
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if package != _PACKAGE or not path.is_file():
        return None
    module = _Module(name, root, path)
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        _bind(node, module)
    return module


def _bind(node: ast.stmt, module: _Module) -> None:
    if isinstance(node, ast.Import | ast.ImportFrom):
        module.bound.update(_list_imports(node))
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        module.bound[node.name] = _Definition(node.name, node)
    elif not (_is_documentation(node) or _is_for_types(node)):
        targets = (n.target for n in ast.walk(node) if isinstance(n, ast.comprehension))
        inside = {id(n) for target in targets for n in ast.walk(target)}  # bound in a comprehension alone
        names = (n for n in ast.walk(node) if isinstance(n, ast.Name) and id(n) not in inside)
        stored = [n.id for n in names if isinstance(n.ctx, ast.Store)]
        definition = _Definition(stored[0] if stored else f"#{len(module.effects)}", node)
        module.bound.update(dict.fromkeys(stored, definition))
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not stored:
            module.effects.append(definition)


def _list_imports(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, _Symbol]]:
    if isinstance(node, ast.ImportFrom):
        yield from ((alias.asname or alias.name, (node.module or "", alias.name)) for alias in node.names)
    else:
        yield from ((alias.asname or alias.name.partition(".")[0], (alias.name, "*")) for alias in node.names)


def _is_documentation(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@dataclass(slots=True)
class _Uses:
    """Names of a definition, each with the attribute that is read of it or nothing; its imports and strings."""

    names: set[tuple[str, str]] = field(default_factory=set)
    imports: set[_Symbol] = field(default_factory=set)
    strings: set[str] = field(default_factory=set)

    def mention(self, name: str, part: str, local: frozenset[str]) -> None:
        """Note a name, unless it is one of a function's own."""
        if name not in local:
            self.names.add((name, part))


def _read(definitions: Iterable[_Definition], module: _Module) -> tuple[dict[str, str], set[_Symbol]]:
    """Return hashes of definitions and of the data files that they name, and what they use."""
    hashes: dict[str, str] = {}
    uses = _Uses()
    for definition in definitions:
        text: list[str] = []
        _write(definition.node, text, uses)
        hashes[f"{module.name}:{definition.name}"] = _digest("\0".join(text).encode())
    for pattern in (string for string in uses.strings if string.endswith(_DATA) and string[1:] not in _DATA):
        for path in module.path.parent.glob(pattern.lstrip("/")):
            hashes[path.relative_to(module.root).as_posix()] = _digest(path.read_bytes())
    started = {(name, "*") for string in uses.strings for name in _NAMED.findall(string)}
    named = (_resolve(name, part, module) for name, part in uses.names)
    return hashes, uses.imports | started | {symbol for symbol in named if symbol is not None}


def _resolve(name: str, part: str, module: _Module) -> _Symbol | None:
    """Resolve a name to a part of an imported module or to this module; None for a local one."""
    target = module.bound.get(name)
    if isinstance(target, tuple) and part and _module(module.root, ".".join(target)) is not None:
        return (".".join(target), part)
    return None if target is None else (module.name, name)


_INSIDE: Final = ("body", "elt", "key", "value")
"""Fields of functions and comprehensions that see the names of their own."""


def _own_names(node: ast.AST) -> frozenset[str]:
    """Return the names that a function or a comprehension binds for what stands in it."""
    match node:
        case ast.FunctionDef(args=arguments) | ast.AsyncFunctionDef(args=arguments) | ast.Lambda(args=arguments):
            return frozenset(found.arg for found in ast.walk(arguments) if isinstance(found, ast.arg))
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            targets = (found for generator in node.generators for found in ast.walk(generator.target))
            return frozenset(found.id for found in targets if isinstance(found, ast.Name))
        case _:
            return frozenset()


def _write(node: ast.AST, text: list[str], uses: _Uses, local: frozenset[str] = frozenset()) -> None:
    """Write a tree without places and documentation, and note what it mentions but for names of a function's own."""
    text.append(type(node).__name__)
    inner = local | _own_names(node)
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr=part):
            uses.mention(name, part, local)
            text += (name, part)
            return
        case ast.Name(id=name, ctx=ast.Load()):
            uses.mention(name, "", local)
        case ast.Import() | ast.ImportFrom():
            uses.imports.update(target for _, target in _list_imports(node))
        case ast.Constant(value=str(string)):
            uses.strings.add(string)
        case ast.Call(func=ast.Name(id=name)) if name in _VERSIONED:
            # What another stage makes is a parent, whose key has the version of the code that is named here.
            text.append(ast.dump(node))
            return
    for name in node._fields:
        value = getattr(node, name)
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST):
                text.append(repr(child))
            elif not _is_documentation(child):
                _write(child, text, uses, inner if name in _INSIDE else local)
    text.append(")")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
