"""The ledger in PostgreSQL: the positions of all groups, in a table beside the output.

Created by ``sink``, and called by ``streamgroups.ledgers.batch_commit``. Implements :class:`streamgroups.ports.Ledger`. A
transaction locks the positions that it reads (``position_locks``). Locks of rows also protect against manual changes of the
table. Source: SEMANTICS X2-X4; PostgreSQL's documentation, "Explicit Locking", "Read Committed Isolation Level" (each
statement reads all earlier commits, so a read under the lock is current).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from streamgroups.errors import LedgerConflict, NotAuthorized, SinkRejected, SinkUnreachable
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.printable import listed
from streamgroups_sinks.postgres.connection import (
    IDLE_TIMEOUT_MS,
    LOCK_TIMEOUT_MS,
    connect,
    connected,
    set_up,
    translated,
    translated_errors,
)
from streamgroups_sinks.postgres.merging import Output, merge
from streamgroups_sinks.postgres.output_table import TRUSTED_OWNER, check_owner, where_to_make
from streamgroups_sinks.postgres.position_locks import PositionLocks, read_positions
from streamgroups_sinks.postgres.table_names import TableName, lock_key

#: The columns of the ledger, by the names of their types in ``pg_type``.
_COLUMNS = {
    "group_id": "text",
    "topic": "text",
    "partition": "int4",
    "next_offset": "int8",
    "cluster_id": "text",
    "topic_id": "text",
    "updated_at": "timestamptz",
}


class PostgresLedger:
    """The ledger of one group. For one thread, and never pickled.

    Args:
        conninfo: the connection string.
        table: the table of the ledger.
        group_id: the group.
        lock_ms: how long a transaction waits for a lock, in milliseconds.
        idle_ms: how long a transaction may wait for its driver before it is ended, in milliseconds.
    """

    def __init__(
        self,
        conninfo: str,
        table: TableName,
        group_id: str,
        *,
        lock_ms: int = LOCK_TIMEOUT_MS,
        idle_ms: int = IDLE_TIMEOUT_MS,
    ) -> None:
        self._conninfo, self._table, self._group_id = conninfo, table, group_id
        self._lock_ms, self._idle_ms = lock_ms, idle_ms
        self._doing = f"The ledger {table} of group '{group_id}'"
        self._kept: psycopg.Connection | None = None
        #: The number of statements of the last transaction that wrote a divided batch, by the way of division.
        self.statements: Counter[str] = Counter()

    def open(self) -> None:
        """Connects, and creates or checks the table.

        Raises:
            SinkUnreachable: if the server does not respond.
            SinkRejected: if a table with this name exists that is not a ledger.
            NotAuthorized: if this user may not use or create it.
        """
        with self._connection() as connection, translated_errors(self._doing), connection.transaction():
            set_up(connection)
            if not _is_there(connection, self._table):
                _make(connection, self._table)

    def close(self) -> None:
        """Closes the connection, which rolls an open transaction back."""
        if self._kept is not None:
            self._kept.close()

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`streamgroups.ports.Ledger.positions`."""
        with self._connection() as connection, translated_errors(self._doing), connection.transaction():
            rows = read_positions(connection, self._table, self._group_id, partitions, for_update=False)
        return {tp: next_offset for tp, (next_offset, _) in rows.items()}

    @contextmanager
    def transaction(self) -> Iterator[PostgresTransaction]:
        """See :meth:`streamgroups.ports.Ledger.transaction`."""
        with self._connection() as connection:
            locks = PositionLocks(connection, self._table, stalled_ms=self._idle_ms)
            try:
                with translated_errors(self._doing):
                    connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
                    set_up(connection, lock_ms=self._lock_ms, idle_ms=self._idle_ms)
                self.statements = Counter()
                yield PostgresTransaction(
                    connection, self._conninfo, self._table, self._group_id, self.statements, locks
                )
                self._commit(connection)
            except BaseException as e:
                with suppress(psycopg.Error):
                    connection.rollback()
                if isinstance(e, LedgerConflict):
                    locks.end_stalled()
                raise

    def _commit(self, connection: psycopg.Connection) -> None:
        # COMMIT rolls a failed transaction back without an error.
        if connection.info.transaction_status is TransactionStatus.INERROR:
            raise SinkRejected(
                f"{self._doing}: nothing was written, because the transaction had already failed.",
                remedy="Let that error end the block.",
            )
        try:
            connection.commit()
        except psycopg.Error as e:
            found = translated(e, f"{self._doing}: committing")
            if e.sqlstate is None or isinstance(found, SinkUnreachable):
                found = SinkUnreachable(
                    f"{found.what} The batch may or may not be written.",
                    remedy="Read the ledger again: it contains the positions of the batch if it is written.",
                )
            raise found from None

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection]:
        """Returns the kept connection, or another one for the duration of the block while a transaction uses it."""
        if self._kept is None or self._kept.closed:
            self._kept = connect(self._conninfo, self._doing)
        if self._kept.info.transaction_status is TransactionStatus.IDLE:
            yield self._kept
        else:
            with connected(self._conninfo, self._doing) as another:
                yield another


