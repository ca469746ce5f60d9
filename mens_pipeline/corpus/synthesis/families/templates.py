"""Families of programs as files: `*.vox.jinja` with programs and requests, `*_banks.yaml` with lists of words.

A file has sections. `=== family: table/single` starts a family (`, construct: query` and `, mode: ui` may follow):
draws, a line `--- request` (`--- request about DOMAIN`, or `--- request as it stands`), the request, a line
`--- program`, the program. `=== part: guard` starts a part that several families share (`, takes: entity item` names
its arguments). `${...}` is an expression; `{% ... %}` is a statement and `{# ... #}` a comment, as in Jinja.
"""

import re
import traceback
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import (
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    field_validator,
    model_validator,
)

from mens_pipeline.corpus.synthesis.tasks.draw import draw_function
from mens_pipeline.corpus.synthesis.tasks.templates import assertion
from mens_pipeline.corpus.synthesis.words import (
    Entity,
    EntityField,
    ask,
    count_things,
    describe_fields,
    has_fields,
    list_items,
    load_words,
    one_in,
    pick,
    quote_items,
    split_lines,
    with_article,
)
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.language import CONSTRUCTS, Mode
from mens_pipeline.storage.files import read_regular
from mens_pipeline.storage.validation import Strict, errors_in
from mens_pipeline.storage.yaml_file import load_model

_FILES: Final = "*.vox.jinja"
_WAY: Final = "_way"
_HEADER: Final = re.compile(r"^=== ?(.*)$", re.MULTILINE)
_REQUEST: Final = re.compile(r"^--- request(?: about (?P<domain>.+)| (?P<whole>as it stands))?$", re.MULTILINE)
_PROGRAM: Final = re.compile(r"^--- program$", re.MULTILINE)
_MARKS: Final = re.compile(r"^---.*$", re.MULTILINE)
_SHAPE: Final = (_REQUEST, _PROGRAM)
_TAGS: Final = re.compile(r"\s*(?:{%(?:(?!%}).)*%}\s*)*")
_GAP: Final = re.compile(r"\n{3,}")
_OWN_ERRORS: Final = (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
"""Exceptions that an expression of a template can raise."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A prompt and the program that completes it.

    `template` is the name of its family (`table/catalogue`); `construct` is the taught construct, a name in
    `CONSTRUCTS`. The response is only code, ends with one newline, and is accepted by the front end.
    """

    template: str
    construct: str
    prompt: str
    response: str
    mode: Mode = Mode.SOURCE


@dataclass(frozen=True, slots=True)
class Family:
    """Programs of one shape with varied names, fields, literals and wording.

    `name` is the construct and the shape: `table/catalogue`. The same state of the random generator gives the same
    program on every machine; `place` is file and line.
    """

    name: str
    construct: str
    make: Callable[[Random], Sample]
    place: str


class _Family(Strict):
    family: str = Field(pattern=r"^[a-z0-9_]+/[a-z0-9_]+$")
    teaches: str = Field(default="", alias="construct")
    mode: Mode = Mode.SOURCE


class _Part(Strict):
    part: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    takes: str = ""


@dataclass(frozen=True, slots=True)
class _Section:
    path: Path
    line: int
    header: _Family | _Part
    source: str

    @property
    def name(self) -> str:
        return self.header.family if isinstance(self.header, _Family) else self.header.part

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"

    def error(self, message: str, line: int = 0) -> ConfigurationError:
        return ConfigurationError(f"{self.path}:{line or self.line}: {self.name}: {message}")


@cache
def load_families(folder: Path = Path(__file__).parent) -> tuple[Family, ...]:
    """Read and compile all families of a folder, in order; raise a `ConfigurationError` with the place of a mistake."""
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
    try:
        text = read_regular(path, 1_000_000).decode("utf-8")
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
    """Cut blank lines and comments off the end of a section; they belong to the next one."""
    body = body.rstrip()
    while body.endswith("#}") and "{#" in body:
        body = body[: body.rindex("{#")].rstrip()
    return body


def _keep_blanks(line: str) -> str:
    """Mark tags at the ends of a line that has other text, so that Jinja keeps its blanks and its end."""
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
            f"{path}:{line}: `=== {text}` is not a header ({errors_in(error)}). Write `=== family: table/single`, with "
            "`, construct: NAME` or `, mode: ui` after it where they differ, or `=== part: NAME, takes: NAMES`."
        ) from error
    if isinstance(header, _Part):
        return header
    construct = header.teaches or header.family.partition("/")[0]
    if construct not in CONSTRUCTS:
        raise ConfigurationError(
            f"{path}:{line}: {header.family}: there is no construct {construct!r}. Write `, construct: NAME` after "
            f"the name, with one of {', '.join(CONSTRUCTS)}."
        )
    return header.model_copy(update={"teaches": construct})


def _compile(section: _Section, environment: jinja2.Environment, parts: Mapping[str, Sequence[str]]) -> jinja2.Template:
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
                f"`{name.name}` is not a draw, a bank or a function. Correct the name, or set it above.",
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
            place = _find_place(error) or section.place
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


def _find_place(error: BaseException) -> str:
    frames = reversed(traceback.extract_tb(error.__traceback__))
    places = (f"{frame.filename}:{frame.lineno}" for frame in frames if Path(frame.filename).match(_FILES))
    return next(places, "")


