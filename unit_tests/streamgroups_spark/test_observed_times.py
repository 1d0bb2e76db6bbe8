"""W2: what tasks have seen belongs to the batch that has read it, once."""

from __future__ import annotations

import pyarrow as pa

from streamgroups.event_time.observations import TaskObservation, observations
from streamgroups.event_time.watermark import MAX_EVENT_TIME_MS
from streamgroups.json_values import time_ms_or_none
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_spark.bridge.task_reports import ObservationStore
from streamgroups_spark.source.observed_times import seen_in
from unit_tests.extreme_times import EXTREME_TIMES_MS, LIMITS_MS, LIMITS_US, extreme_timestamps

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


def seen(tp: TopicPartition, offset: int) -> TaskObservation:
    return TaskObservation(tp, offset, 1, 1_000 * offset)


def test_W2_what_begins_where_a_batch_ends_is_the_next_one_s() -> None:
    store = ObservationStore()
    store.keep([("trades", seen(P0, offset)) for offset in (5, 8, 9)])
    assert store.take("trades", (OffsetRange(P0, 5, 9),)) == [seen(P0, 5), seen(P0, 8)]
    assert store.take("trades", (OffsetRange(P0, 9, 12),)) == [seen(P0, 9)]


def test_W2_observations_of_one_partition_or_stream_do_not_count_for_another() -> None:
    store = ObservationStore()
    store.keep([("trades", seen(P0, 5)), ("quotes", seen(P0, 6)), ("trades", seen(P1, 5))])
    assert store.take("trades", (OffsetRange(P0, 5, 9),)) == [seen(P0, 5)]


def test_W2_observations_of_a_retried_task_count_once() -> None:
    store = ObservationStore()
    for _ in range(2):
        store.keep([("trades", seen(P0, 5))])
    assert store.take("trades", (OffsetRange(P0, 5, 9),)) == [seen(P0, 5)]


def test_W2_tasks_with_copies_of_one_record_hide_no_later_time_of_each_other() -> None:
    """Behind ``explode`` and a shuffle, the first offset of two tasks can be the same."""
    reports = [TaskObservation(P0, 5, 2, 900), TaskObservation(P0, 5, 1, 700)]
    for order in (reports, reports[::-1]):
        store = ObservationStore()
        store.keep([("trades", it) for it in order])
        assert store.take("trades", (OffsetRange(P0, 5, 9),)) == [TaskObservation(P0, 5, 2, 900)]
        (found,) = observations([OffsetRange(P0, 5, 9)], order).values()
        assert (found.records, found.event_time_ms) == (2, 900)


def test_W2_a_time_that_no_state_can_have_advances_no_watermark() -> None:
    limits = pa.array(LIMITS_US.values(), pa.int64()).cast(pa.timestamp("us", "UTC"))
    times = pa.concat_arrays([extreme_timestamps(), limits])
    given = EXTREME_TIMES_MS | LIMITS_MS
    for name, time_ms, at in zip(given, given.values(), range(len(times)), strict=True):
        place = {"topic": ["flights"], "partition": [0], "offset": [5], "at": times.slice(at, 1)}
        found = [it.event_time_ms for it in seen_in(pa.record_batch(place), "at")]
        assert all(time_ms_or_none(it) == it for it in found), name
        assert bool(found) == (time_ms is not None and abs(time_ms) <= MAX_EVENT_TIME_MS), name
