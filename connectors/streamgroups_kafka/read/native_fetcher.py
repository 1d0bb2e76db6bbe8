"""Fetches records natively: the extension ``_native`` copies librdkafka's batches into Arrow buffers.

Created by ``range_reader``. Clients stay connected between the micro-batches of one Python worker: a new connection
with its metadata costs more than a small batch. Source: ``csrc/client.h``; the Arrow PyCapsule interface.
"""

from __future__ import annotations

import atexit
import importlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from streamgroups.errors import StreamGroupsError
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.tokens import OAuthBearerToken
from streamgroups_kafka.client.free_memory import return_free_memory
from streamgroups_kafka.client.jaas import PROVIDER
from streamgroups_kafka.client.messages import Flaw, warn_of_flaw
from streamgroups_kafka.read.arrow_columns import COLUMNS
from streamgroups_kafka.read.fetcher import BATCH_BYTES, POLL_MS, PartitionError, ReadSettings, client_settings

if TYPE_CHECKING:
    from streamgroups_kafka._native import Client

_BATCH_RECORDS = 65_536
_BOUNDS_TIMEOUT_MS = 30_000
#: The extension identifies columns by their index in ``COLUMNS``.
_FIELDS = {name: number for number, name in enumerate(COLUMNS)}

#: The limits of a client's prefetching, over all partitions. Records after the ends of the ranges serve the next
#: micro-batch, if the same worker reads it. So a read of few records should not fetch and parse many more.
_SMALL_OFFSETS = 20_000
_SMALL_AHEAD_BYTES, _AHEAD_BYTES = 4 << 20, 32 << 20
_MIN_PARTITION_BYTES, _MAX_PARTITION_BYTES = 64 << 10, 1 << 20
_AHEAD_RECORDS, _MIN_PARTITION_RECORDS = 100_000, 1_000

_Config: TypeAlias = tuple[tuple[str, str], ...]
#: What identifies the logs that a client reads: the id of each topic, and the leader epoch of each partition. ``None`` if it is not known.
_Logs: TypeAlias = dict[str | TopicPartition, str | int | None]


