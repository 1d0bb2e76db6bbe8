"""Merges the segments of a part of a state, within a limit of bytes.

Called by ``function_operator``, ``windows`` and ``joins``. The newest segments of a part are merged, so that it has few of them
(``operator.first_to_merge``). Segments that have more bytes than the limit together stay apart: a merge is in the memory of a
task. Then rows that newer segments replace would stay for good. So an older segment is written again without them, when
they are more than half of its rows or bytes. Source: SEMANTICS S10; log-structured merge trees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from streamgroups.state.manifest import Segment
from streamgroups_operators.keys import is_newest, key_numbers, newest_rows
from streamgroups_operators.large_tables import row_bytes
from streamgroups_operators.operator import Part, PartReader, first_to_merge

#: A merge of several segments has at most this number of bytes.
MAX_MERGE_BYTES = 1 << 30


def first_within_limit(part: Part) -> int:
    """Returns the number of the first segment of the newest ones that one segment should replace, within the limit.

    Args:
        part: at least one segment.

    >>> tables = [pa.table({"n": range(rows)}) for rows in (11, 3, 2)]
    >>> first_within_limit(tables)
    1
    """
    first, n_bytes = len(part) - 1, _n_bytes(part[-1])
    required = first_to_merge(part)
    while first > required and n_bytes + _n_bytes(part[first - 1]) <= MAX_MERGE_BYTES:
        first -= 1
        n_bytes += _n_bytes(part[first])
    return first


def _n_bytes(segment: Segment | pa.Table) -> int:
    return segment.row_bytes if isinstance(segment, Segment) else int(segment.nbytes)


def merged_newest(
    read: PartReader, part: Part, by: Sequence[str], is_live: Callable[[pa.Table], pa.ChunkedArray]
) -> Part:
    """Merges the newest segments of a part in which the newest row of a key is valid.

    Args:
        read: reads the rows of the part.
        part: at least one segment.
        by: the key columns.
        is_live: returns which rows have a value. The others remove their key.
    """
    first = first_within_limit(part)
    is_limited = first > first_to_merge(part)
    if not (is_limited and isinstance(part[-1], pa.Table)) and first == len(part) - 1:
        return part
    rows = newest_rows(read.whole(part[first:]), by)
    if is_limited:
        return _without_replaced(read, [*part[:first], rows], by, is_live)
    # An older segment can have a row of a removed key, so only the oldest one leaves it out.
    return [*part[:first], rows if first else rows.filter(is_live(rows))]


def _without_replaced(
    read: PartReader, part: Part, by: Sequence[str], is_live: Callable[[pa.Table], pa.ChunkedArray]
) -> Part:
    """A part without the segments most of whose rows are replaced. Only their keys are in memory at once."""
    keys, live, sizes = [], [], []
    for rows in read.each(part):
        keys.append(rows.select(list(by)))
        live.append(is_live(rows).to_numpy())
        sizes.append(row_bytes(rows))
    numbers = np.concatenate(key_numbers(by, *keys))
    # A row without a value is necessary while an older segment has a row of its key.
    is_needed = is_newest(numbers) & (np.concatenate(live) | ~is_newest(numbers[::-1])[::-1])
    found: list[Segment | pa.Table] = []
    ends = np.cumsum([it.num_rows for it in keys])
    for segment, needed, n_bytes in zip(part, np.split(is_needed, ends[:-1]), sizes, strict=True):
        if needed.sum() * 2 >= len(needed) and n_bytes[needed].sum() * 2 >= n_bytes.sum():
            found.append(segment)
        elif needed.any():
            found.append(read.whole([segment]).filter(pa.array(needed)))
    return found
