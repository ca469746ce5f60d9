"""Template files: their syntax, and the errors of bad ones."""

import re
from pathlib import Path
from random import Random

import pytest

from mens_pipeline.corpus.synthesis import synthetic_corpus as module
from mens_pipeline.corpus.synthesis.families.templates import Sample, fold_record, load_banks, load_families
from mens_pipeline.corpus.synthesis.synthetic_corpus import generate
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.language import Mode, analyze
from mens_pipeline.settings import PROJECT_ROOT

_BANKS = """banks:
  DOORS:
    columns: [name, open]
    rows:
      - [Gate, wide]
      - [Hatch, ajar]
  COLOURS: [red, green]
"""
_TEMPLATE = """Doors of all kinds.

=== part: painted, takes: door
{% set colour = choice(COLOURS) %}
the ${colour} ${door.name}

{# A door is a function. #}
=== family: function/door
{% set door = choice(DOORS) %}
{% set painted = part("painted", door=door) %}
--- request about library
a function `${door.name.lower()}`
It returns "${door.open}",
  {% if painted.colour == "red" %}in red{% else %}in another colour{% endif %},
{%- if one_in(2) %} no more{% endif %}.
{% either %}
It is short.
{% or %}
It is small: ${painted}.
{% endeither %}
--- program
{% if one_in(2) %}
// ${painted}

{% endif %}

fn ${door.name.lower()}() to str {
    {% if one_in(2) %}return {% endif %}"${door.open}"
}
"""
_TEMPLATES = {"template": 1.0, "combination": 0.0, "task": 0.0}


def _random(seed: int = 0) -> Random:
    return Random(seed)  # noqa: S311 - a reproducible draw, no secret


def _folder(folder: Path, template: str = _TEMPLATE, banks: str = _BANKS) -> Path:
    (folder / "some.vox.jinja").write_text(template, encoding="utf-8")
    (folder / "some_banks.yaml").write_text(banks, encoding="utf-8")
    return folder


def _samples(folder: Path, number: int = 60) -> list[Sample]:
    (family,) = load_families(folder)
    return [family.make(_random(seed)) for seed in range(number)]


def test_a_template_is_a_request_and_a_program(tmp_path: Path) -> None:
    samples = _samples(_folder(tmp_path))

    assert {(sample.template, sample.construct, sample.mode) for sample in samples} == {
        ("function/door", "function", Mode.SOURCE)
    }
    assert {sample.response for sample in samples} == {
        f'{painted}fn {name}() to str {{\n    {returned}"{value}"\n}}\n'
        for name, value in (("gate", "wide"), ("hatch", "ajar"))
        for returned in ("return ", "")
        for painted in ("", f"// the red {name.capitalize()}\n\n", f"// the green {name.capitalize()}\n\n")
    }
    assert any('It returns "wide", in another colour, no more.' in sample.prompt for sample in samples)
    assert any("It is small: the red Hatch." in sample.prompt for sample in samples)
    assert any("library" in sample.prompt for sample in samples)


def test_a_request_can_be_verbatim(tmp_path: Path) -> None:
    header = "=== family: import/logs, construct: function, mode: ui"
    template = f"{header}\n--- request as it stands\nDo\n\n  this.\n--- program\nfn f() {{ }}\n"
    (sample,) = _samples(_folder(tmp_path, template), 1)

    assert sample == Sample("import/logs", "function", "Do\n\n  this.", "fn f() { }\n", Mode.UI)


