"""``streamgroups topics tail``: prints the last records of a topic, and then new ones.

It joins no group and commits nothing. :mod:`streamgroups_cli.record_output` prints the records. ``streamgroups_cli.topics``
imports it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Annotated

import typer

from streamgroups.groups.reset_plan import parse_scope, require_bounds
from streamgroups.json_values import MAX_INT32
from streamgroups.message import Message
from streamgroups.partitions import TopicPartition
from streamgroups_admin.cluster import Cluster
from streamgroups_cli.connection import Connect
from streamgroups_cli.groups.scope import partitions_of
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, OutputOption
from streamgroups_cli.record_output import FullOption, RecordPrinter, Show, ShowOption


@with_options
def tail(
    connect: Connect,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC[:0,1]", help="Topics, or partitions of them.")],
    last: Annotated[
        int,
        typer.Option("--last", "-n", min=0, max=MAX_INT32, metavar="N", help="Number of records of each partition."),
    ] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new records; Ctrl-C ends it.")] = False,
    show: ShowOption = Show.auto,
    full: FullOption = False,
    output: OutputOption = Output.table,
) -> None:
    """Show the last records of topics."""
    scope = parse_scope(topics)
    printer = RecordPrinter(output, show, full)
    with connect() as cluster:
        partitions = partitions_of(cluster, scope)
        bounds = require_bounds(cluster.topics.bounds(partitions))
        ends = {tp: b.end_offset for tp, b in bounds.items()}
        beginnings = {tp: b.beginning_offset for tp, b in bounds.items()}
        printer.print(
            sorted(
                _last(cluster, beginnings, ends, last), key=lambda r: (r.timestamp_ms or 0, r.topic_partition, r.offset)
            )
        )
        if follow:
            try:
                printer.print(cluster.topics.read(ends, None))
            except KeyboardInterrupt:
                return


def _last(
    cluster: Cluster, beginnings: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], count: int
) -> Iterator[Message]:
    """Reads the last records of each partition. If offsets have gaps, it starts at earlier offsets."""
    back = count
    waiting = set(ends) if count else set()
    while waiting:
        starts = {tp: max(beginnings[tp], ends[tp] - back) for tp in waiting}
        found: defaultdict[TopicPartition, deque[Message]] = defaultdict(lambda: deque(maxlen=count))
        for record in cluster.topics.read(starts, {tp: ends[tp] for tp in waiting}):
            found[record.topic_partition].append(record)
        enough = {tp for tp in waiting if len(found[tp]) == count or starts[tp] == beginnings[tp]}
        for tp in enough:
            yield from found[tp]
        waiting -= enough
        back *= 4
