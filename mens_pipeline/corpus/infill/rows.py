"""Cut infill rows from training programs: more from workspace than synthetic programs, and no held-out lines."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from random import Random
from typing import Final

from pydantic import Field

from mens_pipeline.corpus.infill import INFILL
from mens_pipeline.corpus.infill.holes import Hole, draw_holes
from mens_pipeline.corpus.infill.views import draw_view
from mens_pipeline.corpus.schema.account import Account, counts_of
from mens_pipeline.corpus.schema.prompts import collapse_spaces
from mens_pipeline.corpus.schema.reasons import InfillDrop
from mens_pipeline.corpus.schema.records import HoleKind, InfillContext, SourceKind, TrainingPair, parsed_code
from mens_pipeline.language import analyze
from mens_pipeline.storage.validation import Strict

ROWS: Final = "infill.jsonl"

_PREFIX_CHARACTERS: Final = 4_000
_SUFFIX_CHARACTERS: Final = 2_000
"""Characters around the hole that a row keeps; a model sees a window of them."""

_COMMON_CHARACTERS: Final = 24  # shorter lines, without white space, occur in many unrelated files
_WHOLE: Final = frozenset((SourceKind.VOX_FILE, SourceKind.DOC_BLOCK, SourceKind.SYNTHETIC, SourceKind.TELEMETRY))


class InfillPolicy(Strict):
    """Number of infill rows, and how they are drawn."""

    share: float = Field(default=0.3, ge=0, lt=1, description="Largest share of the train set; 0: no infill rows.")
    per_file: int = Field(default=6, ge=1, le=1_000, description="Most holes in one program of the workspace.")
    synthetic_share: float = Field(
        default=0.25, ge=0, le=1, description="Share of the synthetic programs in which one hole is cut."
    )
    view_share: float = Field(
        default=0.3,
        ge=0,
        le=1,
        description="Share of the rows that show a window as editors send it, or an unfinished line above the cursor.",
    )
    seed: int = Field(default=0, ge=0, description="Determines the holes.")


class InfillReport(Strict):
    """Counts of infill rows by kind and number of lines, and of dropped programs and holes by reason."""

    num_rows: int
    kinds: dict[str, int]
    lines: dict[int, int]
    dropped: dict[str, int]


@dataclass(kw_only=True)
class InfillRows(Account[InfillDrop]):
    """Infill rows, and counts of programs without a hole and of dropped holes."""

    rows: list[TrainingPair] = field(default_factory=list)

    def report(self) -> InfillReport:
        """Return the counts."""
        kinds = Counter(row.infill.kind for row in self.rows if row.infill is not None)
        lines = Counter(row.response.count("\n") + 1 for row in self.rows)
        return InfillReport(
            num_rows=self.kept,
            kinds=counts_of(HoleKind, kinds),
            lines=dict(sorted(lines.items())),
            dropped=counts_of(InfillDrop, self.dropped),
        )


def cut_rows(
    pairs: Iterable[TrainingPair],
    heldout: Iterable[TrainingPair],
    policy: InfillPolicy,
    accepted: Iterable[TrainingPair] = (),
) -> InfillRows:
    """Cut holes in the programs of training pairs; skip declarations of a file that is present as a whole.

    No hole touches a line of the `heldout` pairs, unless the line is short enough to be common. `accepted` are infill
    rows from users, which come first and follow the same rule.
    """
    rows, seen, lines = InfillRows(), set[bytes](), HeldoutLines(heldout)
    for row, program, hole in chain(_accepted_rows(accepted), _cut(pairs, policy, rows)):
        rows.seen += 1
        if lines.holds(program, hole):
            rows.dropped[InfillDrop.HELD_OUT_LINES] += 1
        elif row.digest in seen:
            rows.dropped[InfillDrop.DUPLICATE] += 1
        else:
            seen.add(row.digest)
            rows.rows.append(row)
            rows.kept += 1
    rows.check()
    return rows


def _accepted_rows(accepted: Iterable[TrainingPair]) -> Iterator[tuple[TrainingPair, str, Hole]]:
    for row in accepted:
        assert row.infill is not None, "an infill row"  # noqa: S101 - an internal invariant
        program = row.prompt + row.response + row.infill.suffix
        yield row, program, Hole(len(row.prompt), len(row.prompt + row.response), row.infill.kind)


def _cut(
    pairs: Iterable[TrainingPair], policy: InfillPolicy, rows: InfillRows
) -> Iterator[tuple[TrainingPair, str, Hole]]:
    for pair in _programs(pairs, policy, rows):
        dice = _dice(policy, "views", pair)
        for hole in _draw_holes(pair, policy, rows):
            source = pair.response
            prefix = source[max(0, hole.start - _PREFIX_CHARACTERS) : hole.start]
            suffix = source[hole.end : hole.end + _SUFFIX_CHARACTERS]
            prefix, suffix = draw_view(prefix, suffix, policy.view_share, dice)
            row = {
                "prompt": prefix,
                "response": source[hole.start : hole.end],
                "task_family": INFILL,
                "tests": None,
                "infill": InfillContext(kind=hole.kind, suffix=suffix),
            }
            yield pair.model_copy(update=row), source, hole


class HeldoutLines:
    """The lines of held-out programs that are too long to occur in several files by chance."""

    def __init__(self, heldout: Iterable[TrainingPair]) -> None:
        lines = (collapse_spaces(line) for pair in heldout for line in pair.response.splitlines())
        self._lines = {line for line in lines if len(line.replace(" ", "")) >= _COMMON_CHARACTERS}

    def holds(self, source: str, hole: Hole) -> bool:
        """Return whether a held-out program contains the piece in a hole or a whole line that the hole touches."""
        start = source.rfind("\n", 0, hole.start) + 1
        end = source.find("\n", hole.end)
        whole = source[start : end if end >= 0 else len(source)].splitlines()
        return any(collapse_spaces(line) in self._lines for line in (*whole, source[hole.start : hole.end]))


def _programs(pairs: Iterable[TrainingPair], policy: InfillPolicy, rows: InfillRows) -> Iterator[TrainingPair]:
    by_file: defaultdict[str, list[TrainingPair]] = defaultdict(list)
    for number, pair in enumerate(pairs):
        if pair.infill is None:
            by_file[pair.source.path if pair.source is not None else f"row {number}"].append(pair)
    for path, found in by_file.items():
        whole = [pair for pair in found if pair.source is None or pair.source.kind in _WHOLE]
        rows.seen += len(found) - len(whole) if whole else 0
        rows.dropped[InfillDrop.PART_OF_FILE] += len(found) - len(whole) if whole else 0
        texts = set[str]()
        for pair in whole or found:
            if pair.response in texts:
                continue
            texts.add(pair.response)
            if _is_synthetic(pair) and _dice(policy, path, pair).random() >= policy.synthetic_share:
                rows.seen += 1
                rows.dropped[InfillDrop.SAMPLED_OUT] += 1
            else:
                yield pair


def _draw_holes(pair: TrainingPair, policy: InfillPolicy, rows: InfillRows) -> Sequence[Hole]:
    code = parsed_code(pair)
    module = analyze(*code).module if code is not None else None
    if module is None:
        rows.seen += 1
        rows.dropped[InfillDrop.NO_PROGRAM] += 1
        return ()
    number = 1 if _is_synthetic(pair) else policy.per_file
    holes = draw_holes(pair.response, module, number, _dice(policy, "holes", pair))
    if not holes:
        rows.seen += 1
        rows.dropped[InfillDrop.NO_HOLE] += 1
    return holes


def _is_synthetic(pair: TrainingPair) -> bool:
    return pair.source is not None and pair.source.kind is SourceKind.SYNTHETIC


def _dice(policy: InfillPolicy, purpose: str, pair: TrainingPair) -> Random:
    digest = hashlib.sha256(pair.response.encode("utf-8", "surrogatepass")).hexdigest()
    return Random(f"{policy.seed}:{purpose}:{digest}")  # noqa: S311 - a reproducible draw, no secret
