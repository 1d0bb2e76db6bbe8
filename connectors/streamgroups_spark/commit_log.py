"""What Spark notes of a query in its checkpoint: which batch has begun, and whether it is done.

Spark tells a Python source that a batch is done only by asking for the next one, and stops it without a word about the last.
But before a batch runs its offsets are in ``offsets/<batch id>``, and once its output is written there is a
``commits/<batch id>``. Used by ``micro_batches`` when the user has said where the checkpoint is (Spark does not pass it on).
Source: Spark's ``OffsetSeqLog`` and ``CommitLog``; a file of offsets holds a version, a line of metadata, and a line for each
source of the query. ``metadata`` holds the id that Spark gives each checkpoint.

Only ever read, and believed only when it fits: whatever cannot be read, or is not of this query, is no proof of anything.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from streamgroups.ledgers.quiet import QuietBatch

logger = logging.getLogger(__name__)

_SCHEME = re.compile(r"[A-Za-z][\w+.-]*:")


class CommitLog:
    """The checkpoint of one query.

    Args:
        location: the option ``checkpointLocation``: a path, or a URI of a file system that Arrow can read.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._told = False

    def begun(self, offset: Mapping[str, Any]) -> int | None:
        """The id of the batch that has begun and ends at ``offset``; ``None``, with one warning, if there is none."""
        why_not = f"its newest batch does not end at {json.dumps(offset)}, or is done already"
        try:
            newest = self.newest()
            if newest is not None and holds(self._offsets(newest), offset) and not self.is_done(newest):
                return newest
        except (OSError, ValueError) as e:
            why_not = str(e)
        if not self._told:
            self._told = True
            logger.warning(
                "The last batch of a query that is stopped will be left to the group: checkpointLocation '%s' is not this "
                "query's checkpoint, or cannot be read: %s",
                self._location,
                why_not,
            )
        return None

    def newest(self) -> int | None:
        """The id of the batch that began last; ``None`` if none has.

        Raises:
            OSError: if the checkpoint cannot be read.
        """
        files, path = self._open()
        ids = _batch_ids(info.base_name for info in files.get_file_info(FileSelector(f"{path}/offsets")))
        return ids[-1] if ids else None

    def ends(self, batch_id: int) -> list[Any]:
        """Where each source of the query ends in a batch, as Spark has logged it; ``None`` for one that has no offset.

        Raises:
            OSError: if the checkpoint cannot be read.
            ValueError: if it holds something else.
        """
        return [None if line == "-" else json.loads(line) for line in self._offsets(batch_id).splitlines()[2:]]

    def identity(self, batch_id: int) -> QuietBatch:
        """What tells a batch from all others, whether it reads or not.

        Raises:
            OSError: if the checkpoint cannot be read.
            ValueError: if it holds something else.
        """
        files, path = self._open()
        with files.open_input_stream(f"{path}/metadata") as metadata:
            query = json.loads(metadata.read().decode())
        return QuietBatch.logged(str(query["id"]), batch_id, self._offsets(batch_id))

    def has_state(self) -> bool:
        """Whether the query keeps state.

        Raises:
            OSError: if the checkpoint cannot be read.
        """
        files, path = self._open()
        return bool(files.get_file_info(f"{path}/state").type == FileType.Directory)

    def is_done(self, batch_id: int) -> bool:
        """Whether the output of a batch is written."""
        try:
            files, path = self._open()
            return bool(files.get_file_info(f"{path}/commits/{batch_id}").type == FileType.File)
        except (OSError, ValueError):
            return False

    def _offsets(self, batch_id: int) -> str:
        files, path = self._open()
        with files.open_input_stream(f"{path}/offsets/{batch_id}") as log:
            return str(log.read().decode())

    def _open(self) -> tuple[FileSystem, str]:
        if not _SCHEME.match(self._location):
            return LocalFileSystem(), os.path.abspath(self._location)
        files, path = FileSystem.from_uri(self._location)
        return files, str(path).rstrip("/")


def holds(log: str, offset: Mapping[str, Any]) -> bool:
    """Whether a file of Spark's offset log holds the offset, of any of the query's sources.

    >>> holds('v1\\n{"batchWatermarkMs":0}\\n{"n": 3, "ranges": {}}', {"ranges": {}, "n": 3})
    True
    >>> holds('v1\\n{"batchWatermarkMs":0}\\n-\\n{"n": 2, "ranges": {}}', {"ranges": {}, "n": 3})
    False
    """
    return any(line.startswith("{") and json.loads(line) == offset for line in log.splitlines()[2:])


def _batch_ids(names: Iterable[str]) -> list[int]:
    return sorted(int(name) for name in names if name.isdigit())
