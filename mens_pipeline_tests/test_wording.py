"""Code and pages use one word for each idea: that of the glossary, which is the usual one if there is one."""

import io
import re
import tokenize
from pathlib import Path
from typing import Final

from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.bench.structure import find_participles, read_modules
from mens_pipeline_tests.every import every

_CODE: Final = sorted(PROJECT_ROOT.glob("mens_pipeline/**/*.py"))
_PAGES: Final = [PROJECT_ROOT / "README.md", PROJECT_ROOT / "CONTRIBUTING.md", *sorted(PROJECT_ROOT.glob("docs/*.md"))]
_OLD_NAME: Final = re.compile(
    r"(?:^|_)(?:answers?|exams?|rivals?|judged|judgements?|told|untold|tells?|say|anew|wish|seats?|desk|objections?|mistakes?"
    r"|num_values|num_updates)(?:_|$)"
)
"""Parts of names. Now: completion, eval suite, baseline, evaluated, score, log, again, reason, error, parameters."""
_KNOWN: Final = {"WRONG_ANSWER": "what judges of programs call an output that differs from the expected one"}
_OLD_PROSE: Final = re.compile(r"\b(?:exams?|rivals?|anew|whoever|as it was|lets go)\b", re.IGNORECASE)
_MOST_WORDS: Final = 40
"""Of a bullet on a page."""
_LONGEST_LINE: Final = 122
_MOST_ENTRIES: Final = 45
"""Of the glossary, including its heading: words of a single page are explained there."""


def _split(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _tokens(path: Path, kind: int) -> list[tuple[int, str]]:
    text = path.read_text(encoding="utf-8")
    return [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == kind
    ]


@every("path", _CODE)
def test_names_use_the_words_of_the_glossary(path: Path) -> None:
    found = {name for _, name in _tokens(path, tokenize.NAME) if _OLD_NAME.search(_split(name)) and name not in _KNOWN}

    assert not found


@every("path", [*_CODE, *_PAGES])
def test_texts_use_the_words_of_the_glossary(path: Path) -> None:
    found = _OLD_PROSE.findall(path.read_text(encoding="utf-8"))

    assert not found


def test_functions_are_named_by_verbs() -> None:
    assert find_participles(read_modules()) == []


@every("page", [page for page in _PAGES if page.name != "experiments.md"])
def test_bullets_are_short(page: Path) -> None:
    bullets = re.findall(r"^- .*(?:\n  \S.*)*", page.read_text(encoding="utf-8"), re.MULTILINE)
    long = [bullet.split("\n")[0] for bullet in bullets if len(bullet.split()) - 1 > _MOST_WORDS]

    assert not long


@every("page", [page for page in _PAGES if page.name not in {"experiments.md", "reliability.md", "results.md"}])
def test_prose_is_wrapped(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)

    assert [line for line in prose.splitlines() if len(line) > _LONGEST_LINE and line[:1] not in {"|", "!"}] == []


def test_a_word_of_the_glossary_has_no_second_name() -> None:
    """An entry with brackets would be a translation; nobody reads a long glossary."""
    entries = re.findall(
        r"^\| ([^|]+) \|", (PROJECT_ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE
    )

    assert 30 < len(entries) <= _MOST_ENTRIES
    assert [entry for entry in entries if "(" in entry] == []