class PostgresTransaction:
    """See :class:`streamgroups.ports.LedgerTransaction`."""

    def __init__(
        self,
        connection: psycopg.Connection,
        conninfo: str,
        table: TableName,
        group_id: str,
        statements: Counter[str],
        locks: PositionLocks,
    ) -> None:
        self._connection, self._conninfo, self._locks = connection, conninfo, locks
        self._statements = statements
        self._table, self._group_id = table, group_id
        self._identities: dict[TopicPartition, TopicIdentity] = {}
        self._doing = f"The ledger {table} of group '{group_id}'"

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`streamgroups.ports.LedgerTransaction.positions`."""
        with self._translated_errors(partitions):
            rows = self._locks.acquire(self._group_id, partitions)
        self._identities |= {tp: identity for tp, (_, identity) in rows.items()}
        return {tp: next_offset for tp, (next_offset, _) in rows.items()}

    def identities(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, TopicIdentity]:
        """See :meth:`streamgroups.ports.LedgerTransaction.identities`. They were read with the positions."""
        return {tp: self._identities[tp] for tp in partitions if self._identities.get(tp, UNKNOWN) != UNKNOWN}

    def of(self, group_id: str) -> PostgresTransaction:
        """See :meth:`streamgroups.ports.LedgerTransaction.of`."""
        return PostgresTransaction(
            self._connection, self._conninfo, self._table, group_id, self._statements, self._locks
        )

    def write(self, output: Sequence[Output]) -> None:
        """See :meth:`streamgroups.ports.LedgerTransaction.write`."""
        self._statements += merge(self._connection, output, self._conninfo)

    def advance(
        self,
        next_offsets: Mapping[TopicPartition, int],
        identities: Mapping[TopicPartition, TopicIdentity] = MappingProxyType({}),
    ) -> None:
        """See :meth:`streamgroups.ports.LedgerTransaction.advance`."""
        partitions = sorted(next_offsets)
        with self._translated_errors(partitions):
            self._locks.ensure(self._group_id, partitions)
            self._connection.execute(
                sql.SQL(_ADVANCE).format(self._table.identifier),
                {
                    "group": self._group_id,
                    "topics": [tp.topic for tp in partitions],
                    "partitions": [tp.partition for tp in partitions],
                    "offsets": [next_offsets[tp] for tp in partitions],
                    "clusters": [identities.get(tp, UNKNOWN).cluster_id for tp in partitions],
                    "ids": [identities.get(tp, UNKNOWN).topic_id for tp in partitions],
                },
            )

    @contextmanager
    def _translated_errors(self, partitions: Collection[TopicPartition]) -> Iterator[None]:
        with translated_errors(f"{self._doing}, positions of {listed(sorted(partitions))}"):
            yield


def _is_there(connection: psycopg.Connection, table: TableName) -> bool:
    """Returns whether the ledger exists.

    Raises:
        SinkRejected: if another relation has its name, or an untrusted role owns it.
        NotAuthorized: if this user may not use it.
    """
    row = connection.execute(_FIND, {"name": table.quoted}).fetchone()
    if row is None:
        return False
    columns, is_unique, may_use, owner, is_trusted, interferes = row
    if not all(columns.get(name) == type_ for name, type_ in _COLUMNS.items()) or not is_unique:
        raise SinkRejected(
            f"Table {table} does not have the columns of a ledger.",
            remedy="Set 'ledger_table' to another table; the sink creates it if it does not exist.",
        )
    check_owner(table, f"The ledger {table}", owner, "ledger_table", is_trusted=is_trusted)
    if interferes:
        raise SinkRejected(
            f"The ledger {table} has {interferes}, which can change its positions.",
            remedy="Drop them, or set 'ledger_table' to another table; the sink creates it if it does not exist.",
        )
    if not may_use:
        raise NotAuthorized(
            f"This user is not authorized to use the ledger {table}.",
            remedy=f"GRANT SELECT, INSERT, UPDATE ON {table.quoted} TO the user.",
        )
    return True


def _make(connection: psycopg.Connection, table: TableName) -> None:
    made = TableName(where_to_make(connection, table.schema, f"the ledger {table}"), table.name)
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [lock_key("create", str(made))])
    # Looked up by the user's name for it, because another role may just have created this table.
    if not _is_there(connection, table):
        connection.execute(sql.SQL(_CREATE).format(made.identifier))


_CREATE = """
    CREATE TABLE {} (
        group_id text, topic text, partition integer,
        next_offset bigint NOT NULL, cluster_id text, topic_id text, updated_at timestamptz NOT NULL,
        PRIMARY KEY (group_id, topic, partition)
    )
"""
_ADVANCE = """
    INSERT INTO {} (group_id, topic, partition, next_offset, cluster_id, topic_id, updated_at)
    SELECT %(group)s, topic, partition, next_offset, cluster_id, topic_id, clock_timestamp()
    FROM unnest(%(topics)s::text[], %(partitions)s::integer[], %(offsets)s::bigint[], %(clusters)s::text[], %(ids)s::text[])
         AS given (topic, partition, next_offset, cluster_id, topic_id)
    ON CONFLICT (group_id, topic, partition)
    DO UPDATE SET next_offset = EXCLUDED.next_offset, cluster_id = EXCLUDED.cluster_id, topic_id = EXCLUDED.topic_id,
                  updated_at = EXCLUDED.updated_at
"""
_FIND = (
    """
    SELECT (SELECT jsonb_object_agg(a.attname, t.typname) FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
           EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indimmediate
                   AND i.indpred IS NULL AND NOT 0 = ANY (i.indkey::int2[])
                   AND (SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_attribute a
                        WHERE a.attrelid = c.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]))
                       = ARRAY['group_id', 'partition', 'topic']),
           has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
               AND has_table_privilege(c.oid, 'UPDATE'),
           pg_get_userbyid(c.relowner)::text, """
    + TRUSTED_OWNER
    + """,
           concat_ws(' and ',
               CASE WHEN EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = c.oid AND NOT g.tgisinternal) THEN 'triggers' END,
               CASE WHEN EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = c.oid) THEN 'rules' END,
               CASE WHEN c.relrowsecurity THEN 'row-level security' END)
    FROM pg_class c WHERE c.oid = to_regclass(%(name)s)
"""
)
