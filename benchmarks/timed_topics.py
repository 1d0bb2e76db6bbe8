"""Topics whose records have keys, and timestamps that determine their windows. The input of the family ``state``.

The records of a partition are in the order of their timestamps, so no record is late. Each partition has keys of its
own. Written by a confluent-kafka producer, because Spark's sink sets no timestamps.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import Producer

from benchmarks.rounds import WrongCount
from benchmarks.workload import create, ends

#: The length of a window, in milliseconds.
WINDOW_MS = 60_000
PARTITIONS = 8
_VALUE = b"x" * 100
#: Fewer than the queue of a producer holds.
_CHUNK = 50_000
#: The first timestamp: the start of a window in the past, because a broker rejects timestamps of the future.
BEGIN_MS = (int(time.time() * 1000) // WINDOW_MS - 60) * WINDOW_MS


@dataclass(frozen=True, slots=True)
class TimedSpec:
    """The specification of a topic to write.

    Args:
        name: the name of the topic.
        windows: the number of windows of a minute.
        window_records: the number of records of each window, in all partitions.
        keys: the number of keys of each partition.
    """

    name: str
    windows: int
    window_records: int
    keys: int

    @property
    def records(self) -> int:
        """The number of records in all partitions."""
        return self.windows * self.window_records

    @property
    def closed_records(self) -> int:
        """The records of all windows that a later window closes.

        >>> TimedSpec("t", 5, 960, 100).closed_records
        3840
        """
        return (self.windows - 1) * self.window_records

    def time_ms(self, n: int) -> int:
        """The timestamp of a record in milliseconds since the epoch.

        Args:
            n: the number of the record, over all partitions.

        >>> TimedSpec("t", 5, 960, 100).time_ms(960 + 480) - BEGIN_MS
        90000
        """
        return BEGIN_MS + n * WINDOW_MS // self.window_records


def key_of(n: int, keys: int) -> str:
    """The key of a record. The records of a partition have all its keys in turn.

    Args:
        n: the number of the record, over all partitions. Its partition is the remainder by their number.
        keys: the number of keys of each partition.

    >>> [key_of(n, 2) for n in (0, 8, 16, 1)]
    ['0-0', '0-1', '0-0', '1-0']
    """
    return f"{n % PARTITIONS}-{n // PARTITIONS % keys}"


def write_timed(bootstrap: str, spec: TimedSpec) -> str:
    """Creates and fills a topic.

    Returns:
        the name of the topic.

    Raises:
        WrongCount: if the topic has another number of records.
    """
    create(bootstrap, spec.name, PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "acks": 1, "log_level": 0})
    for count, n in enumerate(n for first in range(PARTITIONS) for n in range(first, spec.records, PARTITIONS)):
        producer.produce(spec.name, _VALUE, key_of(n, spec.keys), n % PARTITIONS, timestamp=spec.time_ms(n))
        if not (count + 1) % _CHUNK:
            producer.flush(60)
    producer.flush(60)
    written = sum(ends(bootstrap, spec.name, PARTITIONS).values())
    if written != spec.records:
        raise WrongCount(f"topic {spec.name} holds {written} records")
    return spec.name


def write_more(bootstrap: str, topic: str, *, records: int, keys: int, time_ms: int) -> None:
    """Writes records with one timestamp to an existing topic."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for n in range(records):
        producer.produce(topic, _VALUE, key_of(n, keys), n % PARTITIONS, timestamp=time_ms)
    producer.flush(60)
