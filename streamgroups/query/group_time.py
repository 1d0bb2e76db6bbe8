"""The watermark of a group: the minimum over the partitions that it reads, also over those that other queries own.

Used by ``streamgroups.query.operator_states`` on the thread of the query, for windows with ``time="group"``, and by
``streamgroups.query.imported_time`` for queries of other groups. The commit of a partition contains the watermark of
its state (:mod:`streamgroups.state.state_time`), so every query can read it. Source: SEMANTICS W2, W3, S10.

=========================================  =========================================================================
the partition                              its watermark
=========================================  =========================================================================
is owned, or its commit names a state      that of the state: its newest event time minus the delay, or the end of a
                                           window that the idle timeout has closed, if that is later
has no such state: it is new, or a tool    none, so it holds back the group until a commit names a state
has reset it, or its topic is recreated
is idle                                    excluded. If all partitions are idle, the latest of their watermarks applies
=========================================  =========================================================================

The watermark can only be too early. Commits of other queries are read with a delay, and the watermark of a partition
decreases only by a reset. A query has the states of its own partitions, so the watermark of a batch is never after the
watermark of a partition that the batch reads. Therefore no record is late that is in order in its partition, unless the
partition was idle.

The idle timeout of windows advances the watermark of the group up to the end of the closed window, and no further. Later
records of this partition before that end are late anyway, because its windows up to there are closed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from streamgroups.errors import UnknownTopic
from streamgroups.event_time.explanation import StreamExplanation, stream_explanation
from streamgroups.event_time.imported_watermark import ImportStatus
from streamgroups.event_time.observations import Observation, idle_since, is_idle
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import PartitionTime, SourceTime, together
from streamgroups.event_time.stored_time import time_of
from streamgroups.event_time.strategy import Generation
from streamgroups.event_time.watermark import NOT_YET, At, Watermark, latest
from streamgroups.groups.membership import Owned
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.query.alignment import EventTimes
from streamgroups.query.operator_time import OperatorTime
from streamgroups.state.origins import UNNAMED, StateOrigin

#: How often the partitions, the commits of other queries and the ends of partitions are read.
_EVERY_MS = 1_000


@dataclass(frozen=True, slots=True)
class Seen:
    """A partition of the group at its last observation.

    Args:
        state: the state of its position.
        next_offset: its position; ``None`` if the group has no position in it.
        idle_since_ms: since when it has no available and no new records; ``None`` while it has available records, and
            if that is unknown.
        seen_ms: when it was observed.
    """

    state: StateOrigin
    next_offset: int | None
    idle_since_ms: int | None
    seen_ms: int


def watermark_of(state: StateOrigin) -> Watermark:
    """Returns the watermark of the state of a partition.

    >>> from streamgroups.state.file_names import StateFileName
    >>> from streamgroups.state.origins import Named
    >>> from streamgroups.state.state_time import GroupWindows, StateTime
    >>> time = StateTime(1732334870000, group=GroupWindows())
    >>> watermark_of(Named(StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42), 700, None, time))
    At(time_ms=1732334870000)
    """
    time = time_of(state)
    if time is None or time.group is None or time.watermark_ms is None:
        return NOT_YET
    return At(time.watermark_ms)


def used_watermark(state: StateOrigin) -> Watermark:
    """Returns the latest watermark of the group that a batch of the partition has used."""
    time = time_of(state)
    if time is None or time.group is None or time.group.watermark_ms is None:
        return NOT_YET
    return At(time.group.watermark_ms)


def has_group_time(owned: Mapping[TopicPartition, Owned]) -> bool:
    """Returns whether an operator of the query uses the watermark of the group. Before its first state it needs none."""
    return any((time := time_of(it.state)) is not None and time.group is not None for it in owned.values())


def group_watermark(
    seen: Mapping[TopicPartition, Seen],
    owned: Mapping[TopicPartition, Owned],
    read: Collection[TopicPartition],
    idle_timeout_ms: int | None,
) -> Watermark:
    """Returns the watermark of a group (SEMANTICS W2, W3).

    Args:
        seen: all partitions that the group reads, as they were observed last.
        owned: the partitions of this query. Their states are newer than the observation.
        read: the partitions with records in the next batch of the query. They are not idle.
        idle_timeout_ms: the partition idle timeout; ``None`` if no partition is ever idle.
    """
    idle = _idle(seen, idle_timeout_ms) - set(read)
    return together([(watermark_of(state), tp in idle) for tp, state in _states(seen, owned).items()])


def _idle(seen: Mapping[TopicPartition, Seen], idle_timeout_ms: int | None) -> set[TopicPartition]:
    return {tp for tp, it in seen.items() if is_idle(it.idle_since_ms, it.seen_ms, idle_timeout_ms)}


def _states(
    seen: Mapping[TopicPartition, Seen], owned: Mapping[TopicPartition, Owned]
) -> dict[TopicPartition, StateOrigin]:
    """The newest known state of each partition."""
    return {tp: it.state for tp, it in seen.items()} | {tp: it.state for tp, it in owned.items()}


def observed(before: Seen | None, state: StateOrigin, observation: Observation | None, now_ms: int) -> Seen:
    """Returns a partition after an observation.

    Args:
        before: its last observation; ``None`` if it is the first one.
        state: the state of its position.
        observation: its position and its end; ``None`` if one of them is unknown.
        now_ms: the time now, in milliseconds since the epoch.

    >>> first = observed(None, UNNAMED, Observation(5, 5), 1_000)
    >>> observed(first, UNNAMED, Observation(5, 5), 4_000).idle_since_ms
    1000
    >>> observed(first, UNNAMED, Observation(5, 6), 4_000).idle_since_ms is None
    True
    """
    if observation is None:
        return Seen(state, None, None, now_ms)
    moved = before is None or before.next_offset != observation.next_offset
    since_ms = idle_since(None if before is None else before.idle_since_ms, observation, moved=moved, now_ms=now_ms)
    return Seen(state, observation.next_offset, since_ms, now_ms)


def observed_all(
    before: Mapping[TopicPartition, Seen],
    partitions: Collection[TopicPartition],
    places: Mapping[TopicPartition, Owned],
    ends: Mapping[TopicPartition, int],
    now_ms: int,
) -> dict[TopicPartition, Seen]:
    """Returns all partitions of a group after an observation.

    Args:
        before: their last observation.
        partitions: the partitions that the group reads.
        places: their positions; without those that the group has no position in.
        ends: the offset after the last record of each partition, as far as it is read.
        now_ms: the time now, in milliseconds since the epoch.
    """
    return {
        tp: observed(
            before.get(tp),
            places[tp].state if tp in places else UNNAMED,
            Observation(places[tp].next_offset, ends[tp]) if tp in places and tp in ends else None,
            now_ms,
        )
        for tp in partitions
    }


def of_present_topics(
    places: Mapping[TopicPartition, Owned], now: Mapping[str, TopicIdentity]
) -> dict[TopicPartition, Owned]:
    """Returns the positions without those of earlier topics of the same names (SEMANTICS S11).

    Args:
        places: the positions.
        now: the topics.
    """
    return {tp: it for tp, it in places.items() if not it.identity.differs_from(now.get(tp.topic, UNKNOWN))}


class GroupTime(OperatorTime):
    """Computes the watermark of a group for the batches of one query. Used by one thread.

    Args:
        partitions: returns all partitions that the group reads.
        committed: returns the committed offsets of partitions with their states. Partitions without a committed offset
            are left out.
        identities: returns the ids of topics.
        high_watermarks: returns the offset after the last record of each partition, including those of open
            transactions.
        now_ms: the time in milliseconds since the epoch.
        idle_timeout_ms: the partition idle timeout; ``None`` if no partition is ever idle.
    """

    def __init__(
        self,
        partitions: Callable[[], Collection[TopicPartition]],
        committed: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, Owned]],
        identities: Callable[[Collection[str]], Mapping[str, TopicIdentity]],
        high_watermarks: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]],
        now_ms: Callable[[], int],
        idle_timeout_ms: int | None = None,
    ) -> None:
        self._partitions, self._committed, self._identities = partitions, committed, identities
        self._high_watermarks = high_watermarks
        self._now_ms, self._idle_timeout_ms = now_ms, idle_timeout_ms
        self._seen: dict[TopicPartition, Seen] = {}
        self._polled_ms: int | None = None

    def watermark(self, owned: Mapping[TopicPartition, Owned], read: Collection[TopicPartition] = ()) -> Watermark:
        """See :meth:`OperatorTime.watermark`."""
        if not has_group_time(owned):
            return NOT_YET
        self._refresh(owned)
        if not self._seen:
            return NOT_YET
        return group_watermark(self._seen, owned, read, self._idle_timeout_ms)

    def event_times(self, owned: Mapping[TopicPartition, Owned]) -> EventTimes:
        """See :meth:`OperatorTime.event_times`. Empty before the first state."""
        if not has_group_time(owned):
            return EventTimes()
        self._refresh(owned)
        states = _states(self._seen, owned)
        return EventTimes(
            {tp: watermark_of(state) for tp, state in states.items()},
            _idle(self._seen, self._idle_timeout_ms),
            latest(*map(used_watermark, states.values())),
        )

    def explain(
        self,
        group_id: str,
        member: str,
        owned: Mapping[TopicPartition, Owned],
        imported: ImportStatus | None = None,
    ) -> StreamExplanation | None:
        """Explains which partitions hold back the watermark, as of the last observation. Safe to call from any thread.

        Args:
            group_id: the consumer group.
            member: the member of the group.
            owned: the partitions of the query, with the states of their positions.
            imported: the watermark of another group; ``None`` if the query imports no watermark.
        """
        if not has_group_time(owned):
            return super().explain(group_id, member, owned)
        seen = self._seen
        states = _states(seen, owned)
        partitions = {tp: _partition_time(seen.get(tp), state) for tp, state in states.items()}
        # A batch never uses an earlier watermark than the batch before.
        used = latest(*map(used_watermark, states.values()))
        watermark = latest(used, group_watermark(seen, owned, (), self._idle_timeout_ms))
        watermark = watermark if imported is None else latest(watermark, imported.watermark)
        source = SourceTime(watermark, partitions)
        settings = TimeSettings(Generation(), partition_idle_timeout_ms=self._idle_timeout_ms)
        return stream_explanation(group_id, member, source, settings, imported)

    # ---- observations ------------------------------------------------------------------------------------------------

    def _refresh(self, owned: Mapping[TopicPartition, Owned]) -> None:
        now_ms = self._now_ms()
        if self._polled_ms is None or not 0 <= now_ms - self._polled_ms < _EVERY_MS:
            self._poll(owned, now_ms)
            self._polled_ms = now_ms

    def _poll(self, owned: Mapping[TopicPartition, Owned], now_ms: int) -> None:
        partitions = frozenset(self._partitions())
        try:
            places = {**self._places(partitions - owned.keys()), **owned}
            # Without a timeout no partition is ever idle, and nothing needs the ends.
            ends = {} if self._idle_timeout_ms is None else self._high_watermarks(partitions & places.keys())
        except UnknownTopic:
            # A topic was deleted since its partitions were listed. The last observation is still not too late.
            return
        self._seen = observed_all(self._seen, partitions, places, ends, now_ms)

    def _places(self, others: Collection[TopicPartition]) -> dict[TopicPartition, Owned]:
        """The committed offsets of partitions of other queries."""
        if not others:
            return {}
        found = self._committed(others)
        return of_present_topics(found, self._identities({tp.topic for tp in others}))


def _partition_time(seen: Seen | None, state: StateOrigin) -> PartitionTime:
    time = time_of(state)
    event_time_ms = None if time is None else time.event_time_ms
    if seen is None:
        return PartitionTime(event_time_ms, watermark_of(state))
    return PartitionTime(
        event_time_ms,
        watermark_of(state),
        next_offset=seen.next_offset,
        idle_since_ms=seen.idle_since_ms,
        seen_ms=seen.seen_ms,
    )
