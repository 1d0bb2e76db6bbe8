"""X2, X3: one Kafka transaction contains the output of many processes and the group's offsets: all or nothing, and
zombies are fenced.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from integration_tests.transaction_process import config_of, packed, start, write
from streamgroups.errors import (
    BrokerUnreachable,
    FencedMember,
    InvalidOption,
    RecordRejected,
    SinkUnreachable,
    TransactionFailed,
)
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.transactions.coordinator import Transactions
from streamgroups_kafka.transactions.transaction_errors import Step
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_offsets, end_offsets
from streamgroups_testkit.waits import wait_until

PARTITIONS = 6


@pytest.fixture
def transactional_id() -> str:
    """An unused transactional id."""
    return f"x-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def driver(bootstrap: str, transactional_id: str) -> Iterator[Transactions]:
    """The coordinator of transactions on the driver."""
    with closing(Transactions(config_of(bootstrap), transactional_id)) as transactions:
        yield transactions


def values(bootstrap: str, topic: str, *, committed_only: bool = True) -> dict[int, list[str]]:
    """The values of each partition, in order, up to the end that an independent reader sees."""
    isolation = "read_committed" if committed_only else "read_uncommitted"
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    found: dict[int, list[str]] = {}
    try:
        partitions = reader.list_topics(topic, timeout=30).topics[topic].partitions
        reader.assign([KafkaPartition(topic, p, 0) for p in partitions])
        open_partitions = set(partitions)
        while open_partitions:
            message = reader.poll(30)
            assert message is not None, f"no end of {open_partitions}"
            if message.error():
                open_partitions.discard(message.partition())
            else:
                partition, value = message.partition(), message.value()
                assert partition is not None
                assert value is not None
                found.setdefault(partition, []).append(value.decode())
    finally:
        reader.close()
    return found


def assert_values(bootstrap: str, topic: str, expected: dict[int, list[str]]) -> None:
    """Asserts these values after the broker has written its markers to all partitions."""
    n_expected = sum(map(len, expected.values()))
    wait_until(lambda: sum(map(len, values(bootstrap, topic).values())) >= n_expected, "all is visible")
    assert values(bootstrap, topic) == expected


class Member:
    """A real member that owns all partitions of a source topic, and its consumer group metadata."""

    def __init__(self, bootstrap: str, group: str, topic: str, protocol: str) -> None:
        session = {"session.timeout.ms": 6_000} if protocol == "classic" else {}
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol, **session}
        if protocol == "classic":
            settings["partition.assignment.strategy"] = "cooperative-sticky"
        self.consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        self.consumer.subscribe([topic])
        self._topic = topic
        self.wait_for(lambda: len(self.consumer.assignment()) == 2)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        def polled() -> bool:
            self.consumer.poll(0.1)
            return condition()

        wait_until(polled, "the group has given out its partitions")

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata.parse(self.consumer.consumer_group_metadata())


@pytest.fixture(params=[pytest.param("classic", marks=pytest.mark.long), "consumer"])
def member(request: pytest.FixtureRequest, bootstrap: str, group: str, source: str) -> Iterator[Member]:
    """A member with either protocol."""
    member = Member(bootstrap, group, source, request.param)
    yield member
    member.consumer.close()


@pytest.fixture
def source(bootstrap: str, new_topic: Callable[..., str]) -> str:
    """The input: two partitions of ten records."""
    topic = new_topic(2)
    produce(bootstrap, topic, 20, partitions=2)
    return topic


@pytest.fixture
def target(new_topic: Callable[..., str]) -> str:
    """The output topic."""
    return new_topic(PARTITIONS)


def test_everything_appears_at_once(
    bootstrap: str, driver: Transactions, member: Member, group: str, source: str, target: str
) -> None:
    rows = [(p, f"{p}/{i}".ljust(100, ".")) for i in range(500) for p in range(PARTITIONS)]
    transaction = driver.begin()
    tasks = [
        start(
            do="write",
            bootstrap=bootstrap,
            topic=target,
            transaction=packed(transaction),
            rows=[row for row in rows if row[0] % 3 == task],
            # Several batches for each partition, so that sequence numbers matter.
            batch_bytes=4_096,
        )
        for task in range(3)
    ]
    assert [task.wait(60) for task in tasks] == [0, 0, 0]
    offsets = {TopicPartition(source, 0): Committed(10, "m"), TopicPartition(source, 1): Committed(7)}
    driver.commit_offsets(transaction, offsets, member.group_metadata)
    assert values(bootstrap, target) == {}
    assert sum(map(len, values(bootstrap, target, committed_only=False).values())) == len(rows)
    driver.commit(transaction)
    expected = {p: [value for partition, value in rows if partition == p] for p in range(PARTITIONS)}
    assert_values(bootstrap, target, expected)
    # Right after the commit a reader can still see old offsets, unless it requests stable offsets, as ``committed_offsets`` does.
    assert committed_offsets(bootstrap, group, source) == {0: 10, 1: 7}


def test_offsets_that_are_larger_than_one_commit(
    bootstrap: str, driver: Transactions, member: Member, group: str, new_topic: Callable[..., str]
) -> None:
    """A broker stores a commit as one record batch, of at most 1,048,588 bytes. It checks the generation, not the partitions."""
    topic = new_topic(300)
    offsets = {TopicPartition(topic, p): Committed(p, "x" * 4_000) for p in range(300)}
    transaction = driver.begin()
    driver.commit_offsets(transaction, offsets, member.group_metadata)
    driver.commit(transaction)
    assert committed_offsets(bootstrap, group, topic) == {p: p for p in range(300)}


def test_an_abort_leaves_nothing(
    bootstrap: str, driver: Transactions, member: Member, group: str, source: str, target: str
) -> None:
    transaction = driver.begin()
    write(bootstrap, transaction, target, [(0, "never"), (5, "never")])
    driver.commit_offsets(transaction, {TopicPartition(source, 0): Committed(10)}, member.group_metadata)
    driver.abort(transaction)
    driver.abort(transaction)
    assert (values(bootstrap, target), committed_offsets(bootstrap, group, source)) == ({}, {})
    with pytest.raises(TransactionFailed, match="Committing the transaction"):
        driver.commit(transaction)
    again = driver.begin()
    write(bootstrap, again, target, [(0, "once")])
    driver.commit(again)
    assert_values(bootstrap, target, {0: ["once"]})


def test_nothing_begun_needs_no_abort(driver: Transactions) -> None:
    driver.abort(driver.begin())


def test_a_zombie_is_rejected_whatever_it_does(
    bootstrap: str, driver: Transactions, transactional_id: str, member: Member, group: str, source: str, target: str
) -> None:
    zombies = driver.begin()
    next_sequences = write(bootstrap, zombies, target, [(0, "a zombie's")])
    with closing(Transactions(config_of(bootstrap), transactional_id)) as newer_run:
        newer = newer_run.begin()
        assert newer.producer.epoch > zombies.producer.epoch
        write(bootstrap, newer, target, [(0, "the newer run's")])
        for partition in (0, 1):
            with pytest.raises(FencedMember, match="a newer run has fenced this transactional id"):
                write(bootstrap, zombies, target, [(partition, "late")], next_sequences=next_sequences)
        with pytest.raises(FencedMember, match="a newer run has fenced this transactional id"):
            driver.commit_offsets(zombies, {TopicPartition(source, 0): Committed(5)}, member.group_metadata)
        with pytest.raises(FencedMember, match="a newer run has fenced this transactional id"):
            driver.commit(zombies)
        with pytest.raises(FencedMember, match="a newer run has fenced this transactional id"):
            driver.begin()
        # Nor can it abort the transaction of another producer.
        driver.abort(zombies)
        newer_run.commit_offsets(newer, {TopicPartition(source, 0): Committed(3)}, member.group_metadata)
        newer_run.commit(newer)
    assert_values(bootstrap, target, {0: ["the newer run's"]})
    assert committed_offsets(bootstrap, group, source) == {0: 3}


def test_a_late_write_of_an_earlier_batch_is_rejected(bootstrap: str, driver: Transactions, target: str) -> None:
    first = driver.begin()
    write(bootstrap, first, target, [(0, "one")])
    driver.commit(first)
    second = driver.begin()
    write(bootstrap, second, target, [(0, "two")])
    with pytest.raises(FencedMember):
        write(bootstrap, first, target, [(0, "one, of a task that was slow")], next_sequences={0: 1})
    driver.commit(second)
    assert_values(bootstrap, target, {0: ["one", "two"]})


def test_a_batch_that_failed_is_written_again(bootstrap: str, driver: Transactions, target: str) -> None:
    failed = driver.begin()
    write(bootstrap, failed, target, [(0, "half of it")])
    again = driver.begin()
    with pytest.raises(FencedMember):
        write(bootstrap, failed, target, [(1, "the other half")])
    write(bootstrap, again, target, [(0, "all of it"), (1, "all of it")])
    driver.commit(again)
    driver.begin()
    assert_values(bootstrap, target, {0: ["all of it"], 1: ["all of it"]})


def test_a_stale_generation_is_rejected(
    bootstrap: str,
    driver: Transactions,
    member: Member,
    group: str,
    source: str,
    target: str,
    request: pytest.FixtureRequest,
) -> None:
    stale = member.group_metadata
    other = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": request.node.callspec.params["member"],
            **({"partition.assignment.strategy": "cooperative-sticky"} if "[classic" in request.node.name else {}),
        }
    )
    try:
        other.subscribe([source])

        def moved() -> bool:
            other.poll(0.1)
            return len(other.assignment()) == 1 and len(member.consumer.assignment()) == 1

        member.wait_for(moved)
        transaction = driver.begin()
        write(bootstrap, transaction, target, [(0, "never")])
        offsets = {TopicPartition(source, 0): Committed(10), TopicPartition(source, 1): Committed(10)}
        with pytest.raises(FencedMember, match="the group has fenced this member"):
            driver.commit_offsets(transaction, offsets, stale)
        with pytest.raises(FencedMember, match="the group has fenced this member"):
            driver.commit_offsets(transaction, offsets, ConsumerGroupMetadata(group, stale.generation, "unknown"))
        # The consumer group metadata was stale, not the transaction.
        (mine,) = member.consumer.assignment()
        driver.commit_offsets(
            transaction, {TopicPartition(source, mine.partition): Committed(4)}, member.group_metadata
        )
        driver.abort(transaction)
    finally:
        other.close()
    assert (values(bootstrap, target), committed_offsets(bootstrap, group, source)) == ({}, {})


def test_a_second_writer_of_a_partition_is_rejected(bootstrap: str, driver: Transactions, target: str) -> None:
    """With one producer id the broker would accept its batches as retries of the first writer."""
    transaction = driver.begin()
    write(bootstrap, transaction, target, [(0, "the first's"), (1, "the first's")])
    write(bootstrap, transaction, target, [(2, "another's")])
    with pytest.raises(
        TransactionFailed, match=r"Another task, or an earlier attempt of this task, has written to .*-1 in"
    ):
        write(bootstrap, transaction, target, [(1, "the second's"), (3, "the second's")])
    driver.abort(transaction)
    assert values(bootstrap, target) == {}
    # In the next transaction it may write to the partition.
    transaction = driver.begin()
    write(bootstrap, transaction, target, [(1, "the second's")])
    driver.commit(transaction)
    assert_values(bootstrap, target, {1: ["the second's"]})


def test_what_a_killed_driver_left_open_is_aborted_by_the_next(
    bootstrap: str, driver: Transactions, transactional_id: str, target: str
) -> None:
    killed = start(do="die", bootstrap=bootstrap, topic=target, transactional_id=transactional_id)
    assert killed.wait(60) < 0
    assert values(bootstrap, target, committed_only=False) == {0: ["of a killed driver"]}
    transaction = driver.begin()
    write(bootstrap, transaction, target, [(0, "the next one's")])
    driver.commit(transaction)
    assert_values(bootstrap, target, {0: ["the next one's"]})


@pytest.mark.parametrize(
    "step",
    [Step.INIT_PRODUCER_ID, Step.ADD_PARTITIONS, Step.PRODUCE, Step.ADD_OFFSETS, Step.COMMIT_OFFSETS, Step.COMMIT],
)
def test_an_answer_that_is_lost_changes_nothing(
    bootstrap: str,
    driver: Transactions,
    group: str,
    source: str,
    target: str,
    step: Step,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost: list[Step] = []
    real = AdminSession.once

    def once_lost(self: AdminSession, what: str, *args: object) -> object:
        answer: object = real(self, what, *args)  # type: ignore[arg-type]
        # The broker has committed, and the response is lost twice.
        if what == step.value and len(lost) < 2:
            lost.append(step)
            raise BrokerUnreachable("The connection broke.")
        return answer

    monkeypatch.setattr(AdminSession, "once", once_lost)
    transaction = driver.begin()
    every = range(PARTITIONS)
    write(bootstrap, transaction, target, [(p, f"{p}") for p in every], more=[(p, f"{p} more") for p in every])
    driver.commit_offsets(
        transaction, {TopicPartition(source, 0): Committed(10)}, ConsumerGroupMetadata(group, None, "")
    )
    driver.commit(transaction)
    assert lost == [step, step]
    assert_values(bootstrap, target, {p: [f"{p}", f"{p} more"] for p in range(PARTITIONS)})
    assert committed_offsets(bootstrap, group, source) == {0: 10}


def test_a_commit_with_a_lost_response_is_not_called_failed(
    bootstrap: str, driver: Transactions, transactional_id: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction = driver.begin()
    write(bootstrap, transaction, target, [(0, "there")])
    real = AdminSession.once

    def lost_and_replaced(self: AdminSession, what: str, *args: object) -> object:
        answer: object = real(self, what, *args)  # type: ignore[arg-type]
        if what == Step.COMMIT.value:
            monkeypatch.undo()
            with closing(Transactions(config_of(bootstrap), transactional_id)) as newer:
                newer.begin()
            raise BrokerUnreachable("The connection broke.")
        return answer

    monkeypatch.setattr(AdminSession, "once", lost_and_replaced)
    with pytest.raises(SinkUnreachable, match="may or may not be committed"):
        driver.commit(transaction)
    assert_values(bootstrap, target, {0: ["there"]})


def test_a_transaction_that_timed_out_is_rejected(bootstrap: str, transactional_id: str, target: str) -> None:
    with closing(Transactions(config_of(bootstrap), transactional_id, timeout_ms=1_000)) as driver:
        transaction = driver.begin()
        write(bootstrap, transaction, target, [(0, "too late")])
        # Readers wait until the broker has aborted the transaction; BROKER_PROPERTIES configures the interval of its
        # check.
        wait_until(lambda: end_offsets(bootstrap, target, 1) == {0: 2}, "the broker has aborted it")
        with pytest.raises((FencedMember, TransactionFailed)):
            driver.commit(transaction)
    assert values(bootstrap, target) == {}


def test_bad_input_is_rejected_with_a_remedy(
    bootstrap: str, driver: Transactions, new_topic: Callable[..., str]
) -> None:
    with pytest.raises(InvalidOption, match="transactional id is empty"):
        Transactions(config_of(bootstrap), "")
    with (
        closing(Transactions(config_of(bootstrap), "x-long", timeout_ms=86_400_000)) as long,
        pytest.raises(InvalidOption, match=r"transaction\.max\.timeout\.ms"),
    ):
        long.begin()
    transaction = driver.begin()
    small = new_topic(1, max_message_bytes="1000")
    with pytest.raises(RecordRejected, match=rf"to {small}-0: the topic '{small}' rejects a record"):
        write(bootstrap, transaction, small, [(0, "x" * 5_000)])
    driver.abort(transaction)
    assert values(bootstrap, small) == {}
