"""Count pieces at a cursor that are sent, withheld and accepted.

Clients report the text that a person accepted. With a table, it becomes a row for training; else it is only counted.
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os.path import commonprefix
from typing import Any, Final

from fastapi.concurrency import run_in_threadpool
from prometheus_client import CollectorRegistry, Counter
from pydantic import BaseModel, ConfigDict, Field

from mens_pipeline.corpus.telemetry.accepted import AcceptedPieces
from mens_pipeline.serving.generation import GenerationRequest, GenerationResult, Withheld
from mens_pipeline.serving.http import RequestRefusedError

FEEDBACK: Final = "/v1/feedback"

WHY_WITHHELD: Final[Mapping[Withheld | None, str]] = {
    Withheld.DOES_NOT_PARSE: "the model found no piece that parses at the cursor",
    Withheld.WRONG_NAME: "the piece has an error in names or types; mens serve --show-all sends it",
    Withheld.FINISHED: "the cursor is in a comment or a string, or after the last declaration",
    Withheld.UNSURE: "the model is too unsure of the piece; mens serve --show-all sends it",
}
_EMPTY: Final = "empty"  # the reason if the model wrote nothing
_MOST_REMEMBERED: Final = 1_000  # requests whose pieces can still be reported
_BEFORE, _AFTER = 4_000, 2_000
"""Characters to remember before and after a cursor, as many as infill rows have."""


class FeedbackRequest(BaseModel):
    """Body of `POST /v1/feedback`: the accepted text of a completion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: str = Field(max_length=100, description="The `id` of the completion.")
    accepted: str = Field(min_length=1, description="The accepted text, from the beginning of the completion.")


@dataclass(frozen=True, slots=True)
class _Sent:
    before: str
    after: str
    pieces: tuple[str, ...]


class CursorUse:
    """Counts pieces at a cursor, and receives reports of accepted ones, in the thread of the event loop."""

    def __init__(
        self, registry: CollectorRegistry, table: AcceptedPieces | None, log_line: Callable[[str], None]
    ) -> None:
        self._table = table
        self._log_line = log_line
        self._sent: OrderedDict[str, _Sent] = OrderedDict()
        self._shown = Counter("mens_pieces_shown", "Pieces at a cursor that were sent.", registry=registry)
        self._withheld = Counter(
            "mens_pieces_withheld", "Pieces at a cursor that were not sent.", ("reason",), registry=registry
        )
        self._accepted = Counter("mens_pieces_accepted", "Pieces that clients reported as accepted.", registry=registry)
        self._characters = Counter("mens_characters_kept", "Characters of accepted pieces.", registry=registry)

    def note(self, request: GenerationRequest, result: GenerationResult) -> None:
        """Count a piece, and remember it if it is sent; ignore completions that are not at a cursor."""
        if request.suffix is None:
            return
        if not result.text:
            self._withheld.labels(result.withheld or _EMPTY).inc()
            self._log_line(f"no completion at a cursor: {WHY_WITHHELD.get(result.withheld, 'the model wrote nothing')}")
            return
        self._shown.inc()
        found = self._sent.pop(request.id, _Sent((request.text or "")[-_BEFORE:], request.suffix[:_AFTER], ()))
        self._sent[request.id] = _Sent(found.before, found.after, (*found.pieces, result.text))
        if len(self._sent) > _MOST_REMEMBERED:
            self._sent.popitem(last=False)

    async def accept(self, report: FeedbackRequest) -> dict[str, Any]:
        """Count accepted text, once for each completion, and write it to the table if there is one.

        Text beyond the piece is not counted, and prevents the row: only text of the model becomes a row. Returns
        the number of characters kept, and whether a row was written. `RequestRefusedError` if the id is unknown or was
        reported before, or no piece begins with this text.
        """
        key = report.id.rpartition("-")[2]
        sent = self._sent.get(key)
        if sent is None:
            message = "id: no recent piece at a cursor has this id, or it was reported before."
            raise RequestRefusedError(404, message, param="id", code="completion_not_found")
        kept = max((commonprefix([report.accepted, piece]) for piece in sent.pieces), key=len)  # noqa: RUF071 - of texts
        if not kept:
            message = "accepted: the completion does not begin with this text. Send the accepted part unchanged."
            raise RequestRefusedError(400, message, param="accepted", code="invalid_value")
        del self._sent[key]
        self._accepted.inc()
        self._characters.inc(len(kept))
        is_recorded = kept == report.accepted and await run_in_threadpool(self._record, sent, kept)
        return {"id": report.id, "characters_kept": len(kept), "recorded": is_recorded}

    def _record(self, sent: _Sent, piece: str) -> bool:
        if self._table is None:
            return False
        try:
            return self._table.add(sent.before, piece, sent.after)
        except sqlite3.Error as error:
            self._log_line(f"accepted pieces cannot be written: {error}. Restart the server with another file.")
            return False
