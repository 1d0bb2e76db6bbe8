"""The records of pins: tasks write them before a side effect, and read them for it.

Called by ``streamgroups_spark.stable_input.tasks`` in Python workers. A task writes one file with a segment for each source
partition, or several segments if its rows are large. The idempotency keys of a range are numbered when it is read: then all
rows of a record are together, whatever tasks have written them. Source: SEMANTICS X7; :mod:`streamgroups.stable_input`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.errors import InvalidOption, PinDamaged
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.stable_input import idempotency
from streamgroups.stable_input.pins import Pin, RecordSegment
from streamgroups.state.file_names import StateFileName
from streamgroups.state.state_files import StateFiles
from streamgroups_operators.file_format import pack, segment_of, unpack
from streamgroups_operators.large_tables import combined, taken
from streamgroups_operators.operator import Numbers
from streamgroups_operators.plain_values import in_utc

#: The columns by which a row belongs to a record of the source.
SOURCE = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class WrittenSegment:
    """A segment that a task has written.

    Args:
        topic_partition: the partition of its records.
        segment: the segment.
    """

    topic_partition: TopicPartition
    segment: RecordSegment


def write_records(
    files: StateFiles,
    file: StateFileName,
    batches: Iterable[pa.RecordBatch],
    new: Collection[OffsetRange],
    batch: Collection[OffsetRange],
) -> list[WrittenSegment]:
    """Writes the rows of a task that are in new ranges.

    Args:
        files: the files of records of the effect.
        file: the name of the file.
        batches: the rows.
        new: the ranges to write. All other rows are pinned already.
        batch: all ranges that the batch reads.

    Returns:
        The segments. Empty if the task has no rows to write; then no file is written.

    Raises:
        InvalidOption: if a row belongs to no record of the batch.
    """
    given = [it for it in batches if it.num_rows]
    if not given:
        return []
    known, required = _by_partition(batch), _by_partition(new)
    parts: defaultdict[TopicPartition, list[pa.RecordBatch]] = defaultdict(list)
    others: list[pa.RecordBatch] = []
    for rows in in_utc(pa.Table.from_batches(given)).to_batches():
        is_known = np.zeros(rows.num_rows, bool)
        for tp, numbers, offsets in _places(rows):
            is_known[numbers] = _within(offsets, known.get(tp, ()))
            chosen = numbers[_within(offsets, required.get(tp, ()))]
            if len(chosen):
                parts[tp].append(rows.take(pa.array(chosen)))
        others.append(rows.filter(pa.array(~is_known)))
    _check_origin(others, sum(it.num_rows for it in given))
    if not parts:
        return []
    segments = [(tp, it) for tp, part in sorted(parts.items()) for it in combined(pa.Table.from_batches(part))]
    files.write(file, pack("{}", segments[0][1].schema, [it for _, it in segments]))
    return [WrittenSegment(tp, RecordSegment(file, number, it.num_rows)) for number, (tp, it) in enumerate(segments)]


class RecordFiles:
    """The files of records that a task reads. A file has segments of many pins, so it is kept up to a limit.

    Args:
        files: the files of records of the effect.
        most_bytes: the limit of the bytes that are kept.
    """

    def __init__(self, files: StateFiles, most_bytes: int = 64 << 20) -> None:
        self._files, self._left_bytes = files, most_bytes
        self._kept: dict[StateFileName, pa.ipc.RecordBatchFileReader] = {}

    @property
    def location(self) -> str:
        """The location of the files, for errors."""
        return self._files.location

    def opened(self, file: StateFileName) -> pa.ipc.RecordBatchFileReader:
        """The segments of a file.

        Raises:
            FileNotFoundError: if it does not exist.
            ValueError: if it is damaged.
        """
        if file in self._kept:
            return self._kept[file]
        content = self._files.read(file)
        _, reader = unpack(content)
        if len(content) <= self._left_bytes:
            self._kept[file] = reader
            self._left_bytes -= len(content)
        return reader


def read_records(files: RecordFiles, pin: Pin, group_id: str) -> pa.Table | None:
    """The rows of a pin, by offset, with their idempotency keys. ``None`` if it has no rows.

    Args:
        files: the files of records of the effect.
        pin: the pin. Its segments can also have rows of other offsets.
        group_id: the group of the query.

    Raises:
        PinDamaged: if a file is damaged or does not exist.
    """
    tables = [_segment(files, it, pin.range.topic_partition, group_id) for it in sorted(pin.segments)]
    tables = [it.filter(_between(it, pin.range)) for it in tables]
    if not any(it.num_rows for it in tables):
        return None
    rows = pa.concat_tables(tables)
    rows = taken(rows, pc.sort_indices(rows, [("offset", "ascending")]).to_numpy())
    return rows.append_column(idempotency.COLUMN, _keys(rows["offset"].to_pylist(), pin, group_id))


def _keys(offsets: Sequence[int], pin: Pin, group_id: str) -> pa.Array:
    tp, topic_id = pin.range.topic_partition, pin.identity.topic_id
    keys, last, n = [], -1, 0
    for offset in offsets:
        last, n = offset, n + 1 if offset == last else 0
        keys.append(idempotency.idempotency_key(group_id, tp.topic, tp.partition, offset, n, topic_id=topic_id))
    return pa.array(keys, pa.string())


def _segment(files: RecordFiles, it: RecordSegment, tp: TopicPartition, group_id: str) -> pa.Table:
    try:
        batch = segment_of(files.opened(it.file), it.number, it.rows)
    except (FileNotFoundError, ValueError) as e:
        reason = "does not exist" if isinstance(e, FileNotFoundError) else f"is damaged: {e}"
        raise PinDamaged(
            f"{tp}: the file '{it.file}' of pinned records in '{files.location}' {reason}.",
            remedy="Check that all queries of the group have the same 'location', and restore the file from a backup. Or "
            "delete the pin files that name it: the records are then computed again, and an effect that has run already "
            "can see other records.",
            group=group_id,
            topic=tp.topic,
            partition=tp.partition,
        ) from e
    return pa.Table.from_batches([batch])


def _by_partition(ranges: Iterable[OffsetRange]) -> dict[TopicPartition, list[OffsetRange]]:
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for it in ranges:
        found.setdefault(it.topic_partition, []).append(it)
    return found


def _places(rows: pa.RecordBatch) -> Iterator[tuple[TopicPartition, Numbers, Numbers]]:
    """Yields each partition, the numbers of its rows, and their offsets. Rows without a place are left out."""
    has_place = np.ones(rows.num_rows, bool)
    for name in SOURCE:
        has_place &= rows.column(name).is_valid().to_numpy(zero_copy_only=False)
    numbers = np.flatnonzero(has_place)
    if not len(numbers):
        return
    topics = rows.column("topic").cast(pa.string()).dictionary_encode()
    names = topics.dictionary.to_pylist()
    of_topics = topics.indices.fill_null(0).to_numpy()[numbers]
    partitions, offsets = (rows.column(name).fill_null(0).to_numpy()[numbers] for name in ("partition", "offset"))
    order = np.lexsort((partitions, of_topics))
    of_topics, partitions = of_topics[order], partitions[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = (of_topics[1:] != of_topics[:-1]) | (partitions[1:] != partitions[:-1])
    for rows_of_partition in np.split(np.arange(len(order)), np.flatnonzero(is_first)[1:]):
        at, chosen = rows_of_partition[0], order[rows_of_partition]
        yield TopicPartition(names[of_topics[at]], int(partitions[at])), numbers[chosen], offsets[chosen]


def _within(offsets: Numbers, ranges: Iterable[OffsetRange]) -> Numbers:
    found = np.zeros(len(offsets), bool)
    for it in ranges:
        found |= (offsets >= it.next_offset) & (offsets < it.end_offset)
    return found


def _check_origin(others: Sequence[pa.RecordBatch], n_rows: int) -> None:
    """Rejects rows that belong to no record of the batch."""
    n_others = sum(it.num_rows for it in others)
    if n_others:
        rows = next(it for it in others if it.num_rows)
        first = {name: rows.column(name)[0].as_py() for name in SOURCE}
        raise InvalidOption(
            f"{n_others} of {n_rows} rows of the batch belong to no record that it has read. The first one has "
            f"topic {first['topic']}, partition {first['partition']} and offset {first['offset']}.",
            remedy="The columns 'topic', 'partition' and 'offset' must be those of the source: do not replace them. Rows of "
            "an outer join without a record of the stream cannot be pinned.",
        )


def _between(rows: pa.Table, it: OffsetRange) -> pa.ChunkedArray:
    offsets = rows["offset"]
    is_between = pc.and_kleene(pc.greater_equal(offsets, it.next_offset), pc.less(offsets, it.end_offset))
    return pc.fill_null(is_between, False)
