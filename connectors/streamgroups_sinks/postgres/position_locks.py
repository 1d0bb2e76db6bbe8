"""Reads and locks the positions of a ledger in a transaction, with a limited number of locks.

Called by ``ledger``. The lock table of a server has space for about 6,400 locks of all its sessions by default, and locks of rows
need none of it. One lock protects all positions of a partition (:mod:`streamgroups.ledgers.locked_partitions`): that of its row.
Partitions without a row need advisory locks:

* A transaction with few partitions shares the lock of the group, and locks each partition.
* A transaction with many partitions locks their rows only. If a row is missing, it first locks the whole group.

So members with other partitions do not wait for each other, except while one of many partitions gets its row. Two transactions
of one partition exclude each other: by its row, if the row exists. Otherwise both have an advisory lock of the partition or
of the group. All locks are acquired in one order: group, partitions, rows. Source: SEMANTICS X2, X3; PostgreSQL's
documentation, "Lock Management" (``max_locks_per_transaction``), "Explicit Locking".
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql

from streamgroups.identity import TopicIdentity
from streamgroups.ledgers.locked_partitions import locked_partitions
from streamgroups.partitions import TopicPartition
from streamgroups_sinks.postgres.locks import end_stalled_of_rows, lock, lock_group
from streamgroups_sinks.postgres.table_names import TableName, lock_key

#: The maximum number of partitions with a lock each in one transaction: about four times what the server reserves for one.
_MAX_EXACT = 256

#: Positions with the topics of their partitions.
Positions = dict[TopicPartition, tuple[int, TopicIdentity]]


class PositionLocks:
    """The locks of one transaction, for all groups of its query.

    Args:
        connection: the connection of the transaction.
        table: the table of the ledger.
        stalled_ms: the age at which a statement that waits for its client counts as stalled, in milliseconds.
    """

    def __init__(self, connection: psycopg.Connection, table: TableName, *, stalled_ms: int) -> None:
        self._connection, self._table, self._stalled_ms = connection, table, stalled_ms
        self._held: dict[str, set[TopicPartition]] = {}
        self._waits_for: tuple[str, set[TopicPartition]] = ("", set())

    def acquire(self, group_id: str, partitions: Collection[TopicPartition]) -> Positions:
        """Locks positions until the end of the transaction, and returns those that exist.

        Args:
            group_id: the group.
            partitions: the partitions of the positions.

        Raises:
            psycopg.errors.LockNotAvailable: if a lock is not available within the timeout of the transaction.
        """
        if not partitions:
            return {}
        locked = locked_partitions(partitions)
        required = {*partitions, *locked}
        self._waits_for = (group_id, required)
        has_all = self._lock(group_id, locked)
        found = read_positions(self._connection, self._table, group_id, required, for_update=True)
        if not has_all and not locked <= found.keys():
            # Rows were deleted since they were counted.
            lock_group(self._connection, self._group_key(group_id))
            found = read_positions(self._connection, self._table, group_id, required, for_update=True)
        self._held.setdefault(group_id, set()).update(locked)
        requested = set(partitions)
        return {tp: it for tp, it in found.items() if tp in requested}

    def ensure(self, group_id: str, partitions: Collection[TopicPartition]) -> None:
        """Locks positions, unless this transaction has locked them. Raises as :meth:`acquire`."""
        if not locked_partitions(partitions) <= self._held.get(group_id, set()):
            self.acquire(group_id, partitions)

    def end_stalled(self) -> None:
        """Ends the sessions of frozen drivers that hold the rows of the last request, after the end of the transaction.

        The next transaction acquires the locks then.
        """
        group_id, partitions = self._waits_for
        rows = sql.SQL(_OWNERS).format(self._table.identifier)
        # The error that has ended the transaction is more important.
        with suppress(psycopg.Error):
            end_stalled_of_rows(self._connection, rows, _values(group_id, partitions), self._stalled_ms)

    def _lock(self, group_id: str, locked: Collection[TopicPartition]) -> bool:
        """Acquires advisory locks. Returns whether they also cover partitions without a row."""
        group = self._group_key(group_id)
        if len(locked) <= _MAX_EXACT:
            keys = {lock_key(self._table.name, group_id, tp.topic, tp.partition) for tp in locked}
            lock(self._connection, group, keys, stalled_ms=self._stalled_ms)
            return True
        if len(read_positions(self._connection, self._table, group_id, locked, for_update=False)) == len(locked):
            return False
        lock_group(self._connection, group)
        return True

    def _group_key(self, group_id: str) -> int:
        return lock_key("group", self._table.name, group_id)


def read_positions(
    connection: psycopg.Connection,
    table: TableName,
    group_id: str,
    partitions: Collection[TopicPartition],
    *,
    for_update: bool,
) -> Positions:
    """Returns the positions of a group.

    Args:
        connection: the connection.
        table: the table of the ledger.
        group_id: the group.
        partitions: the partitions of the positions.
        for_update: whether their rows are locked.
    """
    text = _READ_LOCKED if for_update else _READ
    values = _values(group_id, partitions)
    rows = connection.execute(sql.SQL(text).format(table.identifier), values).fetchall()
    return {
        TopicPartition(topic, partition): (next_offset, TopicIdentity(cluster_id, topic_id))
        for topic, partition, next_offset, cluster_id, topic_id in rows
    }


def _values(group_id: str, partitions: Collection[TopicPartition]) -> dict[str, Any]:
    required = sorted(partitions)
    return {
        "group": group_id,
        "topics": [tp.topic for tp in required],
        "partitions": [tp.partition for tp in required],
    }


_READ = """
    SELECT topic, partition, next_offset, cluster_id, topic_id
    FROM {} JOIN unnest(%(topics)s::text[], %(partitions)s::integer[]) AS requested (topic, partition) USING (topic, partition)
    WHERE group_id = %(group)s
"""
_READ_LOCKED = """
    SELECT l.topic, l.partition, l.next_offset, l.cluster_id, l.topic_id
    FROM {} AS l JOIN unnest(%(topics)s::text[], %(partitions)s::integer[]) AS w (topic, partition)
         ON (l.topic, l.partition) = (w.topic, w.partition)
    WHERE l.group_id = %(group)s
    ORDER BY l.topic, l.partition
    FOR UPDATE OF l
"""
#: The transaction that has locked a row last.
_OWNERS = """
    SELECT l.xmax
    FROM {} AS l JOIN unnest(%(topics)s::text[], %(partitions)s::integer[]) AS w (topic, partition)
         ON (l.topic, l.partition) = (w.topic, w.partition)
    WHERE l.group_id = %(group)s
"""
