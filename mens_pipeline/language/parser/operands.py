"""Operands: literals, parentheses, lists, lambdas, and what may follow an operand (G33, G35, G36, G40, G41)."""

from abc import abstractmethod
from typing import cast

from mens_pipeline.language.ast.expressions import (
    Argument,
    Attribute,
    BoolLit,
    Call,
    DecimalLit,
    Expr,
    FieldAccess,
    FloatLit,
    Ident,
    IndexAccess,
    IntLit,
    Lambda,
    ListLit,
    MethodCall,
    SelfClosingView,
    StringLit,
    TupleLit,
    Unary,
    View,
)
from mens_pipeline.language.ast.types import Param
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.parser.cursor import Finding, ParseError, integer, unescape
from mens_pipeline.language.parser.types import TypeParser
from mens_pipeline.language.vocabulary import NAME_KINDS, VIEW_TAGS


class OperandParser(TypeParser):
    """Operands without braces, and the postfix loop."""

    @abstractmethod
    def primary(self) -> Expr:
        """Return one operand with its postfix loop (G33)."""

    def postfix(self, node: Expr, start: int) -> Expr:
        """Parse calls, members and indexes, as many as follow on the line (G35)."""
        kinds = self.kinds
        while True:
            pos = self.pos
            kind = kinds[pos]
            if kind == "(":
                self.pos = pos + 1
                node = self._call(node, start, self.arguments())
            elif kind == ".":
                node = self._member(node, start)
            elif kind == "[":
                self.pos = pos + 1
                index = self.expression()
                self.expect_closer("]", pos, "the index")
                node = IndexAccess(start, self.end(), node, index)
            else:
                return node

    def _member(self, node: Expr, start: int) -> Expr:
        pos = self.pos + 1
        if self.kinds[pos] not in NAME_KINDS:
            self.pos = pos
            self.fail(Code.EXPECTED_NAME, "expected a member name after `.`")
        name = self.texts[pos]
        if self.kinds[pos + 1] != "(":
            self.pos = pos + 1
            return FieldAccess(start, self.ends[pos], node, name)
        self.pos = pos + 2
        arguments = self.arguments()
        return MethodCall(start, self.end(), node, name, arguments)

    def arguments(self) -> tuple[Argument, ...]:
        """`Args` and the closing parenthesis (G40); the opening one has been consumed."""
        opener = self.pos - 1
        arguments: list[Argument] = []
        while self.skip_newlines() != ")":
            arguments.append(self.argument())
            if self.skip_newlines() != ",":
                self.expect_closer(")", opener, "the argument list")
                return tuple(arguments)
            self.pos += 1
        self.pos += 1
        return tuple(arguments)

    def argument(self) -> Argument:
        """`[ Id '=' ] Expr` (G40)."""
        pos = self.pos
        start = self.starts[pos]
        if self.kinds[pos] == "IDENT" and self.kinds[pos + 1] == "=":
            self.pos = pos + 2
            value = self.expression()
            return Argument(start, self.end(), self.texts[pos], value)
        value = self.expression()
        if self.at(":"):
            self.fail(Code.EXPECTED_TOKEN, "expected `,` or `)`", "Name an argument with `=`: `f(a=1)`.")
        return Argument(start, self.end(), None, value)

    def _call(self, callee: Expr, start: int, arguments: tuple[Argument, ...]) -> Expr:
        """Build a call, or a view call with its children (G41)."""
        is_view = (
            type(callee) is Ident
            and ("A" <= callee.name[0] <= "Z" or callee.name in VIEW_TAGS)
            and all(argument.name is not None for argument in arguments)
        )
        if not is_view:
            return Call(start, self.end(), callee, arguments)
        tag = cast("Ident", callee).name
        attributes = tuple(
            Attribute(argument.start, argument.end, (argument.name or "").removeprefix("attr_"), argument.value)
            for argument in arguments
        )
        end = self.end()
        closed = self.pos
        if self.skip_newlines() != "{":
            self.pos = closed
            return SelfClosingView(start, end, tag, attributes)
        opener = self.pos
        self.pos += 1
        children = self._children(opener)
        return View(start, self.end(), tag, attributes, children)

    def _children(self, opener: int) -> tuple[Expr, ...]:
        children: list[Expr] = []
        while self.skip_newlines() != "}":
            if self.pos >= self.last:
                self.expect_closer("}", opener, "the view")
            children.append(self.expression())
            if self.skip_newlines() == ",":
                self.pos += 1
        self.pos += 1
        return tuple(children)

    def bare_lambda(self, pos: int) -> Lambda:
        """`Id '=>' Expr` (G36); the name stands at `pos`."""
        start, end = self.starts[pos], self.ends[pos]
        param = Param(start, end, self.texts[pos], None, None)
        self.pos += 1
        body = self.expression()
        return Lambda(start, self.end(), (param,), None, body, cancellable=False)

    def parenthesised(self) -> Expr:
        """Parse a grouping, a tuple, or a lambda whose head is in parentheses (G33, G36)."""
        opener = self.pos
        start = self.starts[opener]
        self.pos += 1
        inner = self.expression()
        if self.at(","):
            elements = [inner]
            while self.take(","):
                if self.skip_newlines() == ")":
                    break
                elements.append(self.expression())
            self.skip_newlines()
            self.expect_closer(")", opener, "the tuple")
            inner = TupleLit(start, self.end(), tuple(elements))
        else:
            self.skip_newlines()
            self.expect_closer(")", opener, "the parentheses")
        if not self.at("=>"):
            return inner
        params = self._lambda_params(inner, opener)
        self.pos += 1
        body = self.expression()
        return Lambda(start, self.end(), params, None, body, cancellable=False)

    def _lambda_params(self, head: Expr, opener: int) -> tuple[Param, ...]:
        names = head.elements if isinstance(head, TupleLit) else (head,)
        params = tuple(Param(n.start, n.end, n.name, None, None) for n in names if isinstance(n, Ident))
        if len(params) != len(names):
            message = "the parameters of a `=>` lambda are bare names"
            raise ParseError(
                Finding(Code.INVALID_LAMBDA_HEAD, message, opener, "Write `fn(a: int) to int ...` for more.")
            )
        return params

    def list_literal(self) -> ListLit:
        """`'[' ... ']'` (G33)."""
        opener = self.pos
        self.pos += 1
        elements: list[Expr] = []
        while self.skip_newlines() != "]":
            elements.append(self.expression())
            if self.skip_newlines() != ",":
                break
            self.pos += 1
        self.expect_closer("]", opener, "the list")
        return ListLit(self.starts[opener], self.end(), tuple(elements))

    def unary(self) -> Unary:
        """`not` or `-` and its operand, on one line (G33)."""
        pos = self.pos
        self.pos = pos + 1
        depth = self.open_level()
        operand = self.primary()
        self.depth = depth
        return Unary(self.starts[pos], self.end(), "Neg" if self.kinds[pos] == "-" else "Not", operand)

    def function_lambda(self) -> Lambda:
        """`fn(...) body`, also behind `@cancellable`, which swallows one token in place of `fn` (G36)."""
        start = self.starts[self.pos]
        cancellable = self.take_any() == "@cancellable"
        if cancellable:
            self.take_any()
        params = self.parameter_list()
        returned = self.return_type()
        body = self.expression()
        return Lambda(start, self.end(), params, returned, body, cancellable)

    def literal(self) -> Expr:
        """Parse a literal (G33)."""
        pos = self.pos
        self.pos = pos + 1
        kind, text, start, end = self.kinds[pos], self.texts[pos], self.starts[pos], self.ends[pos]
        if kind in {"STRING", "SSTRING"}:
            return StringLit(start, end, unescape(text))
        if kind == "INT":
            return IntLit(start, end, integer(text))
        if kind == "FLOAT":
            return FloatLit(start, end, float(text))
        if kind == "DECIMAL":
            return DecimalLit(start, end, text[:-3])
        return BoolLit(start, end, kind == "true")

    def keyword_name(self) -> Ident:
        """`env`, `http` and `to` are names in an expression (L13)."""
        pos = self.pos
        self.pos = pos + 1
        return Ident(self.starts[pos], self.ends[pos], self.texts[pos])
