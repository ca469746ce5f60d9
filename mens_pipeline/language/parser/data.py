"""Data declarations: constants, types, tables, indexes, urls, state machines (G14-G17, G23, G24)."""

from functools import partial

from mens_pipeline.language import ast
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.parser.functions import FunctionParser


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
