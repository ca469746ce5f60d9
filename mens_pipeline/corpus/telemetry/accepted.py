"""Store pieces that were accepted at a cursor as rows of a telemetry table, redacted before they are written.

The table is in a separate SQLite file, named to `mens serve`; the nightly run reads it like other telemetry.
"""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from mens_pipeline.corpus.telemetry.redaction import redact
from mens_pipeline.errors import ConfigurationError

_HALF: Final = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which JSON can hold and SQLite cannot."""
_REPLACEMENT: Final = "\ufffd"
"""The replacement character: a decoder writes it for bytes that are not valid UTF-8."""
_SECONDS: Final = 5.0  # timeout of SQLite while another process holds the lock
_CREATE: Final = (
    "CREATE TABLE IF NOT EXISTS AgentTelemetry (id INTEGER PRIMARY KEY, query TEXT, optimal_response TEXT, suffix TEXT)"
)
_INSERT: Final = "INSERT INTO AgentTelemetry (query, optimal_response, suffix) VALUES (?, ?, ?)"


class AcceptedPieces:
    """Table of accepted pieces; each call opens its own connection, so any thread may call."""

    def __init__(self, path: Path) -> None:
        """Create the table if it does not exist; raise `ConfigurationError` without access or with other columns."""
        self._path = path
        try:
            # It contains code, so nobody else may read it.
            path.touch(mode=0o600)
            with closing(self._connect()) as connection, connection:
                connection.execute(_CREATE)
                found = {row[1] for row in connection.execute("PRAGMA table_info(AgentTelemetry)")}
        except (OSError, sqlite3.Error) as error:
            message = f"{path}: cannot write accepted pieces ({error}). Name another file."
            raise ConfigurationError(message) from error
        if missing := [column for column in ("query", "optimal_response", "suffix") if column not in found]:
            lacks = f"its table AgentTelemetry has no column {', '.join(missing)}"
            raise ConfigurationError(f"{path}: {lacks}. Name a separate file.")

    def add(self, prefix: str, piece: str, suffix: str) -> bool:
        """Add a piece with the text around it, redacted; return whether it was written.

        A piece is not written if it has no text before it, is empty or not valid text, has half a surrogate pair next
        to it, or if a secret crosses one of its edges. Raises `sqlite3.Error` if the file can no longer be written.
        """
        before, behind = redact(prefix).text, redact(suffix).text
        whole = redact(prefix + piece + suffix).text
        rest = whole.removeprefix(before)
        middle = rest.removesuffix(behind) if behind else rest
        if before + middle + behind != whole or not before.strip() or not middle.strip() or _REPLACEMENT in middle:
            return False
        if _HALF.search(whole):
            return False
        with closing(self._connect()) as connection, connection:
            connection.execute(_INSERT, (before, middle, behind))
        return True

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=_SECONDS)
