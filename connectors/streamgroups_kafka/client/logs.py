"""The log of Kafka clients about unavailable brokers: through Python's ``logging``, one line in ten seconds.

Used by every module that runs a client. The clients of one cluster share one :class:`ClientLog` in a process.
:mod:`streamgroups.outages` decides which failures are logged. The output of the clients themselves:

- librdkafka writes about forty lines a second of each client to ``stderr``. The lines of members come here
  (confluent-kafka's ``logger``), delivered by their polls. Other clients do not poll. For them librdkafka's log is
  disabled (``log_level`` 0), and their failed requests are logged here.
- kafka-python logs from its own threads. A filter redirects its lines about connections (:func:`take_over_logs`). Another
  one removes the messages of a login, which it logs with the password or token at the level ``DEBUG``.

With ``kafka.log_level`` or ``kafka.debug``, all lines of librdkafka go to ``stderr``.

Source: the ``log_level``, ``debug`` and ``log_cb`` properties in librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable

from streamgroups.outages import LogState, failed, succeeded

#: The level of this logger controls all lines about brokers.
logger = logging.getLogger("streamgroups_kafka.clients")

#: The facilities of librdkafka's lines about connections. The lines of other facilities are limited too, each facility
#: separately.
_OF_CONNECTIONS = frozenset({"FAIL", "ERROR", "REQTMOUT", "TIMEOUT", "RECONNECT", "METADATA", "COMMITFAIL"})
_CONNECTIONS = ""
#: The loggers of kafka-python for connections.
_KAFKA_PYTHONS = ("kafka.cluster", "kafka.net.connection", "kafka.net.inet", "kafka.net.manager", "kafka.net.transport")
#: The loggers of kafka-python for messages of the protocol.
_WITH_MESSAGES = ("kafka.net.connection", "kafka.protocol.parser")
#: The names of kafka-python's classes for the messages of a login begin with them. The handshake has the mechanism only.
_LOGINS = ("SaslAuthenticate", "SaslBytes")


class ClientLog:
    """The log of all clients of one cluster in this process. Safe to call from any thread.

    Args:
        servers: ``bootstrap.servers``, which identifies the cluster.
        clock_ms: a monotonic clock, in milliseconds.
    """

    def __init__(self, servers: str, clock_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000) -> None:
        self._servers, self._clock_ms = servers, clock_ms
        self._lock = threading.Lock()
        self._states: defaultdict[str, LogState] = defaultdict(LogState)

    def failed(self, text: str, kind: str = _CONNECTIONS) -> None:
        """Records that a client could not reach a broker, or another warning.

        Args:
            text: the text, without secrets.
            kind: the facility, if the text is not about connections.
        """
        with self._lock:
            self._states[kind], line = failed(self._states[kind], self._clock_ms())
        if line is None:
            return
        more = f" ({line.suppressed} more were not logged)" if line.suppressed else ""
        logger.warning("Kafka at %s: %s%s", self._servers, text, more)

    def succeeded(self) -> None:
        """Records that a broker responded to a request."""
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
    """The logger of confluent-kafka's clients.

    Args:
        log: the log of the cluster.
        redact: removes secrets from a text.
    """

    def __init__(self, log: ClientLog, redact: Callable[[str], str]) -> None:
        self._log, self._redact = log, redact

    def log(self, level: int, _template: str, kind: str, client: str, text: str) -> None:
        """confluent-kafka calls it from ``poll``, with ``"%s [%s] %s"`` and its arguments."""
        shown = self._redact(f"{client}: {text}")
        if level < logging.WARNING:
            logger.log(level, "%s: %s", kind, shown)
        else:
            self._log.failed(shown, _CONNECTIONS if kind in _OF_CONNECTIONS else kind)


_LOGS: dict[str, ClientLog] = {}
_LOCK = threading.Lock()


def client_log(servers: str | None) -> ClientLog:
    """Returns the log of the clients of one cluster.

    Args:
        servers: ``bootstrap.servers``.

    >>> client_log("broker:9092") is client_log("broker:9092")
    True
    """
    with _LOCK:
        return _LOGS.setdefault(servers or "", ClientLog(servers or ""))


class _Thread(threading.local):
    """The current thread."""

    #: The log of the cluster to which the thread is connected; ``None`` if the thread does not belong to this library.
    log: ClientLog | None = None


_THREAD = _Thread()


class _TakenOver(logging.Filter):
    """Passes the records of threads that do not belong to this library. It runs on the thread that logs."""

    def filter(self, record: logging.LogRecord) -> bool:
        log = _THREAD.log
        if log is None or record.levelno < logging.WARNING or "throttled" in str(record.msg):
            return True
        line = record.getMessage()
        logger.debug("kafka-python: %s", line)
        log.failed(line)
        return False


class _WithoutLogins(logging.Filter):
    """Drops the messages of logins, and the bytes of all messages, in the threads of this library.

    The bytes have to be dropped without their content: the messages of a login with an old broker have no header. The records
    with warnings and errors stay. They do not contain requests.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if _THREAD.log is None or record.levelno >= logging.INFO or not isinstance(record.args, tuple):
            return True
        return not any(isinstance(it, (bytes, bytearray)) or _is_of_login(it) for it in record.args)


def _is_of_login(message: object) -> bool:
    return type(message).__name__.startswith(_LOGINS)


_TAKEN_OVER = _TakenOver()
_WITHOUT_LOGINS = _WithoutLogins()


def take_over_logs(log: ClientLog) -> None:
    """Redirects kafka-python's records about connections in the current thread to a log, until the thread ends.

    Records with a login are dropped. The clients of several clusters can have one client id, and so threads of one name.

    Args:
        log: the log of the cluster.
    """
    _THREAD.log = log
    for name in _KAFKA_PYTHONS:
        # A second call has no effect.
        logging.getLogger(name).addFilter(_TAKEN_OVER)
    for name in _WITH_MESSAGES:
        logging.getLogger(name).addFilter(_WITHOUT_LOGINS)
