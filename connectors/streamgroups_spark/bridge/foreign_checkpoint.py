"""Reads the checkpoint of a query with other sources than those of this library.

Called by ``streamgroups groups import --from-spark-checkpoint``. :mod:`streamgroups.checkpoints.spark_kafka` evaluates the
result. Nothing is written. It needs no PySpark.

Source: Spark's ``OffsetSeqLog`` and ``CommitLog`` (:mod:`streamgroups_spark.bridge.checkpoint_log`); ``HDFSMetadataLog``
in ``sources/<source>/0``, where the Kafka source stores its initial offset after a zero byte and a line with the version;
``OperatorStateMetadata`` in ``state/<operator>/_metadata``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType

from streamgroups.checkpoints.spark_kafka import LoggedBatch, SparkCheckpoint
from streamgroups.errors import InvalidOption
from streamgroups.json_values import read_json
from streamgroups_operators.locations import opened, shown
from streamgroups_spark.bridge.checkpoint_log import CommitLog


def read_checkpoint(location: str) -> SparkCheckpoint:
    """Reads the last batches of a checkpoint.

    Args:
        location: the option ``checkpointLocation`` of the query: a path, or a URI of a file system that Arrow reads.

    Raises:
        InvalidOption: if it is not a checkpoint, cannot be read, or is incomplete.
        OffsetFormat: if a newer version of Spark has written it.
    """
    with _translated(location):
        files, path = opened(location, "checkpoint")
        found = {it.base_name: it for it in _listed(files, path)}
        if "offsets" not in found:
            raise _not_a_checkpoint(location, found)
        log = CommitLog(location)
        newest = log.newest()
        committed = log.newest_committed() if "commits" in found else None
        if newest is None:
            return SparkCheckpoint(shown(location))
        if committed is not None and committed > newest:
            raise InvalidOption(
                f"The checkpoint '{shown(location)}' is incomplete: batch {committed} is committed, and the last one in "
                f"its offset log is {newest}.",
                remedy="Restore the directory 'offsets' of the checkpoint.",
            )
        return SparkCheckpoint(
            shown(location),
            None if committed is None else LoggedBatch(committed, log.ends(committed)),
            None if newest == committed else LoggedBatch(newest, log.ends(newest)),
            _initial_offsets(files, path),
            _operators(files, path),
        )


def written_at_ms(location: str) -> int | None:
    """Returns when the logs of a checkpoint were written last, in milliseconds since the epoch. ``None`` if unknown."""
    with _translated(location):
        files, path = opened(location, "checkpoint")
        times = [it.mtime_ns for log in ("offsets", "commits") for it in _listed(files, f"{path}/{log}")]
    return max((ns // 1_000_000 for ns in times if ns is not None), default=None)


def _initial_offsets(files: FileSystem, path: str) -> dict[str, Any]:
    initial = {}
    for source in _directories(files, f"{path}/sources"):
        try:
            with files.open_input_stream(f"{source.path}/0") as log:
                text = log.read().decode().removeprefix("\0")
        except FileNotFoundError:
            continue
        _version, _, value = text.partition("\n")
        try:
            initial[source.base_name] = read_json(value)
        except ValueError:
            # Other sources have other formats.
            continue
    return initial


def _operators(files: FileSystem, path: str) -> tuple[str, ...]:
    numbers = [it for it in _directories(files, f"{path}/state") if it.base_name.isdigit()]
    return tuple(_operator(files, it) for it in sorted(numbers, key=lambda it: int(it.base_name)))


def _operator(files: FileSystem, directory: FileInfo) -> str:
    """The number of an operator, with its name if Spark has stored it: from 3.5 on, in one of two formats."""
    metadata = f"{directory.path}/_metadata"
    texts = [it for it in _listed(files, f"{metadata}/v2") if it.base_name.isdigit()]
    newest = max(texts, key=lambda it: int(it.base_name), default=None)
    try:
        with files.open_input_stream(f"{metadata}/metadata" if newest is None else newest.path) as stored:
            _version, _, value = stored.read().decode().partition("\n")
        return f"{directory.base_name} ({read_json(value)['operatorInfo']['operatorName']})"
    except (OSError, ValueError, KeyError, TypeError):
        return str(directory.base_name)


def _directories(files: FileSystem, path: str) -> list[FileInfo]:
    return [it for it in _listed(files, path) if it.type == FileType.Directory]


def _listed(files: FileSystem, path: str) -> list[FileInfo]:
    return list(files.get_file_info(FileSelector(path, allow_not_found=True)))


def _not_a_checkpoint(location: str, found: dict[str, FileInfo]) -> InvalidOption:
    if not found:
        return InvalidOption(
            f"The checkpoint '{shown(location)}' does not exist, or is empty.",
            remedy="Use the checkpointLocation of the old query: a path, or a URI such as s3://bucket/checkpoint.",
        )
    return InvalidOption(
        f"'{shown(location)}' is not a checkpoint: it has no directory 'offsets'.",
        remedy="Use the directory of one query, which contains 'offsets', 'commits' and 'metadata'.",
    )


@contextmanager
def _translated(location: str) -> Iterator[None]:
    try:
        yield
    except InvalidOption:
        raise
    except OSError as e:
        raise InvalidOption(
            f"The checkpoint '{shown(location)}' cannot be read ({type(e).__name__}).",
            remedy="Check the location, and the credentials in the environment of this command.",
        ) from None
    except (ValueError, KeyError, pa.ArrowException) as e:
        raise InvalidOption(
            f"The checkpoint '{shown(location)}' contains a log that is not one of Spark ({type(e).__name__}).",
            remedy="Restore the checkpoint, or set the starting options of the old query on the new one.",
        ) from None
