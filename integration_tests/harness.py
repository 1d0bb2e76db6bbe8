"""Tools of the integration tests: producers, waits, and queries in separate processes that a test can kill.

The output of a query is one file for each finished batch, which lists the records of the batch. A file is written
completely or not at all. So a test can count which records arrived, how often, and from which member.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from component_tests.waits import wait_until
from streamgroups.groups.audit import uncommitted
from streamgroups.groups.history import Event
from streamgroups_kafka.client.commit_metadata import metadata_of
from streamgroups_kafka.membership.history_file import read_history

Record = tuple[str, int, int]


class Broker(Protocol):
    """The operations of a broker that the suite needs, embedded or in a container."""

    @property
    def bootstrap_servers(self) -> str: ...

    def run_tool(self, tool: str, *args: str) -> subprocess.CompletedProcess[str]: ...


def produce(bootstrap: str, topic: str, count: int, *, partitions: int, first: int = 0, size_bytes: int = 20) -> None:
    """Writes ``count`` records, round robin over the partitions, keyed and valued by their number."""
    failures: list[KafkaError] = []

    def note(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = _producer(bootstrap)
    wait_until(lambda: _knows(producer, topic, partitions), f"{topic} has {partitions} partitions")
    for i in range(first, first + count):
        value = str(i).ljust(size_bytes, ".")
        while True:
            try:
                producer.produce(topic, key=str(i), value=value, partition=i % partitions, on_delivery=note)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(60) or failures:
        # Errors of a delivery must not affect the next test.
        _producer.cache_clear()
        raise AssertionError(f"not all records were written to {topic}: {failures[:3]}")


def _knows(producer: Producer, topic: str, partitions: int) -> bool:
    """Whether the producer has the current number of partitions. Its metadata can be from a time when the topic had
    fewer. Without a broker it has no metadata.
    """
    try:
        return len(producer.list_topics(topic, timeout=30).topics[topic].partitions) >= partitions
    except KafkaException:
        return False


@lru_cache(maxsize=2)
def _producer(bootstrap: str) -> Producer:
    """A cached producer, because an idempotent producer needs half a second before its first write. The cache has two,
    because some tests start another broker.
    """
    # Idempotent, so that a failure of the broker causes no duplicates in the input. Its errors are not logged, because
    # it outlives some brokers.
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True, "log_level": 0})


class Load:
    """Produces at a steady rate in the background until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, *, partitions: int, per_second: int = 2_000) -> None:
        self.count = 0
        self._failure: Exception | None = None
        self._stopped = threading.Event()
        self._args = bootstrap, topic, partitions, per_second
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(60)
        if self._failure is not None:
            raise AssertionError("the load has ended before it should") from self._failure

    def _run(self) -> None:
        bootstrap, topic, partitions, per_second = self._args
        portion = per_second // 10
        try:
            while not self._stopped.wait(0.1):
                produce(bootstrap, topic, portion, partitions=partitions, first=self.count)
                self.count += portion
        except Exception as e:
            # A delivery error is raised at the end of the block. Otherwise a test that waits for records would time out
            # without a reason.
            self._failure = e


def end_offsets(bootstrap: str, topic: str, partitions: int) -> dict[int, int]:
    """The end offset of every partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in range(partitions)}
    finally:
        consumer.close()


@dataclass(frozen=True)
class Found:
    """A record that an independent reader of committed records has read."""

    partition: int
    key: bytes | None
    value: bytes


def read_committed(bootstrap: str, topic: str) -> list[Found]:
    """All committed records of a topic, in the order of their partitions."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    found = []
    try:
        partitions = set(reader.list_topics(topic, timeout=30).topics[topic].partitions)
        reader.assign([TopicPartition(topic, p, 0) for p in partitions])
        while partitions:
            message = reader.poll(30)
            assert message is not None, f"no end of {partitions}"
            partition, value = message.partition(), message.value()
            assert partition is not None
            if message.error():
                partitions.discard(partition)
            else:
                assert value is not None
                key = message.key()
                found.append(Found(partition, key.encode() if isinstance(key, str) else key, value))
    finally:
        reader.close()
    return found


