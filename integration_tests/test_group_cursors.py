"""G1-G7, G10-G13: group cursors follow the documentation of OCI Streaming on a real broker."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

import streamgroups as sg
from integration_tests.cursors import (
    SETTINGS,
    InstanceProcess,
    holders,
    places,
    read_all,
    stamped,
    values,
    wait_for_sizes,
)
from integration_tests.tiers import EITHER_PROTOCOL
from streamgroups.errors import CursorExpired, FencedMember, GroupRejected, InvalidCursor, InvalidOption
from streamgroups.fakes import FakeClock
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_offsets, end_offsets
from streamgroups_testkit.waits import wait_until

Open = Callable[..., sg.cursors.GroupCursors]
NewTopic = Callable[..., str]


# ---- G1, G2 ----------------------------------------------------------------------------------------------------------


@EITHER_PROTOCOL
def test_G1_a_group_that_begins_at_TRIM_HORIZON_gets_the_earliest_messages(
    protocol: str, open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str, admin: AdminClient
) -> None:
    topic = new_topic(3)
    produce(bootstrap, topic, 30, partitions=3)
    cursors = open_cursors(protocol)
    cursor = cursors.create_group_cursor(topic, group, "worker-1", sg.cursors.TRIM_HORIZON)
    messages, _ = read_all(cursors, cursor)
    assert sorted(places(messages)) == [(p, o) for p in range(3) for o in range(10)]
    first = min(messages, key=lambda m: (m.partition, m.offset))
    assert (first.topic, first.key, first.headers) == (topic, b"0", ())
    assert first.timestamp_ms is not None
    (member,) = admin.describe_consumer_groups([group])[group].result(30).members
    assert member.client_id == "worker-1"


def test_G1_a_group_that_begins_AT_TIME_gets_messages_from_that_time_on(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(2)
    stamped(bootstrap, topic, 0, [1_000_000, 2_000_000, 3_000_000])
    stamped(bootstrap, topic, 1, [1_000_000, 1_500_000])
    cursors = open_cursors()
    cursor = cursors.create_group_cursor(topic, group, "worker-1", sg.cursors.AT_TIME, time="1970-01-01T00:33:20Z")
    messages, cursor = read_all(cursors, cursor)
    assert sorted(values(messages)) == ["2000000", "3000000"]
    stamped(bootstrap, topic, 1, [2_500_000])
    assert values(cursors.get_messages(cursor)[0]) == ["2500000"]


@EITHER_PROTOCOL
def test_G1_a_group_that_begins_at_LATEST_gets_what_is_published_after_its_cursor_was_made(
    protocol: str, open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, 10, partitions=2)
    cursors = open_cursors(protocol)
    cursor = cursors.create_group_cursor(topic, group, "worker-1", sg.cursors.LATEST)
    produce(bootstrap, topic, 10, partitions=2, first=10)
    messages, _ = read_all(cursors, cursor)
    assert sorted(map(int, values(messages))) == list(range(10, 20))


def test_G2_the_type_is_ignored_where_the_group_has_committed_offsets(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 20, partitions=1)
    cursors = open_cursors()
    cursor = cursors.create_group_cursor(topic, group, "worker-1", sg.cursors.TRIM_HORIZON)
    _, cursor = cursors.get_messages(cursor, limit=8)
    cursors.leave_group(cursors.consumer_commit(cursor))
    for type_ in (sg.cursors.LATEST, sg.cursors.TRIM_HORIZON):
        cursor = cursors.create_group_cursor(topic, group, "worker-2", type_)
        assert places(cursors.get_messages(cursor)[0]) == [(0, o) for o in range(8, 20)]
        cursors.leave_group(cursor)


def test_G2_a_partition_that_was_added_later_begins_at_its_earliest_record(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str, admin: AdminClient
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 5, partitions=1)
    cursors = open_cursors(**{"metadata.max.age.ms": "1000"})
    cursor = cursors.create_group_cursor(topic, group, "worker-1", sg.cursors.LATEST)
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    produce(bootstrap, topic, 6, partitions=2)
    found: list[tuple[int, int]] = []

    def both() -> bool:
        nonlocal cursor
        messages, cursor = cursors.get_messages(cursor)
        found.extend(places(messages))
        return len(found) >= 6

    wait_until(both, "messages of the new partition", timeout_s=30)
    assert sorted(found) == [(0, 5), (0, 6), (0, 7), (1, 0), (1, 1), (1, 2)]


# ---- G3 --------------------------------------------------------------------------------------------------------------


@EITHER_PROTOCOL
def test_G3_a_second_live_member_of_one_name_is_rejected_and_the_error_names_the_first(
    protocol: str, open_cursors: Open, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(2)
    here, elsewhere = open_cursors(protocol), open_cursors(protocol)
    cursor = here.create_group_cursor(topic, group, "worker-1", sg.cursors.TRIM_HORIZON)
    with pytest.raises(GroupRejected, match=f"'worker-1' of group '{group}' is live in this process until"):
        here.create_group_cursor(topic, group, "worker-1", sg.cursors.TRIM_HORIZON)
    with pytest.raises(GroupRejected, match=rf"a live member named 'worker-1': worker-1 \(.*owns {topic}-0, {topic}-1"):
        elsewhere.create_group_cursor(topic, group, "worker-1", sg.cursors.TRIM_HORIZON)
    assert here.get_messages(cursor)[0] == []
    assert holders(here, topic, group) == {"worker-1": [0, 1]}
    here.leave_group(cursor)
    elsewhere.create_group_cursor(topic, group, "worker-1", sg.cursors.TRIM_HORIZON)


def test_G3_of_two_that_take_one_name_at_the_same_moment_one_at_most_gets_it(
    open_cursors: Open, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(2)
    both = [open_cursors(), open_cursors()]

    def take(cursors: sg.cursors.GroupCursors) -> bool:
        try:
            cursors.create_group_cursor(topic, group, "worker-1", sg.cursors.TRIM_HORIZON)
        except GroupRejected:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        got = list(pool.map(take, both))
    assert sum(got) <= 1
    wait_for_sizes(both[0], topic, group, [2] * sum(got))


# ---- G4, G5 ----------------------------------------------------------------------------------------------------------


@EITHER_PROTOCOL
def test_G4_a_request_commits_what_the_one_before_it_returned_and_then_reads_on(
    protocol: str, open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 250, partitions=1)
    cursors = open_cursors(protocol)
    cursor = cursors.create_group_cursor(topic, group, "worker-1", sg.cursors.TRIM_HORIZON)
    seen = []
    for _ in range(4):
        messages, cursor = cursors.get_messages(cursor, limit=100)
        seen.append((len(messages), committed_offsets(bootstrap, group, topic)[0]))
    assert seen == [(100, 0), (100, 100), (50, 200), (0, 250)]
    assert cursor


def test_G4_a_cursor_that_is_used_again_gives_the_same_messages_again(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 30, partitions=1)
    cursors = open_cursors()
    first = cursors.create_group_cursor(topic, group, "worker-1", sg.cursors.TRIM_HORIZON)
    once, second = cursors.get_messages(first, limit=10)
    assert cursors.get_messages(first, limit=10)[0] == once
    again, third = cursors.get_messages(second, limit=10)
    assert places(again) == [(0, o) for o in range(10, 20)]
    cursors.get_messages(third, limit=5)
    # Messages that were committed in the meantime are not returned again (G12).
    assert places(cursors.get_messages(first, limit=10)[0]) == [(0, o) for o in range(20, 30)]


def test_G4_a_cursor_of_three_partitions_that_is_used_again_returns_the_same_messages(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(3)
    produce(bootstrap, topic, 60, partitions=3)
    cursors = open_cursors()
    cursor = cursors.create_group_cursor(topic, group, "worker-1", sg.cursors.TRIM_HORIZON, commit_on_get=False)
    chain = []
    for _ in range(4):
        messages, after = cursors.get_messages(cursor, limit=7)
        chain.append((cursor, messages))
        cursor = after
        produce(bootstrap, topic, 9, partitions=3, first=60)
    for earlier, messages in reversed(chain):
        assert cursors.get_messages(earlier, limit=7)[0] == messages
        assert cursors.get_messages(earlier, limit=3)[0] == messages[:3]


@pytest.mark.parametrize("level", ["", "read_committed"])
def test_G13_aborted_messages_are_returned_unless_only_committed_ones_are_requested(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, level: str
) -> None:
    topic = new_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-writer"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, "aborted", partition=0)
    assert producer.flush(30) == 0
    producer.abort_transaction(30)
    produce(bootstrap, topic, 1, partitions=1)
    cursors = open_cursors(**({"isolation.level": level} if level else {}))
    messages, _ = cursors.get_messages(cursors.create_cursor(topic, 0, sg.cursors.TRIM_HORIZON))
    assert [m.value == b"aborted" for m in messages] == ([False] if level else [True, False])


def test_G4_by_default_a_request_returns_what_fits_one_fetch_and_never_more_than_10_000(
    bootstrap: str, new_topic: NewTopic, group: str, open_cursors: Open
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 11_000, partitions=1)
    cursors = open_cursors()
    cursor = cursors.create_group_cursor(topic, group, "worker-1", sg.cursors.TRIM_HORIZON)
    for limit in (0, 10_001, -5):
        with pytest.raises(InvalidOption, match="between 1 and 10,000"):
            cursors.get_messages(cursor, limit)
    messages, cursor = cursors.get_messages(cursor)
    assert len(messages) == 10_000
    messages, cursor = cursors.get_messages(cursor, limit=10_000)
    assert len(messages) == 1_000
    sparing = open_cursors(**{"fetch.max.bytes": "2000", "message.max.bytes": "1000"})
    messages, _ = sparing.get_messages(sparing.create_cursor(topic, 0, sg.cursors.TRIM_HORIZON))
    assert 50 < len(messages) < 120


def test_G5_a_cursor_expires_after_five_minutes_and_the_group_is_unaffected(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str, clock: FakeClock
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 30, partitions=1)
    cursors = open_cursors(clock=clock)
    first = cursors.create_group_cursor(topic, group, "worker-1", sg.cursors.TRIM_HORIZON, lease_timeout_ms=300_000)
    _, second = cursors.get_messages(first, limit=10)
    _, third = cursors.get_messages(second, limit=10)
    clock.advance(200_000)
    fourth = cursors.consumer_heartbeat(third)
    clock.advance(100_001)
    for use in (cursors.get_messages, cursors.consumer_heartbeat, cursors.consumer_commit):
        with pytest.raises(CursorExpired, match=r"'worker-1'.*expired.*create_group_cursor"):
            use(third)
    assert committed_offsets(bootstrap, group, topic) == {0: 10}
    assert places(cursors.get_messages(fourth)[0]) == [(0, o) for o in range(20, 30)]


def test_G5_a_cursor_that_is_not_ours_is_rejected(open_cursors: Open, new_topic: NewTopic, group: str) -> None:
    topic = new_topic(1)
    one, other = open_cursors(), open_cursors(signing_key=b"k" * 32)
    partner = open_cursors(signing_key=b"k" * 32)
    cursor = other.create_group_cursor(topic, group, "worker-1", sg.cursors.TRIM_HORIZON)
    with pytest.raises(InvalidCursor, match="signed with another key"):
        one.get_messages(cursor)
    with pytest.raises(InvalidCursor, match=r"'worker-1'.*does not run in this process"):
        partner.get_messages(cursor)
    assert other.get_messages(cursor)[0] == []


# ---- G6 --------------------------------------------------------------------------------------------------------------


@EITHER_PROTOCOL
def test_G6_a_silent_instance_leaves_though_its_process_lives(
    protocol: str, open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str, clock: FakeClock
) -> None:
    topic = new_topic(4)
    produce(bootstrap, topic, 40, partitions=4)
    cursors = open_cursors(protocol, clock=clock)
    silent = cursors.create_group_cursor(topic, group, "silent", sg.cursors.TRIM_HORIZON)
    busy = cursors.create_group_cursor(topic, group, "busy", sg.cursors.TRIM_HORIZON)
    beating = cursors.create_group_cursor(topic, group, "beating", sg.cursors.TRIM_HORIZON)
    wait_for_sizes(cursors, topic, group, [1, 1, 2])
    _, silent = cursors.get_messages(silent, limit=5)
    for _ in range(2):
        clock.advance(20_000)
        beating = cursors.consumer_heartbeat(beating)
        _, busy = cursors.get_messages(busy)
    assert set(wait_for_sizes(cursors, topic, group, [2, 2])) == {"busy", "beating"}
    for use in (cursors.get_messages, cursors.consumer_heartbeat, cursors.consumer_commit):
        with pytest.raises(
            FencedMember, match=r"'silent' left.*no request for 40\.\d s.*timeout of 30 s.*create_group_cursor"
        ):
            use(silent)

    def all_is_read() -> bool:
        nonlocal busy, beating
        (_, busy), (_, beating) = read_all(cursors, busy), read_all(cursors, beating)
        return sum(committed_offsets(bootstrap, group, topic).values()) == 40

    wait_until(all_is_read, "the others have read what was the silent one's", timeout_s=30)


def test_G6_a_process_that_dies_is_noticed_by_the_broker(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, 10, partitions=2)
    doomed = InstanceProcess(
        bootstrap, SETTINGS["classic"], stream=topic, group_name=group, instance_name="doomed", type="TRIM_HORIZON"
    )
    try:
        assert len(doomed.get(5)) == 5
        doomed.kill()
        cursors = open_cursors()
        cursor = cursors.create_group_cursor(topic, group, "next", sg.cursors.LATEST)
        wait_for_sizes(cursors, topic, group, [2])
        messages, _ = read_all(cursors, cursor)
    finally:
        doomed.kill()
    assert len(messages) == 10


def test_G6_a_process_that_ends_without_closing_leaves_at_once(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(1)
    # The session timeout is 45 seconds. Without an orderly end, the wait below would fail.
    process = InstanceProcess(bootstrap, {}, stream=topic, group_name=group, instance_name="a", type="LATEST")
    try:
        assert process.get(5) == []
        process.end()
    finally:
        process.kill()
    wait_until(lambda: holders(open_cursors(), topic, group) == {}, "the group is empty", timeout_s=25)


# ---- G7 --------------------------------------------------------------------------------------------------------------


@EITHER_PROTOCOL
def test_G7_consumer_commit_commits_what_the_cursor_covers_and_reads_nothing(
    protocol: str, open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str, clock: FakeClock
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 40, partitions=1)
    cursors = open_cursors(protocol, clock=clock)
    cursor = cursors.create_group_cursor(topic, group, "worker-1", sg.cursors.TRIM_HORIZON, commit_on_get=False)
    _, first = cursors.get_messages(cursor, limit=10)
    _, second = cursors.get_messages(first, limit=10)
    _, third = cursors.get_messages(second, limit=10)
    assert committed_offsets(bootstrap, group, topic) == {0: 0}
    clock.advance(20_000)
    cursors.consumer_commit(second)
    assert committed_offsets(bootstrap, group, topic) == {0: 20}
    # The newer cursor has extended the lease, and a commit with an older cursor does not lower the committed offset.
    clock.advance(20_000)
    after = cursors.consumer_commit(third)
    cursors.consumer_commit(first)
    assert committed_offsets(bootstrap, group, topic) == {0: 30}
    assert places(cursors.get_messages(after)[0]) == [(0, o) for o in range(30, 40)]


@EITHER_PROTOCOL
def test_G7_the_commit_of_an_instance_that_was_evicted_is_rejected_with_an_error(
    protocol: str, open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 40, partitions=1)
    zombie = InstanceProcess(
        bootstrap,
        SETTINGS[protocol],
        stream=topic,
        group_name=group,
        instance_name="zombie",
        type="TRIM_HORIZON",
        commit_on_get=False,
    )
    try:
        assert zombie.get(10) == [str(i) for i in range(10)]
        zombie.signal(signal.SIGSTOP)
        cursors = open_cursors(protocol)
        cursor = cursors.create_group_cursor(topic, group, "next", sg.cursors.TRIM_HORIZON)
        wait_for_sizes(cursors, topic, group, [1])
        messages, cursor = cursors.get_messages(cursor, limit=25)
        assert values(messages) == [str(i) for i in range(25)]
        cursor = cursors.consumer_commit(cursor)
        zombie.signal(signal.SIGCONT)
        rejected = zombie.send("commit")
        assert rejected["error"] == "FencedMember"
        assert "'zombie'" in rejected["text"]
        assert "create_group_cursor" in rejected["text"]
        assert committed_offsets(bootstrap, group, topic) == {0: 25}
        assert zombie.send("get", 10)["error"] == "FencedMember"
    finally:
        zombie.kill()


# ---- G10, G11, G12 ---------------------------------------------------------------------------------------------------


@EITHER_PROTOCOL
def test_G10_every_instance_has_its_share(protocol: str, open_cursors: Open, new_topic: NewTopic, group: str) -> None:
    cursors = open_cursors(protocol)
    # 8 partitions, 4 instances: 2 each. 10 and 4: two have 2, two have 3.
    examples = {new_topic(8): [2, 2, 2, 2], new_topic(10): [2, 2, 3, 3]}

    def join(topic: str, instance: int) -> None:
        cursors.create_group_cursor(topic, f"{group}-{topic}", f"worker-{instance}", sg.cursors.TRIM_HORIZON)

    with ThreadPoolExecutor(8) as pool:
        for joined in [pool.submit(join, topic, i) for topic in examples for i in range(4)]:
            joined.result(60)
    for topic, sizes in examples.items():
        held = wait_for_sizes(cursors, topic, f"{group}-{topic}", sizes)
        # G11: each partition has exactly one owner.
        assert sorted(p for own in held.values() for p in own) == list(range(sum(sizes)))


@EITHER_PROTOCOL
def test_G10_more_instances_than_partitions_idle_and_take_over(
    protocol: str, open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 10, partitions=1)
    cursors = open_cursors(protocol)
    first = cursors.create_group_cursor(topic, group, "first", sg.cursors.TRIM_HORIZON)
    spare = cursors.create_group_cursor(topic, group, "spare", sg.cursors.TRIM_HORIZON)
    _, first = cursors.get_messages(first, limit=4)
    for _ in range(3):
        nothing, spare = cursors.get_messages(spare)
        assert nothing == []
    cursors.leave_group(cursors.consumer_commit(first))
    wait_until(lambda: holders(cursors, topic, group) == {"spare": [0]}, "the spare instance took over")
    # The broker has assigned the partition; the instance receives it with its next heartbeat.
    received = []

    def read() -> bool:
        nonlocal spare
        messages, spare = cursors.get_messages(spare)
        received.extend(messages)
        return bool(received)

    wait_until(read, "the spare instance reads")
    assert places(received) == [(0, o) for o in range(4, 10)]


@EITHER_PROTOCOL
def test_G11_instances_that_come_and_go_under_load_lose_nothing_and_repeat_nothing(
    protocol: str, open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(6)
    total = 12_000
    chance = random.Random(7)
    got: Counter[tuple[int, int]] = Counter()
    lock = threading.Lock()
    enough = threading.Event()

    def work(cursors: sg.cursors.GroupCursors, name: str, until: threading.Event) -> None:
        cursor = cursors.create_group_cursor(topic, group, name, sg.cursors.TRIM_HORIZON)
        while not until.is_set():
            messages, cursor = cursors.get_messages(cursor, limit=200)
            with lock:
                got.update(places(messages))
            if sum(got.values()) >= total:
                enough.set()
        cursors.leave_group(cursors.consumer_commit(cursor))

    produce(bootstrap, topic, total, partitions=6)
    processes = [open_cursors(protocol), open_cursors(protocol)]
    with ThreadPoolExecutor(8) as pool:
        running: list[tuple[threading.Event, object]] = []
        futures = []
        for i in range(6):
            until = threading.Event()
            futures.append(pool.submit(work, processes[i % 2], f"worker-{i}", until))
            running.append((until, i))
            enough.wait(chance.uniform(0.1, 0.6))
            if len(running) > 3:
                running.pop(chance.randrange(3))[0].set()
        assert enough.wait(30)
        for until, _ in running:
            until.set()
        for future in futures:
            future.result(30)
    assert set(got) == {(p, o) for p in range(6) for o in range(total // 6)}
    assert set(got.values()) == {1}
    assert committed_offsets(bootstrap, group, topic) == dict.fromkeys(range(6), total // 6)


@pytest.mark.long
def test_G12_the_story_of_A_and_B(bootstrap: str, new_topic: NewTopic, group: str, open_cursors: Open) -> None:
    """In real time, with the default timeout of instances."""
    topic = new_topic(1)
    # Message n is at offset n, as in the documentation, which counts from 1.
    produce(bootstrap, topic, 301, partitions=1)
    home, elsewhere = open_cursors(), open_cursors()
    processed: Counter[int] = Counter()

    # A receives messages 1-100 and processes all of them.
    a = home.create_group_cursor(topic, group, "A", sg.cursors.TRIM_HORIZON)
    _, a = home.get_messages(a, limit=1)
    messages, a = home.get_messages(a, limit=100)
    assert [m.offset for m in messages] == list(range(1, 101))
    processed.update(m.offset for m in messages)
    # A requests messages again: 100 is committed, and 101-200 are returned. A processes 15 of them and fails.
    messages, a = home.get_messages(a, limit=100)
    went_silent_s = time.monotonic()
    assert committed_offsets(bootstrap, group, topic) == {0: 101}
    assert [m.offset for m in messages] == list(range(101, 201))
    processed.update(m.offset for m in messages[:15])

    # B receives no messages while A can return, then receives 101-200 and continues its loop.
    b = elsewhere.create_group_cursor(topic, group, "B", sg.cursors.TRIM_HORIZON)
    messages = []

    def came() -> bool:
        nonlocal b, messages
        messages, b = elsewhere.get_messages(b, limit=100)
        return bool(messages)

    wait_until(came, "B gets messages", timeout_s=45)
    assert time.monotonic() - went_silent_s > 30
    assert [m.offset for m in messages] == list(range(101, 201))
    processed.update(m.offset for m in messages)
    messages, b = read_all(elsewhere, b)
    processed.update(m.offset for m in messages)

    # Fifteen messages were processed twice, and none was lost.
    assert [n for n, times in sorted(processed.items()) if times == 2] == list(range(101, 116))
    assert set(processed) == set(range(1, 301))
    with pytest.raises(FencedMember, match="'A' left group"):
        home.get_messages(a)


def test_G13_offsets_that_hold_no_message_neither_stall_a_reader_nor_count_as_lag(
    open_cursors: Open, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": group})
    producer.init_transactions(30)
    for i in range(6):
        producer.begin_transaction()
        producer.produce(topic, value=str(i), partition=0)
        if i % 3 == 2:
            producer.flush(30)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    cursors = open_cursors(**{"isolation.level": "read_committed"})
    cursor = cursors.create_group_cursor(topic, group, "worker-1", sg.cursors.TRIM_HORIZON)
    messages, cursor = read_all(cursors, cursor)
    assert [(m.offset, m.value) for m in messages] == [(0, b"0"), (2, b"1"), (6, b"3"), (8, b"4")]
    assert cursors.get_messages(cursor)[0] == []
    ends = end_offsets(bootstrap, topic, 1)
    assert ends == {0: 12}
    assert committed_offsets(bootstrap, group, topic) == ends
