"""S4: limits per trigger."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.partitions import TopicPartition
from streamgroups.query.trigger_limits import UNLIMITED, Limits, admit, share
from unit_tests.streamgroups.strategies import TOPIC_PARTITIONS

P0, P1, P2 = (TopicPartition("flights", p) for p in range(3))
AVAILABLE = st.dictionaries(TOPIC_PARTITIONS, st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)))


@given(AVAILABLE, st.integers(1, 10**6))
def test_S4_a_batch_never_exceeds_starves_or_reads_backwards(
    available: dict[TopicPartition, tuple[int, int]], most: int
) -> None:
    ranges = admit(available, Limits(max_offsets=most), last_batch_ms=None, now_ms=0)

    backlog = {tp: end - first for tp, (first, end) in available.items() if end > first}
    assert [r.topic_partition for r in ranges] == sorted(backlog)
    assert all(r.next_offset == available[r.topic_partition][0] for r in ranges)
    assert all(0 < len(r) <= backlog[r.topic_partition] for r in ranges)
    # One of each partition is always read, whatever the limit.
    assert sum(map(len, ranges)) == min(sum(backlog.values()), max(most, len(backlog)))


@given(st.dictionaries(TOPIC_PARTITIONS, st.integers(1, 10**6), min_size=1), st.integers(1, 10**6))
def test_S4_who_is_further_behind_gets_no_less(backlog: dict[TopicPartition, int], most: int) -> None:
    shares = share(backlog, most)
    by_backlog = sorted(backlog, key=backlog.__getitem__)
    for less, more in pairwise(by_backlog):
        # Equal remainders are settled by name, so that a share may be one off.
        assert shares[less] <= shares[more] + (backlog[less] == backlog[more])


def test_S4_more_partitions_than_the_limit_and_one_record_in_each() -> None:
    assert share({P0: 1, P1: 1, P2: 1}, 2) == {P0: 1, P1: 1, P2: 1}


@pytest.mark.parametrize(
    ("backlogs", "most", "read"),
    [
        ([5, 5], 9, 9),
        ([5, 5], 10, 10),
        ([5, 5], 11, 10),
        ([5, 5], 2, 2),
        # At least one of each partition that has something.
        ([5, 5, 0], 1, 2),
        ([0, 0], 1, 0),
        ([1, 1_000_000], 2, 2),
    ],
)
def test_S4_at_the_limit_and_one_beyond(backlogs: list[int], most: int, read: int) -> None:
    available = {TopicPartition("flights", p): (7, 7 + n) for p, n in enumerate(backlogs)}
    ranges = admit(available, Limits(max_offsets=most), last_batch_ms=None, now_ms=0)
    assert sum(map(len, ranges)) == read


def test_S4_without_limits_everything_is_read() -> None:
    ranges = admit({P0: (3, 9), P1: (4, 4), P2: (9, 2)}, UNLIMITED, last_batch_ms=0, now_ms=0)
    assert [str(r) for r in ranges] == ["flights-0[3,9)"]


@pytest.mark.parametrize(
    ("there_is", "last_batch_ms", "now_ms", "waits"),
    [
        (9, None, 0, False),
        (9, 0, 0, True),
        (9, 0, 999, True),
        (9, 0, 1_000, False),
        (10, 0, 0, False),
        (0, 0, 5_000, True),
    ],
    ids=["first batch", "just had one", "before the delay", "after the delay", "enough", "nothing"],
)
def test_S4_minOffsetsPerTrigger_waits_until_there_is_enough_but_not_forever(
    there_is: int, last_batch_ms: int | None, now_ms: int, waits: bool
) -> None:
    limits = Limits(min_offsets=10, max_delay_ms=1_000)
    ranges = admit({P0: (0, there_is)}, limits, last_batch_ms=last_batch_ms, now_ms=now_ms)
    assert (not ranges) is waits
