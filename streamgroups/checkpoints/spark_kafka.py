"""Positions in the checkpoint of a query that reads with Spark's own ``kafka`` source, and offsets for that source.

Called by ``streamgroups groups import --from-spark-checkpoint`` and ``groups export --to-spark-options``, and by
:mod:`streamgroups.checkpoints.offset` for its error. ``streamgroups_admin.checkpoints.batches`` reads the files.
Source: ``KafkaSourceOffset`` (``JsonUtils.partitionOffsets``), whose JSON is ``{"flights":{"0":12,"1":40}}``;
``MicroBatchExecution``, which writes ``offsets/<batch>`` before a batch and ``commits/<batch>`` after it, and runs a batch
without the latter again with the same end offsets.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamgroups.errors import InvalidOption
from streamgroups.json_values import items, partition_number, whole
from streamgroups.partitions import TopicPartition
from streamgroups.printable import listed

#: The kind of an offset of the punctuation source (``streamgroups_spark.event_time.punctuation_source``), and its format.
PUNCTUATIONS = "streamgroups-time"
#: The value in ``startingOffsets`` for the earliest offset of a partition.
_EARLIEST = -2


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A batch in Spark's offset log.

    Args:
        batch_id: its id.
        ends: the end offset of each source, by the number or name of the source. ``None`` for a source without one.
    """

    batch_id: int
    ends: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SparkCheckpoint:
    """The content of a checkpoint, whatever its sources are.

    Args:
        location: its location, for messages.
        committed: the last batch with a commit; ``None`` if no batch is committed.
        planned: the batch after it that Spark has planned and not committed; ``None`` without one.
        initial: the offset of each source before its first batch, where Spark has logged it.
        written_ms: when its logs were written last, in milliseconds since the epoch; ``None`` if unknown.
        operators: the stateful operators of the query, such as ``0 (stateStoreSave)``.
    """

    location: str
    committed: LoggedBatch | None = None
    planned: LoggedBatch | None = None
    initial: Mapping[str, Any] = field(default_factory=dict)
    written_ms: int | None = None
    operators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadRange:
    """The offsets of a partition that a batch has read.

    Args:
        next_offset: the first one. ``None`` if the checkpoint does not contain it.
        end_offset: the offset after the last one.

    >>> str(ReadRange(5, 12)), str(ReadRange(None, 12))
    ('[5,12)', '[?,12)')
    """

    next_offset: int | None
    end_offset: int

    @property
    def count(self) -> int | None:
        """The number of offsets; ``None`` if it is unknown."""
        return None if self.next_offset is None else self.end_offset - self.next_offset

    def __str__(self) -> str:
        return f"[{'?' if self.next_offset is None else self.next_offset},{self.end_offset})"


@dataclass(frozen=True, slots=True)
class KafkaPositions:
    """The positions of the Kafka sources of a checkpoint.

    Args:
        batch_id: the last committed batch; ``None`` if the positions are those before the first batch.
        next_offsets: the position of each partition after this batch.
        planned: the offsets of each partition that a planned batch without a commit reads. The first offset of a partition
            that is new in the batch is unknown.
        other_sources: the sources that are not Kafka, or that were not selected.
    """

    batch_id: int | None
    next_offsets: Mapping[TopicPartition, int]
    planned: Mapping[TopicPartition, ReadRange] = field(default_factory=dict)
    other_sources: tuple[str, ...] = ()


def kafka_offset(value: Any) -> dict[TopicPartition, int] | None:
    """Parses an offset of Spark's ``kafka`` source. Returns ``None`` for an offset of another source.

    >>> kafka_offset({"flights": {"0": 12}})
    {TopicPartition(topic='flights', partition=0): 12}
    >>> kafka_offset({"logOffset": 3}) is None
    True
    """
    try:
        return {
            TopicPartition(topic, partition_number(partition)): whole(next_offset)
            for topic, partitions in items(value)
            for partition, next_offset in items(partitions)
        }
    except (ValueError, InvalidOption):
        return None


def is_own_offset(value: Any) -> bool:
    """Returns whether this library has written an offset.

    >>> is_own_offset({"version": 2, "n": 1, "ranges": {}, "resting": {}})
    True
    """
    return isinstance(value, dict) and type(value.get("version")) is int and "ranges" in value


def punctuation_group(value: Any) -> str | None:
    """Returns the group of a punctuation source from one of its offsets. ``None`` for an offset of another source.

    >>> punctuation_group({"version": 1, "n": 7, "ranges": {}}) is None
    True
    """
    return str(value["group"]) if isinstance(value, dict) and value.get("kind") == PUNCTUATIONS else None


