"""Retention that passes the positions of a group, and the gaps that the queries record. Used by ``campaign.cluster_faults``.

DeleteRecords moves the earliest offset of a partition, as retention does. The queries have ``onDataLoss=skip``: they record the gap, and
continue at the earliest offset. Then the output has exactly the records that are not in a recorded gap, and no gap has a record
that was not deleted. Source: SEMANTICS S7; KIP-107.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from integration_tests.campaign.targets import patiently
from integration_tests.campaign.verdict import Verdict
from integration_tests.campaign.windows import PARTITIONS
from integration_tests.campaign.zombies import Freezable, frozen
from streamgroups.coordination.reset_protocol import gaps_group_of
from streamgroups.groups.gaps import Gaps
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_testkit.reading import committed_metadata
from streamgroups_testkit.waits import wait_until

#: The members sleep for a shorter time than their session timeout of 6 s.
_FROZEN_S = 2.5
#: The newest records stay, so that the group reads some after the gap.
_N_KEPT = 5


@dataclass(frozen=True, slots=True)
class Deletion:
    """The deletion of the first records of a partition.

    Args:
        partition: the partition.
        committed: the committed offset of the group, whose members were frozen.
        earliest: the earliest offset after it. It is greater than ``committed``.
    """

    partition: int
    committed: int
    earliest: int


def chosen(committed: Mapping[int, int], ends: Mapping[int, int], number: int) -> dict[int, int]:
    """The new earliest offsets: of two partitions in turn, before their newest records and after the position of the group.

    >>> chosen({0: 10, 1: 10, 2: 10, 3: 10}, {0: 90, 1: 90, 2: 12, 3: 90}, 0)
    {0: 85}
    """
    partitions = sorted({number % PARTITIONS, (number + 2) % PARTITIONS})
    targets = {p: ends[p] - _N_KEPT for p in partitions if p in committed}
    return {p: n for p, n in targets.items() if n > committed[p]}


class Deletions:
    """Deletes records before members can read them.

    Args:
        bootstrap: the broker.
        group: the group.
        topic: its topic.
        members: the members.
        committed: returns the committed offsets.
        ends: returns the end offsets.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        members: Iterable[Freezable],
        committed: Callable[[], Mapping[int, int]],
        ends: Callable[[], Mapping[int, int]],
    ) -> None:
        self._bootstrap, self._group, self._topic = bootstrap, group, topic
        self._members, self._committed, self._ends = members, committed, ends
        self._n = 0
        #: The deletions so far.
        self.done: list[Deletion] = []

    def delete(self) -> None:
        """Freezes all members, and deletes records after their positions.

        Raises:
            AssertionError: if no deletion has passed a position.
        """
        with ExitStack() as stack:
            for member in self._members:
                stack.enter_context(frozen(member))
            time.sleep(_FROZEN_S)
            before = self._committed()
            targets = chosen(before, self._ends(), self._n)
            self._n += 1
            earliest = patiently(partial(self._delete, targets))
            after = self._committed()
        passed = [Deletion(p, after[p], n) for p, n in earliest.items() if n > after[p]]
        assert passed, f"the deletion up to {earliest} has not passed a position of {after}"
        self.done += passed

    def _delete(self, targets: Mapping[int, int]) -> dict[int, int]:
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        requested = [KafkaPartition(self._topic, p, n) for p, n in targets.items()]
        deleted = admin.delete_records(requested)
        return {tp.partition: it.result(30).low_watermark for tp, it in deleted.items()}

    def recorded(self) -> list[OffsetRange]:
        """The gaps that the queries and their tasks have recorded in Kafka."""
        entries = patiently(partial(committed_metadata, self._bootstrap, gaps_group_of(self._group), self._topic))
        found: list[OffsetRange] = []
        for p, entry in sorted(entries.items()):
            gaps = Gaps.decode(entry)
            assert not gaps.not_kept, f"partition {p} has more gaps than Kafka stores: delete fewer"
            for it in gaps.newest:
                assert it.from_offset is not None, it
                found.append(OffsetRange(TopicPartition(self._topic, p), it.from_offset, it.to_offset))
        return found

    def wait_until_recorded(self) -> None:
        """Waits until the queries have recorded a gap of the last deletions."""
        last = self.done[-1]
        wait_until(lambda: any(_is_in(it, last) for it in self.recorded()), f"a gap of {last} is recorded", 120, 1.0)


def _is_in(gap: OffsetRange, deletion: Deletion) -> bool:
    """Whether a gap has deleted records of a partition."""
    of_partition = gap.topic_partition.partition == deletion.partition
    return of_partition and gap.next_offset < deletion.earliest and gap.end_offset > deletion.committed


def with_gaps(
    verdict: Verdict,
    arrived: Sequence[tuple[int, str]],
    places: Mapping[str, tuple[TopicPartition, int]],
    gaps: Sequence[OffsetRange],
    deletions: Sequence[Deletion],
) -> Verdict:
    """The verdict of an output that must have exactly the records outside of the recorded gaps.

    A gap with a record that was not deleted, and a record of a gap in the output, are differences. The values of gaps are not lost.

    Args:
        verdict: the verdict without gaps.
        arrived: (partition, value) of the output.
        places: the places of the acknowledged records, by value.
        gaps: the recorded gaps.
        deletions: what the campaign has deleted.

    Raises:
        AssertionError: if there is no gap: the fault had no effect.
    """
    if not deletions:
        return replace(verdict, different=[*verdict.different, *(f"a gap without a deletion: {it}" for it in gaps)])
    earliest: dict[int, int] = {}
    for it in deletions:
        earliest[it.partition] = max(it.earliest, earliest.get(it.partition, 0))
    wrong = [f"{it} was not deleted" for it in gaps if it.end_offset > earliest.get(it.topic_partition.partition, 0)]
    in_gaps = {value for value, place in places.items() if _covers(gaps, *place)}
    assert in_gaps, f"no record is in a gap of {deletions}"
    arrived_values = {value for _, value in arrived}
    wrong += [f"{value} is in the output and in a gap" for value in sorted(in_gaps & arrived_values, key=int)]
    lost = [it for it in verdict.lost if it not in in_gaps]
    return replace(verdict, lost=lost, different=[*verdict.different, *wrong])


def _covers(gaps: Iterable[OffsetRange], topic_partition: TopicPartition, offset: int) -> bool:
    return any(it.topic_partition == topic_partition and it.next_offset <= offset < it.end_offset for it in gaps)
