"""Types, parameters and patterns (G31, G32)."""

from mens_pipeline.language.ast.patterns import (
    ConstructorPattern,
    IdentPattern,
    LiteralPattern,
    Pattern,
    TuplePattern,
    WildcardPattern,
)
from mens_pipeline.language.ast.types import DecimalType, FunctionType, GenericType, InferType, NamedType, Param, Type
from mens_pipeline.language.diagnostics import Code
from mens_pipeline.language.parser.cursor import Cursor, Finding, integer, unescape
from mens_pipeline.language.vocabulary import NAME_KINDS


class TypeParser(Cursor):
    """Types, parameter lists and patterns; none of them spans lines (N5)."""

    def type_expression(self) -> Type:
        """`Type` (G32)."""
        pos = self.pos
        kind = self.kinds[pos]
        start = self.starts[pos]
        if kind in NAME_KINDS:
            self.pos = pos + 1
            name = self.texts[pos]
            if self.kinds[pos + 1] != "[":
                return NamedType(start, self.ends[pos], name)
            self.pos = pos + 2
            arguments = self._type_list("]")
            return GenericType(start, self.end(), name, arguments)
        self.pos = pos + 1
        if kind == "INT":
            return NamedType(start, self.ends[pos], str(integer(self.texts[pos])))
        if kind == "_":
            return InferType(start, self.ends[pos])
        if kind == "dec":
            return DecimalType(start, self.ends[pos])
        if kind == "fn":
            return self._function_type(start)
        self.pos = pos
        advice = "Vox has no tuple, optional or union types." if kind in {"(", "{", "["} else None
        self.fail(Code.EXPECTED_TYPE, "expected a type", advice)

    def _type_list(self, closer: str) -> tuple[Type, ...]:
        depth = self.open_level()
        types = [self.type_expression()]
        while self.take(","):
            types.append(self.type_expression())
        self.depth = depth
        self.expect("]" if closer == "]" else ")", "after the types")
        return tuple(types)

    def _function_type(self, start: int) -> FunctionType:
        self.expect("(", "after `fn`")
        depth = self.open_level()
        parameters = () if self.take(")") else self._type_list(")")
        result = self.return_type()
        self.depth = depth
        return FunctionType(start, self.end(), parameters, result)

    def return_type(self) -> Type | None:
        """`[ Ret ]` (G32); the arrow form is worth a warning (E3)."""
        if self.take("to"):
            return self.type_expression()
        if self.at("->"):
            self.warnings.append(
                Finding(Code.RETURN_ARROW, "`->` before a return type is old spelling", self.pos, "Write `to`.")
            )
            self.pos += 1
            return self.type_expression()
        return None

    def parameter_list(self) -> tuple[Param, ...]:
        """`'(' [ Params ] ')'` (G32)."""
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

    def _param(self) -> Param:
        start = self.starts[self.pos]
        if self.at("NL"):
            self.fail(Code.EXPECTED_NAME, "expected a parameter", "Write the whole parameter list on one line.")
        name = self.name("a parameter name")
        annotation = self.type_expression() if self.take(":") else None
        default = self.expression() if self.take("=") else None
        return Param(start, self.end(), name, annotation, default)

    def pattern(self) -> Pattern:
        """`Pattern` (G31)."""
        pos = self.pos
        kind = self.kinds[pos]
        text = self.texts[pos]
        start = self.starts[pos]
        self.pos = pos + 1
        if kind == "IDENT":
            return IdentPattern(start, self.ends[pos], text)
        if kind == "TYPEIDENT":
            if not self.take("("):
                return IdentPattern(start, self.ends[pos], text)
            fields = self._pattern_list()
            return ConstructorPattern(start, self.end(), text, fields)
        if kind == "_":
            return WildcardPattern(start, self.ends[pos])
        if kind == "INT":
            return LiteralPattern(start, self.ends[pos], integer(text))
        if kind == "STRING":
            return LiteralPattern(start, self.ends[pos], unescape(text))
        if kind == "(":
            elements = self._pattern_list()
            return TuplePattern(start, self.end(), elements)
        self.pos = pos
        advice = "Write the string in double quotes." if kind == "SSTRING" else None
        self.fail(Code.EXPECTED_PATTERN, "expected a pattern", advice)

    def _pattern_list(self) -> tuple[Pattern, ...]:
        depth = self.open_level()
        patterns: list[Pattern] = []
        while not self.at(")"):
            patterns.append(self.pattern())
            if not self.take(","):
                break
        self.depth = depth
        self.expect(")", "after the patterns")
        return tuple(patterns)
