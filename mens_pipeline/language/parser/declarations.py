"""Declarations of data (G14-G17, G23, G24) and of user interfaces (G18-G22, M5)."""

from functools import partial

from mens_pipeline.errors import did_you_mean
from mens_pipeline.language import ast
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.parser.functions import FunctionParser

_ROUTE_HANDLERS = ("loader", "pending", "error")


class DataParser(FunctionParser):
    """Declarations of data and its states."""

    def const(self) -> ast.Const:
        """`'let' [ 'mut' ] Name [ ':' Type ] '=' Expr` (G14)."""
        start = self.begin()
        self.take("mut")
        name = self.name("a name (a module-level `let` takes no pattern)")
        annotation = self.type_expression() if self.take(":") else None
        self.expect("=", "after the name of a constant")
        value = self.expression()
        return ast.Const(start, self.end(), name, annotation, value)

    def type_definition(self, start: int, *, is_pub: bool = False) -> ast.TypeDef:
        """`TypeDecl` (G15); it begins at `start`, with its modifier."""
        self.pos += 1
        name = self.name("a type name")
        if self.at("{"):
            fields = self._fields()
            return ast.TypeDef(start, self.end(), name, is_pub, (), fields)
        if self.at("[") or self.at("<"):
            self.fail(Code.EXPECTED_TOKEN, "expected `{` or `=` after the type name", "Vox has no generic types.")
        if not self.take("="):
            self.fail(Code.EXPECTED_TOKEN, "expected `{` or `=` after the type name")
        variants: list[ast.Variant] = []
        while self.skip_newlines() == "|":
            self.pos += 1
            variants.append(self._variant())
        return ast.TypeDef(start, self.end(), name, is_pub, tuple(variants), ())

    def _fields(self) -> tuple[ast.Field, ...]:
        """`'{' Fields` (G15); the end of the input closes them (E5)."""
        self.pos += 1
        fields: list[ast.Field] = []
        while self.skip_newlines() != "}":
            if self.pos >= self.last:
                return tuple(fields)
            fields.append(self._field("a field name"))
            self.take(",")
        self.pos += 1
        return tuple(fields)

    def _field(self, what: str) -> ast.Field:
        start = self.starts[self.pos]
        name = self.name(what)
        self.expect(":", f"after {what}")
        annotation = self.type_expression()
        return ast.Field(start, self.end(), name, annotation)

    def _variant(self) -> ast.Variant:
        start = self.starts[self.pos]
        name = self.name("a variant name")
        fields: tuple[ast.Field, ...] = ()
        if self.take("("):
            what = "a field name (variant fields are written `name: type`)"
            fields = self.separated_list(partial(self._field, what), ")", "after the fields of a variant")
        return ast.Variant(start, self.end(), name, fields)

    def table(self) -> ast.Table:
        """`'@table' 'type' Name '{' Fields` (G16)."""
        start = self.begin()
        self.expect("type", "on the line of `@table`")
        name = self.name("a table name")
        if not self.at("{"):
            self.fail(Code.EXPECTED_TOKEN, "expected `{` after the table name")
        fields = self._fields()
        return ast.Table(start, self.end(), name, fields)

    def index(self) -> ast.Index:
        """`'@index' Name '.' Name 'on' '(' columns ')'` (G17)."""
        start = self.begin()
        table = self.name("a table name")
        self.expect(".", "after the table name")
        name = self.name("an index name")
        self.expect("on", "after the index name")
        self.expect("(", "before the columns")
        columns = self.names_on_line("a column name")
        return ast.Index(start, self.end(), table, name, columns)

    def url(self, start: int, *, is_pub: bool = False) -> ast.Url:
        """`UrlDecl` (G23); it begins at `start`, with its modifier."""
        self.pos += 1
        name = self.name("a name after `url`")
        variants: list[ast.Variant] = []
        for _ in self.in_braces("after the url name", "the url"):
            variants.append(self._url_variant())
            self.take(",")
        return ast.Url(start, self.end(), name, is_pub, tuple(variants))

    def _url_variant(self) -> ast.Variant:
        start = self.starts[self.pos]
        name = self.name("a url variant")
        fields: tuple[ast.Field, ...] = ()
        if self.take("("):
            fields = self.separated_list(self._url_argument, ")", "after the url arguments", spans_lines=True)
        return ast.Variant(start, self.end(), name, fields)

    def _url_argument(self) -> ast.Field:
        start = self.starts[self.pos]
        optional = self.take("?")
        name = self.name("a url argument")
        self.expect(":", "after the url argument")
        annotation = self.type_expression()
        return ast.Field(start, self.end(), name, annotation, optional)

    def state_machine(self, start: int, *, is_pub: bool = False) -> ast.StateMachine:
        """`StateMachine` (G24); it begins at `start`, with its modifiers."""
        is_partial = self.take_word("partial")
        self.pos += 1
        name = self.name("a name after `state_machine`")
        states: list[ast.MachineState] = []
        transitions: list[ast.Transition] = []
        for _ in self.in_braces("after the state machine name", "the state machine"):
            entry = self._machine_entry()
            if isinstance(entry, ast.MachineState):
                states.append(entry)
            else:
                transitions.append(entry)
            self.take(",")
        return ast.StateMachine(start, self.end(), name, is_pub, is_partial, tuple(states), tuple(transitions))

    def _machine_entry(self) -> ast.MachineState | ast.Transition:
        start = self.starts[self.pos]
        is_terminal = self.take_word("terminal")
        if is_terminal and not self.at("state"):
            self.fail(Code.INVALID_STATE_MACHINE_ENTRY, "expected `state` after `terminal`")
        if self.take("state"):
            name = self.name("a state name")
            fields: tuple[ast.StateField, ...] = ()
            if self.take("("):
                fields = self.separated_list(self._state_field, ")", "after the state fields", spans_lines=True)
            return ast.MachineState(start, self.end(), name, fields, is_terminal)
        if self.at("on"):
            return self._transition()
        self.fail(Code.INVALID_STATE_MACHINE_ENTRY, "expected `state`, `terminal state` or `on`")

    def _state_field(self) -> ast.StateField:
        start = self.starts[self.pos]
        name = self.name("a state field")
        annotation = self.type_expression() if self.take(":") else None
        return ast.StateField(start, self.end(), name, annotation)

    def _transition(self) -> ast.Transition:
        start = self.begin()
        event = self.name("an event name")
        params: tuple[str, ...] = ()
        if self.take("("):
            parameter = partial(self.name, "an event parameter")
            params = self.separated_list(parameter, ")", "after the event parameters", spans_lines=True)
        self.expect_word("from", "after the event", Code.INVALID_STATE_MACHINE_ENTRY)
        source = None if self.take_word("any") else self._state_reference("a state name or `any`")
        self.expect("->", "before the target state", Code.INVALID_STATE_MACHINE_ENTRY)
        target = self._state_reference("a state name")
        return ast.Transition(start, self.end(), event, params, source, target)

    def _state_reference(self, what: str) -> str:
        name = self.name(what)
        if self.at("("):
            self.skip_balanced()
        return name


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
