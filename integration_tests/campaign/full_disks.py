"""Disks that get full: small file systems in memory. One has the checkpoints and the states of all queries of a campaign, and
another one the data of the brokers.

Used by ``campaign.machines`` and ``integration_tests.campaign``. The history and the logs of queries are on another file system. A
query that cannot write fails, and restarts until there is space. A broker that cannot write ends. Source: SEMANTICS X4, S10;
``tmpfs(5)``.
"""

from __future__ import annotations

import errno
import os
import subprocess
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from integration_tests.campaign.members import count_in
from streamgroups_broker import EmbeddedKafka
from streamgroups_testkit.waits import wait_until

#: The names of the faults: of queries, and of brokers.
FAULT, BROKER_FAULT = "disk-full", "broker-disk-full"
#: Enough for the states of a campaign with windows.
SIZE_MIB = 256
#: Enough for the topics of a campaign.
BROKER_SIZE_MIB = 512
#: The disk is full for at least this long, and until a query has failed because of it.
_FULL_S = 10.0
_TIMEOUT_S = 180.0
_BLOCK = bytes(1 << 20)
#: The text of the error in the log of a query, from Python and from Java.
_TEXT = os.strerror(errno.ENOSPC)


class Disk:
    """A mounted file system.

    Args:
        path: its directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self) -> int:
        """Writes until there is no space; may be called again. Returns the number of written bytes."""
        n_bytes = 0
        with self._filler.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                n_bytes += file.write(_BLOCK)
        return n_bytes

    @property
    def is_full(self) -> bool:
        """Whether a write of one byte fails, because there is no space."""
        probe = self.path / "probe"
        try:
            probe.write_bytes(b"x")
        except OSError as e:
            return e.errno == errno.ENOSPC
        finally:
            probe.unlink(missing_ok=True)
        return False

    def free(self) -> None:
        """Deletes what :meth:`fill` has written."""
        self._filler.unlink(missing_ok=True)


class SmallDisk(Disk):
    """A file system of a fixed size, which this process mounts. It needs the right to do so.

    Args:
        mount_point: a directory that does not exist.
        size_mib: its size in MiB.

    Raises:
        AssertionError: if this process cannot mount a file system.
    """

    def __init__(self, mount_point: Path, size_mib: int = SIZE_MIB) -> None:
        super().__init__(mount_point)
        mount_point.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "campaign", str(mount_point)]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        assert mounted.returncode == 0, f"a full disk needs a mounted file system: {mounted.stderr.strip()}"
        self._unmount = weakref.finalize(self, _unmount, mount_point)

    def unmount(self) -> None:
        """Removes the file system, also with open files. The end of this process removes it too."""
        self._unmount()


def _unmount(mount_point: Path) -> None:
    subprocess.run(["umount", "--lazy", str(mount_point)], capture_output=True, check=False)


def full_until_noticed(
    disk: Disk, logs: Sequence[Path], see_to_all: Callable[[], object], release: Callable[[], object]
) -> int:
    """Fills a disk until a query has failed because of it, and frees it again.

    Args:
        disk: the disk.
        logs: the logs of the queries.
        see_to_all: starts the queries that are not running.
        release: lets the process at the point continue, when the disk is full.

    Returns:
        The number of new errors in the logs.

    Raises:
        AssertionError: if the disk is not full, or no query fails.
    """
    before = count_in(logs, _TEXT)
    what = f"a query fails because {disk.path} is full"
    _full_until(disk, lambda: count_in(logs, _TEXT) > before, what, see_to_all, release, _FULL_S)
    return count_in(logs, _TEXT) - before


def full_until_brokers_end(
    disk: Disk, kafka: EmbeddedKafka, see_to_all: Callable[[], object], release: Callable[[], object]
) -> None:
    """Fills the disk of brokers until one has ended because of it, frees it again, and restarts them.

    Args:
        disk: the disk.
        kafka: the brokers.
        see_to_all: starts the queries that are not running.
        release: lets the process at the point continue, when the disk is full.

    Raises:
        AssertionError: if the disk is not full, or no broker ends.
    """
    assert kafka.running, "the brokers run"
    what = f"a broker ends because {disk.path} is full"
    _full_until(disk, lambda: not kafka.running, what, see_to_all, release)
    for node_id in kafka.node_ids:
        kafka.restart_node(node_id)


def _full_until(
    disk: Disk,
    is_noticed: Callable[[], bool],
    what: str,
    see_to_all: Callable[[], object],
    release: Callable[[], object],
    min_s: float = 0.0,
) -> None:
    disk.fill()
    try:
        assert disk.is_full, f"{disk.path} is not full"
        release()
        until_s = time.monotonic() + min_s

        def is_done() -> bool:
            see_to_all()
            # A query or a broker has deleted old files.
            disk.fill()
            return is_noticed() and time.monotonic() >= until_s

        wait_until(is_done, what, _TIMEOUT_S, 0.5)
    finally:
        disk.free()
