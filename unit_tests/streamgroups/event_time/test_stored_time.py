"""W2, W3, O3: who watches a group sees what its queries assert, and which partition holds it back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import PartitionTime, generated
from streamgroups.event_time.stored_time import TimeState, time_in_entries
from streamgroups.event_time.strategy import Generation
from streamgroups.event_time.time_entries import write_entry
from streamgroups.event_time.watermark import NOT_YET, At
from streamgroups.partitions import TopicPartition
from unit_tests.streamgroups.event_time.tables import P0, P1

SETTINGS = TimeSettings(Generation(), partition_idle_timeout_ms=60)


def at(time_ms: int, *, idle_ms: int | None = None) -> PartitionTime:
    return PartitionTime(time_ms, At(time_ms), next_offset=5, idle_since_ms=idle_ms, seen_ms=100)


@st.composite
def times(draw: st.DrawFn) -> PartitionTime:
    time_ms = draw(st.none() | st.integers(0, 50))
    idle_ms = draw(st.none() | st.integers(0, 100))
    if time_ms is None:
        return PartitionTime(next_offset=5, idle_since_ms=idle_ms, seen_ms=100)
    return at(time_ms, idle_ms=idle_ms)


@given(st.lists(times(), min_size=1, max_size=5))
def test_it_is_what_a_query_with_all_partitions_would_assert(known: list[PartitionTime]) -> None:
    partitions = {TopicPartition("flights", p): time for p, time in enumerate(known)}
    entries = {tp: write_entry(time, SETTINGS) for tp, time in partitions.items()}
    found = time_in_entries(entries, dict.fromkeys(partitions, 0))
    assert found is not None
    assert found.watermark == generated(partitions.values(), SETTINGS.partition_idle_timeout_ms)
    if any(time.state is TimeState.HOLDS_BACK for time in found.partitions.values()):
        held = [tp for tp, time in found.partitions.items() if time.state is TimeState.HOLDS_BACK]
        assert {found.partitions[tp].asserts for tp in held} == {found.watermark}
    else:
        assert all(time.is_idle(SETTINGS.partition_idle_timeout_ms) for time in known)


def test_a_partition_without_an_entry_holds_the_others_back() -> None:
    found = time_in_entries({P0: write_entry(at(30), SETTINGS)}, {P0: 0, P1: 0})
    assert found is not None
    assert found.watermark == NOT_YET
    assert [time.state for time in found.partitions.values()] == [TimeState.AHEAD, TimeState.HOLDS_BACK]


def test_W3_a_partition_with_available_records_is_not_idle_whatever_its_entry_contains() -> None:
    silent = write_entry(at(10, idle_ms=0), SETTINGS)
    for available, state in ((0, TimeState.IDLE), (None, TimeState.IDLE), (3, TimeState.HOLDS_BACK)):
        found = time_in_entries({P0: write_entry(at(30), SETTINGS), P1: silent}, {P0: 0, P1: available})
        assert found is not None
        assert found.partitions[P1].state is state


def test_W10_an_imported_stream_emits_no_watermark_of_its_own() -> None:
    entry = write_entry(PartitionTime(30, next_offset=5), TimeSettings(import_from="trades"))
    found = time_in_entries({P0: entry}, {P0: 0})
    assert found is not None
    assert (found.watermark, found.partitions[P0].state) == (NOT_YET, TimeState.NO_WATERMARK)


@given(st.text())
def test_a_malformed_entry_has_no_time(text: str) -> None:
    assert time_in_entries({P0: text}, {P0: 0, P1: 0}) is None
