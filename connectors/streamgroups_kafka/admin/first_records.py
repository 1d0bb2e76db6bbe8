"""Reads the first record at or after an offset, for many partitions at once: its timestamp, and whether it exists.

Called by :mod:`streamgroups_kafka.admin.topics`. The consumer joins no group and commits nothing. The smallest response
of a broker is one record batch, so the requests limit the data beyond it. Source: SEMANTICS G13: if no record precedes
the end, the range contains only transaction markers or compacted gaps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import confluent_kafka
from confluent_kafka import KafkaError

from streamgroups.groups.lag import FirstOfLag, NoLag
from streamgroups.partitions import StampedOffset, TopicPartition
from streamgroups_kafka.admin.stored_records import assigned_consumer, may_pass
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.partition_conversion import to_confluent

_LITTLE = {
    "fetch.message.max.bytes": "65536",
    "fetch.wait.max.ms": "50",
    "queued.min.messages": "1",
    "queued.max.messages.kbytes": "1024",
    # A queue with records postpones the next request for all partitions of the broker, by default for a second.
    "fetch.queue.backoff.ms": "1",
}
_AT_ONCE = 1_000
_POLL_S = 0.05
#: How long a display of lag may wait for records.
TIME_LIMIT_S = 3.0


def first_records(
    config: ClientConfig, offsets: Mapping[TopicPartition, int], *, time_limit_s: float = TIME_LIMIT_S
) -> dict[TopicPartition, FirstOfLag]:
    """See :meth:`streamgroups.ports.TopicAdmin.first_records`.

    Args:
        config: the configuration of the client. With ``read_committed``, aborted records are skipped.
        offsets: the start offsets, within the bounds of their partitions.
        time_limit_s: the time limit, in seconds. Partitions without a result until then are omitted.

    Raises:
        StreamGroupsError: if the broker rejects a request.
    """
    found: dict[TopicPartition, FirstOfLag] = {}
    deadline_s = time.monotonic() + time_limit_s
    with assigned_consumer(config, offsets, _LITTLE) as consumer:
        while len(found) < len(offsets) and time.monotonic() < deadline_s:
            done = []
            # It returns when it has this number of messages, often one of each partition.
            for message in consumer.consume(min(len(offsets) - len(found), _AT_ONCE), _POLL_S):
                tp = TopicPartition(message.topic() or "", message.partition() or 0)
                if tp in found or tp not in offsets:
                    continue
                answer = _answer(message, config)
                if answer is not None:
                    found[tp] = answer
                    done.append(to_confluent(tp))
            if done:
                consumer.pause(done)
    return found


def _answer(message: confluent_kafka.Message, config: ClientConfig) -> FirstOfLag | None:
    error = message.error()
    if error is None:
        return StampedOffset(message.offset() or 0, message.timestamp()[1])
    if error.code() == KafkaError._PARTITION_EOF:
        return NoLag()
    # The records at this offset were deleted after the bounds were read.
    if error.code() == KafkaError._AUTO_OFFSET_RESET or may_pass(error):
        return None
    raise to_streamgroups_error(error, "Records could not be read", topic=message.topic(), redact=config.redact)
