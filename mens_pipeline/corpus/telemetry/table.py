"""Convert rows of a telemetry table to training pairs: requests to agents, and their best completions.

The table, in SQLite or PostgreSQL, is read and never written. Nothing of a row leaves this module before its secrets
and personal data are redacted; rows are identified by a hash of the redacted text, not by their key.
"""

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import sqlalchemy as sa
from pydantic import ConfigDict, Field, SecretStr
from sqlalchemy.exc import ArgumentError, DatabaseError, SQLAlchemyError

from mens_pipeline.corpus.curate.pipeline_config import TelemetryPolicy
from mens_pipeline.corpus.extract.page import parse_page
from mens_pipeline.corpus.infill import ACCEPTED
from mens_pipeline.corpus.schema.account import Account, counts_of
from mens_pipeline.corpus.schema.reasons import TelemetryDrop
from mens_pipeline.corpus.schema.records import (
    MAX_TEXT,
    HoleKind,
    InfillContext,
    Lane,
    Source,
    SourceKind,
    TrainingPair,
    hardest_construct,
)
from mens_pipeline.corpus.telemetry.redaction import SensitiveKind, redact
from mens_pipeline.errors import ConfigurationError, SourceNotFoundError
from mens_pipeline.language import analyze
from mens_pipeline.language.ast import Module

DEFAULT_RATING: Final = 4
"""Rating of an unrated row: a chosen completion, but not ground truth."""

_HIGHEST_RATING: Final = 5
_FENCE: Final = "```"
_BATCH: Final = 500
_CONNECT_SECONDS: Final = 10
_EXPECTED_URL: Final = "Write sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/DATABASE."


class TelemetryQuery(TelemetryPolicy):
    """Database, table and filter of a query."""

    model_config = ConfigDict(hide_input_in_errors=True)

    url: SecretStr = Field(description="SQLAlchemy URL: sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE.")


@dataclass(frozen=True, slots=True)
class TelemetryRow:
    """A row as read from the database; any value may have any type."""

    query: object
    response: object
    rating: object = None
    suffix: object = None


@dataclass(kw_only=True)
class TelemetryAccount(Account[TelemetryDrop]):
    """Counts of the rows of a table; for kept rows also their lanes and redactions. It contains no row."""

    lanes: Counter[Lane] = field(default_factory=Counter)
    redactions: Counter[SensitiveKind] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        """Return the counts in JSON types."""
        return {
            "seen": self.seen,
            "kept": self.kept,
            "lanes": {str(lane): count for lane, count in sorted(self.lanes.items())},
            "dropped": counts_of(TelemetryDrop, self.dropped),
            "redactions": counts_of(SensitiveKind, self.redactions),
        }


def read_telemetry(query: TelemetryQuery) -> Iterator[TelemetryRow]:
    """Yield the newest rows of the table, one by one, always in the same order.

    Raises:
        SourceNotFoundError: The SQLite file does not exist; it is not created.
        ConfigurationError: The URL, the server, the table or a column is wrong. No message contains a password.
    """
    try:
        url = sa.make_url(query.url.get_secret_value())
    except (ArgumentError, ValueError):
        # A malformed URL may contain a password anywhere, so neither it nor the cause is shown.
        raise ConfigurationError(f"telemetry: the URL cannot be parsed. {_EXPECTED_URL}") from None
    with _explain_errors(url), _connection(_readable_url(url)) as connection:
        selection = _selection(connection, query, url)
        for row in connection.execution_options(yield_per=_BATCH).execute(selection):
            # The repr of bytes is stable, and that of a memoryview is not.
            yield TelemetryRow(*(bytes(value) if isinstance(value, memoryview) else value for value in row))


def telemetry_fingerprint(query: TelemetryQuery) -> str:
    """Hash (SHA-256, hexadecimal) the rows that `read_telemetry` yields."""
    digest = hashlib.sha256()
    for row in read_telemetry(query):
        digest.update(repr(row).encode() + b"\n")
    return digest.hexdigest()


def telemetry_pairs(rows: Iterable[TelemetryRow], account: TelemetryAccount, table: str) -> Iterator[TrainingPair]:
    """Yield the training pairs of rows, redacted; `account` counts every row, `table` names their source."""
    seen: set[bytes] = set()
    for row in rows:
        account.seen += 1
        pair = _pair(row, table, seen)
        if isinstance(pair, TelemetryDrop):
            account.dropped[pair] += 1
            continue
        made, redactions = pair
        account.kept += 1
        account.lanes[made.lane] += 1
        account.redactions.update(redactions)
        yield made


