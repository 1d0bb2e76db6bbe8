"""The records for benchmarks of state, and the events of Kafka Streams: their counts are checked against these formulas."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.streams_peer import Event, parse, processed_s, restored_s
from benchmarks.timed_topics import BEGIN_MS, PARTITIONS, WINDOW_MS, TimedSpec, key_of
from component_tests import object_store
from streamgroups_operators.locations import shown

SPECS = st.builds(TimedSpec, st.just("t"), st.integers(1, 4), st.integers(1, 300), st.integers(1, 40))


@given(SPECS)
def test_windows_have_their_number_of_records_and_times_ascend(spec: TimedSpec) -> None:
    times_ms = [spec.time_ms(n) for n in range(spec.records)]
    assert times_ms == sorted(times_ms)
    windows = Counter((time_ms - BEGIN_MS) // WINDOW_MS for time_ms in times_ms)
    assert windows == dict.fromkeys(range(spec.windows), spec.window_records)
    assert spec.closed_records == sum(count for window, count in windows.items() if window < spec.windows - 1)


@given(SPECS)
def test_partitions_have_keys_of_their_own(spec: TimedSpec) -> None:
    keys = [{key_of(n, spec.keys) for n in range(p, spec.records, PARTITIONS)} for p in range(PARTITIONS)]
    assert len(set.union(*keys)) == sum(map(len, keys))
    assert all(len(of_partition) <= spec.keys for of_partition in keys)


def test_the_first_timestamp_begins_a_window() -> None:
    assert BEGIN_MS % WINDOW_MS == 0


def test_kafka_streams_is_timed_from_its_first_record_and_from_its_first_restoration() -> None:
    lines = ["1200 restoring 0", "1300 restoring 0", "1900 restored 5", "2200 restored 6", "2300 reading 0"]
    events = parse(lines)
    assert restored_s(events, 2) == 1.0
    assert restored_s(events, 3) is None
    assert processed_s(events) is None
    assert processed_s([*events, Event(4500, "done", 9)]) == 2.2


def test_a_line_of_another_form_is_an_error() -> None:
    with pytest.raises(ValueError, match="unpack"):
        parse(["Exception in thread main java.lang.Error: disk is full"])


def test_the_location_of_the_object_store_is_shown_without_its_key() -> None:
    location = object_store.location_at("127.0.0.1:9000", "state")
    assert shown(location) == f"s3://{object_store.BUCKET}/state"
