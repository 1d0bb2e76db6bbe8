"""Writes the history of a member as JSON lines, one file for each run of a member.

``streamgroups_spark.source.readers`` uses it if the option ``historyDir`` is set. Each event is one ``write`` to a
file opened for appending. So a ``kill -9`` can truncate only the last line, which
:func:`streamgroups.groups.history.parse_lines` ignores.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from pathlib import Path

from streamgroups.errors import InvalidOption
from streamgroups.groups.history import Event, EventRecorder, parse_lines, to_line
from streamgroups.path_names import label
from streamgroups.private_directories import make_private
from streamgroups_kafka.client.clock import now_ms

logger = logging.getLogger(__name__)

#: The maximum size of the file of one run, in bytes.
MAX_BYTES = 256 << 20


class HistoryFile(EventRecorder):
    """A :class:`~streamgroups.ports.Recorder` that appends to its own file in ``directory``. Safe to call from any
    thread.

    Args:
        directory: the directory of the file. It is created if it does not exist.
        group_id: the group.
        member: the name of the member.

    Raises:
        InvalidOption: if the directory is not writable.
    """

    def __init__(self, directory: str, *, group_id: str, member: str) -> None:
        run = uuid.uuid4().hex[:8]
        super().__init__(self._append, now_ms, group_id, member, run, threading.Lock())
        self._broken = False
        path = Path(directory) / f"{label(member)}-{run}.jsonl"
        try:
            make_private(path.parent)
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            self._left_bytes = MAX_BYTES
        except OSError as e:
            raise InvalidOption(
                f"Option 'historyDir' is '{directory}', which is not writable: {e.strerror}.",
                remedy="Set it to a directory on the driver's machine that this user can write to.",
            ) from e

    def _append(self, event: Event) -> None:
        """The history must not fail the query. If a write fails, the history ends with a warning."""
        if self._broken:
            return
        try:
            line = (to_line(event) + "\n").encode()
            self._left_bytes -= len(line)
            if self._left_bytes < 0:
                self._broken = True
                logger.warning("%s: the history in historyDir stops here, at %d bytes", self._member, MAX_BYTES)
                return
            self._broken = os.write(self._fd, line) < len(line)
        except OSError as e:
            self._broken = True
            logger.warning("%s: the history in historyDir stops here: %s", self._member, e.strerror)


def read_history(directory: str | Path) -> list[Event]:
    """Returns all events of all members in ``directory``, ordered by time."""
    lines: list[str] = []
    for path in sorted(Path(directory).glob("*.jsonl")):
        lines += path.read_text(encoding="utf-8").splitlines(keepends=True)
    return parse_lines(lines)
