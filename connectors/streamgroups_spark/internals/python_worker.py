"""What our code does first in a Python worker of Spark's, so that neither the worker nor its batch waits needlessly.

Called by whatever Spark runs in its workers: readers, writers and functions, in tasks and beside the driver.

**The rest of the task is acknowledged.** The JVM sends a task in two writes, first the command (which holds a reader), then its
rows, over a TCP connection within the machine with Nagle's algorithm on. The second, short write leaves only when the first
is acknowledged, and a receiver with nothing to say delays that by 40 ms: a fifth of the trigger time of a small micro-batch.
Source: RFC 896, RFC 1122 (4.2.3.2), ``tcp(7)`` on ``TCP_QUICKACK``. With ``spark.python.unix.domain.socket.enabled=true``
there is no TCP, and nothing to do here.

**Modules are set aside.** After each task Spark's daemon collects garbage in the worker: it looks at every object there is, some
50,000 of them of the modules that reading needs. That takes tens of milliseconds of a processor, just when the micro-batch ends
on the same ones, and before the worker can have its next task. Source: ``pyspark/daemon.py``; CPython on ``gc.freeze``.
"""

from __future__ import annotations

import gc
import itertools
import os
import socket
from contextlib import suppress

_OPEN_FILES = "/proc/self/fd"
_tasks = itertools.count(1)


def prepare_python_worker() -> None:
    """Acknowledges what has come, and sets aside, once, what outlives the tasks of this process.

    That is not done in the first task: the garbage that imports have left behind is collected after it.
    """
    _acknowledge_at_once()
    if next(_tasks) == 2:
        gc.freeze()


def _acknowledge_at_once() -> None:
    """Sends the acknowledgements that are due on this process's TCP connections. Never fails; Linux only."""
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
