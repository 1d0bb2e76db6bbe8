"""G11, S1-S3: partitions that a member may read, release and commit."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.groups.applied_reset import NO_RESET, AppliedReset
from streamgroups.groups.commit_metadata import CommitMark, ToolMark
from streamgroups.groups.membership import InFlight, Membership, NewPosition, Origin, Owned
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.origins import UNNAMED, New

P0, P1, P2 = (TopicPartition("flights", p) for p in range(3))


def batch(number: int, *ranges: tuple[TopicPartition, int, int]) -> InFlight:
    return InFlight(number, tuple(OffsetRange(*r) for r in ranges))


OWNING = Membership().assign({P0: Owned(5), P1: Owned(7)})
READING = OWNING.plan(batch(1, (P0, 5, 9)))


def test_S1_partitions_that_come_in_are_added() -> None:
    more = OWNING.assign({P2: Owned(0, Origin.EARLIEST)})
    assert more.plannable == {P0: 5, P1: 7, P2: 0}
    assert (OWNING.assignments, more.assignments) == (1, 2)


def test_S1_an_empty_assignment_is_one() -> None:
    assert Membership().assign({}).assignments == 1


def test_G11_a_revoked_partition_is_owned_and_not_planned() -> None:
    requested = OWNING.revoke([P0, P2])
    assert (set(requested.owned), requested.plannable, set(requested.releasing)) == ({P0, P1}, {P1: 7}, {P0})


@pytest.mark.parametrize(
    ("membership", "required"),
    [
        (OWNING, (P2, 0, 1)),
        (OWNING.revoke([P0]), (P0, 5, 9)),
        (OWNING, (P0, 4, 9)),
        (OWNING, (P0, 6, 9)),
        (OWNING.release([P0])[0].assign({P0: Owned(50)}), (P0, 5, 9)),
    ],
    ids=["not owned", "revoked", "read before", "beyond the position", "gone and come back further on"],
)
def test_G11_what_must_not_be_read_is_not_planned(
    membership: Membership, required: tuple[TopicPartition, int, int]
) -> None:
    instance_request = batch(2, required, (P1, 7, 8))
    assert membership.readable(instance_request.ranges) == (OffsetRange(P1, 7, 8),)
    with pytest.raises(ValueError, match="batch 2 reads flights-"):
        membership.plan(instance_request)


def test_G11_of_a_revoked_partition_only_the_rest_of_its_range_in_flight_is_planned_again() -> None:
    revoked = READING.revoke([P0])
    assert revoked.readable([OffsetRange(P0, 5, 9), OffsetRange(P1, 7, 8)]) == (
        OffsetRange(P0, 5, 9),
        OffsetRange(P1, 7, 8),
    )
    assert revoked.readable([OffsetRange(P0, 5, 10)]) == ()
    moved = revoked.move({P0: NewPosition(7, 0, is_read=True)})
    assert moved.readable([OffsetRange(P0, 5, 9), OffsetRange(P0, 7, 9)]) == (OffsetRange(P0, 7, 9),)
    kept = moved.plan(batch(2, (P0, 7, 9)))
    assert kept.releasable([P0]) == frozenset()


def test_G12_a_partition_in_flight_is_released_only_when_its_batch_is_done() -> None:
    requested = READING.revoke([P0, P1])
    assert requested.releasable([P0, P1]) == {P1}
    done, to_commit = requested.finish(1)
    assert (done.releasable([P0]), to_commit) == ({P0}, {P0: 9})
    released, abandoned = done.release([P0, P1])
    assert (dict(released.owned), released.releasing, abandoned) == ({}, frozenset(), ())


def test_S2_a_batch_done_is_committed_once() -> None:
    done, to_commit = READING.finish(1)
    assert (to_commit, done.plannable) == ({P0: 9}, {P0: 9, P1: 7})
    assert done.finish(1) == (done, {})


def test_S2_a_later_batch_finishes_earlier_ones_and_not_the_other_way_round() -> None:
    assert READING.finish(0) == (READING, {})
    assert READING.finish(3)[1] == {P0: 9}


def test_S3_what_was_lost_in_flight_is_abandoned_and_never_committed() -> None:
    lost, abandoned = READING.release([P0])
    assert abandoned == (OffsetRange(P0, 5, 9),)
    assert lost.finish(1)[1] == {}
    back = lost.assign({P0: Owned(5)})
    assert back.finish(1)[1] == {}


def test_G8_a_position_moved_during_a_batch_stays_moved() -> None:
    for moved in (
        READING.move({P0: NewPosition(2, 0)}),
        READING.move({P0: NewPosition(100, 0)}),
        READING.assign({P0: Owned(100)}),
    ):
        done, to_commit = moved.finish(1)
        assert to_commit == {}
        assert done.plannable[P0] == moved.plannable[P0]


def test_moving_what_is_not_owned_does_nothing() -> None:
    assert OWNING.move({P2: NewPosition(4, 0)}) == OWNING


def test_F3_a_decision_of_another_ownership_epoch_changes_nothing() -> None:
    now = Membership().assign({P0: Owned(5, epoch=8), P1: Owned(7, epoch=9)})
    moved = now.move({P0: NewPosition(2, 7), P1: NewPosition(3, 9)})
    assert moved.owned == {P0: Owned(5, epoch=8), P1: Owned(3, epoch=9)}
    assert now.move({P0: NewPosition(2, 9)}) == now
    assert now.current({P0: NewPosition(2, 7), P1: NewPosition(3, 9)}).keys() == {P1}


def test_F3_what_was_found_about_another_position_or_ownership_epoch_is_not_stored() -> None:
    now = Membership().assign({P0: Owned(5, epoch=8)})
    topic = TopicIdentity("c1", "t1")
    found = Owned(5, identity=topic, state=New(), epoch=8)
    assert now.identify({P0: found}).owned == {P0: found}
    assert now.identify({P0: replace(found, epoch=7)}) == now
    assert now.identify({P0: replace(found, next_offset=4)}) == now
    assert now.identify({P2: found}) == now


def test_F2_a_position_keeps_its_last_reset_until_the_next_one() -> None:
    first, second = AppliedReset(1, "a"), AppliedReset(2, "b")
    now = Membership().assign({P0: Owned(5, epoch=8, reset=first, leader_epoch=4)})
    assert now.move({P0: NewPosition(9, 8)}).owned[P0].reset == first
    reset = now.move({P0: NewPosition(2, 8, reset=second)}).owned[P0]
    assert (reset.next_offset, reset.reset) == (2, second)
    # The log up to another position can belong to another leader epoch.
    assert (reset.leader_epoch, now.move({P0: NewPosition(5, 8)}).owned[P0].leader_epoch) == (None, 4)
    read, _ = now.plan(batch(1, (P0, 5, 9))).finish(1)
    assert (read.owned[P0].reset, read.owned[P0].epoch) == (first, 8)
    assert read.owned[P0].leader_epoch == 4, "the log of this epoch contained the batch too"
    assert now.move({P0: NewPosition(2, 8, leader_epoch=6)}).owned[P0].leader_epoch == 6


def test_F1_F2_a_commit_has_a_mark_with_epoch_reset_and_state() -> None:
    topic = TopicIdentity("c1", "t1")
    owned = Owned(5, identity=topic, state=New(), epoch=8, reset=AppliedReset(1, "a"), leader_epoch=4)
    here = owned.mark(5, exclusive=False, written=True, form="windows")
    assert here == CommitMark(False, True, topic, New(), 8, AppliedReset(1, "a"), 4, "windows")
    # The mark of a batch that is not finished yet: the position is still the one before it.
    before = owned.mark(9, exclusive=False, written=False)
    assert before == CommitMark(False, False, topic, UNNAMED, 8, AppliedReset(1, "a"), None, "")
    assert Owned.committed(5, here.encode()) == replace(owned, origin=Origin.WRITTEN, epoch=0, form="windows")


def test_a_planned_batch_that_never_began_is_forgotten() -> None:
    other = READING.plan(batch(2, (P1, 7, 8)))
    assert other.finish(2)[1] == {P1: 8}


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    words = st.sampled_from(["assign", "move", "plan", "finish", "revoke", "release"])
    return draw(st.lists(st.tuples(words, st.integers(0, 2), st.integers(0, 20)), max_size=40))


@given(lives())
def test_in_any_life_only_owned_and_readable_offsets_are_committed_and_positions_never_regress(
    life: list[tuple[str, int, int]],
) -> None:
    m, number, epoch = Membership(), 0, 0
    for word, partition, n in life:
        tp = TopicPartition("flights", partition)
        if word == "assign":
            epoch += 1
            m = m.assign({tp: Owned(n, epoch=epoch)})
        elif word == "move":
            before = m
            m = m.move({tp: NewPosition(n, epoch)})
            assert m == before or m.owned[tp] == Owned(n, epoch=epoch)
        elif word == "revoke":
            m = m.revoke([tp])
        elif word == "release":
            reading = m.in_flight.ranges if m.in_flight else ()
            m, abandoned = m.release([tp])
            assert set(abandoned) == {r for r in reading if r.topic_partition == tp}
        elif word == "plan":
            number += 1
            ranges = [OffsetRange(t, next_offset, next_offset + n) for t, next_offset in m.plannable.items()]
            m = m.plan(InFlight(number, m.readable(ranges)))
        else:
            was_at = {t: o.next_offset for t, o in m.owned.items()}
            m, to_commit = m.finish(number)
            assert to_commit.keys() <= was_at.keys()
            assert all(end >= was_at[t] for t, end in to_commit.items())
            assert m.in_flight is None
        assert m.releasing <= m.owned.keys()
        assert m.plannable.keys() == m.owned.keys() - m.releasing
        assert m.in_flight is None or m.in_flight.topic_partitions <= m.owned.keys()


def test_G11_a_partition_that_comes_in_again_may_be_planned_again() -> None:
    """An earlier revocation belongs to an earlier ownership epoch."""
    m = Membership().assign({P0: Owned(5)}).revoke([P0])
    assert m.plannable == {}
    assert m.assign({P0: Owned(9)}).plannable == {P0: 9}


@pytest.mark.parametrize(
    ("metadata", "origin"),
    [
        ("", Origin.FOREIGN),
        ("by hand", Origin.FOREIGN),
        (CommitMark(exclusive=False).encode(), Origin.COMMITTED),
        (CommitMark(exclusive=True).encode(), Origin.COMMITTED),
        (CommitMark(exclusive=False, written=True).encode(), Origin.WRITTEN),
        (CommitMark(exclusive=True, written=True).encode(), Origin.WRITTEN),
    ],
)
def test_X2_who_has_committed_is_known_by_the_mark(metadata: str, origin: Origin) -> None:
    assert Owned.committed(5, metadata) == Owned(5, origin)


def test_F2_the_commit_of_a_tool_is_that_of_no_member() -> None:
    mark = ToolMark(AppliedReset(9, "a"), TopicIdentity("c1", "t1"))
    owned = Owned.committed(5, mark.encode())
    assert owned == Owned(5, Origin.FOREIGN, TopicIdentity("c1", "t1"), reset=AppliedReset(9, "a"))
    assert not owned.is_unmarked
    restored = replace(mark, is_restored=True)
    assert ToolMark.parse(restored.encode()) == restored
    assert Owned.committed(5, restored.encode()) == replace(owned, is_restored=True)
    for kept in (NO_RESET, AppliedReset(7, "b")):
        with_state = replace(mark, kept_reset=kept)
        assert ToolMark.parse(with_state.encode()) == with_state
        assert Owned.committed(5, with_state.encode()) == replace(owned, kept_reset=kept)
    assert Owned.committed(5, "by hand").is_unmarked
    assert not Owned.committed(5, CommitMark(exclusive=False).encode()).is_unmarked


def test_O6_a_mark_names_where_its_owner_began_to_read_without_interruption() -> None:
    owning = Membership().assign({P0: Owned(5, epoch=7)})
    reset = AppliedReset(1, "a")

    def begin(of: Membership) -> int | None:
        return of.owned[P0].mark(of.owned[P0].next_offset, exclusive=False, written=False).from_offset

    finished, _ = owning.plan(InFlight(1, (OffsetRange(P0, 5, 9),))).finish(1)
    assert (begin(owning), begin(finished)) == (5, 5)
    # The commit of an earlier run was missing.
    assert begin(finished.move({P0: NewPosition(20, 7, is_read=True)})) == 5
    assert begin(finished.move({P0: NewPosition(9, 7)})) == 5
    # A gap, a restart at another position, and a reset, also to the same position.
    assert begin(finished.move({P0: NewPosition(20, 7)})) == 20
    assert begin(finished.move({P0: NewPosition(3, 7)})) == 3
    assert begin(finished.move({P0: NewPosition(9, 7, reset=reset)})) == 9
    # The output is written, so the records are not read twice for the commits.
    again = finished.rewind({P0: NewPosition(5, 7)})
    assert again.owned[P0].next_offset == 5
    assert begin(again.plan(InFlight(2, (OffsetRange(P0, 5, 9),))).finish(2)[0]) == 5
    assert owning.rewind({P0: NewPosition(2, 7)}).owned[P0].mark(2, exclusive=False, written=False).from_offset is None
