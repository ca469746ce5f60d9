"""Functions, their decorators, and the declarations that wrap a function (G4, G5, G7-G13)."""

from typing import Final

from mens_pipeline.language.ast.functions import (
    Endpoint,
    Forall,
    Function,
    Loading,
    McpResource,
    McpTool,
    Scheduled,
    Test,
)
from mens_pipeline.language.ast.statements import Statement
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.parser.decorators import DecoratorParser
from mens_pipeline.language.suggestions import did_you_mean
from mens_pipeline.language.vocabulary import EFFECTS, FUNCTION_DECORATORS, LLM_DECORATORS

_EFFECT_LIST: Final = ", ".join(sorted(EFFECTS))
_ENDPOINT_KINDS: Final = ("query", "mutation", "server")


class FunctionParser(DecoratorParser):
    """Everything that ends in `fn`."""

    def function(self, start: int, *, is_pub: bool = False, is_async: bool = False) -> Function:
        """`FnDecl` (G8).

        The declaration begins at `start`, with its modifier.
        """
        decorators = self.function_decorators()
        self._expect_fn()
        name = self.name("a function name")
        generics = self._generics()
        params = self.parameter_list()
        effects = self._uses_clause()
        returned = self.return_type()
        is_llm = any(decorator.name in LLM_DECORATORS for decorator in decorators)
        body = () if is_llm and not self.at("{") else self._function_body()
        return Function(
            start, self.end(), name, generics, params, returned, body, effects, decorators, is_async, is_pub
        )

    def _expect_fn(self) -> None:
        advice = None
        if self.kinds[self.pos] in {"type", "component", "workflow", "activity", "actor", "@table"}:
            advice = "Decorators like these stand in front of functions only."
        elif self.kinds[self.pos] in {"pub", "async"} or self.texts[self.pos].startswith("@"):
            advice = "`pub`, `async` and wrappers such as `@test` come first, then function decorators, then `fn`."
        if not self.at("fn"):
            self.fail(Code.EXPECTED_TOKEN, "expected `fn`", advice)
        self.pos += 1

    def _function_body(self) -> tuple[Statement, ...]:
        advice = None
        if self.at_word("uses"):
            advice = "The `uses` clause comes before the return type."
        elif self.at("NL"):
            advice = "The `{` of the body stands on the line of the signature."
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
        if not self.at_word("uses"):
            return ()
        self.pos += 1
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

    def asynchronous(self) -> Function:
        """`AsyncFn` (G5)."""
        start = self.begin()
        kind = self.kinds[self.pos]
        if kind != "fn" and (kind not in FUNCTION_DECORATORS or kind == "@reactive"):
            self.fail(Code.INVALID_MODIFIER_TARGET, "expected `fn` after `async`")
        return self.function(start, is_async=True)

    def extern_function(self) -> Function:
        """`ExternFn` (G7)."""
        start = self.begin()
        self.expect("fn", "after `extern`")
        name = self.name("a function name")
        params = self.parameter_list()
        returned = self.return_type()
        self.expect("=", "and a module path after an extern signature")
        module = self.any_string("a module path")
        end = self.end()
        return Function(start, end, name, (), params, returned, (), (), (), is_pub=True, extern_module=module)

    def loading(self) -> Loading:
        """Parse `'@loading' FnDecl` (G12)."""
        start = self.begin()
        function = self._wrapped()
        return Loading(start, self.end(), function)

    def test(self) -> Test:
        """`'@test' [ '(' [ STRING ] [ ')' ] ] FnDecl` (G12)."""
        start = self.begin()
        label = ""
        if self.take("("):
            label = self.double_quoted("a label") if self.at("STRING") else ""
            self.take(")")
        function = self._wrapped()
        return Test(start, self.end(), label, function)

    def forall(self) -> Forall:
        """`'@forall' [ '(' ForallArg [ ')' ] ] FnDecl` (G12)."""
        start = self.begin()
        label = ""
        if self.take("("):
            if self.at("STRING"):
                label = self.double_quoted("a label")
            else:
                while self.pos < self.last and not self.take(")"):
                    self.pos += 1
            self.take(")")
        function = self._wrapped()
        return Forall(start, self.end(), label, function)

    def scheduled(self) -> Scheduled:
        """`'@scheduled' ~ '(' STRING ')' FnDecl` (G12, S10)."""
        start = self.begin()
        self.skip_newlines()
        self.expect("(", "and an interval after `@scheduled`")
        interval = self.double_quoted("an interval")
        self.expect(")", "after the interval")
        function = self._wrapped()
        return Scheduled(start, self.end(), interval, function)

    def endpoint(self) -> Endpoint:
        """`'@endpoint' '(' «kind» ':' kind ')' FnDecl` (G12, S5)."""
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
        function = self._wrapped()
        return Endpoint(start, self.end(), kind, function)

    def mcp_tool(self) -> McpTool:
        """`( '@tool' | '@mcp.tool' ) [ STRING ] FnDecl` (G12)."""
        start = self.begin()
        if self.at("("):
            self.fail(Code.EXPECTED_TOKEN, "expected a description or `fn`", 'Write `@mcp.tool "..."`.')
        description = self.double_quoted("a description") if self.at("STRING") else ""
        function = self._wrapped()
        return McpTool(start, self.end(), description, function)

    def mcp_resource(self) -> McpResource:
        """`( '@resource' | '@mcp.resource' ) ( '(' STRING ',' STRING ')' | STRING STRING ) FnDecl` (G12)."""
        start = self.begin()
        parenthesised = self.take("(")
        uri = self.double_quoted("a resource URI")
        if parenthesised:
            self.expect(",", "after the resource URI")
        description = self.double_quoted("a description")
        if parenthesised:
            self.expect(")", "after the description")
        function = self._wrapped()
        return McpResource(start, self.end(), uri, description, function)

    def _wrapped(self) -> Function:
        self.skip_newlines()
        return self.function(self.starts[self.pos])
