"""The requests of an instance that a cursor can repeat, with their positions before and after.

``streamgroups_kafka.cursors.session`` calls this module before and after each read. Records of several partitions
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
    """

    next_offsets: Mapping[TopicPartition, int]
    end_offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Repeats:
    """The last requests of an instance, latest last.

    >>> p = TopicPartition("flights", 0)
    >>> Repeats().after({p: 0}, {p: 100}, committed={p: 0}).end_offsets({p: 0})
    {TopicPartition(topic='flights', partition=0): 100}
    """

    answered: tuple[Answered, ...] = ()

    def end_offsets(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns where the request from these positions ended; empty if it is new.

        A rebalance between both requests can remove or add partitions. The others decide.
        """
        for it in reversed(self.answered):
            if all(positions.get(tp, n) == n for tp, n in it.next_offsets.items()):
                ends = {tp: n for tp, n in it.end_offsets.items() if tp in positions}
                if ends:
                    return ends
        return {}

    def after(
        self,
        positions: Mapping[TopicPartition, int],
        reached: Mapping[TopicPartition, int],
        committed: Mapping[TopicPartition, int],
    ) -> Repeats:
        """Returns the requests after another one that returned messages.

        Args:
            positions: the positions before it.
            reached: the positions after it, of the partitions whose messages were returned.
            committed: the committed offsets. No request is repeated from a position before them (SEMANTICS G12).
        """
        ends = {tp: n for tp, n in reached.items() if n > positions[tp]}
        new = () if not ends or self.end_offsets(positions) else (Answered(dict(positions), ends),)
        kept = tuple(it for it in self.answered + new if _can_repeat(it, committed))
        return Repeats(kept[-MAX_REQUESTS:])


def _can_repeat(it: Answered, committed: Mapping[TopicPartition, int]) -> bool:
    return all(n >= committed.get(tp, 0) for tp, n in it.next_offsets.items())
