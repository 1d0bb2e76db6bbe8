"""Advisory locks, and the end of the session of a driver that has frozen with locks.

Called by ``position_locks``. An advisory lock also covers partitions without a row. The server ends an idle
transaction itself. It does not end one whose COPY waits for a frozen driver: timeouts of statements do not apply there. So
the next owner, which waits for the locks, ends that session. Source: PostgreSQL's documentation, "Advisory Locks",
"pg_locks", "pg_stat_activity" (``wait_event``), "Server Signaling Functions".
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

import psycopg
from psycopg import errors, sql

logger = logging.getLogger(__name__)


def lock(connection: psycopg.Connection, group: int, keys: Collection[int], *, stalled_ms: int) -> None:
    """Acquires advisory locks until the end of the transaction, in the order of their keys.

    Args:
        connection: a connection in a transaction.
        group: the key of the group. Transactions with :func:`lock` share its lock, and :func:`lock_group` excludes them.
        keys: the keys of the locks.
        stalled_ms: the age at which a statement that waits for its client counts as stalled, in milliseconds.

    Raises:
        psycopg.errors.LockNotAvailable: if a lock is not available within the timeout of the transaction.
    """
    required = [sorted(keys)]
    try:
        # A savepoint: the transaction continues after the error.
        with connection.transaction():
            connection.execute(_LOCK_SHARED, [group])
            connection.execute(_LOCK, required)
    except errors.LockNotAvailable:
        ended = connection.execute(_END_STALLED, {"keys": list(keys), "stalled_ms": stalled_ms}).fetchall()
        if not ended:
            raise
        _log_ended(len(ended))
        connection.execute(_LOCK_SHARED, [group])
        connection.execute(_LOCK, required)


def lock_group(connection: psycopg.Connection, group: int) -> None:
    """Acquires the lock of a whole group until the end of the transaction. It excludes all transactions with :func:`lock`.

    Args:
        connection: a connection in a transaction.
        group: the key of the group.

    Raises:
        psycopg.errors.LockNotAvailable: if the lock is not available within the timeout of the transaction.
    """
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [group])


def end_stalled_of_rows(
    connection: psycopg.Connection, rows: sql.Composable, values: Mapping[str, Any], ms: int
) -> None:
    """Ends the sessions of frozen drivers that hold locks of rows.

    Args:
        connection: a connection outside of a transaction.
        rows: a query for the column ``xmax`` of the rows. It is the transaction that has locked the row.
        values: the parameters of the query.
        ms: the age at which a statement that waits for its client counts as stalled, in milliseconds.
    """
    ended = connection.execute(sql.SQL(_END_STALLED_OF_ROWS).format(rows), {**values, "stalled_ms": ms}).fetchall()
    if ended:
        _log_ended(len(ended))


def _log_ended(count: int) -> None:
    logger.warning("Sessions of frozen drivers were ended, which held locks of a ledger: %d", count)


_LOCK_SHARED = "SELECT pg_advisory_xact_lock_shared(%s)"
_LOCK = "SELECT pg_advisory_xact_lock(key) FROM unnest(%s::bigint[]) AS key"
#: A role needs no privilege to end its own sessions.
_END = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE usename = current_user AND state = 'active' AND wait_event IN ('ClientRead', 'ClientWrite')
          AND query_start < clock_timestamp() - %(stalled_ms)s * interval '1 millisecond'
          AND pid IN """
_END_STALLED = (
    _END
    + """
        (SELECT pid FROM pg_locks
         WHERE locktype = 'advisory' AND granted AND objsubid = 1
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
               AND ((classid::bigint << 32) | objid::bigint) = ANY (%(keys)s::bigint[]))
"""
)
_END_STALLED_OF_ROWS = (
    _END
    + """
        (SELECT pid FROM pg_locks
         WHERE locktype = 'transactionid' AND granted AND transactionid IN ({}))
"""
)
