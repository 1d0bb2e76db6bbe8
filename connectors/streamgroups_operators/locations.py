"""The storage of state files: a local directory, HDFS, or any file system that Arrow reads.

Created by ``streamgroups_spark`` in tasks and on the driver, and by ``streamgroups state``. Implements
:class:`streamgroups.state.state_files.StateFiles`. An object store makes an object visible as a whole, so no file is
renamed there. In a local directory ``local_files`` makes a file durable, and on HDFS ``hdfs`` renames it.

The files of an operator are in ``<location>/<group>/<operator>``. The directory of a very long name has a hash instead, and
contains a file with the name (:mod:`streamgroups.path_names`).
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
from pyarrow import fs

from streamgroups.errors import InvalidOption, StateUnreachable
from streamgroups.location_uris import LocationUri, check_location
from streamgroups.path_names import is_hashed, name_of, path_part
from streamgroups.state.file_ages import StoredFile, Survey
from streamgroups.state.file_names import StateFileName
from streamgroups.threads import in_threads
from streamgroups.url_logins import has_password, without_login
from streamgroups_operators.hdfs import is_hdfs, is_hdfs_uri, open_hdfs, write_and_rename
from streamgroups_operators.local_files import make_durable, sync_directory, write_durably

_SCHEME = re.compile(r"[A-Za-z][\w+.-]*:")
#: The prefix by which Spark and Hadoop write a local path. ``file://data/x`` has a host, and ``file:x`` is relative.
_LOCAL = re.compile(r"file:(?://(?=/)|(?=/(?!/)))")
#: The scheme of S3, and those of Hadoop for it.
_S3 = re.compile(r"^s3[an]?:")
_S3_ACCESS = (
    "Python connects to S3 with the environment variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and "
    "AWS_ENDPOINT_URL of the driver and the executors, or with the role of the machine. It does not have Spark's settings "
    "'spark.hadoop.fs.s3a.*'."
)
_ENCODED = (
    " Percent-encode the special characters of a login: '/' is %2F, '@' is %40, ':' is %3A, '[' is %5B, and ']' is %5D."
)
_ONE_REQUEST = "allow_delayed_open"
#: The file with the name of a directory that has its hash.
_NAME_FILE = "name.txt"


def open_location(location: str) -> tuple[fs.FileSystem, str]:
    """Returns the file system of a location, and the path in it.

    Args:
        location: a path, or a URI of a file system that Arrow can read. Its path is a text, as in Spark: ``%20`` is no space.
            Arrow's parameters can follow, as in ``?region=eu-west-1``.

    Raises:
        InvalidOption: if its path is relative after a scheme, or ``file:`` has a host.
        OSError: if the file system cannot be reached.
        ValueError: if Arrow does not support the file system.
        MissingExtra: if it is HDFS, and no client of HDFS is there.

    >>> open_location("file:/data/state")[1]
    '/data/state'
    >>> open_location("gs://anonymous@bucket/a%20b")[1]
    'bucket/a%20b'
    """
    check_location(location, "The location")
    is_directory, location = is_local(location), _LOCAL.sub("", location)
    if is_directory:
        return fs.LocalFileSystem(), os.path.abspath(location)
    files, path = open_hdfs(location) if is_hdfs_uri(location) else _from_uri(_S3.sub("s3:", location))
    return files, path.rstrip("/")


def is_local(location: str) -> bool:
    """Whether a location is a directory of this machine, or one that is mounted there.

    >>> is_local("/data/state"), is_local("file:///data/state"), is_local("s3://bucket/state")
    (True, True, False)
    """
    return not _SCHEME.match(_LOCAL.sub("", location))


def _from_uri(location: str) -> tuple[fs.FileSystem, str]:
    uri = LocationUri.parse(location)
    if uri.root.startswith("s3:") and _ONE_REQUEST not in uri.parameters:
        # A state file is small: one request writes it, instead of the three of a multipart upload.
        with suppress(pa.ArrowInvalid):
            return _opened_uri(uri.encoded(f"{_ONE_REQUEST}=true"))
    # Older versions of Arrow do not have this parameter.
    return _opened_uri(uri.encoded())


def _opened_uri(uri: str) -> tuple[fs.FileSystem, str]:
    files, path = fs.FileSystem.from_uri(uri)
    return files, str(path)


def remedy_at(location: str, remedy: str) -> str:
    """The remedy for a location that cannot be used. For S3 it names the settings that Arrow reads, because they are not those of
    Spark.

    Args:
        location: a path, or a URI.
        remedy: the remedy for each location.

    >>> remedy_at("s3a://bucket/board", "Check it.").startswith("Check it. Python connects to S3 with the environment variables")
    True
    >>> remedy_at("/data/board", "Check it.")
    'Check it.'
    """
    return f"{remedy} {_S3_ACCESS}" if _S3.match(location) else remedy


def shown(location: str) -> str:
    """The location without its credentials and parameters, for messages.

    >>> shown("s3://key:secret@bucket/state?endpoint_override=localhost:9000"), shown("s3a://AKIA:wJalr/K7MDENG@bucket/x")
    ('s3://bucket/state', 's3a://bucket/x')
    """
    if not _SCHEME.match(location):
        return location
    uri = LocationUri.parse(without_login(location))
    scheme, _, host = uri.root.partition(":")
    return f"{scheme.lower()}://{host.removeprefix('//')}{uri.path}"


def files_below(location: str, *names: str) -> StateDirectory:
    """The files of a directory below a location.

    Args:
        location: a path, or a URI of a file system that Arrow can read, such as the option ``stateLocation``.
        names: the names of the directories, outermost first: of an operator with state its group and its name. They can
            contain any character.

    Raises:
        InvalidOption: if Arrow does not support the location.
        StateUnreachable: if the storage does not answer.
    """
    with translated(location):
        files, path = opened(location)
    return StateDirectory(files, path, names, shown(location))


def directories_at(location: str, *names: str) -> list[str]:
    """The names of the directories below a directory of a location. Raises the errors of :func:`files_below`.

    Args:
        location: a path, or a URI of a file system that Arrow can read.
        names: the names of the directories above, outermost first. Without them the directories are those of groups with
            state files, and below a group those of operators.
    """
    with translated(location):
        files, path = opened(location)
        selector = fs.FileSelector("/".join((path, *map(path_part, names))), allow_not_found=True)
        found = [it for it in files.get_file_info(selector) if it.type == fs.FileType.Directory]
        listed = (_name_at(files, it.path) if is_hashed(it.base_name) else name_of(it.base_name) for it in found)
        return sorted(name for name in listed if name is not None)


def _name_at(files: fs.FileSystem, path: str) -> str | None:
    """The name of a directory that has its hash; ``None`` if its first file is not written yet."""
    try:
        with files.open_input_stream(f"{path}/{_NAME_FILE}") as stored:
            return bytes(stored.read()).decode("utf-8", "surrogatepass")
    except FileNotFoundError:
        return None


def opened(location: str, what: str = "state") -> tuple[fs.FileSystem, str]:
    """As :func:`open_location`, with the error for users.

    Args:
        location: a path or a URI.
        what: what the location contains, ``state`` or ``checkpoint``.

    Raises:
        InvalidOption: if Arrow does not support the location.
    """
    try:
        return open_location(location)
    except (ValueError, pa.ArrowException) as e:
        # The text of the error can contain the credentials of the URI.
        raise InvalidOption(
            f"The {what} location '{shown(location)}' is not supported ({type(e).__name__}).",
            remedy=f"Use a path, or a URI of a file system that Arrow reads, such as s3://bucket/{what}."
            + (_ENCODED if has_password(location) else ""),
        ) from None


def write_file(
    files: fs.FileSystem,
    root: str,
    path: str,
    parts: Iterable[bytes | memoryview],
    *,
    syncs_name: bool = True,
    is_contended: bool = False,
) -> None:
    """Writes a file, which is visible as a whole. A local file is durable, and so is an object.

    Args:
        files: the file system.
        root: the directory of the location in it.
        path: the file, below ``root``.
        parts: the content, in order.
        syncs_name: whether the name of a local file is durable, too.
        is_contended: whether other processes can write the same file at once.

    Raises:
        OSError: if it cannot be written.
    """
    if isinstance(files, fs.LocalFileSystem):
        write_durably(root, path, parts, syncs_name=syncs_name, is_contended=is_contended)
        return
    if is_hdfs(files):
        write_and_rename(files, path, parts, is_contended=is_contended)
        return
    with files.open_output_stream(path) as out:
        for part in parts:
            out.write(part)


class StateDirectory:
    """See :class:`streamgroups.state.state_files.CollectableFiles`.

    Args:
        files: the file system.
        root: the directory of the location in it.
        names: the names of the directories below, outermost first.
        location: the location, for messages.
    """

    def __init__(self, files: fs.FileSystem, root: str, names: tuple[str, ...], location: str) -> None:
        self._files, self._root, self._location = files, root, location
        self._path = root
        #: Files with names to write before the first file.
        self._names: dict[str, str] = {}
        for name in names:
            part = path_part(name)
            self._path = f"{self._path}/{part}"
            if is_hashed(part):
                self._names[f"{self._path}/{_NAME_FILE}"] = name

    @property
    def location(self) -> str:
        """See :attr:`StateFiles.location`."""
        return self._location

    def read(self, file: StateFileName) -> memoryview:
        """See :meth:`StateFiles.read`."""
        with translated(self._location), self._files.open_input_stream(self._file(file)) as stored:
            return memoryview(stored.read())

    def write(self, file: StateFileName, content: memoryview) -> None:
        """See :meth:`StateFiles.write`."""
        with translated(self._location):
            self._write_names()
            self._write(self._file(file), [content])

    def parts(self, file: StateFileName, part_bytes: int = 1 << 20) -> Iterator[bytes]:
        """The content of a file, in parts, for files that do not fit into memory.

        Raises:
            FileNotFoundError: if it does not exist.
            StateUnreachable: if the storage does not answer.
        """
        with translated(self._location), self._files.open_input_stream(self._file(file)) as stored:
            while part := stored.read(part_bytes):
                yield part

    def write_parts(self, file: StateFileName, parts: Iterable[bytes]) -> None:
        """Writes a file whose content does not fit into memory.

        An error in between leaves no file. A file that existed before stays, except on an object store.

        Its name is durable after :meth:`sync`. :meth:`create` precedes calls of several threads.

        Raises:
            StateUnreachable: if the storage does not answer, or is full.
        """
        with translated(self._location):
            self._write_names()
            try:
                write_file(self._files, self._root, self._file(file), parts, syncs_name=False)
            except BaseException:
                # An object store completes the upload when the stream is closed. Other files have another name until then.
                if not isinstance(self._files, fs.LocalFileSystem) and not is_hdfs(self._files):
                    with suppress(OSError):
                        self._files.delete_file(self._file(file))
                raise

    def create(self) -> None:
        """Creates the directory. Raises the errors of :meth:`write_parts`."""
        with translated(self._location):
            self._write_names()
            if isinstance(self._files, fs.LocalFileSystem):
                make_durable(self._root, self._path)

    def sync(self) -> None:
        """Makes the names of files of :meth:`write_parts` durable. Raises the errors of :meth:`write_parts`."""
        with translated(self._location), suppress(FileNotFoundError):
            if isinstance(self._files, fs.LocalFileSystem):
                sync_directory(self._path)

    def _write_names(self) -> None:
        for path, name in self._names.items():
            if self._files.get_file_info(path).type == fs.FileType.NotFound:
                content = [name.encode("utf-8", "surrogatepass")]
                write_file(self._files, self._root, path, content, is_contended=True)
        self._names = {}

    def _write(self, path: str, parts: Iterable[bytes | memoryview]) -> None:
        write_file(self._files, self._root, path, parts)

    def list(self) -> dict[StateFileName, int]:
        """See :meth:`StateFiles.list`."""
        with translated(self._location):
            found = self._files.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
        return {file: int(it.size) for it in found if (file := _file_of(it, it.base_name)) is not None}

    def survey(self) -> Survey:
        """See :meth:`CollectableFiles.survey`."""
        with translated(self._location):
            found = self._files.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
            files = {file: it for it in found if (file := _file_of(it, it.base_name)) is not None}
            unfinished = {
                file: it
                for it in found
                if it.base_name.startswith(".") and (file := _file_of(it, it.base_name[1:])) is not None
            }
            now_ns = self._now_ns() if files or unfinished else None
        return Survey(
            {file: _stored(it, now_ns) for file, it in files.items()},
            {file: _stored(it, now_ns) for file, it in unfinished.items()},
        )

    def _now_ns(self) -> int | None:
        """The current time of the storage. A killed process leaves the file as an unfinished one."""
        probe = self._unfinished(StateFileName(time.time_ns() // 1_000_000, uuid.uuid4().hex[:12], 0, 0))
        with self._files.open_output_stream(probe) as out:
            out.write(b"\n")
        try:
            mtime_ns: int | None = self._files.get_file_info(probe).mtime_ns
            return mtime_ns
        finally:
            with suppress(FileNotFoundError):
                self._files.delete_file(probe)

    def delete_unfinished(self, files: Collection[StateFileName]) -> None:
        """See :meth:`CollectableFiles.delete_unfinished`."""
        self._delete(self._unfinished(file) for file in files)

    def delete(self, files: Collection[StateFileName]) -> None:
        """See :meth:`StateFiles.delete`."""
        self._delete(self._file(file) for file in files)

    def _delete(self, paths: Iterable[str]) -> None:
        def delete(path: str) -> None:
            with translated(self._location), suppress(FileNotFoundError):
                self._files.delete_file(path)

        for _ in in_threads(delete, paths):
            pass

    def _file(self, file: StateFileName) -> str:
        return f"{self._path}/{file}"

    def _unfinished(self, file: StateFileName) -> str:
        return f"{self._path}/.{file}"


def _file_of(info: fs.FileInfo, name: str) -> StateFileName | None:
    """The state file of this name; ``None`` for other files."""
    if info.type == fs.FileType.File:
        with suppress(ValueError):
            return StateFileName.parse(name)
    return None


def _stored(info: fs.FileInfo, now_ns: int | None) -> StoredFile:
    has_times = now_ns is not None and info.mtime_ns is not None
    return StoredFile(int(info.size), (now_ns - info.mtime_ns) // 1_000_000 if has_times else None)


@contextmanager
def translated(location: str) -> Iterator[None]:
    """Raises errors of a storage as :class:`~streamgroups.errors.StateUnreachable`."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as e:
        reason = os.strerror(e.errno) if e.errno else type(e).__name__
        raise StateUnreachable(
            f"The location '{shown(location)}' cannot be used: {reason}.",
            remedy=remedy_at(
                location,
                "Check its free space and its permissions. The 'stateLocation' of a query is used by all workers and the driver. The "
                "query or the command can be run again.",
            ),
        ) from None
