"""Families of programs as files: `*.vox.jinja` with the programs and what is asked, `*_banks.yaml` with lists of words.

A file has sections. `=== family: table/single` begins a family (`, construct: query` and `, mode: ui` may follow):
draws, a line `--- request` (`--- request about DOMAIN`, or `--- request as it stands`), what is asked for, a line
`--- program`, the program. `=== part: guard` begins what several families share (`, takes: entity item` names what it
is given). `${...}` is filled in, `{% ... %}` decides, `{# ... #}` is a comment, as in Jinja.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import jinja2
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mens_pipeline.corpus.synthesis.families.banks import load_banks
from mens_pipeline.corpus.synthesis.families.either import Either
from mens_pipeline.corpus.synthesis.families.vocabulary import DRAWS, FILTERS, WORDS
from mens_pipeline.corpus.synthesis.phrasing import ask
from mens_pipeline.corpus.synthesis.sample import Family, Sample
from mens_pipeline.corpus.synthesis.words import load_words
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.language import CONSTRUCTS, Mode
from mens_pipeline.storage.files import read_regular
from mens_pipeline.storage.validation import errors_in

Header = TypeVar("Header", bound=BaseModel)

_MOST_BYTES: Final = 1_000_000
_HEADER: Final = re.compile(r"^=== ?(.*)$", re.MULTILINE)
_REQUEST: Final = re.compile(r"^--- request(?: about (?P<domain>.+)| (?P<whole>as it stands))?$", re.MULTILINE)
_PROGRAM: Final = re.compile(r"^--- program$", re.MULTILINE)
_TAGS: Final = re.compile(r"\s*(?:{%(?:(?!%}).)*%}\s*)*")
_GAP: Final = re.compile(r"\n{3,}")
_OWN_ERRORS: Final = (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
"""What an expression of a template can raise."""


class _FamilyHeader(BaseModel):
    """What a family says of itself; the first part of its name is the construct, unless it names another one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    family: str = Field(pattern=r"^[a-z0-9_]+/[a-z0-9_]+$")
    teaches: str = Field(default="", alias="construct")
    mode: Mode = Mode.SOURCE


