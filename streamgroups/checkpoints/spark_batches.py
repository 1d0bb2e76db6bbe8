"""Evaluates one batch of a Spark checkpoint: the records that each source has read, and options that read them again.

Called by ``streamgroups checkpoint show`` and ``copy``. A Kafka source logs its end offsets only, so the batch begins at the
end of the batch before it. A source of this library logs the ranges of the batch
(:mod:`streamgroups.checkpoints.offset`). Source: ``MicroBatchExecution``; ``KafkaSource``, whose new partitions begin at
their earliest record; the options of Spark's batch reads from Kafka.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from streamgroups.checkpoints.offset import decode
from streamgroups.checkpoints.spark_kafka import ReadRange, is_own_offset, kafka_offset
from streamgroups.checkpoints.spark_logs import OffsetEntry
from streamgroups.errors import InvalidOption
from streamgroups.partitions import TopicPartition
from streamgroups.printable import listed

#: The value in ``startingOffsets`` for the earliest offset of a partition.
_EARLIEST = -2


class SourceKind(Enum):
    """The format of a source."""

    KAFKA = "kafka"
    STREAMGROUPS = "streamgroups"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """The input of a batch from one source.

    Args:
        name: the name of the source, or its number.
        kind: its format.
        start: its offset before the batch, as logged. ``None`` if it is unknown, or the source had none.
        end: its offset after the batch, as logged. ``None`` if the source has none.
        ranges: the offsets of each partition, of a source of Kafka's topics.
        group_id: the group of a source of this library.
        is_start_known: whether the checkpoint contains the start of the batch.
    """

    name: str
    kind: SourceKind
    start: Any
    end: Any
    ranges: Mapping[TopicPartition, ReadRange]
    group_id: str | None = None
    is_start_known: bool = True


def sources_of(
    entry: OffsetEntry, before: OffsetEntry | None, initial: Mapping[str, Any], *, is_first: bool
) -> list[SourceBatch]:
    """Returns the input of a batch from each source.

    Args:
        entry: the batch.
        before: the batch before it; ``None`` if the checkpoint does not have it.
        initial: the offset of each source before its first batch, where Spark has logged it.
        is_first: whether it is batch 0.

    Raises:
        OffsetFormat: if a source of this library has a damaged offset, or one of another version.

    >>> entry = OffsetEntry(1, 0, 0, {"0": {"flights": {"0": 12}}})
    >>> [source] = sources_of(entry, OffsetEntry(1, 0, 0, {"0": {"flights": {"0": 5}}}), {}, is_first=False)
    >>> source.kind.value, source.ranges
    ('kafka', {TopicPartition(topic='flights', partition=0): ReadRange(next_offset=5, end_offset=12)})
    """
    return [_source(name, end, before, initial.get(name), is_first=is_first) for name, end in entry.ends.items()]


def read_options(source: SourceBatch, batch_id: int) -> dict[str, str]:
    """Returns the options with which ``spark.read`` of the same format reads exactly the records of a batch.

    Args:
        source: the source.
        batch_id: the batch, for errors.

    Raises:
        InvalidOption: if it is not a source of Kafka's topics, its start is unknown, or it has read no records.

    >>> tp = TopicPartition("flights", 0)
    >>> read_options(SourceBatch("0", SourceKind.KAFKA, {}, {}, {tp: ReadRange(5, 12)}), 7)
    {'assign': '{"flights":[0]}', 'startingOffsets': '{"flights":{"0":5}}', 'endingOffsets': '{"flights":{"0":12}}'}
    """
    if source.kind is SourceKind.OTHER:
        raise InvalidOption(
            f"Source {source.name} does not read topics of Kafka, so no options read batch {batch_id} again.",
            remedy="Use --source with another source, or omit --as-options to print the offset of each source.",
        )
    if not source.is_start_known:
        raise InvalidOption(
            f"The start of batch {batch_id} is unknown: the checkpoint has no batch {batch_id - 1}.",
            remedy="Use --batch with a later batch.",
        )
    read = {tp: it for tp, it in sorted(source.ranges.items()) if it.count != 0}
    if not read:
        raise InvalidOption(
            f"Batch {batch_id} has read no records of source {source.name}.", remedy="Use another batch."
        )
    partitions: defaultdict[str, list[int]] = defaultdict(list)
    for tp in read:
        partitions[tp.topic].append(tp.partition)
    starts = {tp: _EARLIEST if it.next_offset is None else it.next_offset for tp, it in read.items()}
    return {
        "assign": _compact(partitions),
        "startingOffsets": _by_topic(starts),
        "endingOffsets": _by_topic({tp: it.end_offset for tp, it in read.items()}),
    }


def selected_source(sources: Sequence[SourceBatch], name: str | None) -> SourceBatch:
    """Returns the source with a name, or the only one of Kafka's topics.

    Raises:
        InvalidOption: if the source does not exist, or several ones are possible.

    >>> selected_source([SourceBatch("0", SourceKind.OTHER, 1, 2, {})], "1")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: The query has no source '1'. Its sources are: 0.
    """
    if name is not None:
        found = next((it for it in sources if it.name == name), None)
        if found is None:
            raise InvalidOption(
                f"The query has no source '{name}'.", remedy=f"Its sources are: {listed(it.name for it in sources)}."
            )
        return found
    of_topics = [it for it in sources if it.kind is not SourceKind.OTHER]
    if len(of_topics) != 1:
        raise InvalidOption(
            f"The query has {len(of_topics)} sources that read topics of Kafka.",
            remedy="Name one of its sources with --source: " + listed(it.name for it in sources) + ".",
        )
    return of_topics[0]


def _source(name: str, end: Any, before: OffsetEntry | None, initial: Any, *, is_first: bool) -> SourceBatch:
    start = None if before is None else before.ends.get(name)
    if before is None and is_first and kafka_offset(initial) is not None:
        # Other sources log other values there.
        start = initial
    is_known = before is not None or is_first
    if is_own_offset(end):
        offset = decode(end)
        ranges = {r.topic_partition: ReadRange(r.next_offset, r.end_offset) for r in offset.ranges}
        if start == end:
            # A batch without records of this source has the ranges of an earlier batch.
            ranges = {}
        at_rest = {tp: ReadRange(n, n) for tp, n in offset.next_offsets.items() if tp not in ranges}
        return SourceBatch(name, SourceKind.STREAMGROUPS, start, end, {**ranges, **at_rest}, offset.group_id)
    ends = kafka_offset(end) if end else None
    if ends is None:
        return SourceBatch(name, SourceKind.OTHER, start, end, {}, is_start_known=is_known)
    starts = (kafka_offset(start) if start is not None else None) or {}
    is_known = is_known and start is not None
    read = {tp: ReadRange(starts.get(tp), n) for tp, n in sorted(ends.items())}
    return SourceBatch(name, SourceKind.KAFKA, start, end, read, is_start_known=is_known)


def _by_topic(offsets: Mapping[TopicPartition, int]) -> str:
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for tp, n in offsets.items():
        found[tp.topic][str(tp.partition)] = n
    return _compact(found)


def _compact(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
