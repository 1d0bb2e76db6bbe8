"""Requests to a storage or to brokers in several threads.

Used by the connectors. A request to an object store takes tens of milliseconds, and a collection of state files makes thousands.
Many of them run in the process of the user, or in the background of a query. So a storage that does not respond must not keep
the process of an ended query alive: the threads are daemon threads, which those of ``concurrent.futures`` are not.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TypeVar

#: The usual number of threads. Python decodes in one of them, and the others wait for the storage.
N_THREADS = 8
#: How many requests of a thread are made or wait for it.
_N_AHEAD = 4

_T = TypeVar("_T")
_R = TypeVar("_R")


def in_threads(request: Callable[[_T], _R], items: Iterable[_T], n_threads: int = N_THREADS) -> Iterator[_R]:
    """Makes a request for each item. Returns the results in the order of the items.

    Args:
        request: makes the request for an item. Several threads call it.
        items: the items.
        n_threads: the maximum number of threads.

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
            if threads < n_threads:
                threads += 1
                threading.Thread(target=work, name="streamgroups-requests", daemon=True).start()
            future = Future[_R]()
            ahead.append(future)
            waiting.put((future, item))
            if len(ahead) >= _N_AHEAD * n_threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        for future in ahead:
            future.cancel()
        for _ in range(threads):
            waiting.put(None)
