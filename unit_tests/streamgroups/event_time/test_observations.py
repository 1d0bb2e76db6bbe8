"""W2, W3: observations of tasks, in parts and perhaps repeated, make one poll of each partition; an entry follows its partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamgroups.event_time.observations import Observation, TaskObservation, observations, summed
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import PartitionTime, poll
from streamgroups.event_time.strategy import Generation, Progress
from streamgroups.event_time.time_entries import came_in, read_time, time_of_assigned, write_entry
from streamgroups.event_time.watermark import At
from streamgroups.partitions import OffsetRange
from unit_tests.streamgroups.event_time.tables import P0, P1

SETTINGS = TimeSettings(Generation())
TIMES = st.lists(st.integers(0, 10**12), min_size=1, max_size=20)


@given(TIMES, st.sets(st.integers(1, 19)), st.booleans())
def test_portions_and_repetitions_make_no_difference(times: list[int], cuts: set[int], twice: bool) -> None:
    starts = sorted({0, *(cut for cut in cuts if cut < len(times))})
    ends = [*starts[1:], len(times)]
    reported = [TaskObservation(P0, 100 + s, e - s, max(times[s:e])) for s, e in zip(starts, ends, strict=True)]
    read = OffsetRange(P0, 100, 100 + len(times))
    found = observations([read], reported * (1 + twice))
    assert found == {P0: Observation(read.end_offset, read.end_offset + 1, len(times), max(times))}


SEEN = st.builds(
    TaskObservation,
    st.sampled_from([P0, P1]),
    st.integers(0, 20),
    st.integers(0, 9),
    st.none() | st.integers(0, 99),
    st.none() | st.integers(0, 99),
)


@given(st.lists(SEEN, unique_by=lambda it: (it.topic_partition, it.key)))
def test_W2_a_sum_has_the_same_effect(seen: list[TaskObservation]) -> None:
    ranges = [OffsetRange(P0, 0, 21), OffsetRange(P1, 0, 21)]
    short = summed(ranges, seen)
    assert len(short) <= 4
    assert observations(ranges, short) == observations(ranges, seen)


def test_observations_of_other_batches_and_partitions_are_left_out() -> None:
    reported = [TaskObservation(P0, 4, 1, 900), TaskObservation(P0, 9, 1, 900), TaskObservation(P1, 5, 1, 900)]
    assert observations([OffsetRange(P0, 5, 9)], reported) == {P0: Observation(9, 10, 0, None)}


def test_W3_a_batch_that_has_just_ended_proves_nothing_of_idleness() -> None:
    seen = observations([OffsetRange(P0, 5, 9)], [])[P0]
    assert poll(PartitionTime(), seen, Generation(), now_ms=1_000).idle_since_ms is None


class TestTheEntry:
    time = PartitionTime(600, At(590), Progress(3), next_offset=9, idle_since_ms=10, seen_ms=20)

    def test_its_time_comes_with_a_partition(self) -> None:
        assert time_of_assigned(read_time(write_entry(self.time, SETTINGS)), 9, 9) == PartitionTime(
            600, At(590), Progress(3), next_offset=9
        )

    def test_an_entry_that_is_older_than_the_position_counts_as_less(self) -> None:
        found = time_of_assigned(read_time(write_entry(self.time, SETTINGS)), 9, 12)
        assert found is not None
        assert (found.watermark, found.next_offset) == (At(590), 12)

    def test_a_group_that_was_reset_to_the_past_begins_again(self) -> None:
        assert time_of_assigned(read_time(write_entry(self.time, SETTINGS)), 9, 8) is None

    def test_something_behind_it_is_no_part_of_it(self) -> None:
        assert time_of_assigned(read_time(write_entry(self.time, SETTINGS) + "\x00trash"), 9, 9) is not None

    @given(st.text())
    def test_a_malformed_entry_is_ignored(self, text: str) -> None:
        assert read_time(text) is None

    def test_it_fits_beside_an_offset(self) -> None:
        largest = 2**63 - 1
        time = PartitionTime(largest, At(largest), Progress(largest, largest), largest, largest, largest)
        assert len(write_entry(time, SETTINGS)) < 512


def test_partitions_that_others_have_read_begin_again() -> None:
    times = {P0: PartitionTime(next_offset=5), P1: PartitionTime()}
    assert came_in(times, {P0: 5, P1: 7}) == set()
    assert came_in(times, {P0: 6, P1: 7}) == {P0}
    assert came_in({}, {P0: 5}) == {P0}
