"""A peer: a loop over ``confluent_kafka.Consumer.consume``, the simplest reader. ``bulk`` runs it as a process.

It assigns itself all partitions, reads every value, and prints the number of records and the seconds.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition


def main(bootstrap: str, topic: str, required: int) -> None:
    """Reads at least this number of records from the earliest offset."""
    started_s = time.perf_counter()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench-loop", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
    records = size = 0
    while records < required:
        messages = consumer.consume(10_000, 10)
        if not messages:
            break
        for message in messages:
            if message.error() is None:
                size += len(message.value() or b"")
                records += 1
    seconds = time.perf_counter() - started_s
    consumer.close()
    print(json.dumps({"records": records, "seconds": seconds, "bytes": size}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
