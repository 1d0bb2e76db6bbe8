"""X2-X4: the decision of a ledger about a batch, row by row of the table in ``ledgers.compare_and_swap``, and how a sink acts on it."""

from __future__ import annotations

import pickle

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.errors import FencedBatch, SinkUnreachable
from streamgroups.fakes import FakeLedger, Moment
from streamgroups.ledgers.batch_commit import commit_batch
from streamgroups.ledgers.compare_and_swap import (
    AlreadyDone,
    Commit,
    CommitGroups,
    ComparedRange,
    Fenced,
    NothingRead,
    RangeStatus,
    combine,
    judge,
)
from streamgroups.ledgers.no_data_batch import NoDataBatch, QueryBatch
from streamgroups.partitions import OffsetRange, TopicPartition

P0, P1, P2 = (TopicPartition("flights", p) for p in range(3))
BATCH = (OffsetRange(P0, 10, 20), OffsetRange(P1, 5, 9))
OFFSETS = st.integers(0, 12)


@pytest.mark.parametrize(
    ("position", "status"),
    [
        (None, RangeStatus.UNKNOWN),
        (9, RangeStatus.LEAVES_A_GAP),
        (10, RangeStatus.NEXT),
        (11, RangeStatus.OVERLAPS),
        (19, RangeStatus.OVERLAPS),
        (20, RangeStatus.DONE),
        (21, RangeStatus.PASSED),
    ],
)
def test_one_partition(position: int | None, status: RangeStatus) -> None:
    compared = ComparedRange(OffsetRange(P0, 10, 20), position)
    assert compared.status is status
    verdict = judge([compared.range], {} if position is None else {P0: position})
    expected = {RangeStatus.NEXT: Commit({P0: 20}), RangeStatus.DONE: AlreadyDone()}
    assert verdict == expected.get(status, Fenced((compared,)))


def test_all_must_be_next() -> None:
    assert judge(BATCH, {P0: 10, P1: 5}) == Commit({P0: 20, P1: 9})


def test_all_must_be_done() -> None:
    assert judge(BATCH, {P0: 20, P1: 9}) == AlreadyDone()


def test_a_partly_written_batch_is_rejected_and_the_error_is_precise() -> None:
    verdict = judge(BATCH, {P0: 10, P1: 9, P2: 77})
    assert isinstance(verdict, Fenced)
    assert [(f.range, f.status) for f in verdict.compared] == [
        (BATCH[0], RangeStatus.NEXT),
        (BATCH[1], RangeStatus.DONE),
    ]
    error = verdict.error("billing")
    assert "flights-1[5,9) was already written (ledger position: 9)" in error.what
    assert "flights-0" not in error.what
    assert "Restart the query" in error.remedy


@pytest.mark.parametrize(
    ("positions", "message", "remedy"),
    [
        ({P0: 12, P1: 5}, "flights-0[10,20) was partly written (ledger position: 12)", "continues at the ledger"),
        (
            {P0: 33, P1: 5},
            "flights-0[10,20) is before the ledger position (ledger position: 33)",
            "continues at the ledger",
        ),
        ({P0: 10, P1: 2}, "flights-1[5,9) leaves a gap (ledger position: 2)", "not an old copy"),
        (
            {P0: 10},
            "flights-1[5,9) has no ledger position (the ledger does not contain the partition)",
            "copies the group's committed offsets",
        ),
    ],
)
def test_an_error_names_the_cause_the_place_and_the_remedy(
    positions: dict[TopicPartition, int], message: str, remedy: str
) -> None:
    verdict = judge(BATCH, positions)
    assert isinstance(verdict, Fenced)
    error = pickle.loads(pickle.dumps(verdict.error("billing")))
    assert isinstance(error, FencedBatch)
    assert message in error.what
    assert "group 'billing'" in error.what
    assert remedy in error.remedy


def test_a_batch_without_offsets_is_neither_next_nor_done() -> None:
    assert judge([], {P0: 10}) == NothingRead()
    assert judge([OffsetRange(P0, 7, 7)], {P0: 10}) == NothingRead()


def test_empty_ranges_do_not_fence_a_batch() -> None:
    assert judge([OffsetRange(P0, 7, 7), BATCH[1]], {P0: 10, P1: 5}) == Commit({P1: 9})


def test_a_batch_reads_one_range_of_each_partition() -> None:
    with pytest.raises(ValueError, match=r"flights-0\[0,5\), flights-0\[5,9\)"):
        judge([OffsetRange(P0, 0, 5), OffsetRange(P0, 5, 9)], {P0: 0})


