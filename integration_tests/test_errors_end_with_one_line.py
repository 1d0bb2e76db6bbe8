"""An exception of Spark that an error of this library has caused ends with this error and its remedy, in one line."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from integration_tests.tiers import LONG
from streamgroups_spark.ops.last_line import last_line

NO_BROKER = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "flights"}
WITHOUT_GROUP = (
    "InvalidOption: Option 'group.id' is missing. Set it to the name of the group: queries with the same group.id share "
    "the partitions of the topic."
)
PROGRAM = """
import sys
import streamgroups as sg
from streamgroups_testkit.spark_sessions import session_builder

spark = session_builder("without-group").getOrCreate()
sg.register(spark)
options = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "flights"}
flights = spark.readStream.format("streamgroups").options(**options).load()
flights.writeStream.format("noop").option("checkpointLocation", sys.argv[1]).start().awaitTermination()
"""


def test_the_last_line_of_real_exceptions(spark: SparkSession, tmp_path: Path) -> None:
    reader = spark.readStream.format("streamgroups").options(**NO_BROKER)
    writer = reader.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    query = writer.start()
    with pytest.raises(StreamingQueryException) as failed:
        query.awaitTermination(60)
    assert last_line(failed.value) == WITHOUT_GROUP
    with pytest.raises(PySparkException) as rejected:
        spark.readStream.format("streamgroups").options(**NO_BROKER, startingTimestmp="1").load()
    line = last_line(rejected.value)
    assert line is not None
    # Spark passes the names of options in lower case.
    assert line.startswith("InvalidOption: Option 'startingtimestmp' is unknown. Did you mean 'startingTimestamp'")
    assert "\n" not in line
    batch = spark.range(1).selectExpr("'x' value").write.format("streamgroups").options(**NO_BROKER)
    with ThreadPoolExecutor(1) as thread, pytest.raises(Py4JJavaError) as not_found:
        thread.submit(batch.mode("append").save).result()
    assert str(last_line(not_found.value)).endswith("in the block: with sg.supervision.session_active(spark).")


@LONG
def test_the_last_line_of_a_program(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "c")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == WITHOUT_GROUP
