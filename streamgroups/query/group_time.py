"""The watermark of a group: the minimum over the partitions that it reads, also over those that other queries own.

Used by ``streamgroups.query.operator_states`` on the thread of the query, for windows with ``time="group"``. The commit
of a partition contains the watermark of its state (:mod:`streamgroups.state.state_time`), so every query of the group
can read it. Source: SEMANTICS W2, W3, S10.

=========================================  =========================================================================
the partition                              its watermark
=========================================  =========================================================================
is owned, or its commit names a state      that of the state: its newest event time minus the delay
has no such state: it is new, or a tool    none, so it holds back the group until a commit names a state
has reset it, or its topic is recreated
is idle                                    excluded. If all partitions are idle, the latest of their watermarks applies
=========================================  =========================================================================

The watermark can only be too early. Commits of other queries are read with a delay, and the watermark of a partition
decreases only by a reset. A query has the states of its own partitions, so the watermark of a batch is never after the
watermark of a partition that the batch reads. Therefore no record is late that is in order in its partition, unless the
partition was idle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from streamgroups.errors import UnknownTopic
from streamgroups.event_time.idleness import Observation, idle_since, is_idle
from streamgroups.event_time.source_time import together
from streamgroups.event_time.watermark import NOT_YET, At, Watermark
from streamgroups.groups.membership import Owned
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.state.origins import UNNAMED, Named, StateOrigin

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

    >>> from streamgroups.state.names import StateFileName
    >>> from streamgroups.state.state_time import StateTime
    >>> watermark_of(Named(StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42), 700, None, StateTime(1732334870000)))
    At(time_ms=1732334870000)
    """
    if isinstance(state, Named) and state.time is not None and state.time.watermark_ms is not None:
        return At(state.time.watermark_ms)
    return NOT_YET


def has_group_time(owned: Mapping[TopicPartition, Owned]) -> bool:
    """Returns whether an operator of the query uses the watermark of the group. Before its first state it needs none."""
    return any(isinstance(it.state, Named) and it.state.time is not None for it in owned.values())


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
    idle = {tp for tp, it in seen.items() if tp not in read and is_idle(it.idle_since_ms, it.seen_ms, idle_timeout_ms)}
    states = {tp: it.state for tp, it in seen.items()} | {tp: it.state for tp, it in owned.items()}
    return together([(watermark_of(state), tp in idle) for tp, state in states.items()])


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


class GroupTime:
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
        """Returns the watermark of the group.

        Args:
            owned: the partitions of the query, with the states of their positions.
            read: the partitions with records in the next batch of the query.

        Raises:
            StreamGroupsError: see :class:`streamgroups.ports.Cluster`.
        """
        if not has_group_time(owned):
            return NOT_YET
        now_ms = self._now_ms()
        if self._polled_ms is None or not 0 <= now_ms - self._polled_ms < _EVERY_MS:
            self._poll(owned, now_ms)
            self._polled_ms = now_ms
        if not self._seen:
            return NOT_YET
        return group_watermark(self._seen, owned, read, self._idle_timeout_ms)

    def _poll(self, owned: Mapping[TopicPartition, Owned], now_ms: int) -> None:
        partitions = frozenset(self._partitions())
        try:
            places = {**self._places(partitions - owned.keys()), **owned}
            # Without a timeout no partition is ever idle, and nothing needs the ends.
            ends = {} if self._idle_timeout_ms is None else self._high_watermarks(partitions & places.keys())
        except UnknownTopic:
            # A topic was deleted since its partitions were listed. The last observation is still not too late.
            return
        self._seen = {
            tp: observed(
                self._seen.get(tp),
                places[tp].state if tp in places else UNNAMED,
                Observation(places[tp].next_offset, ends[tp]) if tp in places and tp in ends else None,
                now_ms,
            )
            for tp in partitions
        }

    def _places(self, others: Collection[TopicPartition]) -> dict[TopicPartition, Owned]:
        """The committed offsets of partitions of other queries, without those of earlier topics (SEMANTICS S11)."""
        if not others:
            return {}
        found, now = self._committed(others), self._identities({tp.topic for tp in others})
        return {tp: it for tp, it in found.items() if not it.identity.differs_from(now.get(tp.topic, UNKNOWN))}
