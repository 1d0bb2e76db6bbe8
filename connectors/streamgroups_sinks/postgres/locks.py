"""Locks the positions of partitions, and ends the session of a driver that has frozen with these locks.

Called by ``ledger``. An advisory lock for each partition also covers partitions without a row. The server ends an idle
transaction itself. It does not end one whose COPY waits for a frozen driver: timeouts of statements do not apply there. So
the next owner, which waits for the locks, ends that session. Source: PostgreSQL's documentation, "Advisory Locks",
"pg_locks", "pg_stat_activity" (``wait_event``), "Server Signaling Functions".
"""

from __future__ import annotations

import logging
from collections.abc import Collection

import psycopg
from psycopg import errors

logger = logging.getLogger(__name__)


def lock(connection: psycopg.Connection, keys: Collection[int], *, stalled_ms: int) -> None:
    """Acquires advisory locks until the end of the transaction, in the order of their keys.

    Args:
        connection: a connection in a transaction.
        keys: the keys of the locks.
        stalled_ms: the age at which a statement that waits for its client counts as stalled, in milliseconds.

    Raises:
        psycopg.errors.LockNotAvailable: if a lock is not available within the timeout of the transaction.
    """
    required = [sorted(keys)]
    try:
        # A savepoint: the transaction continues after the error.
        with connection.transaction():
            connection.execute(_LOCK, required)
    except errors.LockNotAvailable:
        ended = connection.execute(_END_STALLED, {"keys": list(keys), "stalled_ms": stalled_ms}).fetchall()
        if not ended:
            raise
        logger.warning("Sessions of frozen drivers were ended, which held locks of a ledger: %d", len(ended))
        connection.execute(_LOCK, required)


_LOCK = "SELECT pg_advisory_xact_lock(key) FROM unnest(%s::bigint[]) AS key"
#: A role needs no privilege to end its own sessions.
_END_STALLED = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid IN (SELECT pid FROM pg_locks
                  WHERE locktype = 'advisory' AND granted AND objsubid = 1
                        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                        AND ((classid::bigint << 32) | objid::bigint) = ANY (%(keys)s::bigint[]))
          AND usename = current_user AND state = 'active' AND wait_event IN ('ClientRead', 'ClientWrite')
          AND query_start < clock_timestamp() - %(stalled_ms)s * interval '1 millisecond'
"""
