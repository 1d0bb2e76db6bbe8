"""W2, W3, W8: the event time of a query's source, from the calls that Spark makes; on the fakes."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping

import pytest

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.coordination.no_metadata import NoMetadata
from streamgroups.coordination.reset_protocol import event_time_group_of
from streamgroups.errors import BrokerUnreachable, InvalidOption, QueryUnknown
from streamgroups.event_time.imported_watermark import ImportStatus
from streamgroups.event_time.observations import TaskObservation
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import PartitionTime
from streamgroups.event_time.stored_time import time_in_entries
from streamgroups.event_time.strategy import Generation, Records
from streamgroups.event_time.time_entries import write_entry
from streamgroups.event_time.unreported_batches import Unreported, still_current, with_finished
from streamgroups.event_time.watermark import NOT_YET, At, Watermark
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.groups.membership import InFlight, Membership, Owned
from streamgroups.groups.subscription import Partitions
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Committed
from streamgroups.query.available_offsets import at_once
from streamgroups.query.imported_time import ImportedTime, StoredWatermarks
from streamgroups.query.trigger_limits import Limits
from streamgroups_spark.bridge.dataclass_json import from_json, to_json
from streamgroups_spark.messages.time import TimeReply, TimeRequest
from streamgroups_spark.source.source_watermark import QueryTime
from unit_tests.streamgroups.query.spark_model import Checkpoint, Run, Settings, World, tp

AS_READ = TimeSettings(Generation())
IDLE = TimeSettings(Generation(), partition_idle_timeout_ms=2_000)


@pytest.fixture
def world() -> World:
    return World(2)


def happen(world: World, partition: int, *times_ms: int) -> None:
    for ms in times_ms:
        world.cluster.produce(tp(partition), timestamp_ms=ms)


def watermark(run: Run, asserted: Watermark = NOT_YET) -> Watermark:
    assert run.time is not None
    return run.time.reply_to(TimeRequest("airline", asserted)).state.watermark


def read_all(run: Run) -> Run:
    while run.batch() is not None:
        pass
    return run


def recorded(world: World, *available: int) -> tuple[Watermark | None, list[str]]:
    """What who watches the group sees: its watermark, and what each partition does to it."""
    found = time_in_entries(
        {
            it: entry.metadata
            for it, entry in world.cluster.committed(event_time_group_of("airline"), [tp(0), tp(1)]).items()
        },
        {tp(p): count for p, count in enumerate(available)},
    )
    return (None, []) if found is None else (found.watermark, [time.state.value for time in found.partitions.values()])


class TestWhileItRuns:
    def test_W2_the_slow_partition_holds_time_back(self, world: World) -> None:
        run = Run(world, "alice", time=AS_READ).start()
        happen(world, 0, 900)
        happen(world, 1, 300)
        run.plan()
        assert watermark(run) == NOT_YET, "a batch in flight emits no watermark"
        run.finish()
        run.batch()
        assert watermark(run) == At(300)

    def test_W2_only_a_batch_that_is_finished_counts(self) -> None:
        """Spark plans the next batch before it reports that the previous one is done."""
        requested: list[InFlight] = []

        def seen(batch: InFlight) -> list[TaskObservation]:
            requested.append(batch)
            return [TaskObservation(tp(0), 0, 1, 900)]

        time = QueryTime("alice", "airline", AS_READ, seen, NoMetadata(), None, lambda: 0)
        ranges = (OffsetRange(tp(0), 0, 1),)
        membership = Membership().assign({tp(0): Owned(0)}).plan(InFlight(2, ranges))
        time.finished(membership, 1)
        assert requested == []
        time.finished(membership, 2)
        assert requested == [InFlight(2, ranges)]

    def test_O3_who_watches_the_group_sees_what_holds_time_back(self, world: World) -> None:
        run = Run(world, "alice", time=IDLE).start()
        assert recorded(world, 0, 0) == (None, [])
        happen(world, 0, 900)
        read_all(run)
        assert recorded(world, 0, 0) == (NOT_YET, ["ahead", "holds back"])
        for _ in range(3):
            world.clock.advance(1_000)
            happen(world, 0, 900)
            run.batch()
        assert watermark(run) == At(900)
        assert recorded(world, 0, 0) == (At(900), ["holds back", "idle"])
        happen(world, 1, 700)
        assert recorded(world, 0, 1) == (NOT_YET, ["ahead", "holds back"]), "it has available records"
        read_all(run)
        assert recorded(world, 0, 0) == (At(700), ["ahead", "holds back"])

    def test_W3_a_partition_without_records_is_idle_after_its_time(self, world: World) -> None:
        run = Run(world, "alice", time=IDLE).start()
        happen(world, 0, 900)
        read_all(run)
        assert watermark(run) == NOT_YET
        world.clock.advance(1_000)
        run.batch()
        assert watermark(run) == NOT_YET
        happen(world, 0, 950)
        world.clock.advance(1_000)
        read_all(run)
        assert watermark(run) == At(950)

    def test_W3_under_backpressure_a_slow_partition_is_never_idle(self, world: World) -> None:
        run = Run(world, "alice", Settings(limits=Limits(max_offsets=1)), time=IDLE).start()
        happen(world, 0, *range(900, 903))
        happen(world, 1, *range(300, 320))
        held_back = 0
        while run.batch() is not None:
            world.clock.advance(10_000)
            if world.committed()[1] < 20:
                held_back += 1
                assert watermark(run) in (NOT_YET, *(At(ms) for ms in range(300, 320)))
        assert held_back >= 18

    def test_W3_records_of_open_transactions_are_available(self, world: World) -> None:
        run = Run(world, "alice", time=IDLE).start()
        happen(world, 0, 900)
        happen(world, 1, 300)
        read_all(run)
        assert run.time is not None
        # To a reader of committed records the partition ends where it has read to.
        for _ in range(2):
            world.clock.advance(5_000)
            happen(world, 1, 301)
            run.time.polled({tp(0): 1, tp(1): 1}, {tp(0): 1, tp(1): 1})
        assert watermark(run) == At(300)

    def test_W8_records_are_counted_once_for_each_partition(self, world: World) -> None:
        settings = TimeSettings(Generation(Records(3), delay_ms=5))
        run = Run(world, "alice", time=settings).start()
        for ms in (100, 101):
            happen(world, 0, ms)
            happen(world, 1, ms)
            read_all(run)
        assert watermark(run) == NOT_YET
        happen(world, 0, 102)
        happen(world, 1, 102)
        assert watermark(read_all(run)) == At(97)

    def test_what_the_query_has_asserted_it_does_not_take_back(self, world: World) -> None:
        run = Run(world, "alice", time=AS_READ).start()
        assert watermark(run, At(500)) == At(500)
        assert watermark(run, NOT_YET) == At(500)

    def test_two_queries_of_a_group_have_the_same_strategy(self, world: World) -> None:
        run = Run(world, "alice", time=AS_READ)
        assert run.time is not None
        with pytest.raises(InvalidOption, match="Two queries of this session read for group 'airline'"):
            run.time.reply_to(TimeRequest("airline", NOT_YET, IDLE))


class TestWhileTheUsersProcessDoesNotRespond:
    """It has the observations of the tasks. None of them is lost, and the query reads on."""

    def test_W1_the_watermark_waits_for_the_event_times_of_the_last_batch(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        run = Run(world, "alice", time=AS_READ).start()
        happen(world, 0, 100)
        happen(world, 1, 100)
        read_all(run)
        happen(world, 0, 200)
        happen(world, 1, 300)
        run.is_user_stalled = True
        run.batch()
        happen(world, 0, 400)
        assert run.batch() == ["flights-0[2,3)"], "the query reads on"
        run.batch()
        assert (watermark(run), recorded(world, 0, 0)[0], world.committed()) == (At(100), At(100), {0: 3, 1: 2})
        assert caplog.text.count("The watermark of group 'airline' does not advance until the event times") == 1
        run.is_user_stalled = False
        world.clock.advance(1_000)
        assert run.batch() is None, "no new record is necessary"
        assert (watermark(run), recorded(world, 0, 0)[0]) == (At(300), At(300))

    def test_W8_the_records_of_each_batch_are_counted(self, world: World) -> None:
        run = Run(world, "alice", time=TimeSettings(Generation(Records(3)))).start()
        for ms in (100, 101, 102):
            happen(world, 0, ms)
            happen(world, 1, ms)
            run.is_user_stalled = ms != 102
            run.batch()
        world.clock.advance(1_000)
        run.batch()
        assert watermark(run) == At(102)

    def test_W3_a_partition_does_not_become_idle_meanwhile(self, world: World) -> None:
        run = Run(world, "alice", time=IDLE).start()
        happen(world, 0, 100)
        happen(world, 1, 100)
        read_all(run)
        happen(world, 1, 300)
        world.clock.advance(5_000)
        happen(world, 0, 150)
        run.is_user_stalled = True
        run.batch()
        happen(world, 1, 900)
        for _ in range(4):
            run.batch()
            world.clock.advance(5_000)
        assert watermark(run) == At(100)
        run.is_user_stalled = False
        run.batch()
        assert watermark(run) == At(150), "idleness begins with the observation"
        world.clock.advance(5_000)
        run.batch()
        assert watermark(run) == At(900)

    def test_W2_a_partition_that_was_reset_meanwhile_keeps_no_later_time(self, world: World) -> None:
        run = Run(world, "alice", Settings(limits=Limits(max_offsets=2)), time=AS_READ).start()
        happen(world, 0, 50)
        happen(world, 1, 100)
        read_all(run)
        happen(world, 0, 900)
        happen(world, 1, 900)
        run.is_user_stalled = True
        run.batch()
        world.order(1, 1)
        seen: list[Watermark] = []
        for _ in range(6):
            world.clock.advance(5_000)
            run.batch()
            seen.append(watermark(run))
            run.is_user_stalled = False
        assert seen[0] == At(50)
        assert seen[-1] == At(900)

    def test_W2_many_batches_need_two_requests_and_no_more_memory(self) -> None:
        """The process is frozen for hours, while the query reads on."""
        requested: list[InFlight] = []
        is_frozen = True

        def seen(batch: InFlight) -> list[TaskObservation]:
            requested.append(batch)
            if is_frozen:
                raise QueryUnknown("The process does not respond.")
            return [
                TaskObservation(r.topic_partition, offset, 1, offset)
                for r in batch.ranges
                for offset in range(r.next_offset, r.end_offset)
            ]

        now_ms = 0
        time = QueryTime("alice", "airline", AS_READ, seen, NoMetadata(), None, lambda: now_ms)
        membership = Membership().assign({tp(0): Owned(0), tp(1): Owned(0)})
        for number in range(1_000):
            ranges = tuple(OffsetRange(tp(p), number, number + 1) for p in (0, 1))
            membership = membership.plan(InFlight(number, ranges))
            time.finished(membership, number)
            membership, _ = membership.finish(number)
        assert {it.number for it in requested} == {0}, "the first one is requested again: its reply can be lost"
        assert len(time._unreported) == 2
        assert time.reply_to(TimeRequest("airline", NOT_YET)).state.watermark == NOT_YET
        requested.clear()
        is_frozen, now_ms = False, 1_000
        time.finished(membership, 999)
        assert requested == [
            InFlight(0, (OffsetRange(tp(0), 0, 1), OffsetRange(tp(1), 0, 1))),
            InFlight(999, (OffsetRange(tp(0), 1, 1_000), OffsetRange(tp(1), 1, 1_000))),
        ]
        assert time.reply_to(TimeRequest("airline", NOT_YET)).state.watermark == At(999)

    def test_W2_the_time_of_a_range_that_is_read_again_is_not_known(self) -> None:
        waiting: tuple[Unreported, ...] = ()
        for number, (start, end) in enumerate([(0, 5), (5, 9), (9, 20), (3, 6), (6, 8)]):
            waiting = with_finished(waiting, InFlight(number, (OffsetRange(tp(0), start, end),)))
        first, later = waiting
        assert later.batch == InFlight(4, (OffsetRange(tp(0), 3, 8),))
        assert still_current(first, [later], {tp(0): 8}) == first.batch.ranges
        assert still_current(later, [], {tp(0): 8}) == later.batch.ranges
        assert still_current(later, [], {tp(0): 6}) == later.batch.ranges, "the position before the last batch"
        assert still_current(later, [], {tp(0): 5}) == (), "the group was reset again"

    def test_a_partition_that_another_member_has_read_meanwhile_has_its_time(self) -> None:
        batches = (
            Unreported.of(InFlight(1, (OffsetRange(tp(0), 5, 9), OffsetRange(tp(1), 5, 9)))),
            Unreported.of(InFlight(2, (OffsetRange(tp(0), 9, 12),))),
        )
        for position, expected in ((4, ()), (5, (0,)), (9, (0,)), (12, (0,)), (13, ())):
            found = still_current(batches[0], batches[1:], {tp(0): position})
            assert tuple(r.topic_partition.partition for r in found) == expected


class TestThatItTravels:
    def test_W3_a_restarted_query_has_the_time_of_a_silent_partition(self, world: World) -> None:
        run = Run(world, "alice", checkpoint=Checkpoint(), time=AS_READ).start()
        happen(world, 0, 300)
        happen(world, 1, 700)
        read_all(run)
        run.source.stop()
        again = Run(world, "alice", checkpoint=run.checkpoint, time=AS_READ).start()
        happen(world, 0, 900)
        assert watermark(read_all(again)) == At(700)

    def test_a_batch_that_runs_again_counts_once(self, world: World) -> None:
        settings = TimeSettings(Generation(Records(2)))
        run = Run(world, "alice", time=settings).start()
        happen(world, 0, 300)
        happen(world, 1, 300)
        run.plan()
        world.group.kill("alice")
        again = Run(world, "alice", checkpoint=run.checkpoint, time=settings).start()
        again.finish()
        read_all(again)
        assert watermark(again) == NOT_YET
        happen(world, 0, 301)
        happen(world, 1, 301)
        assert watermark(read_all(again)) == At(301)

    def test_a_partition_that_is_taken_over_brings_its_time(self, world: World) -> None:
        alice = Run(world, "alice", time=AS_READ).start()
        happen(world, 0, 300)
        happen(world, 1, 700)
        read_all(alice)
        alice.source.stop()
        bob = Run(world, "bob", time=AS_READ).start()
        bob.batch()
        assert watermark(bob) == At(300)

    def test_a_group_that_was_reset_to_the_past_begins_again(self, world: World) -> None:
        alice = Run(world, "alice", time=AS_READ).start()
        happen(world, 0, 300, 400)
        happen(world, 1, 700, 800)
        read_all(alice)
        alice.source.stop()
        world.commit(0, 0)
        bob = Run(world, "bob", time=AS_READ).start()
        bob.plan()
        assert watermark(bob) == NOT_YET, "else what is read again would be late"
        bob.finish()
        assert watermark(read_all(bob)) == At(400)

    def test_W2_a_restart_at_an_older_checkpoint_ignores_the_later_time_of_the_group(self, world: World) -> None:
        run = Run(world, "alice", checkpoint=Checkpoint(), time=AS_READ).start()
        happen(world, 0, 100, 200)
        happen(world, 1, 100, 200)
        read_all(run)
        older = copy.deepcopy(run.checkpoint)
        happen(world, 0, 300, 600)
        happen(world, 1, 300, 600)
        assert watermark(read_all(run)) == At(600)
        run.source.stop()
        settings = Settings(limits=Limits(max_offsets=2), on_restart=OnRestart.CHECKPOINT)
        again = Run(world, "alice", settings, checkpoint=older, time=AS_READ).start()
        assert again.plan() == (OffsetRange(tp(0), 2, 3), OffsetRange(tp(1), 2, 3))
        assert watermark(again, At(200)) == At(200)
        again.finish()
        again.plan()
        assert watermark(again) == At(300)

    def test_W2_a_live_reset_to_earlier_offsets_ignores_the_time_of_the_later_ones(self, world: World) -> None:
        run = Run(world, "alice", Settings(limits=Limits(max_offsets=2)), time=AS_READ).start()
        happen(world, 0, 50, 120, 140, 200)
        happen(world, 1, 100)
        assert watermark(read_all(run)) == At(100)
        world.order(1, 1)
        happen(world, 1, 190, 250)
        seen: list[Watermark] = []
        for _ in range(5):
            world.clock.advance(5_000)
            run.batch()
            seen.append(watermark(run))
        # The records 120 and 140 of partition 0 are read again, and are not late.
        assert list(dict.fromkeys(seen)) == [At(100), At(120), At(140), At(200)]

    def test_W2_a_live_reset_forward_keeps_the_known_time_without_the_stored_one(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read = world.metadata_store.read

        def reject(group_id: str, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Committed]:
            if group_id == event_time_group_of("airline"):
                raise BrokerUnreachable("No answer.")
            return read(group_id, partitions)

        monkeypatch.setattr(world.metadata_store, "read", reject)
        run = Run(world, "alice", time=AS_READ).start()
        happen(world, 0, 700)
        happen(world, 1, 400)
        assert watermark(read_all(run)) == At(400)
        happen(world, 0, 100)
        world.order(2, 1)
        happen(world, 1, 900)
        for _ in range(5):
            world.clock.advance(5_000)
            run.batch()
        assert watermark(run) == At(700)

    def test_without_a_metadata_group_time_waits_for_records(
        self, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def reject(*_: object) -> None:
            raise BrokerUnreachable("No answer.")

        monkeypatch.setattr(world.metadata_store, "write", reject)
        run = Run(world, "alice", time=AS_READ).start()
        happen(world, 0, 300)
        happen(world, 1, 700)
        assert watermark(read_all(run)) == At(300)
        assert "The watermark of group 'airline' cannot be stored" in caplog.text
        assert not world.cluster.committed(event_time_group_of("airline"), [tp(0), tp(1)])


class TestImports:
    def imports(self, world: World) -> ImportedTime:
        stored = StoredWatermarks(world.cluster, world.metadata_store, world.clock)
        return ImportedTime("airline", "weather", stored.read, stored.close, world.clock, at_once, generates=True)

    def store(self, world: World, time_ms: int) -> None:
        for partition in (0, 1):
            entry = write_entry(PartitionTime(time_ms, At(time_ms), next_offset=5), AS_READ)
            world.cluster.commit(event_time_group_of("weather"), {tp(partition): 5}, entry)

    def test_W10_the_later_of_the_own_and_the_imported_watermark_counts_and_does_not_decrease(
        self, world: World
    ) -> None:
        self.store(world, 500)
        run = Run(world, "alice", time=AS_READ, imported=self.imports(world)).start()
        happen(world, 0, 300)
        happen(world, 1, 300)
        assert watermark(read_all(run)) == At(500)
        self.store(world, 400)
        world.clock.advance(1_000)
        assert watermark(run) == At(500)
        for partition in (0, 1):
            happen(world, partition, 700)
        assert watermark(read_all(run)) == At(700)

    def test_W10_the_reply_contains_the_imported_watermark(self, world: World) -> None:
        self.store(world, 500)
        run = Run(world, "alice", time=AS_READ, imported=self.imports(world)).start()
        assert run.time is not None
        reply = run.time.reply_to(TimeRequest("airline", NOT_YET))
        assert from_json(to_json(reply), TimeReply) == reply
        assert reply.imported == ImportStatus("weather", At(500), 0, ("weather",))

    def test_W10_a_query_with_assign_has_the_watermark_of_the_partitions_that_it_reads(self, world: World) -> None:
        assigned = Settings(subscription=Partitions((tp(0),)))
        run = Run(world, "alice", assigned, time=AS_READ).start()
        happen(world, 0, 300)
        happen(world, 1, 100)
        assert watermark(read_all(run)) == At(300)
        reader = StoredWatermarks(world.cluster, world.metadata_store, world.clock)
        assert (reader.read("airline").watermark, reader.read("airline").has_members) == (At(300), False)
        # A later query of the group reads both.
        run.source.stop()
        both = Settings(subscription=Partitions((tp(0), tp(1))))
        happen(world, 0, 400)
        read_all(Run(world, "bob", both, time=AS_READ).start())
        world.clock.advance(10_000)
        assert reader.read("airline").watermark == At(100)

    def test_W10_a_group_with_members_has_all_partitions_of_its_topics(self, world: World) -> None:
        run = Run(world, "alice", time=AS_READ).start()
        happen(world, 0, 300)
        read_all(run)
        reader = StoredWatermarks(world.cluster, world.metadata_store, world.clock)
        assert (reader.read("airline").watermark, reader.read("airline").has_members) == (NOT_YET, True)
        run.source.stop()
        world.clock.advance(10_000)
        assert (reader.read("airline").watermark, reader.read("airline").has_members) == (NOT_YET, False)

    def test_W10_a_group_without_event_time_is_rejected_before_the_query_joins(self, world: World) -> None:
        world.cluster.commit("weather", {tp(0): 5}, CommitMark(False).encode())
        run = Run(world, "alice", time=AS_READ, imported=self.imports(world))
        with pytest.raises(InvalidOption, match="group 'weather', which has committed batches without event time"):
            run.start()
        assert not run.has_joined
