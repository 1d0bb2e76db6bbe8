"""The records of pins: tasks write them before a side effect, and read them for it.

Called by ``streamgroups_spark.stable_input.tasks`` in Python workers. A task writes one file with a segment for each source
partition. The idempotency keys of a range are numbered when it is read: then all rows of a record are together, whatever
tasks have written them. Source: SEMANTICS X7; :mod:`streamgroups.stable_input`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.errors import InvalidOption, PinDamaged
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.stable_input import idempotency
from streamgroups.stable_input.pins import Pin, RecordSegment
from streamgroups.state.file_names import StateFileName
from streamgroups.state.state_files import StateFiles
from streamgroups_operators.file_format import pack, segment_of, unpack
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
    rows = in_utc(pa.Table.from_batches(given))
    _check_origin(rows, batch)
    parts = [(tp, part) for tp in sorted({r.topic_partition for r in new}) if (part := _of(rows, tp, new)).num_rows]
    if not parts:
        return []
    # A batch of several chunks would become several segments.
    segments = [part.combine_chunks().to_batches()[0] for _, part in parts]
    files.write(file, pack("{}", segments[0].schema, segments))
    return [WrittenSegment(tp, RecordSegment(file, number, part.num_rows)) for number, (tp, part) in enumerate(parts)]


def read_records(files: StateFiles, pin: Pin, group_id: str) -> pa.Table | None:
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
    rows = rows.take(pc.sort_indices(rows, [("offset", "ascending")]))
    return rows.append_column(idempotency.COLUMN, _keys(rows["offset"].to_pylist(), pin, group_id))


def _keys(offsets: Sequence[int], pin: Pin, group_id: str) -> pa.Array:
    tp, topic_id = pin.range.topic_partition, pin.identity.topic_id
    keys, last, n = [], -1, 0
    for offset in offsets:
        last, n = offset, n + 1 if offset == last else 0
        keys.append(idempotency.idempotency_key(group_id, tp.topic, tp.partition, offset, n, topic_id=topic_id))
    return pa.array(keys, pa.string())


def _segment(files: StateFiles, it: RecordSegment, tp: TopicPartition, group_id: str) -> pa.Table:
    try:
        _, reader = unpack(files.read(it.file))
        batch = segment_of(reader, it.number, it.rows)
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


def _of(rows: pa.Table, tp: TopicPartition, ranges: Collection[OffsetRange]) -> pa.Table:
    mine = rows.filter(_is_of(rows, tp))
    masks = [_between(mine, it) for it in ranges if it.topic_partition == tp]
    return mine.filter(_any(masks, mine.num_rows))


def _check_origin(rows: pa.Table, ranges: Collection[OffsetRange]) -> None:
    known = _any([pc.and_(_is_of(rows, it.topic_partition), _between(rows, it)) for it in ranges], rows.num_rows)
    others = rows.filter(pc.invert(known))
    if others.num_rows:
        first = {name: others[name][0].as_py() for name in SOURCE}
        raise InvalidOption(
            f"{others.num_rows} of {rows.num_rows} rows of the batch belong to no record that it has read. The first one has "
            f"topic {first['topic']}, partition {first['partition']} and offset {first['offset']}.",
            remedy="The columns 'topic', 'partition' and 'offset' must be those of the source: do not replace them. Rows of "
            "an outer join without a record of the stream cannot be pinned.",
        )


def _is_of(rows: pa.Table, tp: TopicPartition) -> pa.ChunkedArray:
    of_topic = pc.equal(pc.cast(rows["topic"], pa.string()), tp.topic)
    return _sure(pc.and_kleene(of_topic, pc.equal(rows["partition"], tp.partition)))


def _between(rows: pa.Table, it: OffsetRange) -> pa.ChunkedArray:
    offsets = rows["offset"]
    return _sure(pc.and_kleene(pc.greater_equal(offsets, it.next_offset), pc.less(offsets, it.end_offset)))


def _any(masks: Iterable[pa.ChunkedArray], length: int) -> pa.ChunkedArray:
    found = pa.chunked_array([pa.array([False] * length, pa.bool_())])
    for mask in masks:
        found = pc.or_(found, mask)
    return found


def _sure(mask: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(mask, False)
