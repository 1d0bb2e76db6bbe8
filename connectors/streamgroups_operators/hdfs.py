"""HDFS as a file system of Arrow: by Hadoop's native library, or by the package ``hdfs-native``.

Called by ``locations``. Hadoop's library is tried first, because it reads all settings of a cluster, Kerberos too. A host without
``libhdfs.so`` needs ``hdfs-native``, which the extra ``hdfs`` installs. It reads ``core-site.xml`` and ``hdfs-site.xml`` in
``HADOOP_CONF_DIR``.

A file of HDFS is visible while it is written, so :func:`write_and_rename` writes it under another name. Renaming is atomic. Source:
Arrow's ``HadoopFileSystem`` and ``FileSystemHandler``; Hadoop's ``FileContext.rename``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from streamgroups.errors import MissingExtra
from streamgroups.location_uris import LocationUri
from streamgroups_operators.local_files import unfinished_path

_SCHEME = "hdfs"
#: The beginnings of Arrow's errors if Hadoop's library, or Java, is not there.
_NOT_LOADED = ("Unable to load lib", "Prior attempt to load lib")


def is_hdfs_uri(location: str) -> bool:
    """Whether a location is on HDFS.

    >>> is_hdfs_uri("hdfs://namenode:8020/state"), is_hdfs_uri("s3://bucket/state")
    (True, False)
    """
    return location.startswith(f"{_SCHEME}:")


def is_hdfs(files: fs.FileSystem) -> bool:
    """Whether a file system is one of :func:`open_hdfs`."""
    return files.type_name in (_SCHEME, f"py::{_SCHEME}")


def open_hdfs(uri: str) -> tuple[fs.FileSystem, str]:
    """Returns the file system of a URI, and the path in it.

    Args:
        uri: such as ``hdfs://namenode:8020/state``. Without a host, it is the default file system of Hadoop's configuration.

    Raises:
        MissingExtra: if neither Hadoop's library nor ``hdfs-native`` is there.
        OSError: if the name node does not answer.
    """
    parsed = LocationUri.parse(uri)
    found = _by_hadoop(parsed.encoded())
    if found is not None:
        return found
    # A forked process has no threads of its parent, so it needs a client of its own.
    return _native(f"{_SCHEME}://{urlsplit(parsed.root).netloc}", os.getpid()), parsed.path


def _by_hadoop(uri: str) -> tuple[fs.FileSystem, str] | None:
    """As :func:`open_hdfs`, by Hadoop's library; ``None`` without it."""
    try:
        files, path = fs.FileSystem.from_uri(uri)
    except OSError as e:
        if not str(e).startswith(_NOT_LOADED):
            raise
        return None
    return files, str(path)


def write_and_rename(
    files: fs.FileSystem, path: str, parts: Iterable[bytes | memoryview], *, is_contended: bool = False
) -> None:
    """Writes a file. It is visible as a whole, or not at all; it replaces one with the same name.

    Args:
        files: a file system of :func:`open_hdfs`.
        path: the file.
        parts: the content, in order.
        is_contended: whether other processes can write the same file at once.

    Raises:
        OSError: if it cannot be written. An unfinished file is removed.
    """
    unfinished = unfinished_path(path, is_contended=is_contended)
    try:
        with files.open_output_stream(unfinished) as out:
            for part in parts:
                out.write(part)
            # The data nodes have the content on their disks.
            out.flush()
        _rename(files, unfinished, path)
    except BaseException:
        with suppress(OSError):
            files.delete_file(unfinished)
        raise


def _rename(files: fs.FileSystem, source: str, target: str) -> None:
    try:
        files.move(source, target)
    except OSError:
        # Hadoop's library does not replace a file.
        if files.get_file_info(target).type != fs.FileType.File:
            raise
        files.delete_file(target)
        files.move(source, target)


