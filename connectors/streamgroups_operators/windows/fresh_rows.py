"""The rows of a batch that are not in the state yet, within limits of rows and bytes.

Used by ``panes`` and ``shared_partials``. One merge of many records is cheaper than a merge of each of Spark's Arrow batches, and the
limits bound their memory. Source: SEMANTICS W4.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

#: The number of rows from which the rows of a batch are merged before its end.
_MERGE_ROWS = 100_000
#: The same for their bytes, because keys and texts can be large.
_MERGE_BYTES = 1 << 28


class FreshRows:
    """The rows since the begin of a batch."""

    def __init__(self) -> None:
        #: The rows, in the order of their arrival.
        self.tables: list[pa.Table] = []
        self._rows, self._max_rows = 0, _MERGE_ROWS
        self._bytes, self._max_bytes = 0, _MERGE_BYTES

    def add(self, rows: pa.Table, merged: Callable[[pa.Table], pa.Table]) -> None:
        """Adds rows, and merges all if they reach a limit.

        Args:
            rows: the rows.
            merged: adds up the rows of equal keys. Not an attribute: a cycle with its owner would keep the rows in memory.
        """
        self.tables.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= self._max_rows or self._bytes >= self._max_bytes:
            all_rows = merged(pa.concat_tables(self.tables))
            self.tables, self._rows, self._bytes = [all_rows], all_rows.num_rows, all_rows.nbytes
            # With many keys a merge removes few rows, so the next one waits for as many new ones.
            self._max_rows = max(_MERGE_ROWS, 2 * self._rows)
            self._max_bytes = max(_MERGE_BYTES, 2 * self._bytes)
