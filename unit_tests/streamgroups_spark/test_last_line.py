"""The last line of the output of a failed program is the error of this library, with its remedy."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from streamgroups.errors import InvalidOption
from streamgroups_spark.ops.last_line import last_line

#: The text of a query that failed in its source.
FAILED = """[STREAM_FAILED] Query [id = 6, runId = 7] terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR]
Traceback (most recent call last):
  File "data_source.py", line 215, in latestOffset
    raise self._rejection
streamgroups.errors.InvalidOption: Option 'group.id' is missing. Set it. SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Logical Plan:
StreamingDataSourceV2Relation [key#1]
"""
LINE = "InvalidOption: Option 'group.id' is missing. Set it."
PROGRAM = """
import sys, threading
from pyspark.errors import StreamingQueryException
from streamgroups_spark.ops.last_line import show_last_lines

def fail():
    raise StreamingQueryException(sys.argv[2])

before = []
sys.excepthook = lambda *arguments: before.append(sys.__excepthook__(*arguments))
show_last_lines()
show_last_lines()
if sys.argv[1] == "main":
    fail()
thread = threading.Thread(target=fail)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("thread", ["main", "other"])
def test_a_program_that_fails_ends_with_the_error(thread: str) -> None:
    command = [sys.executable, "-c", PROGRAM, thread, FAILED]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    lines = ran.stderr.splitlines()
    assert lines[-1] == LINE
    assert lines.count(LINE) == 1
    assert any("StreamingQueryException" in line for line in lines), "the traceback is printed too"


def test_the_whole_remedy_is_there() -> None:
    text = "streamgroups.errors.InvalidOption: " + "x" * 1000 + " Do this."
    found = last_line(PySparkException(f'Traceback (most recent call last):\n  File "a.py", line 1, in f\n{text}'))
    assert found is not None
    assert found.endswith(" Do this.")


@pytest.mark.parametrize(
    "error",
    [
        None,
        KeyboardInterrupt(),
        ValueError(FAILED),
        # Python prints this one as the last line already.
        InvalidOption("Option 'group.id' is missing.", remedy="Set it."),
        StreamingQueryException("[STREAM_FAILED] Query [id = 6] terminated with exception: No space left on device"),
    ],
)
def test_other_exceptions_are_printed_as_before(error: BaseException | None) -> None:
    assert last_line(error) is None
