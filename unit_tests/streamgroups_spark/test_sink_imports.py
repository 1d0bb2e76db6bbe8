"""A batch waits for the imports of two processes of the driver. Here: what they do not import."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("sink", ["streamgroups_sinks.postgres.sink", "streamgroups_sinks.delta.sink"])
def test_the_processes_of_a_ledger_sink_do_not_import_what_they_do_not_need(sink: str) -> None:
    program = (
        "import sys, pyspark.sql.worker.write_into_data_source, pyspark.sql.worker.python_streaming_sink_runner,"
        f" streamgroups_spark.sinks.ledger_writer, {sink}; print([m for m in sys.argv[1:] if m in sys.modules])"
    )
    command = [sys.executable, "-c", program, "pandas", "kafka"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"
