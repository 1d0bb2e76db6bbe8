"""The injection of faults into the queries of a campaign. Used by ``integration_tests.campaign``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from integration_tests.campaign.fault import Fault
from integration_tests.campaign.history import CampaignHistory
from integration_tests.campaign.members import CampaignMember, all_are_up, waiting_file
from integration_tests.campaign.resets import RequestedResets
from integration_tests.campaign.single_processes import SingleProcesses
from integration_tests.campaign.turns import ABORT_POINTS, AT_RANDOM, EXECUTOR_VICTIMS, needs_rebalance, needs_reset
from integration_tests.campaign.zombies import Zombies
from streamgroups_testkit.waits import wait_until


class FaultInjector:
    """Arms points, and injects faults into the processes that reach them.

    Args:
        directory: the directory of the files that arm points.
        members: the members that a fault can hit.
        single: chooses single processes.
        zombies: freezes members.
        requested: resets of the group to known positions.
        sink: the sink of the queries.
        history: records the faults.
    """

    def __init__(
        self,
        directory: Path,
        members: Sequence[CampaignMember],
        single: SingleProcesses,
        zombies: Zombies,
        requested: RequestedResets,
        sink: str,
        history: CampaignHistory,
    ) -> None:
        directory.mkdir(parents=True)
        self._directory, self._single, self._zombies = directory, single, zombies
        self._requested, self._sink, self._history = requested, sink, history
        self._members = {member.name: member for member in members}
        self._stalled: set[Path] = set()
        self._faults: dict[str, Fault] = {}

    def add(self, *faults: Mapping[str, Fault]) -> None:
        """Adds faults by their names."""
        for of_module in faults:
            self._faults.update(of_module)

    def inject(self, point: str, victim: str, timeout_s: float) -> bool:
        """Waits until a process reaches a point, and injects a fault; ``False`` after an error of a state.

        At the point ``at-random`` no process waits. The fault hits a random process at a random time.

        Raises:
            AssertionError: if no process reaches the point in time.
        """
        fault = self._faults[victim]
        fault.prepare()
        # Only the last member has executors.
        names = list(self._members)[-1:] if victim in EXECUTOR_VICTIMS else list(self._members)
        if point == AT_RANDOM:
            member, chosen = self._single.choose([self._members[name] for name in names], victim)
            reached = waiting_file(self._directory, member.name, chosen)
        else:
            self._arm(point, names)
            wait_until(
                lambda: self._is_reached(point) or self.state_errors(),
                f"a member passes {point}; see {self._directory}",
                timeout_s,
            )
        if self.state_errors():
            return False
        if point != AT_RANDOM:
            (reached,) = self._reached()
        _, name, pid = reached.name.split(".")
        self._history.injected(point, victim, name)
        # The query can end the process at the point in the meantime.
        with suppress(psutil.NoSuchProcess):
            fault.begin(int(pid), self._members[name])
        if fault.stays:
            self._stalled.add(reached)
        else:
            reached.unlink(missing_ok=True)
        fault.finish(point, self._members[name])
        self._history.healed(point, victim)
        return True

    def inject_zombie(self, point: str, *, with_reset: bool, timeout_s: float) -> None:
        """Freezes the member that reaches a point until the others have committed past its positions.

        Args:
            point: the point.
            with_reset: whether the others apply a reset. At some points the zombie has begun to apply it.
            timeout_s: the time to reach the point, in seconds.

        Raises:
            AssertionError: if no process reaches the point, or the others do not continue in time.
        """
        self._arm(point, list(self._members))
        in_a_reset = needs_reset(self._sink, point)
        if in_a_reset:
            self._requested.request()
        if needs_rebalance(point):
            self._zombies.rebalance(self._reached)
        wait_until(
            lambda: self.all_are_up() and self._reached(), f"a member passes {point}; see {self._directory}", timeout_s
        )
        (reached,) = self._reached()
        _, name, _ = reached.name.split(".")
        fault = "zombie-reset" if with_reset else "zombie"
        self._history.injected(point, fault, name)
        self._zombies.freeze_while_others_commit(self._members[name], with_reset=with_reset and not in_a_reset)
        reached.unlink()
        self._history.healed(point, fault)

    def until_all_own(self) -> None:
        """Waits until each member owns partitions and the group has committed offsets of all of them."""
        self._zombies.until_all_own()

    def _arm(self, point: str, named: Sequence[str]) -> None:
        (self._directory / f".{point}").write_text(" ".join(named))
        (self._directory / f".{point}").rename(self._directory / point)

    def _is_reached(self, point: str) -> bool:
        """Whether a process is at a point. Starts the members that are not running, and makes batches fail if the point needs it."""
        self.all_are_up()
        if self._reached():
            return True
        if point in ABORT_POINTS:
            self._single.fail_batches(list(self._members.values()))
        return False

    def _reached(self) -> list[Path]:
        return [it for it in self._directory.glob("reached.*") if it not in self._stalled]

    def state_errors(self) -> list[str]:
        """The errors of states in the logs of all members."""
        return sorted({error for member in self._members.values() for error in member.state_errors()})

    def all_are_up(self) -> bool:
        """Starts the members that are not running."""
        return all_are_up(self._members.values())

    def give_up(self) -> None:
        """Disarms all points and releases all waiting processes."""
        for left in self._directory.iterdir():
            # A sabotage keeps the number of the last batch of a member.
            if left.suffix != ".last":
                left.unlink()
