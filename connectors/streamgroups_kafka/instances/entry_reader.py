"""Reads the entries of an instance from the start of its topic, and follows it.

Created by ``instance_topic``. It joins no group and commits nothing. Entries of aborted transactions, as of a fenced manager,
are skipped. If the topic is recreated, its entries are those of another instance: offsets and state of this reader have no meaning
in it. So the topic id is compared, and an offset past the end is an error. Implements
:class:`streamgroups.instances.ports.EntryReader`. Source: KIP-98; KIP-516; the partition EOF event of librdkafka; SEMANTICS P2.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaException, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from streamgroups.errors import BrokerUnreachable, DataLoss, LoginRejected, StreamGroupsError
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.instances.entries import Entry
from streamgroups.instances.entry_json import read_entry
from streamgroups.instances.instance_state import InstanceState, apply
from streamgroups.instances.ports import RejectedRecord
from streamgroups.partitions import TopicPartition as Partition
from streamgroups_kafka.admin.leader_offsets import refreshed_leaders, request_offsets
from streamgroups_kafka.admin.rejected_login import RejectedLogin
from streamgroups_kafka.admin.replaced_client import ReplacedClient
from streamgroups_kafka.admin.requested_identities import RequestedIdentities
from streamgroups_kafka.admin.stored_records import may_pass
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.responses import PartRejected

logger = logging.getLogger(__name__)

_AT_ONCE = 1_000
#: Signals are handled between two polls.
_POLL_S = 0.1
_MAX_REJECTED = 10
#: How often a poll requests the topic id, and how long the request may take.
_REFRESH_S = 5.0
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
        # Without a reset of offsets: the consumer reports an offset that the log does not have any more. It compares leader
        # epochs, so a former leader with an earlier end is no evidence.
        settings = {"isolation.level": "read_committed", "fetch.wait.max.ms": "100"}
        self._consumer = Consumer({**config.for_reader("streamgroups-instance"), **settings})
        self._consumer.assign([self._partition])
        self._next_offset = 0
        self._state = InstanceState()
        self._rejected: deque[RejectedRecord] = deque(maxlen=_MAX_REJECTED)
        self._identity: TopicIdentity = UNKNOWN
        self._requested: RequestedIdentities | None = None
        self._next_request_s = 0.0
        #: Why the state is not that of the topic any more.
        self._loss: str | None = None

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
        self._reject_loss()
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
        self._reject_loss()
        self._follow_identity()
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
            identities = RequestedIdentities(admin, [self._topic], timeout_s)
            found = request_offsets(admin, {partition: _LATEST}, IsolationLevel.READ_COMMITTED, timeout_s)
            self._compare(identities.result())
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

    def _follow_identity(self) -> None:
        """Requests the topic id now and then, and compares it when it is there. It never waits: a worker must not miss the end of
        its lease.
        """
        if self._requested is None:
            if time.monotonic() >= self._next_request_s:
                self._requested = RequestedIdentities(self._clients.current, [self._topic], _REFRESH_S)
                self._next_request_s = time.monotonic() + _REFRESH_S
        elif self._requested.are_there:
            requested, self._requested = self._requested, None
            # The consumer reports an outage, and a missing permission.
            with suppress(KafkaException):
                self._compare(requested.result())

    def _compare(self, found: Mapping[str, TopicIdentity]) -> None:
        now = found.get(self._topic, UNKNOWN)
        if self._identity.differs_from(now):
            self._loss = f"it was deleted and recreated ({self._identity}; now {now})"
            self._reject_loss()
        self._identity = self._identity.completed_by(now)

    def _reject_loss(self) -> None:
        if self._loss is not None:
            raise DataLoss(
                f"The entries that this process has read are not in topic '{self._topic}' any more: {self._loss}.",
                remedy="Start the process again: it reads the topic from its start. Write missing definitions again with: "
                "streamgroups processors apply",
                topic=self._topic,
                partition=0,
            )

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
            error = self._error(e)
            if isinstance(error, DataLoss):
                self._loss = f"its log has no offset {self._next_offset}, so it was recreated or truncated"
                self._reject_loss()
            raise error from None
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
