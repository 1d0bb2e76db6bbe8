"""The termination signals of a process that runs for a long time: managers, workers and the exporter.

Source: Python's "signal": a handler runs between two instructions of the main thread, which can hold the lock of a
``threading.Event``.
"""

from __future__ import annotations

import signal
import time

#: The longest time until a wait notices a signal.
_PIECE_S = 0.2


class Termination:
    """Whether a termination signal has arrived. It has no lock, for which the handler of a signal could wait for good."""

    __slots__ = ("_is_requested",)

    def __init__(self) -> None:
        self._is_requested = False

    def is_requested(self) -> bool:
        """Whether SIGTERM or SIGINT has arrived."""
        return self._is_requested

    def record_signals(self) -> None:
        """Makes SIGTERM and SIGINT request the end. An exception would interrupt a request to a broker, or a call to the JVM."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._record)

    def wait_until(self, until_s: float) -> bool:
        """Waits for a signal. Returns whether one has arrived.

        Args:
            until_s: the end of the wait, in seconds of ``time.monotonic``.
        """
        while not self._is_requested and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, _PIECE_S))
        return self._is_requested

    def _record(self, _number: int, _frame: object) -> None:
        self._is_requested = True
