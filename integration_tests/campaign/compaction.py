"""Compaction that removes records before the group has read them. Used by ``campaign.cluster_faults``.

Two consecutive records of a partition have one key, so compaction can remove the first of them. The topic is compacted only while all
queries are frozen, until records are removed that arrived meanwhile. So no query can have read these, and a query can have read the other
removed records after the position. A group that reads a compacted topic has no gap. Source: Kafka's documentation, "Log compaction"; SEMANTICS S4.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from integration_tests.campaign.members import CampaignMember
from integration_tests.campaign.targets import patiently
from integration_tests.campaign.verdict import Verdict
from integration_tests.campaign.windows import PARTITIONS
from integration_tests.campaign.zombies import frozen
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_testkit.reading import committed_messages
from streamgroups_testkit.waits import wait_until

COMPACTION = "compaction"
#: The topic: segments of a second, which are compacted at once, if its policy is ``compact``.
COMPACTED_TOPIC = {
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
}
#: The brokers: the time between two checks for segments that can be compacted.
COMPACTION_PROPERTIES = {"log.cleaner.backoff.ms": "500"}
_COMPACTED_S = 60.0
#: The time in which all brokers apply a new configuration of a topic.
_APPLIED_S = 5.0


def paired_key(number: int) -> str:
    """The key of a record. Two consecutive records of a partition have the same.

    >>> [paired_key(it) for it in (0, PARTITIONS, 2 * PARTITIONS, 1)]
    ['0-0', '0-0', '0-1', '1-0']
    """
    return f"{number % PARTITIONS}-{number // PARTITIONS // 2}"


class Compactions:
    """Compacts a topic while its group does not read it.

    Args:
        bootstrap: the broker.
        topic: the topic, with :data:`COMPACTED_TOPIC`.
        members: the members of the group.
        committed: returns the committed offsets.
        ends: returns the end offsets.
        places: the places of the acknowledged records, by value.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        members: Sequence[CampaignMember],
        committed: Callable[[], Mapping[int, int]],
        ends: Callable[[], Mapping[int, int]],
        places: Mapping[str, tuple[TopicPartition, int]],
    ) -> None:
        self._bootstrap, self._topic, self._members = bootstrap, topic, members
        self._committed, self._ends, self._places = committed, ends, places
        #: The partition and offset of each removed record after the position, and of those that no query can have read.
        self.removed: set[tuple[int, int]] = set()
        self.never_read: set[tuple[int, int]] = set()

    def compact(self) -> None:
        """Freezes all members until a compaction has removed records that arrived meanwhile.

        Raises:
            NotInTime: if none does.
        """
        with ExitStack() as stack:
            for member in self._members:
                stack.enter_context(frozen(member))
            ends = self._ends()
            self._set_policy("compact")
            try:
                wait_until(
                    lambda: _after(ends, self._missing()),
                    f"a compaction removes available records of {self._topic}",
                    _COMPACTED_S,
                    1.0,
                )
            finally:
                self._set_policy("delete")
            # A broker aborts a compaction when it applies the policy.
            ended_s = time.monotonic() + _APPLIED_S
            wait_until(lambda: time.monotonic() > ended_s, "all brokers have applied the policy")
            # A record that was acknowledged just before the topic is read can be missing once.
            removed = self._missing() & self._missing()
            # The broker can end a commit that a member has begun before it was frozen.
            self.removed |= _after(self._committed(), removed)
            self.never_read |= _after(ends, removed)

    def _missing(self) -> set[tuple[int, int]]:
        """The partition and offset of each acknowledged record that the topic does not have any more."""
        # The producer continues, so the acknowledged records are those before the read of the topic.
        acknowledged = {(tp.partition, n) for tp, n in list(self._places.values())}
        messages = patiently(lambda: list(committed_messages(self._bootstrap, self._topic)))
        return acknowledged - {(m.partition(), m.offset()) for m in messages}

    def _set_policy(self, policy: str) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self._topic, incremental_configs=[entry])

        def alter() -> None:
            for altered in admin.incremental_alter_configs([resource]).values():
                altered.result(30)

        patiently(alter)

    def judge(self, verdict: Verdict, arrived: Sequence[tuple[int, str]]) -> tuple[Verdict, list[OffsetRange]]:
        """The verdict of an output that need not have the removed records, and the ranges of those that it does not have.

        A record that no query can have read, and that is in the output, is a difference.

        Args:
            verdict: the verdict without compaction.
            arrived: (partition, value) of the output.
        """
        places = {value: (tp.partition, n) for value, (tp, n) in self._places.items()}
        written = {places[value] for _, value in arrived if value in places}
        not_written = self.removed - written
        unseen = {value: self._places[value] for value, place in places.items() if place in not_written}
        impossible = [f"{it} is in the output and was never read" for it in sorted(self.never_read & written)]
        lost = [it for it in verdict.lost if it not in unseen]
        ranges = [OffsetRange(tp, n, n + 1) for tp, n in sorted(unseen.values())]
        return replace(verdict, lost=lost, different=[*verdict.different, *impossible]), ranges


def _after(positions: Mapping[int, int], places: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """The places at or after the position of their partition.

    >>> _after({0: 5}, {(0, 4), (0, 5), (1, 0)}) == {(0, 5), (1, 0)}
    True
    """
    return {(p, n) for p, n in places if n >= positions.get(p, 0)}
