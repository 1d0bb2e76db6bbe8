"""Threads of a query import kafka-python at the same time."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys, threading
sys.setswitchinterval(1e-5)
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.import_lock import KAFKA_PYTHON
from streamgroups_spark.source.background import import_partition_sizes
import importlib

failed = []
def second():
    try:
        with KAFKA_PYTHON:
            importlib.import_module("streamgroups_kafka.admin.groups")
    except BaseException as e:
        failed.append(e)

threads = [threading.Thread(target=import_partition_sizes), threading.Thread(target=second)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(failed, "kafka" in sys.modules)
"""


def test_threads_do_not_wait_for_each_other() -> None:
    command = [sys.executable, "-c", _PROGRAM]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[] True\n"
