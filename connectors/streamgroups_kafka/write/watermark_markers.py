"""Sends marker records: watermarks of a producer without data.

Called by producers as ``sg.event_time.emit_watermark``, with their own client of confluent-kafka. It needs no Spark. Source:
SEMANTICS W15; confluent-kafka's ``Producer.produce`` and ``Producer.list_topics``.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Collection
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from streamgroups.errors import BrokerUnreachable, InvalidOption, UnknownTopic
from streamgroups.event_time.producer_watermarks import (
    WATERMARK_HEADER,
    WatermarkTime,
    producer_time_ms,
    watermark_header,
)
from streamgroups_kafka.client.clock import now_ms
from streamgroups_kafka.client.errors import to_streamgroups_error
from streamgroups_kafka.client.missing_acls import WRITE

_TIMEOUT_S = 30.0
_POLL_S = 0.1


def emit_watermark(
    producer: Producer,
    topic: str,
    time: WatermarkTime,
    *,
    partitions: Collection[int] | None = None,
    header: str = WATERMARK_HEADER,
    on_delivery: Callable[[KafkaError | None, Any], None] | None = None,
) -> tuple[int, ...]:
    """Sends a marker record to partitions: no later record of the partition has an event time before ``time``.

    A marker has the header of :func:`streamgroups.event_time.watermark_header`, and neither key nor value. A source with the option
    ``watermarkHeader`` advances its watermark, and does not return the marker as a row. A marker is sent after the
    records that the producer has already sent. It applies to the records of all producers of the partition.

    The markers are in the queue of the producer when the function returns. It does not flush: call ``producer.flush()``,
    or ``commit_transaction()`` of a transactional producer. If the queue is full, it calls ``producer.poll`` until the
    marker has a place in it. The timestamp of a marker is ``time``, or the time now if that is earlier.

    Args:
        producer: a ``confluent_kafka.Producer``. A transactional one must be in a transaction.
        topic: the topic. A compacted topic rejects markers, because they have no key: set the header on records there.
        time: a datetime with a time zone, or milliseconds since the epoch.
        partitions: the partitions. Default: all partitions of the topic.
        header: the name of the header. The option ``watermarkHeader`` of the source must be the same.
        on_delivery: called for each marker with an error or ``None``, and its message. ``producer.poll`` and
            ``producer.flush`` call it.

    Returns:
        The partitions.

    Raises:
        InvalidOption: if the time has no time zone or is no time, or no partition is named.
        UnknownTopic: if the topic or a partition does not exist.
        BrokerUnreachable: if no broker responds, or the queue stays full.
        StreamGroupsError: if the producer or the broker rejects a marker for another reason. Markers of other partitions
            can be in the queue. A repetition is harmless.

    Example::

        producer.produce("flights", key="UA", value=flight)
        sg.event_time.emit_watermark(producer, "flights", datetime.now(timezone.utc) - timedelta(seconds=10))
        producer.flush()
    """
    name, value = watermark_header(time, name=header)
    chosen = _partitions(producer, topic, partitions)
    # Not in the future, which the topic can reject. Not after the watermark: a lookup of an offset by time would return
    # the marker instead of the first record of that time.
    timestamp_ms = min(producer_time_ms(time), now_ms())
    record: dict[str, Any] = {"headers": [(name, value)], "timestamp": timestamp_ms}
    if on_delivery is not None:
        record["on_delivery"] = on_delivery
    for partition in chosen:
        _produce(producer, topic, partition, record)
    return chosen


def _partitions(producer: Producer, topic: str, partitions: Collection[int] | None) -> tuple[int, ...]:
    if partitions is not None and not partitions:
        raise InvalidOption(
            "Option 'partitions' is empty.", remedy="Pass the numbers of partitions, or leave it out for all."
        )
    what = f"The partitions of topic '{topic}'"
    try:
        found = producer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
    except KafkaException as e:
        raise to_streamgroups_error(e.args[0], what, topic=topic, operations=WRITE) from None
    if found.error is not None:
        raise to_streamgroups_error(found.error, what, topic=topic, operations=WRITE)
    chosen = tuple(sorted(found.partitions if partitions is None else set(partitions)))
    for partition in chosen:
        if partition not in found.partitions:
            raise UnknownTopic(
                f"Topic '{topic}' has no partition {partition!r}.",
                remedy=f"It has the partitions 0 to {len(found.partitions) - 1}.",
                topic=topic,
            )
    return chosen


def _produce(producer: Producer, topic: str, partition: int, record: dict[str, Any]) -> None:
    deadline_s = clock.monotonic() + _TIMEOUT_S
    while True:
        try:
            producer.produce(topic, partition=partition, **record)
            return
        except BufferError:
            if clock.monotonic() > deadline_s:
                raise BrokerUnreachable(
                    f"The queue of the producer is still full after {_TIMEOUT_S:.0f} s, so partition {partition} of topic "
                    f"'{topic}' has no marker.",
                    remedy="Check that the brokers are reachable, or raise queue.buffering.max.messages of the producer.",
                    topic=topic,
                    partition=partition,
                ) from None
            producer.poll(_POLL_S)
        except KafkaException as e:
            what = f"Sending a marker to partition {partition} of topic '{topic}'"
            raise to_streamgroups_error(e.args[0], what, topic=topic, operations=WRITE) from None
