"""Writes records at a rate of up to a million per second, as a program. Started by ``handover_load``.

It encodes one record batch for each partition, and sends the same batches again and again. So its cost is that of the
requests, not of the records. It ends with its standard input. It makes up for a delay of at most a second: at a rate
that the machine does not reach, it writes as fast as it can.
"""

from __future__ import annotations

import json
import select
import sys
import time
from typing import Any

import pyarrow as pa
from kafka.protocol.producer import ProduceRequest

from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.write.compression import Compression
from streamgroups_kafka.write.record_batches import BatchSettings, encode

#: How often each partition gets a batch, unless the rate is too low for that.
_TICK_S = 0.05
_MAX_DELAY_S = 1.0
_VALUE_BYTES = 100
#: Values compress as JSON does: to about a fifth.
_CARRIERS, _ORIGINS = ("AA", "B6", "DL", "UA"), ("EWR", "JFK", "LGA")


def batch_records(per_s: int, partitions: int) -> int:
    """The number of records in the batch of each partition.

    >>> batch_records(1_000, 32), batch_records(1_000_000, 32)
    (2, 1562)
    """
    return max(1, round(per_s * _TICK_S / partitions))


def produce_request(topic: str, partitions: int, records: int) -> ProduceRequest:
    """One request with a batch for each partition."""
    values = [
        f'{{"id":{i},"carrier":"{_CARRIERS[i % 4]}","origin":"{_ORIGINS[i * 7 % 3]}","delay":{i * 31 % 200}}}'
        for i in range(partitions * records)
    ]
    rows = pa.record_batch(
        {
            "partition": pa.array([i % partitions for i in range(partitions * records)], pa.int32()),
            "value": [value.ljust(_VALUE_BYTES) for value in values],
        }
    )
    settings = BatchSettings(compression=Compression("lz4"))
    batches = encode(rows, settings, topic=topic, now_ms=time.time_ns() // 1_000_000)
    if len(batches) != partitions:
        raise ValueError(f"{len(batches)} batches for {partitions} partitions")
    of_topic = ProduceRequest.TopicProduceData
    data = [of_topic.PartitionProduceData(index=batch.partition, records=batch.data) for batch in batches]
    return ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=10_000,
        topic_data=[of_topic(name=topic, partition_data=data)],
        max_version=12,
    )


def produce(config: dict[str, Any]) -> None:
    """Writes until the end of standard input."""
    topic, partitions, per_s = config["topic"], config["partitions"], config["per_s"]
    records = batch_records(per_s, partitions)
    tick_s = records * partitions / per_s
    request = produce_request(topic, partitions, records)
    session = AdminSession(ClientConfig.from_options({"bootstrap.servers": config["bootstrap"]}), timeout_s=20)
    try:
        next_s = time.monotonic()
        while not select.select([sys.stdin], [], [], max(0.0, next_s - time.monotonic()))[0]:
            session.run("The records cannot be written", send, session, request)
            next_s = max(next_s + tick_s, time.monotonic() - _MAX_DELAY_S)
    finally:
        session.close()


async def send(session: AdminSession, request: ProduceRequest) -> None:
    """Writes the batches of a request."""
    [topic] = (await session.send(request)).responses
    for partition in topic.partition_responses:
        session.check(partition.error_code, f"Partition {partition.index} cannot be written", topic=topic.name)


if __name__ == "__main__":
    produce(json.loads(sys.argv[1]))