def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """The committed offsets of a group for a topic."""
    return {tp.partition: tp.offset for tp in _committed(bootstrap, group, topic)}


def committed_metadata(bootstrap: str, group: str, topic: str) -> dict[int, str]:
    """The metadata of the committed offsets of a group for a topic."""
    return {tp.partition: metadata_of(tp) for tp in _committed(bootstrap, group, topic)}


def _committed(bootstrap: str, group: str, topic: str) -> list[TopicPartition]:
    """The committed offsets by partition.

    Uses a consumer, because the admin API ends the process while a group has no coordinator (librdkafka#5040).
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"})
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        found = consumer.committed([TopicPartition(topic, p) for p in partitions], timeout=30)
        return [tp for tp in found if tp.offset >= 0]
    except KafkaException as e:
        # A new cluster is still creating the topic of committed offsets, so no offset is committed.
        if e.args[0].code() not in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS):
            raise
        return []
    finally:
        consumer.close()


def described(kafka: Broker, group: str) -> list[dict[str, str]]:
    """The description of a group's partitions by Kafka's own tool: one row each, by the names of the columns."""
    said = kafka.run_tool("consumer-groups", "--describe", "--group", group).stdout.splitlines()
    table = [line.split() for line in said if line.strip()]
    header = next((i for i, words in enumerate(table) if words[0] == "GROUP"), len(table) - 1)
    return [dict(zip(table[header], words, strict=False)) for words in table[header + 1 :]]


def wait_until_empty(admin: AdminClient, group: str) -> None:
    """Waits until the last member has left. Spark stops the stream runner of a query shortly after the query."""

    def empty() -> bool:
        return not admin.describe_consumer_groups([group])[group].result(30).members

    wait_until(empty, f"all members of {group} have left")


def sharing(bootstrap: str, group: str, topic: str, protocol: str) -> dict[str, str]:
    """Options of a shared member with a session timeout of six seconds."""
    # With KIP-848 the broker configures the timeout; see BROKER_PROPERTIES.
    session = {"kafka.session.timeout.ms": "6000"} if protocol == "classic" else {}
    return {
        "kafka.bootstrap.servers": bootstrap,
        "group.id": group,
        "subscribe": topic,
        "startingPosition": "TRIM_HORIZON",
        "kafka.group.protocol": protocol,
        **session,
    }


def alone(bootstrap: str, group: str, topic: str, protocol: str) -> dict[str, str]:
    """The same for a stateful query, which is the only member of its group."""
    return sharing(bootstrap, group, topic, protocol) | {"membership": "exclusive"}


@dataclass
class Query:
    """A streaming query whose output and history a test reads.

    Args:
        directory: the directory of output, history, checkpoints and logs of all queries of a test.
        name: the name of the member.
        options: the options of the source, including ``kafka.*``.
        trigger: as for ``DataStreamWriter.trigger``; default: as fast as possible.
        batch_delay_s: how long each batch sleeps before its output is written, to hold it in flight.
    """

    directory: Path
    name: str
    options: Mapping[str, str]
    trigger: Mapping[str, object] = field(default_factory=dict)
    batch_delay_s: float = 0.0

    @property
    def output(self) -> Path:
        return self.directory / "output"

    def config(self) -> dict[str, Any]:
        """The configuration for ``query.start_query``."""
        self.output.mkdir(parents=True, exist_ok=True)
        return {
            "name": self.name,
            "output": str(self.output),
            "checkpoint": str(self.directory / f"checkpoint-{self.name}"),
            "options": {
                "kafka.client.id": self.name,
                "historyDir": str(self.directory / "history"),
                **self.options,
            },
            "trigger": dict(self.trigger),
            "batch_delay_s": self.batch_delay_s,
        }

    def log(self) -> str:
        """Its log, for the message of a failed test."""
        raise NotImplementedError

    def check(self) -> None:
        """Fails if the query has failed."""
        raise NotImplementedError

    def batches(self) -> int:
        """The number of batches that have written their output."""
        return sum(1 for _ in self.output.glob(f"{self.name}-*.json"))

    def wait_for_batches(self, least: int, timeout_s: float = 180) -> None:
        """Waits for this number of finished batches with records; fails immediately if the query fails."""

        def done() -> bool:
            self.check()
            return self.batches() >= least

        wait_until(done, f"{least} batches of {self.name}:\n{self.log()}", timeout_s)

    def wait_until_joining(self, timeout_s: float = 180) -> None:
        """Waits until it runs and has sent a request to join the group."""
        record = self.directory / "history"
        wait_until(lambda: list(record.glob(f"{self.name}-*.jsonl")), f"{self.name} is up:\n{self.log()}", timeout_s)


@dataclass
class QueryProcess(Query):
    """A streaming query in a separate process group, which a test can kill.

    Args:
        supervised: how often ``sg.supervise`` runs it in succession; 0 runs it without supervision.
    """

    supervised: int = 0
    process: subprocess.Popen[bytes] | None = None
    _log: IO[bytes] | None = None

    @property
    def log_path(self) -> Path:
        return self.directory / f"{self.name}.log"

    def start(self) -> QueryProcess:
        """Starts it without waiting."""
        config = self.config() | {"supervised": self.supervised}
        self._log = self.log_path.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "integration_tests.query", json.dumps(config)],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        return self

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to all its processes: driver, JVM and stream runner."""
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """Kills all its processes with ``kill -9``."""
        if self.process is not None and self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait(30)
        if self._log is not None:
            self._log.close()

    def stop(self, timeout_s: float = 60) -> None:
        """Stops the query with SIGTERM and waits for its end."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout_s) == 0, self.log()
        assert self._log is not None
        self._log.close()

    def log(self) -> str:
        """The end of its output."""
        return self.log_path.read_text(errors="replace")[-6000:]

    def check(self) -> None:
        """Fails if its process has ended."""
        assert self.process is not None
        assert self.process.poll() is None, f"{self.name} died:\n{self.log()}"

    def wait_for_end(self, timeout_s: float = 120) -> int:
        """Waits until it ends by itself; returns its exit code."""
        assert self.process is not None
        return self.process.wait(timeout_s)


def arrived(directory: Path) -> Counter[Record]:
    """How often each record, by topic, partition and offset, arrived in a finished batch of any query."""
    found: Counter[Record] = Counter()
    for path in (directory / "output").glob("*.json"):
        batch = json.loads(path.read_text())
        for topic, partition, offset in batch["records"]:
            found[topic, partition, offset] += 1
    return found


def history(directory: Path) -> list[Event]:
    """The events of all members of a test, in order of time."""
    return read_history(directory / "history")


def expected(topic: str, ends: Mapping[int, int]) -> set[Record]:
    """Every record of a topic, from its end offsets, if it has no gaps."""
    return {(topic, p, offset) for p, end in ends.items() for offset in range(end)}


def never_committed(events: list[Event], *ended: str) -> set[Record]:
    """The records that may be read again: uncommitted records of ended members, and lost or reset ranges.

    Args:
        events: the histories of all members.
        ended: the members that the test killed, froze or stopped.

    Raises:
        AssertionError: if a member released a partition without a commit of the records that it had read.
    """
    left = uncommitted(events)
    broken = [found for found in left if found.ended == "released"]
    assert not broken, f"handed over before it was committed: {broken[:3]}"
    return {
        (found.offsets.topic_partition.topic, found.offsets.topic_partition.partition, offset)
        for found in left
        if found.ended in ("lost", "moved") or found.member in ended
        for offset in range(found.offsets.next_offset, found.offsets.end_offset)
    }


def recreate(admin: AdminClient, bootstrap: str, topic: str, new_topic: Callable[..., str], count: int) -> None:
    """Deletes the topic with its committed offsets, and recreates it with this number of records."""
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic is gone")
    new_topic(1, name=topic)
    produce(bootstrap, topic, count, partitions=1)
