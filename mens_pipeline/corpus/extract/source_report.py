"""Verdicts of the front end on a whole workspace."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from mens_pipeline.language.front_end import analyze_bytes
from mens_pipeline.language.parser.modules import mode_of
from mens_pipeline.language.taxonomy import CONSTRUCTS, construct_of


@dataclass(frozen=True, slots=True)
class RejectedFile:
    """A file that is no Vox, and the first reason.

    `line` is that of the first error, from 1; only golden files count for the parse rate.
    """

    path: str
    line: int
    code: str
    message: str
    is_golden: bool = True


@dataclass(frozen=True, slots=True)
class SourceReport:
    """The verdicts on the files of a workspace.

    The parse rate is asked of the `num_golden` files; `constructs` counts declarations over accepted files, 0 for a
    construct that does not occur.
    """

    num_files: int
    num_golden: int
    num_bytes: int
    rejected: tuple[RejectedFile, ...]
    constructs: dict[str, int]

    @property
    def num_accepted(self) -> int:
        """Golden files that the front end accepts."""
        return self.num_golden - sum(file.is_golden for file in self.rejected)

    @property
    def parse_rate(self) -> float | None:
        """Accepted golden files over all of them; None when there are none."""
        return self.num_accepted / self.num_golden if self.num_golden else None

    @property
    def missing_constructs(self) -> tuple[str, ...]:
        """Constructs of which the workspace has no example."""
        return tuple(name for name, count in self.constructs.items() if count == 0)


def report_sources(
    contents: Iterable[tuple[str, bytes | None]], is_golden: Callable[[str], bool] = lambda _path: True
) -> SourceReport:
    """Check every file of a workspace.

    `contents` are relative paths with the bytes of the file; None for a file that cannot be read.
    """
    num_files = num_golden = num_bytes = 0
    rejected: list[RejectedFile] = []
    counts: Counter[str] = Counter()
    for path, data in contents:
        golden = is_golden(path)
        num_files += 1
        num_golden += golden
        if data is None:
            rejected.append(RejectedFile(path, 1, "unreadable", "the file cannot be read", golden))
            continue
        num_bytes += len(data)
        analysis = analyze_bytes(data, mode_of(Path(path).name))
        if analysis.module is None:
            first = analysis.errors[0]
            rejected.append(RejectedFile(path, first.start.line, str(first.code), first.message, golden))
        else:
            counts.update(construct_of(declaration).name for declaration in analysis.module.declarations)
    counted = {name: counts[name] for name in CONSTRUCTS}
    return SourceReport(num_files, num_golden, num_bytes, tuple(rejected), counted)
