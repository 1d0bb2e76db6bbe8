"""The results of windows as the input of another operator with state: their positions, their order, and their watermark.

Used by ``task_states``. An operator downstream of windows processes their results in the same task, with the state of the same
range. So each result has a position in the range: the last offset of the records that were processed when it was emitted.
Results are sorted by the end of their window, the order in which the watermark reaches them. So their order does not
depend on how batches cut the records. Source: SEMANTICS W13, S10.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups.event_time.windows import PaneKind
from streamgroups.partitions import TopicPartition
from streamgroups_operators.large_tables import taken

_OFFSET = "offset"


def positioned(tables: Sequence[pa.Table], schema: pa.Schema, place: TopicPartition, offset: int) -> list[pa.Table]:
    """Returns output rows with their position, sorted by their windows. Other rows than windows come first.

    Args:
        tables: the output rows of one partition.
        schema: the columns of the output.
        place: the partition.
        offset: the position of the rows.

    >>> rows = pa.table({"start": [5, 0], "end": [15, 10], "k0": ["a", "a"], "pane": ["on time", "on time"]})
    >>> schema = pa.schema([("k0", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
    >>> [found] = positioned([rows], schema, TopicPartition("flights", 3), 41)
    >>> found.select(["start", "partition", "offset"]).to_pylist()
    [{'start': 0, 'partition': 3, 'offset': 41}, {'start': 5, 'partition': 3, 'offset': 41}]
    """
    results = [it for it in tables if it.num_rows and not _is_dead(it)]
    others = [it for it in tables if it.num_rows and _is_dead(it)]
    if results:
        keys = [name for name in schema.names if name[0] == "k" and name[1:].isdigit()]
        order = [(name, "ascending") for name in ("end", "start", *keys)]
        rows = pa.concat_tables(results)
        others.append(taken(rows, pc.sort_indices(rows, order).to_numpy()))
    columns = {"topic": place.topic, "partition": place.partition, _OFFSET: offset}
    values = {
        name: pa.scalar(value, schema.field(name).type) for name, value in columns.items() if name in schema.names
    }
    return [_with(it, values) for it in others]


def _is_dead(rows: pa.Table) -> bool:
    return bool(rows["pane"][0].as_py() == PaneKind.DEAD_LETTER.value)


def _with(rows: pa.Table, values: dict[str, pa.Scalar]) -> pa.Table:
    for name, value in values.items():
        rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
    return rows


class Released:
    """The watermarks of the results of one partition, in one batch.

    Args:
        place: the partition.

    >>> released = Released(TopicPartition("flights", 3))
    >>> released.add(41, 300)
    >>> released.add(47, None)
    >>> released.watermarks
    ProducerWatermarks(topic_partition=TopicPartition(topic='flights', partition=3), offsets=(41,), times_ms=(300,))
    """

    def __init__(self, place: TopicPartition) -> None:
        self._place = place
        self._offsets: list[int] = []
        self._times_ms: list[int] = []

    def add(self, offset: int, released_ms: int | None) -> None:
        """Adds the watermark after the results with a position."""
        if released_ms is not None:
            self._offsets.append(offset)
            self._times_ms.append(released_ms)

    @property
    def watermarks(self) -> ProducerWatermarks | None:
        """All watermarks, as an operator receives those of a producer; ``None`` without one."""
        if not self._offsets:
            return None
        return ProducerWatermarks(self._place, tuple(self._offsets), tuple(self._times_ms))
