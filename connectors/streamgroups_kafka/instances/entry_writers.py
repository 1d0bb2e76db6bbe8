"""Write the entries of an instance: of commands and workers one by one, of the manager in transactions.

Created by ``instance_topic``. The transactional id belongs to the instance. So the start of a manager aborts the open
transaction of a killed one, and fences one that still runs. Implements :class:`streamgroups.instances.ports.EntryWriter`.
Source: KIP-98; confluent-kafka's ``Producer``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streamgroups.errors import BrokerUnreachable, FencedMember, StreamGroupsError
from streamgroups.instances.entries import Entry, topic_of
from streamgroups.instances.entry_json import write_entry
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.missing_acls import WRITE

_FENCED = frozenset((KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH))
#: Readers of committed entries wait for an open transaction. That of a killed manager ends after this time.
_TRANSACTION_MS = 10_000


class KafkaEntryWriter:
    """See :class:`streamgroups.instances.ports.EntryWriter`.

    Args:
        config: the configuration of the client.
        topic: the topic of the instance.
        timeout_s: how long a write waits for its acknowledgement, in seconds.
    """

    def __init__(self, config: ClientConfig, topic: str, timeout_s: float) -> None:
        self._config, self._topic, self._timeout_s = config, topic, timeout_s
        settings: dict[str, Any] = {**config.for_admin(), "enable.idempotence": True, "linger.ms": 0}
        settings |= {"message.timeout.ms": int(timeout_s * 1_000), "allow.auto.create.topics": False}
        self._producer = Producer(settings)

    def write(self, entries: Sequence[Entry]) -> None:
        """See :meth:`streamgroups.instances.ports.EntryWriter.write`."""
        failed: list[KafkaError] = []
        try:
            _produce(self._producer, self._topic, entries, failed)
        except KafkaException as e:
            raise _error(e.args[0], self._config, self._topic) from None
        # Each record has a timeout, so this ends.
        self._producer.flush()
        if failed:
            raise _error(failed[0], self._config, self._topic)

    def close(self) -> None:
        """See :meth:`streamgroups.instances.ports.EntryWriter.close`."""
        self._producer.flush(self._timeout_s)


class KafkaManagerWriter:
    """See :class:`streamgroups.instances.ports.EntryWriter`.

    Args:
        config: the configuration of the client.
        instance: the instance.
        timeout_s: how long a write waits for its acknowledgement, in seconds.

    Raises:
        StreamGroupsError: if the cluster rejects the transactional id.
    """

    def __init__(self, config: ClientConfig, instance: str, timeout_s: float) -> None:
        self._config, self._instance, self._topic, self._timeout_s = config, instance, topic_of(instance), timeout_s
        settings: dict[str, Any] = {**config.for_admin(), "linger.ms": 0, "allow.auto.create.topics": False}
        settings |= {"transactional.id": manager_id(instance), "transaction.timeout.ms": _TRANSACTION_MS}
        # librdkafka would print that this manager is fenced, beside the error.
        self._producer = Producer(settings, logger=logging.Logger("streamgroups.manager", logging.CRITICAL + 1))
        self._fenced: StreamGroupsError | None = None
        try:
            self._producer.init_transactions(timeout_s)
        except KafkaException as e:
            raise self._translated(e.args[0]) from None

    def write(self, entries: Sequence[Entry]) -> None:
        """See :meth:`streamgroups.instances.ports.EntryWriter.write`."""
        if self._fenced is not None:
            raise self._fenced
        failed: list[KafkaError] = []
        try:
            self._producer.begin_transaction()
            _produce(self._producer, self._topic, entries, failed)
            self._producer.commit_transaction(self._timeout_s)
        except KafkaException as e:
            error = e.args[0]
            if not (error.fatal() or error.code() in _FENCED):
                # If it fails, the timeout of the transaction aborts it.
                with suppress(KafkaException):
                    self._producer.abort_transaction(self._timeout_s)
            reasons = [it for it in failed if it.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)]
            raise self._translated(error if error.code() in _FENCED or not reasons else reasons[0]) from None

    def close(self) -> None:
        """See :meth:`streamgroups.instances.ports.EntryWriter.close`."""
        # Without it, librdkafka warns of records that an aborted transaction has left in its queue.
        self._producer.purge()

    def _translated(self, error: KafkaError) -> StreamGroupsError:
        if error.code() in _FENCED:
            self._fenced = FencedMember(
                f"Another manager of the instance '{self._instance}' has started, so this one ends.",
                remedy="Run one manager for each instance. Its processors continue to run.",
            )
            return self._fenced
        if error.code() in (KafkaError._STATE, KafkaError._TIMED_OUT):
            return BrokerUnreachable(
                f"The entries of the manager could not be written to '{self._topic}'.", remedy="Check the brokers."
            )
        return _error(error, self._config, self._topic, manager_id(self._instance))


def manager_id(instance: str) -> str:
    """The transactional id of the manager of an instance.

    The ids of queries begin with ``streamgroups-`` and the name of a group, which can be any, so this one does not.

    >>> manager_id("board")
    'streamgroups.instance-board'
    """
    return f"streamgroups.instance-{instance}"


def _produce(producer: Producer, topic: str, entries: Sequence[Entry], failed: list[KafkaError]) -> None:
    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    for key, value in map(write_entry, entries):
        try:
            producer.produce(topic, key=key, value=value, partition=0, on_delivery=on_delivery)
        except BufferError:
            # So the callers handle it as each other error of the client.
            raise KafkaException(KafkaError(KafkaError._QUEUE_FULL)) from None
        producer.poll(0)


def _error(
    error: KafkaError, config: ClientConfig, topic: str, transactional_id: str | None = None
) -> StreamGroupsError:
    what = f"An entry could not be written to '{topic}'"
    return to_streamgroups_error(
        error, what, topic=topic, transactional_id=transactional_id, operations=WRITE, redact=config.redact
    )