@given(
    st.dictionaries(st.sampled_from([P0, P1, P2]), st.tuples(OFFSETS, OFFSETS).map(sorted), min_size=1),
    st.dictionaries(st.sampled_from([P0, P1, P2]), OFFSETS),
)
def test_what_is_committed_is_done_and_is_committed_once(
    reads: dict[TopicPartition, list[int]], positions: dict[TopicPartition, int]
) -> None:
    ranges = [OffsetRange(tp, begin, end) for tp, (begin, end) in reads.items()]
    verdict = judge(ranges, positions)
    if isinstance(verdict, Commit):
        after = {**positions, **verdict.next_offsets}
        assert judge(ranges, after) == AlreadyDone()
        assert all(positions[tp] < n for tp, n in verdict.next_offsets.items()), "positions only rise"
    if isinstance(verdict, Fenced):
        assert {f.range for f in verdict.compared} == {r for r in ranges if len(r)}


# ---- in a sink's transaction ---------------------------------------------------------------------------------------


def _opened(at: int = 0) -> FakeLedger[str]:
    ledger: FakeLedger[str] = FakeLedger("g")
    with ledger.transaction() as transaction:
        transaction.advance({P0: at, P1: at})
    return ledger


def test_a_batch_is_written_once() -> None:
    ledger, ranges = _opened(), [OffsetRange(P0, 0, 5), OffsetRange(P1, 0, 2)]
    assert commit_batch(ledger, {"g": ranges}, "five and two") == CommitGroups({"g": {P0: 5, P1: 2}})
    assert commit_batch(ledger, {"g": ranges}, "five and two") == AlreadyDone()
    assert (ledger.written, ledger.positions([P0, P1])) == (["five and two"], {P0: 5, P1: 2})


def test_a_rejected_batch_changes_nothing() -> None:
    ledger = _opened(at=3)
    with pytest.raises(FencedBatch, match=r"flights-0\[0,5\) was partly written"):
        commit_batch(ledger, {"g": [OffsetRange(P0, 0, 5), OffsetRange(P1, 3, 4)]}, "a zombie's")
    assert (ledger.written, ledger.positions([P0, P1])) == ([], {P0: 3, P1: 3})


@pytest.mark.parametrize("moment", Moment)
def test_a_lost_response_is_requested_again(moment: Moment) -> None:
    ledger = _opened()

    def no_answer(now: Moment) -> None:
        if now is moment:
            raise SinkUnreachable("No answer.")

    ledger.at = no_answer
    with pytest.raises(SinkUnreachable):
        commit_batch(ledger, {"g": [OffsetRange(P0, 0, 5)]}, "five")
    ledger.at = lambda now: None
    again = commit_batch(ledger, {"g": [OffsetRange(P0, 0, 5)]}, "five")
    assert again == (AlreadyDone() if moment is Moment.COMMITTED else CommitGroups({"g": {P0: 5}}))
    assert (ledger.written, ledger.positions([P0])) == (["five"], {P0: 5})


def test_a_batch_without_output_moves_the_ledger_all_the_same() -> None:
    ledger = _opened()
    assert commit_batch(ledger, {"g": [OffsetRange(P0, 0, 5)]}, None) == CommitGroups({"g": {P0: 5}})
    assert (ledger.written, ledger.positions([P0])) == ([], {P0: 5})


def test_output_of_a_batch_that_read_nothing_is_rejected() -> None:
    ledger = _opened()
    assert commit_batch(ledger, {"g": []}, None) == NothingRead()
    with pytest.raises(FencedBatch, match="has output but has read no records") as rejected:
        commit_batch(ledger, {"g": []}, "a window that closed")
    assert "at least once" in rejected.value.remedy
    assert ledger.written == []


JOINED = {"fares": [OffsetRange(P0, 0, 3)], "flights": [OffsetRange(P0, 10, 20), OffsetRange(P1, 5, 9)]}


def ledger_at(positions: dict[str, dict[TopicPartition, int]]) -> FakeLedger[str]:
    ledger: FakeLedger[str] = FakeLedger("fares")
    with ledger.transaction() as transaction:
        for group_id, next_offsets in positions.items():
            transaction.of(group_id).advance(next_offsets)
    return ledger


