"""The expressions that carry braces or words: objects, blocks, match, if, for, spawn, versions (G37-G39, G42)."""

from abc import abstractmethod
from typing import Final, Never

from mens_pipeline.language.ast.expressions import (
    Block,
    Expr,
    For,
    If,
    Match,
    MatchArm,
    ObjectField,
    ObjectLit,
    SideEffect,
    Spawn,
    WorkflowVersion,
)
from mens_pipeline.language.ast.statements import ExprStatement, Statement
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.parser.cursor import Finding, ParseError, integer, unescape
from mens_pipeline.language.parser.operands import OperandParser
from mens_pipeline.language.vocabulary import ANY_STRING, MAX_VERSION, OBJECT_KEY_KINDS, TokenKind

_INT: Final[frozenset[TokenKind]] = frozenset(("INT",))


class BraceParser(OperandParser):
    """Expression forms that open with a keyword or a brace."""

    @abstractmethod
    def statement(self) -> Statement:
        """`Stmt` (G30)."""

    def brace_expression(self) -> Expr:
        """Parse an object literal or a block, told apart by two tokens of lookahead (G37)."""
        kinds = self.kinds
        start = self.starts[self.pos]
        key = self.pos + 1
        while kinds[key] == "NL":
            key += 1
        if kinds[key] == "}":
            self.pos = key + 1
            return ObjectLit(start, self.end(), ())
        if kinds[key] in OBJECT_KEY_KINDS:
            colon = key + 1
            while kinds[colon] == "NL":
                colon += 1
            if kinds[colon] == ":":
                return self._object()
        statements = self.block()
        return Block(start, self.end(), statements)

    def _object(self) -> ObjectLit:
        opener = self.pos
        self.pos += 1
        self.skip_newlines()
        fields = [self._object_field()]
        while self.take(","):
            if self.skip_newlines() == "}":
                break
            fields.append(self._object_field())
        self.skip_newlines()
        self.expect_closer("}", opener, "the object")
        return ObjectLit(self.starts[opener], self.end(), tuple(fields))

    def _object_field(self) -> ObjectField:
        pos = self.pos
        if self.kinds[pos] not in OBJECT_KEY_KINDS:
            advice = "A reserved word needs quotes as a key." if self.texts[pos].isalpha() else None
            self.fail(Code.INVALID_OBJECT_KEY, "expected an object key", advice)
        text = self.texts[pos]
        key = unescape(text) if self.kinds[pos] in ANY_STRING else text
        self.pos = pos + 1
        self.expect(":", "after the object key")
        value = self.expression()
        return ObjectField(self.starts[pos], self.end(), key, value)

    def match_expression(self) -> Match:
        """`Match` (G38); the end of the input closes it (E5)."""
        start = self.begin()
        subject = self.expression()
        self.expect("{", "after the subject of `match`")
        arms: list[MatchArm] = []
        while self.skip_newlines() != "}":
            if self.pos >= self.last:
                return Match(start, self.end(), subject, tuple(arms))
            arms.append(self._arm())
            if self.skip_newlines() == ",":
                self.pos += 1
        self.pos += 1
        return Match(start, self.end(), subject, tuple(arms))

    def _arm(self) -> MatchArm:
        start = self.starts[self.pos]
        pattern = self.pattern()
        if self.at("->"):
            self.fail(
                Code.OLD_ARM_ARROW, "expected `=>` after the pattern", "Match arms are written `pattern => body`."
            )
        if self.at("if") or self.at("|"):
            advice = "Vox has no guards and no alternatives: write one arm a pattern and test inside it."
            self.fail(Code.EXPECTED_TOKEN, "expected `=>` after the pattern", advice)
        self.expect("=>", "after the pattern")
        body: Expr
        if self.kinds[self.pos] in {"return", "break", "continue"}:
            body_start = self.starts[self.pos]
            statement = self.statement()
            body = Block(body_start, self.end(), (statement,))
        else:
            body = self.expression()
        return MatchArm(start, self.end(), pattern, body)

    def if_expression(self) -> If:
        """`If` (G39); a chain of `else if` is read in a loop, so its length is no nesting."""
        heads: list[tuple[int, Expr, tuple[Statement, ...]]] = []
        otherwise: tuple[Statement, ...] | None = None
        while True:
            start = self.begin()
            condition = self.expression()
            heads.append((start, condition, self.block()))
            end = self.end()
            if self.skip_newlines() != "else":
                break
            self.pos += 1
            if self.skip_newlines() != "if":
                otherwise = self.block()
                end = self.end()
                break
        start, condition, then = heads.pop()
        node = If(start, end, condition, then, otherwise)
        while heads:
            start, condition, then = heads.pop()
            node = If(start, end, condition, then, (ExprStatement(node.start, end, node),))
        return node

    def for_expression(self) -> For:
        """`For` (G39)."""
        start = self.begin()
        binding = self.name("a loop variable")
        index = self.name("an index variable") if self.take(",") else None
        self.expect("in", "after the loop variable")
        iterable = self.expression()
        key = None
        if self.at_word("key"):
            self.pos += 1
            self.expect("=", "after `key`")
            key = self.expression()
        body = self.expression()
        return For(start, self.end(), binding, index, iterable, key, body)

    def spawn_expression(self) -> Spawn:
        """`'spawn' '(' Expr ')'` (G33)."""
        start = self.begin()
        opener = self.pos
        if not self.at("("):
            self.fail(Code.EXPECTED_TOKEN, "expected `(` after `spawn`", "Write `spawn(expression)`.")
        self.pos += 1
        target = self.expression()
        self.expect_closer(")", opener, "`spawn`")
        return Spawn(start, self.end(), target)

    def side_effect_expression(self) -> SideEffect:
        """`'side_effect' '{' Block` (G33)."""
        start = self.begin()
        statements = self.block()
        return SideEffect(start, self.end(), statements)

    def workflow_version(self) -> WorkflowVersion:
        """`'workflow' '.' Name '(' Args ')'` with the checks of S4 (G42).

        Each check is made as soon as it is decided, not at the closing parenthesis: a text that is not rejected up to
        some token can then be completed.
        """
        head = self.pos
        self.pos += 1
        self.expect(".", "after `workflow` in an expression")
        if self.name("`version` after `workflow.`") != "version":
            self._fail_version(head)
        self.expect("(", "after `workflow.version`")
        opener = self.pos - 1
        name = unescape(self._version_literal(ANY_STRING, head))
        low, high = (self._version_number(head, opener) for _ in range(2))
        while self.take(",") and self.skip_newlines() != ")":
            self.argument()
            self.skip_newlines()
        self.expect_closer(")", opener, "the argument list")
        return WorkflowVersion(self.starts[head], self.end(), name, low, high)

    def _version_number(self, head: int, opener: int) -> int:
        if not self.take(","):
            if self.at("EOF"):
                self.expect_closer(")", opener, "the argument list")
            self._fail_version(head)
        return integer(self._version_literal(_INT, head))

    def _version_literal(self, kinds: frozenset[TokenKind], head: int) -> str:
        """Return one argument that is a literal and nothing else, but for parentheses and a name in front of it."""
        self.skip_newlines()
        if self.kinds[self.pos] == "IDENT" and self.kinds[self.pos + 1] == "=":
            self.pos += 2
        depth = self.open_level()
        openers: list[int] = []
        while self.skip_newlines() == "(":
            openers.append(self.pos)
            self.pos += 1
            self.open_level()
        text = self.texts[self.pos]
        if self.kinds[self.pos] not in kinds or (kinds is _INT and integer(text) > MAX_VERSION):
            if self.at("EOF"):
                self.fail(Code.INVALID_WORKFLOW_VERSION, "expected a literal in `workflow.version`")
            self._fail_version(head)
        self.pos += 1
        while openers:
            self.skip_newlines()
            self.expect_closer(")", openers.pop(), "the parentheses")
        self.depth = depth
        self.skip_newlines()
        return text

    def _fail_version(self, head: int) -> Never:
        message = f'expected `workflow.version("change", minimum, maximum)` with literals up to {MAX_VERSION}'
        raise ParseError(Finding(Code.INVALID_WORKFLOW_VERSION, message, head))