class Either(Extension):
    """`{% either %}one wording{% or %}another{% endeither %}`: one branch is drawn and rendered."""

    tags = {"either"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Parse the branches up to `endeither`."""
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


_LINE: Final = 96  # characters, without indentation, up to which a record stays on one line


def some_fields(random: Random, entity: Entity, *needed: EntityField, most: int = 6) -> tuple[EntityField, ...]:
    """Return needed fields and a few others of the same entity, at least two in all, in the entity's order."""
    others = [field for field in entity.fields if field not in needed]
    least = max(0, 2 - len(needed))
    extra = random.sample(others, random.randint(least, max(least, min(len(others), most - len(needed)))))
    return tuple(field for field in entity.fields if field in needed or field in extra)


def two_of(random: Random, rows: Sequence[Any], attribute: str) -> tuple[Any, Any]:
    """Draw two rows that differ in an attribute; `rows` must contain such a pair."""
    first, second = random.choice(rows), random.choice(rows)
    while getattr(first, attribute) == getattr(second, attribute):
        second = random.choice(rows)
    return first, second


def fold_record(text: str) -> str:
    """Join a record with one member per line into one line if it fits.

    The record is a line that ends in `{`, members with trailing commas, and a line that starts with `}`.
    """
    first, *members, last = text.rstrip("\n").split("\n")
    line = " ".join([first.strip(), *(member.strip() for member in members)]).removesuffix(",") + f" {last.strip()}"
    return text if len(line) > _LINE else f"{first[: len(first) - len(first.lstrip())]}{line}\n"


def same_names(fields: Iterable[EntityField]) -> str:
    """Format a record on one line whose members come from variables of the same names."""
    return f"{{ {', '.join(f'{field.name}: {field.name}' for field in fields)} }}"


def params(fields: Iterable[EntityField]) -> str:
    """Format a parameter list without its parentheses."""
    return ", ".join(field.declaration for field in fields)


def lines(items: Sequence[str | EntityField], width: int = 4) -> str:
    """Write one item per line: fields as declarations, anything else unchanged.

    A text has one item per line; `width` blanks precede all lines but the first.
    """
    texts = items if not isinstance(items, str) else split_lines(items)
    return ("\n" + " " * width).join(item.declaration if isinstance(item, EntityField) else item for item in texts)


def sentence(words: str) -> str:
    """Capitalise the first word."""
    return words[:1].upper() + words[1:]


def snake(name: str) -> str:
    """Convert to snake case: `ToolLoan` and `tool loan` become `tool_loan`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).replace(" ", "_").replace("-", "_").lower()


def camel(words: str) -> str:
    """Convert to camel case: `tool loans` and `tool_loans` become `ToolLoans`."""
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[ _-]", words))


def _by_name(*functions: Callable[..., Any]) -> Mapping[str, Callable[..., Any]]:
    return {function.__name__: function for function in functions}


DRAWS: Final[Mapping[str, Callable[..., Any]]] = {
    **_by_name(Random.choice, Random.sample, Random.randint, one_in, pick, two_of, some_fields, has_fields),
    "described_fields": describe_fields,
    "observed_function": draw_function,
}
"""Functions that draw from the random generator, by their names in templates."""

WORDS: Final[Mapping[str, Callable[..., Any]]] = {**_by_name(params, assertion), "counted": count_things}
"""Functions that draw nothing, by their names in templates."""

FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    **_by_name(same_names, lines, with_article, sentence, snake, camel),
    "folded": fold_record,
    "listed": list_items,
    "quoted": quote_items,
}
"""Filters of templates."""


def _build_record(columns: Sequence[str]) -> Callable[..., Any]:
    return namedtuple("record", columns)  # noqa: PYI024 - the file names them


class _Bank(Strict):
    columns: list[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]] = Field(default_factory=list)
    rows: Annotated[list[StrictStr | StrictBool | StrictInt | StrictFloat | list[Any]], Field(min_length=1)]

    @field_validator("columns")
    @classmethod
    def _are_attributes(cls, columns: list[str]) -> list[str]:
        _build_record(columns)
        return columns

    @property
    def records(self) -> list[Any]:
        if not self.columns:
            return self.rows
        make = _build_record(self.columns)
        return [make(*values) for values in self.rows if isinstance(values, list)]

    @model_validator(mode="before")
    @classmethod
    def _of_list(cls, value: Any) -> Any:
        return {"rows": value} if isinstance(value, list) else value

    @model_validator(mode="after")
    def _is_even(self) -> "_Bank":
        rows = self.rows if self.columns else [[value] for value in self.rows]
        for number, row in enumerate(rows, start=1):
            if not isinstance(row, list) or len(row) != len(self.columns or ("value",)):
                raise ValueError(f"row {number} is {row!r}, not a list of {len(self.columns)} values")
        for name, values in zip(self.columns or ("value",), zip(*rows, strict=True), strict=True):
            kinds = sorted({type(value).__name__ for value in values})
            if len(kinds) > 1:
                raise ValueError(f"column {name} has values of the types {', '.join(kinds)}; put text in quotes")
        return self


class _Banks(Strict):
    banks: dict[str, _Bank]


def load_banks(folder: Path) -> dict[str, list[Any]]:
    """Load the banks of a folder, `*_banks.yaml`: name -> values to draw from; columns are attributes of rows.

    Raises `ConfigurationError` if a file cannot be read or does not match the schema, or two banks share a name.
    """
    found: dict[str, list[Any]] = {}
    for path in sorted(folder.glob("*_banks.yaml")):
        for name, bank in load_model(path, _Banks).banks.items():
            if name in found:
                raise ConfigurationError(f"{path}: banks.{name}: there is another bank of this name. Rename one.")
            found[name] = bank.records
    return found
