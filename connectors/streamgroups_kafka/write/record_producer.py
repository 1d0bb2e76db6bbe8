"""Writes single records to a topic, for the command line.

Created by ``streamgroups topics produce``. Spark's tasks use transactions or blocks of records instead
(``streamgroups_kafka.transactions``). Source: the idempotent producer (KIP-98); Kafka's default partitioner, which
librdkafka calls ``murmur2_random``.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from streamgroups.errors import StreamGroupsError
from streamgroups.record_lines import NewRecord
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.missing_acls import WRITE

_POLL_S = 0.1


class RecordProducer:
    """Writes records with acknowledgements of all replicas.

    Args:
        config: the configuration of the client.
        topic: the topic.
        timeout_s: how long a record can wait for its acknowledgement, in seconds.
    """

    def __init__(self, config: ClientConfig, topic: str, timeout_s: float) -> None:
        self._topic, self._config = topic, config
        settings: dict[str, Any] = {**config.for_admin(), "enable.idempotence": True, "linger.ms": 5}
        settings |= {"partitioner": "murmur2_random", "message.timeout.ms": int(timeout_s * 1_000)}
        self._producer = Producer(settings)
        #: The number of acknowledged records of each partition.
        self.written: Counter[int] = Counter()
        self._error: StreamGroupsError | None = None

    def write(self, record: NewRecord) -> None:
        """Writes a record in the background.

        Raises:
            StreamGroupsError: if this or an earlier record was rejected.
        """
        optional: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        if record.timestamp_ms is not None:
            optional["timestamp"] = record.timestamp_ms
        while True:
            self._producer.poll(0)
            self._raise_failure()
            try:
                self._producer.produce(
                    self._topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    on_delivery=self._delivered,
                    **optional,
                )
                return
            except BufferError:
                self._producer.poll(_POLL_S)
            except KafkaException as e:
                raise self._translated(e.args[0]) from None

    def flush(self) -> None:
        """Waits for all acknowledgements.

        Raises:
            StreamGroupsError: if a record was rejected, or not acknowledged in time.
        """
        # Each record has a timeout, so this ends.
        self._producer.flush()
        self._raise_failure()

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.written[message.partition()] += 1
        elif self._error is None:
            self._error = self._translated(error)

    def _raise_failure(self) -> None:
        if self._error is not None:
            raise self._error

    def _translated(self, error: KafkaError) -> StreamGroupsError:
        what = f"A record could not be written to '{self._topic}'"
        return to_streamgroups_error(error, what, topic=self._topic, operations=WRITE, redact=self._config.redact)
