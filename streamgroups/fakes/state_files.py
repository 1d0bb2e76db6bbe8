"""State files in memory. Implements :class:`streamgroups.state.state_files.StateFiles`."""

from __future__ import annotations

from collections.abc import Collection

from streamgroups.state.names import StateFileName


class FakeStateFiles:
    """The state files of one operator. A test can change ``contents``: to damage or to lose a file.

    >>> files, file = FakeStateFiles(), StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42)
    >>> files.write(file, memoryview(b"state"))
    >>> files.read(file).tobytes(), files.list()[file]
    (b'state', 5)
    """

    location = "memory"

    def __init__(self) -> None:
        self.contents: dict[StateFileName, bytes] = {}

    def read(self, file: StateFileName) -> memoryview:
        """See :meth:`StateFiles.read`."""
        if file not in self.contents:
            raise FileNotFoundError(str(file))
        return memoryview(self.contents[file])

    def write(self, file: StateFileName, content: memoryview) -> None:
        """See :meth:`StateFiles.write`."""
        self.contents[file] = bytes(content)

    def list(self) -> dict[StateFileName, int]:
        """See :meth:`StateFiles.list`."""
        return {file: len(content) for file, content in self.contents.items()}

    def delete(self, files: Collection[StateFileName]) -> None:
        """See :meth:`StateFiles.delete`."""
        for file in files:
            self.contents.pop(file, None)
