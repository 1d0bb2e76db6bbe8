"""G8, S6: a group of queries is moved while they run, in one step, on the fakes; step by step and in random order."""

from __future__ import annotations

from collections.abc import Collection

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.coordination.admin_metadata_store import AdminMetadataStore
from streamgroups.coordination.reset_protocol import MemberEntry, members_group_of
from streamgroups.errors import BrokerUnreachable, LoginRejected, NotAuthorized, StreamGroupsError
from streamgroups.fakes import FakeAdmin
from streamgroups.groups.history import Event, Kind
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Committed
from streamgroups.query.trigger_limits import Limits
from unit_tests.examples import sequences
from unit_tests.old_positions import reads_at_old_places
from unit_tests.streamgroups.query.spark_model import Checkpoint, Run, Settings, World, tp

TWO_A_TIME = Settings(limits=Limits(max_offsets=2))


@pytest.fixture
def world() -> World:
    return World(2)


def moves(run: Run) -> list[Event]:
    return [event for event in run.history.events if event.kind is Kind.MOVED]


class TestOneQuery:
    def test_S6_a_running_query_continues_at_the_target_of_a_reset_and_keeps_its_checkpoint(self, world: World) -> None:
        world.produce(10, 10)
        run = Run(world, "alice", TWO_A_TIME).start()
        run.batch()
        world.order(8, 0)
        assert run.batch() == ["flights-0[8,9)", "flights-1[0,1)"]
        assert world.committed() == {0: 8, 1: 0}
        (moved,) = moves(run)
        assert moved.offsets == {tp(0): 8, tp(1): 0}
        # What is skipped, and what is read again.
        assert moved.ranges == (OffsetRange(tp(0), 1, 8), OffsetRange(tp(1), 0, 1))
        assert run.batch() == ["flights-0[9,10)", "flights-1[1,2)"]

    def test_S6_a_query_with_small_batches_resets_within_two_though_it_does_not_poll_before_each(
        self, world: World
    ) -> None:
        world.produce(20)
        run = Run(world, "alice", TWO_A_TIME).start()
        # It polls before this one.
        assert run.plan() == (OffsetRange(tp(0), 0, 2),)
        run.finish()
        world.order(15, 0)
        for expected in (OffsetRange(tp(0), 2, 4), OffsetRange(tp(0), 15, 17)):
            assert run.plan() == (expected,)
            run.finish()

    def test_S6_what_is_in_flight_is_finished_first(self, world: World) -> None:
        world.produce(10)
        run = Run(world, "alice", TWO_A_TIME).start()
        assert run.plan() == (OffsetRange(tp(0), 0, 2),)
        world.order(7, 0)
        assert world.applied() == {tp(0): "", tp(1): ""}
        run.finish()
        assert run.batch() == ["flights-0[7,9)"]

    def test_G8_a_reset_request_is_applied_once_also_after_a_restart(self, world: World) -> None:
        world.produce(10)
        run = Run(world, "alice", TWO_A_TIME).start()
        world.order(4, 0)
        assert run.batch() == ["flights-0[4,6)"]
        run.batch()
        world.group.kill("alice")
        again = run.again().start()
        assert again.batch() == ["flights-0[8,10)"]

    def test_G8_a_reset_request_made_while_no_query_ran_is_applied_before_anything_is_read(self, world: World) -> None:
        world.produce(10)
        Run(world, "alice", TWO_A_TIME).start().source.stop()
        world.order(9, 0)
        assert Run(world, "bob", TWO_A_TIME).start().batch() == ["flights-0[9,10)"]

    @pytest.mark.parametrize("policy", [OnRestart.GROUP, OnRestart.CHECKPOINT])
    def test_S6_a_batch_that_was_cut_off_is_not_read_again_where_the_group_is_moved_from(
        self, world: World, policy: OnRestart
    ) -> None:
        world.produce(10, 10)
        run = Run(world, "alice", Settings(limits=Limits(max_offsets=4), on_restart=policy)).start()
        assert run.plan() == (OffsetRange(tp(0), 0, 2), OffsetRange(tp(1), 0, 2))
        world.group.kill("alice")
        world.order(6)
        again = run.again().start()
        # Spark runs the batch that it has logged, without the partitions of the reset.
        assert again.running == (OffsetRange(tp(1), 0, 2),)
        again.finish()
        assert again.batch() == ["flights-0[6,8)", "flights-1[2,4)"]

    def test_S6_availableNow_moves_too(self, world: World) -> None:
        world.produce(10)
        run = Run(world, "alice").start(until_now=True)
        world.order(7, 0)
        assert [run.batch(), run.batch()] == [["flights-0[7,10)"], None]

    def test_a_query_that_may_not_read_the_metadata_group_works_and_reports_that_it_cannot_be_reset(
        self, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def rejected(*_: object) -> None:
            raise NotAuthorized("No.", remedy="Retry.")

        monkeypatch.setattr(world.metadata_store, "read", rejected)
        world.produce(10)
        run = Run(world, "alice", TWO_A_TIME).start()
        assert [run.batch() for _ in range(3)] == [[f"flights-0[{n},{n + 2})"] for n in (0, 2, 4)]
        result = [r.getMessage() for r in caplog.records if "cannot be reset while" in r.getMessage()]
        assert result == ["The offsets of group 'airline' cannot be reset while this query runs: No. Retry."]

    def test_S6_a_denial_after_the_first_pause_does_not_resume_the_partition(
        self, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Others can have applied the reset, because this member has written that it has paused."""
        participation = Run(world, "alice", TWO_A_TIME).start().participation
        participation._had_access, participation._stopped = False, frozenset({tp(0)})

        def denied(*_: object) -> None:
            raise NotAuthorized("No.", remedy="Grant it.")

        monkeypatch.setattr(world.metadata_store, "read", denied)
        world.clock.advance(60_000)
        assert participation.follow() == {tp(0)}
        assert not participation._off
        assert "stay paused for a reset" in caplog.text

    @pytest.mark.parametrize("error", [BrokerUnreachable, LoginRejected])
    def test_a_metadata_group_that_is_unreachable_is_polled_again_later(
        self, world: World, monkeypatch: pytest.MonkeyPatch, error: type[StreamGroupsError]
    ) -> None:
        world.produce(10)
        run = Run(world, "alice", TWO_A_TIME).start()
        run.batch()
        with monkeypatch.context() as patch:

            def away(*_: object) -> None:
                raise error("No answer.", remedy="Wait.")

            patch.setattr(world.metadata_store, "read", away)
            assert run.batch() == ["flights-0[2,4)"]
        world.order(8, 0)
        assert run.batch() == ["flights-0[4,6)"]
        world.clock.advance(30_000)
        assert run.batch() == ["flights-0[8,10)"]

    def test_an_outage_of_the_metadata_groups_is_one_warning_for_each_poll(
        self, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.produce(10)
        run = Run(world, "alice", TWO_A_TIME).start()
        run.batch()

        def away(*_: object) -> None:
            raise BrokerUnreachable("No answer.", remedy="Wait.")

        monkeypatch.setattr(world.metadata_store, "read", away)
        monkeypatch.setattr(world.metadata_store, "write", away)
        for _ in range(4):
            world.clock.advance(5_000)
            run.batch()
        assert [it for it in caplog.messages if "No answer" in it] == [
            "The metadata entries of group 'airline' could not be read or written. They are read again in 30 s: No answer. Wait."
        ]


class TestSeveralQueries:
    def test_S6_a_permission_that_is_missing_for_a_moment_pauses_no_partition_for_good(
        self, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.produce(20, 20)
        alice, bob = (Run(world, name, TWO_A_TIME).start() for name in ("alice", "bob"))
        for _ in range(2):
            alice.batch()
            bob.batch()
        world.group.settle()
        (of_alice,) = (p for p, name in world.group.owners().items() if name == "alice")
        world.clock.advance(250)
        in_flight = bob.plan()
        assert in_flight
        world.order(15, 15)
        assert alice.batch() is None, "it has paused, and waits for the batch of bob"
        with monkeypatch.context() as patch:

            def denied(*_: object) -> None:
                raise NotAuthorized("No.", remedy="Grant it.")

            patch.setattr(world.metadata_store, "read", denied)
            world.clock.advance(250)
            assert alice.batch() is None, "bob can have applied the reset, since alice has paused"
            assert f"No. Grant it. Until then these partitions stay paused for a reset: {of_alice}." in caplog.text
            world.clock.advance(30_000)
            assert alice.batch() is None
        bob.finish()
        assert bob.batch() == [f"{in_flight[0].topic_partition}[15,17)"]
        world.clock.advance(30_000)
        assert alice.batch() == [f"{of_alice}[15,17)"]
        assert "cannot be reset" not in caplog.text

    def test_S6_no_query_begins_at_the_new_position_while_another_is_at_the_old_one(self, world: World) -> None:
        world.produce(20, 20)
        alice, bob = (Run(world, name, TWO_A_TIME).start() for name in ("alice", "bob"))
        for _ in range(2):
            alice.batch()
            bob.batch()
        world.group.settle()
        bob.world.clock.advance(250)
        in_flight = bob.plan()
        assert in_flight
        world.order(15, 15)
        assert [alice.batch() for _ in range(3)] == [None] * 3
        bob.finish()
        assert bob.batch() == [f"{in_flight[0].topic_partition}[15,17)"]
        assert alice.batch() == [f"flights-{1 - in_flight[0].topic_partition.partition}[15,17)"]
        assert not reads_at_old_places([*alice.history.events, *bob.history.events])

    def test_S6_a_partition_is_not_read_if_the_poll_fails_after_its_pause_was_written(
        self, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.produce(20, 20)
        alice, bob = (Run(world, name, TWO_A_TIME).start() for name in ("alice", "bob"))
        for _ in range(2):
            alice.batch()
            bob.batch()
        world.group.settle()
        (of_alice,) = (p for p, name in world.group.owners().items() if name == "alice")
        (of_bob,) = (p for p, name in world.group.owners().items() if name == "bob")
        world.clock.advance(250)
        id_ = world.order(15, 15)
        with monkeypatch.context() as patch:
            read = world.metadata_store.read

            def away(group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
                if world.resets.entries("airline", [of_alice])[of_alice].stopped == id_:
                    raise BrokerUnreachable("No answer.", remedy="Wait.")
                return read(group_id, partitions)

            patch.setattr(world.metadata_store, "read", away)
            patch.setattr(world.resets, "_metadata_store", AdminMetadataStore(FakeAdmin(world.cluster)))
            assert alice.batch() is None
            assert f"stay paused for a reset: {of_alice}." in caplog.text
        assert bob.batch() == [f"{of_bob}[15,17)"], "alice has paused"
        world.clock.advance(30_000)
        assert alice.batch() == [f"{of_alice}[15,17)"]

    def test_S6_the_entries_of_a_zombie_do_not_count(self) -> None:
        world = World(3)
        world.produce(2, 2, 2)
        runs = {name: Run(world, name, TWO_A_TIME).start() for name in ("alice", "bob", "carol")}
        for _ in range(6):
            for run in runs.values():
                run.batch()
            world.group.settle()
        had = next(p for p, name in world.group.owners().items() if name == "alice")
        world.group.fence("alice")
        runs["bob"].batch()
        runs["carol"].batch()
        world.produce(20, 20, 20)
        next_owner = runs[world.group.owners()[had]]
        other = runs["carol" if next_owner is runs["bob"] else "bob"]
        (others,) = (p for p, name in world.group.owners().items() if name == other.name)
        world.clock.advance(250)
        in_flight = next_owner.plan()
        assert in_flight
        assert had in {r.topic_partition for r in in_flight}
        world.resets.write("airline", {had: 15, others: 15})
        # Alice is not informed yet, and stores that she has stopped a partition that the next owner is reading.
        assert runs["alice"].batch() is None
        assert world.resets.entries("airline", [had])[had].instance == "alice"
        assert other.batch() is None
        next_owner.finish()
        next_owner.batch()
        assert other.batch() == [f"{others}[15,17)"]

    def test_S6_what_the_next_owner_has_applied_counts_although_a_zombie_has_replaced_its_entry(
        self, world: World
    ) -> None:
        world.produce(20, 20)
        # Alice has owned both partitions.
        alice, bob = (Run(world, name, TWO_A_TIME).start() for name in ("alice", "bob"))
        for _ in range(2):
            alice.batch()
            bob.batch()
        world.group.settle()
        (of_alice,), (of_bob,) = (
            [p for p, name in world.group.owners().items() if name == it.name] for it in (alice, bob)
        )
        world.clock.advance(250)
        id_ = world.order(15, 15)
        assert alice.batch() is None
        assert bob.batch() == [f"{of_bob}[15,17)"]
        zombie = MemberEntry("zombie", "zombie", world.clock.now_ms, None, stopped=id_)
        world.metadata_store.write(members_group_of("airline"), {of_bob: Committed(0, zombie.encode())})
        assert alice.batch() == [f"{of_alice}[15,17)"]


class Moved(RuleBasedStateMachine):
    """Queries join, read, stop, die, are fenced, come back with their checkpoints, and are moved, in any order."""

    NAMES = ("alice", "bob", "carol")

    def __init__(self) -> None:
        super().__init__()
        self.world = World(3)
        self.world.produce(40, 40, 40)
        self.checkpoints: dict[str, Checkpoint] = {}
        self.runs: dict[str, Run] = {}
        self.last_request = "none"
        self.where: dict[TopicPartition, int] = {}
        self.started = 0
        self.zombies: set[str] = set()
        #: The reset request that was applied when a run planned its reads.
        self.planned_under: dict[str, dict[TopicPartition, str]] = {}

    @precondition(lambda self: len(self.runs) < len(self.NAMES))
    @rule(pick=st.integers(0, 2))
    def start(self, pick: int) -> None:
        resting = [name for name in self.NAMES if name not in self.runs]
        name = resting[pick % len(resting)]
        checkpoint = self.checkpoints.setdefault(name, Checkpoint())
        self.started += 1
        run = Run(self.world, name, Settings(limits=Limits(max_offsets=7)), checkpoint, run=str(self.started))
        self.runs[name] = run
        run.start()
        self.record_plan(run)
        if not run.has_joined:
            self.plan(run)

    @precondition(lambda self: self.runs)
    @rule(pick=st.integers(0, 2), times=st.integers(1, 4))
    def plan_or_finish(self, pick: int, times: int) -> None:
        run = self.runs[self.picked(pick)]
        for _ in range(times):
            self.world.clock.advance(100)
            if run.running is not None:
                run.finish()
            else:
                self.plan(run)

    @precondition(lambda self: self.runs)
    @rule(pick=st.integers(0, 2))
    def kill(self, pick: int) -> None:
        name = self.picked(pick)
        self.runs.pop(name).participation.close()
        self.zombies.discard(name)
        self.world.group.kill(name)

    @precondition(lambda self: self.runs)
    @rule(pick=st.integers(0, 2))
    def stop(self, pick: int) -> None:
        name = self.picked(pick)
        self.runs.pop(name).source.stop()
        self.zombies.discard(name)

    @precondition(lambda self: self.runs.keys() - self.zombies)
    @rule(pick=st.integers(0, 2))
    def fence(self, pick: int) -> None:
        """The group continues without one member, which is not informed."""
        living = sorted(self.runs.keys() - self.zombies)
        name = living[pick % len(living)]
        self.zombies.add(name)
        self.world.group.fence(name)

    @rule()
    def settle(self) -> None:
        self.world.group.settle()
        self.zombies.clear()

    @rule(where=st.tuples(*[st.integers(0, 40)] * 3), count=st.integers(1, 3))
    def move(self, where: tuple[int, ...], count: int) -> None:
        waiting = self.world.resets.waiting("airline", [tp(p) for p in range(3)])
        self.last_request = self.world.order(*where[:count])
        self.where = {p: o.next_offset for p, o in waiting.items()} | {tp(p): n for p, n in enumerate(where[:count])}

    def picked(self, pick: int) -> str:
        return sorted(self.runs)[pick % len(self.runs)]

    def plan(self, run: Run) -> None:
        run.plan()
        self.record_plan(run)

    def record_plan(self, run: Run) -> None:
        self.planned_under[run.name] = self.world.applied()

    @invariant()
    def no_member_reads_at_an_old_position_after_another_has_begun_at_a_new_one(self) -> None:
        if self.last_request not in self.world.applied().values():
            return
        for name in self.runs.keys() - self.zombies:
            # Partitions that it lost while it was a zombie are not its own any more, even if it still reads them.
            in_flight = self.runs[name].member.membership.in_flight if self.runs[name].has_joined else None
            for r in in_flight.ranges if in_flight else ():
                if r.topic_partition in self.where:
                    assert self.planned_under[name].get(r.topic_partition) == self.last_request

    @invariant()
    def time_passes(self) -> None:
        self.world.clock.advance(100)

    @invariant()
    def a_member_that_applied_a_request_has_committed_its_target(self) -> None:
        committed, applied = self.world.committed(), self.world.applied()
        for p, n in self.where.items():
            if applied.get(p) == self.last_request:
                assert committed[p.partition] >= n

    def teardown(self) -> None:
        """The remaining and new members get to the target of the reset, and read to the end."""
        if not self.runs:
            self.start(0)
        self.settle()
        for _ in range(100):
            for run in self.runs.values():
                self.world.clock.advance(100)
                if run.running is not None:
                    run.finish()
                else:
                    self.plan(run)
            self.settle()
        assert self.world.committed() == {0: 40, 1: 40, 2: 40}
        assert all(self.world.applied()[p] == self.last_request for p in self.where)
        for run in self.runs.values():
            run.source.stop()


TestMoved = Moved.TestCase
TestMoved.settings = settings(max_examples=sequences(100), stateful_step_count=30)


def test_the_entries_of_a_query_name_it_and_have_no_end(world: World) -> None:
    Run(world, "alice").start().batch()
    (entry, *_) = world.resets.entries("airline", [tp(0), tp(1)]).values()
    assert (entry.instance, entry.until_ms) == ("alice", None)
    assert world.cluster.describe(members_group_of("airline")).members == ()
