"""How old stored files are, by one clock: that of the storage.

Used by ``streamgroups_operators.collection`` and ``streamgroups_operators.pin_store`` before they delete files. The name of a file
has the time of its batch by the clock of another host, which can be hours behind, so it decides no deletion. The storage
records when a file was written, and its current time is that of a file that the collector writes. So a collector that has
just started, a second one, and a command judge a file equally.

The clock of the storage can be set forward while a batch is in flight. So a file is never older than the time since this
process has listed the files without it, by a monotonic clock. Source: SEMANTICS S10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamgroups.state.file_names import StateFileName


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a storage.

    Args:
        n_bytes: its size in bytes.
        age_ms: its age in milliseconds by the clock of the storage; ``None`` if the storage has no times.
    """

    n_bytes: int
    age_ms: int | None


@dataclass(frozen=True, slots=True)
class Survey:
    """The content of a directory.

    Args:
        files: the files that readers see.
        unfinished: the files that a write has left unfinished, by the name of the file to write. A killed process or a
            full disk leaves them.
    """

    files: Mapping[StateFileName, StoredFile]
    unfinished: Mapping[StateFileName, StoredFile]


@dataclass(frozen=True, slots=True)
class Ages:
    """The ages of the files of a directory, in milliseconds.

    Args:
        files: the files that readers see.
        unfinished: the unfinished files.
    """

    files: dict[StateFileName, int]
    unfinished: dict[StateFileName, int]

    def unfinished_since(self, min_age_ms: int) -> frozenset[StateFileName]:
        """The unfinished files that are older: the write of none of them is in progress."""
        return frozenset(file for file, age_ms in self.unfinished.items() if age_ms > min_age_ms)


class FileAges:
    """The ages of the files of one directory.

    >>> first, second = (StateFileName(1732334879123, "1f3a9c2b7d10", 17, attempt) for attempt in (42, 43))
    >>> ages, old = FileAges(), StoredFile(9, age_ms=7_200_000)
    >>> ages.observe(Survey({first: old}, {}), now_ms=1_000).files[first]
    7200000
    >>> ages.observe(Survey({second: old}, {}), now_ms=61_000).files[second]
    60000
    """

    def __init__(self) -> None:
        self._files, self._unfinished = _Listings(), _Listings()

    def observe(self, survey: Survey, now_ms: int) -> Ages:
        """Returns the ages of the listed files.

        Args:
            survey: the content of the directory.
            now_ms: the time by a monotonic clock, in milliseconds, when it was listed.
        """
        return Ages(self._files.ages_ms(survey.files, now_ms), self._unfinished.ages_ms(survey.unfinished, now_ms))


class _Listings:
    """The earlier listings of some files in this process."""

    def __init__(self) -> None:
        #: When the directory was last listed without the file; ``None`` if the first listing had it.
        self._absent_ms: dict[StateFileName, int | None] = {}
        self._first_ms: dict[StateFileName, int] = {}
        self._listed_ms: int | None = None

    def ages_ms(self, stored: Mapping[StateFileName, StoredFile], now_ms: int) -> dict[StateFileName, int]:
        self._absent_ms = {file: self._absent_ms.get(file, self._listed_ms) for file in stored}
        self._first_ms = {file: self._first_ms.get(file, now_ms) for file in stored}
        self._listed_ms = now_ms
        return {file: self._age_ms(file, it.age_ms, now_ms) for file, it in stored.items()}

    def _age_ms(self, file: StateFileName, age_ms: int | None, now_ms: int) -> int:
        if age_ms is None:
            return now_ms - self._first_ms[file]
        absent_ms = self._absent_ms[file]
        return max(0, age_ms if absent_ms is None else min(age_ms, now_ms - absent_ms))
