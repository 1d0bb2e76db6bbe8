"""Searches the states of the positions of one batch.

Created by ``streamgroups_spark.source.stage_states`` on the driver. After a reset no position names its state, and each search
lists the files and reads them, newest first. The searches of a batch share what they have read. Source: SEMANTICS S10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streamgroups.query.state_search import StateSearch
from streamgroups.state.joined_lookup import Choices
from streamgroups.state.origins import StateOrigin
from streamgroups.state.state_lookup import Choice, Position
from streamgroups_operators.store import StoredStates


class BatchSearch(StateSearch):
    """The stored states of one batch at a time. Used by one thread.

    Args:
        new: returns the states, without any file read.
        keeps_on_reset: whether ids of records after a position stay seen (:meth:`StoredStates.find_kept`).
    """

    def __init__(self, new: Callable[[], StoredStates], *, keeps_on_reset: bool = False) -> None:
        self._new, self._keeps_on_reset = new, keeps_on_reset
        self._stored = new()

    @contextmanager
    def searching(self) -> Iterator[None]:
        """The files are listed at the first search in the block, and what was read is forgotten at its end."""
        self._stored = self._new()
        try:
            yield
        finally:
            self._stored = self._new()

    def find(self, position: Position) -> Choice:
        """See :meth:`StateSearch.find`. Raises the errors of :meth:`StoredStates.find`."""
        return self._stored.find_kept(position) if self._keeps_on_reset else self._stored.find(position)

    def find_both(self, left: Position, right: Position) -> Choices:
        """See :meth:`StateSearch.find_both`. Raises the errors of :meth:`StoredStates.find_both`."""
        return self._stored.find_both(left, right)

    def is_written(self, position: Position, origin: StateOrigin) -> bool:
        """See :meth:`StateSearch.is_written`. Raises the errors of :meth:`StoredStates.is_written`."""
        return self._stored.is_written(position, origin)
