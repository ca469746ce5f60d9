"""Count pieces at a cursor that are sent, withheld and accepted, and keep those that were accepted.

Clients report what a person accepted. With a table to write to, what was accepted becomes a row that a night can train
on; without one it is counted, and forgotten.
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from fastapi.concurrency import run_in_threadpool
from prometheus_client import CollectorRegistry, Counter
from pydantic import BaseModel, ConfigDict, Field

from mens_pipeline.corpus.telemetry.accepted import AcceptedPieces
from mens_pipeline.serving.generation import GenerationRequest, GenerationResult
from mens_pipeline.serving.http import RequestRefusedError

FEEDBACK: Final = "/v1/feedback"

_EMPTY: Final = "empty"
"""Why nothing is sent where the model wrote nothing."""
_MOST_REMEMBERED: Final = 1_000
"""Requests whose pieces can still be reported as accepted."""
_BEFORE, _BEHIND = 4_000, 2_000
"""Characters around a cursor that are remembered, as infill rows have them."""


class FeedbackRequest(BaseModel):
    """Body of `POST /v1/feedback`: the accepted text of a completion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: str = Field(max_length=100, description="The `id` of the completion.")
    accepted: str = Field(min_length=1, description="The text that was accepted, from its beginning on.")


@dataclass(frozen=True, slots=True)
class _Sent:
    """Pieces of one request that were sent, and what stands around its cursor."""

    before: str
    behind: str
    pieces: tuple[str, ...]


class CursorUse:
    """Counts pieces at a cursor, and takes reports of accepted ones; for the thread of the event loop alone."""

    def __init__(
        self, registry: CollectorRegistry, table: AcceptedPieces | None, log_line: Callable[[str], None]
    ) -> None:
        """Count from zero; accepted pieces go to the table, if there is one."""
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
        """Count a piece, and remember it for a while where it is sent; what is not at a cursor is passed over."""
        if request.suffix is None:
            return
        if not result.text:
            self._withheld.labels(result.withheld or _EMPTY).inc()
            return
        self._shown.inc()
        found = self._sent.pop(request.id, _Sent((request.text or "")[-_BEFORE:], request.suffix[:_BEHIND], ()))
        self._sent[request.id] = _Sent(found.before, found.behind, (*found.pieces, result.text))
        if len(self._sent) > _MOST_REMEMBERED:
            self._sent.popitem(last=False)

    async def accept(self, report: FeedbackRequest) -> dict[str, Any]:
        """Count what was accepted, once for each completion, and write it to the table if there is one.

        What a client sends beyond the piece is counted as not kept, and is not written: only what the model wrote
        becomes a row.

        Returns:
            The characters kept, and whether a row was written.

        Raises:
            RequestRefusedError: No completion of late has that id, or none of its pieces begins with this text.
        """
        key = report.id.rpartition("-")[2]
        sent = self._sent.get(key)
        if sent is None:
            message = "id: no piece at a cursor of this id was sent of late, or what became of it was reported before."
            raise RequestRefusedError(404, message, param="id", code="completion_not_found")
        kept = max((_shared_beginning(report.accepted, piece) for piece in sent.pieces), key=len)
        if not kept:
            message = "accepted: not how the completion begins. Send what was taken of it, unchanged."
            raise RequestRefusedError(400, message, param="accepted", code="invalid_value")
        del self._sent[key]
        self._accepted.inc()
        self._characters.inc(len(kept))
        is_recorded = kept == report.accepted and await run_in_threadpool(self._record, sent, kept)
        return {"id": report.id, "characters_kept": len(kept), "recorded": is_recorded}

    def _record(self, sent: _Sent, piece: str) -> bool:
        """Write a row; a table that cannot be written any more is no reason to refuse the client."""
        if self._table is None:
            return False
        try:
            return self._table.add(sent.before, piece, sent.behind)
        except sqlite3.Error as error:
            self._log_line(f"accepted pieces cannot be written: {error}. Start the server again with another file.")
            return False


def _shared_beginning(one: str, other: str) -> str:
    """Return the longest beginning that two texts share."""
    places = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return one[: next(places, min(len(one), len(other)))]
