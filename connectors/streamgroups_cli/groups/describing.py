"""``streamgroups groups describe``: shows the members of a group, the owners of its partitions, and their lag.

``streamgroups_cli.groups`` imports it. Its rows come from :mod:`streamgroups.monitoring.snapshots`. Source: SEMANTICS
O1, O3; ``kafka-consumer-groups.sh --describe``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer

from streamgroups.errors import InvalidOption
from streamgroups.groups.description import GroupMember
from streamgroups.groups.lag import PartitionLag
from streamgroups.monitoring.group_tables import (
    PARTITIONS,
    exists,
    heading,
    partition_cells,
    partition_table,
    unknown_groups,
)
from streamgroups.monitoring.snapshots import READS_UNASKED, GroupSnapshot, survey
from streamgroups.partitions import Bounds, StampedOffset, TopicPartition, by_topic
from streamgroups.tables import Cell, Column, Table
from streamgroups.times import utc
from streamgroups_cli.connection import Connect
from streamgroups_cli.count_limit import DESCRIBE_MIB, CountLimitOption, count_bytes
from streamgroups_cli.groups import describing_states
from streamgroups_cli.groups.describing_states import States, committed_states
from streamgroups_cli.groups.scope import (
    AllGroupsOption,
    GroupsArgument,
    StateLocationOption,
    all_groups_of,
    chosen_groups,
)
from streamgroups_cli.groups.unlisted_groups import warn_of_unlisted
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, OutputOption, emit, print_message

_MEMBERS = (
    Column("client_id"),
    Column("host", rank=2),
    Column("member_id", rank=3),
    Column("instance_id", rank=1),
    Column("partitions"),
)


@with_options
def describe(
    connect: Connect,
    groups: GroupsArgument = None,
    all_groups: AllGroupsOption = False,
    members: Annotated[bool, typer.Option("--members", help="Show members instead of partitions.")] = False,
    state: Annotated[
        bool, typer.Option("--state", help="Show the states that committed offsets name instead of lag.")
    ] = False,
    state_location: StateLocationOption = None,
    only_lag: Annotated[bool, typer.Option("--only-lag", help="Only partitions with lag.")] = False,
    time_lag: Annotated[
        bool | None,
        typer.Option(
            "--time-lag/--no-time-lag",
            help="Read the first record of each partition's lag to compute the time lag. "
            f"Default: up to {READS_UNASKED} records.",
            show_default=False,
        ),
    ] = None,
    count_limit: CountLimitOption = DESCRIBE_MIB,
    output: OutputOption = Output.table,
) -> None:
    """Show state, members, ownership and lag of groups."""
    requested = chosen_groups(groups, all_groups)
    _check_view(members=members, state=state, state_location=state_location)
    with connect() as cluster:
        ids = requested if requested is not None else all_groups_of(cluster)
        if requested is None:
            warn_of_unlisted(cluster)
        reads = {None: READS_UNASKED, True: 10**9, False: 0}[time_lag]
        snapshots = survey(cluster.groups, cluster.topics, ids, reads=reads, count_bytes=count_bytes(count_limit))
        states = committed_states(snapshots, state_location) if state else None
        now_ms = cluster.now_ms()
        missing = [s.description.group_id for s in snapshots if not exists(s)]
        known = all_groups_of(cluster) if missing else ids
    found = [s for s in snapshots if exists(s)]
    if only_lag:
        found = [replace(s, lags=tuple(lag for lag in s.lags if lag.records != 0)) for s in found]
    emit(
        output,
        document=lambda: {"groups": [_document(s, now_ms, states) for s in found]},
        tables=lambda: [_table(s, now_ms, members, states) for s in found],
        flat=lambda: _flat(found, now_ms, members, states),
    )
    shows_lag = not members and not state
    if shows_lag and any(not lag.is_exact for s in found for lag in s.lags):
        print_message(
            "A lag marked <= is an upper bound: it can include transaction markers and gaps. Increase --count-limit for the exact lag."
        )
    if (
        time_lag is None
        and shows_lag
        and any(lag.records and lag.first_record_of_lag is None for s in found for lag in s.lags)
    ):
        print_message("The time lag was not computed: it requires too many reads. --time-lag computes it.")
    if shows_lag and any(not s.is_complete for s in found):
        print_message("The lag of some partitions is unknown (DETAIL): it is not in the lag of their group.")
    if missing and requested is not None:
        raise unknown_groups(missing, known)


def _check_view(*, members: bool, state: bool, state_location: str | None) -> None:
    if members and state:
        raise InvalidOption("--members and --state are different views.", remedy="Use one of them.")
    if state_location is not None and not state:
        raise InvalidOption("--state-location is for the sizes of states.", remedy="Use it with --state.")


def _table(s: GroupSnapshot, now_ms: int, members: bool, states: Mapping[str, States] | None) -> Table:
    line = heading(s, now_ms)
    if members:
        return Table(_MEMBERS, [_member_cells(m) for m in s.description.members], line)
    if states is not None:
        return Table(describing_states.COLUMNS, list(_state_rows(s, states, now_ms, human=True)), line)
    return partition_table(s, now_ms, line)


def _state_rows(s: GroupSnapshot, states: Mapping[str, States], now_ms: int, *, human: bool) -> Iterator[list[Cell]]:
    of_group = states[s.description.group_id]
    for lag in s.lags:
        tp = lag.topic_partition
        if tp in of_group:
            yield [tp.topic, tp.partition, *of_group[tp].cells(now_ms, human=human)]


def _flat(snapshots: Sequence[GroupSnapshot], now_ms: int, members: bool, states: Mapping[str, States] | None) -> Table:
    rows: list[list[Cell]] = []
    if states is not None:
        rows = [[s.description.group_id, *it] for s in snapshots for it in _state_rows(s, states, now_ms, human=False)]
        in_ms = {
            "age": Column("age_ms"),
            "event_time": Column("event_time_ms"),
            "watermark": Column("watermark_ms"),
        }
        of_states = [in_ms.get(c.name, c) for c in describing_states.COLUMNS]
        return Table([Column("group"), *of_states], rows)
    for s in snapshots:
        if members:
            rows += [[s.description.group_id, *_member_cells(m)] for m in s.description.members]
        else:
            owners = s.description.owners
            rows += [
                [
                    s.description.group_id,
                    *partition_cells(lag, owners.get(lag.topic_partition), now_ms, human=False),
                    _exactness(lag),
                ]
                for lag in s.lags
            ]
    of_partitions = [Column("time_lag_ms") if c.name == "time_lag" else c for c in PARTITIONS]
    columns = _MEMBERS if members else [*of_partitions, Column("lag_exact")]
    return Table([Column("group"), *columns], rows)


def _exactness(lag: PartitionLag) -> Cell:
    return None if lag.records is None else str(lag.is_exact).lower()


def _member_cells(member: GroupMember) -> list[Cell]:
    return [member.client_id, member.host, member.member_id, member.instance_id, short(member.partitions)]


def short(partitions: frozenset[TopicPartition]) -> str:
    """Returns partitions in the format of Kafka's tools.

    >>> short(frozenset({TopicPartition("b", 0), TopicPartition("a", 2), TopicPartition("a", 1)}))
    'a:1,2 b:0'
    """
    return " ".join(f"{topic}:{','.join(map(str, of_topic))}" for topic, of_topic in _numbers(partitions).items())


def _numbers(partitions: frozenset[TopicPartition]) -> dict[str, list[int]]:
    """Returns the partition numbers of each topic, in order."""
    return by_topic((tp, tp.partition) for tp in sorted(partitions))


def _document(s: GroupSnapshot, now_ms: int, states: Mapping[str, States] | None) -> dict[str, Any]:
    d, owners = s.description, s.description.owners
    return {
        "group": d.group_id,
        "state": d.state,
        "type": d.type,
        "protocol_type": d.protocol_type,
        "assignor": d.assignor,
        "coordinator": d.coordinator,
        "lag": s.records,
        "lag_exact": None if s.records is None else s.is_exact,
        "open": s.open_records,
        "time_lag_ms": s.time_ms(now_ms),
        "members": [
            {
                "client_id": m.client_id,
                "host": m.host,
                "member_id": m.member_id,
                "instance_id": m.instance_id,
                "partitions": _numbers(m.partitions),
            }
            for m in d.members
        ],
        "partitions": [
            {
                **partition_document(lag, owners.get(lag.topic_partition), now_ms),
                **({} if states is None else {"state": _state_document(lag, states[d.group_id], now_ms)}),
            }
            for lag in s.lags
        ],
    }


def _state_document(lag: PartitionLag, states: States, now_ms: int) -> dict[str, Any] | None:
    tp = lag.topic_partition
    return states[tp].document(now_ms) if tp in states else None


def partition_document(lag: PartitionLag, owner: GroupMember | None, now_ms: int) -> dict[str, Any]:
    """Returns a partition for programs."""
    bounds = lag.bounds if isinstance(lag.bounds, Bounds) else None
    first = lag.first_record_of_lag if isinstance(lag.first_record_of_lag, StampedOffset) else None
    return {
        "topic": lag.topic_partition.topic,
        "partition": lag.topic_partition.partition,
        "committed_offset": lag.committed_offset,
        "beginning_offset": bounds.beginning_offset if bounds else None,
        "end_offset": bounds.end_offset if bounds else None,
        "lag": lag.records,
        "lag_exact": None if lag.records is None else lag.is_exact,
        "open": lag.open_records,
        "in_flight": lag.in_flight,
        "time_lag_ms": lag.time_ms(now_ms),
        "first_unread_offset": first.offset if first else None,
        "first_unread_time": utc(first.timestamp_ms) if first else None,
        "lost": lag.lost_records,
        "error": lag.error.value if lag.error else None,
        "owner": owner.client_id if owner else None,
        "host": owner.host if owner else None,
    }
