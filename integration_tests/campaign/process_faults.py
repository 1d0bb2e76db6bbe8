"""The faults of the processes of a query: kills, freezes, and a lost response. Used by ``campaign.running``.

Source: SEMANTICS C3, F1-F3, G8, X1-X4.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from integration_tests.campaign.fault import Fault
from integration_tests.campaign.members import CampaignMember, waiting_file
from integration_tests.campaign.single_processes import PARTS, SingleProcesses, processes_of
from integration_tests.campaign.turns import STALL
from integration_tests.campaign.zombies import Zombies, frozen
from streamgroups_testkit.waits import wait_until

#: Longer than the time without polls after which a member checks its membership, and shorter than the session timeout
#: of 6 s.
_SILENCE_S = 4.0
#: The time for this check while the process still waits at the point.
_AFTER_SILENCE_S = 1.0


def faults_of_processes(deaths: Path, single: SingleProcesses, zombies: Zombies) -> dict[str, Fault]:
    """The faults by their names (``campaign.turns.VICTIMS``).

    Args:
        deaths: the directory of the files that arm points.
        single: freezes single processes.
        zombies: freezes members.
    """

    def lose_answer(pid: int, member: CampaignMember) -> None:
        (deaths / f"lost.{member.name}.{pid}").touch()

    def freeze(part: str, pid: int, member: CampaignMember) -> None:
        # The process at the point continues while the other one is frozen.
        reached = waiting_file(deaths, member.name, pid)
        single.freeze(part, pid, member, partial(reached.unlink, missing_ok=True))

    return {
        "worker": Fault(_kill_process),
        "executor": Fault(_kill_executor),
        "query": Fault(lambda _, member: member.kill()),
        "checkpoint": Fault(_lose_checkpoint),
        "source": Fault(_kill_source),
        "zombie": Fault(lambda _, member: zombies.freeze(member)),
        "silence": Fault(_silence),
        "answer": Fault(lose_answer),
        **{f"freeze-{part}": Fault(partial(freeze, part)) for part in (*PARTS, "poll")},
        STALL: Fault(stays=True),
    }


def _kill_process(pid: int, member: CampaignMember) -> None:
    """Kills the process at the point. The start of an exclusive query reaches points in the driver."""
    process = psutil.Process(pid)
    if process == member.processes()[0]:
        member.kill()
    else:
        process.kill()


def _lose_checkpoint(_: int, member: CampaignMember) -> None:
    member.kill()
    member.lose_checkpoint()


def _silence(_: int, member: CampaignMember) -> None:
    with frozen(member):
        time.sleep(_SILENCE_S)
    time.sleep(_AFTER_SILENCE_S)


def _kill_source(_: int, member: CampaignMember) -> None:
    """Kills the processes of the sources of a member; between two runs of its query, without one, all its processes."""
    found = processes_of("source", member.processes())
    if not found:
        member.kill()
    for process in found:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _kill_executor(pid: int, member: CampaignMember) -> None:
    """Kills the JVM of the executor that a Python worker belongs to; for other processes, any executor of the
    member.
    """

    def found() -> list[psutil.Process]:
        return processes_of("executor", [*psutil.Process(pid).parents(), *member.processes()])

    # After a kill, the new executor may still be starting.
    wait_until(found, f"{member.name} has an executor")
    found()[0].kill()
