"""W15, W18: a join has the rows of a brute-force join, however batches, restarts and resets cut the records."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from streamgroups.errors import StateMismatch, StateMissing
from streamgroups.event_time.watermark import MAX_EVENT_TIME_MS
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange
from streamgroups.state.origins import UNNAMED, New
from streamgroups.state.state_lookup import Position
from streamgroups.state.task_plan import RangePlan, TaskPlan
from streamgroups_operators import large_tables
from streamgroups_operators.inspection import inspect
from streamgroups_operators.joins.join_definition import How
from streamgroups_operators.joins.join_states import JoinTaskStates
from streamgroups_operators.large_tables import MAX_BYTES
from streamgroups_operators.store import Operator, StateStore, StoredStates
from unit_tests.examples import sequences
from unit_tests.extreme_times import EXTREME_TIMES_US, LIMITS_US
from unit_tests.streamgroups_operators.join_model import PLACES, TOPIC, Joining, Record, Row, brute_force, operator

_TIMES = st.one_of(st.none(), *[st.integers(0, 20)] * 3, st.integers(0, 60))
_ROWS = st.builds(Record, _TIMES, st.sampled_from(["a", "a", "b", None]), site=st.sampled_from([1, 1, 1, 2, 2, None]))
_MARKERS = st.builds(Record, st.none(), st.none(), st.integers(0, 60))
RECORDS = st.one_of(*[_ROWS] * 6, _MARKERS)
#: Most random lists without a minimum size have a few records only, without a match.
SIDE = st.one_of(st.lists(RECORDS, max_size=25), st.lists(RECORDS, min_size=8, max_size=25))
STEPS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.booleans(), st.integers(1, 4)), max_size=12)


@given(st.sampled_from(How), SIDE, SIDE, STEPS, st.sampled_from([1, 100, MAX_BYTES]))
@settings(max_examples=sequences(150), deadline=None)
def test_W18_each_batch_emits_what_its_records_add(
    how: How, left: list[Record], right: list[Record], steps: list[tuple[int, int, bool, int]], max_bytes: int
) -> None:
    records = left, right
    joining = Joining(how, records)
    emitted: Counter[Row] = Counter()
    for more_left, more_right, counts, chunk in steps:
        upto = min(len(left), joining.at[0] + more_left), min(len(right), joining.at[1] + more_right)
        with patch.object(large_tables, "MAX_BYTES", max_bytes):
            rows = joining.run(upto, chunk, counts=counts)
        if counts:
            emitted += rows
        assert brute_force(records, upto, how) == (emitted if counts else emitted + rows)
    emitted += joining.run((len(left), len(right)))
    assert emitted == brute_force(records, (len(left), len(right)), how)


@given(st.data(), st.sampled_from(How), SIDE, SIDE, STEPS)
@settings(max_examples=sequences(150), deadline=None)
def test_S10_W18_after_a_reset_the_rows_are_those_that_the_records_since_then_add(
    data: st.DataObject, how: How, left: list[Record], right: list[Record], steps: list[tuple[int, int, bool, int]]
) -> None:
    records = left, right
    ends = len(left), len(right)
    joining = Joining(how, records)
    for more_left, more_right, counts, chunk in steps:
        upto = min(ends[0], joining.at[0] + more_left), min(ends[1], joining.at[1] + more_right)
        before = joining.at
        rows = joining.run(upto, chunk, counts=counts)
        assert rows == brute_force(records, upto, how) - brute_force(records, before, how)
        if data.draw(st.booleans()):
            # Also of one topic only, and forwards.
            joining.reset((data.draw(st.integers(0, ends[0])), data.draw(st.integers(0, ends[1]))))
    at = joining.at
    assert joining.run(ends) == brute_force(records, ends, how) - brute_force(records, at, how)


def test_S10_W18_each_state_names_the_file_of_the_state_before_it() -> None:
    joining = Joining(How.INNER, ([Record(0, "a"), Record(1, "a")], [Record(4, "a")]))
    joining.run((1, 0))
    before = joining.origins
    joining.run((2, 1))
    stored = StoredStates("billing", "paid", joining.files)
    positions = [Position(*it, TOPIC) for it in zip(PLACES, joining.at, joining.origins, strict=True)]
    assert all(stored.is_written(it, origin) for it, origin in zip(positions, before, strict=True))
    assert not any(stored.is_written(it, origin) for it, origin in zip(positions, joining.origins, strict=True))


def test_W18_a_pair_meets_across_batches_in_both_orders() -> None:
    early, late = Record(0, "a"), Record(4, "a")
    for upto in ((1, 0), (0, 1)):
        joining = Joining(How.INNER, ([early], [late]))
        assert joining.run(upto) == Counter()
        assert joining.run((1, 1)) == {("a", 1, "0", "0", False): 1}


def test_W18_records_match_if_all_their_keys_are_equal() -> None:
    left = [Record(0, "a", site=site) for site in (1, 2, None)]
    joining = Joining(How.FULL, (left, [Record(1, "a", site=2), Record(2, None), Record(3, "a", site=2)]))
    # With a record of the same batch, and with a stored one.
    unmatchable = {("a", None, "2", None, False): 1, (None, 1, None, "1", False): 1}
    assert joining.run((3, 2)) == {("a", 2, "1", "0", False): 1} | unmatchable
    assert joining.run((3, 3)) == {("a", 2, "1", "2", False): 1}


def test_W18_a_left_record_without_a_match_waits_for_the_watermark_of_the_right_partition() -> None:
    joining = Joining(How.LEFT, ([Record(0, "a"), Record(100, "b")], [Record(24, "b"), Record(25, "b")]))
    assert joining.run((2, 0)) == Counter(), "the time of the left partition does not count"
    assert joining.run((2, 1)) == Counter(), "24 s less 10 s: a right record of 14 s is not late"
    assert joining.run((2, 2)) == {("a", 1, "0", None, False): 1}


def test_W18_a_record_at_the_watermark_is_not_late() -> None:
    joining = Joining(How.INNER, ([Record(20, "a"), Record(10, "a")], [Record(0, "a")]))
    assert joining.run((2, 1)) == {("a", 1, "1", "0", False): 1}


def test_W18_a_stored_record_can_have_its_first_match_in_the_batch_that_ends_its_wait() -> None:
    joining = Joining(How.LEFT, ([Record(0, "a")], [Record(14, "a"), Record(25, "b")]))
    assert joining.run((1, 0)) == Counter()
    assert joining.run((1, 2)) == {("a", 1, "0", "0", False): 1}


def test_W18_the_watermark_of_a_far_past_is_in_the_state() -> None:
    far_s = -4_400_000_000_000
    joining = Joining(How.LEFT, ([Record(far_s, "a"), Record(far_s - 100, "a")], []))
    assert joining.run((1, 0)) == Counter()
    assert joining.run((2, 0)) == {("a", 1, "1", None, True): 1}


def test_W15_W18_a_marker_of_the_right_partition_ends_the_wait_of_a_left_record() -> None:
    left = [Record(0, "a"), Record(5, "b"), Record(None, None, producer_s=6), Record(5, "a")]
    right = [Record(None, None, producer_s=14), Record(None, None, producer_s=15), Record(14, "b")]
    joining = Joining(How.LEFT, (left, right), delay_us=None)
    assert joining.run((2, 1)) == Counter(), "a right record of 14 s is not late"
    assert joining.run((2, 2)) == {("a", 1, "0", None, False): 1}
    assert joining.run((4, 3)) == {("a", 1, "3", None, True): 1, ("b", 1, None, "2", True): 1}


def test_W18_a_record_without_a_match_is_emitted_once_although_its_slice_stays() -> None:
    joining = Joining(How.LEFT, ([Record(1, "a"), Record(2, "b")], [Record(26, "x"), Record(27, "x"), Record(28, "x")]))
    assert joining.run((2, 1)) == {("a", 1, "0", None, False): 1}
    assert joining.run((2, 2)) == {("b", 1, "1", None, False): 1}
    assert joining.run((2, 3)) == Counter()


def test_W18_a_state_keeps_only_records_that_can_match() -> None:
    often = [Record(second, "a") for second in range(200)]
    joining = Joining(How.FULL, (often, often))
    for end in range(10, 201, 10):
        joining.run((end, end))
    newest = inspect(joining.files).manifests[-1]
    rows = [sum(it.rows for part in state.parts.values() for it in part) for state in newest.states]
    # Within 14 s, a delay of 10 s, the rest of a slice of 6 s, and a batch of 10 s; and the offsets of matched records.
    assert max(rows) < 70
    assert all(len(state.files) < 8 for state in newest.states)


def test_W18_a_batch_writes_its_own_rows() -> None:
    many = [Record(0, f"{n}") for n in range(1_000)]
    joining = Joining(How.INNER, (many, [*many, Record(0, "x")]))
    joining.run((1_000, 1_000), chunk=1_000)
    joining.run((1_000, 1_001))
    newest = inspect(joining.files).manifests[-1]
    written = [
        it.rows for state in newest.states for part in state.parts.values() for it in part if it.file == newest.file
    ]
    assert written == [1]


def test_S7_W18_the_records_of_one_topic_wait_for_those_of_the_other_one_after_it_is_recreated() -> None:
    right = [Record(0, "a"), Record(1, "b"), Record(2, "c")]
    joining = Joining(How.RIGHT, ([Record(0, "a")], right))
    assert joining.run((1, 2)) == {("a", 1, "0", "0", False): 1}
    recreated = TopicIdentity(TOPIC.cluster_id, "80ab")
    joining.records, joining.topics = ([Record(3, "b"), Record(60, "z")], right), (recreated, TOPIC)
    joining.at, joining.origins = (0, 2), (New(), joining.origins[1])
    assert joining.run((1, 3)) == {("b", 1, "0", "1", False): 1}
    # The state of both is in one file now. The record that had a match before is not emitted again.
    assert joining.run((2, 3)) == {("c", 1, None, "2", False): 1}


def test_S10_a_reset_before_all_states_begins_empty_and_a_lost_one_is_an_error() -> None:
    joining = Joining(How.INNER, ([Record(n, "a") for n in range(9)], [Record(n, "a") for n in range(9)]), at=(3, 3))
    joining.run((5, 5))
    joining.run((7, 7))
    joining.reset((4, 6))
    assert joining.run((9, 9)) == brute_force_from(joining, (3, 3), (4, 6), (9, 9))
    del joining.files.contents[min(joining.files.contents)]
    joining.reset((4, 4))
    with pytest.raises(
        StateMissing, match=r"orders-3 and payments-3: .* offsets 4 and 4: the oldest stored states are at 7 and 7"
    ):
        joining.run((9, 9))


def test_S10_W18_the_plan_of_a_reset_searches_the_states_of_both_partitions() -> None:
    records = [Record(n, "a") for n in range(9)]
    joining = Joining(How.INNER, (records, records))
    for upto in ((2, 3), (4, 8), (5, 9)):
        joining.run(upto)
    states = StoredStates("billing", "paid", joining.files)
    left, right = (
        Position(tp, at, origin, TOPIC) for tp, at, origin in zip(PLACES, (5, 9), joining.origins, strict=True)
    )
    target = replace(right, next_offset=7, origin=UNNAMED)
    positions = {left.topic_partition: left, right.topic_partition: target}
    assert states.find_beside(target, positions).read_from == 3
    assert states.find_beside(left, positions).read_from == 2
    assert states.find_beside(left, {left.topic_partition: left, right.topic_partition: right}).read_from == 5


def brute_force_from(
    joining: Joining, began: tuple[int, int], at: tuple[int, int], upto: tuple[int, int]
) -> Counter[Row]:
    """The rows between two positions, of a join that began later than the records."""

    def shifted(end: tuple[int, int]) -> Counter[Row]:
        left, right = (records[first:] for records, first in zip(joining.records, began, strict=True))
        rows = brute_force((left, right), (end[0] - began[0], end[1] - began[1]), joining.how)
        return Counter({(*k, _plus(a, began[0]), _plus(b, began[1]), late): n for (*k, a, b, late), n in rows.items()})

    return shifted(upto) - shifted(at)


def _plus(offset: str | None, more: int) -> str | None:
    return None if offset is None else str(int(offset) + more)


def test_W18_a_partition_without_its_partner_is_an_error() -> None:
    of = operator(How.INNER)
    ranges = (RangePlan(OffsetRange(PLACES[0], 0, 5), New(), 0, TOPIC),)
    plan = TaskPlan("memory", "billing", 1_732_334_879_000, "1f3a9c2b7d10", 1, ranges)
    store = StateStore(Operator("billing", of.name, of.form, of.schema), Joining(How.INNER, ([], [])).files)
    with pytest.raises(StateMismatch, match=r"orders-3: .* reads the partition without payments-3"):
        JoinTaskStates(of, plan, store)


def test_W18_another_definition_does_not_continue_with_a_state() -> None:
    joining = Joining(How.INNER, ([Record(0, "a")], [Record(0, "a")]))
    joining.run((1, 0))
    joining.how = How.LEFT
    with pytest.raises(StateMismatch, match="inner join of orders and payments"):
        joining.run((1, 1))


@pytest.mark.parametrize("time_us", (EXTREME_TIMES_US | LIMITS_US).values(), ids=EXTREME_TIMES_US | LIMITS_US)
def test_W18_a_producer_can_send_any_time(time_us: int | None) -> None:
    at_us = time_us

    class At(Record):
        @property
        def time_us(self) -> int | None:
            return at_us

    left = [Record(0, "a"), At(0, "a"), Record(1, "b")]
    joining = Joining(How.FULL, (left, [Record(0, "a"), At(0, "x"), Record(100, "z")]))
    rows = joining.run((3, 3))
    is_readable = at_us is not None and abs(at_us) <= 1_000 * MAX_EVENT_TIME_MS
    assert rows[("a", 1, "0", "0", False)] == 1
    if not is_readable:
        assert rows[("a", 1, "1", None, False)] == rows[("x", 1, None, "1", False)] == 1
        assert rows[("b", 1, "2", None, False)] == 1
