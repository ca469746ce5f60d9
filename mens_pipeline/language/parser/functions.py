"""Functions, their decorators, and declarations that wrap a function (G4, G5, G7-G13)."""

from typing import Final

from mens_pipeline.errors import did_you_mean
from mens_pipeline.language import ast
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.parser.cursor import integer, unescape
from mens_pipeline.language.parser.expressions import StatementParser
from mens_pipeline.language.vocabulary import (
    BALANCED_DECORATORS,
    BARE_DECORATORS,
    EFFECTS,
    FUNCTION_DECORATORS,
    KEYED_DECORATORS,
    LLM_DECORATORS,
    KeyTable,
    Separator,
)

_EFFECT_LIST: Final = ", ".join(sorted(EFFECTS))
_ENDPOINT_KINDS: Final = ("query", "mutation", "server")


class FunctionParser(StatementParser):
    """Parser of functions and their wrappers."""

    def function(self, start: int, *, is_pub: bool = False, is_async: bool = False) -> ast.Function:
        """Parse `FnDecl` (G8), whose modifier begins at `start`."""
        decorators = self.function_decorators()
        self._expect_fn()
        name = self.name("a function name")
        generics = self._generics()
        params = self.parameter_list()
        effects = self._uses_clause()
        returned = self.return_type()
        is_llm = any(decorator.name in LLM_DECORATORS for decorator in decorators)
        body = () if is_llm and not self.at("{") else self._function_body()
        return ast.Function(
            start, self.end(), name, generics, params, returned, body, effects, decorators, is_async, is_pub
        )

    def _expect_fn(self) -> None:
        advice = None
        if self.kinds[self.pos] in {"type", "component", "workflow", "activity", "actor", "@table"}:
            advice = "Decorators like these may precede functions only."
        elif self.kinds[self.pos] in {"pub", "async"} or self.texts[self.pos].startswith("@"):
            advice = "`pub`, `async` and wrappers such as `@test` come first, then function decorators, then `fn`."
        if not self.at("fn"):
            self.fail(Code.EXPECTED_TOKEN, "expected `fn`", advice)
        self.pos += 1

    def _function_body(self) -> tuple[ast.Statement, ...]:
        advice = None
        if self.at_word("uses"):
            advice = "The `uses` clause comes before the return type."
        elif self.at("NL"):
            advice = "Write the `{` of the body on the line of the signature."
        if not self.at("{"):
            self.fail(Code.EXPECTED_TOKEN, "expected `{` after the signature", advice)
        return self.block()

    def _generics(self) -> tuple[str, ...]:
        if self.at("["):
            self.fail(Code.EXPECTED_TOKEN, "expected `(` or `<`", "Generics are written `fn f<T>(...)`.")
        if not self.take("<"):
            return ()
        names = [self.name("a type parameter")]
        while self.take(","):
            names.append(self.name("a type parameter"))
        self.expect(">", "after the type parameters")
        return tuple(names)

    def _uses_clause(self) -> tuple[str, ...]:
        if not self.take_word("uses"):
            return ()
        effects = [self._effect()]
        while self.take(","):
            effects.append(self._effect())
        return tuple(effects)

    def _effect(self) -> str:
        text = self.texts[self.pos]
        if self.kinds[self.pos] not in {"IDENT", "env"} or text not in EFFECTS:
            advice = did_you_mean(text, EFFECTS) or f"Effects are {_EFFECT_LIST}."
            self.fail(Code.UNKNOWN_EFFECT, "expected an effect", advice)
        self.pos += 1
        if text == "mcp" and self.take("("):
            tool = self.identifier("the name of one MCP tool", Code.UNKNOWN_EFFECT)
            self.expect(")", "after the MCP tool")
            return f"mcp({tool})"
        return text

    def asynchronous(self) -> ast.Function:
        """Parse `AsyncFn` (G5)."""
        start = self.begin()
        kind = self.kinds[self.pos]
        if kind != "fn" and (kind not in FUNCTION_DECORATORS or kind == "@reactive"):
            self.fail(Code.INVALID_MODIFIER_TARGET, "expected `fn` after `async`")
        return self.function(start, is_async=True)

    def extern_function(self) -> ast.Function:
        """Parse `ExternFn` (G7)."""
        start = self.begin()
        self.expect("fn", "after `extern`")
        name = self.name("a function name")
        params = self.parameter_list()
        returned = self.return_type()
        self.expect("=", "and a module path after an extern signature")
        module = self.any_string("a module path")
        end = self.end()
        return ast.Function(start, end, name, (), params, returned, (), (), (), is_pub=True, extern_module=module)

    def loading(self) -> ast.Loading:
        """Parse `'@loading' FnDecl` (G12)."""
        start = self.begin()
        function = self._wrapped_function()
        return ast.Loading(start, self.end(), function)

    def test(self) -> ast.Test:
        """Parse `'@test' [ '(' [ STRING ] [ ')' ] ] FnDecl` (G12)."""
        start = self.begin()
        label = ""
        if self.take("("):
            label = self.double_quoted("a label") if self.at("STRING") else ""
            self.take(")")
        function = self._wrapped_function()
        return ast.Test(start, self.end(), label, function)

    def forall(self) -> ast.Forall:
        """Parse `'@forall' [ '(' ForallArg [ ')' ] ] FnDecl` (G12)."""
        start = self.begin()
        label = ""
        if self.take("("):
            if self.at("STRING"):
                label = self.double_quoted("a label")
            else:
                while self.pos < self.last and not self.take(")"):
                    self.pos += 1
            self.take(")")
        function = self._wrapped_function()
        return ast.Forall(start, self.end(), label, function)

    def scheduled_function(self) -> ast.Scheduled:
        """Parse `'@scheduled' ~ '(' STRING ')' FnDecl` (G12, S10)."""
        start = self.begin()
        self.skip_newlines()
        self.expect("(", "and an interval after `@scheduled`")
        interval = self.double_quoted("an interval")
        self.expect(")", "after the interval")
        function = self._wrapped_function()
        return ast.Scheduled(start, self.end(), interval, function)

    def endpoint(self) -> ast.Endpoint:
        """Parse `'@endpoint' '(' «kind» ':' kind ')' FnDecl` (G12, S5)."""
        start = self.begin()
        self.expect("(", "after `@endpoint`")
        if not self.at_word("kind"):
            self.fail(Code.INVALID_ENDPOINT_KIND, "expected `kind: query`, `kind: mutation` or `kind: server`")
        self.pos += 1
        self.expect(":", "after `kind`")
        if not self.at_word(*_ENDPOINT_KINDS):
            advice = did_you_mean(self.texts[self.pos], _ENDPOINT_KINDS)
            self.fail(Code.INVALID_ENDPOINT_KIND, "expected `query`, `mutation` or `server`", advice)
        kind = self.take_any()
        self.expect(")", "after the endpoint kind")
        function = self._wrapped_function()
        return ast.Endpoint(start, self.end(), kind, function)

    def mcp_tool(self) -> ast.McpTool:
        """Parse `( '@tool' | '@mcp.tool' ) [ STRING ] FnDecl` (G12)."""
        start = self.begin()
        if self.at("("):
            self.fail(Code.EXPECTED_TOKEN, "expected a description or `fn`", 'Write `@mcp.tool "..."`.')
        description = self.double_quoted("a description") if self.at("STRING") else ""
        function = self._wrapped_function()
        return ast.McpTool(start, self.end(), description, function)

    def mcp_resource(self) -> ast.McpResource:
        """Parse `( '@resource' | '@mcp.resource' ) ( '(' STRING ',' STRING ')' | STRING STRING ) FnDecl` (G12)."""
        start = self.begin()
        parenthesised = self.take("(")
        uri = self.double_quoted("a resource URI")
        if parenthesised:
            self.expect(",", "after the resource URI")
        description = self.double_quoted("a description")
        if parenthesised:
            self.expect(")", "after the description")
        function = self._wrapped_function()
        return ast.McpResource(start, self.end(), uri, description, function)

    def _wrapped_function(self) -> ast.Function:
        self.skip_newlines()
        return self.function(self.starts[self.pos])

    def function_decorators(self) -> tuple[ast.Decorator, ...]:
        """Parse `{ ~ FnDecorator } ~` (G8)."""
        decorators: list[ast.Decorator] = []
        while self.skip_newlines() in FUNCTION_DECORATORS:
            decorators.append(self._decorator())
        return tuple(decorators)

    def _decorator(self) -> ast.Decorator:
        kind = self.kinds[self.pos]
        if kind in KEYED_DECORATORS:
            return self._keyed_arguments(KEYED_DECORATORS[kind])
        if kind in {"@require", "@invariant", "@ensure"}:
            return self._contract()
        start = self.begin()
        arguments: tuple[ast.DecoratorArgument, ...] = ()
        if self.at("(") and kind in BALANCED_DECORATORS:
            self.skip_balanced()
        elif self.at("(") and kind == "@uses":
            arguments = self._uses_arguments()
        elif self.at("(") and kind in BARE_DECORATORS:
            self.fail(Code.EXPECTED_TOKEN, f"expected `fn`: `{kind}` takes no arguments", "Remove the parentheses.")
        return ast.Decorator(start, self.end(), kind, arguments)

    def _contract(self) -> ast.Decorator:
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
        return ast.Decorator(start, self.end(), kind, condition=condition, fallback=fallback)

    def _uses_arguments(self) -> tuple[ast.DecoratorArgument, ...]:
        opener = self.pos
        self.pos += 1
        arguments: list[ast.DecoratorArgument] = []
        while self.skip_newlines() != ")" and self.pos < self.last:
            start = self.starts[self.pos]
            arguments.append(ast.DecoratorArgument(start, self.ends[self.pos], None, self.take_any()))
            if not self.take(","):
                break
        self.expect_closer(")", opener, "`@uses`")
        return tuple(arguments)

    def _keyed_arguments(self, table: KeyTable) -> ast.Decorator:
        start = self.starts[self.pos]
        kind = self.kinds[self.pos]
        self.pos += 1
        opener = self.pos
        arguments: list[ast.DecoratorArgument] = []
        if self.take("("):
            while self.skip_newlines() != ")" and self.pos < self.last:
                arguments.append(self._entry(table))
                if not self.take(","):
                    break
            if self.at("SSTRING"):
                self.fail(Code.EXPECTED_STRING, "expected a double-quoted string", "Write it in double quotes.")
            if not self.at(")") and not table.takes_unknown:
                known = ", ".join(table.values)
                self.fail(Code.UNKNOWN_DECORATOR_KEY, f"`{kind}` knows only the key {known}; expected `)`")
            self.expect_closer(")", opener, f"`{kind}`")
        return ast.Decorator(start, self.end(), kind, tuple(arguments))

    def _entry(self, table: KeyTable) -> ast.DecoratorArgument:
        start = self.starts[self.pos]
        if not self.at("IDENT"):
            end = self.ends[self.pos]
            return ast.DecoratorArgument(start, end, None, self.take_any())
        key = self.texts[self.pos]
        self.pos += 1
        if table.separator is Separator.OPTIONAL_EQUALS:
            self.take("=")
        elif table.separator is Separator.OPTIONAL_COLON:
            self.take(":")
        elif table.separator is Separator.REQUIRED_COLON or key == "class":
            self.expect(":", f"after the key `{key}`")
        value = self._value(table, key)
        return ast.DecoratorArgument(start, self.end(), key, value)

    def _value(self, table: KeyTable, key: str) -> ast.ArgumentValue:
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
        return _convert_value(kind, self.texts[pos])

    def _loose_list(self) -> tuple[str, ...]:
        """Parse `'[' token { ',' token } ']'`, with tokens of any kind (G10)."""
        opener = self.pos
        self.pos += 1
        items: list[str] = []
        while self.skip_newlines() != "]" and self.pos < self.last:
            items.append(self.take_any())
            if not self.take(","):
                break
        self.expect_closer("]", opener, "the list")
        return tuple(items)


def _convert_value(kind: str, text: str) -> ast.ArgumentValue:
    if kind == "STRING":
        return unescape(text)
    if kind == "INT":
        return integer(text)
    if kind == "FLOAT":
        return float(text)
    return kind == "true" if kind in {"true", "false"} else text
