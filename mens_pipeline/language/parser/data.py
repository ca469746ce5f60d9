"""Data declarations: constants, types, tables, indexes, urls, state machines (G14-G17, G23, G24)."""

from mens_pipeline.language.ast.data import (
    Const,
    Field,
    Index,
    MachineState,
    StateField,
    StateMachine,
    Table,
    Transition,
    TypeDef,
    Url,
    Variant,
)
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.parser.functions import FunctionParser


class DataParser(FunctionParser):
    """Declarations of data and its states."""

    def const(self) -> Const:
        """`'let' [ 'mut' ] Name [ ':' Type ] '=' Expr` (G14)."""
        start = self.begin()
        self.take("mut")
        name = self.name("a name (a module-level `let` takes no pattern)")
        annotation = self.type_expression() if self.take(":") else None
        self.expect("=", "after the name of a constant")
        value = self.expression()
        return Const(start, self.end(), name, annotation, value)

    def type_definition(self, start: int, *, is_pub: bool = False) -> TypeDef:
        """`TypeDecl` (G15).

        The declaration begins at `start`, with its modifier.
        """
        self.pos += 1
        name = self.name("a type name")
        if self.at("{"):
            fields = self._fields()
            return TypeDef(start, self.end(), name, is_pub, (), fields)
        if self.at("[") or self.at("<"):
            self.fail(Code.EXPECTED_TOKEN, "expected `{` or `=` after the type name", "Vox has no generic types.")
        if not self.at("="):
            self.fail(Code.EXPECTED_TOKEN, "expected `{` or `=` after the type name")
        self.pos += 1
        variants: list[Variant] = []
        while self.skip_newlines() == "|":
            self.pos += 1
            variants.append(self._variant())
        return TypeDef(start, self.end(), name, is_pub, tuple(variants), ())

    def _fields(self) -> tuple[Field, ...]:
        """`'{' Fields` (G15); the end of the input closes them (E5)."""
        self.pos += 1
        fields: list[Field] = []
        while self.skip_newlines() != "}":
            if self.pos >= self.last:
                return tuple(fields)
            fields.append(self._field("a field name"))
            self.take(",")
        self.pos += 1
        return tuple(fields)

    def _field(self, what: str) -> Field:
        start = self.starts[self.pos]
        name = self.name(what)
        self.expect(":", f"after {what}")
        annotation = self.type_expression()
        return Field(start, self.end(), name, annotation)

    def _variant(self) -> Variant:
        start = self.starts[self.pos]
        name = self.name("a variant name")
        fields: list[Field] = []
        if self.take("("):
            while not self.at(")"):
                fields.append(self._field("a field name (variant fields are written `name: type`)"))
                if not self.take(","):
                    break
            self.expect(")", "after the fields of a variant")
        return Variant(start, self.end(), name, tuple(fields))

    def table(self) -> Table:
        """`'@table' 'type' Name '{' Fields` (G16)."""
        start = self.begin()
        self.expect("type", "on the line of `@table`")
        name = self.name("a table name")
        if not self.at("{"):
            self.fail(Code.EXPECTED_TOKEN, "expected `{` after the table name")
        fields = self._fields()
        return Table(start, self.end(), name, fields)

    def index(self) -> Index:
        """`'@index' Name '.' Name 'on' '(' columns ')'` (G17)."""
        start = self.begin()
        table = self.name("a table name")
        self.expect(".", "after the table name")
        name = self.name("an index name")
        self.expect("on", "after the index name")
        self.expect("(", "before the columns")
        columns = self.names_on_line(")", "a column name")
        return Index(start, self.end(), table, name, columns)

    def url(self, start: int, *, is_pub: bool = False) -> Url:
        """`UrlDecl` (G23).

        The declaration begins at `start`, with its modifier.
        """
        self.pos += 1
        name = self.name("a name after `url`")
        variants: list[Variant] = []
        for _ in self.braced("after the url name", "the url"):
            variants.append(self._url_variant())
            self.take(",")
        return Url(start, self.end(), name, is_pub, tuple(variants))

    def _url_variant(self) -> Variant:
        start = self.starts[self.pos]
        name = self.name("a url variant")
        fields: list[Field] = []
        if self.take("("):
            while self.skip_newlines() != ")":
                fields.append(self._url_argument())
                if not self.take(","):
                    break
            self.expect(")", "after the url arguments")
        return Variant(start, self.end(), name, tuple(fields))

    def _url_argument(self) -> Field:
        start = self.starts[self.pos]
        optional = self.take("?")
        name = self.name("a url argument")
        self.expect(":", "after the url argument")
        annotation = self.type_expression()
        return Field(start, self.end(), name, annotation, optional)

    def state_machine(self, start: int, *, is_pub: bool = False) -> StateMachine:
        """`StateMachine` (G24).

        The declaration begins at `start`, with its modifiers.
        """
        is_partial = self.at_word("partial")
        if is_partial:
            self.pos += 1
        self.pos += 1
        name = self.name("a name after `state_machine`")
        states: list[MachineState] = []
        transitions: list[Transition] = []
        for _ in self.braced("after the state machine name", "the state machine"):
            entry = self._machine_entry()
            if isinstance(entry, MachineState):
                states.append(entry)
            else:
                transitions.append(entry)
            self.take(",")
        return StateMachine(start, self.end(), name, is_pub, is_partial, tuple(states), tuple(transitions))

    def _machine_entry(self) -> MachineState | Transition:
        start = self.starts[self.pos]
        is_terminal = self.at_word("terminal")
        if is_terminal:
            self.pos += 1
            if not self.at("state"):
                self.fail(Code.INVALID_STATE_MACHINE_ENTRY, "expected `state` after `terminal`")
        if self.take("state"):
            name = self.name("a state name")
            fields = self._state_fields() if self.take("(") else ()
            return MachineState(start, self.end(), name, fields, is_terminal)
        if self.at("on"):
            return self._transition()
        self.fail(Code.INVALID_STATE_MACHINE_ENTRY, "expected `state`, `terminal state` or `on`")

    def _state_fields(self) -> tuple[StateField, ...]:
        fields: list[StateField] = []
        while self.skip_newlines() != ")":
            start = self.starts[self.pos]
            name = self.name("a state field")
            annotation = self.type_expression() if self.take(":") else None
            fields.append(StateField(start, self.end(), name, annotation))
            if not self.take(","):
                break
        self.expect(")", "after the state fields")
        return tuple(fields)

    def _transition(self) -> Transition:
        start = self.begin()
        event = self.name("an event name")
        params: list[str] = []
        if self.take("("):
            while self.skip_newlines() != ")":
                params.append(self.name("an event parameter"))
                if not self.take(","):
                    break
            self.expect(")", "after the event parameters")
        if not self.at_word("from"):
            self.fail(Code.INVALID_STATE_MACHINE_ENTRY, "expected `from` after the event")
        self.pos += 1
        if self.at_word("any"):
            self.pos += 1
            source = None
        else:
            source = self._state_reference("a state name or `any`")
        if not self.at("->"):
            self.fail(Code.INVALID_STATE_MACHINE_ENTRY, "expected `->` before the target state")
        self.pos += 1
        target = self._state_reference("a state name")
        return Transition(start, self.end(), event, tuple(params), source, target)

    def _state_reference(self, what: str) -> str:
        name = self.name(what)
        if self.at("("):
            self.balanced()
        return name
