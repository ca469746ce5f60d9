"""Imports (G6, S8)."""

from typing import Final

from mens_pipeline.language.ast.data import Import, ImportPath
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.parser.behaviour import BehaviourParser
from mens_pipeline.language.parser.cursor import unescape
from mens_pipeline.language.suggestions import did_you_mean
from mens_pipeline.language.vocabulary import ANY_STRING, ID_KINDS, SEGMENT_KINDS, TokenKind

_METADATA_KEYS: Final = ("version", "path", "git", "rev", "branch")


class ImportParser(BehaviourParser):
    """Import declarations; a list of items stands on one line."""

    def import_declaration(self) -> Import:
        """`'import' ImportItem { ',' ImportItem }` (G6)."""
        start = self.begin()
        paths = [*self._item()]
        while self.take(","):
            paths += self._item()
        return Import(start, self.end(), tuple(paths))

    def _item(self) -> list[ImportPath]:
        if self._is_react():
            return [self._react()]
        if self.at_word("rust"):
            return [self._rust()]
        return self._path()

    def _is_react(self) -> bool:
        pos = self.pos
        return (
            self.at_word("react")
            and self.kinds[pos + 1] in ID_KINDS
            and self.kinds[pos + 2] == "IDENT"
            and self.texts[pos + 2] == "from"
            and self.kinds[pos + 3] in ANY_STRING
        )

    def _react(self) -> ImportPath:
        start = self.starts[self.pos]
        local = self.texts[self.pos + 1]
        specifier = unescape(self.texts[self.pos + 3])
        self.pos += 4
        return ImportPath(start, self.end(), "react", (specifier,), local, ())

    def _rust(self) -> ImportPath:
        start = self.begin()
        if self.take(":"):
            crate = self.identifier("a crate name", Code.INVALID_IMPORT)
            metadata = self._metadata() if self.take("(") else ()
            alias = self._alias_name()
            return ImportPath(start, self.end(), "rust", (crate,), alias, metadata)
        segments = ["rust"]
        self._more_segments(segments, (".",))
        alias = self._alias_name()
        return ImportPath(start, self.end(), "symbol", tuple(segments), alias, ())

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        entries: list[tuple[str, str]] = []
        while not self.at(")"):
            if not self.at_word(*_METADATA_KEYS):
                advice = did_you_mean(self.texts[self.pos], _METADATA_KEYS)
                self.fail(Code.INVALID_IMPORT, f"expected one of {', '.join(_METADATA_KEYS)}", advice)
            key = self.take_any()
            self.expect(":", f"after `{key}`")
            if self.at("STRING"):
                entries.append((key, self.double_quoted("a value")))
            else:
                entries.append((key, self.identifier("a name or a double-quoted string", Code.INVALID_IMPORT)))
            if not self.take(","):
                break
        self.expect(")", "after the crate metadata")
        return tuple(entries)

    def _more_segments(self, segments: list[str], separators: tuple[TokenKind, ...]) -> None:
        """Add the further segments of a path; a separator without a segment behind it ends the path quietly (E4)."""
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
            return self._selected(start, tuple(segments))
        alias = self._alias_name()
        return [ImportPath(start, max(end, self.end()), "symbol", tuple(segments), alias, ())]

    def _selected(self, start: int, segments: tuple[str, ...]) -> list[ImportPath]:
        """`AsItem` list: one path an item (A2)."""
        chosen: list[tuple[str, str | None]] = []
        while not self.at("}"):
            item = self.identifier("a name to import", Code.INVALID_IMPORT)
            chosen.append((item, self._alias_name()))
            if not self.take(","):
                break
        self.expect("}", "after the imported names")
        end = self.end()
        return [ImportPath(start, end, "symbol", (*segments, item), alias, ()) for item, alias in chosen]

    def _alias_name(self) -> str | None:
        if not self.at_word("as"):
            return None
        self.pos += 1
        return self.name("an alias")
