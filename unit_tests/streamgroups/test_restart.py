"""S5: what a restarted query does, row by row of the table in ``restart``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given

from streamgroups.checkpoints.offset import BatchOffset
from streamgroups.checkpoints.restart import (
    Difference,
    OnRestart,
    Resumption,
    left_ranges,
    resume_finished,
    resume_unfinished,
)
from streamgroups.errors import PositionsDiffer
from streamgroups.groups.applied_reset import AppliedReset
from streamgroups.groups.membership import NewPosition, Origin, Owned
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.origins import UNNAMED, Fingerprinted

P0, P1, P2 = (TopicPartition("flights", p) for p in range(3))
CHECKPOINT, GROUP, FAIL = OnRestart.CHECKPOINT, OnRestart.GROUP, OnRestart.FAIL
Resume: TypeAlias = Callable[[BatchOffset, Mapping[TopicPartition, Owned], OnRestart], Resumption]
#: The checkpoint's last batch.
LAST = BatchOffset(3, (OffsetRange(P0, 10, 20),))


@dataclass(frozen=True)
class Row:
    """The group's position and the result of each policy: the next offset, or the ranges to read again; ``None``: rejected."""

    group: Owned
    checkpoint_wins: str
    group_wins: str
    differs: bool


FINISHED = {
    "committed at from": Row(Owned(10), "20", "20", False),
    "written at from, by the batch before": Row(Owned(10, Origin.WRITTEN), "20", "20", False),
    "committed at to": Row(Owned(20), "20", "20", False),
    "none": Row(Owned(0, Origin.EARLIEST), "20", "20", False),
    "none, new group": Row(Owned(500, Origin.STARTING), "20", "20", False),
    "committed further on": Row(Owned(35), "20", "35", True),
    "committed in the middle": Row(Owned(15), "20", "15", True),
    "committed before": Row(Owned(4), "20", "4", True),
    "set to from by a tool": Row(Owned(10, Origin.FOREIGN), "20", "10", True),
    "set to to by a tool": Row(Owned(20, Origin.FOREIGN), "20", "20", False),
    "a member's commit after a live reset to from": Row(Owned(10, reset=AppliedReset(1, "a")), "20", "10", True),
}
UNFINISHED = {
    "committed at from": Row(Owned(10), "[10,20)", "[10,20)", False),
    "none": Row(Owned(0, Origin.EARLIEST), "[10,20)", "[10,20)", False),
    "none, new group": Row(Owned(500, Origin.STARTING), "[10,20)", "[10,20)", False),
    "committed in the middle": Row(Owned(15), "[10,20)", "[15,20)", True),
    "committed at to": Row(Owned(20), "[10,20)", "20", True),
    "committed further on": Row(Owned(35), "[10,20)", "35", True),
    "committed before": Row(Owned(4), "[10,20)", "4", True),
    "set to from by a tool": Row(Owned(10, Origin.FOREIGN), "[10,20)", "[10,20)", False),
    "set to the middle by a tool": Row(Owned(15, Origin.FOREIGN), "[10,20)", "[15,20)", True),
}


@pytest.mark.parametrize("row", FINISHED.values(), ids=FINISHED.keys())
@pytest.mark.parametrize("policy", OnRestart)
def test_S5_after_a_finished_batch(row: Row, policy: OnRestart) -> None:
    if policy is FAIL and row.differs:
        with pytest.raises(PositionsDiffer, match=f"flights-0: checkpoint 20, group {row.group.next_offset}"):
            resume_finished(LAST, {P0: row.group}, policy)
        return
    resumption = resume_finished(LAST, {P0: row.group}, policy)
    assert (resumption.replay, resumption.left) == ((), ())
    assert resumption.next_offsets == {P0: int(row.checkpoint_wins if policy is CHECKPOINT else row.group_wins)}
    assert resumption.differences == ((Difference(P0, 20, row.group.next_offset),) if row.differs else ())


