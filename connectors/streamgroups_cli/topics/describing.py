"""``streamgroups topics describe``: shows the brokers and offsets of partitions, and the groups that read them.

``streamgroups_cli.topics`` imports it. Source: ``kafka-topics.sh --describe``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from streamgroups.errors import UnknownTopic
from streamgroups.groups.lag import PartitionError
from streamgroups.monitoring.snapshots import list_all
from streamgroups.partitions import Bounds, StampedOffset, TopicDescription, TopicPartition
from streamgroups.tables import Cell, Column, Table
from streamgroups.times import utc
from streamgroups_cli.connection import Cluster, Connect
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, OutputOption, emit

_PARTITIONS = (
    Column("topic"),
    Column("partition", right=True),
    Column("leader", right=True),
    Column("replicas"),
    Column("in_sync"),
    Column("beginning_offset", right=True),
    Column("end_offset", right=True),
    Column("newest_time"),
)


@with_options
def describe(
    connect: Connect,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Topics.")],
    groups: Annotated[bool, typer.Option("--groups", help="Include the groups that read them.")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Show partitions of topics: leaders, replicas, offsets, newest records."""
    asked = list(dict.fromkeys(topics))
    with connect() as cluster:
        described = cluster.topics.describe_topics(asked)
        partitions = [TopicPartition(t.name, p.partition) for t in described.values() for p in t.partitions]
        bounds = cluster.topics.bounds(partitions)
        newest = cluster.topics.newest(partitions)
        readers = _readers(cluster, asked) if groups else {}
    found = [described[name] for name in asked if name in described]
    emit(
        output,
        document=lambda: {"topics": [_document(t, bounds, newest, readers if groups else None) for t in found]},
        tables=lambda: [_table(t, bounds, newest, readers) for t in found],
        flat=lambda: Table(_PARTITIONS, [row for t in found for row in _rows(t, bounds, newest)]),
    )
    missing = [name for name in asked if name not in described]
    if missing:
        raise UnknownTopic(
            f"Topic {', '.join(map(repr, missing))} does not exist.",
            remedy="See: streamgroups topics list.",
            topic=missing[0] if len(missing) == 1 else None,
        )


def _readers(cluster: Cluster, topics: Sequence[str]) -> dict[str, list[str]]:
    """The groups with committed offsets of each topic, or whose members own partitions of it."""
    ids = [g.group_id for g in list_all(cluster.groups)]
    committed = cluster.groups.committed_offsets(ids)
    described = cluster.groups.describe_groups(ids)
    touched = {g: {tp.topic for tp in (*committed[g], *described[g].owners)} for g in ids}
    return {topic: [g for g in sorted(ids) if topic in touched[g]] for topic in topics}


def _rows(
    topic: TopicDescription,
    bounds: Mapping[TopicPartition, Bounds | PartitionError],
    newest: Mapping[TopicPartition, StampedOffset | None],
) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for p in topic.partitions:
        tp = TopicPartition(topic.name, p.partition)
        extent, last = bounds.get(tp), newest.get(tp)
        known = extent if isinstance(extent, Bounds) else None
        rows.append(
            [
                topic.name,
                p.partition,
                p.leader,
                ",".join(map(str, p.replicas)),
                ",".join(map(str, p.in_sync)),
                known.beginning_offset if known else None,
                known.end_offset if known else None,
                utc(last.timestamp_ms) if last else None,
            ]
        )
    return rows


def _table(
    topic: TopicDescription,
    bounds: Mapping[TopicPartition, Bounds | PartitionError],
    newest: Mapping[TopicPartition, StampedOffset | None],
    readers: Mapping[str, Sequence[str]],
) -> Table:
    count = len(topic.partitions)
    words = [f"id {topic.topic_id}", f"{count} partition{'' if count == 1 else 's'}"]
    words += [f"read by {', '.join(readers[topic.name]) or 'no group'}"] if topic.name in readers else []
    return Table(_PARTITIONS, _rows(topic, bounds, newest), f"Topic {topic.name}: {', '.join(words)}")


def _document(
    topic: TopicDescription,
    bounds: Mapping[TopicPartition, Bounds | PartitionError],
    newest: Mapping[TopicPartition, StampedOffset | None],
    readers: Mapping[str, Sequence[str]] | None,
) -> dict[str, Any]:
    names = [c.name for c in _PARTITIONS]
    partitions: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in _rows(topic, bounds, newest)]
    for document, p in zip(partitions, topic.partitions, strict=True):
        del document["topic"]
        document.update(replicas=list(p.replicas), in_sync=list(p.in_sync))
    whole: dict[str, Any] = {"topic": topic.name, "topic_id": topic.topic_id, "internal": topic.internal}
    if readers is not None:
        whole["groups"] = list(readers[topic.name])
    return {**whole, "partitions": partitions}
