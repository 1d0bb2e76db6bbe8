"""Compaction that removes records before the group has read them. Used by ``campaign.cluster_faults``.

Two consecutive records of a partition have one key, so compaction can remove the first of them. All queries are frozen until it has
removed records after their positions. A group that reads a compacted topic has no gap: the output has each record that the topic has, and
each of the others at most once. Source: Kafka's documentation, "Log compaction"; SEMANTICS S4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from integration_tests.campaign.members import CampaignMember
from integration_tests.campaign.targets import patiently
from integration_tests.campaign.verdict import Verdict
from integration_tests.campaign.windows import PARTITIONS
from integration_tests.campaign.zombies import frozen
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_testkit.reading import committed_messages
from streamgroups_testkit.waits import wait_until

COMPACTION = "compaction"
#: The topic: segments of a second, which are compacted at once.
COMPACTED_TOPIC = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
}
#: The brokers: the time between two checks for segments that can be compacted.
COMPACTION_PROPERTIES = {"log.cleaner.backoff.ms": "500"}
_COMPACTED_S = 60.0


def paired_key(number: int) -> str:
    """The key of a record. Two consecutive records of a partition have the same.

    >>> [paired_key(it) for it in (0, PARTITIONS, 2 * PARTITIONS, 1)]
    ['0-0', '0-0', '0-1', '1-0']
    """
    return f"{number % PARTITIONS}-{number // PARTITIONS // 2}"


class Compactions:
    """Waits for compactions of available records.

    Args:
        bootstrap: the broker.
        group: the group.
        topic: its topic, with :data:`COMPACTED_TOPIC`.
        members: its members.
        committed: returns the committed offsets.
        places: the places of the acknowledged records, by value.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        members: Sequence[CampaignMember],
        committed: Callable[[], Mapping[int, int]],
        places: Mapping[str, tuple[TopicPartition, int]],
    ) -> None:
        self._bootstrap, self._group, self._topic = bootstrap, group, topic
        self._members, self._committed, self._places = members, committed, places
        #: How many available records compactions have removed while all members were frozen.
        self.n_removed = 0

    def compact(self) -> None:
        """Freezes all members until a compaction has removed a record after their positions.

        Raises:
            NotInTime: if none does.
        """
        with ExitStack() as stack:
            for member in self._members:
                stack.enter_context(frozen(member))
            # A sink can commit until all processes are frozen.
            wait_until(self._available, f"a compaction removes available records of {self._topic}", _COMPACTED_S, 1.0)
            self.n_removed += len(self._available())

    def _available(self) -> set[tuple[int, int]]:
        committed = self._committed()
        return {(p, n) for p, n in self._removed() if n >= committed.get(p, 0)}

    def _removed(self) -> set[tuple[int, int]]:
        """The partition and offset of each acknowledged record that the topic does not have any more."""
        # The producer continues, so the acknowledged records are those before the read of the topic.
        acknowledged = {(tp.partition, n) for tp, n in list(self._places.values())}
        messages = patiently(lambda: list(committed_messages(self._bootstrap, self._topic)))
        return acknowledged - {(m.partition(), m.offset()) for m in messages}

    def judge(self, verdict: Verdict, arrived: Sequence[tuple[int, str]]) -> tuple[Verdict, list[OffsetRange]]:
        """The verdict of an output that need not have the removed records, and the ranges of those that it does not have.

        Args:
            verdict: the verdict without compaction.
            arrived: (partition, value) of the output.

        Raises:
            AssertionError: if the output has all of them: the fault had no effect.
        """
        if not self.n_removed:
            return verdict, []
        removed = self._removed()
        values = {value for value, (tp, n) in self._places.items() if (tp.partition, n) in removed}
        unseen = values - {value for _, value in arrived}
        assert unseen, "the output has all records that compactions have removed"
        lost = [it for it in verdict.lost if it not in unseen]
        return replace(verdict, lost=lost), [
            OffsetRange(tp, n, n + 1) for tp, n in sorted(self._places[it] for it in unseen)
        ]
