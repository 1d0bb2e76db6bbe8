"""Reads the logs of a query's checkpoint: the batch that started last, its watermark, and whether it is finished.

Used by ``source.last_batch`` when a query stops, by sinks (``sinks.batch_info``), and by ``source.running_query`` for
the column ``watermark``. For a Python source, only the request for the next batch indicates that a batch is finished.
After the last batch Spark stops it without a call. But Spark writes ``offsets/<batch id>`` before a batch runs, and
``commits/<batch id>`` after its output is written.

Source: Spark's ``OffsetSeqLog`` and ``CommitLog``, whose files :mod:`streamgroups.checkpoints.spark_logs` parses. For late
rows Spark uses the watermark of ``WatermarkPropagator.getInputWatermarkForLateEvents``.

The checkpoint is never written. A file that cannot be read or that belongs to another query proves nothing: neither that a batch is
finished, nor that it is not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from pyarrow.fs import FileSelector, FileSystem, FileType

from streamgroups.checkpoints.spark_logs import ends_in, parse_offsets, parse_query_id
from streamgroups.connections.redaction import redacted
from streamgroups.errors import StreamGroupsError
from streamgroups.threads import in_threads
from streamgroups_operators.locations import is_local, open_location

logger = logging.getLogger(__name__)


class CommitLog:
    """The checkpoint of one query.

    Args:
        location: a path, or a URI of a file system that Arrow can read.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        #: A client of an object store has connections, which the next read uses again.
        self._opened: tuple[FileSystem, str] | None = None
        #: The number and the watermark of the last batch of :meth:`late_watermark_ms`. Its entry never changes.
        self._last: tuple[int, int] | None = None

    def has_finished(self, offset: Mapping[str, Any]) -> bool:
        """Returns whether the last finished batch has this end offset.

        If that is unknown, logs a warning and returns ``False``.
        """
        try:
            newest = self._newest("commits")
            return newest is not None and offset in self.ends(newest).values()
        except (OSError, ValueError, StreamGroupsError) as e:
            logger.warning(
                "The checkpoint '%s' cannot be read, so the last batch of a stopped query is not committed "
                "and will be read again: %s",
                redacted(self._location, ()),
                redacted(str(e), ()),
            )
            return False

    def newest(self) -> int | None:
        """Returns the id of the batch that started last. ``None`` if none has started.

        Raises:
            OSError: if the checkpoint cannot be read.
        """
        return self._newest("offsets")

    def offsets(self, batch_id: int) -> str:
        """Returns the entry of a batch in the offset log, which never changes.

        Raises:
            OSError: if the checkpoint cannot be read.
            ValueError: if the file is no text.
        """
        files, path = self._open()
        with files.open_input_stream(f"{path}/offsets/{batch_id}") as log:
            return str(log.read().decode())

    def offsets_with_previous(self, batch_id: int) -> tuple[str, str | None]:
        """Returns the entries of a batch and of the batch before it. ``None`` without the latter, or if it was deleted.

        On an object store it reads both at once, because a read is two requests.

        Raises:
            OSError: if the checkpoint cannot be read.
            ValueError: if a file is no text.
        """
        if is_local(self._location):
            return self.offsets(batch_id), self._offsets_or_none(batch_id - 1)
        requests: list[Callable[[], str | None]] = [
            partial(self.offsets, batch_id),
            partial(self._offsets_or_none, batch_id - 1),
        ]
        entry, previous = in_threads(lambda request: request(), requests)
        assert entry is not None, "it was read"
        return entry, previous

    def _offsets_or_none(self, batch_id: int) -> str | None:
        try:
            return None if batch_id < 0 else self.offsets(batch_id)
        except FileNotFoundError:
            return None

    def ends(self, batch_id: int) -> dict[str, Any]:
        """Returns the end offset of each source in a batch, as Spark has logged it:
        see :func:`streamgroups.checkpoints.spark_logs.ends_in`.

        Raises:
            OSError: if the checkpoint cannot be read.
            ValueError: if the file has another format.
            OffsetFormat: if a newer version of Spark has written it.
        """
        return ends_in(self.offsets(batch_id))

    def late_watermark_ms(self, end: Mapping[str, Any]) -> int:
        """Returns the watermark by which Spark drops late rows of the batch that runs, in milliseconds since the epoch.

        That is the watermark of the batch before it, and 0 for the first batch. Spark closes windows by the watermark
        of the batch itself, which can be later. Both are in the log before the batch runs, also before it runs again.
        After the first call it reads the list of entries, and the entry of the batch.

        Args:
            end: the end offset of one of its sources.

        Raises:
            OSError: if the checkpoint cannot be read.
            ValueError: if a file has another format, or the newest batch in the log has other offsets.
            OffsetFormat: if a newer version of Spark has written it.
        """
        newest = self.newest()
        entry = None if newest is None else parse_offsets(self.offsets(newest))
        if newest is None or entry is None or end not in entry.ends.values():
            raise ValueError(f"its newest batch is {newest}, which has other offsets")
        found = 0 if newest == 0 else self._watermark_ms(newest - 1)
        self._last = newest, entry.watermark_ms
        return found

    def _watermark_ms(self, batch_id: int) -> int:
        if self._last is not None and self._last[0] == batch_id:
            return self._last[1]
        return parse_offsets(self.offsets(batch_id)).watermark_ms

    def query_id(self) -> str | None:
        """Returns the query id, which Spark creates with the checkpoint and keeps. ``None`` for a new checkpoint.

        Raises:
            OSError: if the checkpoint cannot be read.
            ValueError: if the file has another format.
        """
        files, path = self._open()
        try:
            with files.open_input_stream(f"{path}/metadata") as metadata:
                return parse_query_id(metadata.read().decode())
        except FileNotFoundError:
            return None

    def has_state(self) -> bool:
        """Returns whether the query is stateful.

        Raises:
            OSError: if the checkpoint cannot be read.
        """
        files, path = self._open()
        return bool(files.get_file_info(f"{path}/state").type == FileType.Directory)

    def is_done(self, batch_id: int) -> bool:
        """Returns whether the output of a batch is written.

        Raises:
            OSError: if the checkpoint cannot be read.
        """
        files, path = self._open()
        return bool(files.get_file_info(f"{path}/commits/{batch_id}").type == FileType.File)

    def _newest(self, log: str) -> int | None:
        files, path = self._open()
        ids = _batch_ids(info.base_name for info in files.get_file_info(FileSelector(f"{path}/{log}")))
        return ids[-1] if ids else None

    def _open(self) -> tuple[FileSystem, str]:
        if self._opened is None:
            self._opened = open_location(self._location)
        return self._opened


def _batch_ids(names: Iterable[str]) -> list[int]:
    return sorted(int(name) for name in names if name.isdigit())
