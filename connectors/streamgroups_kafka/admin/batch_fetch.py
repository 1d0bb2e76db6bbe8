"""Fetches single record batches without librdkafka.

Called by the readers of ranges, of cursors and of commands, if librdkafka delivers neither a record nor an error although
more offsets exist. librdkafka does so for a record with a key or value length below -1, which every principal with Write on
a topic can write: brokers do not check it. Without this module, such a record stops its partition permanently. Source:
Kafka's Fetch request; KIP-98 (aborted transactions in its response).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

from streamgroups.errors import BrokerUnreachable, StreamGroupsError
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_kafka.admin.batch_parser import AT_MAGIC, MAGIC, ParsedBatch, parse_batch
from streamgroups_kafka.admin.connection import AdminSession, ThrottledError
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.logs import ClientLog, client_log
from streamgroups_kafka.client.messages import Flaw, warn_of_flaw
from streamgroups_kafka.client.private_kafka_python import FetchRequest, MetadataRequest

#: The timeout of the connection and of a request, in seconds.
_TIMEOUT_S = 5.0
#: No request starts later than this, in seconds: the caller has a timeout too.
_LAST_REQUEST_S = 15.0
#: librdkafka's default of ``receive.message.max.bytes``, which limits decompressed records too.
_MAX_BYTES = 100_000_000
#: The last version with topic names; later versions contain topic ids.
_MIN_VERSION, _MAX_VERSION = 4, 12
#: A broker returns the first batch at any size, and no other one.
_ONE_BATCH_BYTES = 1


def fetched_batches(config: ClientConfig, ranges: Iterable[OffsetRange]) -> Iterator[tuple[OffsetRange, ParsedBatch]]:
    """Yields the batches that librdkafka cannot parse, at the start of each range.

    Batches without records can precede them, such as aborted ones. librdkafka skips these without a change of the position, so
    a slow read of many of them is no reason to seek.

    Args:
        config: the configuration of the client.
        ranges: the ranges.

    Yields:
        Each batch with its range. It contains only records of the range. A partition whose broker does not respond has
        none: librdkafka, which waits for the same records, reports the reason. The caller repeats the call later.

    Raises:
        StreamGroupsError: if a batch cannot be parsed.
    """
    started_s, log = time.monotonic(), client_log(config.get("bootstrap.servers"))
    try:
        session = AdminSession(config, timeout_s=_TIMEOUT_S)
    except StreamGroupsError as e:
        log.failed(f"No records can be read without librdkafka: {e}")
        return
    with closing(session):
        for required in ranges:
            next_offset = required.next_offset
            while next_offset < required.end_offset and time.monotonic() - started_s < _LAST_REQUEST_S:
                rest = OffsetRange(required.topic_partition, next_offset, required.end_offset)
                found = _batch(session, config, rest, log)
                if found is None or (found.bad_length_offset is None and found.records):
                    break
                if found.bad_length_offset is not None:
                    warn_of_flaw(required.topic_partition, found.bad_length_offset, Flaw.LENGTH)
                    yield required, found
                next_offset = found.next_offset


def _batch(session: AdminSession, config: ClientConfig, required: OffsetRange, log: ClientLog) -> ParsedBatch | None:
    """The batch at the start of a range, with the records of the range; ``None`` if the broker returns none, or one in a format
    before version 2, which librdkafka parses.
    """
    tp = required.topic_partition
    try:
        answer = session.once(f"Reading {tp}", _fetch, session, config, tp, required.next_offset)
    except StreamGroupsError as e:
        log.failed(f"{required} cannot be read without librdkafka: {e}")
        return None
    data = bytes(answer.records or b"")
    if not data or (len(data) > AT_MAGIC and data[AT_MAGIC] < MAGIC):
        return None
    try:
        found = parse_batch(tp, data, int(config.get("receive.message.max.bytes") or _MAX_BYTES))
    except ValueError as e:
        raise StreamGroupsError(
            f"{tp}@{required.next_offset}: the record batch with this offset cannot be read, because {e}.",
            remedy="Set the offset of the group after this batch, with streamgroups groups reset. Its records are skipped.",
            topic=tp.topic,
            partition=tp.partition,
        ) from None
    aborted = {it.producer_id for it in answer.aborted_transactions or () if it.first_offset < found.next_offset}
    records = () if found.transactional_producer in aborted else found.records
    return replace(
        found, records=tuple(it for it in records if required.next_offset <= it.offset() < required.end_offset)
    )


async def _fetch(session: AdminSession, config: ClientConfig, tp: TopicPartition, next_offset: int) -> Any:
    """Returns the partition in the response of its leader."""
    what = f"Reading {tp}"
    topic = MetadataRequest.MetadataRequestTopic(name=tp.topic)
    (found,) = (await session.send(MetadataRequest(topics=[topic], allow_auto_topic_creation=False))).topics
    session.check(found.error_code, what, topic=tp.topic)
    leaders = {p.partition_index: p.leader_id for p in found.partitions}
    if leaders.get(tp.partition, -1) < 0:
        raise BrokerUnreachable(f"{tp} has no leader.", remedy="Check that its brokers are up.")
    fetch = FetchRequest.FetchTopic
    partition = fetch.FetchPartition(
        partition=tp.partition, fetch_offset=next_offset, partition_max_bytes=_ONE_BATCH_BYTES
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_ONE_BATCH_BYTES,
        isolation_level=int(config.isolation_level == "read_committed"),
        topics=[fetch(topic=tp.topic, partitions=[partition])],
        min_version=_MIN_VERSION,
        max_version=_MAX_VERSION,
    )
    answer = await session.send(request, leaders[tp.partition])
    session.check(answer.error_code, what, topic=tp.topic)
    if not answer.responses:
        # A quota throttles this user: the response is empty, and the next one has the records.
        raise ThrottledError(answer.throttle_time_ms / 1000)
    ((answered,),) = (t.partitions for t in answer.responses)
    session.check(answered.error_code, what, topic=tp.topic)
    return answered