def kafka_positions(checkpoint: SparkCheckpoint, selected: Collection[str] = ()) -> KafkaPositions:
    """Returns the positions of the Kafka sources of a checkpoint after its last committed batch.

    Args:
        checkpoint: the checkpoint.
        selected: the numbers or names of the sources to use. All Kafka sources if empty.

    Raises:
        InvalidOption: if the checkpoint contains no position; if a source is one of this library; if no source, or not
            each selected one, is a Kafka source; or if two sources have positions of the same partition.

    >>> batch = LoggedBatch(7, {"0": {"flights": {"0": 12}}})
    >>> kafka_positions(SparkCheckpoint("/old", batch)).next_offsets
    {TopicPartition(topic='flights', partition=0): 12}
    """
    known = checkpoint.committed or checkpoint.planned
    if known is None:
        raise InvalidOption(
            f"The checkpoint '{checkpoint.location}' contains no batch, so it has no positions.",
            remedy="Start the new query with the starting options of the old one.",
        )
    _reject_own(checkpoint, known)
    sources = {name: _of_source(checkpoint, name) for name in known.ends}
    of_kafka = {name: positions for name, positions in sources.items() if positions is not None}
    missing = sorted(set(selected) - of_kafka.keys()) if selected else []
    if missing or not of_kafka:
        raise InvalidOption(
            f"The checkpoint '{checkpoint.location}' has no Kafka source"
            + (f" {', '.join(map(repr, missing))}" if missing else "")
            + f"; its sources are: {_shown(sources)}.",
            remedy="Use the checkpointLocation of a query that reads with format('kafka')"
            + (", and the number or name of a Kafka source." if missing else "."),
        )
    used = {name: it for name, it in of_kafka.items() if not selected or name in selected}
    next_offsets = _merged(checkpoint, used)
    if not next_offsets:
        raise InvalidOption(
            f"The checkpoint '{checkpoint.location}' contains no offset of a partition before batch {known.batch_id} "
            f"has finished; its sources are: {_shown(used)}.",
            remedy="Start the new query with the starting options of the old one.",
        )
    return KafkaPositions(
        None if checkpoint.committed is None else checkpoint.committed.batch_id,
        next_offsets,
        _planned(checkpoint, used),
        tuple(name for name in sources if name not in used),
    )


def spark_options(next_offsets: Mapping[TopicPartition, int], partitions: Collection[TopicPartition]) -> dict[str, str]:
    """Returns the options with which Spark's ``kafka`` source continues at the positions of a group.

    Spark requires an offset of every partition of its topics. A partition without a position starts at its earliest
    record.

    Args:
        next_offsets: the positions of the group.
        partitions: all partitions of its topics.

    >>> spark_options({TopicPartition("flights", 0): 7}, [TopicPartition("flights", 0), TopicPartition("flights", 1)])
    {'subscribe': 'flights', 'startingOffsets': '{"flights":{"0":7,"1":-2}}'}
    """
    offsets: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for tp in sorted({*next_offsets, *partitions}):
        offsets[tp.topic][str(tp.partition)] = next_offsets.get(tp, _EARLIEST)
    return {"subscribe": ",".join(offsets), "startingOffsets": json.dumps(offsets, separators=(",", ":"))}


def _reject_own(checkpoint: SparkCheckpoint, known: LoggedBatch) -> None:
    own = next((end for end in known.ends.values() if is_own_offset(end)), None)
    if own is None:
        return
    group_id = own.get("group")
    group = f"'{group_id}'" if isinstance(group_id, str) else "of its option 'group.id'"
    raise InvalidOption(
        f"The checkpoint '{checkpoint.location}' belongs to a query of format('streamgroups'): group {group} "
        "stores its positions.",
        remedy="Start a query with this group.id. To copy the positions to another group, use: "
        "streamgroups groups export, then groups import --group.",
    )


def _of_source(checkpoint: SparkCheckpoint, name: str) -> dict[TopicPartition, int] | None:
    """The positions of a Kafka source: its initial ones before its first batch. ``None`` for another source."""
    committed = None if checkpoint.committed is None else checkpoint.committed.ends.get(name)
    found = kafka_offset(checkpoint.initial.get(name) if committed is None else committed)
    if found is None and checkpoint.planned is not None and kafka_offset(checkpoint.planned.ends.get(name)) is not None:
        return {}
    return found


def _merged(
    checkpoint: SparkCheckpoint, sources: Mapping[str, Mapping[TopicPartition, int]]
) -> dict[TopicPartition, int]:
    merged: dict[TopicPartition, int] = {}
    for name, positions in sources.items():
        twice = sorted(positions.keys() & merged.keys())
        if twice:
            raise InvalidOption(
                f"Several sources of the checkpoint '{checkpoint.location}' read {listed(twice)}: a group has one "
                f"position of a partition. The sources are: {_shown(sources)}.",
                remedy=f"Use one group for each source: --source {name} with its own --group.",
            )
        merged |= positions
    return dict(sorted(merged.items()))


def _planned(
    checkpoint: SparkCheckpoint, sources: Mapping[str, Mapping[TopicPartition, int]]
) -> dict[TopicPartition, ReadRange]:
    if checkpoint.planned is None:
        return {}
    ranges: dict[TopicPartition, ReadRange] = {}
    for name, positions in sources.items():
        ends = kafka_offset(checkpoint.planned.ends.get(name)) or {}
        ranges |= {tp: ReadRange(positions.get(tp), end) for tp, end in ends.items() if end > positions.get(tp, 0)}
    return dict(sorted(ranges.items()))


def _shown(sources: Mapping[str, Mapping[TopicPartition, int] | None]) -> str:
    return "; ".join(f"{name} ({_topics(positions)})" for name, positions in sources.items())


def _topics(positions: Mapping[TopicPartition, int] | None) -> str:
    if positions is None:
        return "not Kafka"
    topics: Sequence[str] = sorted({tp.topic for tp in positions})
    return f"Kafka, {listed(topics)}" if topics else "Kafka, no topic"
