"""Reads the checkpoint of a query with other sources than those of this library.

Called by ``streamgroups groups import --from-spark-checkpoint``. :mod:`streamgroups.checkpoints.spark_kafka` evaluates the
result. Nothing is written. It needs no PySpark. Source: :mod:`streamgroups.checkpoints.spark_logs`.
"""

from __future__ import annotations

from streamgroups.checkpoints.spark_kafka import LoggedBatch, SparkCheckpoint
from streamgroups.checkpoints.spark_logs import ends_in, parse_operator
from streamgroups.errors import InvalidOption, OffsetFormat
from streamgroups_admin.checkpoints.checkpoint_files import CheckpointFiles, require_checkpoint, translated


def read_checkpoint(location: str) -> SparkCheckpoint:
    """Reads the last batches of a checkpoint.

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


def written_at_ms(location: str) -> int | None:
    """Returns when the logs of a checkpoint were written last, in milliseconds since the epoch. ``None`` if unknown."""
    with translated(location):
        return CheckpointFiles(location).written_at_ms()


def _logged(files: CheckpointFiles, batch_id: int) -> LoggedBatch:
    return LoggedBatch(batch_id, ends_in(files.text(f"offsets/{batch_id}")))


def _operator(files: CheckpointFiles, operator: int) -> str:
    """The number of an operator, with its name if Spark has stored it: from 3.5 on, in one of two formats."""
    path = files.operator_metadata(operator)
    try:
        return str(operator) if path is None else f"{operator} ({parse_operator(files.text(path)).name})"
    except (OSError, ValueError, OffsetFormat):
        return str(operator)
