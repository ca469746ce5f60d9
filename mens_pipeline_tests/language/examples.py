"""The labelled programs that the tests of the language share."""

import gzip
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import mens_pipeline.language
from mens_pipeline.language import Mode, analyze, tokenize
from mens_pipeline.language.ast import Module
from mens_pipeline.language.taxonomy import construct_of
from mens_pipeline.settings import PROJECT_ROOT

_CASES = Path(__file__).parent / "conformance" / "cases.jsonl.gz"
_REFERENCE = Path(mens_pipeline.language.__file__).parent / "vox-language.md"
_ROW = re.compile(r"^X\d+ \| .*$", re.MULTILINE)
GOLDEN = PROJECT_ROOT / "data" / "golden"


@dataclass(frozen=True, slots=True)
class Case:
    """A program with the verdict of the reference compiler; no constructs when it is rejected."""

    id: str
    mode: Mode
    source: str
    ok: bool
    constructs: dict[str, int]


@cache
def conformance_cases() -> tuple[Case, ...]:
    """The cases of the conformance file."""
    with gzip.open(_CASES, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return tuple(
        Case(row["id"], Mode(row["mode"]), row["source"], row["ok"], row.get("constructs", {})) for row in rows
    )


@cache
def reference_examples() -> tuple[Case, ...]:
    """The examples of section 8 of the language reference."""
    cases = []
    for row in _ROW.findall(_REFERENCE.read_text(encoding="utf-8")):
        name, verdict, mode, _rules, counts, source = row.split(" | ", 5)
        pairs = () if counts in {"-", "none"} else (count.split(":") for count in counts.split(","))
        constructs = {construct: int(count) for construct, count in pairs}
        cases.append(Case(name, Mode(mode), json.loads(source), verdict == "accept", constructs))
    return tuple(cases)


@cache
def golden_programs() -> dict[str, str]:
    """Name -> text of the golden programs."""
    return {
        path.relative_to(GOLDEN).as_posix(): path.read_text(encoding="utf-8") for path in sorted(GOLDEN.rglob("*.vox*"))
    }


def right_programs() -> dict[str, str]:
    """Name -> text of the golden programs and of the references of the benchmark."""
    paths = (PROJECT_ROOT / "data" / "heldout_bench").rglob("*.vox*")
    references = {path.name: path.read_text("utf-8") for path in sorted(paths) if path.parent.name == "solutions"}
    return {**golden_programs(), **references}


def parse(source: str, mode: Mode = Mode.SOURCE) -> Module:
    """Return the tree of a text that must be accepted."""
    analysis = analyze(source, mode)
    assert analysis.module is not None, analysis.errors
    return analysis.module


class Program(NamedTuple):
    """A name, a text, and how it is read."""

    name: str
    source: str
    mode: Mode


def shown_by(program: Program) -> set[str]:
    """Return the constructs of a program and the kinds of its neighbouring tokens."""
    module = analyze(program.source, program.mode).module
    kinds = [token.kind for token in tokenize(program.source) if not token.is_trivia]
    constructs = {construct_of(declaration).name for declaration in module.declarations} if module else set()
    return constructs | {f"{one} {other}" for one, other in pairwise(kinds)}


def showing_all(programs: Iterable[Program]) -> list[Program]:
    """Return short programs that together show the same as all: for tests that take a millisecond per character."""
    chosen: list[Program] = []
    shown: set[str] = set()
    for program in sorted(programs, key=lambda program: (len(program.source), program.name)):
        if new := shown_by(program) - shown:
            shown |= new
            chosen.append(program)
    return chosen
