"""S1, S5: what a restarted query leaves to its group is noted for its later runs; without the board it is read again."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

import pytest

from streamgroups.checkpoints.offset import BatchOffset
from streamgroups.checkpoints.skipped_ranges import MOST, SkippedRanges
from streamgroups.coordination.reset_protocol import skipped_ranges_group_of
from streamgroups.errors import NotAuthorized
from streamgroups.fakes import FakeMetadataStore
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Committed
from streamgroups.query.skipped_range_store import SkippedRangeStore
from unit_tests.spark_model import World, tp

BATCH = BatchOffset(4, (OffsetRange(tp(0), 3, 9), OffsetRange(tp(1), 0, 2)))


class ClosedMetadataStore:
    """A board that this user may not use."""

    def read(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        raise NotAuthorized(f"No access to group '{group_id}'.", remedy="Ask for Read.")

    def write(self, group_id: str, notes: Mapping[TopicPartition, Committed]) -> None:
        raise NotAuthorized(f"No access to group '{group_id}'.", remedy="Ask for Read.")

    def close(self) -> None:
        pass


@pytest.fixture
def metadata_store() -> FakeMetadataStore:
    return World(2).metadata_store


def test_what_is_noted_is_known_of_that_batch_only(metadata_store: FakeMetadataStore) -> None:
    left = SkippedRangeStore(metadata_store, "airline")
    left.note(BATCH, [tp(1)])
    assert list(left.among(BATCH, [tp(0), tp(1)])) == [tp(1)]
    assert list(left.among(BatchOffset(5, BATCH.ranges), [tp(0), tp(1)])) == []
    assert list(SkippedRangeStore(metadata_store, "hotel").among(BATCH, [tp(0), tp(1)])) == []


def test_several_queries_leave_the_same_partition(metadata_store: FakeMetadataStore) -> None:
    left, other = SkippedRangeStore(metadata_store, "airline"), BatchOffset(1, (OffsetRange(tp(0), 3, 5),))
    left.note(BATCH, [tp(0), tp(1)])
    left.note(other, [tp(0)])
    left.note(BATCH, [tp(1)])
    assert list(left.among(other, [tp(0)])) == [tp(0)]
    assert list(left.among(BATCH, [tp(0), tp(1)])) == [tp(1)]


def test_the_newest_are_kept_within_what_a_broker_allows() -> None:
    left = SkippedRanges()
    for i in range(MOST + 5):
        left = left.plus(f"{i:016x}")
    assert left.batches[-1] == f"{MOST + 4:016x}"
    assert len(left.encode()) <= 4_096


def test_a_note_of_somebody_else_says_nothing(metadata_store: FakeMetadataStore) -> None:
    metadata_store.write(skipped_ranges_group_of("airline"), {tp(0): Committed(3, "by hand")})
    assert list(SkippedRangeStore(metadata_store, "airline").among(BATCH, [tp(0)])) == []


def test_without_the_board_the_unsure_is_read_again_and_that_is_told(caplog: pytest.LogCaptureFixture) -> None:
    left = SkippedRangeStore(ClosedMetadataStore(), "airline")
    with caplog.at_level(logging.WARNING):
        assert list(left.among(BATCH, [tp(1)])) == [tp(1)]
        left.note(BATCH, [tp(1)])
    first, second = caplog.messages
    assert "the skipped ranges of batch 4 in flights-1 could not be read" in first
    assert "the skipped ranges flights-1[0,2) could not be stored" in second
    assert "No access to group 'airline.streamgroups.left'" in second


def test_nothing_is_told_when_nothing_was_left(caplog: pytest.LogCaptureFixture) -> None:
    SkippedRangeStore(ClosedMetadataStore(), "airline").note(BATCH, [])
    assert caplog.messages == []
