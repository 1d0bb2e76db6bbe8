"""S2, S3, G11: what a member's two threads share, without a broker: order, doubt, failure, and what is due."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

import pytest

from streamgroups.errors import FencedMember, GroupRejected, StreamGroupsError
from streamgroups.fakes import FakeHistory
from streamgroups.groups.applied_reset import AppliedReset
from streamgroups.groups.history import Kind
from streamgroups.groups.membership import MoveLedger, NewPosition, Origin, Owned
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.origins import Named
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.membership.member_settings import MemberSettings
from streamgroups_kafka.membership.member_state import MemberState, Turn

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
FAILURE = GroupRejected("no", remedy="no")


class Shared:
    """A state with a clock that the test turns, and its history."""

    def __init__(
        self, assign: tuple[TopicPartition, ...] | None = None, *, move_ledger: MoveLedger = frozenset
    ) -> None:
        self.now_s = 100.0
        self.history = FakeHistory(lambda: 0, "airline", "alice")
        settings = MemberSettings(
            "airline", "alice", {}, topics=lambda: ["flights"], assign=assign, move_ledger=move_ledger, form="windows"
        )
        self.state = MemberState(settings, self.history, lambda: self.now_s)
        self.state.assign({P0: Owned(5), P1: Owned(7)})

    @property
    def kinds(self) -> list[Kind]:
        return [event.kind for event in self.history.events]

    def turn(self) -> Turn:
        return self.state.await_turn(0)


@pytest.fixture
def shared() -> Shared:
    return Shared()


def test_S2_a_finished_batch_is_due_until_exactly_it_is_committed(shared: Shared) -> None:
    state = shared.state
    assert state.plan(1, [OffsetRange(P0, 5, 9)]).ranges == (OffsetRange(P0, 5, 9),)
    assert state.due() == {}
    state.finish(1)
    assert state.due() == {P0: 9}
    assert state.move({P0: NewPosition(20, 0)}, detail="") == {P0}
    state.committed({P0: 9})
    assert state.due() == {P0: 20}, "what came while 9 was under way is not forgotten"
    state.committed({P0: 20})
    assert state.due() == {}
    assert shared.kinds == [Kind.ASSIGNED, Kind.PLANNED, Kind.FINISHED, Kind.COMMITTED, Kind.COMMITTED]


def test_S3_a_process_that_was_stopped_between_choosing_and_planning_plans_nothing(shared: Shared) -> None:
    shared.turn()
    shared.now_s += 60
    assert shared.state.plan(1, [OffsetRange(P0, 5, 9)]).ranges == ()


def test_G2_only_a_start_that_was_just_decided_is_committed_at_once(shared: Shared) -> None:
    shared.state.assign({P0: Owned(3, Origin.STARTING), P1: Owned(0, Origin.EARLIEST)})
    assert shared.state.due() == {P0: 3}


def test_G11_a_revoked_partition_waits_for_its_batch_and_its_commit(shared: Shared) -> None:
    state = shared.state
    state.plan(1, [OffsetRange(P0, 5, 9)])
    state.revoke([P0, P1])
    assert state.membership.plannable == {}
    assert (state.may_release([P0]), state.may_release([P1])) == (False, True)
    state.finish(1)
    assert not state.may_release([P0]), "it is read, but not committed"
    state.committed({P0: 9})
    assert state.may_release([P0])
    assert state.release([P0], Kind.RELEASED) == ()
    assert state.membership.owned.keys() == {P1}


@pytest.mark.parametrize("end", [lambda state: state.close(), lambda state: state.fail(FAILURE)])
def test_a_query_that_ends_holds_nothing_up(shared: Shared, end: Callable[[MemberState], None]) -> None:
    shared.state.plan(1, [OffsetRange(P0, 5, 9)])
    shared.state.revoke([P0])
    end(shared.state)
    assert shared.state.may_release([P0])


def test_S3_a_lost_partition_is_never_committed_and_its_batch_is_reported(shared: Shared) -> None:
    state = shared.state
    state.plan(1, [OffsetRange(P0, 5, 9), OffsetRange(P1, 7, 8)])
    state.finish(1)
    state.plan(2, [OffsetRange(P0, 9, 12)])
    assert state.release([P0], Kind.LOST) == (OffsetRange(P0, 9, 12),)
    state.assign({P0: Owned(20)})
    assert state.due() == {P1: 8}, "another member has read to 20: the group would go back to 9"
    state.finish(2)
    assert state.due() == {P1: 8}
    assert state.release(None, Kind.LOST, detail="fenced") == ()
    assert (state.due(), dict(state.membership.owned)) == ({}, {})
    assert [e.detail for e in shared.history.events if e.kind is Kind.LOST] == ["", "fenced"]


def test_S3_after_a_silence_nothing_is_planned_until_a_commit_is_accepted(shared: Shared) -> None:
    state = shared.state
    assert shared.turn() is Turn.CONTINUE
    shared.now_s += 3.5
    assert state.membership.plannable == {}, "the query's thread may wake before the owner thread"
    assert shared.turn() is Turn.CONTINUE
    assert state.due() == {P0: 5, P1: 7}, "positions are committed again, to check the membership"
    shared.now_s += 0.1
    shared.turn()
    assert state.membership.plannable == {}
    state.committed({P0: 5, P1: 7})
    assert state.membership.plannable == {P0: 5, P1: 7}


def test_F4_a_sink_gets_the_metadata_of_the_positions_where_its_batch_begins(shared: Shared) -> None:
    state = shared.state
    state.assign({P0: Owned(5, Origin.WRITTEN, epoch=3)})
    state.plan(1, [OffsetRange(P0, 5, 9), OffsetRange(P1, 7, 8)])
    assert state.snapshot.marks == {
        P0: "streamgroups:shared;written;cluster=;topic=;epoch=3;form=windows;from=5;end;",
        P1: "streamgroups:shared;cluster=;topic=;form=windows;from=7;end;",
    }
    state.move({P1: NewPosition(20, 0)}, detail="")
    assert state.snapshot.marks.keys() == {P0}


class TestASinkThatCommits:
    """X2: no commit of the member's may reach the group after the sink's, for it would take the group back behind what is written."""

    BATCH = (OffsetRange(P0, 5, 9),)

    @pytest.fixture
    def shared(self) -> Shared:
        shared = Shared()
        shared.state.group_metadata = ConsumerGroupMetadata("airline", 7, "alice-1")
        shared.turn()
        shared.state.plan(1, self.BATCH)
        return shared

    def test_a_silence_while_it_does_commits_nothing_of_its_batch(self, shared: Shared) -> None:
        state = shared.state
        assert state.snapshot_to_commit().group_metadata is not None
        shared.now_s += 3.5
        shared.turn()
        assert state.due() == {P1: 7}, "the other partition can prove the membership"
        assert state.snapshot_to_commit().group_metadata is None
        state.committed({P1: 7})
        assert state.snapshot_to_commit().group_metadata is not None

    def test_without_another_partition_it_is_requested_when_the_batch_is_done(self, shared: Shared) -> None:
        state = shared.state
        state.release([P1], Kind.RELEASED)
        assert state.snapshot_to_commit().group_metadata is not None
        state.written(1)
        shared.now_s += 3.5
        shared.turn()
        assert state.due() == {}
        state.finish(1)
        assert state.due() == {P0: 9}
        state.committed({P0: 9})
        assert state.membership.plannable == {P0: 9}

    def test_a_timeout_before_that_requests_all(self, shared: Shared) -> None:
        assert shared.state.snapshot.group_metadata is not None
        shared.now_s += 3.5
        shared.turn()
        assert shared.state.due() == {P0: 5, P1: 7}

    @pytest.mark.parametrize("way", ["finished", "moved", "started"])
    def test_it_waits_for_commits_of_the_member_that_are_under_way(self, shared: Shared, way: str) -> None:
        state = shared.state
        if way == "finished":
            # A batch without output, whose offsets the member commits.
            state.finish(1)
            state.plan(2, [OffsetRange(P0, 9, 12)])
        elif way == "moved":
            state.move({P0: NewPosition(5, 0)}, detail="")
        else:
            state.assign({P0: Owned(5, Origin.STARTING)})
        assert state.snapshot_to_commit().group_metadata is None
        assert state.snapshot.group_metadata is not None, "to begin, it need not wait"
        state.committed(state.due())
        assert state.snapshot_to_commit().group_metadata is not None

    @pytest.mark.parametrize("others", [{P1: 7}, {}])
    def test_a_written_batch_that_is_read_again_is_requested_at_the_position_of_the_group(
        self, others: dict[TopicPartition, int]
    ) -> None:
        """State is rebuilt from a batch that was written before a restart: the group is ahead of the reads."""
        again = Shared()
        again.state.group_metadata = ConsumerGroupMetadata("airline", 7, "alice-1")
        again.state.assign({P0: Owned(9, Origin.WRITTEN)})
        again.state.release({P1} - others.keys(), Kind.RELEASED)
        again.turn()
        again.state.rewind({P0: NewPosition(5, 0), P1: NewPosition(7, 0)})
        again.state.plan(1, self.BATCH)
        again.now_s += 3.5
        again.turn()
        assert again.state.snapshot.group_metadata is None
        assert again.state.due() == {P0: 9, **others}
        assert again.state.mark_of(P0, 9).written, "the mark stays"
        assert not again.state.mark_of(P1, 7).written
        again.state.committed(again.state.due())
        assert again.state.snapshot.group_metadata is not None
        again.state.finish(1)
        assert again.state.due() == {P0: 9}
        assert again.state.mark_of(P0, 9).written

    @pytest.mark.parametrize("is_reported", [True, False])
    def test_X4_the_mark_of_its_commit_stays_when_the_member_repeats_it(
        self, shared: Shared, is_reported: bool
    ) -> None:
        """The report is lost if the process of the source does not respond. Without the mark, a checkpoint that was set back would
        repeat the output.
        """
        state = shared.state
        assert state.snapshot_to_commit().group_metadata is not None
        if is_reported:
            state.written(1)
        state.finish(1)
        assert state.due() == {}, "the sink has committed it"
        shared.now_s += 3.5
        shared.turn()
        assert state.due() == {P0: 9, P1: 7}
        assert (state.mark_of(P0, 9).written, state.mark_of(P1, 7).written) == (True, False)
        state.committed(state.due())
        state.plan(2, [OffsetRange(P0, 9, 12)])
        state.finish(2)
        assert state.due() == {P0: 12}
        assert not state.mark_of(P0, 12).written, "this one is the member's own"
        state.release([P0], Kind.RELEASED)
        assert not state.mark_of(P0, 9).written


def test_F3_a_decision_of_an_earlier_ownership_epoch_changes_nothing(shared: Shared) -> None:
    state = shared.state
    state.assign({P0: Owned(5, epoch=8)})
    state.rewind({P0: NewPosition(2, 7)})
    state.identify({P0: Owned(5, identity=TopicIdentity("c", "t"), epoch=7)})
    assert state.move({P0: NewPosition(20, 7), P1: NewPosition(9, 0)}, detail="") == {P1}
    assert (state.membership.owned, state.due()) == ({P0: Owned(5, epoch=8), P1: Owned(9)}, {P1: 9})


@pytest.mark.parametrize("is_back", [True, False])
def test_F3_a_partition_that_is_reassigned_while_the_ledger_moves_keeps_its_position(is_back: bool) -> None:
    def move_ledger(positions: Mapping[TopicPartition, Owned]) -> Collection[TopicPartition]:
        shared.state.release([P0], Kind.LOST)
        if is_back:
            shared.state.assign({P0: Owned(30, epoch=9)})
        return positions

    shared = Shared(move_ledger=move_ledger)
    shared.state.assign({P0: Owned(5, epoch=7)})
    assert shared.state.move({P0: NewPosition(20, 7)}, detail="") == frozenset()
    assert shared.state.membership.owned.get(P0) == (Owned(30, epoch=9) if is_back else None)
    assert shared.state.due() == {}


def test_F2_a_reset_to_the_committed_offset_is_committed_with_its_mark(shared: Shared) -> None:
    state, reset = shared.state, AppliedReset(1, "5f2c")
    before = {P0: state.mark_of(P0, 5)}
    state.move({P0: NewPosition(5, 0, reset=reset)}, detail="")
    state.committed({P0: 5}, before)
    assert state.due() == {P0: 5}, "the response belongs to a commit before the reset"
    mark = state.mark_of(P0, 5)
    assert (mark.reset, mark.form) == (reset, "windows")
    state.committed({P0: 5}, {P0: mark})
    assert state.due() == {}
    state.plan(1, [OffsetRange(P0, 5, 9)])
    state.finish(1)
    assert state.mark_of(P0, 9).reset == reset, "later commits repeat it"


def test_a_silence_raises_no_doubt_where_nothing_is_owned_or_shared(shared: Shared) -> None:
    shared.state.release(None, Kind.LOST)
    alone = Shared(assign=(P0, P1))
    for one in (shared, alone):
        one.turn()
        one.now_s += 3.5
        one.turn()
        assert one.state.due() == {}
    assert alone.state.membership.plannable == {P0: 5, P1: 7}


def test_waiting_for_the_batch_of_a_hand_over_is_no_silence(shared: Shared) -> None:
    for _ in range(5):
        shared.now_s += 2
        shared.state.may_release([P0])
    assert shared.turn() is Turn.CONTINUE
    assert shared.state.due() == {}


def test_S3_a_silence_while_a_hand_over_waits_for_its_batch_is_checked(shared: Shared) -> None:
    state = shared.state
    shared.turn()
    state.plan(1, [OffsetRange(P0, 5, 9)])
    state.revoke([P0])
    assert not state.may_release([P0])
    shared.now_s += 3.5
    assert not state.may_release([P0])
    assert state.due() == {P0: 5, P1: 7}, "positions are committed again, to check the membership"
    state.committed({P0: 5, P1: 7})
    assert not state.may_release([P0]), "the batch is in flight"
    state.finish(1)
    state.committed({P0: 9})
    assert state.may_release([P0])


def test_the_first_failure_counts_for_every_call_after_it(shared: Shared) -> None:
    state = shared.state
    state.fail(FAILURE)
    state.fail(StreamGroupsError("later", remedy=""))
    for _ in range(2):
        with pytest.raises(GroupRejected):
            _ = state.membership
        with pytest.raises(GroupRejected):
            state.await_assignment(0)
    assert shared.turn() is Turn.LEAVE_AT_ONCE


def test_a_query_that_has_ended_does_not_fail_because_others_take_over(shared: Shared) -> None:
    shared.state.close()
    shared.state.fail_unless_closing(FencedMember("gone", remedy=""))
    assert shared.state.membership.owned
    assert shared.turn() is Turn.CLOSE


def test_a_start_waits_for_an_assignment_be_it_empty() -> None:
    settings = MemberSettings("airline", "alice", {}, topics=list)
    state = MemberState(settings, FakeHistory(lambda: 0, "airline", "alice"))
    assert not state.await_assignment(0.001)
    assigning = threading.Timer(0.05, state.assign, [{}])
    assigning.start()
    assert state.await_assignment(30)
    assigning.join()


def test_S10_a_commit_of_an_earlier_state_of_the_same_offset_is_not_the_last(shared: Shared) -> None:
    state, file = shared.state, StateFileName(1732334879123, "1f3a9c2b7d10", 1, 1)
    state.plan(1, [OffsetRange(P0, 5, 9)])
    state.finish(1, {P0: Named(file, 9, 1732334880000)})
    marks = {P0: state.mark_of(P0, 9)}
    state.plan(2, [OffsetRange(P0, 9, 9)])
    state.finish(2, {P0: Named(file, 9)})
    state.committed({P0: 9}, marks)
    assert state.due() == {P0: 9}
    state.committed({P0: 9}, {P0: state.mark_of(P0, 9)})
    assert state.due() == {}
