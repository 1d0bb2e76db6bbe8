"""The real time in a process whose wall clock a campaign has moved. Used by ``history.recorder`` and by ``dying/sitecustomize.py``.

``campaign.moved_clocks`` moves the clocks of queries. The history of a campaign has the real times, so its events are in order.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

#: The file with the offset of the wall clock in seconds, and the number of its reads.
CLOCK = "STREAMGROUPS_CLOCK"
CONTENT = struct.Struct("=qq")


def offset_s(path: str | None) -> int:
    """The offset of the wall clock in seconds; 0 without a file.

    >>> offset_s(None)
    0
    """
    return 0 if path is None else int(CONTENT.unpack(Path(path).read_bytes())[0])


def real_ms() -> int:
    """The real time, in milliseconds since the epoch."""
    path = os.environ.get(CLOCK)
    while True:
        before = offset_s(path)
        time_ms = time.time_ns() // 1_000_000
        # The clock can move between the two reads.
        if offset_s(path) == before:
            return time_ms - before * 1_000
