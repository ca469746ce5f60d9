"""Whole texts: imports, and the top level in each mode (G2-G6, M1-M5, S8)."""

from collections.abc import Callable
from enum import StrEnum
from typing import Final, Never

from mens_pipeline.errors import did_you_mean
from mens_pipeline.language.ast.declarations import (
    BackButton,
    Declaration,
    DeepLink,
    Function,
    Import,
    ImportPath,
    Push,
    StateMachine,
    TypeDef,
    Url,
)
from mens_pipeline.language.ast.nodes import Statement
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.lexer import TokenStream
from mens_pipeline.language.parser.cursor import Finding, ParseError, unescape
from mens_pipeline.language.parser.declarations import DeclarationParser
from mens_pipeline.language.vocabulary import (
    ANY_STRING,
    FOREIGN_WORDS,
    FUNCTION_DECORATORS,
    ID_KINDS,
    KEYWORDS,
    SEGMENT_KINDS,
    TOMBSTONES,
    TokenKind,
)

MAX_FAILURES: Final = 20
"""Errors reported for one text."""


class Mode(StrEnum):
    """Grammar mode: `.vox` files, scripts with statements at the top level, `.vox.ui` files (M1-M6)."""

    SOURCE = "source"
    SCRIPT = "script"
    UI = "ui"


def mode_of(file_name: str) -> Mode:
    """Return the grammar mode for a file name, which is never the script mode (M6)."""
    return Mode.UI if file_name.endswith(".vox.ui") else Mode.SOURCE


_METADATA_KEYS: Final = ("version", "path", "git", "rev", "branch")
_REACTIVE: Final = frozenset(("state", "derived", "effect", "on"))
_TOMBSTONE_ADVICE: Final[dict[str, str]] = {
    "http": "Serve over HTTP with `@endpoint(kind: query) fn ...`.",
    "@component": "Write `component Name() { ... }`.",
    "agent": "Write an `@ai fn`, a `workflow` or an `actor`.",
    "env": "Declare the effect on the function that needs it: `fn f() uses env { ... }`.",
}


