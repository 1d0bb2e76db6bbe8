"""Searches the states of the positions of one batch.

Created by ``streamgroups_spark.source.stage_states`` on the driver. After a reset no position names its state, and each search
lists the files and reads them, newest first. The searches of a batch share what they have read. Source: SEMANTICS S10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streamgroups_operators.store import StoredStates


class BatchSearch:
    """The stored states of one batch at a time. Used by one thread.

    Args:
        new: returns the states, without any file read.
    """

    def __init__(self, new: Callable[[], StoredStates]) -> None:
        self._new = new
        #: The states to search.
        self.stored = new()

    @contextmanager
    def searching(self) -> Iterator[None]:
        """The files are listed at the first search in the block, and what was read is forgotten at its end."""
        self.stored = self._new()
        try:
            yield
        finally:
            self.stored = self._new()