@lru_cache(maxsize=16)
def _native(name_node: str, _: int) -> fs.FileSystem:
    try:
        module = import_module("hdfs_native")
    except ImportError as e:
        raise MissingExtra(
            "A location on HDFS needs Hadoop's native library 'libhdfs.so', or the package hdfs-native. Neither is there.",
            remedy="Install the extra on the driver and on all workers: pip install '.[hdfs]' in the clone of streamgroups, or "
            "'WHEEL[hdfs]' with its wheel. Or set ARROW_LIBHDFS_DIR to the directory of libhdfs.so, and CLASSPATH to the output of 'hadoop classpath --glob'.",
        ) from e
    with _errors():
        return fs.PyFileSystem(HdfsHandler(module.Client(name_node), partial(module.WriteOptions, overwrite=True)))


class HdfsHandler(fs.FileSystemHandler):  # type: ignore[misc]  # Arrow has no types of it.
    """A file system of Arrow on a client of ``hdfs-native``.

    Args:
        client: the client.
        options: returns the options of a new file, which replaces one with the same name.
    """

    def __init__(self, client: Any, options: Callable[[], Any]) -> None:
        self._client, self._options = client, options

    def get_type_name(self) -> str:
        return _SCHEME

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Iterable[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        with _errors():
            try:
                found = list(self._client.list_status(selector.base_dir, selector.recursive))
            except FileNotFoundError:
                if selector.allow_not_found:
                    return []
                raise
            # The list of a file has the file itself.
            if [it.path for it in found] == [selector.base_dir]:
                raise NotADirectoryError(selector.base_dir)
            return [_file_info(it) for it in found]

    def create_dir(self, path: str, recursive: bool) -> None:
        with _errors():
            self._client.mkdirs(path, create_parent=recursive)

    def delete_dir(self, path: str) -> None:
        with _errors():
            if not self._client.delete(path, True):
                raise FileNotFoundError(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        for it in self.get_file_info_selector(fs.FileSelector(path, allow_not_found=missing_dir_ok)):
            self.delete_dir(it.path)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError("The whole file system is never deleted.")

    def delete_file(self, path: str) -> None:
        if self._info(path).type == fs.FileType.NotFound:
            raise FileNotFoundError(path)
        with _errors():
            self._client.delete(path, False)

    def move(self, src: str, dest: str) -> None:
        with _errors():
            self._client.rename(src, dest, True)

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError("Files are read and written in parts.")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        with _errors():
            return pa.PythonFile(self._client.read(path), mode="r")

    def open_input_file(self, path: str) -> pa.NativeFile:
        return self.open_input_stream(path)

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        with _errors():
            return pa.PythonFile(_Writer(self._client.create(path, self._options())), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        raise NotImplementedError("Files never change.")

    def _info(self, path: str) -> fs.FileInfo:
        with _errors():
            try:
                return _file_info(self._client.get_file_info(path))
            except FileNotFoundError:
                return fs.FileInfo(path, fs.FileType.NotFound)


class _Writer:
    """A new file, as Arrow uses it."""

    def __init__(self, file: Any) -> None:
        self._file, self.closed = file, False

    def write(self, content: Any) -> int:
        with _errors():
            return int(self._file.write(content))

    def flush(self) -> None:
        with _errors():
            self._file.hsync()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with _errors():
                self._file.close()


def _file_info(status: Any) -> fs.FileInfo:
    kind = fs.FileType.Directory if status.isdir else fs.FileType.File
    size = None if status.isdir else status.length
    return fs.FileInfo(status.path, kind, size=size, mtime_ns=status.modification_time * 1_000_000)


@contextmanager
def _errors() -> Iterator[None]:
    """Raises the errors of the client as those of files. Their text has the stack of the name node after its first line."""
    try:
        yield
    except (RuntimeError, OSError) as e:
        # The line ends of a quoted text are quoted too.
        text = str(e).partition("\\n")[0].partition("\n")[0]
        raise (type(e) if isinstance(e, OSError) else OSError)(text) from e
