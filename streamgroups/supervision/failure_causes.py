"""Finds the cause of a failed query in the text of Spark's exception.

:mod:`streamgroups.monitoring.query_progress` and ``streamgroups_spark.ops.supervise`` call this module. Errors of
sources, tasks and ``foreachBatch`` reach the driver's Python only as text. It is a Python traceback inside the message
of a Java exception, often repeated, with causes and stack traces around it. Source: PySpark's
``handle_worker_exception``, Py4J's ``Py4JException`` (``unit_tests/golden`` contains recorded ones), and the format of
Python's tracebacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from streamgroups.errors import InvalidOption, StreamGroupsError

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = '  File "'
#: The margin of the lines of an exception group. Source: Python's ``traceback.TracebackException.format``.
_GROUP, _MARGIN = "Exception Group Traceback", re.compile(r"^ +[|+] ")
_OWN_ERROR = re.compile(r"streamgroups\.errors\.(?P<name>\w+)(?:: |$)")
#: What Java and Spark write before the error of Python if they write no traceback, as with
#: ``spark.sql.execution.pyspark.udf.hideTraceback.enabled``. It contains no data of records.
_BEFORE = re.compile(
    r"^(?:(?:org|java|py4j)\.[\w.$]+: |\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: |\[PYTHON_\w+\] [^:]*: "
    r"|Job aborted due to stage failure: Task [^(]*\(TID \d+\) \([^)]*\): )*"
)
#: Py4J's first line of an exception of Java, whose class and message are the next line. Source: Py4J's ``get_return_value``.
_CALLING = re.compile(r"An error occurred while calling \S+\.(?: Trace:)?\n(?:: )?")
#: Spark's error for a format that it finds neither as a class nor in the active session of the thread.
_NOT_FOUND = re.compile(r"(?:[\w.$]+: )*\[DATA_SOURCE_NOT_FOUND\] .*?: (?P<format>streamgroups[\w-]*)\b")
_SQL_STATE = re.compile(r"(\s*SQLSTATE: \w{5})+\s*$")
#: The longest description in a log.
MAX_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run of a query failed.

    Args:
        what: a description in one line.
        error: the class of the error of this library; ``None`` for any other error.

    >>> from streamgroups.errors import BrokerUnreachable
    >>> Failure("No broker responds.", BrokerUnreachable).code
    'broker_unreachable'
    """

    what: str
    error: type[StreamGroupsError] | None = None

    @property
    def code(self) -> str | None:
        """The error's code; ``None`` if it is not ours."""
        return None if self.error is None else self.error.code


def failure_in(text: str, max_characters: int = MAX_CHARACTERS) -> Failure:
    """Finds the error at the end of an exception's text.

    That is the last line of the last traceback: consequences of an exception follow it, and Java repeats the deepest
    cause last. A message can contain data of records, such as lines of a log. So an error counts only where the message
    begins, and a traceback only with its frames.

    Args:
        text: the text of the exception.
        max_characters: the longest description. The rest is cut off.

    >>> text = '''org.apache.spark.SparkException: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed: Traceback (most recent call last):
    ...   File "source.py", line 170, in initialOffset
    ... streamgroups.errors.UnknownTopic: Topic 'flihgts' does not exist. Create it.
    ...  SQLSTATE: 38000'''
    >>> failure_in(text)
    Failure(what="UnknownTopic: Topic 'flihgts' does not exist. Create it.", error=<class 'streamgroups.errors.UnknownTopic'>)
    >>> failure_in("org.apache.spark.SparkException: Job aborted")
    Failure(what='org.apache.spark.SparkException: Job aborted', error=None)
    >>> failure_in("An error occurred while calling o374.start.\\n: java.io.IOException: No space left on device").what
    'java.io.IOException: No space left on device'
    >>> text = "SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to find the data source: streamgroups. Make sure ..."
    >>> print(failure_in(text).what)
    InvalidOption: Spark does not find the format 'streamgroups' in the active session of this thread. Call \
sg.register(spark) once, and start a write in another thread in the block: with sg.supervision.session_active(spark).
    """
    lines = _CALLING.sub("", text, count=1).splitlines()
    if _GROUP in text:
        lines = [_MARGIN.sub("", line) for line in lines]
    ends = list(_ends_of_tracebacks(lines))
    first = next((line for line in map(str.strip, lines) if line), "an error without a message")
    last = ends[-1].strip() if ends else _without_prefix(first)
    if (missing := _NOT_FOUND.match(last)) is not None:
        return failure_of(_format_not_found(missing["format"]))
    error_line = _OWN_ERROR.match(last)
    error = None if error_line is None else _errors().get(error_line["name"])
    what = last if error_line is None or error is None else last[error_line.start("name") :]
    return Failure(_short(what, max_characters), error)


def failure_of(error: StreamGroupsError) -> Failure:
    """Returns the failure of a :class:`StreamGroupsError` that is not wrapped in text.

    >>> from streamgroups.errors import DataLoss
    >>> failure_of(DataLoss("Records are gone.")).what
    'DataLoss: Records are gone.'
    """
    # Subclasses that users derive from an error of this library follow the rules of that error.
    known = next(cls for cls in type(error).__mro__ if cls in {*_errors().values(), StreamGroupsError})
    return Failure(_short(f"{type(error).__name__}: {error}".splitlines()[0]), known)


def _without_prefix(line: str) -> str:
    """Removes what precedes an error of this library in a text without a traceback."""
    rest = _BEFORE.sub("", line, count=1)
    return rest if _OWN_ERROR.match(rest) else line


def _format_not_found(name: str) -> InvalidOption:
    return InvalidOption(
        f"Spark does not find the format '{name}' in the active session of this thread.",
        remedy="Call sg.register(spark) once, and start a write in another thread in the block: with "
        "sg.supervision.session_active(spark).",
    )


def _ends_of_tracebacks(lines: list[str]) -> Iterator[str]:
    """Returns the line that names the exception of each traceback: the first line after its frames that is not indented."""
    is_inside = has_frames = False
    for line in lines:
        if is_inside and (not line.strip() or line[0].isspace()):
            has_frames |= line.startswith(_FRAME)
            continue
        if has_frames:
            yield line
        is_inside, has_frames = line.endswith(_TRACEBACK), False


def _errors() -> dict[str, type[StreamGroupsError]]:
    return {cls.__name__: cls for cls in StreamGroupsError.__subclasses__()}


def _short(line: str, max_characters: int = MAX_CHARACTERS) -> str:
    line = _SQL_STATE.sub("", line)
    return line if len(line) <= max_characters else f"{line[: max_characters - 1]}…"
