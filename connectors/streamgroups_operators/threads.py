"""Requests to a storage in several threads.

Used by ``collection`` and ``locations``. A request to an object store takes tens of milliseconds, and a collection makes thousands.
A collection runs in the background of a query. So a storage that does not respond must not keep the process of an ended query
alive: the threads are daemon threads, which those of ``concurrent.futures`` are not.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TypeVar

#: The number of threads. Python decodes in one of them, and the others wait for the storage.
N_THREADS = 8
#: How many requests are made or wait for a thread.
_N_AHEAD = 4 * N_THREADS

_T = TypeVar("_T")
_R = TypeVar("_R")


def in_threads(request: Callable[[_T], _R], items: Iterable[_T]) -> Iterator[_R]:
    """Makes a request for each item. Returns the results in the order of the items.

    Args:
        request: makes the request for an item. Several threads call it.
        items: the items.

    Raises the first error of ``request``. Requests that have not begun are not made then.

    >>> list(in_threads(str, [1, 2]))
    ['1', '2']
    """
    waiting: queue.SimpleQueue[tuple[Future[_R], _T] | None] = queue.SimpleQueue()

    def work() -> None:
        while (found := waiting.get()) is not None:
            future, item = found
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(request(item))
                except BaseException as e:
                    future.set_exception(e)

    threads, ahead = 0, deque[Future[_R]]()
    try:
        for item in items:
            if threads < N_THREADS:
                threads += 1
                threading.Thread(target=work, name="streamgroups-storage", daemon=True).start()
            future = Future[_R]()
            ahead.append(future)
            waiting.put((future, item))
            if len(ahead) >= _N_AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        for future in ahead:
            future.cancel()
        for _ in range(threads):
            waiting.put(None)
