"""F1-F3: a frozen process that continues later changes nothing, each reset is applied once, and a restart recognizes it.

Each case freezes one process at one step, lets others continue, and then continues the frozen one. ``fence_model`` searches for
other cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.coordination.reset_protocol import members_group_of
from streamgroups.errors import BrokerUnreachable, FencedBatch, FencedMember, PositionsDiffer, StreamGroupsError
from streamgroups.fakes import FakeLedger, Moment
from streamgroups.fakes.group import CommitAnswer
from streamgroups.groups.applied_reset import NO_RESET, AppliedReset
from streamgroups.groups.membership import NewPosition, Origin, Owned
from streamgroups.ledgers.batch_commit import commit_batch, take_over_partitions
from streamgroups.ledgers.fences import epoch_partition, fences, new_epochs
from streamgroups.ledgers.recovery import take_over
from streamgroups.query.trigger_limits import Limits
from unit_tests.streamgroups.query.spark_model import Run, Settings, World, tp

P0 = tp(0)
FIVE = Settings(limits=Limits(max_offsets=5))


class Sink:
    """A query with a ledger, and what it has written."""

    def __init__(self, records: int, settings: Settings = FIVE) -> None:
        self.world, self.ledger, self.settings = World(1), FakeLedger[str]("airline"), settings
        self.world.produce(records)

    def start(self, name: str, of: Run | None = None) -> Run:
        checkpoint = None if of is None else of.checkpoint
        run = Run(self.world, name, self.settings, checkpoint, ledger=self.ledger).start()
        if run.running is not None:
            self.write(run)
            run.finish()
        return run

    def write(self, run: Run) -> None:
        facts = run.facts()
        assert facts is not None
        text = ", ".join(map(str, facts.ranges))
        commit_batch(self.ledger, {"airline": facts.ranges}, text or None, epochs={"airline": facts.epochs})

    def batch(self, run: Run) -> bool:
        self.world.clock.advance(250)
        if run.plan() is None:
            return False
        self.write(run)
        run.finish()
        return True

    def read_all(self, run: Run) -> None:
        while self.batch(run):
            pass

    @contextmanager
    def meanwhile(self, moment: Moment, happens: Callable[[], object]) -> Iterator[None]:
        """Runs this once, when the next transaction of the ledger reaches a moment: its process is frozen there."""
        due = [happens]

        def at(reached: Moment) -> None:
            if reached is moment and due:
                due.pop()()

        self.ledger.at = at
        yield
        assert not due, "the process was not frozen"

    @property
    def position(self) -> int:
        return self.ledger.positions([P0])[P0]


# ---- F1: ledgers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", [Moment.BEGUN, Moment.COMMITTING])
def test_F1_S6_a_frozen_live_reset_does_not_move_the_ledger_of_the_next_owner(moment: Moment) -> None:
    sink = Sink(5)
    alice = sink.start("alice")
    sink.read_all(alice)
    sink.world.order(3)
    sink.world.clock.advance(250)
    runs: list[Run] = []

    def bob_takes_over() -> None:
        sink.world.group.fence("alice")
        runs.append(sink.start("bob"))
        sink.read_all(runs[0])

    with sink.meanwhile(moment, bob_takes_over), _any_outcome():
        alice.plan()
    assert sink.position == 5
    sink.world.produce(1)
    sink.read_all(runs[0])
    assert sink.ledger.written == ["flights-0[0,5)", "flights-0[3,5)", "flights-0[5,6)"]


@contextmanager
def _no_commits(world: World) -> Iterator[None]:
    """The coordinator of the group answers no commit."""
    commit = world.group.commit
    world.group.commit = lambda *_: CommitAnswer.TRY_AGAIN  # type: ignore[method-assign]
    yield
    world.group.commit = commit  # type: ignore[method-assign]


@contextmanager
def _any_outcome() -> Iterator[None]:
    """A frozen process may fail when it continues, or join its group again."""
    with suppress(StreamGroupsError):
        yield


def test_F1_S5_a_frozen_assignment_does_not_apply_the_reset_of_a_tool_again() -> None:
    sink = Sink(5)
    alice = sink.start("alice")
    sink.read_all(alice)
    alice.source.stop()
    sink.world.commit(3)
    runs: list[Run] = []

    def bob_takes_over() -> None:
        sink.world.group.fence("alice")
        runs.append(sink.start("bob"))
        sink.read_all(runs[0])

    again = Run(sink.world, "alice", FIVE, alice.checkpoint, ledger=sink.ledger)
    with sink.meanwhile(Moment.BEGUN, bob_takes_over), _any_outcome():
        again.start()
        sink.world.clock.advance(250)
        again.plan()
    assert sink.position == 5
    sink.world.produce(1)
    sink.read_all(runs[0])
    assert sink.ledger.written == ["flights-0[0,5)", "flights-0[3,5)", "flights-0[5,6)"]


def test_F1_S6_a_frozen_reset_forward_loses_nothing_after_a_later_reset_back() -> None:
    sink = Sink(10)
    alice = sink.start("alice")
    sink.batch(alice)
    sink.world.clock.advance(250)
    sink.world.order(9)
    runs: list[Run] = []

    def bob_applies_a_later_reset() -> None:
        sink.world.group.fence("alice")
        runs.append(sink.start("bob"))
        sink.world.order(0)
        sink.batch(runs[0])

    with sink.meanwhile(Moment.BEGUN, bob_applies_a_later_reset), _any_outcome():
        sink.world.clock.advance(250)
        alice.plan()
    sink.read_all(runs[0])
    assert sink.ledger.written == ["flights-0[0,5)", "flights-0[0,5)", "flights-0[5,10)"]


def test_F1_a_lower_epoch_changes_nothing_even_at_the_same_position() -> None:
    sink = Sink(5)
    alice = sink.start("alice")
    sink.world.clock.advance(250)
    assert alice.plan() is not None
    facts = alice.facts()
    assert facts is not None
    sink.world.group.fence("alice")
    # The position is 0 before and after, so that it alone shows nothing.
    sink.start("bob")
    with pytest.raises(
        FencedBatch, match=r"taken over by another owner \(ownership epoch of the ledger: 3; of the batch: 1\)"
    ):
        commit_batch(sink.ledger, {"airline": facts.ranges}, "alice", epochs={"airline": facts.epochs})
    assert sink.ledger.written == []


@pytest.mark.parametrize(
    ("mine", "stored", "is_owner", "epoch"), [(7, 6, False, 7), (1, 6, True, 7), (6, 6, True, 7), (0, 0, True, 1)]
)
def test_F1_the_epoch_of_a_ledger_only_grows(mine: int, stored: int, is_owner: bool, epoch: int) -> None:
    """Also if the group was deleted, a static member restarts, or the query joins no group."""
    owned = {P0: Owned(5, epoch=mine)}
    assert new_epochs(owned, {epoch_partition(P0): stored}, lambda _: is_owner, group_id="airline") == {P0: epoch}


def test_F1_a_ledger_with_a_later_epoch_rejects_a_member_that_the_broker_does_not_confirm() -> None:
    ledger = FakeLedger[str]("airline")
    ledger_of_bob = {P0: Owned(5, epoch=6)}
    take_over_partitions(ledger, ledger_of_bob, OnRestart.GROUP, group_id="airline", is_owner=lambda _: False)
    before = ledger.positions([P0, *fences({P0: Owned(0)})])
    with pytest.raises(FencedMember, match="assigned flights-0 to another member"):
        take_over_partitions(
            ledger, {P0: Owned(9, epoch=5)}, OnRestart.GROUP, group_id="airline", is_owner=lambda _: False
        )
    assert ledger.positions([P0, *fences({P0: Owned(0)})]) == before


# ---- F2: resets ----------------------------------------------------------------------------------------------------


def test_F2_G8_the_delayed_entry_of_a_frozen_member_does_not_apply_a_reset_again() -> None:
    world = World(1)
    world.produce(10)
    store: Any = world.metadata_store
    alice = Run(world, "alice").start()
    alice.batch()
    write, held = store.write, []

    def frozen(group_id: str, entries: Any) -> None:
        if group_id == members_group_of("airline"):
            held.append((group_id, entries))
        else:
            write(group_id, entries)

    store.write = frozen
    world.produce(1)
    world.clock.advance(1_000)
    alice.batch()
    store.write = write
    assert held
    world.group.fence("alice")
    bob = Run(world, "bob").start()
    bob.batch()
    world.order(2)
    assert _batches(bob) == [["flights-0[2,11)"]]
    for group_id, entries in held:
        write(group_id, entries)
    world.group.kill("bob")
    carol = Run(world, "carol").start()
    assert _batches(carol) == []
    assert world.committed() == {0: 11}


def test_F2_G8_an_entry_that_cannot_be_written_does_not_apply_a_reset_again() -> None:
    world = World(1)
    world.produce(10)
    store: Any = world.metadata_store
    alice = Run(world, "alice").start()
    _batches(alice)
    write = store.write
    reset = world.order(2)

    def down(group_id: str, entries: Any) -> None:
        if group_id == members_group_of("airline") and any(
            f'"applied":"{reset}"' in it.metadata for it in entries.values()
        ):
            raise BrokerUnreachable("No response.")
        write(group_id, entries)

    store.write = down
    assert _batches(alice) == [["flights-0[2,10)"]]
    store.write = write
    world.group.kill("alice")
    bob = Run(world, "bob").start()
    assert _batches(bob) == []


@pytest.mark.parametrize("policy", list(OnRestart))
@pytest.mark.parametrize("killed", [True, False])
def test_F2_S5_a_restart_recognizes_a_live_reset_to_the_start_of_the_last_batch(
    policy: OnRestart, killed: bool
) -> None:
    world = World(2)
    world.produce(3, 2)
    limits = Limits() if killed else Limits(min_offsets=5, max_delay_ms=900_000)
    alice = Run(world, "alice", Settings(on_restart=policy, limits=limits)).start()
    _batches(alice)
    world.clock.advance(250)
    world.order(0, 0 if killed else 2)
    alice.source.latest_offset(alice._start, limited=True)
    moved = world.committed()
    assert moved[0] == 0
    if killed:
        world.group.kill("alice")
    else:
        alice.source.stop()
    world.clock.advance(1_000_000)
    again = alice.again().start()
    if policy is OnRestart.FAIL:
        with pytest.raises(PositionsDiffer, match=r"flights-0: checkpoint 3, group 0 \(-3\)"):
            again.plan()
    elif policy is OnRestart.GROUP:
        assert again.batch() == (["flights-0[0,3)", "flights-1[0,2)"] if killed else ["flights-0[0,3)"])
    else:
        assert again.batch() is None


def test_F2_S6_a_live_reset_whose_commit_is_missing_is_not_applied_again() -> None:
    sink = Sink(10)
    alice = sink.start("alice")
    sink.read_all(alice)
    sink.world.order(3)
    sink.world.clock.advance(250)
    with _no_commits(sink.world):
        # The ledger has the reset, the group has not.
        alice.plan()
    assert (sink.position, sink.world.committed()) == (3, {0: 10})
    sink.world.group.kill("alice")
    bob = sink.start("bob")
    sink.read_all(bob)
    assert sink.ledger.written[2:] == ["flights-0[3,8)", "flights-0[8,10)"]


@pytest.mark.parametrize("policy", list(OnRestart))
def test_F2_S5_a_reset_of_a_tool_is_applied_once_although_the_commit_of_the_member_is_missing(
    policy: OnRestart,
) -> None:
    sink = Sink(10, Settings(on_restart=policy, limits=Limits(max_offsets=5)))
    alice = sink.start("alice")
    sink.read_all(alice)
    alice.source.stop()
    sink.world.commit(3)
    if policy is OnRestart.FAIL:
        bob = sink.start("bob")
        with pytest.raises(PositionsDiffer, match="ledger 10, group 3"):
            sink.batch(bob)
        return
    with _no_commits(sink.world):
        bob = sink.start("bob")
        sink.batch(bob)
    # Its output is written, and its commit is not: the group is at the offset of the tool.
    assert sink.world.committed() == {0: 3}
    sink.world.group.kill("bob")
    carol = sink.start("carol")
    sink.read_all(carol)
    again = ["flights-0[3,8)", "flights-0[8,10)"] if policy is OnRestart.GROUP else []
    assert sink.ledger.written[2:] == again


@pytest.mark.parametrize(
    ("committed", "ledger_reset", "policy", "continues_at"),
    [
        # An import to 10, whatever the metadata of the exported offset was.
        (Owned(10, Origin.FOREIGN, reset=AppliedReset(5, "a")), NO_RESET, OnRestart.GROUP, 10),
        (Owned(10, Origin.FOREIGN, reset=AppliedReset(5, "a")), NO_RESET, OnRestart.CHECKPOINT, 20),
        # The ledger contains the import, and has read on.
        (Owned(10, Origin.FOREIGN, reset=AppliedReset(5, "a")), AppliedReset(5, "a"), OnRestart.GROUP, 20),
        (Owned(10, Origin.FOREIGN, reset=AppliedReset(5, "a")), AppliedReset(6, "b"), OnRestart.GROUP, 20),
        # A live reset in the ledger, whose commit to the group is missing.
        (Owned(30, reset=AppliedReset(5, "a")), AppliedReset(6, "b"), OnRestart.FAIL, 20),
        # The tool lacked the number of the ledger.
        (Owned(10, Origin.FOREIGN, reset=AppliedReset(6, "c")), AppliedReset(6, "b"), OnRestart.GROUP, 10),
        # Only the commit of the last batch is missing.
        (Owned(10, reset=AppliedReset(6, "b")), AppliedReset(6, "b"), OnRestart.FAIL, 20),
    ],
)
def test_F2_S5_the_last_reset_decides_between_ledger_and_group(
    committed: Owned, ledger_reset: AppliedReset, policy: OnRestart, continues_at: int
) -> None:
    decided = take_over({P0: committed}, {P0: 20}, policy, resets={P0: ledger_reset}, group_id="airline")
    assert decided.next_offsets == {P0: continues_at}
    assert decided.resets[P0].contains(ledger_reset) or decided.resets[P0] == committed.reset


# ---- F3: decisions -------------------------------------------------------------------------------------------------


def test_F3_S3_a_restart_that_was_decided_before_a_reassignment_changes_nothing() -> None:
    world = World(2)
    world.produce(3, 2)
    alice = Run(world, "alice").start()
    alice.batch()
    world.group.kill("alice")
    again = alice.again()
    read = again.source._left._read
    due = [True]

    def slowly(partitions: Any) -> Any:
        if due:
            due.pop()
            world.produce(100, 100)
            bob = Run(world, "bob").start()
            _batches(bob)
            world.group.kill("bob")
        return read(partitions)

    again.source._left._read = slowly  # type: ignore[method-assign]
    again.start()
    # It keeps partition 0, which it has not read since. The other one has another owner's position now.
    assert _batches(again) == [["flights-0[3,103)"]]
    assert (due, world.committed()) == ([], {0: 103, 1: 102})


def test_F3_a_move_of_an_earlier_ownership_epoch_is_skipped() -> None:
    world = World(1)
    world.produce(10)
    alice = Run(world, "alice").start()
    _batches(alice)
    epoch = alice.member.membership.owned[P0].epoch
    assert alice.member.move({P0: NewPosition(3, epoch - 1)}, detail="") == frozenset()
    assert alice.member.move({P0: NewPosition(3, epoch)}, detail="") == {P0}
    assert world.committed() == {0: 3}


def _batches(run: Run) -> list[list[str]]:
    found = []
    while (ranges := run.batch()) is not None:
        found.append(ranges)
    return found
