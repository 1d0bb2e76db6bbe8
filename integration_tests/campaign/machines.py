"""The machine of a campaign, whose clocks jump and whose disk gets full. Used by ``campaign.running``.

It is prepared only for campaigns whose turns need it: a clock needs a compiler, and a disk the right to mount one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from integration_tests.campaign.fault import Fault
from integration_tests.campaign.full_disks import (
    BROKER_FAULT,
    Disk,
    SmallDisk,
    full_until_brokers_end,
    full_until_noticed,
)
from integration_tests.campaign.full_disks import FAULT as DISK_FULL
from integration_tests.campaign.members import CampaignMember, waiting_file
from integration_tests.campaign.moved_clocks import FAULT as CLOCK
from integration_tests.campaign.moved_clocks import MovedClocks
from integration_tests.campaign.turns import Turn
from streamgroups_broker import EmbeddedKafka
from streamgroups_testkit.waits import wait_until

#: The query runs for at least this time between two jumps.
_MOVED_S = 5.0


class Machine:
    """The clocks and the disk of the queries of a campaign.

    Args:
        directory: the directory of the campaign.
        turns: its turns.
        seed: its seed.
        kafka: the brokers, if they are a target of faults.

    Raises:
        AssertionError: if the machine cannot have a fault of the turns.
    """

    def __init__(self, directory: Path, turns: Sequence[Turn], seed: int, kafka: EmbeddedKafka | None = None) -> None:
        faults = {fault for _, fault in turns}
        self._directory = directory
        self._clocks = MovedClocks(directory, seed) if CLOCK in faults else None
        self._disk = SmallDisk(directory / "disk") if DISK_FULL in faults else None
        self._kafka = kafka if BROKER_FAULT in faults else None
        if self._kafka is not None:
            assert self._kafka.data_dir.is_mount(), f"{self._kafka.data_dir} is not a small disk"

    @property
    def storage(self) -> Path:
        """The directory of checkpoints and states."""
        return self._directory if self._disk is None else self._disk.path

    def environment(self, member: str) -> Mapping[str, str]:
        """The environment variables of the processes of a member."""
        return {} if self._clocks is None else self._clocks.environment(member)

    def faults(
        self, deaths: Path, members: Sequence[CampaignMember], see_to_all: Callable[[], object]
    ) -> dict[str, Fault]:
        """The faults by their names.

        Args:
            deaths: the directory of the files that arm points.
            members: the members.
            see_to_all: starts the members that are not running.
        """
        faults: dict[str, Fault] = {}
        clocks, disk = self._clocks, self._disk
        if clocks is not None:

            def jump(pid: int, member: CampaignMember) -> None:
                _release(deaths, member, pid)
                clocks.jump_and_wait(member.name)
                until_s = time.monotonic() + _MOVED_S
                wait_until(lambda: see_to_all() and time.monotonic() > until_s, "batches with the moved clock")

            faults[CLOCK] = Fault(jump)
        if disk is not None:
            logs = [member.log for member in members]

            def fill(pid: int, member: CampaignMember) -> None:
                full_until_noticed(disk, logs, see_to_all, partial(_release, deaths, member, pid))

            faults[DISK_FULL] = Fault(fill)
        kafka = self._kafka
        if kafka is not None:

            def fill_brokers(pid: int, member: CampaignMember) -> None:
                full_until_brokers_end(Disk(kafka.data_dir), kafka, see_to_all, partial(_release, deaths, member, pid))

            faults[BROKER_FAULT] = Fault(fill_brokers)
        return faults

    def close(self) -> None:
        """Removes the disk."""
        if self._disk is not None:
            self._disk.unmount()


def _release(deaths: Path, member: CampaignMember, pid: int) -> None:
    waiting_file(deaths, member.name, pid).unlink(missing_ok=True)
