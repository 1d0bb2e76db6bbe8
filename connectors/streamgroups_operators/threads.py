"""Requests to a storage in several threads.

Used by ``collection`` and ``locations``. A request to an object store takes tens of milliseconds, and a collection makes thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

#: The number of threads. Python decodes in one of them, and the others wait for the storage.
N_THREADS = 8
#: How many requests wait for a thread.
_N_WAITING = 1_000

_T = TypeVar("_T")
_R = TypeVar("_R")


def in_threads(request: Callable[[_T], _R], items: Iterable[_T]) -> Iterator[_R]:
    """Makes a request for each item. Returns the results in the order of the items.

    Args:
        request: makes the request for an item. Several threads call it.
        items: the items.

    Raises the first error of ``request``. Later requests are not made, except those that have begun, and some that wait.

    >>> list(in_threads(str, [1, 2]))
    ['1', '2']
    """
    remaining = iter(items)
    with ThreadPoolExecutor(N_THREADS) as pool:
        while part := list(islice(remaining, _N_WAITING)):
            yield from pool.map(request, part)
