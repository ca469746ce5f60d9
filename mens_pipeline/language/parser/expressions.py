"""Statements and blocks (G30); expressions with braces or words, infix operators (G33, G34, G37-G39, G42)."""

from collections.abc import Callable
from typing import Final, Never

from mens_pipeline.errors import did_you_mean
from mens_pipeline.language import ast
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.parser.cursor import Finding, ParseError, integer, unescape
from mens_pipeline.language.parser.operands import OperandParser
from mens_pipeline.language.vocabulary import (
    ANY_STRING,
    ASSIGNMENTS,
    BINARY_POWERS,
    FOREIGN_WORDS,
    MAX_VERSION,
    OBJECT_KEY_KINDS,
    TokenKind,
)

_STATEMENT_HINTS: Final[dict[str, str]] = {
    "fn": "A function cannot be declared inside a body. Is a `}` missing above?",
    "import": "Imports belong at the top level. Is a `}` missing above?",
    "type": "Types are declared at the top level. Is a `}` missing above?",
}
_STATEMENT_WORDS: Final = ("let", "return", "while", "loop", "break", "continue", "match", "else", "not", "spawn")
_BLOCK_ENDS: Final = frozenset(("NL", "}", "EOF"))
_INT: Final[frozenset[TokenKind]] = frozenset(("INT",))
_POSTFIX: Final = frozenset(("(", ".", "["))
_OPERAND_HINTS: Final[dict[str, str]] = {
    "</": "Vox has no angle-bracket markup: write view calls such as `row() { }`.",
    "/>": "Vox has no angle-bracket markup: write view calls such as `row() { }`.",
    "<>": "Vox has no angle-bracket markup: write view calls such as `row() { }`.",
    "</>": "Vox has no angle-bracket markup: write view calls such as `row() { }`.",
    "|": "Write `or` for a logical or, `|>` for a pipe.",
    "let": "A `let` is a statement: it needs a block of its own.",
    "return": "A `return` is a statement: put it in a block.",
    "when": "`when` is reserved and has no meaning yet.",
}


