"""S7, S11: a query whose records are gone fails, or continues as configured and records the gap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tenacity import wait_none

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.coordination.reset_protocol import gaps_group_of
from streamgroups.errors import BrokerUnreachable, DataLoss, UnknownTopic
from streamgroups.groups.gaps import Cause
from streamgroups.groups.history import Kind
from streamgroups.groups.membership import Owned
from streamgroups.groups.subscription import Topics
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query import continuity
from streamgroups.query.data_loss import LossPolicies, OnDataLoss
from unit_tests.streamgroups.query.spark_model import Checkpoint, Run, Settings, World, tp

SKIP, EARLIEST, FAIL = (LossPolicies(policy) for policy in (OnDataLoss.SKIP, OnDataLoss.EARLIEST, OnDataLoss.FAIL))
REFRESH_MS = 5_000
FIRST, SECOND = "id-of-flights", "id-1-of-flights"


@pytest.fixture
def world() -> World:
    return World()


def read_five(world: World, settings: Settings, checkpoint: Checkpoint | None = None) -> Run:
    """A query that has read five records of each partition, and committed them."""
    world.produce(5, 5)
    run = Run(world, "alice", settings, checkpoint).start()
    assert run.batch() == ["flights-0[0,5)", "flights-1[0,5)"]
    assert run.batch() is None
    return run


def read_five_of(world: World, settings: Settings) -> Run:
    """A query of two topics that has read five records of each partition, and committed them."""
    world.produce(5, 5)
    run = Run(world, "alice", settings).start()
    assert run.batch() == ["flights-0[0,5)", "flights-1[0,5)", "gates-0[0,5)"]
    assert run.batch() is None
    return run


def recreate(world: World) -> None:
    """Deletes the topic and recreates it, longer than every position."""
    world.cluster.create_topic("flights", 2)
    world.produce(9, 8)
    world.cluster.delete_records(tp(0), 1)


def forget(world: World) -> None:
    """What Kafka does when a topic is deleted: the committed offsets go with it."""
    world.cluster.forget("airline")


def nothing(_: World) -> None:
    """Kafka has not deleted the committed offsets yet."""


def another_cluster(world: World) -> None:
    """Another cluster with a topic of that name at the same address."""
    world.cluster.cluster_id = "another-cluster"
    recreate(world)
    forget(world)


class TestWhileRunning:
    def test_a_recreated_topic_that_is_longer_fails_the_query(self, world: World) -> None:
        run = read_five(world, Settings(on_data_loss=FAIL))
        recreate(world)
        world.clock.advance(REFRESH_MS)
        with pytest.raises(DataLoss, match=rf"flights-0 \(position 5 of topic id {FIRST}, current topic id {SECOND}"):
            run.batch()
        assert world.committed() == {0: 5, 1: 5}
        assert world.gaps() == {}, "nothing was left out"

    @pytest.mark.parametrize(
        ("policies", "read", "places"),
        [(EARLIEST, ["flights-0[1,9)", "flights-1[0,8)"], (1, 0)), (SKIP, None, (9, 8))],
        ids=["earliest", "skip"],
    )
    def test_or_continues_in_the_new_one(
        self, world: World, policies: LossPolicies, read: list[str] | None, places: tuple[int, int]
    ) -> None:
        run = read_five(world, Settings(on_data_loss=policies))
        recreate(world)
        world.clock.advance(REFRESH_MS)
        assert run.batch() == read
        gaps = world.gaps()
        assert [(g.from_offset, g.to_offset, g.cause) for p in (0, 1) for g in gaps[p].newest] == [
            (5, to, Cause.RECREATED) for to in places
        ]
        (gap,) = gaps[0].newest
        assert (gap.before, gap.after) == (TopicIdentity("fake-cluster", FIRST), TopicIdentity("fake-cluster", SECOND))
        assert gap.time_ms == world.clock()
        world.produce(1, 1)
        assert run.batch() == ["flights-0[9,10)", "flights-1[8,9)"]
        assert world.gaps() == gaps, "recorded once"

    def test_each_partition_has_its_policy(self, world: World) -> None:
        by_partition = {tp(0): OnDataLoss.EARLIEST, tp(1): OnDataLoss.SKIP}
        run = read_five(world, Settings(on_data_loss=LossPolicies(by_partition=by_partition)))
        recreate(world)
        world.clock.advance(REFRESH_MS)
        assert run.batch() == ["flights-0[1,9)"]
        assert world.committed() == {0: 1, 1: 8}

    def test_one_partition_that_fails_moves_no_other(self, world: World) -> None:
        run = read_five(world, Settings(on_data_loss=LossPolicies(by_partition={tp(0): OnDataLoss.EARLIEST})))
        recreate(world)
        world.clock.advance(REFRESH_MS)
        with pytest.raises(DataLoss, match=r"at its position: flights-1 \("):
            run.batch()
        assert (world.committed(), world.gaps()) == ({0: 5, 1: 5}, {})

    def test_ids_are_read_once_per_refresh_and_a_shorter_topic_is_noticed_at_once(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = read_five(world, Settings(on_data_loss=FAIL))
        requested: list[object] = []
        identities = world.cluster.identities
        monkeypatch.setattr(
            world.cluster, "identities", lambda topics: (requested.append(topics), identities(topics))[1]
        )
        for _ in range(4):
            world.produce(1, 1)
            assert run.batch()
        assert requested == []
        world.clock.advance(REFRESH_MS)
        world.produce(1, 1)
        assert run.batch()
        assert len(requested) == 1
        world.cluster.create_topic("flights", 2)
        with pytest.raises(DataLoss, match=f"position 10 of topic id {FIRST}, current topic id {SECOND}"):
            run.batch()

    def test_another_cluster_at_the_same_address(self, world: World) -> None:
        run = read_five(world, Settings(on_data_loss=FAIL))
        another_cluster(world)
        world.clock.advance(REFRESH_MS)
        with pytest.raises(DataLoss, match="position 5 of cluster id fake-cluster, current cluster id another-cluster"):
            run.batch()

    @pytest.mark.parametrize("happens", [recreate, another_cluster])
    def test_a_member_that_lost_its_partitions_and_the_group_its_offsets_remembers(
        self, world: World, happens: Callable[[World], None]
    ) -> None:
        run = read_five(world, Settings(on_data_loss=FAIL))
        happens(world)
        world.group.fence("alice")
        forget(world)
        world.group.settle()
        assert run.member.membership.owned[tp(0)].is_silent
        with pytest.raises(DataLoss, match=r"flights-0 \(position 5 of"):
            run.batch()

    def test_the_gap_begins_after_a_batch_that_ran_while_the_topic_was_recreated(self, world: World) -> None:
        world.produce(5, 5)
        run = Run(world, "alice", Settings(on_data_loss=EARLIEST)).start()
        assert run.plan() is not None
        recreate(world)
        world.group.fence("alice")
        forget(world)
        world.group.settle()
        run.finish()
        assert run.batch() == ["flights-0[1,9)", "flights-1[0,8)"]
        assert {p: [(g.from_offset, g.to_offset) for g in gaps.newest] for p, gaps in world.gaps().items()} == {
            0: [(5, 1)],
            1: [(5, 0)],
        }

    def test_records_that_retention_has_deleted(self, world: World) -> None:
        run = read_five(world, Settings(on_data_loss=SKIP))
        world.produce(10)
        world.cluster.delete_records(tp(0), 12)
        world.clock.advance(REFRESH_MS)
        assert run.batch() == ["flights-0[12,15)"]
        (gap,) = world.gaps()[0].newest
        assert (gap.from_offset, gap.to_offset, gap.cause, gap.lost_offsets) == (5, 12, Cause.EXPIRED, 7)
        (event,) = (e for e in run.history.events if e.kind is Kind.GAP)
        assert (event.offsets, event.ranges) == ({tp(0): 12}, (OffsetRange(tp(0), 5, 12),))

    def test_brokers_without_topic_ids_are_checked_by_the_end_only(self, world: World) -> None:
        world.cluster.has_topic_ids = False
        run = read_five(world, Settings(on_data_loss=EARLIEST))
        world.cluster.create_topic("flights", 2)
        world.produce(2, 9)
        world.clock.advance(REFRESH_MS)
        assert run.batch() == ["flights-0[0,2)", "flights-1[5,9)"]
        assert [g.cause for g in world.gaps()[0].newest] == [Cause.TRUNCATED]

    def test_a_gap_that_cannot_be_recorded_is_a_warning_that_names_it(
        self, world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = read_five(world, Settings(on_data_loss=EARLIEST))
        recreate(world)
        world.clock.advance(REFRESH_MS)

        def away(*_: object) -> None:
            raise BrokerUnreachable("The coordinator is away.")

        monkeypatch.setattr(world.metadata_store, "read", away)
        assert run.batch() == ["flights-0[1,9)", "flights-1[0,8)"]
        (warning,) = (m for m in caplog.messages if "not recorded" in m)
        assert "flights-0: recreated, from 5 to 1" in warning
        assert gaps_group_of("airline") in warning

    def test_a_topic_that_is_away_is_waited_for_if_the_query_continues_in_the_next(self, world: World) -> None:
        run = read_five(world, Settings(on_data_loss=EARLIEST))
        world.cluster.delete_topic("flights")
        assert run.batch() is None
        recreate(world)
        world.clock.advance(REFRESH_MS)
        assert run.batch() == ["flights-0[1,9)", "flights-1[0,8)"]


class TestAfterARestart:
    @pytest.mark.parametrize("offsets", [forget, nothing], ids=["offsets deleted", "offsets there"])
    @pytest.mark.parametrize("policy", OnRestart)
    def test_a_recreated_topic_fails_the_query(
        self, world: World, policy: OnRestart, offsets: Callable[[World], None]
    ) -> None:
        run = read_five(world, Settings(on_data_loss=FAIL, on_restart=policy))
        run.source.stop()
        recreate(world)
        offsets(world)
        again, committed = run.again(), world.committed()
        with pytest.raises(DataLoss, match=rf"flights-0 \(position 5 of topic id {FIRST}, current topic id {SECOND}"):
            again.start().batch()
        again.source.stop()
        assert world.committed() == committed

    @pytest.mark.parametrize("is_finished", [True, False])
    @pytest.mark.parametrize("happens", [recreate, another_cluster])
    def test_a_position_of_the_checkpoint_is_not_committed_before_the_query_fails(
        self, world: World, happens: Callable[[World], None], is_finished: bool
    ) -> None:
        """Otherwise the group on the new topic would have a position of the old one."""
        run = read_five(world, Settings(on_data_loss=FAIL))
        if not is_finished:
            world.produce(3, 3)
            world.clock.advance(250)
            assert run.plan() is not None
            world.group.kill("alice")
        else:
            run.source.stop()
        happens(world)
        forget(world)
        again = run.again()
        with pytest.raises(DataLoss, match=r"flights-0 \(position 5 of .*flights-1 \(position 5 of"):
            again.start().batch()
        again.source.stop()
        assert (world.committed(), world.gaps()) == ({}, {})
        assert Run(world, "carol").start().batch() == ["flights-0[1,9)", "flights-1[0,8)"]

    @pytest.mark.parametrize("request_", ["identities", "beginning_offsets", "high_watermarks"])
    def test_a_broker_without_the_metadata_of_the_new_topic_does_not_end_the_check(
        self,
        world: World,
        request_: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        run = read_five(world, Settings(on_data_loss=FAIL))
        run.source.stop()
        recreate(world)
        forget(world)
        again = run.again()
        check, answer = again.source._continuity.check, getattr(world.cluster, request_)

        def unknown(_: object) -> None:
            monkeypatch.setattr(world.cluster, request_, answer)
            raise UnknownTopic("Topic 'flights' does not exist.", remedy="")

        def with_a_slow_broker(*args: Any) -> None:
            monkeypatch.setattr(world.cluster, request_, unknown)
            check(*args)

        monkeypatch.setattr(continuity.until_known, "wait", wait_none())
        monkeypatch.setattr(again.source._continuity, "check", with_a_slow_broker)
        with pytest.raises(DataLoss, match=r"flights-0 \(position 5 of"):
            again.start().batch()
        again.source.stop()
        assert world.committed() == {}

    def test_S5_the_differences_are_logged_before_the_query_fails(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        run = read_five(world, Settings(on_data_loss=FAIL, on_restart=OnRestart.CHECKPOINT))
        run.source.stop()
        recreate(world)
        world.commit(3, 3)
        with pytest.raises(DataLoss, match=r"flights-0 \(position 5 of"):
            run.again().start().batch()
        assert "checkpoint and group differ: flights-0" in caplog.text

    def test_S5_differences_of_many_partitions_are_one_warning_and_one_short_event(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        world = World(partitions=50)
        world.produce(*[5] * 50)
        run = Run(world, "alice", Settings(on_restart=OnRestart.CHECKPOINT)).start()
        assert len(run.batch() or ()) == 50
        assert run.batch() is None
        run.source.stop()
        world.commit(*[3] * 50)
        again = run.again().start()
        again.batch()
        [warning] = [it for it in caplog.messages if "checkpoint and group differ" in it]
        [event] = [it for it in again.history.events if it.kind is Kind.RESUMED]
        for text in (warning, event.detail):
            assert text.endswith("and 40 more")
            assert "flights-0: checkpoint 5, group 3" in text

    @pytest.mark.parametrize("policy", [OnDataLoss.FAIL, OnDataLoss.SKIP])
    def test_a_topic_that_is_deleted_during_the_check_does_not_end_it(
        self, world: World, policy: OnDataLoss, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The policy of the deleted topic decides. The position in the recreated one is not committed."""
        gates = TopicPartition("gates", 0)
        world.cluster.create_topic("gates")
        world.cluster.produce(gates, 5)
        policies = LossPolicies(by_topic={"gates": policy})
        run = read_five_of(world, Settings(subscription=Topics(("flights", "gates")), on_data_loss=policies))
        run.source.stop()
        recreate(world)
        forget(world)
        again = run.again()
        check = again.source._continuity.check

        def deleted(*args: Any) -> None:
            world.cluster.delete_topic("gates")
            check(*args)

        monkeypatch.setattr(again.source._continuity, "check", deleted)
        failing = policy is OnDataLoss.FAIL
        message = r"gates-0 \(position 5\): the topic does not exist" if failing else r"flights-0 \(position 5 of"
        with pytest.raises(UnknownTopic if failing else DataLoss, match=message):
            again.start().batch()
        again.source.stop()
        assert world.committed() == {}

    def test_one_partition_that_fails_commits_no_other(self, world: World) -> None:
        policies = LossPolicies(by_partition={tp(0): OnDataLoss.EARLIEST})
        run = read_five(world, Settings(on_data_loss=policies))
        run.source.stop()
        recreate(world)
        forget(world)
        with pytest.raises(DataLoss, match=r"at its position: flights-1 \("):
            run.again().start().batch()
        assert (world.committed(), world.gaps()) == ({}, {})

    def test_records_that_expired_with_the_offsets_fail_the_query(self, world: World) -> None:
        run = read_five(world, Settings(on_data_loss=FAIL))
        run.source.stop()
        world.produce(10)
        world.cluster.delete_records(tp(0), 12)
        forget(world)
        with pytest.raises(DataLoss, match=r"at its position: flights-0 \(position 5, available offsets \[12, 15\)\)"):
            run.again().start().batch()
        assert world.committed() == {}

    @pytest.mark.parametrize(("policies", "read"), [(EARLIEST, ["flights-0[1,9)", "flights-1[0,8)"]), (SKIP, None)])
    def test_or_continues_in_the_new_one_and_a_second_restart_finds_it_so(
        self, world: World, policies: LossPolicies, read: list[str] | None
    ) -> None:
        run = read_five(world, Settings(on_data_loss=policies, on_restart=OnRestart.FAIL))
        run.source.stop()
        recreate(world)
        forget(world)
        run = run.again().start()
        assert run.batch() == read
        assert run.batch() is None
        assert {p: gaps.count for p, gaps in world.gaps().items()} == {0: 1, 1: 1}
        run.source.stop()
        if policies is SKIP:
            # Nothing was read: only the group has the new position.
            run.settings = Settings(on_data_loss=SKIP)
        assert run.again().start().batch() is None
        assert {p: gaps.count for p, gaps in world.gaps().items()} == {0: 1, 1: 1}

    def test_without_a_checkpoint_the_mark_of_the_commit_decides(self, world: World) -> None:
        read_five(world, Settings()).source.stop()
        recreate(world)
        with pytest.raises(DataLoss, match="the topic was deleted and recreated"):
            Run(world, "bob").start().batch()

    def test_an_unfinished_batch_is_not_read_from_another_topic(self, world: World) -> None:
        run = read_five(world, Settings(on_data_loss=FAIL))
        world.produce(3, 3)
        world.clock.advance(250)
        assert run.plan() is not None
        world.group.kill("alice")
        recreate(world)
        with pytest.raises(DataLoss, match=r"flights-0 \(position 5 of topic id"):
            (failed := run.again()).start()
        failed.source.stop()
        again = Run(world, "alice", Settings(on_data_loss=EARLIEST), run.checkpoint).start()
        assert again.running == (), "the records of the old topic are gone"
        again.finish()
        assert again.batch() == ["flights-0[1,9)", "flights-1[0,8)"]

    def test_a_tool_s_position_has_no_id_and_is_accepted(self, world: World) -> None:
        run = read_five(world, Settings())
        run.source.stop()
        recreate(world)
        world.commit(2, 3)
        again = run.again().start()
        assert again.batch() == ["flights-0[2,9)", "flights-1[3,8)"]
        again.batch()
        mark = world.cluster.committed("airline", [tp(0)])[tp(0)]
        assert Owned.committed(9, mark.metadata).identity == TopicIdentity("fake-cluster", SECOND)

    def test_another_member_has_continued_in_the_new_topic(self, world: World) -> None:
        run = read_five(world, Settings())
        run.source.stop()
        recreate(world)
        bob = Run(world, "bob", Settings(on_data_loss=EARLIEST)).start()
        assert bob.batch() == ["flights-0[1,9)", "flights-1[0,8)"]
        bob.batch()
        bob.source.stop()
        world.produce(1, 1)
        assert run.again().start().batch() == ["flights-0[9,10)", "flights-1[8,9)"], "the group is right"

    def test_the_same_number_in_another_topic_is_a_difference(self, world: World) -> None:
        run = read_five(world, Settings(on_restart=OnRestart.CHECKPOINT))
        run.source.stop()
        world.cluster.create_topic("flights", 2)
        world.produce(5, 5)
        forget(world)
        bob = Run(world, "bob").start()
        bob.batch()
        bob.batch()
        assert world.committed() == {0: 5, 1: 5}
        bob.source.stop()
        with pytest.raises(DataLoss, match=r"position 5 of topic id id-of-flights"):
            run.again().start().batch()

    def test_brokers_that_support_ids_meanwhile(self, world: World) -> None:
        world.cluster.has_topic_ids = False
        run = read_five(world, Settings())
        run.source.stop()
        world.cluster.has_topic_ids = True
        world.produce(1, 1)
        assert run.again().start().batch() == ["flights-0[5,6)", "flights-1[5,6)"]
