"""S1-S7, G2, G8: what a query does with the calls that Spark makes, in the order Spark makes them; on the fakes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import pytest
from tenacity import wait_none

from streamgroups.checkpoints.offset import decode
from streamgroups.checkpoints.restart import OnRestart
from streamgroups.errors import (
    BrokerUnreachable,
    DataLoss,
    GroupRejected,
    InvalidOption,
    OffsetFormat,
    PositionsDiffer,
    UnknownTopic,
)
from streamgroups.fakes import FakeAdmin, FakeCluster, FakeMember
from streamgroups.groups.description import GroupDescription, GroupMember
from streamgroups.groups.gaps import Cause
from streamgroups.groups.history import Kind
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.groups.membership import InFlight, Membership, Origin
from streamgroups.groups.subscription import Partitions, Pattern, Topics
from streamgroups.partitions import LogEnds, OffsetRange, TopicPartition
from streamgroups.ports import Committed
from streamgroups.positions import AtOffset, AtTime, Latest, Positions, TrimHorizon, WhenNoRecordMatches
from streamgroups.query import continuity, logged_offsets, missing_partitions
from streamgroups.query.data_loss import LossPolicies, OnDataLoss
from streamgroups.query.trigger_limits import Limits
from streamgroups.state.origins import New
from unit_tests.streamgroups.query.spark_model import Run, Settings, World, tp

EXCLUSIVE = Settings(mode=MembershipMode.EXCLUSIVE, on_restart=OnRestart.CHECKPOINT)
TWO_A_TIME = Settings(limits=Limits(max_offsets=2))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(missing_partitions.until_listed, "wait", wait_none())
    return World(2)


def kinds(run: Run) -> list[Kind]:
    return [event.kind for event in run.history.events]


def listed_later(cluster: FakeCluster) -> Callable[[], Mapping[str, int]]:
    """The first list of all topics is that of a broker which has just started: it is empty."""
    topics, empty = cluster.topics, [dict[str, int]()]
    return lambda: empty.pop() if empty else topics()


class Limit:
    """A limit of groups that counts its calls, and rejects a group if it is ``reached``."""

    def __init__(self, *, reached: bool = False) -> None:
        self.reached, self.topics = reached, list[frozenset[str]]()

    def check(self, topics: Collection[str]) -> None:
        """See :meth:`streamgroups.query.query_ports.GroupLimit.check`."""
        self.topics.append(frozenset(topics))
        if self.reached:
            raise GroupRejected("Topic 'flights' is already read by 50 groups.", remedy="Delete one.")


class TestLimitOfGroups:
    def test_G14_only_the_first_query_of_a_new_group_is_compared_with_it(self, world: World) -> None:
        world.produce(3, 2)
        limit = Limit()
        first = Run(world, "alice", group_limit=limit).start()
        assert (first.batch(), limit.topics) == (["flights-0[0,3)", "flights-1[0,2)"], [{"flights"}])
        Run(world, "bob", group_limit=limit).start()
        Run(world, "alice", checkpoint=first.checkpoint, group_limit=limit).start()
        assert limit.topics == [{"flights"}]

    def test_G14_a_query_with_a_checkpoint_continues_although_its_group_has_lost_its_offsets(
        self, world: World
    ) -> None:
        world.produce(3, 2)
        first = Run(world, "alice").start()
        first.batch()
        first.source.stop()
        FakeAdmin(world.cluster).delete_groups(["airline"])
        limit = Limit(reached=True)
        Run(world, "alice", checkpoint=first.checkpoint, group_limit=limit).start().batch()
        assert limit.topics == []

    def test_G14_a_rejected_group_does_not_exist_afterwards(self, world: World) -> None:
        run = Run(world, "alice", group_limit=Limit(reached=True))
        with pytest.raises(GroupRejected, match="already read by 50 groups"):
            run.start()
        assert (run.has_joined, world.committed()) == (False, {})


class TestCallsOfAQuery:
    def test_S1_the_first_offset_comes_from_joining_and_reads_nothing(self, world: World) -> None:
        world.produce(3, 2)
        run = Run(world, "alice")
        assert run.source.initial_offset() == {
            "version": 2,
            "n": 0,
            "ranges": {},
            "resting": {},
            "group": "airline",
        }
        assert set(world.group.owners().values()) == {"alice"}
        assert Kind.PLANNED not in kinds(run)

    def test_S2_a_batch_is_committed_when_the_next_offset_is_requested(self, world: World) -> None:
        world.produce(3, 2)
        run = Run(world, "alice").start()
        run.plan()
        assert world.committed() == {0: 0, 1: 0}
        run.finish()
        assert run.batch() is None
        assert world.committed() == {0: 3, 1: 2}

    @pytest.mark.parametrize("reads_checkpoint", [True, False])
    def test_S8_a_batch_is_done_when_sparks_commit_log_contains_it(self, world: World, reads_checkpoint: bool) -> None:
        world.produce(3, 2)
        run = Run(world, "alice", reads_checkpoint=reads_checkpoint).start()
        run.plan()
        assert not run.source.is_done(1)
        run.finish()
        assert run.source.is_done(1) == reads_checkpoint
        assert not run.source.is_done(2)

    def test_S4_batches_follow_each_other_within_the_limit(self, world: World) -> None:
        world.produce(3, 1)
        run = Run(world, "alice", TWO_A_TIME).start()
        assert [run.batch() for _ in range(3)] == [
            ["flights-0[0,1)", "flights-1[0,1)"],
            ["flights-0[1,3)"],
            None,
        ]

    def test_the_offset_in_the_checkpoint_holds_what_is_read_and_what_rests(self, world: World) -> None:
        world.produce(3)
        run = Run(world, "alice").start()
        run.batch()
        assert run.checkpoint.offsets == [
            '{"version": 2, "n": 1, "ranges": {"flights": {"0": [0, 3]}}, "resting": {"flights": {"1": 0}}, '
            '"cluster": "fake-cluster", "topics": {"flights": "id-of-flights"}, "group": "airline"}'
        ]

    def test_S8_two_members_that_read_the_same_ranges_are_not_taken_for_each_other(self, world: World) -> None:
        world.produce(3, 2)
        alice = Run(world, "alice", run_id="a1").start()
        alice.plan()
        world.group.kill("alice")
        bob = Run(world, "bob", run_id="b1").start()
        bob.plan()
        a, b = (json.loads(run.checkpoint.offsets[-1]) for run in (alice, bob))
        assert (a["n"], a["ranges"]) == (b["n"], b["ranges"])
        assert alice.source.run(a) is not None
        assert bob.source.run(a) is None, "he must not vouch for what she writes late"

    def test_the_same_batch_has_the_same_tasks_however_often_they_are_planned(self, world: World) -> None:
        world.produce(3, 2)
        run = Run(world, "alice")
        start = run.source.initial_offset()
        end = run.source.latest_offset(start, limited=True)
        first = run.source.tasks(start, end)
        world.produce(5, 5)
        assert [run.source.tasks(start, end) for _ in range(3)] == [first] * 3
        assert run.source.tasks(end, end) == ()

    def test_S8_a_query_keeps_the_content_of_its_offsets_and_decodes_none(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As if it had decoded them: the next run does so."""

        def reject(*_: object, **__: object) -> None:
            raise AssertionError

        run = Run(world, "alice", TWO_A_TIME, run_id="a1", form="f").start()
        monkeypatch.setattr(logged_offsets, "decode", reject)
        world.produce(9, 9)
        assert run.batch()
        world.order(2, 3)
        for _ in range(3):
            assert run.batch()
        assert world.applied(), "the offsets contain a reset"
        ((first, one), (second, two)) = run.source._offsets.last
        assert (first, second) == tuple(json.loads(it) for it in run.checkpoint.offsets[-2:])
        assert (one, two) == (decode(first), decode(second))
        assert two.resets

    def test_nothing_new_is_the_start_itself(self, world: World) -> None:
        run = Run(world, "alice")
        start = run.source.initial_offset()
        assert run.source.latest_offset(start, limited=True) is start

    def test_an_idle_query_polls_the_log_at_a_limited_rate_and_a_busy_one_at_once(self, world: World) -> None:
        requested: list[int] = []
        log_ends = world.cluster.log_ends

        def counting(partitions: Collection[TopicPartition]) -> LogEnds:
            requested.append(world.clock())
            return log_ends(partitions)

        run = Run(world, "alice", TWO_A_TIME).start()
        world.cluster.log_ends = counting  # type: ignore[method-assign]
        for _ in range(10):
            assert run.plan() is None
            world.clock.advance(10)
        assert [ms - requested[0] for ms in requested] == [0, 40, 80]
        world.clock.advance(100)
        world.produce(4)
        requested.clear()
        for _ in range(2):
            assert run.plan()
            run.finish()
        assert len(requested) == 2

    def test_report_latest_offset_returns_the_ends_seen_last(self, world: World) -> None:
        run = Run(world, "alice").start()
        assert run.source.report_latest_offset() is None
        world.produce(3, 2)
        run.plan()
        assert run.source.report_latest_offset() == {"flights": {"0": 3, "1": 2}}

    def test_stop_leaves_the_group_once_and_before_a_start_does_nothing(self, world: World) -> None:
        run = Run(world, "alice")
        run.source.stop()
        run.start()
        for _ in range(2):
            run.source.stop()
        assert world.group.owners() == {}
        assert kinds(run).count(Kind.CLOSED) == 1

    def test_G13_gaps_neither_stall_nor_count_as_lost(self, world: World) -> None:
        world.cluster.leave_gap(tp(0), 5)
        world.produce(1)
        world.cluster.leave_gap(tp(0), 2)
        run = Run(world, "alice", TWO_A_TIME).start()
        assert [run.batch() for _ in range(5)] == [[f"flights-0[{a},{a + 2})"] for a in (0, 2, 4, 6)] + [None]
        assert world.committed()[0] == 8


