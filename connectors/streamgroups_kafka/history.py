"""Writes a member's history as JSON lines, one file per run of a member.

Used by ``member`` when the option ``historyDir`` is given. Each event is one ``write`` to a file opened for appending, so a
kill -9 can cut at most the last line (:func:`streamgroups.groups.history.parse_lines` passes over it).
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from streamgroups.errors import InvalidOption
from streamgroups.groups.history import Event, Kind, parse_lines, to_line
from streamgroups.partitions import OffsetRange, TopicPartition

logger = logging.getLogger(__name__)


def no_history(kind: Kind, **_: object) -> None:
    """Records nothing."""


class HistoryFile:
    """A :class:`Recorder` that appends to a file of its own in ``directory``. Safe to call from any thread.

    Args:
        directory: where; it is made if it is not there.
        group_id: the group.
        member: the member's name.

    Raises:
        InvalidOption: if the directory cannot be written to.
    """

    def __init__(self, directory: str, *, group_id: str, member: str) -> None:
        self._group_id, self._member, self._run = group_id, member, uuid.uuid4().hex[:8]
        self._lock = threading.Lock()
        self._broken = False
        safe_name = "".join(c if c.isalnum() or c in "._-" else "_" for c in member)
        path = Path(directory) / f"{safe_name}-{self._run}.jsonl"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as e:
            raise InvalidOption(
                f"Option 'historyDir' is '{directory}', which cannot be written to: {e.strerror}.",
                remedy="Name a directory this user may write to on the driver's machine.",
            ) from e

    def __call__(
        self,
        kind: Kind,
        *,
        offsets: Mapping[TopicPartition, int] | None = None,
        ranges: Iterable[OffsetRange] = (),
        batch: int | None = None,
        note: str = "",
    ) -> None:
        """Appends one event, stamped with the time it is written."""
        with self._lock:
            event = Event(
                time.time_ns() // 1_000_000,
                self._group_id,
                self._member,
                self._run,
                kind,
                dict(offsets or {}),
                tuple(ranges),
                batch,
                note,
            )
            self._append((to_line(event) + "\n").encode())

    def _append(self, line: bytes) -> None:
        """A record is worth less than the query: where it cannot be written it ends, with a warning."""
        if self._broken:
            return
        try:
            self._broken = os.write(self._fd, line) < len(line)
        except OSError as e:
            self._broken = True
            logger.warning("%s: the history in historyDir ends here: %s", self._member, e.strerror)


def read_history(directory: str | Path) -> list[Event]:
    """All events of all members that wrote into ``directory``, ordered by time."""
    lines: list[str] = []
    for path in sorted(Path(directory).glob("*.jsonl")):
        lines += path.read_text().splitlines(keepends=True)
    return parse_lines(lines)
