"""Types, patterns, and operands with their postfix operators (G31-G33, G35, G36, G40, G41)."""

from abc import abstractmethod
from typing import cast

from mens_pipeline.language import ast
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.parser.cursor import Finding, ParseError, TokenCursor, integer, unescape
from mens_pipeline.language.vocabulary import NAME_KINDS, VIEW_TAGS


class OperandParser(TokenCursor):
    """Parser of types, parameter lists, patterns (which do not span lines, N5) and operands."""

    def type_expression(self) -> ast.Type:
        """Parse `Type` (G32)."""
        pos = self.pos
        kind = self.kinds[pos]
        start = self.starts[pos]
        if kind in NAME_KINDS:
            self.pos = pos + 1
            name = self.texts[pos]
            if self.kinds[pos + 1] != "[":
                return ast.NamedType(start, self.ends[pos], name)
            self.pos = pos + 2
            arguments = self._type_list("]")
            return ast.GenericType(start, self.end(), name, arguments)
        self.pos = pos + 1
        if kind == "INT":
            return ast.NamedType(start, self.ends[pos], str(integer(self.texts[pos])))
        if kind == "_":
            return ast.InferType(start, self.ends[pos])
        if kind == "dec":
            return ast.DecimalType(start, self.ends[pos])
        if kind == "fn":
            return self._function_type(start)
        self.pos = pos
        advice = "Vox has no tuple, optional or union types." if kind in {"(", "{", "["} else None
        self.fail(Code.EXPECTED_TYPE, "expected a type", advice)

    def _type_list(self, closer: str) -> tuple[ast.Type, ...]:
        depth = self.open_level()
        types = [self.type_expression()]
        while self.take(","):
            types.append(self.type_expression())
        self.depth = depth
        self.expect("]" if closer == "]" else ")", "after the types")
        return tuple(types)

    def _function_type(self, start: int) -> ast.FunctionType:
        self.expect("(", "after `fn`")
        depth = self.open_level()
        parameters = () if self.take(")") else self._type_list(")")
        result = self.return_type()
        self.depth = depth
        return ast.FunctionType(start, self.end(), parameters, result)

    def return_type(self) -> ast.Type | None:
        """Parse `[ Ret ]` (G32); the arrow form gets a warning (E3)."""
        if self.take("to"):
            return self.type_expression()
        if self.at("->"):
            message = "`->` before a return type is old spelling"
            self.warnings.append(Finding(Code.RETURN_ARROW, message, self.pos, "Write `to`."))
            self.pos += 1
            return self.type_expression()
        return None

    def parameter_list(self) -> tuple[ast.Param, ...]:
        """Parse `'(' [ Params ] ')'` (G32)."""
        opener = self.pos
        self.expect("(", "before the parameters")
        if self.take(")"):
            return ()
        params = [self._param()]
        while self.take(","):
            if self.at(")"):
                self.fail(Code.EXPECTED_NAME, "expected a parameter", "Remove the comma before `)`.")
            params.append(self._param())
        if self.at("NL"):
            self.fail(Code.EXPECTED_TOKEN, "expected `,` or `)`", "Write the whole parameter list on one line.")
        self.expect_closer(")", opener, "the parameter list")
        return tuple(params)

    def _param(self) -> ast.Param:
        start = self.starts[self.pos]
        if self.at("NL"):
            self.fail(Code.EXPECTED_NAME, "expected a parameter", "Write the whole parameter list on one line.")
        name = self.name("a parameter name")
        annotation = self.type_expression() if self.take(":") else None
        default = self.expression() if self.take("=") else None
        return ast.Param(start, self.end(), name, annotation, default)

    def pattern(self) -> ast.Pattern:
        """Parse `Pattern` (G31)."""
        pos = self.pos
        kind = self.kinds[pos]
        text = self.texts[pos]
        start = self.starts[pos]
        self.pos = pos + 1
        if kind == "IDENT":
            return ast.IdentPattern(start, self.ends[pos], text)
        if kind == "TYPEIDENT":
            if not self.take("("):
                return ast.IdentPattern(start, self.ends[pos], text)
            fields = self._pattern_list()
            return ast.ConstructorPattern(start, self.end(), text, fields)
        if kind == "_":
            return ast.WildcardPattern(start, self.ends[pos])
        if kind == "INT":
            return ast.LiteralPattern(start, self.ends[pos], integer(text))
        if kind == "STRING":
            return ast.LiteralPattern(start, self.ends[pos], unescape(text))
        if kind == "(":
            elements = self._pattern_list()
            return ast.TuplePattern(start, self.end(), elements)
        self.pos = pos
        advice = "Write the string in double quotes." if kind == "SSTRING" else None
        self.fail(Code.EXPECTED_PATTERN, "expected a pattern", advice)

    def _pattern_list(self) -> tuple[ast.Pattern, ...]:
        depth = self.open_level()
        patterns = self.separated_list(self.pattern, ")", "after the patterns")
        self.depth = depth
        return patterns

    @abstractmethod
    def primary(self) -> ast.Expr:
        """Parse one operand and its postfix operators (G33)."""

    def postfix(self, node: ast.Expr, start: int) -> ast.Expr:
        """Parse calls, members and indexes on the same line (G35)."""
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
                node = ast.IndexAccess(start, self.end(), node, index)
            else:
                return node

    def _member(self, node: ast.Expr, start: int) -> ast.Expr:
        pos = self.pos + 1
        if self.kinds[pos] not in NAME_KINDS:
            self.pos = pos
            self.fail(Code.EXPECTED_NAME, "expected a member name after `.`")
        name = self.texts[pos]
        if self.kinds[pos + 1] != "(":
            self.pos = pos + 1
            return ast.FieldAccess(start, self.ends[pos], node, name)
        self.pos = pos + 2
        arguments = self.arguments()
        return ast.MethodCall(start, self.end(), node, name, arguments)

    def arguments(self) -> tuple[ast.Argument, ...]:
        """Parse `Args` and the closing parenthesis, after the opening one (G40)."""
        opener = self.pos - 1
        arguments: list[ast.Argument] = []
        while self.skip_newlines() != ")":
            arguments.append(self.argument())
            if self.skip_newlines() != ",":
                self.expect_closer(")", opener, "the argument list")
                return tuple(arguments)
            self.pos += 1
        self.pos += 1
        return tuple(arguments)

    def argument(self) -> ast.Argument:
        """Parse `[ Id '=' ] Expr` (G40)."""
        pos = self.pos
        start = self.starts[pos]
        if self.kinds[pos] == "IDENT" and self.kinds[pos + 1] == "=":
            self.pos = pos + 2
            value = self.expression()
            return ast.Argument(start, self.end(), self.texts[pos], value)
        value = self.expression()
        if self.at(":"):
            self.fail(Code.EXPECTED_TOKEN, "expected `,` or `)`", "Name an argument with `=`: `f(a=1)`.")
        return ast.Argument(start, self.end(), None, value)

    def _call(self, callee: ast.Expr, start: int, arguments: tuple[ast.Argument, ...]) -> ast.Expr:
        is_view = (
            type(callee) is ast.Ident
            and ("A" <= callee.name[0] <= "Z" or callee.name in VIEW_TAGS)
            and all(argument.name is not None for argument in arguments)
        )
        if not is_view:
            return ast.Call(start, self.end(), callee, arguments)
        tag = cast("ast.Ident", callee).name
        attributes = tuple(
            ast.Attribute(argument.start, argument.end, (argument.name or "").removeprefix("attr_"), argument.value)
            for argument in arguments
        )
        end = self.end()
        closed = self.pos
        if self.skip_newlines() != "{":
            self.pos = closed
            return ast.SelfClosingView(start, end, tag, attributes)
        opener = self.pos
        self.pos += 1
        children: list[ast.Expr] = []
        while self.skip_newlines() != "}":
            if self.pos >= self.last:
                self.expect_closer("}", opener, "the view")
            children.append(self.expression())
            if self.skip_newlines() == ",":
                self.pos += 1
        self.pos += 1
        return ast.View(start, self.end(), tag, attributes, tuple(children))

    def bare_lambda(self, pos: int) -> ast.Lambda:
        """Parse `Id '=>' Expr` (G36), with the name at `pos`."""
        start, end = self.starts[pos], self.ends[pos]
        param = ast.Param(start, end, self.texts[pos], None, None)
        self.pos += 1
        body = self.expression()
        return ast.Lambda(start, self.end(), (param,), None, body, cancellable=False)

    def parenthesised_expression(self) -> ast.Expr:
        """Parse a group, a tuple, or a lambda whose head is in parentheses (G33, G36)."""
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
            inner = ast.TupleLit(start, self.end(), tuple(elements))
        else:
            self.skip_newlines()
            self.expect_closer(")", opener, "the parentheses")
        if not self.at("=>"):
            return inner
        params = self._lambda_params(inner, opener)
        self.pos += 1
        body = self.expression()
        return ast.Lambda(start, self.end(), params, None, body, cancellable=False)

    def _lambda_params(self, head: ast.Expr, opener: int) -> tuple[ast.Param, ...]:
        names = head.elements if isinstance(head, ast.TupleLit) else (head,)
        params = tuple(ast.Param(n.start, n.end, n.name, None, None) for n in names if isinstance(n, ast.Ident))
        if len(params) != len(names):
            message, advice = (
                "the parameters of a `=>` lambda are bare names",
                "Write `fn(a: int) to int ...` for more.",
            )
            raise ParseError(Finding(Code.INVALID_LAMBDA_HEAD, message, opener, advice))
        return params

    def list_literal(self) -> ast.ListLit:
        """Parse `'[' ... ']'` (G33)."""
        opener = self.pos
        self.pos += 1
        elements: list[ast.Expr] = []
        while self.skip_newlines() != "]":
            elements.append(self.expression())
            if self.skip_newlines() != ",":
                break
            self.pos += 1
        self.expect_closer("]", opener, "the list")
        return ast.ListLit(self.starts[opener], self.end(), tuple(elements))

    def unary(self) -> ast.Unary:
        """Parse `not` or `-` and its operand, on one line (G33)."""
        pos = self.pos
        self.pos = pos + 1
        depth = self.open_level()
        operand = self.primary()
        self.depth = depth
        return ast.Unary(self.starts[pos], self.end(), "Neg" if self.kinds[pos] == "-" else "Not", operand)

    def function_lambda(self) -> ast.Lambda:
        """Parse `fn(...) body`, perhaps after `@cancellable`, which consumes any token in place of `fn` (G36)."""
        start = self.starts[self.pos]
        cancellable = self.take_any() == "@cancellable"
        if cancellable:
            self.take_any()
        params = self.parameter_list()
        returned = self.return_type()
        body = self.expression()
        return ast.Lambda(start, self.end(), params, returned, body, cancellable)

    def literal(self) -> ast.Expr:
        """Parse a literal (G33)."""
        pos = self.pos
        self.pos = pos + 1
        kind, text, start, end = self.kinds[pos], self.texts[pos], self.starts[pos], self.ends[pos]
        if kind in {"STRING", "SSTRING"}:
            return ast.StringLit(start, end, unescape(text))
        if kind == "INT":
            return ast.IntLit(start, end, integer(text))
        if kind == "FLOAT":
            return ast.FloatLit(start, end, float(text))
        if kind == "DECIMAL":
            return ast.DecimalLit(start, end, text[:-3])
        return ast.BoolLit(start, end, kind == "true")

    def keyword_name(self) -> ast.Ident:
        """Parse `env`, `http` or `to` as a name in an expression (L13)."""
        pos = self.pos
        self.pos = pos + 1
        return ast.Ident(self.starts[pos], self.ends[pos], self.texts[pos])
