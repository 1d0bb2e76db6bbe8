"""``streamgroups gaps``: lists the offsets that groups never read, and why.

The gaps are those that running queries recorded on any host (:mod:`streamgroups.groups.gaps`). Source: SEMANTICS S7,
O4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamgroups.coordination.reset_protocol import gaps_group_of, group_of
from streamgroups.coordination.unreadable_entries import unreadable
from streamgroups.errors import PartlyDone
from streamgroups.groups.gaps import Gap, Gaps
from streamgroups.monitoring.group_tables import unknown_groups
from streamgroups.monitoring.snapshots import list_all
from streamgroups.partitions import TopicPartition
from streamgroups.tables import Cell, Column, Table
from streamgroups.times import utc
from streamgroups_admin.cluster import Cluster
from streamgroups_cli.connection import Connect
from streamgroups_cli.groups.scope import GroupsOrAllArgument, all_groups_of, named_groups
from streamgroups_cli.groups.unlisted_groups import warn_of_unlisted
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, OutputOption, emit, print_message

_COLUMNS = (
    Column("group"),
    Column("topic"),
    Column("partition", right=True),
    Column("from_offset", right=True),
    Column("to_offset", right=True),
    Column("lost_offsets", right=True),
    Column("cause"),
    Column("time", rank=1),
    Column("topic_id", rank=3),
    Column("new_topic_id", rank=2),
    Column("cluster_id", rank=5),
    Column("new_cluster_id", rank=4),
)


@with_options
def gaps(
    connect: Connect,
    groups: GroupsOrAllArgument = None,
    output: OutputOption = Output.table,
) -> None:
    """List the gaps of groups: offsets that were deleted before they were read."""
    with connect() as cluster:
        named = named_groups(groups)
        requested = _groups_with_gaps(cluster) if named is None else named
        read = cluster.groups.committed_offsets([gaps_group_of(group) for group in requested])
        parsed = {
            (group, tp): Gaps.parse(committed.metadata)
            for group in requested
            for tp, committed in sorted(read[gaps_group_of(group)].items())
        }
        missing = _unknown(cluster, [group for group in named or () if not read[gaps_group_of(group)]])
        known = all_groups_of(cluster) if missing else []
    found = {place: of_partition for place, of_partition in parsed.items() if of_partition is not None}
    rows = [_row(group, tp, gap) for (group, tp), of_partition in found.items() for gap in of_partition.newest]
    table = Table(_COLUMNS, rows)
    emit(
        output,
        document=lambda: {
            "gaps": table.documents,
            "partitions": [_summary(group, tp, of_partition) for (group, tp), of_partition in parsed.items()],
        },
        tables=lambda: [table],
    )
    for (group, tp), of_partition in found.items():
        if of_partition.not_kept:
            print_message(f"Group '{group}', {tp}: {of_partition.not_kept} older gaps are counted, but not stored.")
        if of_partition.unknown:
            print_message(
                f"Group '{group}', {tp}: {len(of_partition.unknown)} recorded gaps are not listed: a newer version of streamgroups "
                "has written them."
            )
    if not rows and not any(of_partition is None or of_partition.count for of_partition in parsed.values()):
        print_message("No gaps are recorded.")
    if missing:
        raise unknown_groups(missing, known)
    _require_readable([place for place, of_partition in parsed.items() if of_partition is None])


def _require_readable(places: Sequence[tuple[str, TopicPartition]]) -> None:
    """Rejects a list without the gaps of these partitions, after the others were listed."""
    by_group: dict[str, list[TopicPartition]] = {}
    for group, tp in places:
        by_group.setdefault(group, []).append(tp)
    if not by_group:
        return
    texts = [unreadable(gaps_group_of(group), partitions) for group, partitions in by_group.items()]
    raise PartlyDone(" ".join(what for what, _ in texts), remedy=" ".join(remedy for _, remedy in texts))


def _groups_with_gaps(cluster: Cluster) -> list[str]:
    listed = [g.group_id for g in list_all(cluster.groups, internal=True)]
    warn_of_unlisted(cluster)
    return [group_of(name) for name in listed if name == gaps_group_of(group_of(name))]


def _unknown(cluster: Cluster, empty: Sequence[str]) -> list[str]:
    """The groups without gaps that do not exist."""
    described = cluster.groups.describe_groups(empty) if empty else {}
    committed = cluster.groups.committed_offsets(empty) if empty else {}
    return [group for group in empty if described[group].state == "Dead" and not committed[group]]


def _row(group: str, tp: TopicPartition, gap: Gap) -> list[Cell]:
    before, after = gap.before, gap.after
    ids = (before.topic_id, after.topic_id, before.cluster_id, after.cluster_id)
    offsets = (gap.from_offset, gap.to_offset, gap.lost_offsets)
    return [group, tp.topic, tp.partition, *offsets, gap.cause.value, utc(gap.time_ms), *ids]


def _summary(group: str, tp: TopicPartition, found: Gaps | None) -> Mapping[str, Any]:
    """The totals of a partition; ``None`` for those of an entry that cannot be read."""
    return {
        "group": group,
        "topic": tp.topic,
        "partition": tp.partition,
        "gaps": None if found is None else found.count,
        "lost_offsets": None if found is None else found.lost_offsets,
        "not_kept": None if found is None else found.not_kept,
    }
