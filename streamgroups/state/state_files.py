"""The port to the storage of state files.

Implemented by ``streamgroups_operators.locations`` for file systems and object stores, and by ``streamgroups.fakes`` in
memory. A file is written once and never changed. Source: SEMANTICS S10.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from streamgroups.state.file_ages import Survey
from streamgroups.state.file_names import StateFileName


class StateFiles(Protocol):
    """The state files of one operator of one group. Safe to call from any thread.

    Every method raises :class:`~streamgroups.errors.StateUnreachable` if the storage does not answer or rejects the
    request.
    """

    @property
    def location(self) -> str:
        """Where the files are, for messages. Contains no secrets."""
        ...

    def read(self, file: StateFileName) -> memoryview:
        """The content of a file.

        Raises:
            FileNotFoundError: if it does not exist.
        """
        ...

    def write(self, file: StateFileName, content: memoryview) -> None:
        """Writes a file. Other readers see the whole file or none, and it survives a crash of the machine."""
        ...

    def list(self) -> dict[StateFileName, int]:
        """All files and their sizes in bytes. Files with other names are left out."""
        ...

    def delete(self, files: Collection[StateFileName]) -> None:
        """Deletes files. Files that do not exist are left out."""
        ...


class CollectableFiles(StateFiles, Protocol):
    """State files that a collector deletes. Raises the errors of :class:`StateFiles`."""

    def survey(self) -> Survey:
        """All files with their ages. It writes a file and deletes it, to read the current time of the storage."""
        ...

    def delete_unfinished(self, files: Collection[StateFileName]) -> None:
        """Deletes unfinished files of a survey. Files that do not exist are left out."""
        ...
