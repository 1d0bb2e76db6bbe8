"""The storage of state files: a local directory, or any file system that Arrow reads.

Created by ``streamgroups_spark`` in tasks and on the driver, and by ``streamgroups state``. Implements
:class:`streamgroups.state.state_files.StateFiles`. An object store makes an object visible as a whole, so no file is
renamed there. In a local directory a file is written under another name, synced, and renamed.

The files of an operator are in ``<location>/<group>/<operator>``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from streamgroups.errors import InvalidOption, StateUnreachable
from streamgroups.state.names import StateFileName

_SCHEME = re.compile(r"[A-Za-z][\w+.-]*:")
#: The prefix by which Spark and Hadoop write a local path.
_LOCAL = re.compile(r"file:(?://)?(?=/)")
#: The schemes of Hadoop for S3.
_S3 = re.compile(r"^s3[an]:")
_ONE_REQUEST = "allow_delayed_open"


def open_location(location: str) -> tuple[fs.FileSystem, str]:
    """Returns the file system of a location, and the path in it.

    Args:
        location: a path, or a URI of a file system that Arrow can read.

    Raises:
        OSError: if the file system cannot be reached.
        ValueError: if Arrow does not support the file system.

    >>> open_location("file:/data/state")[1]
    '/data/state'
    """
    location = _LOCAL.sub("", location)
    if not _SCHEME.match(location):
        return fs.LocalFileSystem(), os.path.abspath(location)
    files, path = _from_uri(_S3.sub("s3:", location))
    return files, path.rstrip("/")


def _from_uri(location: str) -> tuple[fs.FileSystem, str]:
    if location.startswith("s3:") and _ONE_REQUEST not in location:
        # A state file is small: one request writes it, instead of the three of a multipart upload.
        with suppress(pa.ArrowInvalid):
            return _opened_uri(f"{location}{'&' if '?' in location else '?'}{_ONE_REQUEST}=true")
    # Older versions of Arrow do not have this parameter.
    return _opened_uri(location)


def _opened_uri(uri: str) -> tuple[fs.FileSystem, str]:
    files, path = fs.FileSystem.from_uri(uri)
    return files, str(path)


def shown(location: str) -> str:
    """The location without its credentials and parameters, for messages.

    >>> shown("s3://key:secret@bucket/state?endpoint_override=localhost:9000")
    's3://bucket/state'
    """
    if not _SCHEME.match(location):
        return location
    parts = urlsplit(location)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def operator_files(location: str, group_id: str, operator: str) -> StateDirectory:
    """The state files of an operator of a group.

    Args:
        location: the option ``stateLocation``.
        group_id: the group of the query.
        operator: the name of the operator.

    Raises:
        InvalidOption: if Arrow does not support the location.
        StateUnreachable: if the storage does not answer.
    """
    return files_below(location, group_id, operator)


def files_below(location: str, *names: str) -> StateDirectory:
    """The files of a directory below a location. Raises the errors of :func:`operator_files`.

    Args:
        location: a path, or a URI of a file system that Arrow can read.
        names: the names of the directories, outermost first. They can contain any character.
    """
    with _translated(location):
        files, path = _opened(location)
    return StateDirectory(files, "/".join((path, *(quote(name, safe="") for name in names))), shown(location))


def groups_at(location: str) -> list[str]:
    """The groups with state files.

    Raises:
        InvalidOption: if Arrow does not support the location.
        StateUnreachable: if the storage does not answer.
    """
    return _directories(location, "")


def operators_at(location: str, group_id: str) -> list[str]:
    """The names of the operators with state files of a group. Raises the errors of :func:`groups_at`."""
    return _directories(location, "/" + quote(group_id, safe=""))


def _directories(location: str, below: str) -> list[str]:
    with _translated(location):
        files, path = _opened(location)
        selector = fs.FileSelector(path + below, allow_not_found=True)
        return sorted(unquote(it.base_name) for it in files.get_file_info(selector) if it.type == fs.FileType.Directory)


def _opened(location: str) -> tuple[fs.FileSystem, str]:
    try:
        return open_location(location)
    except (ValueError, pa.ArrowException) as e:
        raise InvalidOption(
            f"The state location '{shown(location)}' is not supported ({type(e).__name__}).",
            remedy="Use a path, or a URI of a file system that Arrow reads, such as s3://bucket/state.",
        ) from None


class StateDirectory:
    """See :class:`streamgroups.state.state_files.StateFiles`.

    Args:
        files: the file system.
        path: the directory in it.
        location: the location, for messages.
    """

    def __init__(self, files: fs.FileSystem, path: str, location: str) -> None:
        self._files, self._path, self._location = files, path, location

    @property
    def location(self) -> str:
        """See :attr:`StateFiles.location`."""
        return self._location

    def read(self, file: StateFileName) -> memoryview:
        """See :meth:`StateFiles.read`."""
        with _translated(self._location), self._files.open_input_stream(self._file(file)) as stored:
            return memoryview(stored.read())

    def write(self, file: StateFileName, content: memoryview) -> None:
        """See :meth:`StateFiles.write`."""
        with _translated(self._location):
            if isinstance(self._files, fs.LocalFileSystem):
                self._write_locally(file, content)
                return
            with self._files.open_output_stream(self._file(file)) as out:
                out.write(content)

    def _write_locally(self, file: StateFileName, content: memoryview) -> None:
        os.makedirs(self._path, exist_ok=True)
        unfinished = f"{self._path}/.{file}"
        with open(unfinished, "wb") as out:
            out.write(content)
            out.flush()
            # The offset that names this file survives a crash of the machine, so the file must too.
            os.fsync(out.fileno())
        os.replace(unfinished, self._file(file))

    def list(self) -> dict[StateFileName, int]:
        """See :meth:`StateFiles.list`."""
        with _translated(self._location):
            found = self._files.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
        files = {}
        for it in found:
            if it.type == fs.FileType.File:
                with suppress(ValueError):
                    files[StateFileName.parse(it.base_name)] = int(it.size)
        return files

    def delete(self, files: Collection[StateFileName]) -> None:
        """See :meth:`StateFiles.delete`."""
        for file in files:
            with _translated(self._location), suppress(FileNotFoundError):
                self._files.delete_file(self._file(file))

    def _file(self, file: StateFileName) -> str:
        return f"{self._path}/{file}"


@contextmanager
def _translated(location: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as e:
        reason = os.strerror(e.errno) if e.errno else type(e).__name__
        raise StateUnreachable(
            f"The state location '{shown(location)}' cannot be used: {reason}.",
            remedy="Check 'stateLocation' and its permissions; all workers and the driver need it. The query can be restarted.",
        ) from None