class ModuleParser(DeclarationParser):
    """Parser of a whole text."""

    def __init__(self, stream: TokenStream, mode: Mode) -> None:
        super().__init__(stream)
        self.mode = mode

    def items(self) -> tuple[tuple[Declaration, ...], tuple[Finding, ...]]:
        """Parse the whole text, and return its declarations and the failures.

        To report more than one error, parsing continues after a failure at the next line that can only begin a
        declaration; the first failure decides the verdict (E2).
        """
        declarations: list[Declaration] = []
        statements: list[Statement] = []
        failures: list[Finding] = []
        while self.skip_newlines() != "EOF" and len(failures) < MAX_FAILURES:
            first = self.pos
            try:
                item = self.item()
                if isinstance(item, Statement):
                    statements.append(item)
                else:
                    declarations.append(item)
            except ParseError as error:
                failures.append(error.finding)
                self.pos = max(self.pos, first + 1)
                while self.pos < self.last and not self._is_at_line_of_declaration():
                    self.pos += 1
        if statements:
            start, end = statements[0].start, statements[-1].end
            declarations.append(Function(start, end, "main", (), (), None, tuple(statements), (), ()))
        return tuple(declarations), tuple(failures)

    def item(self) -> Declaration | Statement:
        """Parse a declaration, or a statement of a script (M2)."""
        self.depth = 0
        is_statement = self.mode is Mode.SCRIPT and not (
            self.kinds[self.pos] in _SCRIPT_STARTERS or self.at_word("routes", "url", "state_machine")
        )
        return self.statement() if is_statement else self._declaration()

    def _declaration(self) -> Declaration:
        kind = self.kinds[self.pos]
        start = self.starts[self.pos]
        form = _FORMS.get(kind)
        if form is not None:
            return form(self)
        if kind in FUNCTION_DECORATORS or kind == "fn":
            return self.function(start)
        if kind == "IDENT":
            word = self.texts[self.pos]
            if word == "routes":
                return self.routes()
            if word == "url":
                return self.url(start)
            if word == "state_machine":
                return self.state_machine(start)
            if word == "partial":
                return self._partial(start)
        if self.mode is Mode.UI and kind in _REACTIVE:
            return self.reactive_module()
        self._fail_declaration()

    def _fail_declaration(self) -> Never:
        kind, text = self.kinds[self.pos], self.texts[self.pos]
        if kind in TOMBSTONES:
            message = f"`{text}` declarations are retired"
            raise ParseError(Finding(Code.RETIRED_DECLARATION, message, self.pos, _TOMBSTONE_ADVICE[kind]))
        advice = FOREIGN_WORDS.get(text)
        if self.kinds[max(0, self.pos - 3) : self.pos : 2] == ["type", "="]:
            advice = "Vox has no type aliases, and each variant of a sum type begins with `|`, the first one too."
        elif advice is None and kind == "IDENT":
            advice = did_you_mean(text, _DECLARATION_WORDS)
        elif kind == "SSTRING":
            advice = "Where Vox wants double quotes, as in a route path, single quotes will not do."
        elif kind == "}":
            advice = "A block above is closed once too often."
        elif kind in _REACTIVE:
            advice = "Reactive members belong in a component or in a `.vox.ui` file."
        elif kind in {"if", "for", "while", "match", "return", "loop"}:
            advice = "Statements belong in a function, or in a script (mode `script`)."
        self.fail(Code.EXPECTED_DECLARATION, "expected a declaration", advice)

    def _partial(self, start: int) -> StateMachine:
        if self.kinds[self.pos + 1] != "IDENT" or self.texts[self.pos + 1] != "state_machine":
            self.pos += 1
            self.fail(Code.INVALID_MODIFIER_TARGET, "expected `state_machine` after `partial`")
        return self.state_machine(start)

    def public(self) -> Function | TypeDef | Url | StateMachine:
        """Parse `PubDecl` (G4)."""
        start = self.begin()
        kind = self.kinds[self.pos]
        if kind == "fn" or (kind in FUNCTION_DECORATORS and kind != "@reactive"):
            return self.function(start, is_pub=True)
        if kind == "type":
            return self.type_definition(start, is_pub=True)
        if self.at_word("url"):
            return self.url(start, is_pub=True)
        if self.at_word("state_machine") or (self.at_word("partial") and self.texts[self.pos + 1] == "state_machine"):
            return self.state_machine(start, is_pub=True)
        self.fail(Code.INVALID_MODIFIER_TARGET, "expected `fn`, `type`, `url` or `state_machine` after `pub`")

    def _is_at_line_of_declaration(self) -> bool:
        """Return whether the next token begins an unindented line that can only be a declaration.

        An unknown decorator leaves a stray word (L10), so any line that starts with `@` counts.
        """
        if self.pos > 0 and self.kinds[self.pos - 1] != "NL":
            return False
        start = self.starts[self.pos]
        margin = self.source.rfind("\n", 0, start) + 1
        return (margin == start and self.kinds[self.pos] in LINE_STARTERS) or self.source[margin] == "@"

    def import_declaration(self) -> Import:
        """Parse `'import' ImportItem { ',' ImportItem }` (G6)."""
        start = self.begin()
        paths = [*self._item()]
        while self.take(","):
            paths += self._item()
        return Import(start, self.end(), tuple(paths))

    def _item(self) -> list[ImportPath]:
        pos = self.pos
        is_react = (
            self.at_word("react")
            and self.kinds[pos + 1] in ID_KINDS
            and self.kinds[pos + 2] == "IDENT"
            and self.texts[pos + 2] == "from"
            and self.kinds[pos + 3] in ANY_STRING
        )
        if is_react:
            self.pos = pos + 4
            specifier = unescape(self.texts[pos + 3])
            return [ImportPath(self.starts[pos], self.end(), "react", (specifier,), self.texts[pos + 1], ())]
        if self.at_word("rust"):
            return [self._rust()]
        return self._path()

    def _rust(self) -> ImportPath:
        start = self.begin()
        if self.take(":"):
            crate = self.identifier("a crate name", Code.INVALID_IMPORT)
            metadata: tuple[tuple[str, str], ...] = ()
            if self.take("("):
                metadata = self.separated_list(self._metadata, ")", "after the crate metadata")
            alias = self._alias_name()
            return ImportPath(start, self.end(), "rust", (crate,), alias, metadata)
        segments = ["rust"]
        self._more_segments(segments, (".",))
        alias = self._alias_name()
        return ImportPath(start, self.end(), "symbol", tuple(segments), alias, ())

    def _metadata(self) -> tuple[str, str]:
        if not self.at_word(*_METADATA_KEYS):
            advice = did_you_mean(self.texts[self.pos], _METADATA_KEYS)
            self.fail(Code.INVALID_IMPORT, f"expected one of {', '.join(_METADATA_KEYS)}", advice)
        key = self.take_any()
        self.expect(":", f"after `{key}`")
        if self.at("STRING"):
            return key, self.double_quoted("a value")
        return key, self.identifier("a name or a double-quoted string", Code.INVALID_IMPORT)

    def _more_segments(self, segments: list[str], separators: tuple[TokenKind, ...]) -> None:
        """Add segments to a path; a separator without a segment after it ends the path silently (E4)."""
        while self.kinds[self.pos] in separators:
            self.pos += 1
            if self.kinds[self.pos] not in SEGMENT_KINDS:
                return
            segments.append(self.take_any())

    def _path(self) -> list[ImportPath]:
        start = self.starts[self.pos]
        if self.kinds[self.pos] not in SEGMENT_KINDS:
            advice = "Write the whole import on one line." if self.at("NL") else None
            self.fail(Code.INVALID_IMPORT, "expected a path to import", advice)
        segments = [self.take_any()]
        self._more_segments(segments, (".", "/"))
        end = self.end()
        if self.at_word("as") and self.kinds[self.pos + 1] == "{":
            self.pos += 2
            return self._selected_paths(start, tuple(segments))
        alias = self._alias_name()
        return [ImportPath(start, max(end, self.end()), "symbol", tuple(segments), alias, ())]

    def _selected_paths(self, start: int, segments: tuple[str, ...]) -> list[ImportPath]:
        def item_and_alias() -> tuple[str, str | None]:
            return self.identifier("a name to import", Code.INVALID_IMPORT), self._alias_name()

        chosen = self.separated_list(item_and_alias, "}", "after the imported names")
        end = self.end()
        return [ImportPath(start, end, "symbol", (*segments, item), alias, ()) for item, alias in chosen]

    def _alias_name(self) -> str | None:
        return self.name("an alias") if self.take_word("as") else None


