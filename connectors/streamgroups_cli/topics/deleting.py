"""``streamgroups topics delete``: deletes topics with all their records.

A dry run first, as for all commands that delete. Nothing restores the records, so topics that members of a group read,
and Kafka's internal topics, are rejected. ``streamgroups_cli.topics`` imports it. Source: ``kafka-topics.sh --delete``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from streamgroups.errors import GroupRejected, PartlyDone, UnknownTopic
from streamgroups.groups.description import is_active
from streamgroups.monitoring.snapshots import list_all
from streamgroups.partitions import Bounds, TopicDescription, TopicPartition
from streamgroups.printable import listed
from streamgroups.tables import Cell, Column, Table
from streamgroups_cli.connection import Cluster, Connect
from streamgroups_cli.formats import names as quoted
from streamgroups_cli.groups.changes import ONLY_A_PLAN
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, OutputOption, emit, say

_COLUMNS = (Column("topic"), Column("partitions", right=True), Column("offsets", right=True), Column("groups"))


@with_options
def delete(
    connect: Connect,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Topics.")],
    execute: Annotated[
        bool,
        typer.Option("--execute/--dry-run", help="Delete them; otherwise only print them.", show_default="dry-run"),
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Delete topics with all their records. There is no undo. Topics that a group is reading are rejected."""
    names = list(dict.fromkeys(topics))
    with connect() as cluster:
        described = cluster.topics.describe_topics(names, operation="Delete")
        _require_known(names, described)
        readers = _readers(cluster, names)
        rows = _rows(cluster, names, described, readers)
        columns = [column.name for column in _COLUMNS]
        emit(
            output,
            document=lambda: {
                "dry_run": not execute,
                "topics": [dict(zip(columns, row, strict=True)) for row in rows],
            },
            tables=lambda: [Table(_COLUMNS, rows)],
        )
        if not execute:
            say(ONLY_A_PLAN)
            return
        failures = cluster.topics.delete_topics(names)
    if failures.keys() >= set(names):
        raise next(iter(failures.values()))
    if failures:
        reasons = " ".join(dict.fromkeys(error.what for error in failures.values()))
        raise PartlyDone(
            f"{len(names) - len(failures)} of {len(names)} topics were deleted. {reasons}",
            remedy=f"Remove the cause, then use: streamgroups topics delete --execute {quoted(sorted(failures))}.",
        )
    say(f"{len(names)} topic{'' if len(names) == 1 else 's'} deleted.")


def _require_known(names: Sequence[str], described: Mapping[str, TopicDescription]) -> None:
    missing = [name for name in names if name not in described]
    if missing:
        raise UnknownTopic(
            f"Topic {', '.join(map(repr, missing))} does not exist; nothing was changed.",
            remedy="See: streamgroups topics list.",
            topic=missing[0] if len(missing) == 1 else None,
        )
    internal = [name for name in names if described[name].internal]
    if internal:
        raise GroupRejected(
            f"Topic {', '.join(map(repr, internal))} belongs to Kafka: without it the cluster loses the offsets of all "
            "groups, or its transactions. Nothing was changed.",
            remedy="Name only topics of applications.",
        )


def _readers(cluster: Cluster, topics: Sequence[str]) -> dict[str, list[str]]:
    """The groups with committed offsets of each topic.

    Raises:
        GroupRejected: if a member of a group owns partitions of a topic.
    """
    ids = [g.group_id for g in list_all(cluster.groups)]
    groups = cluster.groups.describe_groups(ids)
    reading = {
        g: sorted({tp.topic for tp in group.owners} & set(topics)) for g, group in groups.items() if is_active(group)
    }
    active = {g: read for g, read in reading.items() if read}
    if active:
        what = "; ".join(f"group '{g}' ({', '.join(map(repr, read))})" for g, read in sorted(active.items()))
        raise GroupRejected(
            f"Topics are being read by {what}. Nothing was changed.",
            remedy="Stop the members of these groups first: a query whose topic is deleted fails.",
        )
    committed = cluster.groups.committed_offsets(ids)
    return {topic: [g for g in sorted(ids) if any(tp.topic == topic for tp in committed[g])] for topic in topics}


def _rows(
    cluster: Cluster,
    names: Sequence[str],
    described: Mapping[str, TopicDescription],
    readers: Mapping[str, Sequence[str]],
) -> list[list[Cell]]:
    partitions = {name: [TopicPartition(name, p.partition) for p in described[name].partitions] for name in names}
    bounds = cluster.topics.bounds([tp for of_topic in partitions.values() for tp in of_topic])
    rows: list[list[Cell]] = []
    for name, of_topic in partitions.items():
        found = [it for tp in of_topic if isinstance(it := bounds.get(tp), Bounds)]
        offsets = sum(it.end_offset - it.beginning_offset for it in found)
        rows.append([name, len(of_topic), offsets, listed(readers[name])])
    return rows
