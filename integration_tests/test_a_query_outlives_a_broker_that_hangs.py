"""X1, G11: a query continues, without a restart, although one of three brokers does not respond, each in turn.

The broker is paused (SIGSTOP): its connections stay open, as those of a host that hangs. It coordinates the group or the
transactions, or leads partitions of the input and of the output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import streamgroups as sg
from integration_tests.campaign.targets import patiently
from integration_tests.three_brokers import three_brokers
from streamgroups_broker import EmbeddedKafka
from streamgroups_testkit.producing import Load
from streamgroups_testkit.reading import committed_offsets, read_committed, wait_until_no_transaction_is_open
from streamgroups_testkit.waits import wait_until

pytestmark = pytest.mark.long

PARTITIONS = 3
#: The controller replaces a broker that does not respond after 6 s. The requests to it end after 10 to 30 s.
CONTINUES_S = 45


@pytest.fixture
def cluster() -> Iterator[EmbeddedKafka]:
    with three_brokers("source", "target", partitions=PARTITIONS) as kafka:
        yield kafka


def test_every_broker_hangs_once(spark: SparkSession, cluster: EmbeddedKafka, tmp_path: Path) -> None:
    bootstrap = cluster.bootstrap_servers
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "group.id": "board",
        "subscribe": "source",
        "startingOffsets": "earliest",
    }

    def committed() -> int:
        return sum(patiently(lambda: committed_offsets(bootstrap, "board", "source")).values())

    rows = spark.readStream.format("streamgroups").options(**options).load().select("key", "value")
    sink = sg.KafkaSink(bootstrap_servers=bootstrap, topic="target")
    with Load(bootstrap, "source", partitions=PARTITIONS, per_second=200) as load:
        query = sg.exactly_once(rows, sink=sink, checkpoint=str(tmp_path / "checkpoint")).start()

        def ends_or_passes(n: int) -> bool:
            return query.exception() is not None or committed() > n

        try:
            wait_until(lambda: committed() > 200, "the query has begun")
            for node in cluster.node_ids:
                cluster.pause_node(node)
                try:
                    wait_until(
                        partial(ends_or_passes, load.count + 1_000),
                        f"the query continues without broker {node}",
                        timeout_s=CONTINUES_S,
                    )
                finally:
                    cluster.resume_node(node)
                wait_until(partial(ends_or_passes, load.count), "the query continues with all brokers")
                assert query.exception() is None
            load.stop()
            wait_until(partial(ends_or_passes, load.count - 1), "all is read")
            assert query.exception() is None
        finally:
            query.stop()
    wait_until_no_transaction_is_open(bootstrap, "target")
    found = Counter(m.value for m in read_committed(bootstrap, "target"))
    assert set(found.values()) == {1}
    assert len(found) == load.count
