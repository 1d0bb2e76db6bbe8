"""G8, G9, G14-G16: resets of whole groups, cursors of partitions, and iteration, on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import takewhile
from pathlib import Path
from textwrap import dedent

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

import streamgroups as sg
from integration_tests.cursors import holders, places, read_all, stamped, values, wait_for_sizes
from integration_tests.tiers import EITHER_PROTOCOL
from streamgroups.errors import (
    DataLoss,
    FencedMember,
    GroupRejected,
    InvalidCursor,
    InvalidOption,
    StreamGroupsError,
    UnknownTopic,
)
from streamgroups.fakes import FakeClock
from streamgroups.positions import AfterOffset, AtOffset
from streamgroups_testkit.broker import Broker
from streamgroups_testkit.producing import produce, recreate_topic
from streamgroups_testkit.reading import committed_offsets, wait_until_group_is_empty
from streamgroups_testkit.waits import wait_until

Open = Callable[..., sg.cursors.GroupCursors]
NewTopic = Callable[..., str]

HOUR_MS = 3_600_000


# ---- G8 --------------------------------------------------------------------------------------------------------------


@EITHER_PROTOCOL
def test_G8_a_group_is_moved_while_its_instances_consume(
    protocol: str, open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, 200, partitions=2)
    one, other = open_cursors(protocol), open_cursors(protocol)
    a = one.create_group_cursor(topic, group, "a", sg.cursors.TRIM_HORIZON)
    b = other.create_group_cursor(topic, group, "b", sg.cursors.TRIM_HORIZON)
    held = wait_for_sizes(one, topic, group, [1, 1])
    _, a = one.get_messages(a, limit=60)
    _, a = one.get_messages(a, limit=10)
    _, b = other.get_messages(b, limit=50)

    described = open_cursors(protocol).update_group(topic, group, sg.cursors.TRIM_HORIZON)
    assert [(p.partition, p.moving_to) for p in described.partitions] == [(0, 0), (1, 0)]
    # Each instance continues at the new position with its next request; no instance had to stop.
    got_a, a = one.get_messages(a, limit=5)
    got_b, b = other.get_messages(b, limit=5)
    assert places(got_a) == [(held["a"][0], o) for o in range(5)]
    assert places(got_b) == [(held["b"][0], o) for o in range(5)]
    assert committed_offsets(bootstrap, group, topic) == {0: 0, 1: 0}
    assert [p.moving_to for p in one.get_group(topic, group).partitions] == [None, None]

    # The same with a reset forward; the instances continue from there, and apply it once.
    one.update_group(topic, group, sg.cursors.LATEST)
    produce(bootstrap, topic, 4, partitions=2, first=200)
    got_a, a = one.get_messages(a)
    got_b, b = other.get_messages(b)
    assert sorted(values(got_a + got_b)) == ["200", "201", "202", "203"]
    one.leave_group(one.consumer_commit(a))
    wait_for_sizes(other, topic, group, [2])
    assert read_all(other, b)[0] == []
    assert committed_offsets(bootstrap, group, topic) == {0: 102, 1: 102}


def test_G8_what_was_given_before_a_move_is_not_committed_after_it(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 50, partitions=1)
    cursors = open_cursors()
    cursor = cursors.create_group_cursor(topic, group, "a", sg.cursors.TRIM_HORIZON, commit_on_get=False)
    _, cursor = cursors.get_messages(cursor, limit=30)
    cursors.update_group(topic, group, sg.cursors.TRIM_HORIZON)
    with pytest.raises(FencedMember, match="or the offsets of the group were reset"):
        cursors.consumer_commit(cursor)
    assert committed_offsets(bootstrap, group, topic) == {0: 0}
    assert places(cursors.get_messages(cursor, limit=3)[0]) == [(0, 0), (0, 1), (0, 2)]


def test_G8_a_group_without_members_is_moved_too_and_a_time_is_a_place(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(1)
    stamped(bootstrap, topic, 0, [1_000_000, 2_000_000, 3_000_000])
    cursors = open_cursors()
    with pytest.raises(GroupRejected, match="no offsets to reset"):
        cursors.update_group(topic, group, sg.cursors.LATEST)
    cursor = cursors.create_group_cursor(topic, group, "a", sg.cursors.LATEST)
    cursors.update_group(topic, group, sg.cursors.TRIM_HORIZON)
    # The instance left before it applied the reset request; the next request replaces it.
    cursors.leave_group(cursor)
    described = cursors.update_group(topic, group, sg.cursors.AT_TIME, time=1_500_000)
    assert [(p.next_offset, p.instance, p.moving_to) for p in described.partitions] == [(1, None, None)]
    cursor = cursors.create_group_cursor(topic, group, "b", sg.cursors.LATEST)
    assert values(read_all(cursors, cursor)[0]) == ["2000000", "3000000"]


def test_G8_members_of_other_clients_are_not_reset_while_they_read(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str, admin: AdminClient
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 10, partitions=1)
    cursors = open_cursors()
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": "other"})) as other:
        other.subscribe([topic])
        wait_until(lambda: other.poll(0.1) or other.assignment(), "the other client joined")
        with pytest.raises(GroupRejected, match=r"cannot apply a reset request: other"):
            cursors.update_group(topic, group, sg.cursors.TRIM_HORIZON)
    wait_until_group_is_empty(admin, group)


# ---- G9 --------------------------------------------------------------------------------------------------------------


def test_G9_get_group_lists_partitions_with_offset_instance_and_until_when(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str, clock: FakeClock
) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, 20, partitions=2)
    cursors = open_cursors(clock=clock)
    cursor = cursors.create_group_cursor(topic, group, "worker-1", sg.cursors.TRIM_HORIZON, lease_timeout_ms=60_000)
    _, cursor = cursors.get_messages(cursor)
    clock.advance(5_000)
    _, cursor = cursors.get_messages(cursor)
    for seen in (cursors.get_group(topic, group), open_cursors().get_group(topic, group)):
        assert (seen.stream, seen.group, seen.instances) == (topic, group, ("worker-1",))
        assert [(p.partition, p.next_offset, p.instance, p.until_ms) for p in seen.partitions] == [
            (p, 10, "worker-1", clock() + 60_000) for p in range(2)
        ]
    cursors.leave_group(cursor)
    seen = cursors.get_group(topic, group)
    assert seen.instances == ()
    assert [(p.next_offset, p.instance, p.until_ms) for p in seen.partitions] == [(10, None, None)] * 2


# ---- G14, G15 --------------------------------------------------------------------------------------------------------


def test_G14_one_group_too_many_is_rejected_with_the_candidates_to_delete(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic, another = new_topic(1), new_topic(1)
    cursors = open_cursors(groups_per_stream=2)
    cursor = cursors.create_group_cursor(topic, f"{group}-a", "x", sg.cursors.TRIM_HORIZON)
    cursors.leave_group(cursor)
    cursors.create_group_cursor(topic, f"{group}-b", "x", sg.cursors.TRIM_HORIZON)
    with pytest.raises(
        GroupRejected, match=rf"'{topic}' is already read by 2 groups.*groups without members: {group}-a\."
    ):
        cursors.create_group_cursor(topic, f"{group}-c", "x", sg.cursors.TRIM_HORIZON)
    assert committed_offsets(bootstrap, f"{group}-c", topic) == {}
    # Instances can join a group that already reads the stream, and other streams have separate limits.
    cursors.create_group_cursor(topic, f"{group}-a", "y", sg.cursors.TRIM_HORIZON)
    cursors.create_group_cursor(another, f"{group}-c", "x", sg.cursors.TRIM_HORIZON)


def test_G15_a_group_unused_for_the_retention_time_vanishes(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str, clock: FakeClock, admin: AdminClient
) -> None:
    topic = new_topic(1, retention_ms=str(HOUR_MS))
    produce(bootstrap, topic, 10, partitions=1)
    cursors = open_cursors(clock=clock)
    for name in (f"{group}-a", f"{group}-b"):
        cursor = cursors.create_group_cursor(topic, name, "x", sg.cursors.TRIM_HORIZON)
        cursors.leave_group(cursors.consumer_commit(cursors.get_messages(cursor, limit=4)[1]))
    clock.advance(HOUR_MS - 60_000)
    cursor = cursors.create_group_cursor(topic, f"{group}-b", "x", sg.cursors.TRIM_HORIZON)
    messages, cursor = cursors.get_messages(cursor, limit=1)
    assert places(messages) == [(0, 4)]
    cursors.leave_group(cursor)
    assert cursors.sweep_groups(topic) == []
    clock.advance(120_000)
    # Group a is deleted completely, because only group b was used in the meantime.
    assert cursors.sweep_groups(topic) == [f"{group}-a"]
    assert committed_offsets(bootstrap, f"{group}-a", topic) == {}
    assert committed_offsets(bootstrap, f"{group}-a.streamgroups", topic) == {}
    clock.advance(HOUR_MS)
    cursor = cursors.create_group_cursor(topic, f"{group}-b", "x", sg.cursors.TRIM_HORIZON)
    assert places(cursors.get_messages(cursor, limit=1)[0]) == [(0, 0)]


# ---- G16 -------------------------------------------------------------------------------------------------------------


def test_G16_cursors_of_one_partition_begin_anywhere_and_commit_nothing(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, admin: AdminClient
) -> None:
    topic = new_topic(2)
    stamped(bootstrap, topic, 1, [1_000_000 * i for i in range(1, 21)])
    cursors = open_cursors()

    def first(*args: object, **more: object) -> list[tuple[int, int]]:
        cursor = cursors.create_cursor(topic, 1, *args, **more)  # type: ignore[arg-type]
        return places(cursors.get_messages(cursor, limit=2)[0])

    assert first(sg.cursors.TRIM_HORIZON) == [(1, 0), (1, 1)]
    assert first(sg.cursors.AT_OFFSET, offset=7) == first(AtOffset(7)) == [(1, 7), (1, 8)]
    assert first(sg.cursors.AFTER_OFFSET, offset=7) == first(AfterOffset(7)) == [(1, 8), (1, 9)]
    assert first(sg.cursors.AT_TIME, time=4_500_000) == [(1, 4), (1, 5)]
    latest = cursors.create_cursor(topic, 1, sg.cursors.LATEST)
    nothing, latest = cursors.get_messages(latest)
    assert nothing == []
    stamped(bootstrap, topic, 1, [99_000_000])
    assert places(cursors.get_messages(latest)[0]) == [(1, 20)]

    cursor = cursors.create_cursor(topic, 1, sg.cursors.TRIM_HORIZON)
    found, cursor = read_all(cursors, cursor)
    assert places(found) == [(1, o) for o in range(21)]
    groups = [g.group_id for g in admin.list_consumer_groups().result(30).valid]
    assert not [g for g in groups if committed_offsets(bootstrap, g, topic)]
    for use in (cursors.consumer_heartbeat, cursors.consumer_commit):
        with pytest.raises(InvalidCursor, match="belongs to no group"):
            use(cursor)


def test_G16_a_missing_stream_is_rejected(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, admin: AdminClient
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 10, partitions=1)
    cursors = open_cursors()
    with pytest.raises(InvalidOption, match=rf"{topic}-0 has no offset 11: the available offsets are \[0, 10\)"):
        cursors.create_cursor(topic, 0, sg.cursors.AT_OFFSET, offset=11)
    with pytest.raises(UnknownTopic, match="has no partition 1"):
        cursors.create_cursor(topic, 1, sg.cursors.TRIM_HORIZON)
    cursor = cursors.create_cursor(topic, 0, sg.cursors.AT_OFFSET, offset=2)
    five = TopicPartition(topic, 0, 5)
    admin.delete_records([five])[five].result(30)
    with pytest.raises(DataLoss, match=rf"{topic}-0 no longer has offset 2: it contains \[5, 10\)"):
        cursors.get_messages(cursor)
    assert places(cursors.get_messages(cursors.create_cursor(topic, 0, sg.cursors.TRIM_HORIZON), limit=1)[0]) == [
        (0, 5)
    ]


def test_G16_processes_with_one_key_read_on_with_each_others_partition_cursors(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, admin: AdminClient
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 10, partitions=1)
    one, other = open_cursors(signing_key=b"k" * 32), open_cursors(signing_key=b"k" * 32)
    _, cursor = one.get_messages(one.create_cursor(topic, 0, sg.cursors.TRIM_HORIZON), limit=6)
    assert places(other.get_messages(cursor)[0]) == [(0, o) for o in range(6, 10)]
    with pytest.raises(InvalidCursor, match="signing_key"):
        open_cursors().get_messages(cursor)
    recreate_topic(admin, topic)
    produce(bootstrap, topic, 20, partitions=1)
    with pytest.raises(DataLoss, match=rf"{topic}-0 is at offset 6 of topic id \S+, .*; now topic id .*recreated"):
        open_cursors(signing_key=b"k" * 32).get_messages(cursor)


# ---- iterating -------------------------------------------------------------------------------------------------------


def test_an_iteration_commits_what_is_done_and_leaves(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 30, partitions=1)
    cursors = open_cursors()
    messages = cursors.messages(topic, group, "worker-1", sg.cursors.TRIM_HORIZON, limit=10)
    for message in messages:
        if message.offset == 14:
            break
    assert isinstance(messages, Iterator)
    messages.close()  # type: ignore[attr-defined]
    # The message at which the loop ended is not processed.
    assert committed_offsets(bootstrap, group, topic) == {0: 14}
    assert holders(cursors, topic, group) == {}
    rest = cursors.messages(topic, group, "worker-1", sg.cursors.TRIM_HORIZON, idle_timeout_ms=300)
    assert [m.offset for m in rest] == list(range(14, 30))
    assert committed_offsets(bootstrap, group, topic) == {0: 30}
    assert holders(cursors, topic, group) == {}


def test_an_iteration_sends_a_heartbeat_with_each_request_for_a_message(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str, clock: FakeClock
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 5, partitions=1)
    cursors = open_cursors(clock=clock)
    messages = cursors.messages(topic, group, "worker-1", sg.cursors.TRIM_HORIZON, idle_timeout_ms=0)
    for _ in range(4):
        next(messages)
        clock.advance(20_000)
    next(messages)
    clock.advance(40_000)
    with pytest.raises(FencedMember, match="'worker-1' left"):
        next(messages)


# ---- bad input -------------------------------------------------------------------------------------------------------


def test_bad_input_is_rejected_before_anything_changes(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str, admin: AdminClient
) -> None:
    topic = new_topic(1)
    cursors = open_cursors()
    with pytest.raises(UnknownTopic, match="'nowhere' does not exist"):
        cursors.create_group_cursor("nowhere", group, "worker-1", sg.cursors.LATEST)
    with pytest.raises(InvalidOption, match="AT_TIME requires 'time'"):
        cursors.create_group_cursor(topic, group, "worker-1", sg.cursors.AT_TIME)
    with pytest.raises(InvalidOption, match="requires a partition"):
        cursors.create_group_cursor(topic, group, "worker-1", "AT_OFFSET")
    with pytest.raises(InvalidOption, match="instance_name"):
        cursors.create_group_cursor(topic, group, "", sg.cursors.LATEST)
    with pytest.raises(InvalidOption, match=r"sesion\.timeout\.ms"):
        sg.cursors.GroupCursors(bootstrap, {"sesion.timeout.ms": "6000"})
    with pytest.raises(InvalidOption, match=r"group\.id"):
        sg.cursors.GroupCursors(bootstrap, {"kafka.group.id": "billing"})
    with pytest.raises(InvalidOption, match="at least 16 are required"):
        sg.cursors.GroupCursors(bootstrap, signing_key=b"short")
    assert group not in [g.group_id for g in admin.list_consumer_groups().result(30).valid]
    cursors.close()
    cursors.close()
    with pytest.raises(StreamGroupsError, match="closed"):
        cursors.create_group_cursor(topic, group, "worker-1", sg.cursors.LATEST)


def test_a_group_that_reads_another_stream_is_rejected(open_cursors: Open, new_topic: NewTopic, group: str) -> None:
    topic, another = new_topic(1), new_topic(1)
    cursors = open_cursors()
    cursors.create_group_cursor(topic, group, "worker-1", sg.cursors.LATEST)
    with pytest.raises(GroupRejected, match="in use by another subscription"):
        cursors.create_group_cursor(another, group, "worker-2", sg.cursors.LATEST)


# ---- the documents ---------------------------------------------------------------------------------------------------


def test_the_example_in_the_documents_runs(
    kafka: Broker, new_topic: NewTopic, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parent.parent / "docs" / "cursors.rst").read_text(encoding="utf-8")
    first = page.split(".. code-block:: python\n")[1]
    code = dedent("".join(takewhile(lambda line: not line.strip() or line.startswith(" "), first.splitlines(True))))
    topic = new_topic(2)
    produce(kafka.bootstrap_servers, topic, 3, partitions=2)
    assert "localhost:9092" in code
    exec(code.replace("localhost:9092", kafka.bootstrap_servers).replace("flights", topic), {})
    result = capsys.readouterr().out.splitlines()
    assert len(result) == 4
    assert result[-1].startswith("GroupState(")
