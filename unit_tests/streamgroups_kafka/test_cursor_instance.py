"""G4, G6-G8, G11, G12: instances on a group in memory, step by step and in random order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamgroups.coordination.admin_metadata_store import AdminMetadataStore
from streamgroups.coordination.reset_protocol import MemberEntry, members_group_of
from streamgroups.coordination.reset_requests import ResetRequests
from streamgroups.cursors.cursor_tokens import GroupCursor
from streamgroups.errors import BrokerUnreachable, DataLoss, FencedMember, StreamGroupsError
from streamgroups.fakes import FakeAdmin, FakeClock, FakeCluster, FakeGroup, FakeMember, FakeRecords
from streamgroups.groups.membership import Origin, Owned
from streamgroups.message import Message
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Batch
from streamgroups_kafka.cursors.instance_member import CursorMember
from streamgroups_kafka.cursors.instance_session import InstanceSession, Outside
from streamgroups_kafka.cursors.position_checks import AssignedPositions, TopicIds
from unit_tests.examples import sequences

GROUP = "billing"
PARTITIONS = tuple(TopicPartition("flights", p) for p in range(3))
P0 = PARTITIONS[0]
TIMEOUT_MS = 30_000
#: A request that repeats no other one.
NEW: Mapping[TopicPartition, int] = {}


class World:
    """A stream, a group, and the instances that are in it."""

    def __init__(self, partitions: int = 1) -> None:
        self.clock = FakeClock(1_000_000)
        self.cluster = FakeCluster(self.clock)
        self.cluster.create_topic("flights", partitions)
        self.partitions = PARTITIONS[:partitions]
        self.group = FakeGroup(self.cluster, GROUP)
        self.metadata_store = AdminMetadataStore(FakeAdmin(self.cluster))
        self.records = FakeRecords(self.cluster)
        self.sessions: list[InstanceSession] = []
        self.resets = ResetRequests(self.metadata_store, self.wall_clock, lambda _: self.cluster.topics())

    def wall_clock(self) -> int:
        """The time of the other processes. The machine was paused, so the clock of the leases is behind."""
        return self.clock() + 3_600_000

    def join(
        self, name: str, *, commit_on_get: bool = True, starting: Mapping[TopicPartition, int] | None = None
    ) -> InstanceSession:
        """Adds an instance. By default it has found a new group, and starts at offset 0."""
        session = self.new_session(name, commit_on_get=commit_on_get, starting=starting)
        session.join(1_000, lambda: False)
        self.settle()
        return session

    def new_session(
        self, name: str, *, commit_on_get: bool = True, starting: Mapping[TopicPartition, int] | None = None
    ) -> InstanceSession:
        """Returns an instance that has not joined yet."""
        offsets = dict.fromkeys(self.partitions, 0) if starting is None else starting
        ids = TopicIds(self.cluster, self.clock)
        identity = ids.of(["flights"])["flights"]
        first = {tp: Owned(n, Origin.STARTING, identity) for tp, n in offsets.items()}
        positions = AssignedPositions(self.cluster, ids, GROUP, first)
        session = InstanceSession(
            GroupCursor("flights", GROUP, name, str(len(self.sessions))),
            lambda record: FakeMember(
                self.group,
                name,
                topics=lambda: {"flights"} & self.cluster.topics().keys(),
                first_positions=positions.first,
                record=record,
                take_over=positions.take_over,
            ),
            Outside(self.cluster, self.metadata_store, self.records, self.clock, self.wall_clock, ids),
            lease_timeout_ms=TIMEOUT_MS,
            commit_on_get=commit_on_get,
            commit_timeout_ms=200,
            wait_timeout_ms=0,
        )
        self.sessions.append(session)
        return session

    def settle(self) -> None:
        """The group does what it does in the background, and so do the instances that have not ended."""
        self.group.settle()
        for session in self.sessions:
            if session.ended is None:
                session.commit(session.identity)

    def committed(self, tp: TopicPartition = P0, group: str = GROUP) -> int:
        found = self.cluster.committed(group, [tp]).get(tp)
        return found.next_offset if found else 0

    def request_reset(self, next_offsets: dict[TopicPartition, int]) -> None:
        self.resets.write(GROUP, next_offsets)

    def applied(self) -> dict[TopicPartition, str]:
        return {tp: entry.applied for tp, entry in self.resets.entries(GROUP, self.partitions).items()}

    def close(self) -> None:
        for session in self.sessions:
            session.end("The test is over.")
            session.wait_until_left(10)


@pytest.fixture
def new_world() -> Iterator[Callable[..., World]]:
    worlds: list[World] = []

    def make(partitions: int = 1) -> World:
        worlds.append(World(partitions))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


def offsets(messages: tuple[Message, ...]) -> list[int]:
    return [m.offset for m in messages]


def test_G4_a_request_commits_what_the_one_before_it_returned(new_world: Callable[..., World]) -> None:
    world = new_world()
    world.cluster.produce(P0, 25)
    a = world.join("a")
    seen = []
    cursor = a.identity
    for _ in range(4):
        messages, cursor = a.get(cursor, 10)
        seen.append((len(messages), world.committed()))
    assert seen == [(10, 0), (10, 10), (5, 20), (0, 25)]


def test_G4_a_request_that_failed_can_be_repeated(new_world: Callable[..., World]) -> None:
    world = new_world()
    world.cluster.produce(P0, 25)
    a = world.join("a")
    first, cursor = a.get(a.identity, 10)
    world.cluster.reachable = False
    with pytest.raises(BrokerUnreachable):
        a.get(cursor, 10)
    world.cluster.reachable = True
    assert offsets(first) + offsets(a.get(cursor, 10)[0]) == list(range(20))


@pytest.mark.parametrize("commit_on_get", [True, False])
def test_G4_a_cursor_that_is_used_again_returns_the_same_messages(
    new_world: Callable[..., World], commit_on_get: bool
) -> None:
    """Messages of other partitions arrive in between, which a new request would return first."""
    world = new_world(3)
    a = world.join("a", commit_on_get=commit_on_get)
    cursor, chain = a.identity, list[tuple[GroupCursor, tuple[Message, ...], GroupCursor]]()
    for tp in reversed(PARTITIONS):
        world.cluster.produce(tp, 5)
        messages, after = a.get(cursor, 10)
        assert [m.topic_partition for m in messages] == [tp] * 5
        chain.append((cursor, messages, after))
        cursor = after
        world.cluster.produce(PARTITIONS[2], 1)
        messages, after = a.get(cursor, 10)
        chain.append((cursor, messages, after))
        cursor = after
        assert a.get(chain[-1][0], 10) == chain[-1][1:]
        assert a.get(chain[-1][0], 2)[0] == chain[-1][1][:2]
    if not commit_on_get:
        for cursor, *found in reversed(chain):
            assert list(a.get(cursor, 10)) == found
        assert offsets(a.get(chain[0][0], 2)[0]) == offsets(chain[0][1])[:2]


def test_G4_a_cursor_that_is_used_again_with_a_greater_limit_returns_further_messages(
    new_world: Callable[..., World],
) -> None:
    world = new_world(3)
    for tp in PARTITIONS:
        world.cluster.produce(tp, 10)
    a = world.join("a", commit_on_get=False)
    few, _ = a.get(a.identity, 4)
    more, after = a.get(a.identity, 12)
    assert [(m.partition, m.offset) for m in more] == [(0, n) for n in range(10)] + [(1, 0), (1, 1)]
    assert set(few) <= set(more)
    assert (a.get(a.identity, 4)[0], a.get(a.identity, 12)) == (few, (more, after))
    assert a.get(a.identity, 8)[0] == more[:8]


def test_G12_a_cursor_before_later_commits_continues_after_them(new_world: Callable[..., World]) -> None:
    world = new_world()
    world.cluster.produce(P0, 20)
    a = world.join("a")
    _, second = a.get(a.identity, 10)
    _, third = a.get(second, 10)
    assert a.get(third, 10)[0] == ()
    assert (a.get(a.identity, 10)[0], world.committed()) == ((), 20)
    world.cluster.produce(P0, 5)
    assert offsets(a.get(a.identity, 10)[0]) == list(range(20, 25))


def test_G6_an_instance_with_a_request_in_progress_is_not_reported_as_gone(new_world: Callable[..., World]) -> None:
    """Its stored deadline must never be too early: others would treat it as gone (G9)."""
    world = new_world()
    world.cluster.produce(P0, 5)
    a = world.join("a")

    class SlowRecords(FakeRecords):
        """A broker that takes longer than the instance may be silent."""

        def read(
            self, positions: Mapping[TopicPartition, int], limit: int, until: Mapping[TopicPartition, int] = NEW
        ) -> Batch:
            world.clock.advance(TIMEOUT_MS + 10_000)
            return super().read(positions, limit, until)

    a._outside = replace(a._outside, records=SlowRecords(world.cluster))
    a.get(a.identity, 10)
    until_ms = world.resets.entries(GROUP, [P0])[P0].until_ms
    assert until_ms is not None
    assert until_ms >= world.clock() + TIMEOUT_MS


def test_G8_the_response_to_an_earlier_commit_does_not_count_for_a_later_one(new_world: Callable[..., World]) -> None:
    """A group that is moved twice to the same place has been moved when the second commit is accepted."""
    world = new_world()
    member = CursorMember(
        lambda record: FakeMember(
            world.group,
            "a",
            topics=lambda: ["flights"],
            first_positions=lambda missing: {tp: Owned(0, Origin.STARTING) for tp in missing},
            record=record,
        ),
        commit_timeout_ms=50,
    )
    member.join(1_000)
    world.group.settle()
    first = member.owned
    assert member.move(first, detail="") == {P0}
    # F3: the first move has begun another ownership epoch.
    assert member.move(first, detail="") == frozenset()
    world.group.rebalancing = True
    with pytest.raises(BrokerUnreachable, match="flights-0"):
        member.move(member.owned, detail="")
    member.close()


def test_G14_an_instance_has_joined_when_the_starting_offsets_of_its_group_are_committed(
    new_world: Callable[..., World],
) -> None:
    """The limit of groups counts groups with committed offsets, so the next group is checked after that commit."""
    world = new_world()
    world.group.rebalancing = True
    polls = 0

    def accept_commits_later() -> bool:
        nonlocal polls
        polls += 1
        if polls == 3:
            assert world.cluster.committed(GROUP, [P0]) == {}
            world.group.rebalancing = False
            world.group.settle()
        return polls == 100

    member = CursorMember(
        lambda record: FakeMember(
            world.group,
            "a",
            topics=lambda: ["flights"],
            first_positions=lambda missing: {tp: Owned(0, Origin.STARTING) for tp in missing},
            record=record,
        )
    )
    member.join(60_000, accept_commits_later)
    assert polls == 3
    assert world.cluster.committed(GROUP, [P0])[P0].next_offset == 0
    member.close()


def test_S11_a_topic_that_is_recreated_is_recognised_at_the_metadata_refresh(new_world: Callable[..., World]) -> None:
    """The new topic is longer than the position, and no rebalance comes."""
    world = new_world()
    world.cluster.produce(P0, 25)
    a = world.join("a")
    _, cursor = a.get(a.identity, 10)
    world.cluster.create_topic("flights", 1)
    world.cluster.produce(P0, 25)
    world.clock.advance(5_000)
    for request in (lambda: a.get(cursor, 10), lambda: a.commit(cursor)):
        with pytest.raises(DataLoss, match=r"position 0 of topic id id-of-flights.*now topic id id-1-of-flights"):
            request()
    assert world.committed() == 0
    world.request_reset({P0: 0})
    assert offsets(a.get(cursor, 10)[0]) == list(range(10)), "update_group accepts the new topic"


def test_S11_a_group_that_is_moved_before_the_metadata_refresh_continues(new_world: Callable[..., World]) -> None:
    world = new_world()
    world.cluster.produce(P0, 25)
    a = world.join("a")
    _, cursor = a.get(a.identity, 10)
    world.cluster.create_topic("flights", 1)
    world.cluster.produce(P0, 25)
    world.request_reset({P0: 3})
    _, cursor = a.get(cursor, 10)
    world.clock.advance(5_000)
    assert offsets(a.get(cursor, 10)[0]) == list(range(13, 23))


def recreate(world: World, records: int, *, keeps_offsets: bool = False) -> None:
    """Deletes the topic, so the group loses its partitions and offsets, and creates a longer one of the same name."""
    world.cluster.delete_topic("flights")
    world.group.settle()
    if not keeps_offsets:
        world.cluster.forget(GROUP)
    world.cluster.create_topic("flights", len(world.partitions))
    world.cluster.produce(P0, records)
    world.group.settle()


@pytest.mark.parametrize(
    ("starting", "lost"), [({P0: 100}, 100), ({}, 0)], ids=["of a new group", "of an existing group"]
)
def test_S11_a_position_is_not_used_after_its_topic_was_recreated(
    new_world: Callable[..., World], starting: dict[TopicPartition, int], lost: int
) -> None:
    """Kafka deletes the committed offsets with the topic."""
    world = new_world()
    world.cluster.produce(P0, 100)
    a = world.join("a", starting=starting)
    world.cluster.produce(P0, 50)
    messages, cursor = a.get(a.identity, 10)
    assert offsets(messages)[0] == lost
    a.commit(cursor)
    recreate(world, 300)
    with pytest.raises(DataLoss, match=rf"position {lost} of topic id id-of-flights.*now topic id id-1-of-flights"):
        a.get(cursor, 10)
    assert world.cluster.committed(GROUP, [P0]) == {}
    again = world.join("a", starting={P0: 0})
    assert offsets(again.get(again.identity, 10)[0]) == list(range(10))


@pytest.mark.parametrize(
    ("keeps_offsets", "remedy"),
    [
        (False, "Create the cursor again: it starts at its type."),
        (True, f"Reset the offsets with update_group, or with streamgroups groups reset {GROUP} --topic flights"),
    ],
    ids=["offsets deleted", "offsets there"],
)
def test_S11_the_remedy_for_a_recreated_topic_is_one_that_the_group_accepts(
    new_world: Callable[..., World], keeps_offsets: bool, remedy: str
) -> None:
    """Kafka deletes the committed offsets some time after the topic. update_group rejects a group without any."""
    world = new_world()
    world.cluster.produce(P0, 50)
    a = world.join("a", starting={})
    _, cursor = a.get(a.identity, 10)
    a.commit(cursor)
    recreate(world, 300, keeps_offsets=keeps_offsets)
    with pytest.raises(DataLoss) as e:
        a.get(cursor, 10)
    assert e.value.remedy.startswith(remedy)


def test_S11_an_instance_without_partitions_does_not_take_over_at_a_position_of_an_earlier_topic(
    new_world: Callable[..., World],
) -> None:
    world = new_world()
    world.cluster.produce(P0, 100)
    a, b = world.join("a", starting={P0: 100}), world.join("b", starting={P0: 100})
    assert world.group.owners() == {P0: "a"}
    a.end("It has no more work.")
    a.wait_until_left(10)
    recreate(world, 300)
    with pytest.raises(DataLoss, match="position 100 of topic id id-of-flights"):
        b.get(b.identity, 10)


def test_G2_a_partition_that_was_added_after_a_reset_to_the_recreated_topic_is_read_from_its_start(
    new_world: Callable[..., World],
) -> None:
    world = new_world()
    a = world.join("a", starting={})
    world.cluster.create_topic("flights", 1)
    world.request_reset({P0: 0})
    _, cursor = a.get(a.identity, 10)
    world.clock.advance(5_000)
    world.cluster.add_partitions("flights", 2)
    world.cluster.produce(PARTITIONS[1], 5)
    world.group.settle()
    assert offsets(a.get(cursor, 10)[0]) == list(range(5))


def test_G4_a_commit_that_is_not_answered_in_time_is_waited_for_again(new_world: Callable[..., World]) -> None:
    world = new_world()
    world.cluster.produce(P0, 25)
    a = world.join("a")
    _, cursor = a.get(a.identity, 10)
    world.group.rebalancing = True
    for _ in range(2):
        with pytest.raises(BrokerUnreachable, match="did not respond to a commit of flights-0"):
            a.get(cursor, 10)
    world.group.rebalancing = False
    world.group.settle()
    assert offsets(a.get(cursor, 10)[0]) == list(range(10, 20))
    assert world.committed() == 10


def test_G13_a_gap_at_the_end_is_committed_too(new_world: Callable[..., World]) -> None:
    world = new_world()
    world.cluster.produce(P0, 3)
    world.cluster.leave_gap(P0, 4)
    a = world.join("a")
    messages, cursor = a.get(a.identity, 10)
    assert len(messages) == 3
    a.get(cursor, 10)
    assert world.committed() == 7


def test_G6_a_lease_counts_from_the_last_request(new_world: Callable[..., World]) -> None:
    world = new_world()
    a = world.join("a")
    world.clock.advance(TIMEOUT_MS)
    a.heartbeat()
    world.clock.advance(TIMEOUT_MS)
    assert not a.end_if_silent()
    world.clock.advance(1)
    assert a.end_if_silent()
    a.wait_until_left(10)
    assert world.group.owners() == {}
    with pytest.raises(FencedMember, match=r"'a' left group 'billing': it sent no request for 30\.0 s"):
        a.heartbeat()


def test_a_finalizer_on_the_thread_of_its_instance_can_leave_but_send_no_request(
    new_world: Callable[..., World],
) -> None:
    world = new_world()
    a = world.join("a")
    with pytest.raises(StreamGroupsError, match="A finalizer sent a request of instance 'a'"):
        a._owner.start(lambda: a.commit(a.identity)).result(10)
    assert a.lease.requests == 0

    def leave() -> None:
        a.end("A finalizer called leave_group.")
        a.wait_until_left()

    a._owner.start(leave).result(10)
    a.wait_until_left(10)
    assert world.group.owners() == {}


def test_G6_a_request_of_an_expired_instance_is_rejected_even_without_a_check_before(
    new_world: Callable[..., World],
) -> None:
    world = new_world()
    a = world.join("a")
    world.clock.advance(TIMEOUT_MS + 1)
    with pytest.raises(FencedMember):
        a.get(a.identity, 10)
    a.wait_until_left(10)
    assert a.has_departed


def test_G7_an_instance_that_was_evicted_receives_an_error_and_ends(new_world: Callable[..., World]) -> None:
    world = new_world()
    world.cluster.produce(P0, 25)
    a = world.join("a", commit_on_get=False)
    _, cursor = a.get(a.identity, 10)
    world.group.fence("a")
    with pytest.raises(FencedMember, match=r"fenced instance 'a'.*rejected its commit of flights-0 up to 10"):
        a.commit(cursor)
    assert world.committed() == 0
    with pytest.raises(FencedMember, match="fenced instance"):
        a.get(cursor, 10)


def test_G7_what_a_cursor_covers_is_committed_though_more_was_given(new_world: Callable[..., World]) -> None:
    world = new_world()
    world.cluster.produce(P0, 25)
    a = world.join("a", commit_on_get=False)
    _, first = a.get(a.identity, 10)
    _, second = a.get(first, 10)
    a.commit(first)
    assert world.committed() == 10
    assert a.commit(second).pending == ()
    assert world.committed() == 20


def test_G12_messages_of_a_partition_that_left_and_came_back_while_they_were_read_are_not_given_out(
    new_world: Callable[..., World],
) -> None:
    """Meanwhile another instance may have been given them."""
    world = new_world()
    alice = world.join("alice")
    world.cluster.produce(P0, 3)

    def leave_and_come_back() -> None:
        world.records.before_answer = lambda: None
        world.group.fence("alice")
        world.group.settle()

    world.records.before_answer = leave_and_come_back
    messages, after = alice.get(alice.identity, 10)
    assert messages == ()
    messages, after = alice.get(after, 10)
    assert [m.offset for m in messages] == [0, 1, 2]


def test_G11_a_partition_changes_hands_when_what_was_given_is_committed(new_world: Callable[..., World]) -> None:
    world = new_world(2)
    for tp in world.partitions:
        world.cluster.produce(tp, 5)
    a = world.join("a")
    _, cursor = a.get(a.identity, 100)
    b = world.join("b")
    assert set(world.group.owners().values()) == {"a"}
    assert a.holds_up
    assert b.get(b.identity, 100)[0] == ()
    a.get(cursor, 100)
    world.settle()
    assert sorted(world.group.owners().values()) == ["a", "b"]
    # Committed before it was handed over: nothing comes twice.
    assert b.get(b.identity, 100)[0] == ()


@pytest.mark.parametrize("commit_on_get", [True, False])
def test_G11_another_request_does_not_release_a_partition_whose_messages_are_not_committed(
    new_world: Callable[..., World], commit_on_get: bool
) -> None:
    world = new_world(2)
    for tp in world.partitions:
        world.cluster.produce(tp, 5)
    a = world.join("a", commit_on_get=commit_on_get)
    first, cursor = a.get(a.identity, 100)
    b = world.join("b")
    older = a.identity if commit_on_get else cursor
    for tp in world.partitions:
        world.cluster.produce(tp, 1)
    messages, after = a.get(older, 100)
    world.settle()
    assert set(world.group.owners().values()) == {"a"}
    assert b.get(b.identity, 100)[0] == ()
    if commit_on_get:
        assert messages == first, "the same cursor returns the same messages, also of a revoked partition"
    else:
        assert [m.offset for m in messages] == [5], "no further messages of a revoked partition"
    a.commit(after)
    world.settle()
    assert sorted(world.group.owners().values()) == ["a", "b"]
    assert {m.offset for m in b.get(b.identity, 100)[0]} <= {5}


def test_G11_a_request_with_a_smaller_limit_does_not_release_the_messages_of_the_one_before(
    new_world: Callable[..., World],
) -> None:
    world = new_world(2)
    for tp in world.partitions:
        world.cluster.produce(tp, 5)
    a = world.join("a", commit_on_get=False)
    _, cursor = a.get(a.identity, 100)
    a.get(a.identity, 2)
    b = world.join("b")
    assert set(world.group.owners().values()) == {"a"}
    a.commit(cursor)
    world.settle()
    assert b.get(b.identity, 100)[0] == ()


def test_G8_a_reset_request_is_applied_before_anything_is_committed_or_read(new_world: Callable[..., World]) -> None:
    world = new_world()
    world.cluster.produce(P0, 25)
    a = world.join("a")
    _, cursor = a.get(a.identity, 20)
    world.request_reset({P0: 5})
    messages, cursor = a.get(cursor, 3)
    assert offsets(messages) == [5, 6, 7]
    assert world.committed() == 5
    assert offsets(a.get(cursor, 3)[0]) == [8, 9, 10]


def test_S6_no_instance_resumes_before_all_have_stopped(new_world: Callable[..., World]) -> None:
    world = new_world(2)
    for tp in world.partitions:
        world.cluster.produce(tp, 25)
    a, b = world.join("a"), world.join("b")
    _, of_a = a.get(a.identity, 5)
    _, of_b = b.get(b.identity, 5)
    world.request_reset(dict.fromkeys(world.partitions, 20))
    messages, of_a = a.get(of_a, 5)
    assert messages == ()
    # Between requests too: b's user may be busy. What b gave out before it stopped is not committed any more.
    polled = b.poll_reset_requests()
    assert polled is not None
    polled.result(10)
    with pytest.raises(FencedMember, match="the offsets of the group were reset"):
        b.commit(of_b)
    assert offsets(b.get(of_b, 3)[0]) == [20, 21, 22]
    assert offsets(a.get(of_a, 3)[0]) == [20, 21, 22]
    assert [world.committed(tp) for tp in world.partitions] == [20, 20]


def test_S6_who_takes_over_from_one_that_has_stopped_reads_nothing_either(new_world: Callable[..., World]) -> None:
    world = new_world(2)
    for tp in world.partitions:
        world.cluster.produce(tp, 25)
    a, b = world.join("a"), world.join("b")
    world.request_reset(dict.fromkeys(world.partitions, 20))
    a.get(a.identity, 5)
    a.end("It goes.")
    a.wait_until_left(10)
    world.group.settle()
    assert set(world.group.owners().values()) == {"b"}
    assert {m.offset for m in b.get(b.identity, 4)[0]} <= {20, 21, 22, 23}


def test_G8_a_reset_request_that_one_owner_applied_is_not_applied_again_by_the_next(
    new_world: Callable[..., World],
) -> None:
    world = new_world()
    world.cluster.produce(P0, 25)
    a = world.join("a")
    world.request_reset({P0: 5})
    _, cursor = a.get(a.identity, 10)
    a.commit(cursor)
    a.end("It goes.")
    a.wait_until_left(10)
    b = world.join("b")
    assert offsets(b.get(b.identity, 3)[0]) == [15, 16, 17]


def test_G9_owners_store_their_name_and_their_deadline(new_world: Callable[..., World]) -> None:
    world = new_world()
    a = world.join("a")
    world.clock.advance(5_000)
    a.get(a.identity, 10)
    entry = MemberEntry.parse(world.cluster.committed(members_group_of(GROUP), [P0])[P0].metadata)
    assert entry == MemberEntry("a", "a", world.wall_clock(), world.wall_clock() + TIMEOUT_MS)


class Group(RuleBasedStateMachine):
    """Instances come, work, fall silent, are evicted and are moved, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(len(PARTITIONS))
        self.chains: dict[str, tuple[InstanceSession, list[GroupCursor]]] = {}
        self.given: defaultdict[TopicPartition, set[int]] = defaultdict(set)
        self.skipped: defaultdict[TopicPartition, set[int]] = defaultdict(set)
        self.last_request = "none"

    def teardown(self) -> None:
        self.world.close()

    @initialize()
    def first(self) -> None:
        self.join("a")

    @rule(name=st.sampled_from("abc"))
    def join(self, name: str) -> None:
        if name not in self.chains:
            session = self.world.join(name)
            self.chains[name] = session, [session.identity]

    @rule(tp=st.sampled_from(PARTITIONS), count=st.integers(1, 6), gap=st.integers(0, 2))
    def produce(self, tp: TopicPartition, count: int, gap: int) -> None:
        at = self.world.cluster.produce(tp, count).end_offset
        self.world.cluster.leave_gap(tp, gap)
        self.skipped[tp] |= set(range(at, at + gap))

    @precondition(lambda self: self.chains)
    @rule(data=st.data(), limit=st.integers(1, 10), older=st.integers(1, 3))
    def get(self, data: st.DataObject, limit: int, older: int) -> None:
        """With the newest cursor, or, as after an error, with one before it."""
        name = data.draw(st.sampled_from(sorted(self.chains)))
        session, chain = self.chains[name]
        try:
            messages, after = session.get(chain[max(-older, -len(chain))], limit)
        except FencedMember:
            del self.chains[name]
            return
        chain.append(after)
        # G11, and of G12: never a record before the committed offset.
        owners = self.world.group.owners()
        # S6: nothing from the old position after an instance has begun at the new one.
        applied = self.world.applied()
        moved = self.last_request in applied.values()
        for m in messages:
            tp = m.topic_partition
            assert owners[tp] == name
            assert not moved or applied[tp] == self.last_request
            assert m.offset >= self.world.committed(tp)
            self.given[tp].add(m.offset)

    @precondition(lambda self: self.chains)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.chains)))
        session, chain = self.chains[name]
        try:
            chain.append(session.commit(chain[-1]))
        except FencedMember:
            if session.ended is not None:
                del self.chains[name]

    @precondition(lambda self: self.chains)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        """Silent for too long."""
        name = data.draw(st.sampled_from(sorted(self.chains)))
        for other, (session, _) in self.chains.items():
            if other != name:
                session.heartbeat()
        self.world.clock.advance(TIMEOUT_MS // 2 + 1)
        for other, (session, _) in self.chains.items():
            if other != name:
                session.heartbeat()
        self.world.clock.advance(TIMEOUT_MS // 2 + 1)
        session, _ = self.chains.pop(name)
        session.end_if_silent()
        session.wait_until_left(10)
        for other, _ in self.chains.values():
            other.heartbeat()

    @precondition(lambda self: self.world.group.owners())
    @rule(data=st.data(), zombie_commits=st.booleans())
    def evict(self, data: st.DataObject, zombie_commits: bool) -> None:
        """By the broker; the instance receives the error when it commits, or with its next heartbeat."""
        name = data.draw(st.sampled_from(sorted(set(self.world.group.owners().values()))))
        self.world.group.fence(name)
        if zombie_commits:
            session, chain = self.chains[name]
            before = {tp: self.world.committed(tp) for tp in PARTITIONS}
            try:
                chain.append(session.commit(chain[-1]))
            except FencedMember:
                # It has ended. After a reset of the group it receives the error of the reset first.
                if session.ended is not None:
                    del self.chains[name]
            assert {tp: self.world.committed(tp) for tp in PARTITIONS} == before
        self.world.group.settle()

    @precondition(lambda self: self.chains)
    @rule(data=st.data())
    def poll(self, data: st.DataObject) -> None:
        """The work of an instance between requests."""
        session, _ = self.chains[data.draw(st.sampled_from(sorted(self.chains)))]
        polled = session.poll_reset_requests()
        if polled is not None:
            polled.result(10)

    @precondition(lambda self: self.chains)
    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        ends = self.world.cluster.end_offsets(PARTITIONS)
        where = {tp: data.draw(st.integers(0, end)) for tp, end in ends.items()}
        self.last_request = self.world.resets.write(GROUP, where)
        for tp, n in where.items():
            self.skipped[tp] |= set(range(n))

    @invariant()
    def nothing_is_committed_that_was_not_delivered(self) -> None:
        for tp in PARTITIONS:
            assert set(range(self.world.committed(tp))) <= self.given[tp] | self.skipped[tp]


TestGroup = Group.TestCase
TestGroup.settings = settings(max_examples=sequences(100), stateful_step_count=30)
