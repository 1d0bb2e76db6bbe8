"""A clock that a test sets, for windows by processing time and for idle timeouts.

Used by tests that repeat a table with a column of the clock. Without it, a test would wait in real time, and a busy
machine would change its result. A query reads the clock in another process, so the time is in a file. Source: SEMANTICS
W3, W5, W6.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

import streamgroups as sg

_POLL_S = 0.005
_TIMEOUT_S = 120.0


class ControlledClock:
    """A clock that does not advance until a test moves it.

    Args:
        path: the file with the time. Its directory exists.
        now_ms: the first time, in milliseconds since the epoch.

    >>> with tempfile.TemporaryDirectory() as directory:
    ...     clock = ControlledClock(Path(directory) / "clock", 5)
    ...     with clock.moved_to(7):
    ...         pass
    ...     clock()
    7
    """

    def __init__(self, path: Path, now_ms: int) -> None:
        self._path = path
        self._write(str(now_ms))

    @contextmanager
    def moved_to(self, now_ms: int) -> Iterator[None]:
        """Moves the clock at the end of the block. A query that reads it in the block waits until then.

        Therefore a query receives the records that the block writes at this time: it reads them neither before, nor does
        a timeout expire at this time without them.

        Args:
            now_ms: the new time, in milliseconds since the epoch.
        """
        self._write("")
        try:
            yield
        finally:
            self._write(str(now_ms))

    def __call__(self) -> int:
        """Returns the time.

        Raises:
            TimeoutError: if a block of :meth:`moved_to` does not end.
        """
        deadline_s = time.monotonic() + _TIMEOUT_S
        while not (text := self._path.read_text(encoding="utf-8")):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"the clock was not moved within {_TIMEOUT_S:.0f} s")
            time.sleep(_POLL_S)
        return int(text)

    def _write(self, text: str) -> None:
        written = self._path.with_suffix(".new")
        written.write_text(text, encoding="utf-8")
        # A reader gets the whole number.
        os.replace(written, self._path)


@contextmanager
def controlled_clock(spark: SparkSession, now_ms: int) -> Iterator[ControlledClock]:
    """Gives the queries that start and stop in a ``with`` block a clock that the test moves.

    Args:
        spark: the session. It is registered again, with the default parallelism.
        now_ms: the first time, in milliseconds since the epoch.

    Example::

        with controlled_clock(spark, now_ms=1_750_000_000_000) as clock:
            query = rows.writeStream.trigger(processingTime="100 milliseconds").start()
            with clock.moved_to(1_750_000_060_000):
                produce(bootstrap, topic, 10, partitions=1)
            query.processAllAvailable()
            query.stop()
    """
    with tempfile.TemporaryDirectory() as directory:
        clock = ControlledClock(Path(directory) / "clock", now_ms)
        sg.register(spark, clock=clock)
        try:
            yield clock
        finally:
            sg.register(spark)
