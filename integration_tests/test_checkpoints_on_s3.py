"""X1, S2: a query whose checkpoint is on an object store writes exactly once, also after a kill.

Spark writes the checkpoint with Hadoop's client, and the library reads it with Arrow. The store is a server on this machine with a
part of S3's interface. Source: docs/deploy.rst, "Locations".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import streamgroups as sg
from component_tests.object_store import BUCKET, ObjectStore
from integration_tests.hadoop_s3 import NoClient, hadoop_s3_jars, s3_environment, s3_settings
from integration_tests.programs import running
from integration_tests.tiers import LONG
from streamgroups.errors import SinkUnreachable
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import read_committed
from streamgroups_testkit.waits import wait_until

CHECKPOINT = f"s3a://{BUCKET}/copy"
_N = 300


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with ObjectStore() as found:
        yield found


@LONG
@pytest.mark.timeout(900)
def test_X1_after_kills_each_record_is_there_once(
    bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path, store: ObjectStore
) -> None:
    try:
        jars = ",".join(map(str, hadoop_s3_jars()))
    except NoClient as e:
        pytest.skip(str(e))
    topic, output = new_topic(2), new_topic(2)
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "group.id": group,
        "startingOffsets": "earliest",
        "kafka.session.timeout.ms": "6000",
        "maxOffsetsPerTrigger": "100",
    }
    config: dict[str, Any] = {
        "options": options,
        "output": output,
        "checkpoint": CHECKPOINT,
        "is_own": True,
        "until_read": False,
        "spark": {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.jars": jars, **s3_settings(store)},
    }

    def run_until(n: int) -> None:
        """Runs the query until it has written this number of records, and kills it."""
        with running("s3_query", config, tmp_path / "copy.log", s3_environment(store)) as program:

            def is_written() -> bool:
                program.check()
                return len(read_committed(bootstrap, output)) >= n

            wait_until(is_written, f"{n} records", 240)

    for n in (_N - 100, 2 * _N - 100, 3 * _N):
        produce(bootstrap, topic, _N, partitions=2)
        run_until(n)
    found = Counter(m.value for m in read_committed(bootstrap, output))
    assert (len(found), set(found.values())) == (_N, {3}), "the same values are produced three times"
    logged = [name for name in store.sizes if name.startswith("copy/commits/")]
    assert len(logged) > 3 * _N / 100 / 2, "the checkpoint is on the store"


@pytest.mark.parametrize("sink", ["kafka", "postgres"])
def test_S2_a_start_is_rejected_if_python_cannot_read_the_checkpoint(
    spark: SparkSession,
    bootstrap: str,
    new_topic: Callable[..., str],
    group: str,
    monkeypatch: pytest.MonkeyPatch,
    sink: str,
) -> None:
    """Spark's settings of the store do not apply to Python. Nothing has changed after the error."""
    for name, value in (("ENDPOINT_URL", "http://127.0.0.1:1"), ("REGION", "nowhere"), ("ACCESS_KEY_ID", "a")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": new_topic(2), "group.id": group}
    rows = spark.readStream.format("streamgroups").options(**options).load().select("value")
    to: Any = sg.KafkaSink(bootstrap_servers=bootstrap, topic=new_topic(2))
    if sink == "postgres":
        to = sg.PostgresSink(conninfo="host=127.0.0.1 port=1 dbname=board", table="board")
    writer = sg.exactly_once(rows, sink=to, checkpoint=CHECKPOINT)
    with pytest.raises(SinkUnreachable, match=r"checkpoint 's3a://bucket/copy' cannot be read.*AWS_ENDPOINT_URL") as e:
        writer.start()
    assert "hunter2" not in str(e.value)
    assert not [it for it in spark.streams.active if it.name == group]
