"""P1: a preview reads as many records as requested, in equal parts of the partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamgroups.partitions import Bounds, TopicPartition
from streamgroups.processors.preview_ranges import last_records, next_records

_BOUNDS = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda it: Bounds(it[0], it[0] + it[1]))
_TOPIC = st.dictionaries(st.integers(0, 5).map(lambda n: TopicPartition("flights", n)), _BOUNDS, max_size=5)


def _check(read: dict[TopicPartition, int], available: dict[TopicPartition, int], records: int) -> None:
    assert sum(read.values()) == min(records, sum(available.values()))
    assert all(read[tp] <= available[tp] for tp in available)
    # A partition with more records left has at most one record less than any other.
    cut = [read[tp] for tp in available if read[tp] < available[tp]]
    assert not cut or min(cut) >= max(read.values()) - 1


@given(_TOPIC, st.integers(1, 200))
def test_P1_the_last_records(bounds: dict[TopicPartition, Bounds], records: int) -> None:
    found = last_records(bounds, records)
    assert [it.topic_partition for it in found] == sorted(bounds)
    assert all(it.end_offset == bounds[it.topic_partition].end_offset for it in found)
    available = {tp: it.end_offset - it.beginning_offset for tp, it in bounds.items()}
    _check({it.topic_partition: len(it) for it in found}, available, records)


@given(_TOPIC, st.integers(1, 200), st.data())
def test_P2_the_next_records_of_a_group(
    bounds: dict[TopicPartition, Bounds], records: int, data: st.DataObject
) -> None:
    """A position can be outside: retention has deleted its records, or the topic was created again."""
    positions = {tp: data.draw(st.integers(0, 150)) for tp in bounds}
    found = next_records(bounds, positions, records)
    available = {}
    for it in found:
        of = bounds[it.topic_partition]
        first = min(max(positions[it.topic_partition], of.beginning_offset), of.end_offset)
        assert it.next_offset == first
        available[it.topic_partition] = of.end_offset - first
    _check({it.topic_partition: len(it) for it in found}, available, records)
