"""The watermark that a query imports from another group, whichever application runs the queries of that group.

Created by ``streamgroups_spark.source.imported``. ``streamgroups_spark.source.query_time`` uses it for
``sg.with_event_time``, and :class:`LaterTime` for windows with ``time="group"``. Source: SEMANTICS
W10.

The check at the start of a query reads the watermark and waits for it. Later reads run in the background, so that no
batch waits for another group. If a read fails, the last watermark remains.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import replace

from streamgroups.errors import StreamGroupsError
from streamgroups.event_time.explanation import StreamExplanation
from streamgroups.event_time.imported_watermark import (
    ImportState,
    ImportStatus,
    StoredWatermark,
    check_stored,
    imported,
    standstill,
)
from streamgroups.event_time.watermark import NOT_YET, Watermark, latest
from streamgroups.groups.membership import Owned
from streamgroups.partitions import TopicPartition
from streamgroups.printable import printable
from streamgroups.query.alignment import EventTimes
from streamgroups.query.available import Start
from streamgroups.query.group_time import GroupTime
from streamgroups.query.operator_time import OperatorTime
from streamgroups.query.stored_watermarks import WatermarkReader

logger = logging.getLogger(__name__)

#: How often the watermark is read.
_EVERY_MS = 1_000
#: The pause after a failed read.
_BACK_OFF_MS = 10_000
#: The limit of groups that import from each other in a row. Every principal with Read on a metadata group can add one.
_MAX_GROUPS = 16


class ImportedTime:
    """See :mod:`streamgroups.query.imported_time`. Used by one thread at a time.

    Args:
        group_id: the group of the query.
        import_from: the group whose watermark it imports.
        reader: reads stored watermarks. :meth:`close` closes it.
        now_ms: the time in milliseconds since the epoch.
        start: runs a read in the background.
        generates: whether the query also generates a watermark from its own records.
    """

    def __init__(
        self,
        group_id: str,
        import_from: str,
        reader: WatermarkReader,
        now_ms: Callable[[], int],
        start: Start,
        *,
        generates: bool,
    ) -> None:
        self._group_id, self._import_from, self._reader = group_id, import_from, reader
        self._now_ms, self._start, self._generates = now_ms, start, generates
        self._state: ImportState | None = None
        self._reading: Future[Mapping[str, StoredWatermark]] | None = None
        self._next_read_ms = 0
        self._is_failing = False

    def check(self) -> None:
        """Reads the watermark for the first time. Only the first call has an effect.

        A failure that can pass does not prevent the start of the query.

        Raises:
            InvalidOption: see :func:`~streamgroups.event_time.imported_watermark.check_stored`.
            StreamGroupsError: if this user may not read the offsets of a group.
        """
        if self._state is not None:
            return
        state = ImportState(self._now_ms())
        try:
            groups = self._read()
        except StreamGroupsError as e:
            if not e.retriable:
                raise
            self._failed(e)
        else:
            check_stored(self._group_id, self._import_from, groups, generates=self._generates)
            state = imported(state, groups, self._now_ms())
        self._next_read_ms = max(self._next_read_ms, self._now_ms() + _EVERY_MS)
        self._state = state

    def watermark(self) -> Watermark:
        """The watermark of the last read. Starts another one if it is due. Does not wait."""
        if self._state is None:
            return NOT_YET
        self._take()
        if self._reading is None and self._now_ms() >= self._next_read_ms:
            self._begin()
            self._take()
        return self._state.watermark

    def forget(self) -> None:
        """Discards the watermark until the next read, which begins after this call.

        Called after a reset of the query: the watermark can be that before the reset of the other group.
        """
        if self._state is None:
            return
        self._state = replace(self._state, watermark=NOT_YET)
        self._reading, self._next_read_ms = None, 0

    @property
    def status(self) -> ImportStatus:
        """The watermark for users."""
        state = self._state or ImportState(self._now_ms())
        unchanged_ms = max(0, self._now_ms() - state.changed_ms)
        return ImportStatus(self._import_from, state.watermark, unchanged_ms, state.stopped)

    def close(self) -> None:
        """Closes connections in the background."""
        self._start(self._reader.close)

    def _begin(self) -> None:
        reading = self._reading = Future[Mapping[str, StoredWatermark]]()

        def read() -> None:
            try:
                reading.set_result(self._read())
            except BaseException as e:
                reading.set_exception(e)

        self._start(read)

    def _take(self) -> None:
        """Takes the result of a read that has ended."""
        if self._reading is None or not self._reading.done() or self._state is None:
            return
        reading, self._reading = self._reading, None
        now_ms = self._now_ms()
        try:
            groups = reading.result()
        except StreamGroupsError as e:
            self._failed(e)
            return
        self._is_failing, self._next_read_ms = False, now_ms + _EVERY_MS
        before, self._state = self._state, imported(self._state, groups, now_ms)
        if before.is_reported and not self._state.is_reported:
            logger.info("%s", printable(f"{self.status} It advances again."))
        warning = standstill(self._state, self._group_id, self._import_from, now_ms)
        if warning is not None:
            self._state = replace(self._state, is_reported=True)
            logger.warning("%s", printable(warning))

    def _failed(self, error: StreamGroupsError) -> None:
        self._next_read_ms = self._now_ms() + _BACK_OFF_MS
        if not self._is_failing:
            logger.warning(
                "%s",
                printable(
                    f"Group '{self._group_id}' cannot read the watermark that it imports from group "
                    f"'{self._import_from}': {error}"
                ),
            )
        self._is_failing = True

    def _read(self) -> dict[str, StoredWatermark]:
        """The group, the groups that it imports from, and so on."""
        found: dict[str, StoredWatermark] = {}
        waiting = [self._import_from]
        while waiting and len(found) < _MAX_GROUPS:
            group_id = waiting.pop(0)
            if group_id not in found and group_id != self._group_id:
                found[group_id] = self._reader.read(group_id)
                waiting += sorted(found[group_id].imports)
        return found


class LaterTime(OperatorTime):
    """The time of the group with the later of its watermark and an imported one (SEMANTICS W10).

    Args:
        own: the time of the group.
        imported: the imported watermark.
    """

    def __init__(self, own: GroupTime, imported: ImportedTime) -> None:
        self._own, self._imported = own, imported
        self._next_offsets: dict[TopicPartition, int] = {}

    def check(self) -> None:
        """See :meth:`OperatorTime.check`."""
        self._imported.check()

    def watermark(self, owned: Mapping[TopicPartition, Owned], read: Collection[TopicPartition] = ()) -> Watermark:
        """See :meth:`OperatorTime.watermark`."""
        next_offsets = {tp: it.next_offset for tp, it in owned.items()}
        if any(n < self._next_offsets.get(tp, n) for tp, n in next_offsets.items()):
            # A reset. Records that the query reads again are late by the watermark before it.
            self._imported.forget()
        self._next_offsets = next_offsets
        return latest(self._own.watermark(owned, read), self._imported.watermark())

    def event_times(self, owned: Mapping[TopicPartition, Owned]) -> EventTimes | None:
        """See :meth:`OperatorTime.event_times`."""
        return self._own.event_times(owned)

    def explain(self, group_id: str, member: str, owned: Mapping[TopicPartition, Owned]) -> StreamExplanation | None:
        """See :meth:`OperatorTime.explain`."""
        return self._own.explain(group_id, member, owned, self._imported.status)
