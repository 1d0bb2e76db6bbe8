"""Reads and deletes the dead letters of a table.

Called by the commands ``streamgroups dlq``. ``sg.PostgresSink`` writes such tables. Implements
:class:`streamgroups.dlq.table_letters.LetterTable`. Source: SEMANTICS P4, P5.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from psycopg import sql
from psycopg.rows import dict_row

from streamgroups.dlq.letter import LETTER
from streamgroups.dlq.table_letters import Row, queue_name
from streamgroups.errors import SinkRejected
from streamgroups_sinks.postgres.connection import check_conninfo, connected, escaped, set_up, translated_errors
from streamgroups_sinks.postgres.table_names import TableName

#: A row can be as large as a record of Kafka.
_ROWS_PER_FETCH = 100
_LETTERS_PER_STATEMENT = 10_000
_FIND = """
SELECT n.nspname, c.relname, current_database(), array_agg(a.attname::text)
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.oid = to_regclass(%s::text)
GROUP BY 1, 2
"""
_COLUMNS = """
SELECT id, group_id, query, {failed_at_ms} AS failed_at_ms, attempt, step, error_class,
  error, details::text AS details, topic, "partition", "offset",
  {timestamp_ms} AS timestamp_ms, key, value, headers::text AS headers
FROM {table}
"""
#: Milliseconds since the epoch. Any client can write 'infinity', which has none.
_MS = (
    """CASE WHEN isfinite({time}) THEN (extract(epoch FROM {time}) * 1000)::bigint WHEN {time} IS NOT NULL THEN 0 END"""
)
_ORDER = 'ORDER BY failed_at, topic, "partition", "offset", id'
_DELETE = """
DELETE FROM {table} AS letter USING unnest(%s::text[], %s::bigint[]) AS due (id, failed_at_ms)
WHERE letter.id = due.id AND {failed_at_ms} = due.failed_at_ms
"""


@dataclass(frozen=True, slots=True)
class PostgresLetters:
    """A table of dead letters. See :class:`streamgroups.dlq.table_letters.LetterTable`.

    Args:
        conninfo: libpq's connection string. It is never shown.
        name: the table, with its schema.
        database: its database.
    """

    conninfo: str
    name: TableName
    database: str

    @property
    def table(self) -> str:
        """See :attr:`streamgroups.dlq.table_letters.LetterTable.table`."""
        return str(self.name)

    @property
    def queue(self) -> str:
        """See :attr:`streamgroups.dlq.table_letters.LetterTable.queue`."""
        return queue_name(self.database, self.name.schema or "", self.name.name)

    def rows(self, ids: Collection[str] = ()) -> Iterator[Row]:
        """See :meth:`streamgroups.dlq.table_letters.LetterTable.rows`."""
        doing = f"Reading the dead letters of {self.table}"
        where = "WHERE id = ANY(%s)" if ids else ""
        query = sql.SQL(f"{_COLUMNS} {where} {_ORDER}").format(
            table=self.name.identifier, failed_at_ms=_ms("failed_at"), timestamp_ms=_ms("timestamp")
        )
        with connected(self.conninfo, doing) as connection, translated_errors(doing), connection.transaction():
            set_up(connection)
            with connection.cursor("letters", row_factory=dict_row) as cursor:
                cursor.itersize = _ROWS_PER_FETCH
                cursor.execute(escaped(query) if ids else query, [list(ids)] if ids else None)
                yield from cursor

    def delete(self, letters: Sequence[tuple[str, int]]) -> int:
        """See :meth:`streamgroups.dlq.table_letters.LetterTable.delete`."""
        doing = f"Deleting dead letters of {self.table}"
        statement = sql.SQL(_DELETE).format(table=self.name.identifier, failed_at_ms=_ms("letter", "failed_at"))
        deleted, rest = 0, iter(letters)
        with connected(self.conninfo, doing) as connection, translated_errors(doing), connection.transaction():
            set_up(connection)
            while some := list(islice(rest, _LETTERS_PER_STATEMENT)):
                ids, times_ms = zip(*some, strict=True)
                deleted += connection.execute(statement, [list(ids), list(times_ms)]).rowcount
        return deleted


def _ms(*column: str) -> sql.Composed:
    return sql.SQL(_MS).format(time=sql.Identifier(*column))


def find_letters(conninfo: str, table: str, *, option: str) -> PostgresLetters:
    """Finds a table of dead letters.

    Args:
        conninfo: libpq's connection string.
        table: ``table`` or ``schema.table``. Names are case-sensitive.
        option: the option with the connection string, for errors.

    Raises:
        InvalidOption: if the connection string or the name is malformed.
        SinkRejected: if the table does not exist, or has not the columns of dead letters.
        LoginRejected: if the login is rejected.
        NotAuthorized: if a privilege is missing.
        SinkUnreachable: if the server does not respond.
    """
    check_conninfo(conninfo, option)
    name = TableName.parse(table, "DLQ")
    doing = f"Finding the table {name}"
    with connected(conninfo, doing) as connection, translated_errors(doing):
        found = connection.execute(_FIND, [name.quoted]).fetchone()
    if found is None:
        raise SinkRejected(
            f"Table {name} does not exist in the database of {option}.",
            remedy="Write 'table' or 'schema.table', without quotes; names are case-sensitive.",
        )
    schema, relation, database, columns = found
    missing = [it for it in LETTER if it not in columns]
    if missing:
        raise SinkRejected(
            f"Table {name} has no column '{missing[0]}', so it is no table of dead letters.",
            remedy="Name a table to which sg.exactly_once writes dead letters.",
        )
    return PostgresLetters(conninfo, TableName(schema, relation), database)
