"""The termination signals of a process that runs for a long time: managers, workers and the exporter.

Source: Python's "signal".
"""

from __future__ import annotations

import signal
import threading


def record_signals(requested: threading.Event) -> None:
    """Makes SIGTERM and SIGINT set an event. An exception instead would interrupt a request to a broker, or a call to the JVM.

    Args:
        requested: the event.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: requested.set())
