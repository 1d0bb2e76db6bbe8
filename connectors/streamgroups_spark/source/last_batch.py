"""The last batch of a query: whether it is finished, its duration, and its watermark, which Spark does not report to sources.

Used by ``streamgroups.query.micro_batches`` when a query stops, and for a batch in flight for longer than
``leaseTimeout``. With ``targetBatchTime`` it also requests the duration of each batch. The user's process reads both
from Spark's memory (``bridge.active_queries``), independent of the file system of the checkpoint. If that process has
ended first, the commit log of the checkpoint is read (``bridge.checkpoint_log``). The column ``watermark`` contains the watermark
of the batch that runs, which is in the checkpoint too. Source: SEMANTICS S2, W7, X8; Spark's
``MicroBatchExecution.constructNextBatch``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from streamgroups.connections.redaction import redacted
from streamgroups.errors import QueryUnknown, StateUnreachable, StreamGroupsError
from streamgroups_operators.locations import remedy_at
from streamgroups_spark.bridge.checkpoint_log import CommitLog
from streamgroups_spark.bridge.rpc import request_user
from streamgroups_spark.messages.query import DurationRequest, FinishedRequest

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """The last batch of a checkpoint.

    Args:
        end: its end offset for one source.
        is_finished: whether its output is written.
    """

    end: dict[str, Any]
    is_finished: bool


class LastBatch:
    """The last batch of one query.

    Args:
        session: the session id of the user's process.
        process_ids: process ids of the source, as in its :class:`~streamgroups_spark.messages.query.QueryRequest`.
        checkpoint: the checkpoint of the query. ``None`` if it is unknown.
    """

    def __init__(self, session: str, process_ids: frozenset[int], checkpoint: str | None) -> None:
        self._session, self._process_ids, self._checkpoint = session, process_ids, checkpoint
        self._log = None if checkpoint is None else CommitLog(checkpoint)

    def duration_ms(self, offset: Mapping[str, Any]) -> int | None:
        """Returns the duration of the finished batch with this end offset; ``None`` if it is unknown."""
        request = DurationRequest(self._process_ids, offset)
        try:
            found: int | None = request_user(self._session, request)
        except StreamGroupsError as e:
            logger.debug("The process that started the query does not report the duration of a batch: %s", e)
            return None
        return found

    def has_finished(self, offset: Mapping[str, Any]) -> bool:
        """Returns whether the batch with this end offset is finished.

        If that is unknown, logs a warning and returns ``False``.
        """
        try:
            is_finished = request_user(self._session, FinishedRequest(self._process_ids, offset))
            if is_finished is not None:
                return bool(is_finished)
        except StreamGroupsError as e:
            logger.debug("The process that started the query does not report whether its last batch is finished: %s", e)
        if self._log is not None:
            return self._log.has_finished(offset)
        logger.warning(
            "The checkpoint is not available, so the last batch of a stopped query is not committed and "
            "will be read again."
        )
        return False

    def has_begun(self) -> bool:
        """Returns whether the checkpoint contains a batch, before Spark reads it. ``False`` if its location is unknown.

        Raises:
            StateUnreachable: if the checkpoint cannot be read.
        """
        if self._log is None:
            return False
        try:
            return self._log.newest() is not None
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as e:
            location = str(self._checkpoint)
            raise StateUnreachable(
                f"It is unknown whether the query has begun, because its checkpoint '{redacted(location, ())}' cannot be read: "
                f"{redacted(str(e), ())}.",
                remedy=remedy_at(
                    location,
                    "'checkpointLocation' must be a path or URI that the driver can read. If its storage did not answer, start the "
                    "query again. Nothing was committed.",
                ),
            ) from None

    def logged(self, group_id: str) -> LoggedBatch | None:
        """Reads the last batch from the checkpoint, before Spark does. ``None`` if the checkpoint has no batch.

        Args:
            group_id: the group of the source, which its offsets contain.

        Raises:
            QueryUnknown: if the checkpoint cannot be read, its location is unknown, or several of its offsets belong to the group.
        """
        if self._log is None:
            raise _unreadable(group_id, "its location is unknown")
        log, newest = self._log, None
        try:
            with suppress(FileNotFoundError):
                newest = log.newest()
            if newest is None:
                return None
            found = [it for it in log.ends(newest).values() if _is_of(it, group_id)]
            is_finished = log.is_done(newest)
        except (OSError, ValueError, StreamGroupsError) as e:
            raise _unreadable(group_id, redacted(str(e), ())) from None
        if len(found) > 1:
            raise _unreadable(group_id, "several of its sources read for the group")
        return LoggedBatch(found[0], is_finished) if found else None

    def late_watermark_ms(self, group_id: str, end: Mapping[str, Any]) -> int:
        """Returns the watermark by which Spark drops late rows of the batch that runs, in milliseconds since the epoch.

        It is 0 before the first watermark. Spark passes none to a source. But it writes the watermark of each batch to
        ``offsets/<batch id>`` before it plans its tasks, with every trigger, and a batch that runs again has the same log.

        Args:
            group_id: the group of the source.
            end: the end offset of the source in the batch.

        Raises:
            QueryUnknown: if the checkpoint is unknown.
            StateUnreachable: if the checkpoint cannot be read, or contains another batch.
        """
        if self._log is None:
            raise QueryUnknown(
                f"The checkpoint of the query of group '{group_id}' is unknown, so the column 'watermark' has no value.",
                remedy="Call sg.register(spark) in the process that starts the query, and run one query for each group.",
                group=group_id,
            )
        try:
            return self._log.late_watermark_ms(end)
        except (OSError, ValueError, StreamGroupsError) as e:
            raise StateUnreachable(
                f"The watermark of group '{group_id}' cannot be read from the checkpoint '{redacted(str(self._checkpoint), ())}': "
                f"{redacted(str(e), ())}.",
                remedy=remedy_at(
                    str(self._checkpoint),
                    "Use a checkpoint that the driver can read, a path or a URI, without asynchronous progress tracking. Or leave out "
                    "includeWatermark.",
                ),
                group=group_id,
            ) from None


def _is_of(end: Any, group_id: str) -> bool:
    return isinstance(end, dict) and "ranges" in end and end.get("group") == group_id


def _unreadable(group_id: str, why: str) -> QueryUnknown:
    return QueryUnknown(
        f"The checkpoint of the query of group '{group_id}' cannot be read: {why}.",
        remedy="The trigger availableNow reads it before Spark 4.2. If its storage did not answer, start the query again. "
        "Otherwise use PySpark 4.2 or newer, or another trigger.",
        group=group_id,
    )
