"""The forks of a campaign of savepoints: bounded runs in one Spark session, three at a time. ``integration_tests.campaign_forks``
starts it as ``python -m integration_tests.campaign_fork_query FILE``.

Each batch writes its rows to a file with its number in the directory of the fork. The error of a run is in ``error.txt``.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import streamgroups as sg
from integration_tests.campaign_windows import windows
from streamgroups_testkit.spark_sessions import session_builder

ERROR_FILE = "error.txt"
_ATTEMPTS = 5


def run(spark: SparkSession, options: dict[str, str], fork: dict[str, Any]) -> None:
    """Reads from the positions of a group to the end of the topic.

    A query that fails before its first rows starts again: on a busy machine Spark does not wait for its Python processes.
    """
    output = Path(fork["output"])
    output.mkdir(parents=True)
    for _ in range(_ATTEMPTS):
        try:
            _run_to_end(spark, {**options, "group.id": fork["group"]}, output, is_direct=fork["is_direct"])
        except Exception as e:
            (output / ERROR_FILE).write_text(str(e))
            if list(output.glob("*.json")) or "streamgroups.errors" in str(e):
                return
        else:
            (output / ERROR_FILE).unlink(missing_ok=True)
            return


def _run_to_end(spark: SparkSession, options: dict[str, str], output: Path, *, is_direct: bool) -> None:
    source = spark.readStream.format("streamgroups").options(**options).load()

    def write(batch: DataFrame, batch_id: int) -> None:
        (output / f"{batch_id}.json").write_text(json.dumps([row.value for row in batch.select("value").collect()]))

    writer = windows(source, is_direct=is_direct).writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", str(output / "checkpoint")).trigger(availableNow=True)
    writer.start().awaitTermination()


def main(config: dict[str, Any]) -> int:
    spark = session_builder("forks").config("spark.driver.memory", "1g").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    sg.register(spark)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(partial(run, spark, config["options"]), config["forks"]))
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))
