"""Returns freed memory to the operating system.

Called after large reads and writes in Spark's Python workers, and when kept clients are closed. The memory of a fetch is
allocated in a thread of librdkafka and freed in another one, and glibc keeps it in the pool of the first. Workers run
readers and writers by turns, so without this each process holds the largest sizes of both. Source: ``malloc_trim(3)``;
Arrow's ``MemoryPool.release_unused``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pyarrow as pa


def return_free_memory() -> None:
    """Returns memory that no object uses to the operating system. It takes a few milliseconds, and does nothing without glibc.

    >>> return_free_memory()
    """
    pa.default_memory_pool().release_unused()
    if _TRIM is not None:
        _TRIM(0)


def _malloc_trim() -> Callable[[int], int] | None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return trim


_TRIM = _malloc_trim()
