"""Reads the records of partitions for commands: all of a range, or the first one at or after an offset.

Called by :mod:`streamgroups_kafka.admin.topics`. The consumer joins no group and commits nothing. The smallest response of
a broker is one record batch, so the requests for a first record limit the data beyond it. If no record precedes the end, the
range contains only transaction markers or compacted gaps (SEMANTICS G13). Source: the partition EOF event of librdkafka.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import confluent_kafka
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException

from streamgroups.groups.lag import FirstOfLag, NoLag
from streamgroups.message import Message
from streamgroups.partitions import OffsetRange, StampedOffset, TopicPartition
from streamgroups_kafka.admin.batch_fetch import fetched_batches
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.error_codes import BROKER_REMOVED
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.login_rejections import LoginRejections
from streamgroups_kafka.client.messages import KafkaMessage, to_message
from streamgroups_kafka.client.partition_conversion import to_confluent

_AT_ONCE = 500
#: Signals are handled between two polls.
_POLL_S = 0.2
#: After this time without a record, the next batches are read without librdkafka.
_STALLED_S = 5.0
#: The settings for first records.
_LITTLE = {
    "fetch.message.max.bytes": "65536",
    "fetch.wait.max.ms": "50",
    "queued.min.messages": "1",
    "queued.max.messages.kbytes": "1024",
    # A queue with records postpones the next request for all partitions of the broker, by default for a second.
    "fetch.queue.backoff.ms": "1",
}
_FIRST_POLL_S = 0.05
#: How long a display of lag may wait for records.
TIME_LIMIT_S = 3.0


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
        LoginRejected: if the brokers reject the login, and no record arrives for the time of an outage.
        StreamGroupsError: if the broker rejects a request, or the offsets are out of range.
    """
    open_ = {tp for tp, start in starts.items() if ends is None or start < ends[tp]}
    if not open_:
        return
    positions = {tp: starts[tp] for tp in open_}
    login = LoginRejections()

    def on_error(error: KafkaError) -> None:
        login.seen(to_streamgroups_error(error, "Records could not be read", redact=config.redact))

    settings = {"fetch.wait.max.ms": "100", "error_cb": on_error}
    with _assigned_consumer(config, positions, settings) as consumer:
        stalled_s = time.monotonic() + _STALLED_S
        while open_:
            arrived: Sequence[KafkaMessage] = consumer.consume(_AT_ONCE, _POLL_S)
            if arrived:
                login.progressed()
            login.check()
            if ends is not None and not arrived and time.monotonic() > stalled_s:
                ranges = [OffsetRange(tp, positions[tp], ends[tp]) for tp in sorted(open_)]
                arrived = _not_parsed(config, consumer, ranges, positions)
            if arrived or time.monotonic() > stalled_s:
                stalled_s = time.monotonic() + _STALLED_S
            for message in arrived:
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
                if tp in open_:
                    positions[tp] = max(positions[tp], reached)
                if end is not None and reached >= end:
                    open_.discard(tp)


def _not_parsed(
    config: ClientConfig, consumer: Consumer, ranges: Iterable[OffsetRange], positions: dict[TopicPartition, int]
) -> list[KafkaMessage]:
    """Reads the batches that librdkafka cannot parse. It delivers neither their records nor an error. Sets the positions after
    those without records, such as aborted ones.
    """
    records: list[KafkaMessage] = []
    for required, found in fetched_batches(config, ranges):
        after = to_confluent(required.topic_partition, found.next_offset)
        consumer.incremental_unassign([after])
        consumer.incremental_assign([after])
        records += found.records
        if not found.records:
            positions[required.topic_partition] = found.next_offset
    return records


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
    with _assigned_consumer(config, offsets, _LITTLE) as consumer:
        while len(found) < len(offsets) and time.monotonic() < deadline_s:
            done = []
            # It returns when it has this number of messages, often one of each partition.
            for message in consumer.consume(min(len(offsets) - len(found), _AT_ONCE), _FIRST_POLL_S):
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
        kind, timestamp_ms = message.timestamp()
        return StampedOffset(message.offset() or 0, None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms)
    if error.code() == KafkaError._PARTITION_EOF:
        return NoLag()
    # The records at this offset were deleted after the bounds were read.
    if error.code() == KafkaError._AUTO_OFFSET_RESET or may_pass(error):
        return None
    raise to_streamgroups_error(error, "Records could not be read", topic=message.topic(), redact=config.redact)


@contextmanager
def _assigned_consumer(
    config: ClientConfig, starts: Mapping[TopicPartition, int], settings: Mapping[str, Any]
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
        BROKER_REMOVED,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    )
    return error.retriable() or error.code() in passing