class _PartHeader(BaseModel):
    """What a part says of itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    part: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    takes: str = ""


@dataclass(frozen=True, slots=True)
class _Section:
    """A stretch of a file.

    Attributes:
        path: The file.
        line: Where its header stands, from 1.
        header: What it says of itself.
        source: What follows, behind a comment of as many lines as stand before it in the file.
    """

    path: Path
    line: int
    header: _FamilyHeader | _PartHeader
    source: str

    @property
    def name(self) -> str:
        """The name of the family or part."""
        return self.header.family if isinstance(self.header, _FamilyHeader) else self.header.part

    def refused(self, message: str, line: int = 0) -> ConfigurationError:
        """Return an error with the place in the file."""
        return ConfigurationError(f"{self.path}:{line or self.line}: {self.name}: {message}")


def families_in(folder: Path) -> Iterator[Family]:
    """Families of a folder, in the order of its files; all of it is checked before the first.

    Args:
        folder: Holds `*.vox.jinja` and `*_banks.yaml`.

    Raises:
        ConfigurationError: A file cannot be read or does not fit; the message says where.
    """
    environment = _environment(load_banks(folder))
    sections = [section for path in sorted(folder.glob("*.vox.jinja")) for section in _sections(path)]
    parts = {
        section.name: section.header.takes.split() for section in sections if isinstance(section.header, _PartHeader)
    }
    made = {section.name: _compiled(section, environment, parts) for section in sections}
    if len(made) < len(sections):
        again = next(section for place, section in enumerate(sections) if section.name in _names(sections[:place]))
        raise again.refused("there is another one of this name. Rename one.")
    templates = {name: made[name] for name in parts}
    for section in sections:
        if isinstance(section.header, _FamilyHeader):
            yield _family(section, section.header, made[section.name], templates)


def _names(sections: list[_Section]) -> set[str]:
    return {section.name for section in sections}


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
    ends = [found.start() for found in headers[1:]] + [len(text)]
    for found, end in zip(headers, ends, strict=True):
        line = text.count("\n", 0, found.start()) + 1
        body = "\n".join(map(_kept, text[found.end() + 1 : end].rstrip().split("\n")))
        comment = "{#" + "\n" * (line - 1) + "#}\n"
        section = _Section(path, line, _header(path, line, found[1]), f"{comment}{body}")
        if isinstance(section.header, _FamilyHeader):
            for pattern in (_REQUEST, _PROGRAM):
                if len(pattern.findall(body)) != 1:
                    raise section.refused(
                        f"it has {len(pattern.findall(body))} lines `{pattern.pattern[1:12].rstrip('(?$')}`, not one. "
                        "Write the draws, `--- request`, what is asked for, `--- program`, and the program."
                    )
        yield section


def _kept(line: str) -> str:
    """Mark the tags at the ends of a line that holds more than tags, so that its blanks and its end are kept."""
    if _TAGS.fullmatch(line):
        return line
    return re.sub(r"(?<![-+])%}$", "+%}", re.sub(r"^(\s+){%(?![-+])", r"\1{%+", line))


def _header(path: Path, line: int, text: str) -> _FamilyHeader | _PartHeader:
    pairs = dict(option.partition(": ")[::2] for option in text.split(", "))
    kind = _PartHeader if "part" in pairs else _FamilyHeader
    try:
        header = kind.model_validate(pairs)
    except ValidationError as error:
        raise ConfigurationError(
            f"{path}:{line}: `=== {text}` is no header ({errors_in(error)}). Write `=== family: table/single`, with "
            "`, construct: NAME` or `, mode: ui` behind it where they differ, or `=== part: NAME, takes: NAMES`."
        ) from error
    if isinstance(header, _PartHeader):
        return header
    construct = header.teaches or header.family.partition("/")[0]
    if construct not in CONSTRUCTS:
        raise ConfigurationError(
            f"{path}:{line}: {header.family}: there is no construct {construct!r}. Write `, construct: NAME` behind "
            f"the name, with one of {', '.join(CONSTRUCTS)}."
        )
    return header.model_copy(update={"teaches": construct})


def _compiled(
    section: _Section, environment: jinja2.Environment, parts: Mapping[str, Sequence[str]]
) -> jinja2.Template:
    """Compile a section once; refuse what is no Jinja, and names of nothing."""
    try:
        tree = environment.parse(section.source)
        _check(section, tree, environment, parts)
        code = environment.compile(tree, section.name, str(section.path))
    except jinja2.TemplateSyntaxError as error:
        raise section.refused(f"{error.message}. Correct it.", error.lineno) from error
    return environment.template_class.from_code(environment, code, environment.globals)


def _check(
    section: _Section, tree: nodes.Template, environment: jinja2.Environment, parts: Mapping[str, Sequence[str]]
) -> None:
    given = section.header.takes.split() if isinstance(section.header, _PartHeader) else []
    names = list(tree.find_all(nodes.Name))
    known = {*environment.globals, *DRAWS, *given, "part", "loop"} | {n.name for n in names if n.ctx != "load"}
    for name in names:
        if name.name not in known:
            raise section.refused(
                f"`{name.name}` is no draw of it, no bank and no function. Correct the name, or set it above.",
                name.lineno,
            )
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == "part":
            _check_part(section, call, parts)


def _check_part(section: _Section, call: nodes.Call, parts: Mapping[str, Sequence[str]]) -> None:
    name = call.args[0].value if len(call.args) == 1 and isinstance(call.args[0], nodes.Const) else ""
    given = [argument.key for argument in call.kwargs]
    if sorted(given) != sorted(parts.get(name, ("", ""))):
        wanted = f"it takes {', '.join(parts[name]) or 'nothing'}" if name in parts else f"there are {', '.join(parts)}"
        raise section.refused(f"part {name!r} with {', '.join(given) or 'nothing'}: {wanted}. Correct it.", call.lineno)


def _family(
    section: _Section, header: _FamilyHeader, template: jinja2.Template, parts: Mapping[str, jinja2.Template]
) -> Family:
    def make(random: Random) -> Sample:
        prompt, program = _drawn(section, template, parts, random)
        return Sample(section.name, header.teaches, prompt, program, header.mode)

    return Family(section.name, header.teaches, make, f"{section.path}:{section.line}")


def _drawn(
    section: _Section, template: jinja2.Template, parts: Mapping[str, jinja2.Template], random: Random
) -> tuple[str, str]:
    """Draw a request and a program."""
    draws: dict[str, Any] = {name: _bound(function, random) for name, function in DRAWS.items()}
    draws["part"] = lambda name, **given: parts[name].make_module({**draws, **given})
    try:
        text = template.render(draws)
        return _prompt(random, text), _GAP.sub("\n\n", _PROGRAM.split(text)[1].strip("\n")) + "\n"
    except _OWN_ERRORS as error:
        raise section.refused(f"{error}. Correct it.", _line_of(error, section.path)) from error


def _bound(function: Callable[..., Any], random: Random) -> Callable[..., Any]:
    return lambda *values, **options: function(random, *values, **options)


def _prompt(random: Random, text: str) -> str:
    found = next(_REQUEST.finditer(text))
    lines = _PROGRAM.split(text[found.end() :])[0].split("\n")
    if found["whole"]:
        return "\n".join(lines).strip("\n")
    sentences: list[str] = []
    for line in filter(str.strip, lines):
        if line.startswith(" ") and sentences:
            sentences[-1] += f" {line.strip()}"
        else:
            sentences.append(line.strip())
    return ask(random, *sentences, domain=found["domain"] or "")


def _line_of(error: BaseException, path: Path) -> int:
    """Return the line of a template that an error went through last; 0 when it is of none."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == str(path) else line
        trace = trace.tb_next
    return line
