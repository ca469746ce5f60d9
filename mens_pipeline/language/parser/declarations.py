"""Declarations of data (G14-G17, G23, G24), user interfaces (G18-G22, M5), behaviour and settings (G25-G29)."""

from functools import partial
from typing import Final, TypeVar

from mens_pipeline.errors import did_you_mean
from mens_pipeline.language import ast
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.parser.cursor import integer
from mens_pipeline.language.parser.functions import FunctionParser
from mens_pipeline.language.vocabulary import ANY_STRING

_ROUTE_HANDLERS = ("loader", "pending", "error")
_FORM_ENTRIES: Final = ("field", "on_submit", "success_redirect", "error_message")
_TOKEN_CATEGORIES: Final = ("color", "spacing", "radius", "shadow", "font")


MobileBlock = TypeVar("MobileBlock", ast.BackButton, ast.Push, ast.DeepLink)


class DeclarationParser(FunctionParser):
    """Parser of declarations that are not functions."""

    def const(self) -> ast.Const:
        """Parse `'let' [ 'mut' ] Name [ ':' Type ] '=' Expr` (G14)."""
        start = self.begin()
        self.take("mut")
        name = self.name("a name (a module-level `let` takes no pattern)")
        annotation = self.type_expression() if self.take(":") else None
        self.expect("=", "after the name of a constant")
        value = self.expression()
        return ast.Const(start, self.end(), name, annotation, value)

    def type_definition(self, start: int, *, is_pub: bool = False) -> ast.TypeDef:
        """Parse `TypeDecl` (G15), whose modifier begins at `start`."""
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
        """Parse `'{' Fields` (G15); the end of the input closes them (E5)."""
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
        """Parse `'@table' 'type' Name '{' Fields` (G16)."""
        start = self.begin()
        self.expect("type", "on the line of `@table`")
        name = self.name("a table name")
        if not self.at("{"):
            self.fail(Code.EXPECTED_TOKEN, "expected `{` after the table name")
        fields = self._fields()
        return ast.Table(start, self.end(), name, fields)

    def index(self) -> ast.Index:
        """Parse `'@index' Name '.' Name 'on' '(' columns ')'` (G17)."""
        start = self.begin()
        table = self.name("a table name")
        self.expect(".", "after the table name")
        name = self.name("an index name")
        self.expect("on", "after the index name")
        self.expect("(", "before the columns")
        columns = self.names_on_line("a column name")
        return ast.Index(start, self.end(), table, name, columns)

    def url(self, start: int, *, is_pub: bool = False) -> ast.Url:
        """Parse `UrlDecl` (G23), whose modifier begins at `start`."""
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
        """Parse `StateMachine` (G24), whose modifiers begin at `start`."""
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

    def component(self) -> ast.ReactiveComponent:
        """Parse `Component` (G18)."""
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
        """Parse `ReactiveBody`; a brace after the colon is always a block (G18)."""
        self.expect(":", f"after `{role}`")
        if not self.at("{"):
            return self.expression()
        start = self.starts[self.pos]
        statements = self.block()
        return ast.Block(start, self.end(), statements)

    def reactive_module(self) -> ast.ReactiveModule:
        """Parse `ReactiveModule` (M5)."""
        start = self.starts[self.pos]
        members: list[ast.ReactiveMember] = []
        while self.skip_newlines() in {"state", "derived", "effect", "on"}:
            members.append(self.reactive_member())
        return ast.ReactiveModule(start, self.end(), tuple(members))

    def _style_blocks(self) -> tuple[ast.StyleRule, ...]:
        """Parse `StyleBlocks`; each loop ends silently at the first token that does not match (G19)."""
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
        """Parse `'fragment' Name '(' [ Params ] ')' '{' Expr ~ '}'` (G20)."""
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
        """Parse `V0` (G21); the end of the input closes it (E5)."""
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
        """Parse `Routes`; the first token that cannot start an entry ends the list (G22)."""
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

    def workflow(self) -> ast.Workflow:
        """Parse `Workflow`, with or without `@distributed_train` (G25)."""
        start = self.starts[self.pos]
        strategy: str | None = None
        peers: int | None = None
        if self.take("@distributed_train"):
            strategy, peers = self._training_keys()
            if self.skip_newlines() != "workflow":
                self.fail(Code.INVALID_TRAINING_STRATEGY, "expected `workflow` after `@distributed_train`")
        self.pos += 1
        name = self.name("a workflow name")
        params = self.parameter_list()
        self._refuse_uses("workflow")
        returned = self.return_type()
        body = self.block()
        return ast.Workflow(start, self.end(), name, params, returned, body, strategy, peers)

    def _training_keys(self) -> tuple[str | None, int | None]:
        opener = self.pos
        self.expect("(", "after `@distributed_train`")
        strategy: str | None = None
        peers: int | None = None
        while self.skip_newlines() != ")" and self.pos < self.last:
            is_key = self.at("IDENT")
            key = self.take_any()
            if is_key:
                self.expect("=", f"after the key `{key}`")
            if is_key and key == "strategy":
                if self.kinds[self.pos] not in ANY_STRING | {"IDENT"}:
                    self.fail(Code.INVALID_TRAINING_STRATEGY, "expected a strategy, a word or a string")
                strategy = self.any_string("a strategy") if not self.at("IDENT") else self.take_any()
            elif is_key and key == "peers":
                if self.at("INT"):
                    peers = integer(self.take_any()) or peers  # the reference takes no 0
            elif is_key:
                self.take_any()
            if not self.take(","):
                break
        self.expect_closer(")", opener, "`@distributed_train`")
        return strategy, peers

    def _refuse_uses(self, what: str) -> None:
        if self.at_word("uses"):
            advice = "Only functions declare effects."
            self.fail(Code.EXPECTED_TOKEN, f"expected `to` or `{{` after the {what} parameters", advice)

    def activity(self) -> ast.Activity:
        """Parse `Activity` (G25)."""
        start = self.begin()
        name = self.name("an activity name")
        params = self.parameter_list()
        self._refuse_uses("activity")
        returned = self.return_type()
        body = self.block()
        return ast.Activity(start, self.end(), name, params, returned, body)

    def actor(self) -> ast.Actor:
        """Parse `Actor` (G26, S20)."""
        start = self.begin()
        name = self.name("an actor name")
        handlers: list[ast.Handler] = []
        for _ in self.in_braces("after the actor name (an actor has no parameters)", "the actor"):
            if not self.at("on"):
                advice = "Actors hold `on` handlers only." if self.at("state") else None
                self.fail(Code.INVALID_ACTOR_MEMBER, "expected an `on` handler or `}`", advice)
            handlers.append(self._handler())
        return ast.Actor(start, self.end(), name, tuple(handlers))

    def _handler(self) -> ast.Handler:
        start = self.begin()
        event = self.name("an event name")
        params = self.parameter_list()
        returned = self.return_type()
        body = self.block()
        return ast.Handler(start, self.end(), event, params, returned, body)

    def form(self) -> ast.Form:
        """Parse `Form` (G27, S11)."""
        start = self.begin()
        name = self.name("a form name")
        fields: list[ast.FormField] = []
        clauses: dict[str, str] = {}
        for _ in self.in_braces("after the form name", "the form"):
            if not self.at_word(*_FORM_ENTRIES):
                comma = "Form entries are not separated by commas." if self.at(",") else None
                advice = comma or did_you_mean(self.texts[self.pos], _FORM_ENTRIES)
                self.fail(Code.INVALID_FORM_ENTRY, f"expected {', '.join(_FORM_ENTRIES)} or `}}`", advice)
            word = self.take_any()
            if word == "field":
                fields.append(self._form_field())
                continue
            self.expect(":", f"after `{word}`")
            if word == "on_submit":
                clauses[word] = self.name("a function name")
            else:
                clauses[word] = self.double_quoted(f"the text of `{word}`", Code.INVALID_FORM_ENTRY)
        redirect, message = clauses.get("success_redirect"), clauses.get("error_message")
        return ast.Form(start, self.end(), name, tuple(fields), clauses.get("on_submit"), redirect, message)

    def _form_field(self) -> ast.FormField:
        start = self.starts[self.pos - 1]
        name = self.name("a field name")
        self.expect(":", "after the field name")
        annotation = self.type_expression()
        required = hidden = False
        label: str | None = None
        default: ast.Expr | None = None
        constraints: list[tuple[str, str]] = []
        while self.at("IDENT"):
            word = self.texts[self.pos]
            if word in {"required", "optional"}:
                required = word == "required"
                self.pos += 1
            elif word == "hidden":
                hidden = True
                self.pos += 1
            elif word == "default":
                default = self._form_default()
            elif word == "label":
                label = self._form_text(word)
            elif word == "pattern":
                constraints.append((word, self._form_text(word)))
            elif word in {"max_len", "min_len", "range"}:
                constraints.append((word, self._form_bounds(word)))
            else:
                break
        return ast.FormField(start, self.end(), name, annotation, required, hidden, label, default, tuple(constraints))

    def _form_default(self) -> ast.Expr:
        self.pos += 1
        opener = self.pos
        self.expect("(", "after `default`")
        value = self.expression()
        self.expect_closer(")", opener, "`default`")
        return value

    def _form_text(self, word: str) -> str:
        self.pos += 1
        self.expect("(", f"after `{word}`")
        text = self.double_quoted(f"the text of `{word}`", Code.INVALID_FORM_ENTRY)
        self.expect(")", f"after the text of `{word}`")
        return text

    def _form_bounds(self, word: str) -> str:
        self.pos += 1
        self.expect("(", f"after `{word}`")
        bounds = self._form_integer(word)
        if word == "range":
            self.expect(".", "between the bounds (`1..10`)")
            self.expect(".", "between the bounds (`1..10`)")
            bounds = f"{bounds}..{self._form_integer(word)}"
        self.expect(")", f"after `{word}`")
        return bounds

    def _form_integer(self, word: str) -> str:
        if not self.at("INT"):
            self.fail(Code.INVALID_FORM_ENTRY, f"expected an integer without a sign in `{word}`")
        return self.take_any()

    def design_tokens(self) -> ast.Tokens:
        """Parse `Tokens` (G28, S12)."""
        start = self.begin()
        entries = tuple(self._design_token() for _ in self.in_braces("after `@tokens`", "the design tokens"))
        return ast.Tokens(start, self.end(), entries)

    def _design_token(self) -> ast.DesignToken:
        start = self.starts[self.pos]
        if not self.at_word(*_TOKEN_CATEGORIES):
            advice = did_you_mean(self.texts[self.pos], _TOKEN_CATEGORIES)
            self.fail(Code.INVALID_DESIGN_TOKEN, f"expected {', '.join(_TOKEN_CATEGORIES)} or `}}`", advice)
        category = self.take_any()
        name = self.name("a token name")
        labels = {"color": ("light", "dark"), "font": ("family",)}.get(category, ())
        if not labels:
            self.expect(":", "after the token name")
            value = self.any_string("a token value", Code.INVALID_DESIGN_TOKEN)
            return ast.DesignToken(start, self.end(), category, name, (value,))
        values: list[str] = []
        for label in labels:
            if not self.at_word(label):
                self.fail(Code.INVALID_DESIGN_TOKEN, f"expected `{label}:`")
            self.pos += 1
            self.expect(":", f"after `{label}`")
            values.append(self.any_string(f"the {label} value", Code.INVALID_DESIGN_TOKEN))
        return ast.DesignToken(start, self.end(), category, name, tuple(values))

    def mobile_block(self, form: type[MobileBlock], *, takes_string: bool = False) -> MobileBlock:
        """Parse `BackButton`, `Push`, or `DeepLink`, whose values may be strings (G29, S13)."""
        start = self.starts[self.pos]
        word = self.take_any()
        entries: list[tuple[str, str]] = []
        for _ in self.in_braces(f"after `{word}`", f"`{word}`"):
            if not self.at("IDENT"):
                self.fail(Code.INVALID_MOBILE_ENTRY, f"expected a key of `{word}` or `}}`")
            key = self.take_any()
            self.expect(":", f"after the key `{key}`")
            if not takes_string:
                value = self.name("a function name")
            elif self.at("STRING"):
                value = self.double_quoted("a value")
            else:
                value = self.identifier("a name or a double-quoted string", Code.INVALID_MOBILE_ENTRY)
            entries.append((key, value))
        return form(start, self.end(), tuple(entries))
