"""State files in memory. Implements :class:`streamgroups.state.state_files.StateFiles`."""

from __future__ import annotations

from collections.abc import Callable, Collection

from streamgroups.state.file_ages import StoredFile, Survey
from streamgroups.state.file_names import StateFileName


class FakeStateFiles:
    """The state files of one operator. A test can change ``contents``: to damage or to lose a file.

    Args:
        now_ms: the clock of the storage, in milliseconds.

    ``written_ms`` has the times of writing, which a test can change.

    >>> files, file = FakeStateFiles(), StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42)
    >>> files.write(file, memoryview(b"state"))
    >>> files.read(file).tobytes(), files.list()[file]
    (b'state', 5)
    """

    location = "memory"

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self._now_ms = now_ms
        self.contents: dict[StateFileName, bytes] = {}
        self.written_ms: dict[StateFileName, int] = {}
        #: When unfinished files were written.
        self.unfinished_ms: dict[StateFileName, int] = {}

    def read(self, file: StateFileName) -> memoryview:
        """See :meth:`StateFiles.read`."""
        if file not in self.contents:
            raise FileNotFoundError(str(file))
        return memoryview(self.contents[file])

    def write(self, file: StateFileName, content: memoryview) -> None:
        """See :meth:`StateFiles.write`."""
        self.contents[file] = bytes(content)
        self.written_ms[file] = self._now_ms()

    def list(self) -> dict[StateFileName, int]:
        """See :meth:`StateFiles.list`."""
        return {file: len(content) for file, content in self.contents.items()}

    def survey(self) -> Survey:
        """See :meth:`StateFiles.survey`."""
        now_ms = self._now_ms()
        files = {it: StoredFile(size, now_ms - self.written_ms.get(it, now_ms)) for it, size in self.list().items()}
        return Survey(files, {it: StoredFile(0, now_ms - ms) for it, ms in self.unfinished_ms.items()})

    def delete_unfinished(self, files: Collection[StateFileName]) -> None:
        """See :meth:`StateFiles.delete_unfinished`."""
        for file in files:
            self.unfinished_ms.pop(file, None)

    def delete(self, files: Collection[StateFileName]) -> None:
        """See :meth:`StateFiles.delete`."""
        for file in files:
            self.contents.pop(file, None)
