"""Reads the transaction identifiers of a table from its log, all of them in one pass.

Used by ``ledger``. Source: Delta's protocol, "Delta Log Entries", "Checkpoints" and "Last Checkpoint File".
``DeltaTable.transaction_version`` reads the log for one identifier: back to its last commit, or to the last checkpoint if
no commit contains it. A batch needs several identifiers per partition, and most of them are older than the last commit.

A pass reads the commits of the version from the newest to the oldest, then the checkpoint before them, and stops when it
has found what is requested. Files of the log never change, so the next request continues where the last one stopped, and a
newer version needs only its new commits. If a file is missing or has an unknown form, deltalake searches the remaining
identifiers one by one: checkpoints with sidecars, a checkpoint newer than the version, and a log that is being cleaned up.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from deltalake import DeltaTable

from streamgroups.threads import in_threads
from streamgroups_sinks.delta.store import Store
from streamgroups_sinks.delta.tables import table_id

_LOG = "_delta_log"
#: Commits that are read at the same time. An object store needs a round trip for each of them.
_AT_ONCE = 16
#: Errors of a missing file and of an unknown form. Others are those of the store: deltalake could not read the log either.
_UNREADABLE = (FileNotFoundError, ValueError, KeyError)


@dataclass(frozen=True, slots=True)
class Commits:
    """Commits of the log to read.

    Args:
        versions: their versions, the newest first.
    """

    versions: Sequence[int]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint of the log.

    Args:
        version: the version that it contains.
        n_parts: the number of its files; ``None`` for a checkpoint in one file.
    """

    version: int
    n_parts: int | None = None

    def paths(self) -> list[str]:
        """Returns the paths of its files in the directory of the table.

        >>> Checkpoint(9).paths()
        ['_delta_log/00000000000000000009.checkpoint.parquet']
        >>> Checkpoint(9, 2).paths()[0]
        '_delta_log/00000000000000000009.checkpoint.0000000001.0000000002.parquet'
        """
        stem = f"{_LOG}/{self.version:020}.checkpoint"
        if self.n_parts is None:
            return [f"{stem}.parquet"]
        return [f"{stem}.{part:010}.{self.n_parts:010}.parquet" for part in range(1, self.n_parts + 1)]


def last_checkpoint(text: str) -> Checkpoint:
    """Returns the checkpoint that the file ``_last_checkpoint`` names.

    Raises:
        ValueError: if its form is unknown, as that of a checkpoint with sidecars.

    >>> last_checkpoint('{"version": 9, "size": 7, "parts": 2}')
    Checkpoint(version=9, n_parts=2)
    """
    match json.loads(text):
        case {"v2Checkpoint": dict()}:
            raise ValueError("a checkpoint with sidecars")
        case {"version": int(version), "parts": int(n_parts)}:
            return Checkpoint(version, n_parts)
        case {"version": int(version)}:
            return Checkpoint(version)
    raise ValueError("no checkpoint")


def older_steps(version: int, checkpoint: Checkpoint | None) -> list[Commits | Checkpoint]:
    """Returns what remains to be read below a version, the newest first.

    Args:
        version: a version whose own commit has been read.
        checkpoint: the last checkpoint; ``None`` if the log has none.

    Raises:
        ValueError: if the checkpoint is newer than the version.

    >>> older_steps(12, Checkpoint(9))
    [Commits(versions=range(11, 9, -1)), Checkpoint(version=9, n_parts=None)]
    >>> older_steps(2, None)
    [Commits(versions=range(1, -1, -1))]
    """
    if checkpoint is not None and checkpoint.version > version:
        raise ValueError("a checkpoint newer than the version")
    versions = range(version - 1, -1 if checkpoint is None else checkpoint.version, -1)
    commits = [Commits(versions[at : at + _AT_ONCE]) for at in range(0, len(versions), _AT_ONCE)]
    return [*commits, *([] if checkpoint is None else [checkpoint])]


