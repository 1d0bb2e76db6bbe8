"""The process of a stopped query ends, also if a thread waits forever."""

from __future__ import annotations

import subprocess
import sys

from streamgroups_spark.internals.python_worker import is_runner

_PROGRAM = """
import threading
from streamgroups_spark.internals.python_worker import exit_within
threading.Thread(target=threading.Event().wait).start()
exit_within(0.1)
"""


def test_a_process_with_a_thread_that_waits_forever_exits() -> None:
    ended = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, "did not exit within 0 s" in ended.stderr) == (1, True), ended.stderr


def test_a_process_that_tests_something_is_not_that_of_a_query() -> None:
    assert not is_runner()
