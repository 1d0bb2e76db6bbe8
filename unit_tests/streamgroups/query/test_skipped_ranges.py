"""S1, S5: ranges that a restarted query skips are recorded for its later runs; without the metadata group they are read again."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

import pytest

from streamgroups.checkpoints.offset import BatchOffset
from streamgroups.coordination.reset_protocol import skipped_ranges_group_of
from streamgroups.errors import NotAuthorized
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Committed, MetadataStore
from streamgroups.query.skipped_range_store import MOST, SkippedRanges, SkippedRangeStore
from unit_tests.streamgroups.query.spark_model import World, tp

BATCH = BatchOffset(4, (OffsetRange(tp(0), 3, 9), OffsetRange(tp(1), 0, 2)))


class ClosedMetadataStore:
    """A metadata group that this user may not use."""

    def read(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        raise NotAuthorized(f"No access to group '{group_id}'.", remedy="Grant Read.")

    def write(self, group_id: str, entries: Mapping[TopicPartition, Committed]) -> None:
        raise NotAuthorized(f"No access to group '{group_id}'.", remedy="Grant Read.")

    def close(self) -> None:
        pass


@pytest.fixture
def metadata_store() -> MetadataStore:
    return World(2).metadata_store


def test_a_recorded_range_belongs_to_that_batch_only(metadata_store: MetadataStore) -> None:
    left = SkippedRangeStore(metadata_store, "airline")
    left.record(BATCH, [tp(1)])
    assert list(left.among(BATCH, [tp(0), tp(1)])) == [tp(1)]
    assert list(left.among(BatchOffset(5, BATCH.ranges), [tp(0), tp(1)])) == []
    assert list(SkippedRangeStore(metadata_store, "hotel").among(BATCH, [tp(0), tp(1)])) == []


def test_several_queries_leave_the_same_partition(metadata_store: MetadataStore) -> None:
    left, other = SkippedRangeStore(metadata_store, "airline"), BatchOffset(1, (OffsetRange(tp(0), 3, 5),))
    left.record(BATCH, [tp(0), tp(1)])
    left.record(other, [tp(0)])
    left.record(BATCH, [tp(1)])
    assert list(left.among(other, [tp(0)])) == [tp(0)]
    assert list(left.among(BATCH, [tp(0), tp(1)])) == [tp(1)]


def test_the_newest_are_kept_within_what_a_broker_allows() -> None:
    left = SkippedRanges()
    for i in range(MOST + 5):
        left = left.plus(f"{i:016x}")
    assert left.batches[-1] == f"{MOST + 4:016x}"
    assert len(left.encode()) <= 4_096


@pytest.mark.parametrize("entry", ["by hand", SkippedRanges(("a",)).encode().replace('"v":1', '"v":2')])
def test_G17_an_unreadable_entry_can_contain_any_batch_and_is_not_overwritten(
    metadata_store: MetadataStore, entry: str
) -> None:
    metadata_group, left = skipped_ranges_group_of("airline"), SkippedRangeStore(metadata_store, "airline")
    metadata_store.write(metadata_group, {tp(0): Committed(3, entry)})
    assert list(left.among(BATCH, [tp(0), tp(1)])) == [tp(0)]
    left.record(BATCH, [tp(0), tp(1)])
    assert metadata_store.read(metadata_group, [tp(0)]) == {tp(0): Committed(3, entry)}
    assert list(left.among(BATCH, [tp(0), tp(1)])) == [tp(0), tp(1)]


def test_an_empty_entry_contains_no_batch(metadata_store: MetadataStore) -> None:
    metadata_store.write(skipped_ranges_group_of("airline"), {tp(0): Committed(3)})
    assert list(SkippedRangeStore(metadata_store, "airline").among(BATCH, [tp(0)])) == []


def test_without_the_metadata_group_unsure_ranges_are_read_again_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    left = SkippedRangeStore(ClosedMetadataStore(), "airline")
    with caplog.at_level(logging.WARNING):
        assert list(left.among(BATCH, [tp(1)])) == [tp(1)]
    (message,) = caplog.messages
    assert "the skipped ranges of batch 4 in flights-1 could not be read" in message


def test_S1_a_replay_fails_if_the_ranges_that_it_skips_cannot_be_stored() -> None:
    """After two kills the checkpoint would count them as read."""
    left = SkippedRangeStore(ClosedMetadataStore(), "airline")
    with pytest.raises(NotAuthorized, match=r"flights-1\[0,2\) of its last batch .* No access to group .* restarted\."):
        left.record(BATCH, [tp(1)])


def test_nothing_is_logged_when_nothing_was_skipped(caplog: pytest.LogCaptureFixture) -> None:
    SkippedRangeStore(ClosedMetadataStore(), "airline").record(BATCH, [])
    assert caplog.messages == []
