"""Expressions: the choice of an operand and the infix operators (G33, G34)."""

from collections.abc import Callable
from typing import Final, Never

from mens_pipeline.language.ast.expressions import Binary, Expr, Ident, Try, With
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.parser.statements import StatementParser
from mens_pipeline.language.vocabulary import BINARY_POWERS, TokenKind

_POSTFIX: Final = frozenset(("(", ".", "["))
_HINTS: Final[dict[str, str]] = {
    "</": "Vox has no angle-bracket markup: write view calls such as `row() { }`.",
    "/>": "Vox has no angle-bracket markup: write view calls such as `row() { }`.",
    "<>": "Vox has no angle-bracket markup: write view calls such as `row() { }`.",
    "</>": "Vox has no angle-bracket markup: write view calls such as `row() { }`.",
    "|": "Write `or` for a logical or, `|>` for a pipe.",
    "let": "A `let` is a statement: it needs a block of its own.",
    "return": "A `return` is a statement: put it in a block.",
    "when": "`when` is reserved and has no meaning yet.",
}


class ExpressionParser(StatementParser):
    """Parser of expressions."""

    def expression(self) -> Expr:
        """`Expr = ~ Infix(0)` (G33)."""
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

    def _infix(self, left: Expr, start: int, minimum: int) -> Expr:
        """Parse the loop of `Infix(minimum)` behind its first operand (G34)."""
        kinds = self.kinds
        while True:
            powers = BINARY_POWERS.get(kinds[self.pos])
            if powers is None or powers[0] < minimum:
                return left
            self.pos = pos = self.pos + 1
            _, right_power, name = powers
            if name == "Try":
                left = Try(start, self.ends[pos - 1], left)
                continue
            right = self.primary()
            if kinds[self.pos] in BINARY_POWERS:
                right = self._infix(right, self.starts[pos], right_power)
            end = self.ends[self.pos - 1]
            left = With(start, end, left, right) if name == "With" else Binary(start, end, name, left, right)

    def primary(self) -> Expr:
        """Return one operand with its postfix loop (G33, G35)."""
        pos = self.pos
        kind = self.kinds[pos]
        node: Expr
        if kind == "IDENT" or kind == "TYPEIDENT":  # noqa: PLR1714 - the commonest token: two comparisons beat a set
            self.pos = pos + 1
            if self.kinds[pos + 1] == "=>":
                node = self.bare_lambda(pos)
            else:
                node = Ident(self.starts[pos], self.ends[pos], self.texts[pos])
        else:
            form = _FORMS.get(kind)
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
        self.fail(Code.EXPECTED_EXPRESSION, "expected an expression", _HINTS.get(self.kinds[self.pos]))


_FORMS: Final[dict[TokenKind, Callable[[ExpressionParser], Expr]]] = {
    "STRING": ExpressionParser.literal,
    "SSTRING": ExpressionParser.literal,
    "INT": ExpressionParser.literal,
    "FLOAT": ExpressionParser.literal,
    "DECIMAL": ExpressionParser.literal,
    "true": ExpressionParser.literal,
    "false": ExpressionParser.literal,
    "env": ExpressionParser.keyword_name,
    "http": ExpressionParser.keyword_name,
    "to": ExpressionParser.keyword_name,
    "(": ExpressionParser.parenthesised,
    "[": ExpressionParser.list_literal,
    "{": ExpressionParser.brace_expression,
    "not": ExpressionParser.unary,
    "-": ExpressionParser.unary,
    "fn": ExpressionParser.function_lambda,
    "@cancellable": ExpressionParser.function_lambda,
    "match": ExpressionParser.match_expression,
    "if": ExpressionParser.if_expression,
    "for": ExpressionParser.for_expression,
    "spawn": ExpressionParser.spawn_expression,
    "side_effect": ExpressionParser.side_effect_expression,
    "workflow": ExpressionParser.workflow_version,
}
"""First token of an operand -> its production (G33)."""
