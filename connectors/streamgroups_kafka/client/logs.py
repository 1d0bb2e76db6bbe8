"""What Kafka clients have to say of a broker that is away: through Python's ``logging``, one line in ten seconds.

Used by every module here that runs a client. Clients of one cluster share one :class:`ClientLog` in a process. Which failures are logged
:mod:`streamgroups.outages` decides. What the clients themselves would print:

- librdkafka prints to ``stderr``, some forty lines a second of each client. A member's lines come here (confluent-kafka's ``logger``), which its
  polls deliver. Other clients are not polled, so librdkafka is silent there (``log_level`` 0): their failed requests come here instead.
- kafka-python logs by itself, from its own threads. A filter takes what it says of connections (:func:`take_over_logs_of`).

Whoever sets ``kafka.log_level`` or ``kafka.debug`` gets librdkafka's own lines on ``stderr``, all of them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable

from streamgroups.outages import LogState, failed, succeeded

#: Its level is that of all lines about brokers.
logger = logging.getLogger("streamgroups_kafka.clients")

#: What librdkafka's lines about connections are marked with. What else it has to say is limited too, each kind by itself.
_OF_CONNECTIONS = frozenset({"FAIL", "ERROR", "REQTMOUT", "TIMEOUT", "RECONNECT", "METADATA", "COMMITFAIL"})
_CONNECTIONS = ""
#: kafka-python's loggers that speak of connections.
_KAFKA_PYTHONS = ("kafka.cluster", "kafka.net.connection", "kafka.net.inet", "kafka.net.manager", "kafka.net.transport")


class ClientLog:
    """The log of all clients of one cluster in this process. Safe to call from any thread.

    Args:
        servers: ``bootstrap.servers``, which names the cluster.
        clock_ms: milliseconds that go on.
    """

    def __init__(self, servers: str, clock_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000) -> None:
        self._servers, self._clock_ms = servers, clock_ms
        self._lock = threading.Lock()
        self._states: defaultdict[str, LogState] = defaultdict(LogState)

    def failed(self, text: str, kind: str = _CONNECTIONS) -> None:
        """A client could not reach a broker, or has something else to say.

        Args:
            text: without secrets.
            kind: what it is about, if not about connections.
        """
        with self._lock:
            self._states[kind], line = failed(self._states[kind], self._clock_ms())
        if line is None:
            return
        more = f" ({line.suppressed} more were not logged)" if line.suppressed else ""
        logger.warning("Kafka at %s: %s%s", self._servers, text, more)

    def succeeded(self) -> None:
        """A broker answered a request."""
        if self._states[_CONNECTIONS].outage is None:
            return
        with self._lock:
            self._states[_CONNECTIONS], line = succeeded(self._states[_CONNECTIONS], self._clock_ms())
        if line is not None:
            logger.warning(
                "Kafka at %s: requests succeed again after %.1f s; %d failures were not logged",
                self._servers,
                line.away_ms / 1000,
                line.suppressed,
            )


class MemberLog:
    """What confluent-kafka takes for a logger.

    Args:
        log: where to.
        redact: takes secrets out of a text.
    """

    def __init__(self, log: ClientLog, redact: Callable[[str], str]) -> None:
        self._log, self._redact = log, redact

    def log(self, level: int, _template: str, kind: str, client: str, text: str) -> None:
        """confluent-kafka calls it from ``poll``, with ``"%s [%s] %s"`` and its arguments."""
        said = self._redact(f"{client}: {text}")
        if level < logging.WARNING:
            logger.log(level, "%s: %s", kind, said)
        else:
            self._log.failed(said, _CONNECTIONS if kind in _OF_CONNECTIONS else kind)


_LOGS: dict[str, ClientLog] = {}
_LOCK = threading.Lock()


def client_log(servers: str | None) -> ClientLog:
    """The log of the clients of one cluster.

    Args:
        servers: ``bootstrap.servers``.

    >>> client_log("broker:9092") is client_log("broker:9092")
    True
    """
    with _LOCK:
        return _LOGS.setdefault(servers or "", ClientLog(servers or ""))


class _TakenOver(logging.Filter):
    """Lets pass what is not said by a thread of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[str, ClientLog] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        log = self.logs.get(record.threadName or "")
        if log is None or record.levelno < logging.WARNING or "throttled" in str(record.msg):
            return True
        said = record.getMessage()
        logger.debug("kafka-python: %s", said)
        log.failed(said)
        return False


_TAKEN_OVER = _TakenOver()


def take_over_logs_of(client_id: str, log: ClientLog) -> None:
    """From now on what kafka-python says of connections in the threads of a client is the log's.

    Args:
        client_id: of the client, by which kafka-python names its threads.
        log: where to.
    """
    _TAKEN_OVER.logs[f"kafka-io-{client_id}"] = log
    for name in _KAFKA_PYTHONS:
        # Adding it a second time does nothing.
        logging.getLogger(name).addFilter(_TAKEN_OVER)
