"""A disk that gets full: a small file system in memory with the checkpoints and the states of all queries of a campaign.

Used by ``campaign.machines``. The history, the logs and the brokers are on another file system. A query that cannot write fails,
and restarts until there is space. Source: SEMANTICS X4, S10; ``tmpfs(5)``.
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

from streamgroups_testkit.waits import wait_until

#: The name of the fault.
FAULT = "disk-full"
#: Enough for the states of a campaign with windows.
SIZE_MIB = 256
#: The disk is full for at least this long, and until a query has failed because of it.
_FULL_S = 10.0
_TIMEOUT_S = 180.0
_BLOCK = bytes(1 << 20)
#: The text of the error in the log of a query, from Python and from Java.
_TEXT = os.strerror(errno.ENOSPC)


class SmallDisk:
    """A file system of a fixed size. Needs the right to mount one.

    Args:
        mount_point: a directory that does not exist.
        size_mib: its size in MiB.

    Raises:
        AssertionError: if this process cannot mount a file system.
    """

    def __init__(self, mount_point: Path, size_mib: int = SIZE_MIB) -> None:
        self.path = mount_point
        self._filler = mount_point / "filler"
        mount_point.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "campaign", str(mount_point)]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        assert mounted.returncode == 0, f"the fault '{FAULT}' mounts a file system: {mounted.stderr.strip()}"
        self._unmount = weakref.finalize(self, _unmount, mount_point)

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

    def unmount(self) -> None:
        """Removes the file system, also with open files. The end of this process removes it too."""
        self._unmount()


def _unmount(mount_point: Path) -> None:
    subprocess.run(["umount", "--lazy", str(mount_point)], capture_output=True, check=False)


def full_until_noticed(
    disk: SmallDisk, logs: Sequence[Path], see_to_all: Callable[[], object], release: Callable[[], object]
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
    before = n_errors(logs)
    disk.fill()
    try:
        assert disk.is_full, f"{disk.path} is not full"
        release()
        until_s = time.monotonic() + _FULL_S

        def is_noticed() -> bool:
            see_to_all()
            # A query has deleted old files.
            disk.fill()
            return n_errors(logs) > before and time.monotonic() > until_s

        wait_until(is_noticed, f"a query fails because {disk.path} is full", _TIMEOUT_S, 0.5)
        return n_errors(logs) - before
    finally:
        disk.free()


def n_errors(logs: Sequence[Path]) -> int:
    """How often logs contain that there is no space."""
    return sum(log.read_text(errors="replace").count(_TEXT) for log in logs if log.exists())
