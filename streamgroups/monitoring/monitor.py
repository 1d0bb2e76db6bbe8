"""Polls groups repeatedly: their state, lag and lag states.

``groups watch``, ``metrics`` and ``sg.reports.MetricsListener`` call this module. It combines a
:func:`~streamgroups.monitoring.snapshots.survey` with the samples of earlier ones, by the rules of
:mod:`streamgroups.monitoring.lag_states`. Source: SEMANTICS O3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from streamgroups.coordination.reset_protocol import event_time_group_of, gaps_group_of, is_metadata_group
from streamgroups.event_time.stored_time import StoredGroupTime, StoredTime, time_in_entries, time_in_states
from streamgroups.event_time.time_entries import read_time
from streamgroups.event_time.watermark import Watermark
from streamgroups.groups.commit_metadata import names_state, position_of
from streamgroups.groups.gaps import Gaps
from streamgroups.groups.lag import PartitionError, PartitionLag, maximum
from streamgroups.metadata_entries import warn_of_unreadable
from streamgroups.monitoring.lag_states import WINDOW_MS, LagHistory, LagState, Sample, read_per_s, worst, written_at_ms
from streamgroups.monitoring.snapshots import COUNT_BYTES, READS_UNASKED, GroupSnapshot, Memory, list_all, survey
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Clock, GroupAdmin, TopicAdmin
from streamgroups.state.origins import UNNAMED


@dataclass(frozen=True, slots=True)
class WatchedPartition:
    """One partition of one group, with its lag state.

    Args:
        lag: its lag.
        state: its lag state.
        time_lag_ms: approximately how long its first available record has been waiting; ``None`` if unknown.
        samples: its samples in the window, in ascending order of time.
        event_time: its event time; ``None`` if the group has none.
    """

    lag: PartitionLag
    state: LagState
    time_lag_ms: int | None
    samples: tuple[Sample, ...]
    event_time: StoredTime | None = None


@dataclass(frozen=True, slots=True)
class WatchedGroup:
    """One group, with its lag states.

    Args:
        snapshot: the group now.
        partitions: its partitions.
        watermark: the combined watermark of its partitions; ``None`` if the group has no event time, or if each
            partition has a watermark of its own.
        gaps: the recorded gaps of the partitions that have gaps.
    """

    snapshot: GroupSnapshot
    partitions: tuple[WatchedPartition, ...]
    watermark: Watermark | None = None
    gaps: Mapping[TopicPartition, Gaps] = field(default_factory=dict)

    @property
    def state(self) -> LagState:
        """The lag state of its worst partition."""
        return worst(p.state for p in self.partitions)

    @property
    def time_lag_ms(self) -> int | None:
        """The maximum time lag of its partitions; ``None`` if that of a partition is unknown."""
        return maximum([p.time_lag_ms for p in self.partitions if p.lag.records is not None or p.lag.is_unknown])

    @property
    def read_per_s(self) -> float | None:
        """The offsets that it reads per second; ``None`` while unknown."""
        rates = [rate for p in self.partitions if (rate := read_per_s(p.samples)) is not None]
        return sum(rates) if rates else None


class Monitor:
    """Polls the groups of a cluster. One thread owns it.

    Args:
        groups: the cluster's groups.
        topics: the cluster's topics.
        now_ms: the clock.
        window_ms: the length of the time window of lag states.
        reads: how many first available records one poll may read. Without them, time lags are computed from the end
            offsets over time.
        count_bytes: how much one poll may read to count records. Lags that are not counted are upper bounds.
        event_times: whether to read event times too: up to two more requests a poll.
        gaps: whether to read the recorded gaps too: up to two more requests a poll.
    """

    def __init__(
        self,
        groups: GroupAdmin,
        topics: TopicAdmin,
        now_ms: Clock,
        *,
        window_ms: int = WINDOW_MS,
        reads: int = READS_UNASKED,
        count_bytes: int = COUNT_BYTES,
        event_times: bool = False,
        gaps: bool = False,
    ) -> None:
        self._groups, self._topics, self._now_ms = groups, topics, now_ms
        self._reads, self._count_bytes = reads, count_bytes
        self._event_times, self._gaps = event_times, gaps
        self._history = LagHistory(window_ms)
        self._memory = Memory()

    def use(self, groups: GroupAdmin, topics: TopicAdmin) -> None:
        """Polls the same cluster through another connection from now on. Earlier samples are kept.

        Args:
            groups: the cluster's groups.
            topics: the cluster's topics.
        """
        self._groups, self._topics = groups, topics

    def poll(self, group_ids: Collection[str] | None = None) -> list[WatchedGroup]:
        """Returns these groups as they are now, or all (see :func:`~streamgroups.monitoring.snapshots.list_all`).

        Raises:
            StreamGroupsError: see :class:`streamgroups.ports.Cluster`. Earlier samples are kept.
        """
        listed = None
        if group_ids is None:
            listed = self._listed()
            group_ids = [group_id for group_id in listed if not is_metadata_group(group_id)]
        snapshots = survey(
            self._groups,
            self._topics,
            group_ids,
            reads=self._reads,
            count_bytes=self._count_bytes,
            memory=self._memory,
        )
        if listed is None and (self._event_times or self._gaps):
            listed = self._listed()
        times = self._times(snapshots, listed or ()) if self._event_times else {}
        gaps = self._recorded_gaps(group_ids, listed or ()) if self._gaps else {}
        now_ms = self._now_ms()
        self._history.keep_only(group_ids)
        for snapshot in snapshots:
            self._history.add(snapshot.description.group_id, now_ms, snapshot.lags)
        return [
            self._watched(snapshot, times.get(group_id), gaps.get(group_id, {}), now_ms)
            for snapshot in snapshots
            for group_id in [snapshot.description.group_id]
        ]

    def _listed(self) -> list[str]:
        """All groups, metadata groups included."""
        return [g.group_id for g in list_all(self._groups, internal=True)]

    def _times(self, snapshots: Collection[GroupSnapshot], listed: Collection[str]) -> dict[str, StoredGroupTime]:
        """The event time of each group that has one."""
        found = {s.description.group_id: time for s in snapshots if (time := state_times(s)) is not None}
        # Some users may not read these metadata groups. Describe on the cluster lists also those that they may not read.
        known = frozenset(listed)
        of_groups = {
            s.description.group_id: s for s in snapshots if event_time_group_of(s.description.group_id) in known
        }
        requested = [event_time_group_of(group_id) for group_id in of_groups]
        stored = self._groups.committed_offsets(requested, optional=requested)
        for group_id, snapshot in of_groups.items():
            if event_time_group_of(group_id) not in stored:
                continue
            entries = {tp: entry.metadata for tp, entry in stored[event_time_group_of(group_id)].items()}
            unreadable = [tp for tp, text in entries.items() if text and read_time(text) is None]
            warn_of_unreadable(event_time_group_of(group_id), unreadable)
            time = time_in_entries(entries, {lag.topic_partition: lag.records for lag in snapshot.lags})
            if time is not None:
                found[group_id] = time
        return found

    def _recorded_gaps(
        self, group_ids: Collection[str], listed: Collection[str]
    ) -> dict[str, dict[TopicPartition, Gaps]]:
        """The gaps of each group with a metadata group of gaps that this user may read.

        A partition whose entry cannot be read is left out, with a warning: it does not count as one without gaps.
        """
        known = frozenset(listed)
        requested = {gaps_group_of(group_id): group_id for group_id in group_ids if gaps_group_of(group_id) in known}
        read = self._groups.committed_offsets(list(requested), optional=requested)
        found = {}
        for name, entries in read.items():
            parsed = {tp: Gaps.parse(entry.metadata) for tp, entry in entries.items()}
            warn_of_unreadable(name, [tp for tp, gaps in parsed.items() if gaps is None])
            found[requested[name]] = {tp: gaps for tp, gaps in parsed.items() if gaps is not None and gaps.count}
        return found

    def _watched(
        self, snapshot: GroupSnapshot, time: StoredGroupTime | None, gaps: Mapping[TopicPartition, Gaps], now_ms: int
    ) -> WatchedGroup:
        group_id = snapshot.description.group_id
        description = snapshot.description
        states = self._history.states(group_id, description.owners, has_members=bool(description.members))
        stored = {} if time is None else time.partitions
        partitions = (self._partition(group_id, lag, states, stored, now_ms) for lag in snapshot.lags)
        return WatchedGroup(snapshot, tuple(partitions), None if time is None else time.watermark, gaps)

    def _partition(
        self,
        group_id: str,
        lag: PartitionLag,
        states: Mapping[TopicPartition, LagState],
        stored: Mapping[TopicPartition, StoredTime],
        now_ms: int,
    ) -> WatchedPartition:
        samples = self._history.samples(group_id, lag.topic_partition)
        time_lag_ms = lag.time_ms(now_ms)
        if time_lag_ms is None and lag.reading_offset is not None:
            written_ms = written_at_ms(samples, lag.reading_offset)
            time_lag_ms = None if written_ms is None else max(now_ms - written_ms, 0)
        # Without a position there is no lag state.
        state = states[lag.topic_partition] if lag.records is not None else LagState.UNKNOWN
        return WatchedPartition(lag, state, time_lag_ms, tuple(samples), stored.get(lag.topic_partition))


def state_times(snapshot: GroupSnapshot) -> StoredGroupTime | None:
    """Returns the event time of windows of partitions, from the states that the commits of a group name.

    Args:
        snapshot: the group.

    Returns:
        ``None`` if no state has event time.
    """
    if not any(names_state(it.metadata) for it in snapshot.committed.values()):
        return None
    lags = {it.topic_partition: it for it in snapshot.lags if it.error is not PartitionError.NO_PARTITION}
    found = {tp: snapshot.committed.get(tp) for tp in lags}
    states = {
        tp: UNNAMED if it is None else position_of(tp, it.next_offset, it.metadata).origin for tp, it in found.items()
    }
    return time_in_states(states, {tp for tp, lag in lags.items() if lag.has_available})