#: The positions of both partitions of a batch, what an earlier run has stored, the states that tasks have written, and what
#: the batch has not read. ``resume_finished`` then continues at the positions of the group.
TWO = BatchOffset(3, (OffsetRange(P0, 10, 20), OffsetRange(P1, 5, 6)))
AT_START, AT_END = (Owned(10), Owned(5)), (Owned(20), Owned(6))
LEFT_RANGES: dict[str, tuple[tuple[Owned, Owned], set[TopicPartition], set[TopicPartition], set[TopicPartition]]] = {
    "read whole, without a commit": (AT_START, set(), {P0, P1}, set()),
    "read whole": (AT_END, set(), {P0, P1}, set()),
    "read by other members": (AT_END, set(), set(), set()),
    "not read": (AT_START, set(), set(), {P0, P1}),
    "partly read": (AT_START, set(), {P0}, {P0, P1}),
    "stored as not read": (AT_START, {P0, P1}, {P0, P1}, {P0, P1}),
    "one is another member's, and read": ((Owned(10), Owned(6)), set(), {P0}, set()),
    "one is another member's, and the other not read": ((Owned(10), Owned(6)), set(), set(), {P0}),
    "one was skipped": (AT_START, {P1}, {P0}, {P1}),
    "one was skipped, the other not read": (AT_START, {P1}, set(), {P0, P1}),
    "set to from by a tool": ((Owned(10, Origin.FOREIGN), Owned(5, Origin.FOREIGN)), set(), set(), set()),
    "a live reset to from": ((Owned(10, reset=AppliedReset(1, "a")), Owned(6)), set(), set(), set()),
    "the commits are gone": ((Owned.new(0, Origin.EARLIEST), Owned.new(0, Origin.EARLIEST)), set(), set(), set()),
}


@pytest.mark.parametrize("policy", OnRestart)
@pytest.mark.parametrize(("owned", "recorded", "written", "expected"), LEFT_RANGES.values(), ids=LEFT_RANGES.keys())
def test_S10_a_batch_that_was_not_read_whole_is_read_again(
    owned: tuple[Owned, Owned],
    recorded: set[TopicPartition],
    written: set[TopicPartition],
    expected: set[TopicPartition],
    policy: OnRestart,
) -> None:
    positions = dict(zip((P0, P1), owned, strict=True))
    found = left_ranges(
        TWO, positions, recorded, lambda r, it: it == positions[r.topic_partition] and r.topic_partition in written
    )
    assert found == expected
    if found:
        resumption = resume_finished(TWO, positions, policy, found)
        ends = {P0: 20, P1: 6}
        assert resumption.next_offsets == {tp: ends[tp] for tp in (P0, P1) if tp not in found}
        assert resumption.differences == ()


@pytest.mark.parametrize("row", UNFINISHED.values(), ids=UNFINISHED.keys())
@pytest.mark.parametrize("policy", OnRestart)
def test_S5_with_an_unfinished_batch(row: Row, policy: OnRestart) -> None:
    if policy is FAIL and row.differs:
        with pytest.raises(PositionsDiffer, match=f"flights-0: checkpoint 10, group {row.group.next_offset}"):
            resume_unfinished(LAST, {P0: row.group}, policy)
        return
    resumption = resume_unfinished(LAST, {P0: row.group}, policy)
    expected = row.checkpoint_wins if policy is CHECKPOINT else row.group_wins
    if expected.startswith("["):
        assert [str(r) for r in resumption.replay] == [f"flights-0{expected}"]
        assert resumption.left == ()
        # The position before the replay, which its end will follow.
        assert resumption.next_offsets == {P0: resumption.replay[0].next_offset}
    else:
        assert (resumption.replay, resumption.left) == ((), LAST.ranges)
        assert resumption.next_offsets == {P0: int(expected)}
    assert resumption.differences == ((Difference(P0, 10, row.group.next_offset),) if row.differs else ())


@pytest.mark.parametrize("policy", [GROUP, FAIL])
def test_X2_what_the_sink_has_written_is_not_read_again(policy: OnRestart) -> None:
    resumption = resume_unfinished(LAST, {P0: Owned(20, Origin.WRITTEN)}, policy)
    assert (resumption.replay, resumption.left, resumption.differences) == ((), (), ())
    assert (resumption.written, resumption.next_offsets) == (LAST.ranges, {P0: 20})


