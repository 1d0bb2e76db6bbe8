"""Flights for the queries of clusters, and the results that these queries must have.

Used by ``test_spark_clusters`` and ``test_the_compose_cluster``.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import psycopg

from integration_tests.cluster_query import HELD_FLIGHT
from streamgroups_testkit.producing import ordered_producer

PARTITIONS = 4
CARRIERS = ("AA", "B6", "DL", "EV", "UA", "US", "WN")
HOUR_MS = 3_600_000
START_MS = 483_333 * HOUR_MS


@dataclass(frozen=True)
class Flights:
    """Flights in a topic, and the results that the queries must have.

    Args:
        count: their number.
    """

    count: int

    def records(self) -> Iterator[tuple[str, dict[str, Any], int]]:
        """Carrier, flight and event time in milliseconds, the same in each call."""
        values = random.Random(2013)
        for number in range(self.count):
            carrier = values.choice(CARRIERS)
            # The held flight is late, so that its attempts have an output.
            delay = 60 if number == HELD_FLIGHT else values.randint(-10, 60)
            yield carrier, {"carrier": carrier, "number": number, "delay": delay}, START_MS + 10_000 * number

    def write(self, bootstrap: str, topic: str, start: int = 0, stop: int | None = None) -> None:
        producer = ordered_producer(bootstrap)
        for carrier, flight, time_ms in islice(self.records(), start, stop):
            producer.produce(topic, json.dumps(flight), carrier, timestamp=time_ms)
            producer.poll(0)
        assert producer.flush(30) == 0

    def close_windows(self, bootstrap: str, topic: str) -> None:
        """Writes a record to each partition whose time is after the windows of all flights."""
        producer = ordered_producer(bootstrap)
        for partition in range(PARTITIONS):
            time_ms = START_MS + 10_000 * self.count + 2 * HOUR_MS
            producer.produce(topic, "{}", "closing", partition, timestamp=time_ms)
        assert producer.flush(30) == 0

    def late(self) -> list[int]:
        return [flight["number"] for _, flight, _ in self.records() if flight["delay"] > 15]

    def hours(self) -> Counter[tuple[str, int]]:
        return Counter((carrier, time_ms // HOUR_MS * HOUR_MS) for carrier, _, time_ms in self.records())


def hours_in(database: str) -> Counter[tuple[str, int]]:
    """The rows of the table as numbers of flights by carrier and hour, if each hour is there once."""
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT carrier, hour, flights FROM hours").fetchall()
    found = Counter({(carrier, int(hour.timestamp() * 1_000)): flights for carrier, hour, flights in rows})
    assert len(found) == len(rows), "an hour is there twice"
    return found
