"""Families of programs as files: `*.vox.jinja` with the programs and what is asked, `*_banks.yaml` with lists of words.

A file has sections. `=== family: table/single` begins a family (`, construct: query` and `, mode: ui` may follow):
draws, a line `--- request` (`--- request about DOMAIN`, or `--- request as it stands`), what is asked for, a line
`--- program`, the program. `=== part: guard` begins what several families share (`, takes: entity item` names what it
is given). `${...}` is filled in, `{% ... %}` decides, `{# ... #}` is a comment, as in Jinja.
"""

import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, Final

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import Field, ValidationError

from mens_pipeline.corpus.synthesis.families.vocabulary import DRAWS, FILTERS, WORDS, load_banks
from mens_pipeline.corpus.synthesis.words import ask, load_words
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.language import CONSTRUCTS, Mode
from mens_pipeline.storage.files import read_regular
from mens_pipeline.storage.validation import Strict, errors_in

_FILES: Final = "*.vox.jinja"
_WAY: Final = "_way"
_MOST_BYTES: Final = 1_000_000
_HEADER: Final = re.compile(r"^=== ?(.*)$", re.MULTILINE)
_REQUEST: Final = re.compile(r"^--- request(?: about (?P<domain>.+)| (?P<whole>as it stands))?$", re.MULTILINE)
_PROGRAM: Final = re.compile(r"^--- program$", re.MULTILINE)
_MARKS: Final = re.compile(r"^---.*$", re.MULTILINE)
_SHAPE: Final = (_REQUEST, _PROGRAM)
_TAGS: Final = re.compile(r"\s*(?:{%(?:(?!%}).)*%}\s*)*")
_GAP: Final = re.compile(r"\n{3,}")
_OWN_ERRORS: Final = (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
"""Exceptions that evaluating an expression of a template can raise."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A prompt and the program that completes it.

    `template` is what made it (`table/catalogue`), `construct` what it teaches, a name of `CONSTRUCTS`. The response is
    code alone, ending in one newline, and the front end accepts it.
    """

    template: str
    construct: str
    prompt: str
    response: str
    mode: Mode = Mode.SOURCE


@dataclass(frozen=True, slots=True)
class Family:
    """Programs of one shape with varied names, fields, literals and wording.

    `name` is the construct and the shape: `table/catalogue`. The same state of the generator makes the same program on
    every machine; `place` is the file and line where it stands.
    """

    name: str
    construct: str
    make: Callable[[Random], Sample]
    place: str


class _Family(Strict):
    """The header of a family; the first part of its name is the construct, unless `construct` names another one."""

    family: str = Field(pattern=r"^[a-z0-9_]+/[a-z0-9_]+$")
    teaches: str = Field(default="", alias="construct")
    mode: Mode = Mode.SOURCE


class _Part(Strict):
    part: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    takes: str = ""


@dataclass(frozen=True, slots=True)
class _Section:
    """A stretch of a file.

    `line` is that of its header, from 1; `source` is what follows, behind a comment of as many lines as stand before it
    in the file.
    """

    path: Path
    line: int
    header: _Family | _Part
    source: str

    @property
    def name(self) -> str:
        return self.header.family if isinstance(self.header, _Family) else self.header.part

    @property
    def place(self) -> str:
        """The file and the line where it begins."""
        return f"{self.path}:{self.line}"

    def error(self, message: str, line: int = 0) -> ConfigurationError:
        return ConfigurationError(f"{self.path}:{line or self.line}: {self.name}: {message}")


@cache
def load_families(folder: Path = Path(__file__).parent) -> tuple[Family, ...]:
    """Read, check and compile all families of a folder, in the order of its files; their names are unique.

    Raises:
        ConfigurationError: A file cannot be read or does not fit; the message says where.
    """
    environment = _environment(load_banks(folder))
    sections: dict[str, _Section] = {}
    for section in (section for path in sorted(folder.glob(_FILES)) for section in _sections(path)):
        if section.name in sections:
            raise section.error(f"{sections[section.name].place} has the same name. Rename one.")
        sections[section.name] = section
    parts = {name: part.header.takes.split() for name, part in sections.items() if isinstance(part.header, _Part)}
    templates = {name: _compile(section, environment, parts) for name, section in sections.items()}
    return tuple(
        _family(section, section.header, templates)
        for section in sections.values()
        if isinstance(section.header, _Family)
    )


def _environment(banks: Mapping[str, Any]) -> jinja2.Environment:
    environment = ImmutableSandboxedEnvironment(
        variable_start_string="${", variable_end_string="}", trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined, extensions=[Either], autoescape=False,
    )  # fmt: skip
    words = load_words()
    environment.globals |= {**WORDS, **banks, "ENTITIES": words.entities, "ADDITIVE_ENTITIES": words.additive}
    environment.filters |= FILTERS
    return environment


def _sections(path: Path) -> Iterator[_Section]:
    """Read a file; what stands before its first header is a comment."""
    try:
        text = read_regular(path, _MOST_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read as UTF-8 text ({error}). Restore the file.") from error
    headers = list(_HEADER.finditer(text))
    if not headers:
        raise ConfigurationError(f"{path}: it has no family and no part. Begin one with `=== family: table/single`.")
    ends = [found.start() for found in headers[1:]] + [len(text)]
    for found, end in zip(headers, ends, strict=True):
        line = text.count("\n", 0, found.start()) + 1
        body = "\n".join(map(_keep_blanks, _without_trailing_comments(text[found.end() + 1 : end]).split("\n")))
        comment = "{#" + "\n" * (line - 1) + "#}\n"
        section = _Section(path, line, _header(path, line, found[1]), f"{comment}{body}")
        marks = _MARKS.findall(body)
        if isinstance(section.header, _Family) and not (
            len(marks) == len(_SHAPE) and all(map(re.fullmatch, _SHAPE, marks))
        ):
            raise section.error(
                f"its lines that begin with `---` are {marks}. Write the draws, `--- request` (or `--- request about "
                "DOMAIN`, or `--- request as it stands`), what is asked for, `--- program`, and the program."
            )
        yield section


def _without_trailing_comments(body: str) -> str:
    """Cut blank lines and comments off the end of a section; the comments are about the next one."""
    body = body.rstrip()
    while body.endswith("#}") and "{#" in body:
        body = body[: body.rindex("{#")].rstrip()
    return body


def _keep_blanks(line: str) -> str:
    """Mark the tags at the ends of a line that holds more than tags, so that its blanks and its end are kept."""
    if _TAGS.fullmatch(line):
        return line
    return re.sub(r"(?<![-+])%}$", "+%}", re.sub(r"^(\s+){%(?![-+])", r"\1{%+", line))


def _header(path: Path, line: int, text: str) -> _Family | _Part:
    pairs = dict(option.partition(": ")[::2] for option in text.split(", "))
    kind = _Part if "part" in pairs else _Family
    try:
        header = kind.model_validate(pairs)
    except ValidationError as error:
        raise ConfigurationError(
            f"{path}:{line}: `=== {text}` is no header ({errors_in(error)}). Write `=== family: table/single`, with "
            "`, construct: NAME` or `, mode: ui` behind it where they differ, or `=== part: NAME, takes: NAMES`."
        ) from error
    if isinstance(header, _Part):
        return header
    construct = header.teaches or header.family.partition("/")[0]
    if construct not in CONSTRUCTS:
        raise ConfigurationError(
            f"{path}:{line}: {header.family}: there is no construct {construct!r}. Write `, construct: NAME` behind "
            f"the name, with one of {', '.join(CONSTRUCTS)}."
        )
    return header.model_copy(update={"teaches": construct})


def _compile(section: _Section, environment: jinja2.Environment, parts: Mapping[str, Sequence[str]]) -> jinja2.Template:
    """Compile a section; refuse one that is no Jinja, or that uses a name which nothing defines."""
    try:
        tree = environment.parse(section.source)
        _check(section, tree, environment, parts)
        code = environment.compile(tree, section.name, str(section.path))
    except jinja2.TemplateSyntaxError as error:
        raise section.error(f"{error.message}. Correct it.", error.lineno) from error
    return environment.template_class.from_code(environment, code, environment.globals)


def _check(
    section: _Section, tree: nodes.Template, environment: jinja2.Environment, parts: Mapping[str, Sequence[str]]
) -> None:
    given = section.header.takes.split() if isinstance(section.header, _Part) else []
    names = list(tree.find_all(nodes.Name))
    known = {*environment.globals, *DRAWS, *given, "part", "each", "loop"} | {n.name for n in names if n.ctx != "load"}
    for name in names:
        if name.name not in known:
            raise section.error(
                f"`{name.name}` is no draw of it, no bank and no function. Correct the name, or set it above.",
                name.lineno,
            )
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name in ("part", "each"):
            _check_part(section, call, parts)


def _check_part(section: _Section, call: nodes.Call, parts: Mapping[str, Sequence[str]]) -> None:
    name = call.args[0].value if call.args and isinstance(call.args[0], nodes.Const) else ""
    given = [argument.key for argument in call.kwargs] + ["row"] * (len(call.args) - 1)
    if sorted(given) != sorted(parts.get(name, ("", ""))):
        wanted = f"it takes {', '.join(parts[name]) or 'nothing'}" if name in parts else f"there are {', '.join(parts)}"
        raise section.error(f"part {name!r} with {', '.join(given) or 'nothing'}: {wanted}. Correct it.", call.lineno)


def _family(section: _Section, header: _Family, templates: Mapping[str, jinja2.Template]) -> Family:
    def make(random: Random) -> Sample:
        try:
            prompt, program = _draw(section.name, templates, random)
        except _OWN_ERRORS as error:
            place = _place_of(error) or section.place
            raise ConfigurationError(f"{place}: {section.name}: {error}. Correct it.") from error
        return Sample(section.name, header.teaches, prompt, program, header.mode)

    return Family(section.name, header.teaches, make, section.place)


def _draw(name: str, templates: Mapping[str, jinja2.Template], random: Random) -> tuple[str, str]:
    draws: dict[str, Any] = {name: partial(function, random) for name, function in DRAWS.items()}

    def part(name: str, /, **given: Any) -> object:
        return templates[name].make_module({**draws, **given})

    def each(name: str, rows: Iterable[object], /, **given: Any) -> list[object]:
        return [part(name, row=row, **given) for row in rows]

    draws |= {"part": part, "each": each}
    request, program = _PROGRAM.split(templates[name].render(draws))
    return _prompt(random, request), _GAP.sub("\n\n", program.strip("\n")) + "\n"


def _prompt(random: Random, text: str) -> str:
    _, domain, whole, request = _REQUEST.split(text)
    lines = [line for line in request.split("\n") if line.strip()]
    if whole:
        return request.strip("\n")
    if not lines:
        raise ValueError("the request is empty; its first line says what is asked for")
    if domain and domain not in load_words().domains:
        raise ValueError(f"there is no domain {domain!r} in words.yaml")
    sentences: list[str] = []
    for line in lines:
        if line.startswith(" ") and sentences:
            sentences[-1] += f" {line.strip()}"
        else:
            sentences.append(line.strip())
    return ask(random, *sentences, domain=domain or "")


def _place_of(error: BaseException) -> str:
    """Return the file and line of the template expression that an error comes from; empty when there is none."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    places = (f"{frame.filename}:{frame.lineno}" for frame in frames if Path(frame.filename).match(_FILES))
    return next(places, "")


class Either(Extension):
    """`{% either %}one way to say it{% or %}another{% endeither %}`: one is drawn, and nothing of the others."""

    tags = {"either"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Read the ways up to `endeither`."""
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
