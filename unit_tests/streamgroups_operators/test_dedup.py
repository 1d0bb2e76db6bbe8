"""X5, S10: the output of ``sg.dedup`` is that of a model record by record, however batches cut the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from streamgroups.errors import StateDamaged, StateMissing
from streamgroups.event_time.watermark import MAX_EVENT_TIME_MS
from streamgroups.state.file_names import StateFileName
from streamgroups.state.id_filters import shape_of
from streamgroups.state.origins import New
from streamgroups.state.state_retention import Retention, deletable
from streamgroups_operators.bounded import BoundedRecords
from streamgroups_operators.dedup.bloom_filter import BloomFilter
from streamgroups_operators.dedup.dedup_operator import grouped, kept, times_of
from streamgroups_operators.dedup.ids import Ids, contained, in_order
from streamgroups_operators.dedup.seen_ids import forget_filters
from unit_tests.extreme_times import EXTREME_TIMES_MS
from unit_tests.streamgroups_operators.dedup_model import (
    CLOCK_MS,
    DEDUP,
    HORIZON_MS,
    START_MS,
    Query,
    Record,
    Reference,
    batch,
    returned,
)


def _spread(steps: Sequence[tuple[int | None, int, int | None]]) -> list[Record]:
    """Records whose times advance by steps, and are earlier by a delay. ``None``: without a time."""
    now_ms, records = START_MS, []
    for id_, step_ms, delay_ms in steps:
        now_ms += step_ms
        records.append(Record(id_, None if delay_ms is None else now_ms - delay_ms))
    return records


IDS = st.one_of(st.integers(0, 12), st.none())
STEPS = st.sampled_from([0, 1, 30, 99, 100, 400, 800, 2_500])
DELAYS = st.sampled_from([0, 0, 0, 50, 799, 800, 801, 1_200, None])
RECORDS = st.lists(st.tuples(IDS, STEPS, DELAYS), max_size=80).map(_spread)
#: The ends of batches, and whether each of them also runs in a worker that has no filters, and as a killed attempt.
CUTS = st.lists(st.tuples(st.integers(0, 80), st.booleans(), st.booleans()), max_size=12)


def _ends(cuts: Sequence[tuple[int, bool, bool]], count: int) -> list[tuple[int, bool, bool]]:
    return [*sorted((min(end, count), new, killed) for end, new, killed in cuts), (count, True, False)]


@given(RECORDS, CUTS, st.integers(1, 9), st.sampled_from([1e-5, 0.9]))
def test_X5_S10_any_batches_owners_and_replays_have_the_output_of_the_model(
    records: list[Record], cuts: list[tuple[int, bool, bool]], chunk: int, rate: float
) -> None:
    query, output = Query(replace(DEDUP, false_positive_rate=rate)), []
    for end, is_new_worker, is_killed in _ends(cuts, len(records)):
        if is_new_worker:
            forget_filters()
        if is_killed:
            counts = query.counts.copy()
            query.run(records, end, chunk=3)
            query.counts = counts
        output += query.advance(records, end, chunk=chunk)[1]
    model = Reference()
    assert output == [offset for offset, it in enumerate(records) if model.returns(it)]
    assert query.counts[:2].tolist() == [model.duplicates, model.too_old]


@given(RECORDS, CUTS, st.integers(0, 80))
def test_X5_after_a_reset_the_records_behind_its_target_are_new_again(
    records: list[Record], cuts: list[tuple[int, bool, bool]], target: int
) -> None:
    query, target = Query(), min(target, len(records))
    for end, _, _ in _ends(cuts, len(records)):
        query.advance(records, end)
    read_from = query.seek(target)
    _, output = query.advance(records, len(records), read_from)
    assert output == [offset for offset in returned(records) if offset >= target]


@given(RECORDS, CUTS)
def test_X5_no_record_is_lost_and_no_retry_is_returned_again(
    records: list[Record], cuts: list[tuple[int, bool, bool]]
) -> None:
    # The retry of a producer has the timestamp of its first attempt.
    records = [record for record in records for _ in range(2) if record.time_ms is not None and record.id is not None]
    records = [Record(offset // 2, it.time_ms) for offset, it in enumerate(records)]
    query, output = Query(), []
    for end, _, _ in _ends(cuts, len(records)):
        output += query.advance(records, end)[1]
    times = Counter(records[offset].id for offset in output)
    assert not [id_ for id_, n in times.items() if n > 1]
    newest_ms, wrongly_dropped = 0, []
    for record in records[::2]:
        newest_ms = max(newest_ms, record.time_ms or 0)
        if (record.time_ms or 0) >= newest_ms - HORIZON_MS and record.id not in times:
            wrongly_dropped.append(record)
    assert wrongly_dropped == []


@given(RECORDS, CUTS, st.integers(0, 80), st.booleans())
def test_X5_ids_that_a_reset_keeps_are_those_of_committed_batches(
    records: list[Record], cuts: list[tuple[int, bool, bool]], target: int, is_proved: bool
) -> None:
    query, target = Query(replace(DEDUP, keeps_on_reset=True)), min(target, len(records))
    committed = kept = 0
    for end, _, is_killed in _ends(cuts, len(records)):
        # The file of each batch proves that the batch before it was committed.
        kept = committed
        if is_killed:
            # Its file is the newest one, and its output does not exist.
            query.run(records, end)
        else:
            query.advance(records, end)
            committed = end
    if is_proved:
        manifest, _ = query.advance(records, committed)
        assert manifest.states[0].due_ms is None
        kept = committed
    model, read_from = Reference(), query.seek(target, kept=True)
    for record in records[: max(kept, target)]:
        model.returns(record)
    assert not kept or read_from == min(kept, target)
    _, output = query.advance(records, len(records), read_from)
    expected = [offset for offset, it in enumerate(records[target:], target) if model.returns(it)]
    assert output == expected


def test_X5_an_id_expires_with_its_bucket_and_older_records_are_duplicates() -> None:
    def run(*steps: tuple[int, int]) -> tuple[list[int], list[int]]:
        records = [Record(id_, START_MS + at_ms) for id_, at_ms in steps]
        query = Query()
        return query.advance(records, len(records))[1], query.counts[:2].tolist()

    # Buckets have 100 ms: START_MS is the start of one.
    assert START_MS % 100 == 0
    assert run((1, 0), (1, 800)) == ([0], [1, 0])
    assert run((1, 0), (1, 899)) == ([0], [1, 0])
    assert run((1, 0), (1, 900)) == ([0, 1], [0, 0])
    assert run((1, 0), (2, 900), (1, 0)) == ([0, 1], [0, 1]), "a retry of any delay is dropped"
    assert run((2, 900), (3, 100), (4, 99)) == ([0, 1], [0, 1])


#: Batches in which ids expire many times: few ids with many records, and many ids with few.
BUSY = st.tuples(
    st.integers(1, 40), st.lists(st.tuples(st.integers(0, 40), STEPS, DELAYS), min_size=60, max_size=200)
).map(lambda it: _spread([(id_ % it[0], step_ms, delay_ms) for id_, step_ms, delay_ms in it[1]]))


@given(BUSY, st.integers(0, 60))
def test_X5_ids_that_expire_many_times_in_a_batch_have_the_output_of_the_model(records: list[Record], cut: int) -> None:
    query, output = Query(), []
    for end in (cut, len(records)):
        output += query.advance(records, end, chunk=50)[1]
    assert output == returned(records)


class _Counted(np.ndarray[tuple[int], np.dtype[np.int64]]):
    """An array that counts the values that are read from it."""

    reads: ClassVar[int] = 0

    def __getitem__(self, chosen: Any) -> Any:
        found = super().__getitem__(chosen)
        _Counted.reads += np.size(found)
        return found


@pytest.mark.parametrize("ids", [1, 2, 40, 500])
def test_X5_the_work_of_a_batch_does_not_grow_with_the_expiries_of_an_id(ids: int) -> None:
    """A pass over all records for each expiry of an id would read a number of values that is quadratic in their count."""
    count = 2_000
    groups = grouped(_ids([(it % ids, 0) for it in range(count)]))
    times = times_of(START_MS + 1_000 * np.arange(count), 0, 2 * START_MS, HORIZON_MS)
    _Counted.reads = 0
    counted = replace(groups, numbers=groups.numbers.view(_Counted))
    assert kept(counted, np.zeros(ids, np.int64), times, np.arange(count)).all()
    assert _Counted.reads < 20 * count


def test_X5_a_clock_that_is_ahead_does_not_make_other_records_too_old() -> None:
    records = [Record(1, CLOCK_MS - 10), Record(2, CLOCK_MS + 10**12), Record(3, CLOCK_MS - 5), Record(1, CLOCK_MS)]
    query = Query()
    assert query.advance(records, 4)[1] == [0, 1, 2]
    assert query.counts[:2].tolist() == [1, 0]


def test_X5_records_that_are_read_again_have_the_clock_of_their_batch() -> None:
    records = [Record(n, START_MS + 100 * n) for n in range(20)]
    records.append(records[11])
    query = Query()
    query.clock_ms = START_MS + 400
    query.advance(records, 4)
    # The state of offset 4 brings the state to offset 20, a long time after its batch.
    query.clock_ms = CLOCK_MS
    read_from = query.seek(20)
    assert (read_from, query.advance(records, 21, read_from)[1]) == (4, [])


# ---- files -----------------------------------------------------------------------------------------------------------


def _distinct(count: int, first: int = 0) -> list[Record]:
    return [Record(first + n, START_MS + n // 100) for n in range(count)]


def test_X5_unseen_ids_read_no_file_of_ids() -> None:
    records, query = _distinct(4_000), Query()
    query.advance(records, 3_900, chunk=1_000)
    apart = [file for file in query.files.contents if file.is_apart]
    assert len(apart) == 1
    assert apart[0].attempt == 1
    # A batch that is small enough leaves the large segment as it is.
    manifest, output = query.advance(records, 4_000, chunk=1_000)
    assert output == list(range(3_900, 4_000))
    assert (query.counts.tolist(), query.read_files) == ([0, 0, 4_000, 0], 1), "the state file has the filters"
    [state] = manifest.states
    assert sorted(it.rows for name, part in state.parts.items() if name.endswith(" ids") for it in part) == [100, 3_900]
    # A duplicate reads the file of its segment. The filters of the first batch are in the memory of the worker.
    records.append(records[17])
    query.advance(records, 4_001)
    assert (query.counts.tolist(), query.read_files) == ([1, 0, 4_000, 0], 2)


def test_X5_a_batch_writes_only_its_ids_and_a_bucket_is_dropped_without_a_read() -> None:
    records, query = _distinct(50_000), Query()
    records += [Record(100_000 + n, START_MS + 600) for n in range(10)]
    query.advance(records, 50_000, chunk=50_000)
    files = query.files.list()
    query.advance(records, 50_010)
    assert min(files.values()) > 100_000
    assert sum(query.files.list().values()) - sum(files.values()) < 10_000
    for at_ms in (1_100, 1_500):
        records.append(Record(49_999, START_MS + at_ms))
        manifest, output = query.advance(records, len(records))
        assert output == ([] if at_ms == 1_100 else [len(records) - 1])
    assert query.read_files <= 3, "neither ids of the expired buckets nor their filters"
    [state] = manifest.states
    assert {int(name.split()[0]) for name in state.parts} == {START_MS + 1_600}


def test_X5_segments_of_a_bucket_are_few_and_one_after_its_end() -> None:
    records, query = _distinct(2_000), Query()
    for end in range(10, 2_001, 10):
        manifest, _ = query.advance(records, end)
        assert max(len(part) for part in manifest.states[0].parts.values()) <= 8
    records.append(Record(-1, START_MS + 150))
    manifest, _ = query.advance(records, 2_001)
    assert [len(part) for part in manifest.states[0].parts.values()] == [1, 1, 1, 1]
    [segment] = manifest.states[0].parts[f"{START_MS + 100} ids"]
    assert segment.rows == 2_000


def test_S10_a_lost_or_damaged_file_of_ids_fails_a_look_up() -> None:
    records = [*_distinct(500), Record(3, START_MS)]
    query = Query()
    query.advance(records, 500)
    [apart] = [file for file in query.files.contents if file.is_apart]
    content = query.files.contents.pop(apart)
    with pytest.raises(StateMissing, match=str(apart)):
        query.run(records, 501)
    query.files.contents[apart] = content[:-1] + b"x"
    with pytest.raises(StateDamaged, match=str(apart)):
        query.run(records, 501)


def test_S10_retention_keeps_a_file_of_ids_while_a_state_needs_it() -> None:
    records, query = _distinct(1_000), Query()
    first, _ = query.advance(records, 900)
    second, _ = query.advance(records, 1_000)
    apart = {replace(it.file, is_apart=True): it for it in (first, second)}
    manifests = [first, second, *(replace(it, file=file, states=()) for file, it in apart.items())]

    def gone() -> frozenset[StateFileName]:
        return deletable(
            manifests, [], Retention(0, 0), {it.file: CLOCK_MS + 10**9 - it.file.planned_ms for it in manifests}
        )

    assert gone() == frozenset(), "the second state needs both segments"
    records += [Record(-1, START_MS + 5_000)]
    third, _ = query.advance(records, 1_001)
    manifests += [third, replace(third, file=replace(third.file, is_apart=True), states=())]
    kept = {third.file, replace(third.file, is_apart=True)}
    assert gone() == {it.file for it in manifests} - kept


def test_S10_names_of_files_apart_sort_behind_those_of_their_states() -> None:
    name = StateFileName(START_MS, "1f3a9c2b7d10", 3, 4)
    assert name < replace(name, is_apart=True) < StateFileName(START_MS, "1f3a9c2b7d10", 3, 5)


@given(RECORDS, st.integers(1, 9))
def test_W17_bounded_data_have_the_same_output(records: list[Record], chunk: int) -> None:
    task = BoundedRecords(DEDUP, "flights", CLOCK_MS)
    tables: list[pa.Table] = []
    for at in range(0, len(records), chunk):
        tables += task.add(batch(records[at : at + chunk], at))
    tables += task.finish()
    assert [row["offset"] for table in tables for row in table.to_pylist() if "offset" in row] == returned(records)


# ---- filters and sets ------------------------------------------------------------------------------------------------


def _random(count: int, seed: int = 7) -> Ids:
    halves = np.random.default_rng(seed).integers(0, 2**64, (2, count), np.uint64)
    return Ids(halves[0], halves[1])


@given(st.integers(0, 300), st.floats(1e-12, 0.99), st.integers(0, 5))
def test_X5_a_filter_matches_all_its_ids(count: int, rate: float, seed: int) -> None:
    ids = _random(count, seed)
    stored = BloomFilter.from_table(BloomFilter.of(ids, rate).to_table())
    assert stored.shape == shape_of(count, rate)
    assert stored.matches(ids).all()


@pytest.mark.parametrize("rate", [0.5, 0.01])
def test_X5_the_rate_of_a_filter_is_a_sixteenth_of_the_setting(rate: float) -> None:
    filter_of = BloomFilter.of(_random(20_000), rate)
    found = filter_of.matches(_random(400_000, seed=8)).mean()
    assert 0.8 * rate / 16 < found < 1.2 * rate / 16


@pytest.mark.parametrize("ids", [1, 10, 100])
def test_X5_small_filters_have_no_higher_rate(ids: int) -> None:
    found = sum(int(BloomFilter.of(_random(ids, seed), 1e-4).matches(_random(100_000, 9)).sum()) for seed in range(4))
    # Without the mixing step, ten ids have a rate of 0.0002, and so 80 of these matches.
    assert found <= 20


HALVES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30)


def _ids(halves: list[tuple[int, int]]) -> Ids:
    columns = np.array(halves, np.uint64).reshape(-1, 2)
    return Ids(columns[:, 0], columns[:, 1])


@given(HALVES, HALVES)
def test_X5_ids_with_an_equal_half_are_distinguished(ids: list[tuple[int, int]], known: list[tuple[int, int]]) -> None:
    found = contained(_ids(ids), in_order([_ids(known)]))
    assert found.tolist() == [it in known for it in ids]


def test_X5_a_batch_without_records_keeps_the_state() -> None:
    records, query = _distinct(10), Query()
    first, _ = query.advance(records, 10)
    second, output = query.advance(records, 10)
    assert output == []
    assert second.states[0].parts == first.states[0].parts
    assert not isinstance(query.state, New)


@pytest.mark.parametrize("name", EXTREME_TIMES_MS)
def test_X5_a_producer_can_send_any_time(name: str) -> None:
    time_ms = EXTREME_TIMES_MS[name]
    records = [Record(1, START_MS), Record(2, time_ms), Record(1, START_MS + 1), Record(3, START_MS + 2)]
    manifest, offsets = Query().advance(records, len(records), chunk=1)
    assert all(abs(it) <= MAX_EVENT_TIME_MS for it in manifest.states[0].values.values())
    # A time after the clock counts as the time of the clock, and the others are too old then.
    is_later = time_ms is not None and START_MS < time_ms <= MAX_EVENT_TIME_MS
    assert set(offsets) >= ({0} if is_later else {0, 3}), "its neighbours are no duplicates"
    assert 2 not in offsets