def test_X2_a_join_moves_the_positions_of_all_its_groups_with_its_output() -> None:
    ledger = ledger_at({"fares": {P0: 0}, "flights": {P0: 10, P1: 5}})
    reached = {"fares": {P0: 3}, "flights": {P0: 20, P1: 9}}
    assert commit_batch(ledger, JOINED, "joined") == CommitGroups(reached)
    assert commit_batch(ledger, JOINED, "joined") == AlreadyDone()
    assert ledger.written == ["joined"]
    assert {g: ledger.positions_of(g, [P0, P1]) for g in JOINED} == reached


@pytest.mark.parametrize(
    ("positions", "match"),
    [
        ({"fares": {P0: 0}, "flights": {P0: 20, P1: 9}}, "contains its output for group flights, but not for fares"),
        ({"fares": {P0: 3}, "flights": {P0: 10, P1: 5}}, "contains its output for group fares, but not for flights"),
        ({"fares": {P0: 0}, "flights": {P0: 15, P1: 5}}, "group 'flights'.*was partly written"),
        ({"fares": {P0: 9}, "flights": {P0: 10, P1: 5}}, "group 'fares'.*is before the ledger position"),
        ({"fares": {P0: 0}}, "group 'flights'.*has no ledger position"),
    ],
)
def test_X3_a_join_is_fenced_if_its_groups_do_not_agree(
    positions: dict[str, dict[TopicPartition, int]], match: str
) -> None:
    ledger = ledger_at(positions)
    with pytest.raises(FencedBatch, match=match):
        commit_batch(ledger, JOINED, "joined")
    assert ledger.written == []
    assert {g: ledger.positions_of(g, [P0, P1]) for g in positions} == positions, "no group has moved"


def test_X2_a_batch_that_reads_one_stream_of_a_join_moves_that_one() -> None:
    ledger = ledger_at({"fares": {P0: 0}, "flights": {P0: 10}})
    assert commit_batch(ledger, {"fares": JOINED["fares"], "flights": []}, None) == CommitGroups({"fares": {P0: 3}})
    assert combine({"fares": NothingRead(), "flights": NothingRead()}) == NothingRead()


def test_X2_the_first_group_by_name_keeps_the_entry_of_a_no_data_batch() -> None:
    ledger, batch = ledger_at({}), NoDataBatch("5f2c", 7, 99)
    nothing: dict[str, list[OffsetRange]] = {"flights": [], "fares": []}
    assert commit_batch(ledger, nothing, "closed", no_data_batch=batch) == CommitGroups({"fares": batch.positions})
    assert commit_batch(ledger, nothing, "closed", no_data_batch=batch) == AlreadyDone()
    assert ledger.written == ["closed"]


def test_X4_a_batch_after_a_checkpoint_that_was_set_back_does_not_repeat_a_no_data_batch() -> None:
    """The checkpoint is restored to batch 5. After the restart Spark runs batch 6 with records, and emits the window again."""
    ledger = ledger_at({"fares": {P0: 0}, "flights": {P0: 10, P1: 5}})
    nothing: dict[str, list[OffsetRange]] = {"flights": [], "fares": []}
    commit_batch(ledger, nothing, "the window", no_data_batch=NoDataBatch("5f2c", 6, 99))
    with pytest.raises(FencedBatch, match=r"Batch 6 of group 'fares' was rejected.*no-data batch 6 of its checkpoint"):
        commit_batch(ledger, JOINED, "the window again", number=QueryBatch("5f2c", 6))
    only_flights = {"fares": [], "flights": JOINED["flights"]}
    with pytest.raises(FencedBatch, match="no-data batch 6"):
        commit_batch(ledger, only_flights, "the window again", number=QueryBatch("5f2c", 5))
    assert ledger.written == ["the window"]
    assert isinstance(commit_batch(ledger, JOINED, "joined", number=QueryBatch("5f2c", 7)), CommitGroups)
    assert commit_batch(ledger, JOINED, "joined", number=QueryBatch("5f2c", 6)) == AlreadyDone()


def test_X4_the_no_data_batches_of_another_checkpoint_do_not_count() -> None:
    ledger = ledger_at({"fares": {P0: 0}, "flights": {P0: 10, P1: 5}})
    commit_batch(ledger, {"flights": [], "fares": []}, "closed", no_data_batch=NoDataBatch("5f2c", 6, 99))
    assert isinstance(commit_batch(ledger, JOINED, "joined", number=QueryBatch("a1", 6)), CommitGroups)
