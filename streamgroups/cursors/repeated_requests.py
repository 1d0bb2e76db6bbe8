"""The requests of an instance that a cursor can repeat, with their positions before and after.

``streamgroups_kafka.cursors.instance_session`` calls this module before and after each read. Records of several partitions
arrive in any order, and more arrive later. So the positions of a cursor do not determine the messages of its request:
this module retains the end of each request until later offsets are committed. Source: SEMANTICS G4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamgroups.partitions import TopicPartition

#: The maximum number of requests that can be repeated. Without commits their number would grow without limit.
MAX_REQUESTS = 100


@dataclass(frozen=True, slots=True)
class Answered:
    """A request that returned messages.

    Args:
        next_offsets: the position of each partition before the request.
        end_offsets: the position after it, of the partitions that it has read.
        limit: its maximum number of messages.
    """

    next_offsets: Mapping[TopicPartition, int]
    end_offsets: Mapping[TopicPartition, int]
    limit: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """The messages that a request repeats.

    Args:
        end_offsets: where they end. Empty for a new request.
        has_room: whether further messages follow them: the limit is greater than that of the first request.
    """

    end_offsets: Mapping[TopicPartition, int]
    has_room: bool


@dataclass(frozen=True, slots=True)
class Repeats:
    """The last requests of an instance, latest last.

    >>> p = TopicPartition("flights", 0)
    >>> Repeats().after({p: 0}, {p: 100}, 100, committed={p: 0}).of({p: 0}, 10)
    Repeat(end_offsets={TopicPartition(topic='flights', partition=0): 100}, has_room=False)
    """

    answered: tuple[Answered, ...] = ()

    def of(self, positions: Mapping[TopicPartition, int], limit: int) -> Repeat:
        """Returns the messages that a request from these positions repeats.

        A rebalance between both requests can remove or add partitions. The others decide.
        """
        found = [
            it
            for it in self.answered
            if all(positions.get(tp, n) == n for tp, n in it.next_offsets.items())
            if it.end_offsets.keys() & positions.keys()
        ]
        enough = [it for it in found if it.limit >= limit]
        if not found:
            return Repeat({}, True)
        first = min(enough, key=_limit) if enough else max(found, key=_limit)
        return Repeat({tp: n for tp, n in first.end_offsets.items() if tp in positions}, not enough)

    def after(
        self,
        positions: Mapping[TopicPartition, int],
        reached: Mapping[TopicPartition, int],
        limit: int,
        committed: Mapping[TopicPartition, int],
    ) -> Repeats:
        """Returns the requests after another one that returned messages.

        Args:
            positions: the positions before it.
            reached: the positions after it, of the partitions whose messages were returned.
            limit: its maximum number of messages.
            committed: the committed offsets. No request is repeated from a position before them (SEMANTICS G12).
        """
        ends = {tp: n for tp, n in reached.items() if n > positions[tp]}
        is_new = bool(ends) and self.of(positions, limit).has_room
        new = (Answered(dict(positions), ends, limit),) if is_new else ()
        kept = tuple(it for it in self.answered + new if _can_repeat(it, committed))
        return Repeats(kept[-MAX_REQUESTS:])


def _limit(it: Answered) -> int:
    return it.limit


def _can_repeat(it: Answered, committed: Mapping[TopicPartition, int]) -> bool:
    return all(n >= committed.get(tp, 0) for tp, n in it.next_offsets.items())
