"""Ends the process of a stopped query within a time, whatever its clients wait for.

Called by ``source.readers`` when a query stops. Spark ends the Python process of a query with SIGTERM and does not
wait for it. A client of a broker that is gone can block its thread, and Python waits for threads at exit. Such a process
would remain forever. Source: Spark's ``python_streaming_source_runner``.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading

from streamgroups_spark.internals.private_spark import SOURCE_RUNNER, main_module

logger = logging.getLogger(__name__)


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