def test_the_template_of_the_documentation_is_valid(tmp_path: Path) -> None:
    page = (PROJECT_ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    (template,) = re.findall(r"^```jinja\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    samples = _samples(_folder(tmp_path, template))

    assert all(analyze(sample.response).ok for sample in samples)
    assert {"@index" in sample.response for sample in samples} == {True, False}


def test_a_record_is_folded_if_it_fits() -> None:
    short = "    return {\n        a: 1,\n        b: 2,\n    }?\n"
    long = short.replace("1", "1" * 80)

    assert fold_record(short) == "    return { a: 1, b: 2 }?\n"
    assert fold_record(long) == long


_REFUSED = {
    "no-header": ("=== family: function/door", "=== function/door", r"some\.vox\.jinja:8: .*family: Field required"),
    "unknown-key": ("function/door", "function/door, mod: ui", r":8: .*mod: unknown.*Write `=== family"),
    "no-mode": ("function/door", "function/door, mode: web", r":8: .*mode: Input should be"),
    "no-construct": ("function/door", "fonction/door", r":8: fonction/door: there is no construct 'fonction'\. Write"),
    "no-program": ("--- program\n", "", r":8: function/door: its lines .* are \['--- request about library'\]"),
    "two-requests": ("--- program\n", "--- request\n--- program\n", r":8: .*'--- request', '--- program'\]\. Write"),
    "syntax": ("{% endeither %}", "", r":\d+: function/door: .*Correct it"),
    "no-jinja": ("choice(DOORS) %}", "choice(DOORS %}", r":9: function/door: .*Correct it"),
    "no-bank": ("choice(DOORS)", "choice(GATES)", r":9: function/door: `GATES` is not a draw, a bank or a fun"),
    "no-name": ('${door.open}",', '${dor.open}",', r":13: function/door: `dor` is not a draw"),
    "no-part": ('part("painted"', 'part("coloured"', r":10: .*part 'coloured' with door: there are painted\. Correct"),
    "not-given": ("door=door", "gate=door", r":10: .*part 'painted' with gate: it takes door\. Correct it"),
    "given-none": (", takes: door", "", r":(5|10): .*(`door` is not a draw|it takes nothing)"),
    "twice": ("=== family", "=== part: painted\n=== family", r":8: painted: .*:3 has the same name\. Rename"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), _REFUSED.values(), ids=_REFUSED.keys())
def test_bad_templates_are_refused_when_they_are_read(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in _TEMPLATE
    with pytest.raises(ConfigurationError, match=message):
        load_families(_folder(tmp_path, _TEMPLATE.replace(old, new, 1)))


_MISDRAWN = {
    "attribute": ('${door.open}",', '${door.shut}",', r":13: function/door: .*no attribute 'shut'\. Correct it"),
    "in-a-part": ("the ${colour} ${door.name}", "${door.names}", r":5: function/door: .*no attribute 'names'\. Corr"),
    "value": ("one_in(2)", "one_in(0)", r":15: function/door: empty range"),
    "domain": ("about library", "about libary", r":8: function/door: there is no domain 'libary' in words\.yaml"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), _MISDRAWN.values(), ids=_MISDRAWN.keys())
def test_bad_draws_are_refused_when_they_are_drawn(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in _TEMPLATE
    with pytest.raises(ConfigurationError, match=message):
        _samples(_folder(tmp_path, _TEMPLATE.replace(old, new, 1)))


def test_an_empty_request_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r":1: function/f: the request is empty; its first line"):
        _samples(_folder(tmp_path, "=== family: function/f\n--- request\n--- program\nfn f() { }\n"), 1)


def test_a_file_without_families_is_refused(tmp_path: Path) -> None:
    other = _folder(tmp_path) / "other.vox.jinja"
    other.write_bytes(b"\xff")

    with pytest.raises(ConfigurationError, match=r"other\.vox\.jinja: cannot be read as UTF-8 text"):
        load_families(tmp_path)

    other.write_text("== family: function/f\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"other\.vox\.jinja: it has no family and no part\. Begin one"):
        load_families(tmp_path)


_BAD_BANKS = {
    "short-row": ("[Gate, wide]", "[Gate]", r"some_banks\.yaml: banks\.DOORS: row 1 is \['Gate'\], not a list of 2"),
    "no-row": ("[Gate, wide]", "Gate", r"banks\.DOORS: row 1 is 'Gate', not a list of 2 values"),
    "date": ("[red, green]", "[2026-03-02]", r"banks\.COLOURS\.rows\.0.*Input should be a valid string"),
    "keyword": ("[name, open]", "[name, class]", r"columns: Type names and field names cannot be a keyword"),
    "column-twice": ("[name, open]", "[name, name]", r"banks\.DOORS\.columns: Encountered duplicate field name"),
    "yes": ("ajar", "off", r"column open has values of the types bool, str; put text in quotes"),
    "empty": ("[red, green]", "[]", r"banks\.COLOURS.*at least 1 item"),
    "column": ("columns: [name, open]", "columns: [name, Open]", r"banks\.DOORS.*columns\.1"),
}


@pytest.mark.parametrize(("old", "new", "message"), _BAD_BANKS.values(), ids=_BAD_BANKS.keys())
def test_bad_banks_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    """The error names file, bank and row; YAML reads a bare `off` as a boolean."""
    with pytest.raises(ConfigurationError, match=message):
        load_banks(_folder(tmp_path, banks=_BANKS.replace(old, new)))


def test_two_banks_of_one_name_are_refused(tmp_path: Path) -> None:
    (_folder(tmp_path) / "other_banks.yaml").write_text("banks: {COLOURS: [blue]}\n", encoding="utf-8")

    with pytest.raises(
        ConfigurationError, match=r"some_banks\.yaml: banks\.COLOURS: there is another bank.*Rename one"
    ):
        load_banks(tmp_path)


@pytest.mark.parametrize(
    ("program", "found"), [("fn f( { }", r"line 1: .+"), ("// nothing", "it declares nothing")], ids=["error", "empty"]
)
@pytest.mark.parametrize("kind", ["template", "combination"])
def test_a_program_that_the_front_end_rejects_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, program: str, found: str
) -> None:
    text = "=== family: {0}/f, construct: function\n--- request\na function `f`\n--- program\n{1}\n"
    families = load_families(_folder(tmp_path, text.format("combination", program) + text.format("function", program)))
    monkeypatch.setattr(module, "load_families", lambda: families)
    shares = dict.fromkeys(_TEMPLATES, 0.0) | {kind: 1.0}

    with pytest.raises(
        ConfigurationError, match=rf"(?s)some\.vox\.jinja:[16]: \w+/f: the front end .*\({found}.*Correct"
    ):
        list(generate(1, 0, shares, {}))
