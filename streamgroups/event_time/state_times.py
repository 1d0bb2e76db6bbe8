"""The event time of windows of partitions for people, from the states that the commits of a group name.

:mod:`streamgroups.monitoring.monitor` (``groups watch``) and ``groups describe --state`` call :func:`group_time_of`.
:mod:`streamgroups.query.operator_states` calls :func:`explain_partitions` for ``sg.event_time.explain_time``. Source: SEMANTICS W2,
W3, W5, O3. A commit contains the watermark of its partition and, with ``time="group"``, the watermark of the group that
its batch has used. The idle timeouts of the query are not in a commit. But a partition that is behind a watermark of the
group did not hold it back, so the group has excluded it as idle.

With ``time="group"``, for the watermark ``w`` of a partition and the latest watermark ``g`` that the group has used:

=========================================  =========================================================================
the partition                              its state
=========================================  =========================================================================
has available records                      it is not idle: ``holds back`` or ``ahead``
has none, and ``w`` is before ``g``        ``idle``, or ``no watermark`` before its first record
has none, and ``w`` is not before ``g``    ``holds back`` if ``w`` is the minimum, otherwise ``ahead``
=========================================  =========================================================================

With ``time="partition"`` no partition affects another one. A partition is ``idle`` if the idle timeout has advanced its
watermark and no record is available, otherwise ``active``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamgroups.event_time.explanation import PartitionExplanation, StreamExplanation
from streamgroups.event_time.source_time import together
from streamgroups.event_time.stored_time import GroupTime, StoredTime, TimeState
from streamgroups.event_time.watermark import NOT_YET, At, Watermark, latest, oldest
from streamgroups.partitions import TopicPartition
from streamgroups.state.origins import Named, StateOrigin
from streamgroups.state.state_time import StateTime
from streamgroups.times import utc


def time_of(state: StateOrigin) -> StateTime | None:
    """Returns the event time of a state; ``None`` if it has none.

    >>> from streamgroups.state.origins import UNNAMED
    >>> time_of(UNNAMED) is None
    True
    """
    return state.time if isinstance(state, Named) else None


def group_time_of(
    states: Mapping[TopicPartition, StateOrigin], available: Collection[TopicPartition]
) -> GroupTime | None:
    """Returns the event time of each partition of a group. See the table above.

    Args:
        states: the state of the position of each partition.
        available: the partitions with records after the position, including those of open transactions.

    Returns:
        ``None`` if no state has event time. With ``time="partition"`` the group has no watermark, and only partitions
        with event time are returned.

    >>> from streamgroups.state.names import StateFileName
    >>> from streamgroups.state.state_time import GroupWindows
    >>> file = StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42)
    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> fast = Named(file, 5, time=StateTime(900, 900, group=GroupWindows(700)))
    >>> slow = Named(file, 5, time=StateTime(300, 300, group=GroupWindows(300)))
    >>> found = group_time_of({p0: fast, p1: slow}, ())
    >>> str(found.watermark), [it.state.value for it in found.partitions.values()]
    ('1970-01-01T00:00:00.900Z', ['holds back', 'idle'])
    >>> [it.state.value for it in group_time_of({p0: fast, p1: slow}, {p1}).partitions.values()]
    ['ahead', 'holds back']
    """
    times = {tp: time_of(state) for tp, state in sorted(states.items())}
    known = {tp: time for tp, time in times.items() if time is not None}
    if not known:
        return None
    if any(time.group is not None for time in known.values()):
        return _of_group(times, available)
    own = {
        tp: StoredTime(
            time.event_time_ms,
            _at(time.watermark_ms),
            TimeState.IDLE if time.is_idle and tp not in available else TimeState.ACTIVE,
        )
        for tp, time in known.items()
    }
    return GroupTime(None, own)


def _of_group(times: Mapping[TopicPartition, StateTime | None], available: Collection[TopicPartition]) -> GroupTime:
    watermarks: dict[TopicPartition, Watermark] = {
        tp: _at(time.watermark_ms) if time is not None and time.group is not None else NOT_YET
        for tp, time in times.items()
    }
    groups = [time.group for time in times.values() if time is not None and time.group is not None]
    used = latest(*(_at(group.watermark_ms) for group in groups))
    idle = {tp for tp, own in watermarks.items() if tp not in available and latest(own, used) != own}
    minimum = oldest(*(own for tp, own in watermarks.items() if tp not in idle))

    def state(tp: TopicPartition) -> TimeState:
        own = watermarks[tp]
        if tp in idle:
            return TimeState.ASSERTS_NOTHING if own == NOT_YET else TimeState.IDLE
        return TimeState.HOLDS_BACK if own == minimum else TimeState.AHEAD

    watermark = latest(used, together([(own, tp in idle) for tp, own in watermarks.items()]))
    partitions = {
        tp: StoredTime(None if time is None else time.event_time_ms, watermarks[tp], state(tp))
        for tp, time in times.items()
    }
    return GroupTime(watermark, partitions)


def explain_partitions(group_id: str, member: str, states: Mapping[TopicPartition, StateOrigin]) -> StreamExplanation:
    """Explains windows with ``time="partition"``: the watermark of each partition, and when its idle timeout expires.

    Args:
        group_id: the consumer group.
        member: the member of the group.
        states: the states of the partitions that the member owns.

    >>> from streamgroups.state.names import StateFileName
    >>> file = StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42)
    >>> idle = Named(file, 5, time=StateTime(360_000, 300_000, is_idle=True))
    >>> active = Named(file, 5, 420_000, StateTime(300_000, 300_000))
    >>> print(explain_partitions("board", "alice", {TopicPartition("t", 0): idle, TopicPartition("t", 1): active}))
    Group 'board', member 'alice': each partition has a watermark of its own.
    partition  event time                watermark                 state
    t-0        1970-01-01T00:05:00.000Z  1970-01-01T00:06:00.000Z  idle: the idle timeout has advanced the watermark
    t-1        1970-01-01T00:05:00.000Z  1970-01-01T00:05:00.000Z  active; the idle timeout expires at 1970-01-01T00:07:00.000Z
    """
    lines = tuple(_line(tp, state) for tp, state in sorted(states.items()))
    return StreamExplanation(group_id, member, lines, is_by_partition=True)


def _line(tp: TopicPartition, state: StateOrigin) -> PartitionExplanation:
    time = time_of(state)
    if time is None:
        return PartitionExplanation(tp, None, None, "no state yet")
    due_ms = state.due_ms if isinstance(state, Named) else None
    doing = "idle: the idle timeout has advanced the watermark" if time.is_idle else "active"
    expiry = "" if due_ms is None else f"; the idle timeout expires at {utc(due_ms)}"
    return PartitionExplanation(tp, time.event_time_ms, time.watermark_ms, doing + expiry)


def _at(time_ms: int | None) -> Watermark:
    return NOT_YET if time_ms is None else At(time_ms)
