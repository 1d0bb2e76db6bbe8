"""``streamgroups topics list``: lists all topics of a cluster, in one request.

``streamgroups_cli.topics`` imports it. Source: ``kafka-topics.sh --list``.
"""

from __future__ import annotations

from typing import Annotated

import typer

from streamgroups.partitions import TopicDescription
from streamgroups.tables import Cell, Column, Table
from streamgroups_cli.connection import Connect
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, OutputOption, emit

_COLUMNS = (
    Column("topic"),
    Column("partitions", right=True),
    Column("replicas", right=True),
    Column("out_of_sync", right=True),
    Column("without_leader", right=True),
)


@with_options
def list_topics(
    connect: Connect,
    internal: Annotated[bool, typer.Option("--internal", help="Include Kafka's internal topics.")] = False,
    output: OutputOption = Output.table,
) -> None:
    """List the topics of the cluster."""
    with connect() as cluster:
        topics = [t for t in cluster.topics.describe_topics().values() if internal or not t.internal]
    rows = [_cells(t) for t in topics]
    names = [column.name for column in _COLUMNS]
    emit(
        output,
        document=lambda: {"topics": [dict(zip(names, row, strict=True)) for row in rows]},
        tables=lambda: [Table(_COLUMNS, rows)],
    )


def _cells(topic: TopicDescription) -> list[Cell]:
    return [
        topic.name,
        len(topic.partitions),
        max((len(p.replicas) for p in topic.partitions), default=0),
        sum(len(p.in_sync) < len(p.replicas) for p in topic.partitions),
        sum(p.leader is None for p in topic.partitions),
    ]
