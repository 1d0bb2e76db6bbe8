"""The tables of a group: its state in a line, and the lag of each of its partitions.

``groups describe`` of the command line and :func:`streamgroups.groups.describe_group` show the same lines. Source: SEMANTICS O1, O3;
``kafka-consumer-groups.sh --describe``.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from streamgroups.durations import duration
from streamgroups.errors import UnknownGroup
from streamgroups.groups.description import GroupMember
from streamgroups.groups.lag import PartitionError, PartitionLag
from streamgroups.monitoring.snapshots import GroupSnapshot
from streamgroups.partitions import Bounds
from streamgroups.tables import Cell, Column, Table, html, plain_lines

#: The columns of the partitions of a group.
PARTITIONS = (
    Column("topic"),
    Column("partition", right=True),
    Column("committed_offset", right=True, rank=1),
    Column("end_offset", right=True, rank=4),
    Column("lag", right=True),
    Column("open", right=True, rank=6),
    Column("in_flight", right=True, rank=5),
    Column("time_lag", right=True, rank=3),
    Column("owner", rank=2),
    Column("host", rank=7),
    Column("detail", style=lambda _: "red"),
)


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group at one moment. :func:`streamgroups.groups.describe_group` returns it.

    ``print`` shows it as ``streamgroups groups describe`` does, and a notebook displays it as a table.

    Args:
        snapshot: its members, and the lag of each partition.
        time_ms: the time of the snapshot, in milliseconds since the epoch.

    >>> from streamgroups.fakes import FakeAdmin, FakeCluster
    >>> from streamgroups.monitoring.snapshots import survey
    >>> from streamgroups.partitions import TopicPartition
    >>> cluster = FakeCluster(lambda: 5_000)
    >>> cluster.create_topic("flights", 1)
    >>> _ = cluster.produce(TopicPartition("flights", 0), 3)
    >>> cluster.commit("flight-board", {TopicPartition("flights", 0): 1})
    >>> group = DescribedGroup(*survey(FakeAdmin(cluster), FakeAdmin(cluster), ["flight-board"]), time_ms=5_000)
    >>> group.state, group.lag, [it.committed_offset for it in group.partitions]
    ('Empty', 2, [1])
    """

    snapshot: GroupSnapshot
    time_ms: int

    @property
    def group_id(self) -> str:
        """The name of the group."""
        return self.snapshot.description.group_id

    @property
    def state(self) -> str:
        """The state in Kafka's terms, such as ``Stable`` or ``Empty``."""
        return self.snapshot.description.state

    @property
    def members(self) -> tuple[GroupMember, ...]:
        """The live members, with the partitions of each."""
        return self.snapshot.description.members

    @property
    def partitions(self) -> tuple[PartitionLag, ...]:
        """The partitions that the group has committed or that a member owns, with the lag of each."""
        return self.snapshot.lags

    @property
    def lag(self) -> int | None:
        """The lag of all partitions in records; ``None`` if it is unknown."""
        return self.snapshot.records

    @property
    def is_exact(self) -> bool:
        """Whether :attr:`lag` is exact. Otherwise it is an upper bound, or the lag of a partition is unknown."""
        return self.snapshot.is_exact

    @property
    def time_lag_ms(self) -> int | None:
        """How long the longest waiting record has been waiting, in milliseconds; ``None`` if that is unknown."""
        return self.snapshot.time_ms(self.time_ms)

    def __str__(self) -> str:
        return "\n".join(plain_lines(self._table))

    def _repr_html_(self) -> str:
        return html(self._table)

    @property
    def _table(self) -> Table:
        return partition_table(self.snapshot, self.time_ms, heading(self.snapshot, self.time_ms))


def partition_table(s: GroupSnapshot, now_ms: int, heading: str) -> Table:
    """Returns the partitions of a group as a table for people."""
    owners = s.description.owners
    rows = [partition_cells(lag, owners.get(lag.topic_partition), now_ms, human=True) for lag in s.lags]
    return Table(PARTITIONS, rows, heading)