class StatementParser(OperandParser):
    """Parser of expressions, statements and blocks."""

    def block(self) -> tuple[ast.Statement, ...]:
        """Parse `'{' Block` (G30)."""
        opener = self.pos
        self.expect("{", "to open a block")
        depth = self.open_level()
        statements: list[ast.Statement] = []
        while self.skip_newlines() != "}":
            if self.pos >= self.last:
                self.expect_closer("}", opener, "the block")
            statements.append(self.statement_of_block())
        self.pos += 1
        self.depth = depth
        return tuple(statements)

    def statement_of_block(self) -> ast.Statement:
        """Parse `Stmt` directly in a block (G30)."""
        return self.statement()

    def statement(self) -> ast.Statement:
        """Parse `Stmt` (G30)."""
        form = _STATEMENTS.get(self.kinds[self.pos])
        if form is not None:
            return form(self)
        start = self.starts[self.pos]
        hint = _STATEMENT_HINTS.get(self.kinds[self.pos])
        if hint is not None and self.kinds[self.pos + 1] in {"IDENT", "TYPEIDENT"}:
            self.fail(Code.EXPECTED_EXPRESSION, "expected a statement", hint)
        target = self.expression()
        operator = self.kinds[self.pos]
        if operator not in ASSIGNMENTS:
            if type(target) is ast.Ident and operator not in _BLOCK_ENDS:
                self._warn_of_stray_word(target.name)
            return ast.ExprStatement(start, self.end(), target)
        self.pos += 1
        value = self.expression()
        end = self.end()
        if operator != "=":
            value = ast.Binary(start, end, ASSIGNMENTS[operator], target, value)
        return ast.Assign(start, end, target, value)

    def _warn_of_stray_word(self, word: str) -> None:
        """Warn, once per line, about a bare name before another statement: valid (N9), but rarely intended."""
        last, self.last_stray = self.last_stray, self.pos
        if last is not None and "NL" not in self.kinds[last : self.pos]:
            return
        message = f"`{word}` is a statement of its own here, before {self.next_token_text()} on the same line"
        advice = FOREIGN_WORDS.get(word) or did_you_mean(word, _STATEMENT_WORDS)
        self.warnings.append(Finding(Code.STRAY_WORD, message, self.pos - 1, advice))

    def _let(self) -> ast.Let:
        start = self.begin()
        mutable = self.take("mut")
        pattern = self.pattern()
        annotation = self.type_expression() if self.take(":") else None
        self.expect("=", "after the pattern of `let`")
        value = self.expression()
        return ast.Let(start, self.end(), pattern, annotation, value, mutable)

    def _return(self) -> ast.Return:
        start = self.begin()
        value = None if self.kinds[self.pos] in _BLOCK_ENDS else self.expression()
        return ast.Return(start, self.end(), value)

    def _while(self) -> ast.While:
        start = self.begin()
        condition = self.expression()
        body = self.block()
        return ast.While(start, self.end(), condition, body)

    def _loop(self) -> ast.Loop:
        start = self.begin()
        body = self.block()
        return ast.Loop(start, self.end(), body)

    def _jump(self, kind: type[ast.Break | ast.Continue]) -> ast.Break | ast.Continue:
        start = self.begin()
        return kind(start, self.end())

    def expression(self) -> ast.Expr:
        """Parse `Expr = ~ Infix(0)` (G33)."""
        kinds = self.kinds
        pos = self.pos
        while kinds[pos] == "NL":
            pos += 1
        self.pos = pos
        depth = self.open_level()
        operand = self.primary()
        if kinds[self.pos] in BINARY_POWERS:
            operand = self._infix(operand, self.starts[pos], 0)
        self.depth = depth
        return operand

    def _infix(self, left: ast.Expr, start: int, minimum: int) -> ast.Expr:
        kinds = self.kinds
        while True:
            powers = BINARY_POWERS.get(kinds[self.pos])
            if powers is None or powers[0] < minimum:
                return left
            self.pos = pos = self.pos + 1
            _, right_power, name = powers
            if name == "Try":
                left = ast.Try(start, self.ends[pos - 1], left)
                continue
            right = self.primary()
            if kinds[self.pos] in BINARY_POWERS:
                right = self._infix(right, self.starts[pos], right_power)
            end = self.ends[self.pos - 1]
            left = ast.With(start, end, left, right) if name == "With" else ast.Binary(start, end, name, left, right)

    def primary(self) -> ast.Expr:
        """Parse one operand and its postfix operators (G33, G35)."""
        pos = self.pos
        kind = self.kinds[pos]
        node: ast.Expr
        if kind == "IDENT" or kind == "TYPEIDENT":  # noqa: PLR1714 - the commonest token: two comparisons beat a set
            self.pos = pos + 1
            if self.kinds[pos + 1] == "=>":
                node = self.bare_lambda(pos)
            else:
                node = ast.Ident(self.starts[pos], self.ends[pos], self.texts[pos])
        else:
            form = _OPERANDS.get(kind)
            if form is None:
                self._fail_operand()
            node = form(self)
        if self.kinds[self.pos] in _POSTFIX:
            return self.postfix(node, self.starts[pos])
        return node

    def _fail_operand(self) -> Never:
        if self.kinds[self.pos] == "NL" and self.pos and self.kinds[self.pos - 1] in BINARY_POWERS:
            operator = self.texts[self.pos - 1]
            advice = f"Keep the right operand of `{operator}` on the same line."
            self.fail(Code.EXPECTED_EXPRESSION, "expected an expression", advice)
        self.fail(Code.EXPECTED_EXPRESSION, "expected an expression", _OPERAND_HINTS.get(self.kinds[self.pos]))

    def brace_expression(self) -> ast.Expr:
        """Parse an object literal or a block, which differ in their first two tokens (G37)."""
        kinds = self.kinds
        start = self.starts[self.pos]
        key = self.pos + 1
        while kinds[key] == "NL":
            key += 1
        if kinds[key] == "}":
            self.pos = key + 1
            return ast.ObjectLit(start, self.end(), ())
        if kinds[key] in OBJECT_KEY_KINDS:
            colon = key + 1
            while kinds[colon] == "NL":
                colon += 1
            if kinds[colon] == ":":
                return self._object()
        statements = self.block()
        return ast.Block(start, self.end(), statements)

    def _object(self) -> ast.ObjectLit:
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
        return ast.ObjectLit(self.starts[opener], self.end(), tuple(fields))

    def _object_field(self) -> ast.ObjectField:
        pos = self.pos
        if self.kinds[pos] not in OBJECT_KEY_KINDS:
            advice = "A reserved word needs quotes as a key." if self.texts[pos].isalpha() else None
            self.fail(Code.INVALID_OBJECT_KEY, "expected an object key", advice)
        text = self.texts[pos]
        key = unescape(text) if self.kinds[pos] in ANY_STRING else text
        self.pos = pos + 1
        self.expect(":", "after the object key")
        value = self.expression()
        return ast.ObjectField(self.starts[pos], self.end(), key, value)

    def match_expression(self) -> ast.Match:
        """Parse `Match` (G38); the end of the input closes it (E5)."""
        start = self.begin()
        subject = self.expression()
        self.expect("{", "after the subject of `match`")
        arms: list[ast.MatchArm] = []
        while self.skip_newlines() != "}":
            if self.pos >= self.last:
                return ast.Match(start, self.end(), subject, tuple(arms))
            arms.append(self._arm())
            if self.skip_newlines() == ",":
                self.pos += 1
        self.pos += 1
        return ast.Match(start, self.end(), subject, tuple(arms))

    def _arm(self) -> ast.MatchArm:
        start = self.starts[self.pos]
        pattern = self.pattern()
        if self.at("->"):
            advice = "Match arms are written `pattern => body`."
            self.fail(Code.OLD_ARM_ARROW, "expected `=>` after the pattern", advice)
        if self.at("if") or self.at("|"):
            advice = "Vox has no guards and no alternatives: write one arm a pattern and test inside it."
            self.fail(Code.EXPECTED_TOKEN, "expected `=>` after the pattern", advice)
        self.expect("=>", "after the pattern")
        body: ast.Expr
        if self.kinds[self.pos] in {"return", "break", "continue"}:
            body_start = self.starts[self.pos]
            statement = self.statement()
            body = ast.Block(body_start, self.end(), (statement,))
        else:
            body = self.expression()
        return ast.MatchArm(start, self.end(), pattern, body)

    def if_expression(self) -> ast.If:
        """Parse `If` (G39); a chain of `else if` is read in a loop, so that it does not count as nesting."""
        heads: list[tuple[int, ast.Expr, tuple[ast.Statement, ...]]] = []
        otherwise: tuple[ast.Statement, ...] | None = None
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
        node = ast.If(start, end, condition, then, otherwise)
        while heads:
            start, condition, then = heads.pop()
            node = ast.If(start, end, condition, then, (ast.ExprStatement(node.start, end, node),))
        return node

    def for_expression(self) -> ast.For:
        """Parse `For` (G39)."""
        start = self.begin()
        binding = self.name("a loop variable")
        index = self.name("an index variable") if self.take(",") else None
        self.expect("in", "after the loop variable")
        iterable = self.expression()
        key = None
        if self.take_word("key"):
            self.expect("=", "after `key`")
            key = self.expression()
        body = self.expression()
        return ast.For(start, self.end(), binding, index, iterable, key, body)

    def spawn_expression(self) -> ast.Spawn:
        """Parse `'spawn' '(' Expr ')'` (G33)."""
        start = self.begin()
        opener = self.pos
        if not self.at("("):
            self.fail(Code.EXPECTED_TOKEN, "expected `(` after `spawn`", "Write `spawn(expression)`.")
        self.pos += 1
        target = self.expression()
        self.expect_closer(")", opener, "`spawn`")
        return ast.Spawn(start, self.end(), target)

    def side_effect_expression(self) -> ast.SideEffect:
        """Parse `'side_effect' '{' Block` (G33)."""
        start = self.begin()
        statements = self.block()
        return ast.SideEffect(start, self.end(), statements)

    def workflow_version(self) -> ast.WorkflowVersion:
        """Parse `'workflow' '.' Name '(' Args ')'` with the checks of S4 (G42).

        Each check comes as early as possible, so that a prefix that is not rejected can be completed.
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
        return ast.WorkflowVersion(self.starts[head], self.end(), name, low, high)

    def _version_number(self, head: int, opener: int) -> int:
        if not self.take(","):
            if self.at("EOF"):
                self.expect_closer(")", opener, "the argument list")
            self._fail_version(head)
        return integer(self._version_literal(_INT, head))

    def _version_literal(self, kinds: frozenset[TokenKind], head: int) -> str:
        """Consume an argument that is a literal, perhaps named and in parentheses."""
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


_STATEMENTS: Final[dict[TokenKind, Callable[[StatementParser], ast.Statement]]] = {
    "let": StatementParser._let,
    "return": StatementParser._return,
    "while": StatementParser._while,
    "loop": StatementParser._loop,
    "break": lambda parser: parser._jump(ast.Break),
    "continue": lambda parser: parser._jump(ast.Continue),
}
"""First token of a statement other than an expression -> its production (G30)."""

_OPERANDS: Final[dict[TokenKind, Callable[[StatementParser], ast.Expr]]] = {
    "STRING": StatementParser.literal,
    "SSTRING": StatementParser.literal,
    "INT": StatementParser.literal,
    "FLOAT": StatementParser.literal,
    "DECIMAL": StatementParser.literal,
    "true": StatementParser.literal,
    "false": StatementParser.literal,
    "env": StatementParser.keyword_name,
    "http": StatementParser.keyword_name,
    "to": StatementParser.keyword_name,
    "(": StatementParser.parenthesised_expression,
    "[": StatementParser.list_literal,
    "{": StatementParser.brace_expression,
    "not": StatementParser.unary,
    "-": StatementParser.unary,
    "fn": StatementParser.function_lambda,
    "@cancellable": StatementParser.function_lambda,
    "match": StatementParser.match_expression,
    "if": StatementParser.if_expression,
    "for": StatementParser.for_expression,
    "spawn": StatementParser.spawn_expression,
    "side_effect": StatementParser.side_effect_expression,
    "workflow": StatementParser.workflow_version,
}
"""First token of an operand -> its production (G33)."""
