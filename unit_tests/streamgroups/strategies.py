"""Examples for the properties: partitions, ranges, backlogs."""

from __future__ import annotations

import hypothesis.strategies as st

from streamgroups.partitions import OffsetRange, TopicPartition

TOPIC_PARTITIONS = st.builds(TopicPartition, st.sampled_from(["flights", "orders"]), st.integers(0, 5))
OFFSETS = st.integers(0, 10**12)


def ranges_of(topic_partition: TopicPartition, *, longest: int = 100_000) -> st.SearchStrategy[OffsetRange]:
    """Ranges of one partition, empty ones too."""
    return st.builds(
        lambda first, length: OffsetRange(topic_partition, first, first + length), OFFSETS, st.integers(0, longest)
    )


def range_lists(*, longest: int = 100_000) -> st.SearchStrategy[tuple[OffsetRange, ...]]:
    """At most one range for each of some partitions, ordered."""
    return st.sets(TOPIC_PARTITIONS).flatmap(
        lambda tps: st.tuples(*(ranges_of(tp, longest=longest) for tp in sorted(tps)))
    )
