"""Reads the entries of an instance from the start of its topic, and follows it.

Created by ``instance_topic``. It joins no group and commits nothing. Entries of aborted transactions, as of a fenced manager,
are skipped. Implements :class:`streamgroups.instances.ports.EntryReader`. Source: KIP-98; the partition EOF event of librdkafka.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaException, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from streamgroups.errors import BrokerUnreachable, LoginRejected, StreamGroupsError
from streamgroups.instances.entries import Entry
from streamgroups.instances.entry_json import read_entry
from streamgroups.instances.instance_state import InstanceState, apply
from streamgroups.instances.ports import RejectedRecord
from streamgroups.partitions import TopicPartition as Partition
from streamgroups_kafka.admin.leader_offsets import refreshed_leaders, request_offsets
from streamgroups_kafka.admin.rejected_login import RejectedLogin
from streamgroups_kafka.admin.replaced_client import ReplacedClient
from streamgroups_kafka.admin.stored_records import may_pass
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.responses import PartRejected

logger = logging.getLogger(__name__)

_AT_ONCE = 1_000
#: Signals are handled between two polls.
_POLL_S = 0.1
_MAX_REJECTED = 10
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class KafkaEntryReader:
    """See :class:`streamgroups.instances.ports.EntryReader`.

    Args:
        config: the configuration of the client.
        topic: the topic of the instance.
    """

    def __init__(self, config: ClientConfig, topic: str) -> None:
        self._config, self._topic = config, topic
        self._partition = TopicPartition(topic, 0, OFFSET_BEGINNING)
        self._clients, self._login = ReplacedClient(config), RejectedLogin(config)
        settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "fetch.wait.max.ms": "100"}
        self._consumer = Consumer({**config.for_reader("streamgroups-instance"), **settings})
        self._consumer.assign([self._partition])
        self._next_offset = 0
        self._state = InstanceState()
        self._rejected: deque[RejectedRecord] = deque(maxlen=_MAX_REJECTED)

    @property
    def state(self) -> InstanceState:
        """See :attr:`streamgroups.instances.ports.EntryReader.state`."""
        return self._state

    @property
    def rejected(self) -> Sequence[RejectedRecord]:
        """See :attr:`streamgroups.instances.ports.EntryReader.rejected`."""
        return tuple(self._rejected)

    def read_to_end(self, timeout_s: float) -> list[Entry]:
        """See :meth:`streamgroups.instances.ports.EntryReader.read_to_end`."""
        until_s = time.monotonic() + timeout_s
        end_offset = self._end_offset(timeout_s)
        found: list[Entry] = []
        while self._next_offset < end_offset:
            if time.monotonic() >= until_s:
                raise BrokerUnreachable(
                    f"Topic '{self._topic}' was read up to offset {self._next_offset} of {end_offset} in {timeout_s:g} s.",
                    remedy="Check the brokers, and try again.",
                    topic=self._topic,
                )
            found += self._consume(_POLL_S)
        return found

    def poll(self, timeout_s: float) -> list[Entry]:
        """See :meth:`streamgroups.instances.ports.EntryReader.poll`."""
        until_s = time.monotonic() + timeout_s
        while True:
            left_s = max(until_s - time.monotonic(), 0)
            found = self._consume(min(left_s, _POLL_S))
            if found or not left_s:
                return found

    def close(self) -> None:
        """See :meth:`streamgroups.instances.ports.EntryReader.close`."""
        self._consumer.close()

    def _end_offset(self, timeout_s: float) -> int:
        partition, admin = Partition(self._topic, 0), self._clients.current

        def requested() -> int:
            found = request_offsets(admin, {partition: _LATEST}, IsolationLevel.READ_COMMITTED, timeout_s)
            return found[partition].offset

        try:
            try:
                return requested()
            except PartRejected as e:
                # Another broker can be the leader by now.
                refreshed_leaders(admin, e, [partition], timeout_s)
                return requested()
        except (BrokerUnreachable, KafkaException) as e:
            # A leader that does not respond stays the leader in the metadata of this client.
            self._clients.replace(admin)
            error = e if isinstance(e, BrokerUnreachable) else self._error(e)
        if isinstance(error, BrokerUnreachable | LoginRejected):
            error = self._login.judged(error)
        raise error

    def _consume(self, timeout_s: float) -> list[Entry]:
        """Waits for one record, and takes those that were fetched with it."""
        found: list[Entry] = []
        try:
            first = self._consumer.poll(timeout_s)
            rest = [] if first is None else self._consumer.consume(_AT_ONCE, 0)
            for message in rest if first is None else (first, *rest):
                entry = self._entry(message)
                if entry is not None:
                    found.append(entry)
        except KafkaException as e:
            raise self._error(e) from None
        finally:
            # Also those before an error, which are not read again.
            self._state = apply(self._state, *found)
        return found

    def _entry(self, message: Message) -> Entry | None:
        error, offset = message.error(), message.offset() or 0
        if error is not None:
            if not may_pass(error):
                raise KafkaException(error)
            # The partition EOF event has an offset too: transaction markers may precede the end.
            self._next_offset = max(self._next_offset, offset)
            return None
        self._next_offset = offset + 1
        try:
            return read_entry(_bytes(message.key()), _bytes(message.value()))
        except ValueError as e:
            self._rejected.append(RejectedRecord(offset, str(e)))
            logger.warning(
                "The record at offset %d of '%s' is not an entry of an instance, and is skipped: %s. Every principal with "
                "Write on the topic can write one.",
                offset,
                self._topic,
                e,
            )
            return None

    def _error(self, error: KafkaException) -> StreamGroupsError:
        what = f"Topic '{self._topic}' could not be read"
        return to_streamgroups_error(error.args[0], what, topic=self._topic, redact=self._config.redact)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