@pytest.mark.parametrize("resume", [resume_finished, resume_unfinished])
def test_X4_an_old_checkpoint_does_not_write_again(resume: Resume) -> None:
    owned = {P0: Owned(35, Origin.WRITTEN)}
    with pytest.raises(PositionsDiffer, match=r"flights-0: checkpoint \d0, group 35 .* would duplicate or lose output"):
        resume(LAST, owned, CHECKPOINT)
    with pytest.raises(PositionsDiffer, match="Checkpoint and group differ"):
        resume(LAST, owned, FAIL)
    assert resume(LAST, owned, GROUP).next_offsets == {P0: 35}


def test_F2_output_up_to_from_after_a_live_reset_is_not_written_again() -> None:
    """The sink has written up to ``from`` once more, after the reset of a batch that the checkpoint contains."""
    owned = {P0: Owned(10, Origin.WRITTEN, reset=AppliedReset(1, "a"))}
    with pytest.raises(PositionsDiffer, match="would duplicate or lose output"):
        resume_finished(LAST, owned, CHECKPOINT)
    assert resume_finished(LAST, owned, GROUP).next_offsets == {P0: 10}


def test_F2_the_reset_that_the_checkpoint_contains_is_no_difference() -> None:
    reset = AppliedReset(3, "a")
    last = replace(LAST, resets={P0: reset})
    for policy in OnRestart:
        assert resume_finished(last, {P0: Owned(10, reset=reset)}, policy).next_offsets == {P0: 20}
    # An earlier commit: a coordinator has lost the last ones.
    assert resume_finished(last, {P0: Owned(10)}, GROUP).next_offsets == {P0: 10}


@pytest.mark.parametrize("resume", [resume_finished, resume_unfinished])
@pytest.mark.parametrize("origin", [Origin.FOREIGN, Origin.WRITTEN], ids=["first start", "second start, with a ledger"])
def test_C2_a_restored_savepoint_needs_its_own_checkpoint(resume: Resume, origin: Origin) -> None:
    """Spark's state in the old checkpoint may be of its own positions."""
    owned = {P0: Owned(4, origin, reset=AppliedReset(3, "a"), is_restored=True)}
    for policy in (CHECKPOINT, FAIL):
        with pytest.raises(
            PositionsDiffer, match=r"restored to a savepoint, .*: flights-0: checkpoint \d0, group 4"
        ) as e:
            resume(LAST, owned, policy)
        assert "checkpoint that the restore has created" in e.value.remedy
    assert resume(LAST, owned, GROUP).next_offsets == {P0: 4}
    # The checkpoint of the restore ends there.
    copied = BatchOffset(1, (OffsetRange(P0, 2, 4),))
    for policy in OnRestart:
        assert resume_finished(copied, owned, policy).next_offsets == {P0: 4}


def test_C2_after_a_kill_the_checkpoint_contains_the_restored_savepoint() -> None:
    """Spark has finished the first batch after the restore, and the group has no commit of it."""
    reset = AppliedReset(3, "a")
    last = replace(LAST, resets={P0: reset})
    for policy in OnRestart:
        found = resume_finished(last, {P0: Owned(10, Origin.FOREIGN, reset=reset, is_restored=True)}, policy)
        assert (found.next_offsets, found.differences) == ({P0: 20}, ())
    # It was killed before: the batch is read again.
    again = resume_unfinished(last, {P0: Owned(10, Origin.FOREIGN, reset=reset, is_restored=True)}, CHECKPOINT)
    assert [str(r) for r in again.replay] == ["flights-0[10,20)"]


def test_F5_a_partition_of_the_checkpoint_is_not_new() -> None:
    """Its committed offset has expired. A state that it had is not an empty one."""
    owned = {P0: Owned.new(0, Origin.EARLIEST), P1: Owned.new(0, Origin.EARLIEST)}
    found = resume_finished(LAST, owned, GROUP).identified(owned)
    assert {tp: it.state for tp, it in found.items()} == {P0: UNNAMED}
    named = {P0: Owned(20, state=Fingerprinted(7))}
    assert resume_finished(LAST, named, GROUP).identified(named)[P0].state == Fingerprinted(7)


