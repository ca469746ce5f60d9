"""What other files of a workspace could tell about a line: the most that context from them can gain.

`python -m mens_pipeline_tests.bench.context DIR [--lines 2000]`

Two kinds of context are weighed, without a model. Declarations of names that a file uses and does not declare can help
at most the lines that use such a name, where another file declares it. A neighbour, ten lines of another file that are
nearest by BM25 to what stands around the line (SQLite's FTS5), can help at most where it holds the rest of the line.
Rests begin behind a word of the line that is drawn. Programs that the front end rejects are left out.
"""

import argparse
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from mens_pipeline.language import analyze, mode_of, name_of
from mens_pipeline.language.ast import Module
from mens_pipeline.language.semantics import semantic_diagnostics
from mens_pipeline_tests.bench.machine import machine_name

_LINES: Final = 10
"""Of a neighbour: about 96 tokens, as many as a small model has room for."""
_STEP: Final = 5
AROUND: Final = 8
"""Lines before and behind that a neighbour is looked for by."""
_WORD: Final = re.compile(r"\w{3,}")


@dataclass(frozen=True, slots=True)
class Program:
    """An accepted program, by its path below the folder."""

    path: str
    text: str
    module: Module


def main() -> None:
    """Print how many lines each kind of context can help at most."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lines", type=int, default=2_000, help="lines that neighbours are looked for")
    options = parser.parse_args()
    programs = [*read_programs(options.folder)]
    lines = [(program, number) for program in programs for number in code_lines(program.text)]
    print(machine_name(), f"{len(programs)} accepted programs, {len(lines)} lines of code", sep=", ")
    foreign = [use for program in programs for use in foreign_names(program, programs)]
    num_lines = len({(path, line) for path, line, _ in foreign})
    print(f"names that another file alone declares: {num_lines}/{len(lines)} lines, {Counter(n for *_, n in foreign)}")
    random = Random(0)  # noqa: S311 - the same lines each time
    drawn = random.sample(lines, min(options.lines, len(lines)))
    print(f"rests of {len(drawn)} lines: {dict(count_neighbours(programs, drawn, random))}")


def read_programs(folder: Path) -> Iterator[Program]:
    """Yield the programs of a folder that are accepted."""
    for path in sorted(folder.rglob("*.vox")):
        text = path.read_text(encoding="utf-8", errors="replace")
        analysis = analyze(text, mode_of(path.name))
        if analysis.ok and analysis.module is not None:
            yield Program(path.relative_to(folder).as_posix(), text, analysis.module)


def code_lines(text: str) -> Iterator[int]:
    """Yield the numbers of lines that hold more than a comment or a bracket, from 0."""
    for number, line in enumerate(text.split("\n")):
        if _WORD.search(line) and not line.lstrip().startswith("//"):
            yield number


def foreign_names(program: Program, programs: list[Program]) -> Iterator[tuple[str, int, str]]:
    """Yield path, line and name of what a program uses and only another one declares."""
    declaring = defaultdict(set)
    for other in programs:
        for declaration in other.module.declarations:
            declaring[name_of(declaration)].add(other.path)
    for found in semantic_diagnostics(program.module, program.text):
        name = program.text[found.start.offset : found.end.offset]
        if declaring.get(name, set()) - {program.path}:
            yield program.path, program.text.count("\n", 0, found.start.offset), name


def count_neighbours(programs: list[Program], drawn: list[tuple[Program, int]], random: Random) -> Counter[str]:
    """Count the lines whose rest stands in another file, in its nearest neighbour, and in one of the nearest three."""
    index = index_parts((each.path, each.text) for each in programs)
    whole = {each.path: even(each.text) for each in programs}
    found = Counter[str]()
    for program, number in drawn:
        lines = program.text.split("\n")
        words = [match.end() for match in re.finditer(r"\w+\W*", lines[number])][:-1]
        rest = even(lines[number][random.choice([0, *words]) :])
        around = "\n".join(lines[max(0, number - AROUND) : number] + lines[number + 1 : number + 1 + AROUND])
        near = [even(text) for text in find_near(index, around, program.path, 3)]
        found["somewhere"] += any(rest in text for path, text in whole.items() if path != program.path)
        found["nearest"] += any(rest in text for text in near[:1])
        found["nearest three"] += any(rest in text for text in near)
    return found


def index_parts(texts: Iterable[tuple[str, str]]) -> sqlite3.Connection:
    """Return an index of pieces of ten lines, of texts with their names."""
    index = sqlite3.connect(":memory:")
    index.execute("CREATE VIRTUAL TABLE near USING fts5(text, path UNINDEXED)")
    index.executemany("INSERT INTO near VALUES (?, ?)", ((part, name) for name, text in texts for part in _parts(text)))
    return index


def find_near(index: sqlite3.Connection, around: str, path: str, most: int) -> list[str]:
    """Return pieces of other texts that are nearest to a text by BM25, at most so many."""
    asked = " OR ".join(f'"{word}"' for word in dict.fromkeys(_WORD.findall(around)))
    query = "SELECT text FROM near WHERE near MATCH ? AND path != ? ORDER BY bm25(near) LIMIT ?"
    return [text for (text,) in index.execute(query, (asked, path, most))] if asked else []


def _parts(text: str) -> Iterator[str]:
    lines = text.split("\n")
    for begin in range(0, max(1, len(lines) - _STEP), _STEP):
        yield "\n".join(lines[begin : begin + _LINES])


def even(text: str) -> str:
    """Return a text with one blank for each white space."""
    return " ".join(text.split())


if __name__ == "__main__":
    main()
