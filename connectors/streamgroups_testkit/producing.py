"""Producers of test records: a number of records at once, or a steady load in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from streamgroups_testkit.topics import create_topic
from streamgroups_testkit.waits import wait_until

#: The timestamp by which a producer uses the current time.
NOW = 0


def ordered_producer(bootstrap: str) -> Producer:
    """Returns a producer that writes each record once, and in order, if it repeats a request.

    Without idempotence, a retry can write the first records of a partition after later ones.

    Args:
        bootstrap: the broker.
    """
    return Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})


def produce(
    bootstrap: str,
    topic: str,
    count: int,
    *,
    partitions: int,
    first: int = 0,
    size_bytes: int = 20,
    key_of: Callable[[int], str] = str,
    time_ms_of: Callable[[int], int] = lambda _: NOW,
    on_acknowledged: Callable[[Message], object] = lambda _: None,
) -> None:
    """Writes ``count`` records, round robin over the partitions, valued by their number.

    Args:
        bootstrap: the broker.
        topic: the topic.
        count: how many.
        partitions: the number of partitions.
        first: the first number.
        size_bytes: the size of a value.
        key_of: the key of a record, by its number.
        time_ms_of: its timestamp, in milliseconds since the epoch; by default, and for 0, the current time.
        on_acknowledged: called with each record that the broker has acknowledged, with its offset.
    """
    failures: list[KafkaError] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)
        else:
            on_acknowledged(message)

    producer = _producer(bootstrap)
    wait_until(lambda: _has_partitions(producer, topic, partitions), f"{topic} has {partitions} partitions")
    for i in range(first, first + count):
        value = str(i).ljust(size_bytes, ".")
        while True:
            try:
                producer.produce(topic, value, key_of(i), i % partitions, timestamp=time_ms_of(i), on_delivery=report)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(60) or failures:
        # Errors of a delivery must not affect the next test.
        _producer.cache_clear()
        raise AssertionError(f"not all records were written to {topic}: {failures[:3]}")


def _has_partitions(producer: Producer, topic: str, partitions: int) -> bool:
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
    # it outlives some brokers. Some brokers hang, and keep their connections. A record is acknowledged when all in-sync replicas
    # have it.
    finds_leaders = {"socket.timeout.ms": 10_000, "topic.metadata.refresh.interval.ms": 5_000}
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "enable.idempotence": True,
            "acks": "all",
            "log_level": 0,
            **finds_leaders,
        }
    )


class Load:
    """Produces at a steady rate in the background until it is stopped. See :func:`produce` for ``record``."""

    def __init__(self, bootstrap: str, topic: str, *, partitions: int, per_second: int = 2_000, **record: Any) -> None:
        self.count = 0
        self._failure: Exception | None = None
        self._stopped, self._portion = threading.Event(), threading.Lock()
        self._args, self._record = (bootstrap, topic, partitions, per_second), record
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops after the records in progress. Idempotent.

        Raises:
            AssertionError: if a record was not written.
        """
        self._stopped.set()
        self._thread.join(90)
        if self._failure is not None:
            raise AssertionError("the load has ended before it should") from self._failure

    @contextmanager
    def paused(self, *, with_new_producer: bool = False) -> Iterator[None]:
        """Writes no records for the duration of the block. All records before it are acknowledged.

        Args:
            with_new_producer: whether later records have another producer id. A truncated log lacks the last sequence numbers of the
                old one, so the broker would reject its next records.
        """
        with self._portion:
            yield
            if with_new_producer:
                _producer.cache_clear()

    def _run(self) -> None:
        bootstrap, topic, partitions, per_second = self._args
        portion = per_second // 10
        try:
            while not self._stopped.wait(0.1):
                with self._portion:
                    produce(bootstrap, topic, portion, partitions=partitions, first=self.count, **self._record)
                self.count += portion
        except Exception as e:
            # A delivery error is raised at the end of the block. Otherwise a test that waits for records would time out
            # without a reason.
            self._failure = e


def recreate_topic(admin: AdminClient, topic: str, *, partitions: int = 1) -> None:
    """Deletes a topic with the committed offsets of its groups, and creates it again without records."""
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, f"{topic} is deleted")
    create_topic(admin, topic, partitions)
