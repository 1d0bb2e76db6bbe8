"""The terminal view of the demo: members, their partitions, and the lag, twice a second.

Used by ``demo.scenario``. The view polls the description of the group, its committed offsets and the end offsets of the
topic. It reads the histories of the members. If standard output is not a terminal, it prints a line every few seconds.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from streamgroups.groups.history import Event, Kind
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.membership.history_file import read_history

_EVERY_S = 0.5
_LINE_EVERY_S = 3.0
_BAR = 36
_COLOURS = ("blue", "yellow", "green", "magenta")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The group at one moment.

    Args:
        time_s: the seconds since the start of the demo.
        states: the state of each member, in the order of their start.
        owners: the owner of each partition, from the broker.
        committed: the group's next offset of each partition.
        ends: the topic's end offsets.
        read: the number of flights that each member has read and committed.
    """

    time_s: float = 0.0
    states: Mapping[str, str] = field(default_factory=dict)
    owners: Mapping[TopicPartition, str] = field(default_factory=dict)
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    read: Mapping[str, int] = field(default_factory=dict)

    def owned_by(self, member: str) -> list[TopicPartition]:
        """The partitions of one member."""
        return sorted(tp for tp, owner in self.owners.items() if owner == member)

    @property
    def lag(self) -> int:
        """The number of flights in the topic that are not committed."""
        return sum(self.ends.values()) - sum(self.committed.get(tp, 0) for tp in self.ends)

    @property
    def finished(self) -> bool:
        """Whether all flights in the topic are committed."""
        return bool(self.ends) and all(self.committed.get(tp, 0) == end for tp, end in self.ends.items())


def committed_by_member(events: Sequence[Event]) -> dict[str, int]:
    """The number of offsets that each member has committed.

    >>> p = TopicPartition("t", 0)
    >>> committed_by_member([Event(1, "g", "a", "r", Kind.ASSIGNED, {p: 5}), Event(2, "g", "a", "r", Kind.COMMITTED, {p: 9})])
    {'a': 4}
    """
    found: defaultdict[str, int] = defaultdict(int)
    reached: dict[tuple[str, TopicPartition], int] = {}
    for event in events:
        for tp, offset in event.offsets.items():
            if event.kind is Kind.COMMITTED:
                found[event.member] += offset - reached.get((event.run, tp), offset)
            if event.kind in (Kind.ASSIGNED, Kind.COMMITTED):
                reached[event.run, tp] = offset
    return dict(found)


class LiveView:
    """Polls the group and shows it during its ``with`` block.

    Args:
        console: the console to print to.
        cluster: the cluster to poll.
        group_id: the group.
        partitions: the partitions of the topic.
        history: the directory of the members' histories.
        total: the number of flights.
        began_s: the start of the demo by the monotonic clock.
    """

    def __init__(
        self,
        console: Console,
        cluster: KafkaCluster,
        group_id: str,
        partitions: Sequence[TopicPartition],
        history: Path,
        total: int,
        began_s: float,
    ) -> None:
        self._console, self._cluster, self._group_id = console, cluster, group_id
        self._partitions, self._history, self._total = partitions, history, total
        self._began_s = began_s
        self._polled_s = self._printed_s = 0.0
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        #: The state of each member in words. The scenario updates it.
        self.states: dict[str, str] = {}
        #: The last snapshot.
        self.snapshot = Snapshot()

    def __enter__(self) -> LiveView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def print_event(self, text: str) -> None:
        """Prints a permanent line about an event."""
        self._console.print(
            f"[dim]{time.monotonic() - self._began_s:6.1f} s[/dim]  {text}", highlight=False, soft_wrap=True
        )

    def poll(self, *, at_once: bool = False) -> Snapshot:
        """Polls the group if the last poll is older than the interval, and shows it."""
        now_s = time.monotonic()
        if at_once or now_s - self._polled_s >= _EVERY_S:
            self._polled_s = now_s
            self.snapshot = self._observe()
            self._show(now_s)
        return self.snapshot

    def _observe(self) -> Snapshot:
        group = self._cluster.describe(self._group_id)
        committed = self._cluster.committed(self._group_id, self._partitions)
        return Snapshot(
            time.monotonic() - self._began_s,
            dict(self.states),
            {tp: member.client_id for tp, member in group.owners.items()},
            {tp: committed[tp].next_offset for tp in self._partitions if tp in committed},
            self._cluster.end_offsets(self._partitions),
            committed_by_member(read_history(self._history)),
        )

    def _show(self, now_s: float) -> None:
        if self._live is not None:
            self._live.update(render(self.snapshot, self._total), refresh=True)
        elif now_s - self._printed_s >= _LINE_EVERY_S:
            self._printed_s = now_s
            self._console.print(plain(self.snapshot), highlight=False, soft_wrap=True)


def plain(snapshot: Snapshot) -> str:
    """One line of text.

    >>> t = [TopicPartition("flights", 0), TopicPartition("flights", 1)]
    >>> plain(Snapshot(9.0, {"alice": "reads", "bob": "killed"}, {t[0]: "alice"}, {t[0]: 5}, {t[0]: 7, t[1]: 1}))
    '   9.0 s  in the topic 8, lag 3 | alice reads 0 | bob killed'
    """
    members = []
    for name, state in snapshot.states.items():
        owned = ",".join(str(tp.partition) for tp in snapshot.owned_by(name))
        members.append(f"{name} {state} {owned}".rstrip())
    head = f"{snapshot.time_s:6.1f} s  in the topic {sum(snapshot.ends.values()):,}, lag {snapshot.lag:,}"
    return " | ".join([head, *members])


def render(snapshot: Snapshot, total: int) -> Group:
    """Two tables: the members, and the partitions."""
    colours = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(snapshot.states)}
    members = Table("member", "", "owns", "flights committed", box=None, pad_edge=False)
    members.columns[3].justify = "right"
    for name, state in snapshot.states.items():
        owned = " ".join(str(tp.partition) for tp in snapshot.owned_by(name))
        style = "red" if state == "killed" else ""
        members.add_row(Text(name, colours[name]), Text(state, style), owned, f"{snapshot.read.get(name, 0):,}")
    partitions = Table("partition", "committed and available", "owner", "lag", box=None, pad_edge=False)
    partitions.columns[3].justify = "right"
    longest = max([*snapshot.ends.values(), 1])
    for tp, end in snapshot.ends.items():
        done, owner = snapshot.committed.get(tp, 0), snapshot.owners.get(tp, "")
        bar = Text("█" * _length(done, longest), colours.get(owner, "white"))
        bar.append("░" * (_length(end, longest) - len(bar)), "dim")
        partitions.add_row(str(tp), bar, Text(owner, colours.get(owner, "")), f"{end - done:,}")
    there = sum(snapshot.ends.values())
    summary = Text(
        f"{snapshot.time_s:5.0f} s   {there:,} of {total:,} flights in the topic, lag {snapshot.lag:,}", "bold"
    )
    return Group("", summary, "", members, "", partitions)


def _length(count: int, longest: int) -> int:
    """The length of a bar in characters: at least one if the count is positive."""
    return max(round(count / longest * _BAR), int(count > 0))
