"""`{% either %}one way to say it{% or %}another{% endeither %}`: one of them is drawn."""

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

_WAY = "_way"


class Either(Extension):
    """Ways of which one is drawn; what the others would draw is not drawn."""

    tags = {"either"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Read the ways up to `endeither`.

        Args:
            parser: Stands at the tag.
        """
        line = next(parser.stream).lineno
        ways = []
        end = ""
        while end != "endeither":
            ways.append(parser.parse_statements(("name:or", "name:endeither")))
            end = next(parser.stream).value
        places = nodes.Const(tuple(range(len(ways))))
        draw = nodes.Call(nodes.Name("choice", "load"), [places], [], None, None)
        branches = [nodes.If(_is(place), body, [], []) for place, body in enumerate(ways)]
        first = nodes.If(branches[0].test, branches[0].body, branches[1:], [])
        return [node.set_lineno(line) for node in (nodes.Assign(nodes.Name(_WAY, "store"), draw), first)]


def _is(place: int) -> nodes.Expr:
    return nodes.Compare(nodes.Name(_WAY, "load"), [nodes.Operand("eq", nodes.Const(place))])
