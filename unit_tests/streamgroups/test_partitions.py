"""Topic partitions and ranges."""

from __future__ import annotations

import pickle

import pytest

from streamgroups.errors import InvalidOption
from streamgroups.partitions import OffsetRange, TopicPartition

P0 = TopicPartition("flights", 0)


@pytest.mark.parametrize(("first", "end"), [(-1, 0), (5, 4), (-3, -2)])
def test_a_range_is_neither_negative_nor_backwards(first: int, end: int) -> None:
    with pytest.raises(InvalidOption, match=rf"flights-0: \[{first}, {end}\)"):
        OffsetRange(P0, first, end)


def test_ranges_order_by_topic_partition_and_offset() -> None:
    later_topic = OffsetRange(TopicPartition("orders", 0), 0, 1)
    tenth = OffsetRange(TopicPartition("flights", 10), 0, 1)
    second = OffsetRange(TopicPartition("flights", 2), 7, 9)
    assert sorted([later_topic, tenth, second]) == [second, tenth, later_topic]


def test_ranges_travel_to_spark_workers() -> None:
    assert pickle.loads(pickle.dumps(OffsetRange(P0, 3, 9))) == OffsetRange(P0, 3, 9)
