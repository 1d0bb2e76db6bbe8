"""Decisions about ledgers: whether and how a batch is committed together with its positions.

An exactly-once sink stores a ledger: the position of every source partition, beside the output, advanced by the
transaction of the output. ``streamgroups/ledgers/compare_and_swap`` compares the ranges of a batch with the positions:

* All ranges begin at the positions: write the output and advance the ledger.
* All ranges end at the positions: the batch is already written.
* Anything else: reject the batch, with the reason for each partition.

Spark's batch ids are not used, because a new checkpoint starts at 0 again. ``streamgroups.ledgers.batch_commit`` performs
this in the transaction of a ``streamgroups.ports.Ledger``. It can be repeated when the response to a commit is lost.

When a partition is assigned, the query continues at the position of the ledger, and the committed offset follows. A
committed offset below the ledger has not followed it yet. If a tool has reset it, ``onRestart`` determines which position
wins (the table is in ``streamgroups/ledgers/recovery.py``). In a replayed batch, ranges that the ledger contains are not
read again, unless the query keeps state.

A no-data batch has no ranges to compare. Its replay can only come from the same checkpoint. So the transaction also
stores the id of the checkpoint, Spark's batch id, and a fingerprint of Spark's log of the batch
(``streamgroups/ledgers/no_data_batch``). The fingerprint distinguishes a replay from a checkpoint that was restored
from a backup. Such a batch needs no member of the group: after a restart Spark runs it before it calls any source.

A state-space search tests these rules: ``unit_tests/streamgroups/test_exactly_once.py`` runs two queries that crash at
every step of a commit and lose responses. They restart with and without checkpoints, hand over during batches, and
continue as zombies. The same search finds the errors that occur without the ledger, without its rejections, and with
batch ids as keys.

Users import the names below as ``sg.ledgers``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgroups._lazy import accessors, places

if TYPE_CHECKING:
    from streamgroups_spark.sinks.foreach_ledger import BatchLedger as BatchLedger
    from streamgroups_spark.sinks.foreach_ledger import LedgerBatch as LedgerBatch
    from streamgroups_spark.sinks.foreach_ledger import LedgerPosition as LedgerPosition
    from streamgroups_spark.sinks.foreach_ledger import LedgerPositions as LedgerPositions
    from streamgroups_spark.sinks.foreach_ledger import LedgerTable as LedgerTable
    from streamgroups_spark.sinks.foreach_ledger import ledger as ledger

_PLACES = places(
    {
        "streamgroups_spark.sinks.foreach_ledger": "BatchLedger LedgerBatch LedgerPosition LedgerPositions LedgerTable ledger",
    }
)

__all__ = sorted(_PLACES)
__getattr__, __dir__ = accessors(__name__, _PLACES)
