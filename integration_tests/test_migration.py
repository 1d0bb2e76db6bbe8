"""O5: a query of Spark's own ``kafka`` source continues with this library, and back: no record is lost or read twice."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from integration_tests.command_line import streamgroups
from integration_tests.spark_kafka import spark_kafka_jars
from streamgroups_testkit.producing import produce
from unit_tests.requirements import without

PARTITIONS = 2


@pytest.fixture(scope="module", autouse=True)
def _their_connector_is_there() -> None:
    if not spark_kafka_jars().paths:
        without("parity", spark_kafka_jars().why_not)


def test_O5_a_query_migrates_and_returns(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic = new_topic(PARTITIONS)
    read: list[int] = []

    def run(source: str, checkpoint: str, **options: str) -> None:
        """Runs a query until it has read all records."""

        def keep(batch: DataFrame, _number: int) -> None:
            read.extend(int(row["key"]) for row in batch.select(batch["key"].cast("string")).collect())

        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **options}
        writer = spark.readStream.format(source).options(**given).load().writeStream.foreachBatch(keep)
        query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()

    produce(bootstrap, topic, 40, partitions=PARTITIONS)
    run("kafka", "old", startingOffsets="earliest", maxOffsetsPerTrigger="30")
    assert sorted(read) == list(range(40))
    # The files of a query that was killed after the output of its last batch and before the commit.
    last = max(int(name) for name in os.listdir(tmp_path / "old" / "commits") if name.isdigit())
    assert last == 1
    (tmp_path / "old" / "commits" / str(last)).unlink()
    read[:] = read[:30]

    with pytest.raises(StreamingQueryException, match="groups import --from-spark-checkpoint") as rejected:
        run("streamgroups", "old", **{"group.id": group})
    command = f"--from-spark-checkpoint file://{tmp_path / 'old'} --group {group} --execute"
    assert command in str(rejected.value)

    imported = streamgroups("groups", "import", *command.split(), "-b", bootstrap)
    assert imported.returncode == 0, imported.stderr
    assert "batch 1 is planned and not committed" in imported.stderr
    produce(bootstrap, topic, 20, partitions=PARTITIONS, first=40)
    run("streamgroups", "new", **{"group.id": group})
    assert sorted(read) == list(range(60))

    exported = streamgroups("groups", "export", group, "--to-spark-options", "-b", bootstrap)
    assert exported.returncode == 0, exported.stderr
    produce(bootstrap, topic, 20, partitions=PARTITIONS, first=60)
    run("kafka", "back", **json.loads(exported.stdout))
    assert sorted(read) == list(range(80))
