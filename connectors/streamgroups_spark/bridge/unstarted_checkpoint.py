"""Repairs a checkpoint whose query was killed before its first batch, because Spark would always reject it.

Called by ``sinks.exactly_once`` before a query is built, and by ``ops.supervise`` after Spark has rejected the
checkpoint. Spark writes ``offsets/0`` under a temporary name and renames it. A kill between these steps leaves the
temporary file. Every later start then fails with ``STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY`` (SQLSTATE 42K03),
because for Spark any file indicates an earlier query. Source: Spark's
``MicroBatchExecution.verifyNewCheckpointDirectory`` and ``CheckpointFileManager``.
"""

from __future__ import annotations

import logging
import re

from pyarrow.fs import FileSelector, FileType

from streamgroups_operators.locations import open_location

logger = logging.getLogger(__name__)

#: Spark's name of the error.
NOT_EMPTY = "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"
#: The temporary files of Spark's first batch, and Hadoop's checksums of them.
_TEMPORARY = re.compile(r"\.{1,2}0\.[0-9a-f-]{36}\.tmp(\.crc)?")
#: The directories that contain files only after a batch has started.
_LOGS = ("offsets", "commits", "state", "sources")


def clear_unstarted(location: str) -> tuple[str, ...]:
    """Removes the temporary files of a checkpoint without a batch. Leaves any other checkpoint unchanged.

    Args:
        location: the checkpoint: a path, or a URI of a file system that Arrow can read.

    Returns:
        The removed files.
    """
    try:
        files, path = open_location(location)
        found = [
            info.path
            for log in _LOGS
            for info in files.get_file_info(FileSelector(f"{path}/{log}", allow_not_found=True, recursive=True))
            if info.type != FileType.Directory
        ]
        if not all(_is_left_over(each.removeprefix(path)) for each in found):
            return ()
        for each in found:
            files.delete_file(each)
    except (OSError, ValueError) as e:
        logger.warning("The checkpoint '%s' could not be checked for an incomplete first batch: %s", location, e)
        return ()
    if found:
        logger.warning(
            "A query was killed before its first batch, and Spark would reject its checkpoint '%s'. Removed: %s",
            location,
            ", ".join(found),
        )
    return tuple(found)


def _is_left_over(path: str) -> bool:
    directory, _, name = path.strip("/").rpartition("/")
    return directory == "offsets" and _TEMPORARY.fullmatch(name) is not None
