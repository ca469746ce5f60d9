"""Statements and blocks (G30)."""

from collections.abc import Callable
from typing import Final

from mens_pipeline.errors import did_you_mean
from mens_pipeline.language import ast
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.parser.cursor import Finding
from mens_pipeline.language.parser.expressions import ExpressionParser
from mens_pipeline.language.vocabulary import ASSIGNMENTS, FOREIGN_WORDS, TokenKind

_HINTS: Final[dict[str, str]] = {
    "fn": "A function cannot be declared inside a body. Is a `}` missing above?",
    "import": "Imports stand at the top level. Is a `}` missing above?",
    "type": "Types are declared at the top level. Is a `}` missing above?",
}
_STATEMENT_WORDS: Final = ("let", "return", "while", "loop", "break", "continue", "match", "else", "not", "spawn")
_BLOCK_ENDS: Final = frozenset(("NL", "}", "EOF"))


class StatementParser(ExpressionParser):
    """Blocks and the statements in them."""

    def block(self) -> tuple[ast.Statement, ...]:
        """`'{' Block` (G30)."""
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
        """`Stmt` directly in a block (G30)."""
        return self.statement()

    def statement(self) -> ast.Statement:
        """`Stmt` (G30)."""
        form = _FORMS.get(self.kinds[self.pos])
        if form is not None:
            return form(self)
        start = self.starts[self.pos]
        hint = _HINTS.get(self.kinds[self.pos])
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
        """Warn, once a line, of a bare name in front of another statement: accepted (N9) and hardly ever meant."""
        last = self.warnings[-1] if self.warnings else None
        if last is not None and last.code is Code.STRAY_WORD and "NL" not in self.kinds[last.token : self.pos]:
            return
        message = f"`{word}` stands here as a statement of its own, before {self.next_token_text()} on the same line"
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

    def _break(self) -> ast.Break:
        self.pos += 1
        return ast.Break(self.starts[self.pos - 1], self.end())

    def _continue(self) -> ast.Continue:
        self.pos += 1
        return ast.Continue(self.starts[self.pos - 1], self.end())


_FORMS: Final[dict[TokenKind, Callable[[StatementParser], ast.Statement]]] = {
    "let": StatementParser._let,
    "return": StatementParser._return,
    "while": StatementParser._while,
    "loop": StatementParser._loop,
    "break": StatementParser._break,
    "continue": StatementParser._continue,
}
"""First token of a statement that is no expression -> its production (G30)."""