class NativeFetcher:
    """See :class:`~streamgroups_kafka.read.fetcher.Fetcher`."""

    def __init__(self, ranges: Sequence[OffsetRange], schema: pa.Schema, settings: ReadSettings) -> None:
        self._schema, self._ranges = schema, list(ranges)
        self._index = {r.topic_partition: i for i, r in enumerate(self._ranges)}
        self._config = _config(settings, sum(map(len, ranges)), len(ranges))
        # librdkafka requests the tokens for client credentials itself.
        self._tokens = settings.client.tokens if settings.client.get(PROVIDER) else None
        self._token: OAuthBearerToken | None = None
        topics = {r.topic_partition.topic for r in ranges}
        self._logs: _Logs = {topic: settings.topic_ids.get(topic) for topic in topics}
        self._logs |= {tp: settings.leader_epochs.get(tp) for tp in self._index}
        self._client: Client | None = WARM.take(self._config, self._logs)
        self._rows, self._full = 0, False
        self._n_open = len(self._ranges)
        self._good = True
        try:
            self._set_token()
            with _kafka_exceptions():
                self._native.start(
                    [
                        (r.topic_partition.topic, r.topic_partition.partition, r.next_offset, r.end_offset)
                        for r in ranges
                    ],
                    [_FIELDS[field.name] for field in schema],
                    _BATCH_RECORDS,
                    BATCH_BYTES,
                )
        except BaseException:
            self._good = False
            self.close()
            raise

    def fill(self) -> tuple[bool, Sequence[PartitionError]]:
        """See :meth:`Fetcher.fill`."""
        before = self._rows, self._n_open
        # Without a new token, open connections continue to work.
        with suppress(StreamGroupsError, KafkaException):
            self._set_token()
        self._rows, self._full, self._n_open, events, flawed = self._native.fill(POLL_MS)
        for index, offset, flaw in flawed:
            warn_of_flaw(self._ranges[index].topic_partition, offset, Flaw(flaw))
        # A client with errors is not kept for the next batch.
        self._good = self._good and not events
        errors = [
            (self._ranges[index].topic_partition if index >= 0 else None, KafkaError(code, text))
            for index, code, text in events
        ]
        return (self._rows, self._n_open) != before, errors

    def full(self) -> bool:
        """See :meth:`Fetcher.full`."""
        return self._full

    def take(self) -> pa.RecordBatch:
        """See :meth:`Fetcher.take`."""
        self._rows, self._full = 0, False
        return pa.record_batch(_Exported(self._schema, self._native.export()))

    def n_open(self) -> int:
        """See :meth:`Fetcher.n_open`."""
        return self._n_open

    def remaining(self) -> Sequence[OffsetRange]:
        """See :meth:`Fetcher.remaining`."""
        return [
            OffsetRange(r.topic_partition, next_offset, r.end_offset)
            for r, (next_offset, done) in zip(self._ranges, self._native.ranges(), strict=True)
            if not done
        ]

    def find(self, topic_partition: TopicPartition) -> OffsetRange | None:
        """See :meth:`Fetcher.find`."""
        if (index := self._index.get(topic_partition)) is None:
            return None
        next_offset, done = self._native.ranges()[index]
        return None if done else OffsetRange(topic_partition, next_offset, self._ranges[index].end_offset)

    def end(self, topic_partition: TopicPartition) -> None:
        """See :meth:`Fetcher.end`."""
        self._native.end(self._index[topic_partition])
        self._n_open -= 1

    def seek(self, topic_partition: TopicPartition, next_offset: int) -> None:
        """See :meth:`Fetcher.seek`."""
        with _kafka_exceptions():
            self._native.seek(self._index[topic_partition], next_offset)

    def bounds(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """See :meth:`Fetcher.bounds`."""
        with _kafka_exceptions():
            return self._native.watermarks(topic_partition.topic, topic_partition.partition, _BOUNDS_TIMEOUT_MS)

    def close(self) -> None:
        """See :meth:`Fetcher.close`. The client is reused if the read completed without errors."""
        client, self._client = self._client, None
        if client is None:
            return
        if self._good and self._n_open == 0:
            client.stop()
            WARM.release(self._config, client, self._logs)
        else:
            client.close()

    def _set_token(self) -> None:
        """Gives the client the current token, also a client that was kept from an earlier batch."""
        if self._tokens is None or (token := self._tokens.current()) is self._token:
            return
        extensions = [text for pair in token.extensions.items() for text in pair]
        with _kafka_exceptions():
            self._native.set_token(token.token, token.expires_at_ms, token.principal, extensions)
        self._token = token

    @property
    def _native(self) -> Client:
        if self._client is None:
            raise ValueError("This fetcher is closed.")
        return self._client


@dataclass(frozen=True, slots=True)
class _Exported:
    """An Arrow array of the extension, with the Arrow PyCapsule interface."""

    schema: pa.Schema
    array: object

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self.schema.__arrow_c_schema__(), self.array


@contextmanager
def _kafka_exceptions() -> Iterator[None]:
    """Converts errors of the extension to those of confluent-kafka."""
    try:
        yield
    except _extension().NativeError as e:
        code, text = e.args
        raise KafkaException(KafkaError(code, text)) from e


def _extension() -> Any:
    return importlib.import_module("streamgroups_kafka._native")


def _config(settings: ReadSettings, offsets: int, partitions: int) -> _Config:
    """The configuration of a client that reads a number of offsets from a number of partitions.

    librdkafka's limits apply to each partition. One share is for its queue, one for a response that exceeds it. The
    number of partitions is rounded up to a power of two, so that reads of similar sizes use the same client.
    """
    shares = 2 * _power_of_two(partitions)
    share_bytes = (_SMALL_AHEAD_BYTES if offsets <= _SMALL_OFFSETS else _AHEAD_BYTES) // shares
    share_bytes = max(share_bytes, _MIN_PARTITION_BYTES)
    config = client_settings(
        settings,
        {
            "fetch.message.max.bytes": str(min(share_bytes, _MAX_PARTITION_BYTES)),
            "queued.max.messages.kbytes": str(share_bytes >> 10),
            "queued.min.messages": str(max(_AHEAD_RECORDS // shares, _MIN_PARTITION_RECORDS)),
        },
    )
    # librdkafka's simple consumer is in no group. With a group id it would look up a coordinator.
    del config["group.id"]
    if config.pop("oauth_cb", None) is not None:
        # This client has no callback. The property has no effect there, and separates the clients of two providers.
        config["sasl.oauthbearer.config"] = settings.client.get(PROVIDER)
    return tuple(sorted(config.items()))


def _power_of_two(number: int) -> int:
    """Returns the smallest power of two that is not below a number.

    >>> [_power_of_two(n) for n in (1, 2, 3, 8, 9)]
    [1, 2, 4, 8, 16]
    """
    return 1 << (number - 1).bit_length()


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """A client between two reads, and the logs that it has read."""

    config: _Config
    client: Client
    logs: _Logs
    until_s: float


class WarmClients:
    """Connected clients between two reads: a small number, for a short time.

    Args:
        most: the maximum number of clients.
        idle_s: how long a client is kept, in seconds.

    A kept client has records behind the ranges that it has read. So it is not used for a recreated topic, which has the
    same name and another id, nor after a change of the leader: an unclean election replaces records. Brokers can return neither
    topic ids nor leader epochs; then nothing shows that the log is the same, and no client is kept. A worker reads one
    task at a time, so a client has one user. A lock protects the kept clients, because a timer closes them.
    """

    def __init__(self, most: int = 2, idle_s: float = 30) -> None:
        self._most, self._idle_s = most, idle_s
        self._lock = threading.Lock()
        self._kept: list[_Kept] = []
        self._forgotten: list[_Kept] = []
        self._timer: threading.Timer | None = None
        # A child process does not have librdkafka's threads. It can neither use its copies of the clients nor close
        # them.
        os.register_at_fork(after_in_child=self._forget)

    def take(self, config: _Config, logs: _Logs) -> Client:
        """Returns a client with this configuration, kept or new. Raises ``KafkaException`` if none can be created.

        Args:
            config: the configuration.
            logs: the logs to read. The other logs that a kept client has read are added.
        """
        with self._lock:
            for kept in reversed(self._kept):
                if kept.config == config and all(kept.logs.get(it, id_) == id_ for it, id_ in logs.items()):
                    self._kept.remove(kept)
                    logs |= kept.logs
                    return kept.client
        with _kafka_exceptions():
            client: Client = _extension().Client(config)
        return client

    def release(self, config: _Config, client: Client, logs: _Logs) -> None:
        """Keeps a client, unless a log is unknown. If there are too many, it closes the one that was idle longest."""
        if None in logs.values():
            client.close()
            return
        with self._lock:
            self._kept.append(_Kept(config, client, logs, time.monotonic() + self._idle_s))
            rest = self._kept[: -self._most]
            del self._kept[: -self._most]
            if self._timer is None:
                self._start_timer()
        for old in rest:
            old.client.close()

    def close_idle(self) -> None:
        """Closes clients that were idle for too long."""
        with self._lock:
            now_s = time.monotonic()
            idle = [it for it in self._kept if it.until_s <= now_s]
            self._kept = [it for it in self._kept if it.until_s > now_s]
            self._timer = None
            if self._kept:
                self._start_timer()
        for it in idle:
            it.client.close()
        if idle:
            return_free_memory()

    def close(self) -> None:
        """Closes all clients."""
        with self._lock:
            kept, self._kept = self._kept, []
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        for it in kept:
            it.client.close()

    def __len__(self) -> int:
        return len(self._kept)

    def _start_timer(self) -> None:
        # The caller must hold the lock.
        self._timer = threading.Timer(self._idle_s, self.close_idle)
        self._timer.daemon = True
        self._timer.start()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        # Keeps the clients from the garbage collector, which would close them. A child can fork too.
        self._forgotten += self._kept
        self._kept = []
        self._timer = None


#: The clients of this process.
WARM = WarmClients()
# librdkafka's threads must end before the interpreter exits.
atexit.register(WARM.close)
