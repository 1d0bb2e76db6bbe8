"""A broker is killed and restarts: queries resume by themselves, and no record is lost or repeated."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from integration_tests.tiers import EITHER_PROTOCOL
from streamgroups_broker import EmbeddedKafka
from streamgroups_testkit.broker import BROKER_PROPERTIES
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_offsets
from streamgroups_testkit.waits import wait_until

PARTITIONS = 4


@EITHER_PROTOCOL
def test_query_resumes(spark: SparkSession, tmp_path: Path, protocol: str) -> None:
    found: Counter[tuple[int, int]] = Counter()

    def write(batch: DataFrame, _batch_id: int) -> None:
        found.update((r.partition, r.offset) for r in batch.select("partition", "offset").collect())

    with EmbeddedKafka(data_dir=tmp_path / "kafka", properties=BROKER_PROPERTIES) as kafka:
        bootstrap = kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(30)
        reader = spark.readStream.format("streamgroups").options(
            **{
                "kafka.bootstrap.servers": bootstrap,
                "group.id": "g",
                "subscribe": "t",
                "startingOffsets": "earliest",
                "kafka.group.protocol": protocol,
            }
        )
        query = reader.load().writeStream.foreachBatch(write).start()
        try:
            produce(bootstrap, "t", 400, partitions=PARTITIONS)
            wait_until(
                lambda: committed_offsets(bootstrap, "g", "t") == dict.fromkeys(range(PARTITIONS), 100), "first part"
            )
            kafka.kill_node(1)
            kafka.restart_node(1)
            produce(bootstrap, "t", 400, partitions=PARTITIONS, first=400)
            wait_until(
                lambda: (
                    query.isActive and committed_offsets(bootstrap, "g", "t") == dict.fromkeys(range(PARTITIONS), 200)
                ),
                f"second part: {query.exception()}",
                90,
            )
        finally:
            query.stop()
    assert found == Counter((p, offset) for p in range(PARTITIONS) for offset in range(200))
