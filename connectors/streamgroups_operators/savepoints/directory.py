"""The directory of a savepoint: its commit record, its state files, and its deletion.

Used by the modules of this folder and by ``streamgroups savepoint``. Source: SEMANTICS C3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from posixpath import dirname

from pyarrow import fs

from streamgroups.errors import InvalidOption, SavepointDamaged, UnknownSavepoint
from streamgroups.savepoints.checkpoint_record import CheckpointRecord, CopiedFile
from streamgroups.savepoints.commit_record import FILE, CommitRecord, SavedFile, decode, encode, is_savepoint_id
from streamgroups_operators.local_files import make_durable, sync_directory
from streamgroups_operators.locations import (
    StateDirectory,
    directories_at,
    files_below,
    opened,
    shown,
    translated,
    write_file,
)

_STATES = "states"
#: The directory of the copy of a checkpoint.
CHECKPOINT = "checkpoint"
#: Files are read and written in parts of this size.
PART_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SavepointDirectory:
    """One savepoint at a location. It need not exist.

    Args:
        location: a path, or a URI of a file system that Arrow can read.
        id: the id of the savepoint.

    Raises:
        InvalidOption: if ``id`` is not that of a savepoint.
    """

    location: str
    id: str

    def __post_init__(self) -> None:
        if not is_savepoint_id(self.id):
            raise InvalidOption(
                f"'{self.id}' is not the id of a savepoint.",
                remedy="List the savepoints with: streamgroups savepoint list LOCATION.",
            )

    def __str__(self) -> str:
        return f"{shown(self.location).rstrip('/')}/{self.id}"

    def states(self, operator: str) -> StateDirectory:
        """The files of an operator."""
        return files_below(self.location, self.id, _STATES, operator)

    def checkpoint_parts(self, path: str) -> Iterator[bytes]:
        """The content of a file of the copied checkpoint, in parts.

        Raises:
            FileNotFoundError: if it does not exist.
            StateUnreachable: if the storage does not answer.
        """
        with translated(self.location):
            files, root = opened(self.location)
            with files.open_input_stream(f"{root}/{self.id}/{CHECKPOINT}/{path}") as stored:
                while part := stored.read(PART_BYTES):
                    yield part

    def create(self) -> None:
        """Creates the directory. Only its owner can access a local one. Raises the errors of :meth:`read`."""
        with translated(self.location):
            files, path = opened(self.location)
            if isinstance(files, fs.LocalFileSystem):
                make_durable(path, f"{path}/{self.id}")

    def read(self) -> CommitRecord:
        """The commit record.

        Raises:
            UnknownSavepoint: if the savepoint does not exist, or is not complete.
            SavepointDamaged: if the record was changed.
            StateUnreachable: if the storage does not answer.
        """
        with translated(self.location):
            files, path = opened(self.location)
            try:
                with files.open_input_stream(f"{path}/{self.id}/{FILE}") as stored:
                    text = bytes(stored.read()).decode()
            except FileNotFoundError:
                raise self._unknown(files, path) from None
            except UnicodeDecodeError as e:
                raise SavepointDamaged(
                    f"The commit record of the savepoint in '{self}' is damaged: {e}.",
                    remedy="Restore the directory from a backup, or use another savepoint.",
                ) from e
        record = decode(text, str(self))
        if record.id != self.id:
            raise SavepointDamaged(
                f"The commit record in '{self}' is that of the savepoint {record.id}.",
                remedy="Do not rename or mix the directories of savepoints.",
            )
        return record

    def _unknown(self, files: fs.FileSystem, path: str) -> UnknownSavepoint:
        exists = files.get_file_info(f"{path}/{self.id}").type == fs.FileType.Directory
        why = f"was not completed: it has no '{FILE}'" if exists else "does not exist"
        return UnknownSavepoint(
            f"The savepoint '{self}' {why}.",
            remedy="List the savepoints with: streamgroups savepoint list LOCATION.",
        )

    def write(self, record: CommitRecord) -> None:
        """Writes the commit record, which completes the savepoint. Raises the errors of :meth:`read`."""
        with translated(self.location):
            files, path = opened(self.location)
            write_file(files, path, f"{path}/{self.id}/{FILE}", [encode(record).encode()])

    def delete(self) -> None:
        """Deletes the savepoint. The commit record is deleted first, so that the rest is not a savepoint."""
        with translated(self.location):
            files, path = opened(self.location)
            record = f"{path}/{self.id}/{FILE}"
            if files.get_file_info(record).type == fs.FileType.File:
                files.delete_file(record)
                if isinstance(files, fs.LocalFileSystem):
                    sync_directory(dirname(record))
            files.delete_dir(f"{path}/{self.id}")


def savepoints_at(location: str) -> list[str]:
    """The ids of all savepoints, oldest first, with those that are not complete.

    Raises:
        InvalidOption: if Arrow does not support the location.
        StateUnreachable: if the storage does not answer.
    """
    return [it for it in directories_at(location) if is_savepoint_id(it)]


def problems(directory: SavepointDirectory, record: CommitRecord) -> Iterator[tuple[str | None, str, str]]:
    """Reads all files of a savepoint. Yields those that are not as recorded: the operator, the file and the problem.

    The operator of the files of a checkpoint is ``None``.

    Raises:
        StateUnreachable: if the storage does not answer.
    """
    for operator in record.operators:
        files = directory.states(operator.name)
        for file in operator.files:
            problem = _problem(files, file)
            if problem:
                yield operator.name, str(file.name), problem
    if record.checkpoint is not None:
        for path, problem in problems_of_checkpoint(directory, record.checkpoint):
            yield None, path, problem


def problems_of_checkpoint(directory: SavepointDirectory, record: CheckpointRecord) -> Iterator[tuple[str, str]]:
    """Reads all files of the copied checkpoint. Yields the path in the savepoint, and the problem. See :func:`problems`."""
    for file in record.files:
        problem = _compared(directory.checkpoint_parts(file.path), file)
        if problem:
            yield f"{CHECKPOINT}/{file.path}", problem


def _problem(files: StateDirectory, file: SavedFile) -> str:
    return _compared(files.parts(file.name), file)


def _compared(parts: Iterable[bytes], file: SavedFile | CopiedFile) -> str:
    try:
        n_bytes, sha256 = sum_of(parts)
    except FileNotFoundError:
        return "does not exist"
    if n_bytes != file.n_bytes:
        return f"has {n_bytes} bytes instead of {file.n_bytes}"
    return "" if sha256 == file.sha256 else "was changed: its checksum is wrong"


def is_same(files: StateDirectory, file: SavedFile) -> bool:
    """Whether a directory has a file with the recorded bytes."""
    return not _problem(files, file)


def sum_of(parts: Iterable[bytes], write: Callable[[bytes], object] = lambda _: None) -> tuple[int, str]:
    """The size and the checksum of a file.

    Args:
        parts: its content.
        write: receives each part.
    """
    digest, n_bytes = hashlib.sha256(), 0
    for part in parts:
        digest.update(part)
        n_bytes += len(part)
        write(part)
    return n_bytes, digest.hexdigest()
