"""Reads the positions of the ledger of a sink, and the version of its table, for savepoints.

Any sink with a ledger has positions: :class:`streamgroups.ledgers.staging.StagingSink`, or the table of positions of
``sg.ledgers.ledger``. Nothing is written. Source: SEMANTICS C3, X2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamgroups.errors import InvalidOption
from streamgroups.ledgers.staging import VersionedSink
from streamgroups.partitions import TopicPartition
from streamgroups.savepoints.output_record import OutputRecord, ahead, behind

#: A query commits the ledger before the group, so the version of the committed offsets is one of the last ones.
_MAX_VERSIONS = 10


def read_output(sink: Any, group_id: str, next_offsets: Mapping[TopicPartition, int]) -> OutputRecord:
    """Returns the current output of a group. Of a Delta table, the version whose positions are the committed offsets, if it exists.

    Args:
        sink: the sink of the queries.
        group_id: the group.
        next_offsets: its committed offsets.

    Raises:
        InvalidOption: if the sink has no ledger.
        SinkRejected: if the table does not exist.
        SinkUnreachable: if the sink does not answer.
    """
    partitions = sorted(next_offsets)
    if isinstance(sink, VersionedSink):
        return _versioned(sink, group_id, next_offsets)
    if hasattr(sink, "open"):
        with sink.open(group_id) as ledger:
            return OutputRecord(sink.output, ledger.positions(partitions))
    if hasattr(sink, "read"):
        rows = sink.read()
        found = {tp: row.next_offset for tp in partitions if (row := rows.get((tp.topic, tp.partition))) is not None}
        return OutputRecord(f"ledger:{type(sink).__name__}", found)
    raise InvalidOption(
        f"{type(sink).__name__} has no ledger.",
        remedy="Pass a PostgresSink, a DeltaSink, or the table of sg.ledgers.ledger. The Kafka sink commits the offsets itself.",
    )


def _versioned(sink: VersionedSink, group_id: str, next_offsets: Mapping[TopicPartition, int]) -> OutputRecord:
    newest = OutputRecord(sink.output, *sink.read_ledger(group_id, sorted(next_offsets)))
    output = newest
    for _ in range(_MAX_VERSIONS):
        if not ahead(output, next_offsets):
            # A version that lacks output of another partition would lose it.
            return newest if behind(output, next_offsets) else output
        if not output.table_version:
            break
        found = sink.read_ledger(group_id, sorted(next_offsets), output.table_version - 1)
        output = OutputRecord(sink.output, *found)
    return newest