def identifiers_in(commit: str) -> dict[str, int]:
    """Returns the transaction identifiers of a commit: the version of each application.

    Raises:
        ValueError: if their form is unknown.

    >>> identifiers_in('{"add": {"path": "txn"}}\\n{"txn": {"appId": "billing", "version": 7}}\\n')
    {'billing': 7}
    """
    found: dict[str, int] = {}
    # Most lines describe files, and are long. A text in JSON can contain other separators of lines, such as U+2028.
    for action in (json.loads(line) for line in commit.split("\n") if '"txn"' in line):
        match action:
            case {"txn": {"appId": str(app_id), "version": int(version)}}:
                found.setdefault(app_id, version)
            case {"txn": dict()}:
                raise ValueError("no transaction identifier")
    return found


class Identifiers:
    """The transaction identifiers of a table, for one transaction of a ledger.

    Args:
        store: the files of the table.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._of: tuple[str, int] | None = None
        self._found: dict[str, int] = {}
        #: What remains to be read, the newest first, without the commits below ``_older``.
        self._steps: list[Commits | Checkpoint] = []
        #: The version whose older commits are not planned yet, because the last checkpoint is unknown.
        self._older: int | None = None
        self._readable = True

    def versions_in(self, table: DeltaTable, app_ids: Iterable[str]) -> dict[str, int]:
        """Returns the versions of applications in a version of the table, without those that it does not contain.

        Equal to ``DeltaTable.transaction_version`` of each of them. Raises the errors of deltalake and of the store.
        """
        requested = set(app_ids)
        if not requested:
            return {}
        self._turn_to(table_id(table), table.version())
        try:
            while self._readable and not self._is_complete() and not requested <= self._found.keys():
                self._read_next()
        except _UNREADABLE:
            self._readable = False
        found = {app_id: self._found[app_id] for app_id in requested & self._found.keys()}
        if self._readable:
            return found
        others = {app_id: table.transaction_version(app_id) for app_id in requested - found.keys()}
        return found | {app_id: version for app_id, version in others.items() if version is not None}

    def _is_complete(self) -> bool:
        return not self._steps and self._older is None

    def _turn_to(self, of_table: str, version: int) -> None:
        before = self._of
        if before == (of_table, version):
            return
        # Only a complete pass contains what is below the new commits.
        if before and before[0] == of_table and before[1] < version and self._readable and self._is_complete():
            with suppress(*_UNREADABLE):
                self._found |= self._read_commits(range(version, before[1], -1))
                self._of = of_table, version
                return
        self._of, self._found, self._readable = (of_table, version), {}, True
        self._steps, self._older = [Commits([version])], version

    def _read_next(self) -> None:
        """Reads one step. After an error of the store, the next request reads it again."""
        if not self._steps:
            assert self._older is not None
            self._steps, self._older = older_steps(self._older, self._last_checkpoint()), None
            return
        step = self._steps[0]
        older = self._read_commits(step.versions) if isinstance(step, Commits) else self._read_checkpoint(step)
        self._found = older | self._found
        del self._steps[0]

    def _read_commits(self, versions: Sequence[int]) -> dict[str, int]:
        def read(version: int) -> dict[str, int]:
            return identifiers_in(self._store.read_text(f"{_LOG}/{version:020}.json"))

        commits = list(in_threads(read, versions, _AT_ONCE))
        return {app_id: version for commit in reversed(commits) for app_id, version in commit.items()}

    def _read_checkpoint(self, checkpoint: Checkpoint) -> dict[str, int]:
        found: dict[str, int] = {}
        for path in checkpoint.paths():
            rows = self._store.read_parquet(path, ["txn.appId", "txn.version"])
            # A checkpoint of another writer may omit the column if it is empty.
            actions = rows["txn"].drop_null().to_pylist() if "txn" in rows.column_names else []
            found |= {action["appId"]: action["version"] for action in actions}
        return found

    def _last_checkpoint(self) -> Checkpoint | None:
        try:
            return last_checkpoint(self._store.read_text(f"{_LOG}/_last_checkpoint"))
        except FileNotFoundError:
            return None
