"""Behaviour and block declarations: workflows, activities, actors, forms, tokens, mobile blocks (G25-G29)."""

from typing import Final, TypeVar

from mens_pipeline.errors import did_you_mean
from mens_pipeline.language import ast
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.parser.cursor import integer
from mens_pipeline.language.parser.declarations import UiParser
from mens_pipeline.language.vocabulary import ANY_STRING

_FORM_ENTRIES: Final = ("field", "on_submit", "success_redirect", "error_message")
_TOKEN_CATEGORIES: Final = ("color", "spacing", "radius", "shadow", "font")


MobileBlock = TypeVar("MobileBlock", ast.BackButton, ast.Push, ast.DeepLink)


class BehaviourParser(UiParser):
    """Parser of workflows, actors, state machines and agents, and of blocks of settings."""

    def workflow(self) -> ast.Workflow:
        """`Workflow`, with or without `@distributed_train` (G25)."""
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
        """`'(' DtLoop ')'`: strategy and peers (G25, S16)."""
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
        """`Activity` (G25)."""
        start = self.begin()
        name = self.name("an activity name")
        params = self.parameter_list()
        self._refuse_uses("activity")
        returned = self.return_type()
        body = self.block()
        return ast.Activity(start, self.end(), name, params, returned, body)

    def actor(self) -> ast.Actor:
        """`Actor` (G26, S20)."""
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
        """`Form` (G27, S11)."""
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
        """`Tokens` (G28, S12)."""
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
        """`BackButton`, `Push`, or with strings as values `DeepLink` (G29, S13)."""
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