class TestTriggers:
    def test_availableNow_reads_what_was_there_and_ends(self, world: World) -> None:
        world.produce(3, 1)
        run = Run(world, "alice", TWO_A_TIME).start(until_now=True)
        assert run.batch() == ["flights-0[0,1)", "flights-1[0,1)"]
        world.produce(5, 5)
        assert run.batch() == ["flights-0[1,3)"]
        assert run.batch() is None
        assert world.committed() == {0: 3, 1: 1}

    def test_availableNow_does_not_end_because_batches_are_quick(self, world: World) -> None:
        world.produce(6)
        run = Run(world, "alice", TWO_A_TIME).start(until_now=True)
        for _ in range(3):
            assert run.plan()
            run.finish()
        assert run.plan() is None

    def test_availableNow_does_not_end_because_the_log_was_read_in_vain_a_moment_ago(self, world: World) -> None:
        run = Run(world, "alice", TWO_A_TIME).start()
        assert run.plan() is None
        world.produce(1)
        assert run.plan() is None, "too soon: a query without a limit polls again"
        run.source.run_until_now()
        assert run.plan(), "one with a limit would end"

    def test_availableNow_does_not_wait_for_minOffsetsPerTrigger(self, world: World) -> None:
        world.produce(30)
        run = Run(world, "alice", Settings(limits=Limits(max_offsets=20, min_offsets=20))).start(until_now=True)
        assert [run.batch() for _ in range(3)] == [["flights-0[0,20)"], ["flights-0[20,30)"], None]

    def test_availableNow_waits_until_the_group_has_given_out_its_partitions(self, world: World) -> None:
        world.produce(3, 1)
        describe = world.group.describe
        answers = [GroupDescription("airline", "Empty"), GroupDescription("airline", "PreparingRebalance")]
        alice, bob, carol = (Run(world, name) for name in ("alice", "bob", "carol"))
        alice.start()
        assert bob.start().plan()
        world.cluster.host("airline", lambda: answers.pop(0) if answers else describe())
        assert carol.start(until_now=True).batch() is None
        assert not answers

    def test_S3_availableNow_does_not_end_because_the_member_was_fenced(self, world: World) -> None:
        """Such as after a suspension of the machine: the member joins again in the background."""
        world.produce(6)
        run = Run(world, "alice", TWO_A_TIME).start(until_now=True)
        assert run.batch() == ["flights-0[0,2)"]
        describe = world.group.describe

        def in_background() -> GroupDescription:
            world.group.settle()
            return describe()

        world.group.fence("alice")
        world.cluster.host("airline", in_background)
        assert run.batch() == ["flights-0[0,2)"], "the commit of the fenced member was rejected"
        assert [run.batch() for _ in range(3)] == [["flights-0[2,4)"], ["flights-0[4,6)"], None]

    @pytest.mark.parametrize("begins", ["before the poll", "between the wait and the poll"])
    def test_S3_availableNow_does_not_end_while_the_member_may_be_fenced(
        self, world: World, begins: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world.produce(6)
        run = Run(world, "alice", TWO_A_TIME).start(until_now=True)
        assert run.batch() == ["flights-0[0,2)"]
        of_member = FakeMember.__dict__["membership"].fget
        polls_in_doubt = 0

        def membership(member: FakeMember) -> Membership:
            nonlocal polls_in_doubt
            found: Membership = of_member(member)
            if not polls_in_doubt:
                return found
            polls_in_doubt -= 1
            return replace(found, releasing=frozenset(found.owned))

        def follow() -> frozenset[TopicPartition]:
            nonlocal polls_in_doubt
            monkeypatch.setattr(run.participation, "follow", follow_as_before)
            polls_in_doubt = 5
            return frozenset()

        monkeypatch.setattr(FakeMember, "membership", property(membership))
        follow_as_before = run.participation.follow
        if begins == "before the poll":
            polls_in_doubt = 3
        else:
            monkeypatch.setattr(run.participation, "follow", follow)
        assert run.batch() == ["flights-0[2,4)"]

    def test_S3_availableNow_does_not_end_because_a_partition_was_revoked_while_the_batch_was_planned(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world.produce(6, 6)
        run = Run(world, "alice", TWO_A_TIME).start(until_now=True)
        plan = FakeMember.plan

        def revoked(member: FakeMember, number: int, _: Collection[OffsetRange]) -> InFlight:
            monkeypatch.setattr(FakeMember, "plan", plan)
            return plan(member, number, [])

        monkeypatch.setattr(FakeMember, "plan", revoked)
        assert run.batch() == ["flights-0[0,1)", "flights-1[0,1)"]

    def test_availableNow_ends_with_a_warning_if_the_group_does_not_settle(
        self, world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world.produce(6)
        run = Run(world, "alice", TWO_A_TIME).start(until_now=True)
        assert run.batch() == ["flights-0[0,2)"]
        monkeypatch.setattr(run.source._now, "_timeout_ms", 0)
        world.group.fence("alice")
        world.cluster.host("airline", lambda: GroupDescription("airline", "PreparingRebalance"))
        assert run.batch() is None
        assert "The rebalance of group 'airline' did not complete in time; the query ends" in caplog.text

    @pytest.mark.parametrize("others", [(), ("gates",)])
    @pytest.mark.parametrize("policy", OnDataLoss)
    def test_S7_availableNow_handles_a_deleted_topic_by_the_policy(
        self, world: World, policy: OnDataLoss, others: tuple[str, ...]
    ) -> None:
        for name in others:
            world.cluster.create_topic(name, 1)
        world.produce(6)
        topics = Topics(("flights", *others))
        settings = replace(TWO_A_TIME, subscription=topics, on_data_loss=LossPolicies(policy))
        run = Run(world, "alice", settings).start(until_now=True)
        assert run.batch() == ["flights-0[0,2)"]
        world.cluster.delete_topic("flights")
        world.group.settle()
        if policy is OnDataLoss.FAIL:
            with pytest.raises(UnknownTopic, match=r"flights-0 \(position \d\).*not exist any more") as e:
                run.batch()
            assert "Set onDataLoss=skip to continue" in str(e.value)
        else:
            assert run.batch() is None

    def test_S7_the_limit_of_availableNow_leaves_out_a_deleted_topic(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is deleted after the query has joined, and between two requests for the limit."""
        world.cluster.create_topic("gates", 1)
        world.cluster.produce(TopicPartition("gates", 0), 3)
        settings = Settings(subscription=Topics(("flights", "gates")), on_data_loss=LossPolicies(OnDataLoss.SKIP))
        run = Run(world, "alice", settings).start(until_now=True)
        end_offsets = world.cluster.end_offsets

        def deleted(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
            if "flights" in world.cluster.topics():
                world.cluster.delete_topic("flights")
                world.group.settle()
            return end_offsets(partitions)

        monkeypatch.setattr(world.cluster, "end_offsets", deleted)
        monkeypatch.setattr(continuity.until_known, "wait", wait_none())
        assert [run.batch(), run.batch()] == [["gates-0[0,3)"], None]

    def test_availableNow_reads_a_topic_that_a_broker_does_not_list_for_a_moment(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world.produce(3)
        run = Run(world, "alice").start(until_now=True)
        monkeypatch.setattr(world.cluster, "topics", listed_later(world.cluster))
        assert [run.batch(), run.batch()] == [["flights-0[0,3)"], None]

    def test_once_reads_everything_whatever_the_limits(self, world: World) -> None:
        world.produce(30, 20)
        run = Run(world, "alice", TWO_A_TIME).start()
        assert run.batch(limited=False) == ["flights-0[0,30)", "flights-1[0,20)"]

    def test_S4_minOffsetsPerTrigger_waits_no_longer_than_maxTriggerDelay(self, world: World) -> None:
        world.produce(1)
        run = Run(world, "alice", Settings(limits=Limits(min_offsets=10, max_delay_ms=60_000))).start()
        assert run.batch() == ["flights-0[0,1)"]
        world.produce(9)
        assert run.batch() is None
        world.produce(1)
        assert run.batch() == ["flights-0[1,11)"]
        world.produce(1)
        assert run.batch() is None
        world.clock.advance(60_000)
        assert run.batch() == ["flights-0[11,12)"]


def alice_alone() -> tuple[GroupMember, ...]:
    """A group that has given everything to alice."""
    return (GroupMember("alice", "/10.0.0.2", frozenset({tp(0), tp(1)})),)


class TestWarmingUp:
    def test_a_query_that_joins_others_runs_a_batch_without_records_first(self, world: World) -> None:
        world.produce(3, 3)
        alice = Run(world, "alice").start()
        bob = Run(world, "bob")
        start = bob.source.initial_offset()
        warm = bob.source.latest_offset(start, limited=True)
        # A task for each core, and none of alice's partitions.
        assert bob.source.tasks(start, warm) == ((), ())
        assert set(world.group.owners().values()) == {"alice"}
        assert alice.batch() == ["flights-0[0,3)", "flights-1[0,3)"]
        bob.source.latest_offset(warm, limited=True)
        alice.batch()
        assert set(world.group.owners().values()) == {"alice", "bob"}

    def test_in_a_group_without_members_it_joins_at_once(self, world: World) -> None:
        assert Run(world, "alice").start().has_joined

    def test_the_trigger_once_has_no_batch_to_spare(self, world: World) -> None:
        world.produce(3, 3)
        alice = Run(world, "alice").start()
        alice.batch()
        bob = Run(world, "bob").start()
        bob.plan(limited=False)
        assert bob.has_joined
        assert bob.checkpoint.offsets == []

    def test_availableNow_has_none_either(self, world: World) -> None:
        alice = Run(world, "alice").start()
        bob = Run(world, "bob")
        world.cluster.host("airline", lambda: GroupDescription("airline", "Stable", members=alice_alone()))
        assert bob.start(until_now=True).plan() is None
        assert bob.has_joined
        assert alice.checkpoint.offsets == bob.checkpoint.offsets == []

    def test_S5_killed_while_it_warms_up_it_resumes_as_if_it_had_not(self, world: World) -> None:
        world.produce(3)
        alice = Run(world, "alice").start()
        assert alice.batch() == ["flights-0[0,3)"]
        # Its last commit is missing, and another member is there when it comes back.
        world.group.kill("alice")
        bob = Run(world, "bob", Settings(subscription=Topics(("flights",)), limits=Limits(max_offsets=1))).start()
        again = alice.again()
        start = json.loads(alice.checkpoint.offsets[-1])
        warm = again.source.latest_offset(start, limited=True)
        assert (warm["n"], warm["warm_ups"]) == (start["n"], 1)
        alice.checkpoint.offsets.append(json.dumps(warm))
        # Spark runs it again, and so does the source: it reads nothing.
        third = alice.again().start()
        assert third.running == ()
        third.finish()
        bob.source.stop()
        assert third.plan() is None, "what was read before the warm-up is not read again"
        assert world.committed()[0] == 3

    def test_S5_a_second_warm_up_is_another_batch(self, world: World) -> None:
        world.produce(3)
        alice = Run(world, "alice").start()
        alice.batch()
        bob = Run(world, "bob").start()
        bob.plan()
        world.group.kill("bob")
        again = bob.again().start()
        again.plan()
        assert [json.loads(o)["warm_ups"] for o in bob.checkpoint.offsets] == [1, 2]


class TestStarting:
    @pytest.mark.parametrize(
        ("starting", "first"),
        [
            (Positions(TrimHorizon()), ["flights-0[1,6)", "flights-1[0,3)"]),
            (Positions(Latest()), ["flights-0[5,6)", "flights-1[2,3)"]),
            (Positions(AtTime(1_000_050), when_no_record_matches=WhenNoRecordMatches.LATEST), None),
            (Positions(Latest(), {tp(0): AtOffset(3)}), ["flights-0[3,6)", "flights-1[2,3)"]),
        ],
        ids=["oldest", "latest", "at a time", "at an offset"],
    )
    def test_G1_a_new_group_starts_at_the_given_position(
        self, world: World, starting: Positions, first: list[str] | None
    ) -> None:
        world.produce(3, 2)
        world.clock.advance(100)
        world.produce(2)
        world.cluster.delete_records(tp(0), 1)
        run = Run(world, "alice", Settings(starting=starting)).start()
        world.produce(1, 1)
        assert run.batch() == (first or ["flights-0[3,6)", "flights-1[2,3)"])

    def test_G2_a_group_with_offsets_continues_from_them(self, world: World) -> None:
        world.produce(5, 5)
        world.commit(3, 4)
        assert Run(world, "alice").start().batch() == ["flights-0[3,5)", "flights-1[4,5)"]

    def test_G2_a_partition_without_an_offset_in_an_old_group_starts_at_its_earliest_record(self, world: World) -> None:
        world.produce(5, 5)
        world.cluster.delete_records(tp(1), 2)
        world.commit(3)
        run = Run(world, "alice", Settings(starting=Positions(Latest()))).start()
        assert run.batch() == ["flights-0[3,5)", "flights-1[2,5)"]

    def test_G2_a_partition_added_to_a_running_query_starts_at_its_earliest_record(self, world: World) -> None:
        run = Run(world, "alice", Settings(starting=Positions(Latest()))).start()
        world.cluster.add_partitions("flights", 3)
        world.produce(0, 0, 4)
        world.group.settle()
        assert run.batch() == ["flights-2[0,4)"]

    def test_G2_a_query_that_has_read_does_not_start_again_because_its_group_is_gone(self, world: World) -> None:
        """Its checkpoint contains what it has read; partitions added meanwhile are read from their earliest record."""
        run = Run(world, "alice", Settings(starting=Positions(Latest()), on_restart=OnRestart.CHECKPOINT)).start()
        world.produce(2, 2)
        assert run.batch()
        run.source.stop()
        world.cluster.forget("airline")
        world.cluster.add_partitions("flights", 3)
        world.produce(1, 1, 4)
        again = run.again().start()
        assert again.batch() == ["flights-0[2,3)", "flights-1[2,3)", "flights-2[0,4)"]

    def test_G2_where_a_new_group_starts_is_committed_at_once(self, world: World) -> None:
        world.produce(5, 5)
        alice = Run(world, "alice", Settings(starting=Positions(Latest()))).start()
        world.produce(1, 1)
        bob = Run(world, "bob", alice.settings).start()
        world.group.kill("alice")
        assert bob.batch() == ["flights-0[5,6)", "flights-1[5,6)"]

    def test_S4_a_start_at_what_is_not_there_takes_the_nearest_if_loss_is_allowed(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.produce(5, 5)
        world.cluster.delete_records(tp(0), 3)
        starting = Positions(None, {tp(0): AtOffset(1), tp(1): AtOffset(9)})
        with pytest.raises(InvalidOption, match="flights-0 has no offset 1"):
            Run(world, "alice", Settings(starting=starting)).start()
        run = Run(world, "bob", Settings(starting=starting, on_data_loss=LossPolicies(OnDataLoss.EARLIEST))).start()
        assert world.committed() == {0: 3, 1: 5}
        assert "flights-0 has no offset 1; offset 3 is used (onDataLoss=earliest)" in caplog.messages
        world.produce(0, 1)
        assert run.batch() == ["flights-0[3,5)", "flights-1[5,6)"]

    def test_a_pattern_finds_a_topic_made_later(self, world: World) -> None:
        run = Run(world, "alice", Settings(subscription=Pattern(re.compile("orders.*")))).start()
        assert run.batch() is None
        world.cluster.create_topic("orders-2013")
        world.cluster.produce(TopicPartition("orders-2013", 0), 2)
        world.group.settle()
        assert run.batch() == ["orders-2013-0[0,2)"]

    def test_assigned_partitions_are_read_and_committed_without_a_group(self, world: World) -> None:
        world.produce(3, 3)
        run = Run(world, "alice", Settings(subscription=Partitions((tp(1),)))).start()
        assert [run.batch(), run.batch()] == [["flights-1[0,3)"], None]
        assert world.committed() == {1: 3}
        assert world.group.owners() == {}

    @pytest.mark.parametrize(
        ("prepare", "settings", "error"),
        [
            (lambda w: setattr(w.cluster, "reachable", False), Settings(), BrokerUnreachable),
            (lambda w: None, Settings(subscription=Topics(("fligths",))), UnknownTopic),
            (lambda w: None, Settings(starting=Positions(AtOffset(7))), InvalidOption),
            (lambda w: Run(w, "bob").start(), EXCLUSIVE, GroupRejected),
            (lambda w: Run(w, "bob", EXCLUSIVE).start(), Settings(), GroupRejected),
            (lambda w: Run(w, "bob").start(), Settings(subscription=Partitions((tp(0),))), GroupRejected),
        ],
        ids=["no broker", "no topic", "no offset", "not alone", "held exclusively", "assign in a live group"],
    )
    def test_S4_an_error_comes_before_joining(
        self, world: World, prepare: Callable[[World], object], settings: Settings, error: type[Exception]
    ) -> None:
        prepare(world)
        before = world.group.generation
        with pytest.raises(error):
            Run(world, "alice", settings).start()
        assert world.group.generation == before

    def test_a_checkpoint_of_another_source_is_rejected(self, world: World) -> None:
        with pytest.raises(OffsetFormat):
            Run(world, "alice").source.latest_offset({"flights": {"0": 23}}, limited=True)
        assert world.group.generation == 0


class TestRestarting:
    def stopped_after_a_batch(self, world: World, settings: Settings | None = None) -> Run:
        world.produce(3, 2)
        run = Run(world, "alice", settings).start()
        run.batch()
        return run

    def test_S1_a_finished_batch_is_not_read_again_although_its_commit_is_missing(self, world: World) -> None:
        run = self.stopped_after_a_batch(world)
        world.group.kill("alice")
        assert world.committed() == {0: 0, 1: 0}
        world.produce(1)
        assert run.again().start().batch() == ["flights-0[3,4)"]
        assert world.committed() == {0: 3, 1: 2}

    @pytest.mark.parametrize("die", [True, False], ids=["killed", "stopped"])
    def test_S1_an_unfinished_batch_is_read_again_exactly(self, world: World, die: bool) -> None:
        world.produce(3, 2)
        run = Run(world, "alice").start()
        first = run.plan()
        world.group.kill("alice") if die else run.source.stop()
        world.produce(9, 9)
        again = run.again().start()
        assert again.running == first
        again.finish()
        assert again.batch() == ["flights-0[3,12)", "flights-1[2,11)"]

    def test_S1_an_unfinished_first_batch_of_a_group_that_started_at_latest(self, world: World) -> None:
        world.produce(3, 2)
        run = Run(world, "alice", Settings(starting=Positions(Latest()))).start()
        world.produce(1, 1)
        first = run.plan()
        world.group.kill("alice")
        world.cluster.forget("airline")
        assert run.again().start().running == first

    def test_S1_what_another_member_took_over_is_left_to_it(self, world: World) -> None:
        world.produce(3, 2)
        alice = Run(world, "alice").start()
        alice.plan()
        world.group.kill("alice")
        bob = Run(world, "bob").start()
        bob.batch()
        bob.plan()
        again = alice.again().start()
        assert again.running == ()
        again.finish()
        assert again.batch() is None
        assert world.committed() == {0: 3, 1: 2}

    @pytest.mark.parametrize("policy", list(OnRestart))
    def test_S1_what_was_left_to_a_member_that_died_is_not_taken_for_read(
        self, world: World, policy: OnRestart
    ) -> None:
        """The checkpoint records that the batch is done; its second run read nothing of it."""
        world.produce(3, 2)
        alice = Run(world, "alice", Settings(on_restart=policy)).start()
        alice.plan()
        world.group.kill("alice")
        bob = Run(world, "bob").start()
        bob.plan()
        second = alice.again().start()
        assert second.running == ()
        second.finish()
        for name in ("alice", "bob"):
            world.group.kill(name)
        third = alice.again().start()
        assert third.batch() == ["flights-0[0,3)", "flights-1[0,2)"]

    def test_S1_what_was_left_once_and_read_later_is_done(self, world: World) -> None:
        world.produce(3, 2)
        alice = Run(world, "alice").start()
        first = alice.plan()
        world.group.kill("alice")
        Run(world, "bob").start().plan()
        alice.again().start()
        for name in ("alice", "bob"):
            world.group.kill(name)
        third = alice.again().start()
        assert third.running == first
        third.finish()
        world.group.kill("alice")
        fourth = alice.again().start()
        assert fourth.batch() is None
        assert world.committed() == {0: 3, 1: 2}

    @pytest.mark.parametrize(
        ("policy", "then"),
        [
            (OnRestart.GROUP, ["flights-0[1,3)"]),
            (OnRestart.CHECKPOINT, None),
            (OnRestart.FAIL, PositionsDiffer),
        ],
    )
    def test_S5_a_group_moved_while_the_query_was_stopped(
        self, world: World, policy: OnRestart, then: list[str] | type[Exception] | None
    ) -> None:
        run = self.stopped_after_a_batch(world, Settings(on_restart=policy))
        run.batch()
        run.source.stop()
        world.commit(1)
        again = run.again().start()
        if isinstance(then, type):
            with pytest.raises(then, match=r"flights-0: checkpoint 3, group 1 \(-2\)"):
                again.batch()
            return
        assert again.batch() == then
        again.batch()
        assert world.committed() == {0: 3, 1: 2}

    def test_S5_S6_a_group_set_back_to_where_the_last_batch_began_reads_it_again(self, world: World) -> None:
        run = self.stopped_after_a_batch(world)
        run.batch()
        run.source.stop()
        world.commit(0, 0)
        assert run.again().start().batch() == ["flights-0[0,3)", "flights-1[0,2)"]

    def test_S5_a_restarted_query_leaves_the_request_of_committed_offsets_to_its_member(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read, requested = world.cluster.committed, list[set[TopicPartition]]()

        def committed(group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
            if group_id == "airline":
                requested.append(set(partitions))
            return read(group_id, partitions)

        run = self.stopped_after_a_batch(world)
        world.group.kill("alice")
        monkeypatch.setattr(world.cluster, "committed", committed)
        run.again().start().batch()
        assert requested == [set(), {tp(0), tp(1)}]

    def test_S5_a_restart_is_recorded_with_the_differences(self, world: World) -> None:
        run = self.stopped_after_a_batch(world)
        run.batch()
        run.source.stop()
        world.commit(1)
        again = run.again().start()
        again.batch()
        (resumed,) = (e for e in again.history.events if e.kind is Kind.RESUMED)
        assert (resumed.offsets, resumed.batch) == ({tp(0): 1, tp(1): 2}, 1)
        assert resumed.detail == "flights-0: checkpoint 3, group 1 (-2)"

    def test_S1_a_checkpoint_continues_after_the_group_was_deleted(self, world: World) -> None:
        run = self.stopped_after_a_batch(world)
        run.source.stop()
        world.cluster.forget("airline")
        world.produce(1)
        assert run.again().start().batch() == ["flights-0[3,4)"]

    def test_S1_availableNow_runs_the_unfinished_batch_and_the_rest(self, world: World) -> None:
        world.produce(5)
        run = Run(world, "alice", TWO_A_TIME).start(until_now=True)
        run.plan()
        world.group.kill("alice")
        again = run.again().start(until_now=True)
        again.finish()
        assert [again.batch() for _ in range(3)] == [["flights-0[2,4)"], ["flights-0[4,5)"], None]


class TestSharing:
    def test_G11_G12_a_partition_changes_hands_after_its_batch_and_nothing_is_read_twice(self, world: World) -> None:
        world.produce(3, 2)
        alice = Run(world, "alice").start()
        alice.plan()
        bob = Run(world, "bob").start()
        assert bob.batch() is None
        world.produce(1, 1)
        alice.finish()
        assert alice.batch() == ["flights-0[3,4)"]
        assert bob.batch() == ["flights-1[2,3)"]

    def test_G12_a_killed_member_s_batch_is_read_again_by_another_from_the_committed_offset(self, world: World) -> None:
        world.cluster.produce(tp(0), 100)
        alice = Run(world, "alice", Settings(subscription=Topics(("flights",)), limits=Limits(max_offsets=100))).start()
        alice.batch()
        world.cluster.produce(tp(0), 100)
        assert alice.plan() is not None
        assert world.committed()[0] == 100
        bob = Run(world, "bob", alice.settings).start()
        world.group.kill("alice")
        assert bob.batch() == ["flights-0[100,200)"]

    def test_S3_a_zombie_s_commit_is_rejected_and_it_comes_back_as_a_new_member(self, world: World) -> None:
        world.produce(3, 2)
        alice, bob = Run(world, "alice").start(), Run(world, "bob")
        alice.plan()
        world.group.fence("alice")
        bob.start()
        bob.batch()
        bob.batch()
        alice.finish()
        assert alice.batch() is None
        assert world.committed() == {0: 3, 1: 2}
        assert kinds(alice)[-2:] == [Kind.REJECTED, Kind.LOST]
        world.group.settle()
        assert sorted(world.group.owners().values()) == ["alice", "bob"]

    @pytest.mark.parametrize("gone_meanwhile", [True, False])
    def test_G11_a_partition_that_left_during_a_poll_is_not_planned(self, world: World, gone_meanwhile: bool) -> None:
        class Racing(FakeCluster):
            def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
                found = super().end_offsets(partitions)
                if self.race:
                    self.race.pop()()
                return found

            race: list[Callable[[], object]]

        world.cluster.__class__ = Racing
        assert isinstance(world.cluster, Racing)
        world.cluster.race = []
        world.produce(9, 9)
        alice, bob = Run(world, "alice", Settings(limits=Limits(max_offsets=4))).start(), Run(world, "bob")

        def others_read_on() -> None:
            """Fenced, continued by bob, and assigned again at a later position."""
            world.group.fence("alice")
            bob.start()
            bob.batch()
            bob.batch()
            world.group.settle()
            if not gone_meanwhile:
                bob.source.stop()

        world.cluster.race = [others_read_on]
        assert alice.batch() is None
        assert world.committed() == {0: 9, 1: 9}
        assert alice.batch() is None
        assert world.committed() == {0: 9, 1: 9}

    def test_S2_a_commit_rejected_during_a_rebalance_is_repeated(self, world: World) -> None:
        world.produce(3, 2)
        alice = Run(world, "alice").start()
        alice.batch()
        world.group.rebalancing = True
        assert alice.batch() is None
        assert world.committed() == {0: 0, 1: 0}
        world.group.rebalancing = False
        world.group.settle()
        assert world.committed() == {0: 3, 1: 2}

    def test_S4_an_exclusive_query_fails_when_another_member_comes(self, world: World) -> None:
        alice = Run(world, "alice", EXCLUSIVE).start()
        # A member that does not poll before it joins.
        bob = Run(world, "bob")
        world.cluster.host("airline", lambda: GroupDescription("airline", "Empty"))
        bob.start()
        with pytest.raises(GroupRejected, match="requires that this query is the only member"):
            alice.batch()

    @pytest.mark.parametrize("mode", [MembershipMode.SHARED, MembershipMode.EXCLUSIVE])
    @pytest.mark.parametrize("policy", OnDataLoss)
    def test_S11_a_deleted_topic_is_a_loss_and_not_another_member(
        self, world: World, mode: MembershipMode, policy: OnDataLoss
    ) -> None:
        world.cluster.create_topic("flights-2")
        world.produce(3, 2)
        settings = Settings(subscription=Pattern(re.compile("^flights")), mode=mode, on_data_loss=LossPolicies(policy))
        alice = Run(world, "alice", settings).start()
        alice.batch()
        world.cluster.delete_topic("flights-2")
        world.group.settle()
        assert alice.member.membership.owned.keys() == {tp(0), tp(1)}
        world.produce(1, 1)
        if policy is OnDataLoss.FAIL:
            with pytest.raises(UnknownTopic, match=r"flights-2-0 \(position 0\): the topic does not exist any more"):
                alice.batch()
        else:
            assert alice.batch() == ["flights-0[3,4)", "flights-1[2,3)"]

    def test_S4_of_two_exclusive_queries_that_joined_at_once_none_stays_unnoticed(self, world: World) -> None:
        describe = world.group.describe
        Run(world, "alice").start()
        answers = [GroupDescription("airline", "Empty")]
        world.cluster.host("airline", lambda: answers.pop(0) if answers else describe())
        with pytest.raises(GroupRejected, match="has 2 members"):
            Run(world, "bob", EXCLUSIVE).start()
        assert set(world.group.owners().values()) == {"alice"}

    def test_S4_an_exclusive_query_without_all_partitions_names_the_missing_ones(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            "streamgroups.fakes.group.assign", lambda *args: {name: frozenset({tp(0)}) for name in args[1]}
        )
        with pytest.raises(GroupRejected, match=r"owns 1 of 2 partitions after 0\.3 s.*Not assigned: flights-1\. "):
            Run(world, "alice", EXCLUSIVE).start()


class TestStoppedBetweenBatches:
    """S2: the last batch of a query that is stopped, with and without access to its checkpoint."""

    def stopped(self, world: World, *, done: bool, reads_checkpoint: bool = True) -> Run:
        world.produce(3, 2)
        run = Run(world, "alice", reads_checkpoint=reads_checkpoint).start()
        run.plan()
        if done:
            run.finish()
        run.source.stop()
        return run

    @pytest.mark.parametrize("reads_checkpoint", [True, False])
    @pytest.mark.parametrize("done", [True, False])
    def test_S2_the_last_batch_is_committed_if_it_is_known_to_be_done(
        self, world: World, done: bool, reads_checkpoint: bool
    ) -> None:
        run = self.stopped(world, done=done, reads_checkpoint=reads_checkpoint)
        assert world.committed() == ({0: 3, 1: 2} if done and reads_checkpoint else {0: 0, 1: 0})
        assert world.group.owners() == {}
        run.source.stop()

    def test_S2_a_batch_that_was_planned_and_never_begun_is_not_done(self, world: World) -> None:
        world.produce(3, 2)
        run = Run(world, "alice", reads_checkpoint=True).start()
        run.batch()
        world.produce(1, 1)
        run.source.latest_offset(json.loads(run.checkpoint.offsets[-1]), limited=True)
        run.source.stop()
        assert world.committed() == {0: 3, 1: 2}

    def test_S2_a_batch_that_was_replayed_counts_too(self, world: World) -> None:
        checkpoint = self.stopped(world, done=False).checkpoint
        again = Run(world, "alice", checkpoint=checkpoint, reads_checkpoint=True).start()
        assert [str(r) for r in again.running or ()] == ["flights-0[0,3)", "flights-1[0,2)"]
        again.finish()
        again.source.stop()
        assert world.committed() == {0: 3, 1: 2}

    def test_S3_what_went_to_another_member_meanwhile_is_not_committed(self, world: World) -> None:
        world.produce(3, 2)
        run = Run(world, "alice", reads_checkpoint=True).start()
        run.plan()
        world.group.fence("alice")
        bob = Run(world, "bob").start()
        bob.batch()
        bob.batch()
        world.produce(5, 5)
        run.finish()
        run.source.stop()
        assert world.committed() == {0: 3, 1: 2}


def test_the_settings_of_a_query_are_those_of_its_options() -> None:
    from streamgroups_spark.source.source_options import parse

    options = parse({"kafka.bootstrap.servers": "b:9", "group.id": "g", "subscribe": "flights"}, streaming=True)
    for name in Settings.__dataclass_fields__:
        assert hasattr(options, name)


def test_G2_a_partition_that_was_read_and_lost_its_position_is_read_from_its_earliest_record() -> None:
    """The group's offsets are deleted under a running query: the starting position of a new group does not count any more."""
    world = World(1)
    world.produce(5)
    alice = Run(world, "alice", Settings(starting=Positions(Latest()))).start()
    world.produce(3)
    assert alice.batch() == ["flights-0[5,8)"]
    world.cluster.forget("airline")
    world.group.fence("alice")
    world.group.settle()
    found = alice.member.membership.owned[tp(0)]
    assert (found.next_offset, found.origin, found.state) == (0, Origin.EARLIEST, New())


def start_together(world: World, settings: Settings) -> tuple[Run, Run]:
    """Starts two members of a new group, before either owns a partition."""
    alice, bob = Run(world, "alice", settings), Run(world, "bob", settings)
    world.group.rebalancing = True
    alice.start()
    bob.start()
    world.group.rebalancing = False
    world.group.settle()
    return alice, bob


@pytest.mark.parametrize(
    ("policy", "read", "gap"),
    [
        (OnDataLoss.FAIL, None, None),
        (OnDataLoss.EARLIEST, ["flights-0[0,300)"], (100, 0)),
        (OnDataLoss.SKIP, None, (100, 300)),
    ],
)
def test_S11_a_standby_does_not_take_over_at_the_starting_position_of_an_earlier_topic(
    policy: OnDataLoss, read: list[str] | None, gap: tuple[int, int] | None
) -> None:
    """Both have found a new group. Kafka deletes the committed offsets of the other one with the topic."""
    world = World(1)
    world.produce(100)
    settings = Settings(starting=Positions(Latest()), on_data_loss=LossPolicies(policy))
    alice, bob = start_together(world, settings)
    world.produce(5)
    assert [alice.batch(), alice.batch()] == [["flights-0[100,105)"], None]
    assert (bob.batch(), world.group.owners()) == (None, {tp(0): "alice"})
    world.cluster.create_topic("flights", 1)
    world.cluster.forget("airline")
    world.produce(300)
    world.group.kill("alice")
    world.group.settle()
    assert world.committed() == {}, "the position is not committed before the policy has decided"
    if policy is OnDataLoss.FAIL:
        with pytest.raises(DataLoss, match=r"flights-0 \(position 100 of topic id id-of-flights"):
            bob.batch()
        assert (world.committed(), world.gaps()) == ({}, {})
    else:
        assert bob.batch() == read
        (found,) = world.gaps()[0].newest
        assert ((found.from_offset, found.to_offset), found.cause) == (gap, Cause.RECREATED)


@pytest.mark.parametrize("policy", list(OnDataLoss))
@pytest.mark.parametrize("was_owner", [False, True])
def test_G2_a_member_reads_all_records_of_a_partition_that_was_added_after_its_topic_was_recreated(
    policy: OnDataLoss, was_owner: bool
) -> None:
    """The member has seen the earlier topic, but this partition has never had a position."""
    world = World(1)
    settings = Settings(on_data_loss=LossPolicies(policy, by_partition={tp(0): OnDataLoss.SKIP}))
    alice, bob = start_together(world, settings)
    world.produce(5)
    assert (alice.batch(), alice.batch(), bob.batch()) == (["flights-0[0,5)"], None, None)
    owner, other = alice, bob
    if was_owner:
        world.group.fence("alice")
        world.group.settle()
        owner, other = bob, alice
        assert (owner.batch(), other.batch()) == (None, None)
    world.cluster.create_topic("flights", 1)
    world.cluster.forget("airline")
    world.produce(300)
    world.clock.advance(6_000)
    assert owner.batch() is None
    assert [it.to_offset for it in world.gaps()[0].newest] == [300]
    world.cluster.add_partitions("flights", 2)
    world.cluster.produce(tp(1), 50)
    world.group.settle()
    assert world.group.owners() == {tp(0): owner.name, tp(1): other.name}
    assert other.batch() == ["flights-1[0,50)"]
    assert world.gaps().keys() == {0}


@pytest.mark.parametrize("policy", [OnRestart.CHECKPOINT, OnRestart.GROUP])
def test_X2_a_restarted_query_reports_what_its_sink_has_written(policy: OnRestart) -> None:
    """The process died after the sink's commit and before Spark recorded it."""
    world = World(1)
    world.produce(5)
    alice = Run(world, "alice", Settings(mode=MembershipMode.EXCLUSIVE, on_restart=policy)).start()
    ranges = alice.plan()
    alice.member.commit_as_a_sink()
    world.group.kill("alice")
    again = alice.again().start()
    assert (again.source.written.ranges, world.committed()) == (ranges, {0: 5})
    # For its state it reads the batch again; without state there is nothing to read again.
    assert again.running == (ranges if policy is OnRestart.CHECKPOINT else ())
    again.finish()
    again.batch()
    assert world.committed() == {0: 5}