def _pair(
    row: TelemetryRow, table: str, seen: set[bytes]
) -> tuple[TrainingPair, Counter[SensitiveKind]] | TelemetryDrop:
    texts = [_text(row.query), _text(row.response)]
    if row.suffix is not None:
        texts = [_text(row.query, is_piece=True), _text(row.response, is_piece=True), _suffix(row.suffix)]
    drop = next((text for text in texts if isinstance(text, TelemetryDrop)), None)
    rating = _rating(row.rating)
    if drop is not None or rating is None:
        return drop or TelemetryDrop.BAD_RATING
    prompt, completion, *behind = (redact(str(text)) for text in texts)
    response, module = (completion.text, None) if behind else _response(completion.text)
    if any(len(text) > MAX_TEXT for text in (prompt.text, response, *(text.text for text in behind))):
        return TelemetryDrop.TOO_LONG
    identity = hashlib.sha256(repr((prompt.text, response)).encode()).digest()
    if identity in seen:
        return TelemetryDrop.DUPLICATE
    seen.add(identity)
    source = Source.of_text(f"telemetry/{table}/{identity.hex()[:16]}", response, SourceKind.TELEMETRY)
    source = source.model_copy(update={"golden": False})  # used for training anyway, never for evaluation
    about: dict[str, Any] = {"rating": rating, "task_family": "telemetry", "source": source}
    if behind:
        kind = HoleKind.STATEMENTS if "\n" in response else HoleKind.LINE
        about |= {"infill": InfillContext(kind=kind, suffix=behind[0].text), "task_family": ACCEPTED}
    elif module is None:
        about |= {"category": "agent_answer", "lane": Lane.DOGFOOD_AGENT, "response_mode": "prose_only"}
    else:
        hardest = hardest_construct(module.declarations)
        about |= {"category": hardest.name, "difficulty": hardest.difficulty}
    pair = TrainingPair(prompt=prompt.text, response=response, **about)
    return pair, sum((Counter(text.counts) for text in (prompt, completion, *behind)), Counter())


def _suffix(value: object) -> str | TelemetryDrop:
    """Like `_text`, but blanks are a valid text after a cursor."""
    text = _text(value, is_piece=True)
    return str(value) if text is TelemetryDrop.EMPTY else text


def _text(value: object, *, is_piece: bool = False) -> str | TelemetryDrop:
    if value is None:
        return TelemetryDrop.EMPTY
    # Bytes that are not UTF-8 were read as surrogates.
    if not isinstance(value, str) or any("\ud800" <= character <= "\udfff" for character in value):
        return TelemetryDrop.NOT_TEXT
    # One character more than this was read, so that longer texts are recognised.
    if len(value) > MAX_TEXT:
        return TelemetryDrop.TOO_LONG
    text = value.strip()
    return (value if is_piece and text else text) or TelemetryDrop.EMPTY


def _rating(value: object) -> int | None:
    if value is None:
        return DEFAULT_RATING
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    return next((rating for rating in range(1, _HIGHEST_RATING + 1) if is_number and value == rating), None)


def _response(completion: str) -> tuple[str, Module | None]:
    # A completion has no frontmatter: after an empty line, three hyphens are a rule.
    blocks = parse_page(f"\n{completion}").blocks
    # The front end ignores backticks, so a fenced program would be accepted with its fences.
    whole = [] if _FENCE in completion else [completion]
    for text in (*whole, *(block.text.strip() for block in blocks if len(blocks) == 1)):
        module = analyze(text).module
        if module is not None and module.declarations:
            return text, module
    return completion, None


def _readable_url(url: sa.URL) -> sa.URL:
    match url.drivername.partition("+")[0]:
        case "sqlite":
            path = Path(url.database or "")
            if not path.is_file():
                raise SourceNotFoundError(f"{_show_url(url)}: no such file. Name an SQLite database that exists.")
            # SQLite's own form opens the file read-only and never creates it.
            file = f"file:{quote(str(path.resolve()))}"
            return sa.URL.create("sqlite", database=file, query={"mode": "ro", "uri": "true"})
        case "postgresql" | "postgres":
            parameters = {"connect_timeout": str(_CONNECT_SECONDS), **url.query}
            return url.set(drivername="postgresql+psycopg2", query=parameters)
        case other:
            raise ConfigurationError(f"{_show_url(url)}: {other} is not supported. {_EXPECTED_URL}")


def _show_url(url: sa.URL) -> str:
    """Format a URL without its password and without parameters, which may contain one."""
    return url.set(query={}).render_as_string(hide_password=True)


@contextmanager
def _explain_errors(url: sa.URL) -> Iterator[None]:
    """Convert database errors to a `ConfigurationError`, without a cause, which may contain parts of the URL."""
    try:
        yield
    except ModuleNotFoundError as error:
        advice = "Install psycopg2-binary to read PostgreSQL."
        raise ConfigurationError(f"{_show_url(url)}: the driver {error.name} is not installed. {advice}") from None
    except ValueError as error:
        # A schema can contain invalid names and types: bytes that are not text, a length of thousands of digits.
        raise ConfigurationError(
            f"{_show_url(url)}: its schema cannot be read ({error}). Name another table."
        ) from None
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        for secret in (url.password, *url.normalized_query.get("password", ())):
            reason = reason.replace(secret, "***") if secret else reason
        advice = "Check that the server runs, that the URL names a database, and that you may read the table."
        if type(error) is DatabaseError and url.get_backend_name() == "sqlite":  # not one of its subclasses: damaged
            advice = "Provide a complete SQLite database that you may read, such as a backup of this one."
        raise ConfigurationError(f"{_show_url(url)}: {reason}. {advice}") from None


