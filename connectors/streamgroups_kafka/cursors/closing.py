"""The close of ``GroupCursors``, and the error of requests that are sent meanwhile or later.

Used by ``group_cursors``, ``instances``, ``iteration`` and ``reader``. A request checks first whether its cursors are open. If
another thread closes them after this check, the threads of the clients accept no more jobs, and the request raises the same error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from streamgroups.errors import StreamGroupsError
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed, MetadataStore

_T = TypeVar("_T")


def closed_error() -> StreamGroupsError:
    """The error of a request after the end of its ``GroupCursors``."""
    return StreamGroupsError("These GroupCursors are closed.", remedy="Create new ones.")


class Closed:
    """Whether ``GroupCursors`` are closed.

    It has no lock. The code that a signal handler or a finalizer interrupts can hold the lock of a :class:`threading.Event`.
    """

    __slots__ = ("_is_set",)

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        """Returns whether they are closed."""
        return self._is_set

    def set(self) -> None:
        """Closes them."""
        self._is_set = True


class ClosableMetadataStore:
    """A :class:`streamgroups.ports.MetadataStore` that can be closed while other threads send requests.

    Args:
        store: sends the requests. It raises a ``RuntimeError`` after its end.
        closed: set before the store is closed.
    """

    def __init__(self, store: MetadataStore, closed: Closed) -> None:
        self._store, self._closed = store, closed

    def read(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        """See :meth:`streamgroups.ports.MetadataStore.read`.

        Raises:
            StreamGroupsError: also if the cursors are closed.
        """
        return self._send(lambda: self._store.read(group_id, partitions))

    def write(self, group_id: str, entries: Mapping[TopicPartition, Committed]) -> None:
        """See :meth:`streamgroups.ports.MetadataStore.write`.

        Raises:
            StreamGroupsError: also if the cursors are closed.
        """
        self._send(lambda: self._store.write(group_id, entries))

    def close(self) -> None:
        """See :meth:`streamgroups.ports.MetadataStore.close`."""
        self._store.close()

    def _send(self, request: Callable[[], _T]) -> _T:
        try:
            return request()
        except RuntimeError:
            if self._closed.is_set():
                raise closed_error() from None
            raise
