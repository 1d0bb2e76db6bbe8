"""W2, W3, W14, S10, X2: a replay of a month of flights. One partition is a day behind, one has no records, and one has
clocks that differ by up to 20 minutes. The query is killed and restarted. Its windows are equal to a count by pandas.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from confluent_kafka.admin import AdminClient

from demo.flights import table
from integration_tests.programs import Program, running
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.queries import exclusive_options
from streamgroups_testkit.reading import committed_offsets, read_committed, wait_until_group_is_empty
from streamgroups_testkit.waits import wait_until

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
#: Partition 3 has no records.
BEHIND, SKEWED, PARTITIONS = 1, 2, 4
#: Half of the greatest difference between two clocks.
SKEW_MS = 10 * 60_000
REPLAY_S = 45.0
KILLS = 3


def flights_of_january() -> pd.DataFrame:
    """Carrier, partition, scheduled departure, and the time at which the record is written, in milliseconds."""
    flights = table("flights.csv.zip")
    flights = flights[flights["month"] == 1].reset_index()
    departure = pd.to_datetime(flights["time_hour"]) + pd.to_timedelta(flights["minute"], unit="min")
    carriers = {carrier: number for number, carrier in enumerate(sorted(flights["carrier"].unique()))}
    found = pd.DataFrame({"carrier": flights["carrier"], "partition": flights["carrier"].map(carriers) % 3})
    found["departure_ms"] = (departure - pd.Timestamp(0, tz="UTC")) // pd.Timedelta(milliseconds=1)
    skew_ms = pd.Series(range(len(found))) * 7919 % 1009 * 2 * SKEW_MS // 1009 - SKEW_MS
    delay_ms = (found["partition"] == BEHIND) * DAY_MS + (found["partition"] == SKEWED) * skew_ms
    found["written_ms"] = found["departure_ms"] + delay_ms
    return found.sort_values("written_ms", kind="stable", ignore_index=True)


class Replay:
    """Writes the flights at a steady rate, from a thread. The last record of a partition closes its windows."""

    def __init__(self, bootstrap: str, topic: str, flights: pd.DataFrame) -> None:
        self._producer, self._topic, self._flights = (
            ordered_producer(bootstrap),
            topic,
            flights,
        )
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._stop = threading.Event()
        self.is_done = False

    def __enter__(self) -> Replay:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _write(self) -> None:
        rows = list(self._flights[["carrier", "partition", "departure_ms"]].itertuples(index=False))
        ticks = 900
        for tick in range(ticks):
            for row in rows[len(rows) * tick // ticks : len(rows) * (tick + 1) // ticks]:
                self._send(row.carrier, int(row.partition), int(row.departure_ms))
            self._producer.poll(0)
            if self._stop.wait(REPLAY_S / ticks):
                return
        last_ms = int(self._flights["departure_ms"].max()) + 30 * DAY_MS
        for partition in range(3):
            self._send("closing", partition, last_ms)
        assert self._producer.flush(30) == 0
        self.is_done = True

    def _send(self, carrier: str, partition: int, departure_ms: int) -> None:
        self._producer.produce(self._topic, f'{{"departure_ms": {departure_ms}}}', carrier, partition)


@pytest.mark.long
@pytest.mark.parametrize("time", ["query", "group"])
def test_a_month_of_flights_is_equal_to_pandas(
    bootstrap: str, admin: AdminClient, new_topic: Callable[..., str], group: str, tmp_path: Path, time: str
) -> None:
    topic, to = new_topic(PARTITIONS, retention_ms="-1"), new_topic(2)
    flights = flights_of_january()
    options = exclusive_options(bootstrap, group, topic, "classic")
    config = {
        "options": options | {"partitionIdleTimeout": "10s", "maxOffsetsPerTrigger": "4000"},
        "time": time,
        "to": {"bootstrap_servers": bootstrap, "topic": to},
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    log = tmp_path / "log"

    def values() -> list[str]:
        return [record.value.decode().rstrip(".") for record in read_committed(bootstrap, to)]

    def has_read(count: float) -> bool:
        return sum(committed_offsets(bootstrap, group, topic).values()) >= count

    def wait_for(condition: Callable[[], bool], program: Program, what: str) -> None:
        def is_so() -> bool:
            program.check()
            return condition()

        wait_until(is_so, what, 180)

    counts = flights.assign(hour_ms=flights["departure_ms"] // HOUR_MS * HOUR_MS).groupby(["hour_ms", "carrier"]).size()
    expected = {(int(hour_ms), carrier): int(n) for (hour_ms, carrier), n in counts.items()}
    with Replay(bootstrap, topic, flights) as replay:
        for kill in range(1, KILLS + 1):
            part = kill / (KILLS + 1)
            with running("flights_query", config, log) as program:
                wait_for(partial(has_read, len(flights) * part), program, f"{part:.0%} of the flights are read")
            # An exclusive query is rejected as long as the killed one is a member.
            wait_until_group_is_empty(admin, group)
        with running("flights_query", config, log) as program:
            wait_for(lambda: replay.is_done and len(values()) >= len(expected), program, "all windows are written")
    rows = [json.loads(value) for value in values()]
    assert not [place for place, n in Counter((row["hour_ms"], row["key"]) for row in rows).items() if n > 1]
    assert {(row["hour_ms"], row["key"]): row["flights"] for row in rows} == expected
