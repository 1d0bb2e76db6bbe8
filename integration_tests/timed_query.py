"""A stream with event time as a program: ``python -m integration_tests.timed_query '{...}'``. ``test_time_across_groups``
starts and kills it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import streamgroups as sg
from integration_tests.event_times import departures
from streamgroups_testkit.spark_sessions import session_builder


def main(config: dict[str, Any]) -> int:
    spark = session_builder("timed").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    sg.register(spark)
    timed = sg.with_event_time(departures(spark, config["options"]), "timestamp", watermark_delay="0s")
    writer = timed.writeStream.format("noop")
    writer.option("checkpointLocation", config["checkpoint"]).start().awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
