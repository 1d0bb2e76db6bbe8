"""S2: the process of a stopped query leaves its group and ends, also if a thread waits forever."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streamgroups_spark.internals.python_worker import is_runner

_PROGRAM = """
import threading
from streamgroups_spark.internals.python_worker import exit_within
threading.Thread(target=threading.Event().wait).start()
exit_within(0.1)
"""

_LEAVING = """
import os, signal, sys
from types import SimpleNamespace
from streamgroups_spark.internals.private_spark import SOURCE_RUNNER
from streamgroups_spark.internals.python_worker import exit_on_sigterm
from streamgroups_spark.source.readers import StreamReader

sys.modules["__main__"].__spec__ = SimpleNamespace(name=SOURCE_RUNNER)

def leave():
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    print("has left the group", flush=True)

reader = StreamReader.__new__(StreamReader)
reader._query = SimpleNamespace(stop=leave)
exit_on_sigterm()
try:
    raise RuntimeError("latestOffset failed")
finally:
    reader.stop()
"""


def test_a_process_with_a_thread_that_waits_forever_exits() -> None:
    ended = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, "did not exit within 0 s" in ended.stderr) == (1, True), ended.stderr


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGINT"])
def test_S2_a_signal_does_not_interrupt_the_leave_of_a_query_that_has_failed(signal: str) -> None:
    """Spark ends the process of a query that has already ended by an error."""
    ended = subprocess.run(
        [sys.executable, "-c", _LEAVING, signal], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stdout == "has left the group\n", ended.stderr
    assert (ended.returncode, "latestOffset failed" in ended.stderr) == (1, True)


def test_a_process_that_tests_something_is_not_that_of_a_query() -> None:
    assert not is_runner()