def test_X2_what_the_sink_has_written_is_read_again_for_the_states_sake() -> None:
    batch = BatchOffset(3, (OffsetRange(P0, 10, 20), OffsetRange(P1, 5, 6)), {P2: 40})
    owned = {P0: Owned(20, Origin.WRITTEN, epoch=7), P1: Owned(6, Origin.WRITTEN, epoch=7), P2: Owned(40)}
    resumption = resume_unfinished(batch, owned, CHECKPOINT)
    assert (resumption.replay, resumption.written, resumption.differences) == (batch.ranges, batch.ranges, ())
    assert resumption.next_offsets == {P0: 10, P1: 5, P2: 40}
    # The group is not set back: another crash must find the same.
    assert resumption.to_read_again(owned) == {P0: NewPosition(10, 7), P1: NewPosition(5, 7)}
    assert resumption.to_commit(owned) == {}
    ahead = {**owned, P2: Owned(41, epoch=8)}
    assert resume_unfinished(batch, ahead, CHECKPOINT).to_commit(ahead) == {P2: NewPosition(40, 8)}


@pytest.mark.parametrize("policy", OnRestart)
def test_S5_what_another_member_owns_is_left_to_it(policy: OnRestart) -> None:
    batch = BatchOffset(3, (OffsetRange(P0, 10, 20), OffsetRange(P1, 5, 6)), {P2: 40})
    unfinished = resume_unfinished(batch, {P1: Owned(5)}, policy)
    assert (unfinished.replay, unfinished.left) == ((batch.ranges[1],), (batch.ranges[0],))
    assert unfinished.next_offsets == {P1: 5}
    finished = resume_finished(batch, {P1: Owned(5)}, policy)
    assert (finished.next_offsets, finished.left) == ({P1: 6}, ())


@pytest.mark.parametrize("resume", [resume_finished, resume_unfinished])
def test_S5_what_rested_differs_only_if_the_group_is_elsewhere(
    resume: Resume,
) -> None:
    batch = BatchOffset(3, (), {P0: 40, P1: 50, P2: 60})
    owned = {P0: Owned(40), P1: Owned(55), P2: Owned(0, Origin.EARLIEST)}
    assert resume(batch, owned, GROUP).next_offsets == {P0: 40, P1: 55, P2: 60}
    assert resume(batch, owned, CHECKPOINT).next_offsets == {P0: 40, P1: 50, P2: 60}
    assert [str(d) for d in resume(batch, owned, GROUP).differences] == ["flights-1: checkpoint 50, group 55 (+5)"]


@pytest.mark.parametrize("resume", [resume_finished, resume_unfinished])
def test_S5_partitions_that_the_checkpoint_does_not_contain_are_the_groups(
    resume: Resume,
) -> None:
    assert P1 not in resume(LAST, {P0: Owned(20), P1: Owned(3)}, CHECKPOINT).next_offsets


def test_S5_fail_prints_every_difference_and_what_to_do() -> None:
    batch = BatchOffset(3, (OffsetRange(P0, 10, 20),), {P1: 40})
    with pytest.raises(PositionsDiffer) as rejection:
        resume_unfinished(batch, {P0: Owned(12), P1: Owned(35)}, FAIL)
    assert str(rejection.value) == (
        "Checkpoint and group differ: flights-0: checkpoint 10, group 12 (+2); flights-1: checkpoint 40, group 35 (-5). "
        "Restart once with onRestart=group to use the group's positions, or with onRestart=checkpoint to use the checkpoint's."
    )


OWNED = st.builds(Owned, st.integers(0, 30), st.sampled_from(Origin))


@given(st.integers(0, 30), st.integers(0, 30), st.none() | OWNED, st.sampled_from([CHECKPOINT, GROUP]))
def test_S5_what_is_read_again_lies_within_the_batch_and_follows_the_position(
    first: int, length: int, owned: Owned | None, policy: OnRestart
) -> None:
    r = OffsetRange(P0, first, first + length)
    if policy is CHECKPOINT and owned and owned.origin is Origin.WRITTEN:
        assume(owned.next_offset in (r.next_offset, r.end_offset))
    resumption = resume_unfinished(BatchOffset(1, (r,)), {P0: owned} if owned else {}, policy)
    done = () if policy is CHECKPOINT else resumption.written
    assert len(resumption.replay) + len(resumption.left) + len(done) == 1
    for again in resumption.replay:
        assert r.next_offset <= again.next_offset < again.end_offset == r.end_offset
        assert resumption.next_offsets[P0] == again.next_offset
    assert resumption.next_offsets.keys() == ({P0} if owned else set())
