"""Sends redriven letters, and stores their ids, in transactions of one producer.

Called by ``streamgroups dlq redrive``. The transactional id belongs to the queue. So the start of a redrive aborts the open
transaction of a killed one, and fences one that still runs. Source: SEMANTICS P5; KIP-98; confluent-kafka's ``Producer``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from streamgroups.cleanup_policy import check_compacted
from streamgroups.dlq.redrive import RedrivenRecord, redriven_topic
from streamgroups.errors import FencedMember, StreamGroupsError
from streamgroups_kafka.admin.cluster import REQUEST_TIMEOUT_S
from streamgroups_kafka.admin.topic_changes import create_topic, topic_settings
from streamgroups_kafka.client.clock import now_ms
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.missing_acls import WRITE

#: Errors of records, with the ids of their letters and the topics of the records.
Failures: TypeAlias = list[tuple[KafkaError, str, str]]
_FENCED = frozenset((KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH))
_PURGED = frozenset((KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT))
_SETTINGS = {
    # The default of Kafka's Java clients. A larger record is alone in its batch, so the broker rejects no other one with it.
    "batch.size": 16_384,
    # The partitioner of Kafka's Java clients.
    "partitioner": "murmur2_random",
    # The broker decides whether a record is too large.
    "message.max.bytes": 1_000_000_000,
    "allow.auto.create.topics": False,
}


@contextmanager
def open_redrive(config: ClientConfig, dlq: str, *, timeout_s: float) -> Iterator[KafkaRedrive]:
    """Starts a redrive of a queue. See :class:`streamgroups.dlq.redrive.Redrive`.

    Args:
        config: the configuration of the client.
        dlq: the topic of the queue.
        timeout_s: how long to wait for a response of the cluster, in seconds.

    Raises:
        InvalidOption: if the topic of redriven ids is not compacted. Nothing is changed.
        NotAuthorized: if the user may not read the settings of this topic.
        StreamGroupsError: if the topic of redriven ids cannot be created, or the cluster rejects the transactional id.
    """
    if not create_topic(config, redriven_topic(dlq), 1, settings={"cleanup.policy": "compact"}):
        # An operator, a setup script or the automatic creation of topics can have created it.
        check_compacted(
            redriven_topic(dlq),
            topic_settings(config, redriven_topic(dlq))["cleanup.policy"],
            "the broker deletes ids of redriven letters, and these letters would be sent again. Nothing was sent",
        )
    producer = Producer({**config.for_admin(), **_SETTINGS, "transactional.id": redrive_id(dlq)})
    redrive = KafkaRedrive(producer, config, dlq, timeout_s)
    try:
        redrive.start()
        yield redrive
    finally:
        # Without it, librdkafka warns of records that an aborted transaction has left in its queue.
        producer.purge()


def redrive_id(dlq: str) -> str:
    """The transactional id of the redrives of a topic with dead letters. No query has an id of this form.

    >>> redrive_id("letters")
    'streamgroups.redrive-letters'
    """
    return f"streamgroups.redrive-{dlq}"


def _not_writable(config: ClientConfig, topics: Collection[str]) -> list[str]:
    """The topics without Write for this user (KIP-430); empty if the cluster does not report it."""
    admin = AdminClient(dict(config.for_admin()))
    described = admin.describe_topics(
        TopicCollection(sorted(topics)), include_authorized_operations=True, request_timeout=REQUEST_TIMEOUT_S
    )
    found = []
    for topic, description in described.items():
        with suppress(KafkaException):
            operations = description.result().authorized_operations
            if operations is not None and AclOperation.WRITE not in operations:
                found.append(topic)
    return found


class KafkaRedrive:
    """See :class:`streamgroups.dlq.redrive.Redrive`."""

    def __init__(self, producer: Producer, config: ClientConfig, dlq: str, timeout_s: float) -> None:
        self._producer, self._config, self._dlq, self._timeout_s = producer, config, dlq, timeout_s
        #: The topics of the last transaction.
        self._topics = frozenset[str]()

    def start(self) -> None:
        """Fences earlier redrives, and waits until their transactions have ended."""
        try:
            self._producer.init_transactions(self._timeout_s)
        except KafkaException as e:
            raise self._error(e.args[0], f"A redrive of '{self._dlq}' could not start") from None

    def send(self, records: Sequence[RedrivenRecord]) -> None:
        """See :meth:`streamgroups.dlq.redrive.Redrive.send`. After an error, only another redrive can send records."""
        with self._aborting(f"A transaction of {len(records)} letters could not be begun"):
            failed = self.begin(records)
        self.commit(failed)

    def begin(self, records: Sequence[RedrivenRecord]) -> Failures:
        """Begins a transaction and adds records to it. Returns the records that the broker has rejected until now."""
        failed: Failures = []
        self._topics = frozenset({redriven_topic(self._dlq), *(it.topic for it in records)})
        self._producer.begin_transaction()
        try:
            for record in records:
                self._produce(record, failed)
        except KafkaException as e:
            if e.args[0].code() != KafkaError._STATE:
                raise
            # The broker has rejected a record, and with it the transaction. The delivery report has the reason.
        return failed

    def commit(self, failed: Failures) -> None:
        """Commits the transaction.

        Args:
            failed: the result of :meth:`begin`.

        Raises:
            StreamGroupsError: see :meth:`send`.
        """
        with self._aborting("The transaction could not be committed"):
            self._producer.flush(self._timeout_s)
            if failed:
                # The other records of the transaction fail with it, and can be reported first.
                error, letter_id, topic = next((it for it in failed if it[0].code() not in _PURGED), failed[0])
                if error.code() in _PURGED:
                    # No record has the reason. The transaction has it, and each call except its abort raises it.
                    self._producer.begin_transaction()
                raise self._error(error, f"The record of the letter '{letter_id}' could not be sent", topic)
            self._producer.commit_transaction(self._timeout_s)

    @contextmanager
    def _aborting(self, what: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as e:
            self._abort()
            raise self._error(e.args[0], what) from None
        except StreamGroupsError:
            self._abort()
            raise

    def _produce(self, record: RedrivenRecord, failed: Failures) -> None:
        def on_delivery(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                failed.append((error, record.letter_id, message.topic()))

        more: dict[str, Any] = {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
        entry = json.dumps({"topic": record.topic, "time_ms": now_ms()})
        try:
            self._producer.produce(
                record.topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                on_delivery=on_delivery,
                **more,
            )
            self._producer.produce(
                redriven_topic(self._dlq), key=record.letter_id, value=entry, on_delivery=on_delivery, partition=0
            )
        except BufferError:
            # So the transaction is aborted as after each other error of the client.
            raise KafkaException(KafkaError(KafkaError._QUEUE_FULL)) from None
        self._producer.poll(0)

    def _abort(self) -> None:
        # If it fails, the next redrive or the timeout of the transaction aborts it.
        with suppress(KafkaException):
            self._producer.abort_transaction(self._timeout_s)

    def _error(self, error: KafkaError, what: str, topic: str | None = None) -> StreamGroupsError:
        if error.code() in _FENCED:
            return FencedMember(
                f"Another redrive of '{self._dlq}' has started, so this one has ended.",
                remedy="Wait until the other one has ended, and run the command again: it sends what is left.",
            )
        if topic is None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            # The error of a transaction does not contain its topics.
            topic = ", ".join(_not_writable(self._config, self._topics))
        return to_streamgroups_error(
            error,
            what,
            topic=topic,
            transactional_id=redrive_id(self._dlq),
            operations=WRITE,
            redact=self._config.redact,
        )
