"""The start of a query waits for imports. Here: what the process of its source and its Python workers do not import."""

from __future__ import annotations

import subprocess
import sys


def test_the_process_of_a_query_does_not_import_what_its_first_batch_does_not_need() -> None:
    # The modules that Spark's stream runner imports, and those that the source imports at its first call.
    program = (
        "import sys, pyspark.sql.streaming.python_streaming_source_runner, streamgroups_spark.source.readers,"
        " streamgroups_spark.source.running_query; print([m for m in sys.argv[1:] if m in sys.modules])"
    )
    unneeded = [
        "pyarrow.compute",
        "pandas",
        "kafka",
        "streamgroups.query.ledger_positions",
        "streamgroups_operators.store",
    ]
    command = [sys.executable, "-c", program, *unneeded]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_worker_does_not_import_what_a_task_does_not_need() -> None:
    # A worker imports the reader when it receives a task.
    program = (
        "import sys, pyspark.worker, streamgroups_spark.source.readers;"
        " print([m for m in sys.argv[1:] if m in sys.modules])"
    )
    unneeded = ["confluent_kafka.admin", "kafka", "streamgroups.ports", "streamgroups.query.micro_batches"]
    unneeded += ["streamgroups.monitoring.query_progress", "streamgroups_kafka.admin", "streamgroups_operators"]
    unneeded += ["streamgroups_spark.source.observed_times"]
    command = [sys.executable, "-c", program, *unneeded]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"
