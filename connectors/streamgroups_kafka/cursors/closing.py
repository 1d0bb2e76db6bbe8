"""The error of requests that are sent while their ``GroupCursors`` are closed, or later.

Used by ``group_cursors``, ``instances`` and ``reader``. A request checks first whether its cursors are open. If another thread
closes them after this check, the threads of the clients accept no more jobs, and the request raises the same error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from streamgroups.errors import StreamGroupsError
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed, MetadataStore

_T = TypeVar("_T")


def closed_error() -> StreamGroupsError:
    """The error of a request after the end of its ``GroupCursors``."""
    return StreamGroupsError("These GroupCursors are closed.", remedy="Create new ones.")


class ClosableMetadataStore:
    """A :class:`streamgroups.ports.MetadataStore` that can be closed while other threads send requests.

    Args:
        store: sends the requests. It raises a ``RuntimeError`` after its end.
        closed: set before the store is closed.
    """

    def __init__(self, store: MetadataStore, closed: threading.Event) -> None:
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
