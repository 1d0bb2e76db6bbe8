"""Prints the error of this library as the last line of an uncaught exception of Spark.

Installed by ``register``. Spark's exceptions contain the traceback of another process, the plan of the query and traces of
Java, so the cause and the remedy are somewhere in the middle of the output. Python calls its hooks for exceptions that end
a program or a thread; the previous hook runs first, and its output is unchanged. A notebook calls the hook after each cell.
Source: Python's ``sys.excepthook`` and ``threading.excepthook``; IPython's event ``post_run_cell``.
"""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from streamgroups_spark.ops.exception_causes import cause_of

#: A terminal wraps a long line, so that the remedy at its end is not cut off.
_MAX_CHARACTERS = 4_000
_lock = threading.Lock()
_is_installed = False


def last_line(error: BaseException | None) -> str | None:
    """Returns the line of an exception of Spark that an error of this library has caused. ``None`` for other exceptions.

    Args:
        error: the exception.
    """
    if not isinstance(error, PySparkException | Py4JError):
        return None
    failure = cause_of(error, _MAX_CHARACTERS)
    return None if failure.error is None else failure.what


def show_last_lines() -> None:
    """Installs the hooks, once for the process."""
    global _is_installed
    with _lock:
        if _is_installed:
            return
        _is_installed = True
    _of_main_thread()
    _of_other_threads()
    _of_notebook()


def _of_main_thread() -> None:
    before = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        before(kind, error, traceback)
        _print(error)

    sys.excepthook = show


def _of_other_threads() -> None:
    before = threading.excepthook

    def show(arguments: Any) -> None:
        before(arguments)
        _print(arguments.exc_value)

    threading.excepthook = show


def _of_notebook() -> None:
    interactive = sys.modules.get("IPython")
    shell = None if interactive is None else interactive.get_ipython()
    if shell is not None:
        shell.events.register("post_run_cell", lambda result: _print(result.error_in_exec))


def _print(error: BaseException | None) -> None:
    line = last_line(error)
    if line is not None:
        sys.stderr.write(f"\n{line}\n")
