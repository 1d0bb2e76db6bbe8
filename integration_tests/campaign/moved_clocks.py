"""Jumps of the wall clocks of queries by one hour. Used by ``campaign.running`` and ``campaign.faults``.

``dying/moved_clock.c`` moves the clock of all Python processes of one query: driver, source and workers. The clocks of the other
queries, the producer, the brokers and the checkers do not move, and neither do those of the JVMs. A jump lasts until the next one.
Source: SEMANTICS G5, S10, W5.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from integration_tests.history.real_time import CLOCK, CONTENT
from streamgroups_testkit.waits import wait_until

#: The name of the fault.
FAULT = "clock"
HOUR_S = 3_600
_SOURCE = Path(__file__).parent.parent / "dying" / "moved_clock.c"
#: Each way to read the wall clock in Python: two modules, and functions and classes that were imported before.
_READS = """
from datetime import datetime
from time import time, time_ns
import sys, time as times
for line in sys.stdin:
    print(time(), time_ns() / 1e9, times.time(), datetime.now().timestamp(), flush=True)
"""
#: A process is at most this long between the read of its clock and that of the campaign.
_SLOW_S = 300.0
#: A query that is starting reads its clock within this time.
_READ_TIMEOUT_S = 120.0


def offsets(seed: int) -> Iterator[int]:
    """The offset of a clock after each jump, in seconds: a jump is one hour, forward or back.

    >>> list(itertools.islice(offsets(2), 5))
    [3600, 0, -3600, 0, 3600]
    >>> list(itertools.islice(offsets(3), 5))
    [-3600, 0, 3600, 0, -3600]
    """
    first = HOUR_S if seed % 2 == 0 else -HOUR_S
    return itertools.cycle([first, 0, -first, 0])


class MovedClocks:
    """The wall clocks of queries.

    Args:
        directory: an existing directory of the campaign.
        seed: the seed of the first direction.

    Raises:
        AssertionError: if the machine has no compiler for C, or the library does not move a clock.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory, self._seed = directory, seed
        self._library = directory / "moved_clock.so"
        self._offsets: dict[str, Iterator[int]] = {}
        compiler = shutil.which("cc") or shutil.which("gcc")
        assert compiler is not None, "the fault 'clock' needs a compiler for C"
        command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(self._library), str(_SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        self._verify()

    def environment(self, member: str) -> Mapping[str, str]:
        """The environment variables of a member. Creates its clock, which is right."""
        file = self._file(member)
        if not file.exists():
            file.write_bytes(CONTENT.pack(0, 0))
        return {"LD_PRELOAD": str(self._library), CLOCK: str(file)}

    def jump(self, member: str) -> int:
        """Moves the clock of a member by one hour, and returns its new offset in seconds."""
        offset_s = next(self._offsets.setdefault(member, offsets(self._seed)))
        with self._file(member).open("r+b") as file:
            file.write(CONTENT.pack(offset_s, 0)[: CONTENT.size // 2])
        return offset_s

    def reads(self, member: str) -> int:
        """How often processes of a member have read a wall clock that was wrong."""
        return int(CONTENT.unpack(self._file(member).read_bytes())[1])

    def jump_and_wait(self, member: str) -> None:
        """Moves the clock of a member until its processes have read the wrong time.

        Raises:
            AssertionError: if no process reads it.
        """
        before = self.reads(member)
        if self.jump(member) != 0:
            wait_until(lambda: self.reads(member) > before, f"{member} reads its moved clock", _READ_TIMEOUT_S)

    def _file(self, member: str) -> Path:
        return self._directory / f"clock-{member}"

    def _verify(self) -> None:
        """A process that has imported its functions before a jump must see the jump."""
        name = "verified"
        environment = {**os.environ, **self.environment(name)}
        command = [sys.executable, "-c", _READS]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            found = []
            for _ in range(5):
                print(file=process.stdin, flush=True)
                found.append([float(it) - time.time() for it in process.stdout.readline().split()])
                self.jump(name)
            process.stdin.close()
        expected = [0, *itertools.islice(offsets(self._seed), 4)]
        assert all(
            len(differences) == 4 and all(abs(it - offset_s) < _SLOW_S for it in differences)
            for differences, offset_s in zip(found, expected, strict=True)
        ), f"the library does not move the clock: {found}"
