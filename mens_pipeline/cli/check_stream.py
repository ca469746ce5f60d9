"""JSON lines in, verdicts out, one line in memory at a time."""

import json
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, TextIO

from mens_pipeline.corpus.schema.shares import share_text
from mens_pipeline.language.front_end import analyze
from mens_pipeline.language.parser.modules import Mode
from mens_pipeline.language.semantics import semantic_diagnostics, semantic_records
from mens_pipeline.language.verdict import verdict_record
from mens_pipeline.storage.files import bounded_lines

MAX_REQUEST_BYTES: Final = 67_108_864
"""Of a line; a longer one is answered as malformed, and never held as a whole."""


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """What went by.

    Attributes:
        seen: Lines that hold anything.
        rejected: Texts that are no Vox.
        malformed: Lines that are no request.
    """

    seen: int
    rejected: int
    malformed: int

    @property
    def text(self) -> str:
        """The counts in one line."""
        accepted = self.seen - self.rejected - self.malformed
        share = share_text(accepted, self.seen)
        return f"accepted {share}, rejected {self.rejected}, malformed lines {self.malformed}"


def check_stream(lines: BinaryIO, out: TextIO, default: Mode, *, with_semantics: bool = True) -> StreamSummary:
    """Answer each request with one line, in order, at once.

    Args:
        lines: Holds JSON objects with `id`, `source` and perhaps `mode`; blank lines are passed over.
        out: Where the answers go; a malformed line is answered too, with a null `id` and an `error`.
        default: The mode of a request that names none.
        with_semantics: Whether the answer to an accepted text says in `semantic` what is wrong with its names and
            types; that decides nothing.
    """
    seen = rejected = malformed = 0
    for number, line in enumerate(bounded_lines(lines, MAX_REQUEST_BYTES), start=1):
        if not line.strip():
            continue
        seen += 1
        answer = _answer(line, number, default, with_semantics=with_semantics)
        malformed += "error" in answer
        rejected += "error" not in answer and not answer["ok"]
        out.write(json.dumps(answer) + "\n")
        out.flush()
    return StreamSummary(seen, rejected, malformed)


def _answer(line: bytes, number: int, default: Mode, *, with_semantics: bool) -> dict[str, Any]:
    if len(line) > MAX_REQUEST_BYTES:
        return _malformed(None, number, f"has more than {MAX_REQUEST_BYTES} bytes")
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        return _malformed(None, number, f"is not JSON ({error})")
    if not isinstance(request, dict):
        return _malformed(None, number, "is not an object")
    identity = request.get("id")
    source = request.get("source")
    mode = request.get("mode", default)
    if not isinstance(source, str):
        return _malformed(identity, number, "has no text in `source`")
    if mode not in tuple(Mode):
        return _malformed(identity, number, f"has mode {mode!r}; write source, script or ui")
    analysis = analyze(source, Mode(mode))
    answer = {"id": identity, **verdict_record(analysis)}
    if with_semantics and analysis.module is not None:
        answer["semantic"] = semantic_records(semantic_diagnostics(analysis.module, source))
    return answer


def _malformed(identity: object, number: int, problem: str) -> dict[str, Any]:
    message = f'line {number} {problem}. Expected {{"id": ..., "source": "...", "mode": "source"}}.'
    return {"id": identity, "ok": False, "declarations": [], "constructs": {}, "diagnostics": [], "error": message}
