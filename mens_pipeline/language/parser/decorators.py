"""Function decorators (G9-G11)."""

from typing import Final

from mens_pipeline.language.ast.functions import ArgumentValue, Decorator, DecoratorArgument
from mens_pipeline.language.decorator_keys import KEYED_DECORATORS, KeyTable, Separator
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.parser.cursor import integer, unescape
from mens_pipeline.language.parser.expressions import ExpressionParser
from mens_pipeline.language.vocabulary import BALANCED_DECORATORS, BARE_DECORATORS, FUNCTION_DECORATORS

_CONTRACTS: Final = frozenset(("@require", "@invariant"))


class DecoratorParser(ExpressionParser):
    """The decorators that may stand in front of any function."""

    def function_decorators(self) -> tuple[Decorator, ...]:
        """`{ ~ FnDecorator } ~` (G8)."""
        decorators: list[Decorator] = []
        while self.skip_newlines() in FUNCTION_DECORATORS:
            decorators.append(self._decorator())
        return tuple(decorators)

    def _decorator(self) -> Decorator:
        kind = self.kinds[self.pos]
        if kind in KEYED_DECORATORS:
            return self._keyed(KEYED_DECORATORS[kind])
        if kind in _CONTRACTS or kind == "@ensure":
            return self._contract()
        start = self.begin()
        arguments: tuple[DecoratorArgument, ...] = ()
        if self.at("(") and kind in BALANCED_DECORATORS:
            self.balanced()
        elif self.at("(") and kind == "@uses":
            arguments = self._uses_arguments()
        elif self.at("(") and kind in BARE_DECORATORS:
            self.fail(Code.EXPECTED_TOKEN, f"expected `fn`: `{kind}` takes no arguments", "Remove the parentheses.")
        return Decorator(start, self.end(), kind, arguments)

    def _contract(self) -> Decorator:
        """`@require(e)`, `@invariant(e)`, `@ensure(e, fallback: name)` (G9)."""
        start = self.starts[self.pos]
        kind = self.kinds[self.pos]
        self.pos += 1
        opener = self.pos
        self.expect("(", f"after `{kind}`")
        condition = self.expression()
        fallback = None
        if kind == "@ensure" and self.take(",") and not self.at(")"):
            self.expect_word("fallback", "after the comma of `@ensure`")
            self.expect(":", "after `fallback`")
            fallback = self.name("the name of a fallback function")
        self.expect_closer(")", opener, f"`{kind}`")
        return Decorator(start, self.end(), kind, condition=condition, fallback=fallback)

    def _uses_arguments(self) -> tuple[DecoratorArgument, ...]:
        """`UsesLoop` with its parentheses (G11)."""
        opener = self.pos
        self.pos += 1
        arguments: list[DecoratorArgument] = []
        while self.skip_newlines() != ")" and self.pos < self.last:
            start = self.starts[self.pos]
            arguments.append(DecoratorArgument(start, self.ends[self.pos], None, self.take_any()))
            if not self.take(","):
                break
        self.expect_closer(")", opener, "`@uses`")
        return tuple(arguments)

    def _keyed(self, table: KeyTable) -> Decorator:
        """Parse a decorator with `KeyLoop` (G10)."""
        start = self.starts[self.pos]
        kind = self.kinds[self.pos]
        self.pos += 1
        opener = self.pos
        arguments: list[DecoratorArgument] = []
        if self.take("("):
            while self.skip_newlines() != ")" and self.pos < self.last:
                arguments.append(self._entry(table))
                if not self.take(","):
                    break
            self._close_keys(kind, table, opener)
        return Decorator(start, self.end(), kind, tuple(arguments))

    def _close_keys(self, kind: str, table: KeyTable, opener: int) -> None:
        if self.at("SSTRING"):
            self.fail(Code.EXPECTED_STRING, "expected a double-quoted string", "Write it in double quotes.")
        if not self.at(")") and not table.takes_unknown:
            known = ", ".join(table.values)
            self.fail(Code.UNKNOWN_DECORATOR_KEY, f"`{kind}` knows only the key {known}; expected `)`")
        self.expect_closer(")", opener, f"`{kind}`")

    def _entry(self, table: KeyTable) -> DecoratorArgument:
        start = self.starts[self.pos]
        if not self.at("IDENT"):
            end = self.ends[self.pos]
            return DecoratorArgument(start, end, None, self.take_any())
        key = self.texts[self.pos]
        self.pos += 1
        self._separator(table.separator, key)
        value = self._value(table, key)
        return DecoratorArgument(start, self.end(), key, value)

    def _separator(self, separator: Separator, key: str) -> None:
        if separator is Separator.OPTIONAL_EQUALS:
            self.take("=")
        elif separator is Separator.OPTIONAL_COLON:
            self.take(":")
        elif separator is Separator.REQUIRED_COLON or key == "class":
            self.expect(":", f"after the key `{key}`")

    def _value(self, table: KeyTable, key: str) -> ArgumentValue:
        pos = self.pos
        kind = self.kinds[pos]
        accepted = table.values.get(key)
        if accepted is None:
            return self.take_any() if table.takes_unknown else None
        if kind not in accepted:
            return None
        if kind == "[":
            return self._loose_list()
        self.pos = pos + 1
        return _value_of(kind, self.texts[pos])

    def _loose_list(self) -> tuple[str, ...]:
        """`[` tokens of any kind between commas `]` (G10)."""
        opener = self.pos
        self.pos += 1
        items: list[str] = []
        while self.skip_newlines() != "]" and self.pos < self.last:
            items.append(self.take_any())
            if not self.take(","):
                break
        self.expect_closer("]", opener, "the list")
        return tuple(items)


def _value_of(kind: str, text: str) -> ArgumentValue:
    if kind == "STRING":
        return unescape(text)
    if kind == "INT":
        return integer(text)
    if kind == "FLOAT":
        return float(text)
    return kind == "true" if kind in {"true", "false"} else text
