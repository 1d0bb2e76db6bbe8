"""Files of a history. Several processes append to one file; :func:`read_files` reads many.

Each call is one ``write`` to a file opened for appending, so the lines of different processes do not mix. A lock of the file would
stop all processes while its owner is frozen. ``kill -9`` can truncate a write. So each process that a campaign kills has a file
of its own, whose last line is ignored without its line feed. Source: ``open(2)``, ``O_APPEND``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from integration_tests.history.events import Event
from integration_tests.history.lines import parse, to_line


class InvalidHistory(ValueError):
    """A line of a file is not an event. The message begins with the file and the number of the line."""


class HistoryWriter:
    """Appends events to a file. Safe to call from any thread, and from several processes with one file.

    Args:
        path: the file. It and its directory are created.

    Raises:
        OSError: if it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def __call__(self, *events: Event) -> None:
        """Appends events, in one ``write``.

        Raises:
            OSError: if the file cannot be written, or only in part.
        """
        content = "".join(f"{to_line(it)}\n" for it in events).encode()
        if (n := os.write(self._fd, content)) < len(content):
            raise OSError(f"{n} of {len(content)} bytes were written")

    def close(self) -> None:
        """Closes the file."""
        os.close(self._fd)


def read_files(paths: Iterable[Path]) -> list[Event]:
    """The events of several files, in the order of their times. Events of one file and one time keep their order.

    Raises:
        InvalidHistory: if a complete line is not an event.
        OSError: if a file cannot be read.
    """
    return sorted((event for path in paths for event in _events(path)), key=lambda it: it.time_ms)


def _events(path: Path) -> Iterator[Event]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield parse(line.decode())
            except ValueError as e:
                raise InvalidHistory(f"{path}:{number}: {e}: {line[:200]!r}") from e
