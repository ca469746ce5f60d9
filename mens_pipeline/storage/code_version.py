"""The version of the code of a stage: a hash of every definition that its entries reach.

Nothing is imported. The walk over syntax trees leads from the names that a definition uses to their definitions, also
inside functions, through packages and re-exports. A string that names a module of this package, for a child process, is
followed like an import; a string that names data files next to its module (`page.html.jinja`, `*_atoms.yaml`) adds
their bytes. Comments, docstrings and formatting do not count. Other packages are not followed, nor are values that are
passed at run time without an annotation of their class.
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
"""Modules that keep artifacts and do not decide their content."""

_VERSIONS: Final = "__pycache__/code_versions.json"
"""Cache of versions: reading all modules takes two seconds."""

_HASH: Final = "package"

_NAMED: Final = re.compile(rf"\b{_PACKAGE}(?:\.\w+)+")

_Symbol = tuple[str, str]
"""A module and a name in it: `*` for the whole module, empty for the statements that run on import."""


def code_version(*entries: str, without: tuple[str, ...] = (), root: Path = _ROOT) -> str:
    """Compute the SHA-256 of the code that entries reach, hexadecimal.

    Entries are full names of modules of this package, or `module:name` for one definition. Modules in `without` are not
    followed. `root` is the package or a copy of it.
    """
    kept, asked = _load_versions(root), repr((entries, without))
    if asked not in kept:
        kept[asked] = _digest(repr(sorted(trace_code(entries, without, root).items())).encode())
        _save_versions(root, kept)
    return kept[asked]


@cache
def _load_versions(root: Path) -> dict[str, str]:
    """Return cached versions by arguments, if the hash of the whole package (`package`) has not changed."""
    hashed = hashlib.sha256(sys.version.encode())  # another version of Python parses other trees
    for path in sorted(path for path in root.rglob("*") if path.suffix in {".py", *_DATA}):
        hashed.update(f"{path.relative_to(root)}\0{_digest(path.read_bytes())}\n".encode())
    now = {_HASH: hashed.hexdigest()}
    try:
        found = json.loads((root / _VERSIONS).read_bytes())
    except (OSError, ValueError):
        return now
    return found if isinstance(found, dict) and found.get(_HASH) == now[_HASH] else now


def _save_versions(root: Path, kept: dict[str, str]) -> None:
    place = root / _VERSIONS
    draft = place.with_name(f"{place.name}.{os.getpid()}")
    with suppress(OSError):
        place.parent.mkdir(exist_ok=True)
        draft.write_text(json.dumps(kept))
        draft.replace(place)


@cache
def trace_code(entries: tuple[str, ...], without: tuple[str, ...] = (), root: Path = _ROOT) -> dict[str, str]:
    """Return the definitions (`module:name`) and data files that entries reach, each with a hash."""
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
    """A top-level statement; `name` is the first name that it binds, or its number if it binds none."""

    name: str
    node: ast.stmt


@dataclass(slots=True)
class _Module:
    """A parsed module: name -> definition, or symbol if it is imported; and the statements that run on import."""

    name: str
    root: Path
    path: Path
    bound: dict[str, "_Definition | _Symbol"] = field(default_factory=dict)
    effects: list[_Definition] = field(default_factory=list)


@cache
def _module(root: Path, name: str) -> _Module | None:
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
        inside = {id(n) for target in targets for n in ast.walk(target)}  # bound only in a comprehension
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
    """Names that a definition uses, each with the attribute that is read from it; its imports and strings."""

    names: set[tuple[str, str]] = field(default_factory=set)
    imports: set[_Symbol] = field(default_factory=set)
    strings: set[str] = field(default_factory=set)

    def mention(self, name: str, part: str, local: frozenset[str]) -> None:
        if name not in local:
            self.names.add((name, part))


def _read(definitions: Iterable[_Definition], module: _Module) -> tuple[dict[str, str], set[_Symbol]]:
    """Hash definitions and the data files that they name, and list the symbols that they use."""
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
    """Resolve a name to a symbol of an imported module or of this one; None for a local name."""
    target = module.bound.get(name)
    if isinstance(target, tuple) and part and _module(module.root, ".".join(target)) is not None:
        return (".".join(target), part)
    return None if target is None else (module.name, name)


_INSIDE: Final = ("body", "elt", "key", "value")
"""Fields of functions and comprehensions in which their own names are bound."""


def _own_names(node: ast.AST) -> frozenset[str]:
    """Return the names that a function or a comprehension binds."""
    match node:
        case ast.FunctionDef(args=arguments) | ast.AsyncFunctionDef(args=arguments) | ast.Lambda(args=arguments):
            return frozenset(found.arg for found in ast.walk(arguments) if isinstance(found, ast.arg))
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            targets = (found for generator in node.generators for found in ast.walk(generator.target))
            return frozenset(found.id for found in targets if isinstance(found, ast.Name))
        case _:
            return frozenset()


def _write(node: ast.AST, text: list[str], uses: _Uses, local: frozenset[str] = frozenset()) -> None:
    """Write a tree without positions and docstrings, and note the names that it uses."""
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
        case ast.Call(func=ast.Name(id=name)) if name in {"code_version", "Stage"}:
            # The artifact of another stage is a parent; its key has the version of that code.
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