def heading(s: GroupSnapshot, now_ms: int) -> str:
    """Returns the state of a group in a line.

    Args:
        s: the group.
        now_ms: the time of the snapshot, in milliseconds since the epoch.
    """
    d = s.description
    count = len(d.members)
    words = [
        d.state,
        f"{d.type or 'unknown'} protocol" if d.type in ("classic", "consumer") else f"{d.type} group",
        *([f"assignor {d.assignor}"] if d.assignor else []),
        f"{count} member{'' if count == 1 else 's'}",
        *([f"coordinator {d.coordinator}"] if d.coordinator is not None else []),
    ]
    if s.records is not None:
        words.append(f"lag {lag_cell(s)}")
        behind = duration(s.time_ms(now_ms))
        words += [f"time lag {behind}"] if behind is not None and s.records else []
        words += [f"{s.open_records} in open transactions"] if s.open_records else []
    return f"Group {d.group_id}: {', '.join(words)}"


def partition_cells(lag: PartitionLag, owner: GroupMember | None, now_ms: int, *, human: bool) -> list[Cell]:
    """Returns the cells of a partition in the columns of :data:`PARTITIONS`.

    Args:
        lag: the partition.
        owner: the member that owns it.
        now_ms: the time of the snapshot, in milliseconds since the epoch.
        human: whether durations and upper bounds are texts. Otherwise they are numbers.
    """
    behind_ms = lag.time_ms(now_ms)
    return [
        lag.topic_partition.topic,
        lag.topic_partition.partition,
        lag.committed_offset,
        lag.bounds.end_offset if isinstance(lag.bounds, Bounds) else None,
        bounded(lag.records, is_exact=lag.is_exact) if human else lag.records,
        lag.open_records,
        lag.in_flight,
        duration(behind_ms) if human else behind_ms,
        owner.client_id if owner else None,
        owner.host if owner else None,
        detail(lag),
    ]


def detail(lag: PartitionLag) -> str:
    """Returns the defect of a partition's position in one or two words; empty without one."""
    match lag.error:
        case PartitionError.EXPIRED:
            return f"{lag.lost_records} lost"
        case PartitionError.PAST_END:
            return "past the end"
        case PartitionError.NO_PARTITION:
            return "deleted"
        case PartitionError.NO_LEADER:
            return "no leader"
        case PartitionError.NOT_AUTHORIZED:
            return "not authorized"
    return ""


def exists(snapshot: GroupSnapshot) -> bool:
    """Returns whether the group exists."""
    return snapshot.description.state != "Dead" or bool(snapshot.lags)


def unknown_groups(missing: Sequence[str], known: Collection[str] = ()) -> UnknownGroup:
    """Returns the error for groups that do not exist; see :func:`see_groups`."""
    names = ", ".join(f"'{g}'" for g in missing)
    return UnknownGroup(
        f"Group{'' if len(missing) == 1 else 's'} {names} {'does' if len(missing) == 1 else 'do'} not exist.",
        remedy=see_groups(missing, known),
        group=missing[0] if len(missing) == 1 else None,
    )


def see_groups(missing: Sequence[str], known: Collection[str]) -> str:
    """Returns the remedy for groups that do not exist.

    Args:
        missing: the groups.
        known: the groups that exist. It names one that is similar to a single missing one.

    >>> see_groups(["flight-boad"], ["billing", "flight-board"]), see_groups(["flights"], ["billing"])
    ("Did you mean 'flight-board'? See: streamgroups groups list.", 'See: streamgroups groups list.')
    """
    close = difflib.get_close_matches(missing[0], known, n=1) if len(missing) == 1 else []
    return "".join(f"Did you mean '{it}'? " for it in close) + "See: streamgroups groups list."


def lag_cell(s: GroupSnapshot) -> Cell:
    """Returns the lag of a group for people.

    >>> from streamgroups.groups.description import GroupDescription
    >>> from streamgroups.partitions import TopicPartition
    >>> p0, p1 = (TopicPartition("flights", p) for p in range(2))
    >>> lags = PartitionLag(p0, 10, Bounds(0, 15)), PartitionLag(p1, 10, PartitionError.NO_LEADER)
    >>> lag_cell(GroupSnapshot(GroupDescription("board", "Empty"), lags))
    '<=5 + unknown'
    """
    known = bounded(s.records, is_exact=all(lag.is_exact for lag in s.lags if lag.records is not None))
    if s.is_complete:
        return known
    return "unknown" if known is None else f"{known} + unknown"


def bounded(records: int | None, *, is_exact: bool) -> Cell:
    """Returns a number of records for people.

    >>> bounded(7, is_exact=True), bounded(7, is_exact=False), bounded(None, is_exact=False)
    (7, '<=7', None)
    """
    return records if is_exact or records is None else f"<={records}"
