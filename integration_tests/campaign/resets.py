"""Resets of a campaign's running group to known positions, and the check of an output by its order.

Used by ``integration_tests.campaign`` and ``campaign.zombies``. The output of a partition in the order of its commits is
a sequence of runs: each run has all records from its first offset to its end, and each applied reset begins the next run
at its target. So the order alone shows a lost record, a repeated one, and a reset that was applied never or twice.
Source: SEMANTICS G8, S6, X2-X4, X9.

Some records are dead letters. The output does not contain them, and the letters are in a topic of their own.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

from confluent_kafka import KafkaException

from integration_tests.campaign.windows import PARTITIONS, RecordReset, ignore_reset
from streamgroups.coordination.reset_requests import ResetRequests
from streamgroups.errors import StreamGroupsError
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.admin.metadata_store import KafkaMetadataStore
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_testkit.reading import committed_offsets

#: Every record with a number that this divides is a dead letter. It shares no factor with the number of partitions.
LETTER_EVERY = 101
#: The maximum distance of a reset from the committed offset.
_MAX_DISTANCE = 500
#: The maximum number of records of a batch.
MAX_BATCH = 2_000
#: The broker returns no offsets while the transaction of a zombie contains some, for at most 20 s.
_ATTEMPTS = 4


def is_letter(number: int) -> bool:
    """Whether a record is a dead letter."""
    return number % LETTER_EVERY == 0


@dataclass(frozen=True, slots=True)
class RequestedReset:
    """A reset of one partition that the campaign has requested.

    Args:
        partition: the partition.
        next_offset: its target, below the committed offset at the time of the request.
    """

    partition: int
    next_offset: int


@dataclass
class Order:
    """The differences of an output from the order of its input; each record is its number as text.

    Args:
        lost: the records that a run does not contain.
        repeated: the records outside of all runs.
        unapplied: the resets that begin no run.
        runs: the runs of each partition, as (first offset, end offset).
    """

    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    unapplied: list[str] = field(default_factory=list)
    runs: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def times_read(self, number: int) -> int:
        """How often a record was read at most: by each run, and by one batch after its end, whose output is missing."""
        offset = number // PARTITIONS
        return sum(first <= offset < end + MAX_BATCH for first, end in self.runs[number % PARTITIONS])


def order_of(
    arrived: Iterable[tuple[int, str]], count: int, resets: Sequence[RequestedReset] = (), *, letters: bool = False
) -> Order:
    """Checks the order of an output.

    Args:
        arrived: (partition, number) of all records, in the order of their commits within a partition.
        count: the number of records of the input.
        resets: the applied resets, in their order.
        letters: whether some records are dead letters.
    """
    by_partition: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    for partition, value in arrived:
        by_partition[partition].append(int(value) // PARTITIONS)
    found = Order()
    for partition, offsets in by_partition.items():
        numbers = range(partition, count, PARTITIONS)
        expected = [i for i, number in enumerate(numbers) if not (letters and is_letter(number))]
        targets = [it.next_offset for it in resets if it.partition == partition]
        _check_partition(found, partition, offsets, expected, targets)
    return found


def _check_partition(
    found: Order, partition: int, offsets: Sequence[int], expected: Sequence[int], targets: Sequence[int]
) -> None:
    """Adds the differences of one partition. ``expected`` contains the offsets of a complete run from the beginning."""
    place = {offset: i for i, offset in enumerate(expected)}
    remaining, runs, first, next_place, end = list(targets), found.runs.setdefault(partition, []), 0, 0, 0
    for offset in offsets:
        i = place.get(offset)
        if i is None:
            found.repeated.append(str(offset * PARTITIONS + partition))
            continue
        if i != next_place and remaining and i == _first_place(expected, remaining[0]):
            runs.append((first, end))
            first = end = remaining.pop(0)
            next_place = i
        if i < next_place:
            found.repeated.append(str(offset * PARTITIONS + partition))
            continue
        found.lost += [str(missing * PARTITIONS + partition) for missing in expected[next_place:i]]
        next_place, end = i + 1, offset + 1
    found.lost += [str(missing * PARTITIONS + partition) for missing in expected[next_place:]]
    runs.append((first, end))
    found.unapplied += [f"partition {partition} to {target}" for target in remaining]


def _first_place(expected: Sequence[int], offset: int) -> int:
    return next((i for i, it in enumerate(expected) if it >= offset), len(expected))


def wrong_letters(order: Order, letters: Iterable[str], count: int) -> tuple[list[str], list[str]]:
    """Returns the lost and the repeated dead letters.

    A letter is there at least once. A reset back to it or before it may write it again, also if the output of the batch that has
    written it is missing. Without a reset, its replay recognizes the letter.

    Args:
        order: the order of the output.
        letters: the numbers of the dead letters.
        count: the number of records of the input.
    """
    found = Counter(letters)
    expected = {str(number): order.times_read(number) for number in range(0, count, LETTER_EVERY)}
    lost = [number for number in expected if not found[number]]
    return lost, [number for number, n in found.items() if number not in expected or n > max(1, expected[number])]


class RequestedResets:
    """Requests resets of the running group, one after the other.

    Args:
        bootstrap: the broker.
        group: the group.
        topic: its topic.
        seed: the seed of the targets.
        record: called with ``requested`` or ``applied``, the time in milliseconds since the epoch, and the targets.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, seed: int, record: RecordReset = ignore_reset) -> None:
        self._record, self._targets = record, dict[int, int]()
        self._bootstrap, self._group, self._topic = bootstrap, group, topic
        self._config = ClientConfig.from_options({"bootstrap.servers": bootstrap})
        self._choose = random.Random(seed)
        #: The resets so far, and how often the campaign has requested one.
        self.done: list[RequestedReset] = []
        self.n_requests = 0

    def committed(self) -> Mapping[int, int]:
        """The committed offsets of the group."""
        for _ in range(_ATTEMPTS - 1):
            with suppress(KafkaException):
                return committed_offsets(self._bootstrap, self._group, self._topic)
        return committed_offsets(self._bootstrap, self._group, self._topic)

    def request(self) -> None:
        """Requests the members to continue at earlier offsets of all partitions."""
        targets = {
            p: max(0, n - 1 - self._choose.randrange(_MAX_DISTANCE)) for p, n in sorted(self.committed().items())
        }
        self._record("requested", _now_ms(), targets)
        self._targets = targets
        with closing(KafkaMetadataStore(self._config)) as store:
            where = {TopicPartition(self._topic, p): n for p, n in targets.items()}
            self._resets(store).write(self._group, where)
        self.done += [RequestedReset(p, n) for p, n in targets.items()]
        self.n_requests += 1

    def _resets(self, store: KafkaMetadataStore) -> ResetRequests:
        return ResetRequests(store, _now_ms, lambda _: {self._topic: PARTITIONS})

    def is_applied(self) -> bool:
        """Whether the group has applied the last request to all partitions."""
        with closing(KafkaMetadataStore(self._config)) as store:
            partitions = [TopicPartition(self._topic, p) for p in range(PARTITIONS)]
            try:
                is_applied = not self._resets(store).waiting(self._group, partitions)
            except StreamGroupsError:
                # The coordinator of the group can be unavailable for a moment.
                return False
        if is_applied and self._targets:
            self._record("applied", _now_ms(), self._targets)
            self._targets = {}
        return is_applied


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
