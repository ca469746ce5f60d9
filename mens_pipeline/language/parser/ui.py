"""User interface declarations: components, reactive modules, styles, fragments, v0 stubs, routes (G18-G22, M5)."""

from mens_pipeline.errors import did_you_mean
from mens_pipeline.language import ast
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.parser.data import DataParser

_ROUTE_HANDLERS = ("loader", "pending", "error")


class UiParser(DataParser):
    """Parser of components, views, styles and routes."""

    def component(self) -> ast.ReactiveComponent:
        """`Component` (G18)."""
        start = self.begin()
        name = self.name("a component name")
        params = self.parameter_list()
        members: list[ast.ReactiveMember] = []
        view: ast.Expr | None = None
        for _ in self.in_braces("after the component parameters", "the component"):
            if self.take("view"):
                self.expect(":", "after `view`")
                view = self.expression()
            elif self.kinds[self.pos] in {"state", "derived", "effect", "on"}:
                members.append(self.reactive_member())
            else:
                first = self.starts[self.pos]
                statement = self.statement()
                members.append(ast.ReactiveMember(first, self.end(), "statement", None, None, None, statement))
        styles = self._style_blocks()
        return ast.ReactiveComponent(start, self.end(), name, params, tuple(members), view, styles)

    def reactive_member(self) -> ast.ReactiveMember:
        """Parse the `state`, `derived`, `effect` and `on` forms of `Member` (G18)."""
        start = self.starts[self.pos]
        role = self.texts[self.pos]
        self.pos += 1
        if role in {"state", "derived"}:
            name = self.name(f"a name after `{role}`")
            annotation = self.type_expression() if self.take(":") else None
            self.expect("=", f"after the name of `{role}`")
            value = self.expression()
            return ast.ReactiveMember(start, self.end(), role, name, annotation, None, value)
        dependencies: tuple[str, ...] | None = None
        if role == "on":
            if self.kinds[self.pos] not in {"mount", "cleanup"}:
                self.fail(Code.INVALID_REACTIVE_HOOK, "expected `mount` or `cleanup` after `on`")
            role = self.take_any()
        elif self.take_word("depends_on"):
            self.expect("(", "after `depends_on`")
            dependencies = self.names_on_line("a dependency")
        body = self._reactive_body(role)
        return ast.ReactiveMember(start, self.end(), role, None, None, dependencies, body)

    def _reactive_body(self, role: str) -> ast.Expr:
        """`ReactiveBody`: a brace directly after the colon is always a block (G18)."""
        self.expect(":", f"after `{role}`")
        if not self.at("{"):
            return self.expression()
        start = self.starts[self.pos]
        statements = self.block()
        return ast.Block(start, self.end(), statements)

    def reactive_module(self) -> ast.ReactiveModule:
        """`ReactiveModule` (M5)."""
        start = self.starts[self.pos]
        members: list[ast.ReactiveMember] = []
        while self.skip_newlines() in {"state", "derived", "effect", "on"}:
            members.append(self.reactive_member())
        return ast.ReactiveModule(start, self.end(), tuple(members))

    def _style_blocks(self) -> tuple[ast.StyleRule, ...]:
        """`StyleBlocks`: every loop stops quietly at the first token that does not fit (G19)."""
        rules: list[ast.StyleRule] = []
        self.skip_newlines()
        while self.at_word("style", "raw_css"):
            is_raw_css = self.take_any() == "raw_css"
            if not self.take("{"):
                break
            self._style_rules(rules, is_raw_css)
            self.take("}")
        return tuple(rules)

    def _style_rules(self, rules: list[ast.StyleRule], is_raw_css: bool) -> None:  # noqa: FBT001 - private
        while self.skip_newlines() == ".":
            start = self.begin()
            selector = "." + self.name("a class name after `.`")
            if not self.take("{"):
                break
            properties: list[tuple[str, str]] = []
            while self.skip_newlines() == "IDENT":
                name = self.take_any()
                if not self.take(":") or not self.at("STRING"):
                    break
                properties.append((name, self.double_quoted("a style value")))
            self.take("}")
            rules.append(ast.StyleRule(start, self.end(), selector, tuple(properties), is_raw_css))

    def fragment(self) -> ast.Fragment:
        """`'fragment' Name '(' [ Params ] ')' '{' Expr ~ '}'` (G20)."""
        start = self.begin()
        name = self.name("a fragment name")
        params = self.parameter_list()
        opener = self.pos
        self.expect("{", "after the fragment parameters")
        body = self.expression()
        self.skip_newlines()
        self.expect_closer("}", opener, "the fragment (one expression)")
        return ast.Fragment(start, self.end(), name, params, body)

    def v0_component(self) -> ast.V0Component:
        """`V0` (G21); the end of the input closes it (E5)."""
        start = self.begin()
        image_path = None
        identity = ""
        if self.take_word("from"):
            image_path = self.double_quoted("an image path")
        else:
            identity = self.double_quoted('a v0 id (or `from "path"`)')
        name = self.name("a component name")
        self.expect("{", "after the v0 component name")
        props: list[ast.Field] = []
        while self.skip_newlines() != "}":
            if self.pos >= self.last:
                return ast.V0Component(start, self.end(), identity, image_path, name, tuple(props))
            props.append(self._v0_property())
        self.pos += 1
        return ast.V0Component(start, self.end(), identity, image_path, name, tuple(props))

    def _v0_property(self) -> ast.Field:
        start = self.starts[self.pos]
        name = self.name("a property name")
        optional = self.take("?")
        self.expect(":", "after the property name")
        annotation = self.type_expression()
        return ast.Field(start, self.end(), name, annotation, optional)

    def routes(self) -> ast.Routes:
        """`Routes`: the first token that starts no entry ends the list (G22)."""
        start = self.begin()
        self.expect("{", "after `routes`")
        entries: list[ast.Route] = []
        fallbacks: dict[str, str] = {}
        while True:
            if self.skip_newlines() == "STRING":
                entries.append(self._route())
            elif self.at_word("not_found", "error"):
                word = self.take_any()
                self.expect(":", f"after `{word}`")
                fallbacks[word] = self.name("a component name")
            else:
                break
        if self.at(","):
            self.fail(Code.INVALID_ROUTE_ENTRY, "expected a route or `}`", "Routes are not separated by commas.")
        self.take("}")
        return ast.Routes(start, self.end(), tuple(entries), fallbacks.get("not_found"), fallbacks.get("error"))

    def _route(self) -> ast.Route:
        start = self.starts[self.pos]
        path = self.double_quoted("a route path", Code.INVALID_ROUTE_ENTRY)
        self.expect("to", "after the route path", Code.INVALID_ROUTE_ENTRY)
        component = self.name("a component name")
        handlers = self._route_handlers() if self.take("with") else ()
        children: list[ast.Route] = []
        if self.at("{"):
            depth = self.open_level()
            children += [self._route() for _ in self.in_braces("before nested routes", "the nested routes")]
            self.depth = depth
        return ast.Route(start, self.end(), path, component, handlers, tuple(children))

    def _route_handlers(self) -> tuple[tuple[str, str], ...]:
        """`RouteWith` (G22)."""
        if not self.take("("):
            return (self._route_handler(),)
        return self.separated_list(self._route_handler, ")", "after the route handlers")

    def _route_handler(self) -> tuple[str, str]:
        if not self.at_word(*_ROUTE_HANDLERS):
            advice = did_you_mean(self.texts[self.pos], _ROUTE_HANDLERS)
            self.fail(Code.INVALID_ROUTE_ENTRY, "expected `loader`, `pending` or `error`", advice)
        key = self.take_any()
        self.expect(":", f"after `{key}`")
        return key, self.name("a function or component name")
