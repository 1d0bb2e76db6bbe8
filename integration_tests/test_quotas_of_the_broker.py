"""X1: a quota of the broker delays the output. Each batch is sent once, and none is lost."""

from __future__ import annotations

import time
from contextlib import closing

import pyarrow as pa
from confluent_kafka.admin import AdminClient

from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.transactions.writer import TransactionWriter
from streamgroups_kafka.write.record_batches import BatchSettings, encode
from streamgroups_testkit.broker import Broker
from streamgroups_testkit.reading import read_committed
from streamgroups_testkit.topics import create_topic

#: Eight batches exceed the quota for several seconds.
BATCH_BYTES, BYTES_PER_S, N_BATCHES = 1_000_000, 400_000, 8
#: The retries end before the throttle does.
RETRY_TIMEOUT_S = 1.0


def test_X1_a_throttled_writer_waits_longer_than_its_retries(kafka: Broker, group: str) -> None:
    entity = ("--alter", "--entity-type", "clients", "--entity-name", group)
    done = kafka.run_tool("configs", *entity, "--add-config", f"producer_byte_rate={BYTES_PER_S}")
    assert done.returncode == 0, done.stderr
    create_topic(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), group, 1)
    config = ClientConfig.from_options({"bootstrap.servers": kafka.bootstrap_servers, "client.id": group})
    waits_s = []
    with closing(TransactionWriter(config, None, retry_timeout_s=RETRY_TIMEOUT_S)) as writer:
        for number in range(N_BATCHES):
            records = pa.record_batch(
                {"partition": pa.array([0], pa.int32()), "key": [b"%d" % number], "value": [bytes(BATCH_BYTES)]}
            )
            batches = encode(
                records,
                BatchSettings(),
                topic=group,
                now_ms=time.time_ns() // 1_000_000,
                producer=writer.producer,
                next_sequences={0: number},
            )
            began_s = time.monotonic()
            assert writer.write(group, batches) == []
            waits_s.append(time.monotonic() - began_s)
        n_requests = writer._session.requests["Produce"]
    assert n_requests == N_BATCHES
    assert max(waits_s) > RETRY_TIMEOUT_S, f"the quota has not throttled the writer: {waits_s}"
    assert [record.key for record in read_committed(kafka.bootstrap_servers, group)] == [
        b"%d" % number for number in range(N_BATCHES)
    ]