@contextmanager
def _connection(url: sa.URL) -> Iterator[sa.Connection]:
    is_postgres = url.get_backend_name() == "postgresql"
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    try:
        if is_postgres:
            engine = engine.execution_options(postgresql_readonly=True)
        else:
            sa.event.listen(engine, "connect", restrain)
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def _selection(connection: sa.Connection, query: TelemetryQuery, url: sa.URL) -> sa.Select[Any]:
    inspector = sa.inspect(connection)
    schema, name = _real_table(inspector, query.table, url)
    types = {found["name"]: found["type"] for found in inspector.get_columns(name, schema)}
    existing = list(types)
    suffix = query.suffix_column if query.suffix_column in existing else None
    # In the order of the fields of a row.
    places = (query.query_column, query.response_column, query.rating_column, suffix)
    wanted = [column for column in places if column]
    ordering = [query.order_column] if query.order_column else []
    missing = [column for column in (*wanted, *ordering) if column not in existing]
    if missing:
        found = f"no column {', '.join(missing)}; it has {', '.join(existing)}"
        advice = "Name its columns with --query-column, --response-column, --rating-column and --order-column."
        raise ConfigurationError(f"{_show_url(url)}: {query.table}: {found}. {advice}")
    keys = inspector.get_pk_constraint(name, schema)["constrained_columns"]
    rows = sa.table(name, *(sa.column(column) for column in existing), schema=schema)
    # A table grows at its end, which a nightly import must not miss.
    order = [rows.c[column].desc().nulls_last() for column in (*ordering, *(keys or wanted))]
    cut = short if connection.dialect.name == "sqlite" else beginning
    values = [sa.null() if column is None else cut(rows.c[column], types[column]) for column in places]
    return sa.select(*values).order_by(*order).limit(query.limit)


def _real_table(inspector: sa.Inspector, asked: str, url: sa.URL) -> tuple[str | None, str]:
    """Find schema and name of the table; letter case is ignored if only one name fits, as PostgreSQL folds it."""
    schema, _, name = asked.rpartition(".")
    existing = sorted([*inspector.get_table_names(schema or None), *inspector.get_view_names(schema or None)])
    fitting = [name] if name in existing else [other for other in existing if other.lower() == name.lower()]
    if len(fitting) != 1:
        found = f"no table {asked}, found {', '.join(existing) or 'none'}"
        raise ConfigurationError(f"{_show_url(url)}: {found}. Name the table with --table.")
    return schema or None, fitting[0]


_LARGEST_VALUE: Final = 100_000_000  # bytes of a value or row of an SQLite database in memory
_STEPS: Final = 1_000_000
_MOST_STEPS: Final = 1_000_000_000
"""Steps of SQLite's virtual machine for one import, about a minute; a view can be an endless loop."""


def restrain(connection: Any, _: object) -> None:
    """Limit the bytes, size and time of queries on an untrusted database.

    A text that is not UTF-8 must not end the import, and is recognised by its surrogates.
    """
    steps = count(_STEPS, _STEPS)
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE)
    connection.set_progress_handler(lambda: next(steps) > _MOST_STEPS, _STEPS)


def short(column: "sa.ColumnElement[Any]", _kind: object) -> "sa.ColumnElement[Any]":
    """Truncate a column of SQLite, like `beginning`; any column may hold values of any type."""
    is_number = sa.func.typeof(column).in_(("integer", "real", "null"))
    # `substr` would cut a text at a NUL. Read such a text as bytes, which are dropped: half of it was not accepted.
    has_nul = sa.func.instr(column, sa.func.char(0)) > 0
    return sa.case((is_number, column), (has_nul, sa.func.zeroblob(1)), else_=sa.func.substr(column, 1, MAX_TEXT + 1))


def beginning(column: "sa.ColumnElement[Any]", kind: object) -> "sa.ColumnElement[Any]":
    """Truncate a column of PostgreSQL just above the limit of a text, so that large values stay in the database."""
    if isinstance(kind, sa.Numeric | sa.Integer | sa.Boolean):
        return column
    if isinstance(kind, sa.String | sa.LargeBinary):
        return sa.func.substr(column, 1, MAX_TEXT + 1)
    # JSON, lists and other types are read as bytes, which are dropped.
    return sa.func.convert_to(sa.func.substr(sa.cast(column, sa.Text), 1, MAX_TEXT + 1), "UTF8")
