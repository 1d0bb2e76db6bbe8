"""Reads the records of partitions for the commands ``topics tail``, ``groups sweep`` and ``dlq``.

Called by :mod:`streamgroups_kafka.admin.topics`. The consumer joins no group and commits nothing. Source: the partition
EOF event of librdkafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException

from streamgroups.message import Message
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.messages import to_message
from streamgroups_kafka.client.partition_conversion import to_confluent

_AT_ONCE = 500
#: Signals are handled between two polls.
_POLL_S = 0.2


def stored_records(
    config: ClientConfig,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int] | None,
) -> Iterator[Message]:
    """See :meth:`streamgroups.ports.TopicAdmin.read`.

    Args:
        config: the configuration of the client.
        starts: the first offset of each partition.
        ends: the end offset of each partition; ``None`` to read indefinitely.

    Raises:
        StreamGroupsError: if the broker rejects a request, or the offsets are out of range.
    """
    open_ = {tp for tp, start in starts.items() if ends is None or start < ends[tp]}
    if not open_:
        return
    with assigned_consumer(config, {tp: starts[tp] for tp in open_}, {"fetch.wait.max.ms": "100"}) as consumer:
        while open_:
            for message in consumer.consume(_AT_ONCE, _POLL_S):
                tp = TopicPartition(message.topic() or "", message.partition() or 0)
                end = None if ends is None else ends.get(tp)
                offset = message.offset() or 0
                error = message.error()
                if error is None and tp in open_ and (end is None or offset < end):
                    yield to_message(tp, message)
                elif error is not None and not may_pass(error):
                    what = f"{tp} could not be read"
                    raise to_streamgroups_error(error, what, topic=tp.topic, redact=config.redact)
                # The last record, or the partition EOF event, which has an offset too: a gap may precede the end.
                reached = offset + 1 if error is None else offset if error.code() == KafkaError._PARTITION_EOF else -1
                if end is not None and reached >= end:
                    open_.discard(tp)


@contextmanager
def assigned_consumer(
    config: ClientConfig, starts: Mapping[TopicPartition, int], settings: Mapping[str, str]
) -> Iterator[Consumer]:
    """A consumer that reads partitions from these offsets.

    Raises:
        StreamGroupsError: if the broker rejects a request.
    """
    consumer = Consumer({**config.for_reader("streamgroups-admin"), **settings})
    try:
        consumer.assign([to_confluent(tp, start) for tp, start in starts.items()])
        yield consumer
    except KafkaException as e:
        raise to_streamgroups_error(e.args[0], "Records could not be read", redact=config.redact) from None
    finally:
        consumer.close()


def may_pass(error: KafkaError) -> bool:
    """Whether a consumer continues after an error. It requests its coordinator, but needs no permission for a group."""
    passing = (
        KafkaError._PARTITION_EOF,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    )
    return error.retriable() or error.code() in passing
