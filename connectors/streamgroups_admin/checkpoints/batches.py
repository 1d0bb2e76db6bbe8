"""Reads the batches of a checkpoint: one batch with its logs, sources and operators, or the positions in Kafka.

``streamgroups checkpoint show`` and ``copy``, savepoints with a checkpoint, and ``groups import --from-spark-checkpoint`` use it. The number of files read
does not depend on the number of batches.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamgroups.checkpoints.spark_batches import SourceBatch, sources_of
from streamgroups.checkpoints.spark_kafka import LoggedBatch, SparkCheckpoint
from streamgroups.checkpoints.spark_logs import (
    CommitEntry,
    OffsetEntry,
    Operator,
    ends_in,
    parse_commit,
    parse_offsets,
    parse_operator,
    parse_query_id,
)
from streamgroups.errors import InvalidOption, OffsetFormat
from streamgroups_admin.checkpoints.checkpoint_files import CheckpointFiles, require_checkpoint, translated


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch in the logs.

    Args:
        batch_id: its id.
        offsets: its file in the offset log.
        commit: its file in the commit log; ``None`` if it is planned and not committed.
        sources: the input of each source.
    """

    batch_id: int
    offsets: OffsetEntry
    commit: CommitEntry | None
    sources: list[SourceBatch]


def query_id(files: CheckpointFiles) -> str | None:
    """Returns the id of the query. ``None`` for a checkpoint without it: a copy that is not complete.

    Raises:
        ValueError: if the file contains no id.
        OSError: if it cannot be read.
    """
    try:
        return parse_query_id(files.text("metadata"))
    except FileNotFoundError:
        return None


def read_batch(files: CheckpointFiles, batch_id: int) -> Batch:
    """Reads a batch.

    Args:
        files: the checkpoint.
        batch_id: the batch.

    Raises:
        InvalidOption: if the offset log does not contain it.
        ValueError: if a file has another format.
        OffsetFormat: if a newer version of Spark, or of this library, has written it.
        OSError: if a file cannot be read.
    """
    try:
        offsets = parse_offsets(files.text(f"offsets/{batch_id}"))
    except FileNotFoundError:
        known = files.batch_ids("offsets")
        raise InvalidOption(
            f"The checkpoint '{files.location}' has no batch {batch_id}.",
            remedy=f"Its offset log has the batches {known[0]} to {known[-1]}." if known else "It contains no batch.",
        ) from None
    before = None
    if batch_id:
        try:
            before = parse_offsets(files.text(f"offsets/{batch_id - 1}"))
        except FileNotFoundError:
            before = None
    # The log of a source of files can be large, and only the first batch begins there.
    initial = files.initial_offsets() if batch_id == 0 else {}
    return Batch(
        batch_id,
        offsets,
        _commit(files, batch_id),
        sources_of(offsets, before, initial, is_first=batch_id == 0),
    )


def read_operators(files: CheckpointFiles, batch_id: int) -> dict[int, Operator | None]:
    """Reads the metadata of the stateful operators for a batch. ``None`` for an operator without it.

    Raises:
        ValueError: if a file has another format.
        OffsetFormat: if a newer version of Spark has written it.
        OSError: if a file cannot be read.
    """
    found: dict[int, Operator | None] = {}
    for operator in files.operators():
        path = files.operator_metadata(operator, batch_id)
        found[operator] = None if path is None else parse_operator(files.text(path))
    return found


def _commit(files: CheckpointFiles, batch_id: int) -> CommitEntry | None:
    try:
        return parse_commit(files.text(f"commits/{batch_id}"))
    except FileNotFoundError:
        return None


def read_checkpoint(location: str) -> SparkCheckpoint:
    """Reads the last batches of a checkpoint with any sources, for ``streamgroups groups import --from-spark-checkpoint``.

    Args:
        location: the option ``checkpointLocation`` of the query: a path, or a URI of a file system that Arrow reads.

    Raises:
        InvalidOption: if it is not a checkpoint, cannot be read, or is incomplete.
        OffsetFormat: if a newer version of Spark has written it.
    """
    with translated(location):
        files = CheckpointFiles(location)
        require_checkpoint(files)
        newest, committed = last_batches(files)
        if newest is None:
            return SparkCheckpoint(files.location)
        return SparkCheckpoint(
            files.location,
            None if committed is None else _logged(files, committed),
            None if newest == committed else _logged(files, newest),
            files.initial_offsets(),
            files.written_at_ms(),
            tuple(_operator(files, it) for it in files.operators()),
        )


def last_batches(files: CheckpointFiles) -> tuple[int | None, int | None]:
    """Returns the last planned and the last committed batch; ``None`` if no batch is.

    Raises:
        InvalidOption: if the committed one is not planned.
        OSError: if the logs cannot be read.
    """
    newest = max(files.batch_ids("offsets"), default=None)
    committed = max(files.batch_ids("commits"), default=None)
    if committed is not None and (newest is None or committed > newest):
        raise InvalidOption(
            f"The checkpoint '{files.location}' is incomplete: batch {committed} is committed, and the last one in "
            f"its offset log is {newest}.",
            remedy="Restore the directory 'offsets' of the checkpoint.",
        )
    return newest, committed


def _logged(files: CheckpointFiles, batch_id: int) -> LoggedBatch:
    return LoggedBatch(batch_id, ends_in(files.text(f"offsets/{batch_id}")))


def _operator(files: CheckpointFiles, operator: int) -> str:
    """The number of an operator, with its name if Spark has stored it: from 3.5 on, in one of two formats."""
    path = files.operator_metadata(operator)
    try:
        return str(operator) if path is None else f"{operator} ({parse_operator(files.text(path)).name})"
    except (OSError, ValueError, OffsetFormat):
        return str(operator)
