"""Prepares a Python worker of Spark, to avoid two delays of each micro-batch, and ends the process of a stopped query.

Called first by all classes and functions of this library that Spark runs in a worker: readers, writers and functions,
in tasks and beside the driver.

**Acknowledgement of the rest of the task.** The JVM sends a task in two writes: first the command, which contains a
reader, then its rows. They use a local TCP connection with Nagle's algorithm. The second, short write waits until the
first is acknowledged. An idle receiver delays the acknowledgement by 40 ms, a fifth of the trigger time of a small
micro-batch. Source: RFC 896, RFC 1122 (4.2.3.2), ``tcp(7)`` on ``TCP_QUICKACK``. With
``spark.python.unix.domain.socket.enabled=true`` no TCP is used, and this step has no effect.

**Frozen modules.** After each task Spark's daemon runs the garbage collector in the worker. It traverses every object,
including about 50,000 of the imported modules. That takes tens of milliseconds of a processor while the micro-batch
ends on the same processors. The worker receives its next task only afterwards. Source: ``pyspark/daemon.py``; CPython
on ``gc.freeze``.

**Exit.** Called by ``source.readers`` when a query stops. Spark ends the Python process of a query with SIGTERM and does not
wait for it. A client of a broker that is gone can block its thread, and Python waits for threads at exit. Such a process
would remain forever. Source: Spark's ``python_streaming_source_runner``.
"""

from __future__ import annotations

import gc
import itertools
import logging
import os
import signal
import socket
import sys
import threading
from contextlib import suppress

from streamgroups_spark.internals.private_spark import PROCESSES, SOURCE_RUNNER, main_module

_OPEN_FILES = "/proc/self/fd"
_tasks = itertools.count(1)
logger = logging.getLogger(__name__)


def freeze_before_imports() -> None:
    """Freezes the objects of all imports so far if Spark has started this process. Called before the imports of the source.

    The garbage collector would traverse them during the imports that follow, which takes a tenth of their time.
    """
    if main_module().startswith(PROCESSES):
        gc.freeze()


def prepare_python_worker() -> None:
    """Acknowledges received data and, once per process, freezes the objects that outlive its tasks.

    The freeze happens in the second task, after a collection of the garbage of the imports.
    """
    _acknowledge_at_once()
    if next(_tasks) == 2:
        gc.freeze()


def _acknowledge_at_once() -> None:
    """Sends the pending acknowledgements of the TCP connections of this process. Never fails. Linux only."""
    quickack = getattr(socket, "TCP_QUICKACK", None)
    if quickack is None:
        return
    with suppress(OSError):
        for name in os.listdir(_OPEN_FILES):
            with suppress(OSError):
                if os.readlink(f"{_OPEN_FILES}/{name}").startswith("socket:"):
                    _acknowledge(int(name), quickack)


def _acknowledge(fd: int, quickack: int) -> None:
    with socket.socket(fileno=os.dup(fd)) as connection:
        if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM:
            connection.setsockopt(socket.IPPROTO_TCP, quickack, 1)


def is_runner() -> bool:
    """Whether this process serves one query only."""
    return main_module() == SOURCE_RUNNER


def exit_on_sigterm() -> None:
    """Makes the stream runner leave the group when its query ends.

    Spark ends the process of the runner with SIGTERM. By default it would exit without the last commit, and the group
    would wait for the session timeout. ``SystemExit`` passes through the runner, which then calls ``stop``.
    """

    def leave(number: int, _frame: object) -> None:
        # Spark sends the signal twice. The second one must not interrupt the leave, which has a timeout.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(128 + number)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, leave)


def ignore_termination() -> None:
    """Makes this process ignore the signals that end it. Call :func:`exit_within` too.

    The runner of a query that has failed leaves the group by itself. Spark sends SIGTERM meanwhile, and a terminal sends SIGINT
    to all its processes. Their exceptions would interrupt the last commit and the leave.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)


def exit_within(timeout_s: float) -> None:
    """Ends this process after a time if it still runs then, with exit code 1.

    Args:
        timeout_s: the time in seconds.
    """

    def end() -> None:
        logger.error("The process of a stopped query did not exit within %.0f s. It exits now.", timeout_s)
        os._exit(1)

    timer = threading.Timer(timeout_s, end)
    timer.name, timer.daemon = "streamgroups-exit", True
    timer.start()