_FORMS: Final[dict[TokenKind, Callable[[ModuleParser], Declaration]]] = {
    "import": ModuleParser.import_declaration,
    "extern": ModuleParser.extern_function,
    "pub": ModuleParser.public,
    "async": ModuleParser.asynchronous,
    "@loading": ModuleParser.loading,
    "@test": ModuleParser.test,
    "@forall": ModuleParser.forall,
    "@scheduled": ModuleParser.scheduled_function,
    "@endpoint": ModuleParser.endpoint,
    "@tool": ModuleParser.mcp_tool,
    "@mcp.tool": ModuleParser.mcp_tool,
    "@resource": ModuleParser.mcp_resource,
    "@mcp.resource": ModuleParser.mcp_resource,
    "let": ModuleParser.const,
    "type": lambda parser: parser.type_definition(parser.starts[parser.pos]),
    "@table": ModuleParser.table,
    "@index": ModuleParser.index,
    "component": ModuleParser.component,
    "fragment": ModuleParser.fragment,
    "@v0": ModuleParser.v0_component,
    "workflow": ModuleParser.workflow,
    "@distributed_train": ModuleParser.workflow,
    "activity": ModuleParser.activity,
    "actor": ModuleParser.actor,
    "@form": ModuleParser.form,
    "@tokens": ModuleParser.design_tokens,
    "@back_button": lambda parser: parser.mobile_block(BackButton),
    "@deep_link": lambda parser: parser.mobile_block(DeepLink, takes_string=True),
    "@push": lambda parser: parser.mobile_block(Push),
}
"""First token of a declaration -> its production (G3)."""

_SCRIPT_STARTERS: Final[frozenset[TokenKind]] = TOMBSTONES | frozenset((
    "import", "component", "fn", "pub", "type", "async", "actor", "workflow", "activity", "@loading", "@test", "@v0",
    "@endpoint", "@forall", "@scheduled", "@tool", "@mcp.tool", "@resource", "@mcp.resource", "@table", "@index",
))  # fmt: skip
"""Tokens that begin a declaration in script mode (M3)."""

LINE_STARTERS: Final = (_FORMS.keys() | FUNCTION_DECORATORS | {"fn", "agent", "@component"}) - {"let", "workflow"}
"""Tokens that can only begin a declaration at the start of an unindented line."""

_DECLARATION_WORDS: Final = (_FORMS.keys() & KEYWORDS) | {"fn", "routes", "url", "state_machine", "partial"}
