"""A real schema registry for tests: Apicurio Registry, with Confluent's REST API and its data in memory.

``ApicurioRegistry`` runs in a process of its own. Its archive is downloaded once into the cache of the embedded broker, and
compared with a checksum. ``FakeSchemaRegistry`` is quicker, and can fail. Source: Apicurio Registry 3, ``ccompat`` v7.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import IO

from streamgroups.errors import EmbeddedBrokerError
from streamgroups.private_directories import make_private
from streamgroups_broker._cache import cache_root
from streamgroups_broker._ivy import MIRROR_VARIABLE, retrieve_archive
from streamgroups_broker._java import find_java
from streamgroups_broker._ports import free_ports

_VERSION = "3.0.9"
_COORDINATE = f"io.apicurio:apicurio-registry-app:{_VERSION}:tar.gz:all"
_SHA_256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
_START_S, _STOP_S, _POLL_S = 120.0, 10.0, 0.1


class ApicurioRegistry:
    """A registry on a free port of 127.0.0.1, as a context manager. It needs Java 17.

    Example::

        with ApicurioRegistry() as server:
            registry = sg.schemas.SchemaRegistry(server.url)
    """

    def __init__(self) -> None:
        [port] = free_ports(1)
        #: The URL of the registry.
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        # A test sends few requests: a quick start is worth more than full compilation.
        options = (
            "-Xmx512m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Dquarkus.http.host=127.0.0.1",
            f"-Dquarkus.http.port={port}",
        )
        jar = _installed() / f"apicurio-registry-app-{_VERSION}-runner.jar"
        self._command = [find_java().executable, *options, "-jar", str(jar)]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ApicurioRegistry:
        with tempfile.TemporaryFile() as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=subprocess.STDOUT)
            try:
                self._wait(output)
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait(self, output: IO[bytes]) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_S
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self.url}/subjects", timeout=5):
                    return
            except OSError:
                time.sleep(_POLL_S)
        output.seek(0)
        printed = output.read()[-2000:].decode(errors="replace")
        raise EmbeddedBrokerError(f"The schema registry did not start: {printed}", remedy="Check Java and its memory.")


def _installed() -> Path:
    """Returns the directory of the registry in the cache. One of several processes downloads it."""
    directory = cache_root() / f"apicurio-registry-{_VERSION}"
    if directory.is_dir():
        return directory
    make_private(directory.parent)
    with directory.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.is_dir():
            work = Path(tempfile.mkdtemp(prefix=".apicurio-", dir=directory.parent))
            try:
                with tarfile.open(_downloaded(work)) as archive:
                    archive.extractall(work / "all", filter="data")
                os.rename(work / "all", directory)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return directory


def _downloaded(work: Path) -> Path:
    path = retrieve_archive(work, _COORDINATE, find_java())
    if hashlib.sha256(path.read_bytes()).hexdigest() != _SHA_256:
        raise EmbeddedBrokerError(
            f"The archive of Apicurio Registry {_VERSION} is not the one that streamgroups expects.",
            remedy=f"Check the Maven repository or the mirror in {MIRROR_VARIABLE}.",
        )
    return path
