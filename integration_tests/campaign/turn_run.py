"""The part of a campaign while its queries run: its turns, and the waits before and after them. Used by ``campaign.running``."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from integration_tests.campaign.faults import FaultInjector
from integration_tests.campaign.savepoints import Creation
from integration_tests.campaign.turns import Turn
from streamgroups_testkit.waits import wait_until

#: The timeout of a fault, in seconds. On a busy machine a query with executors starts in minutes.
_STEP_S = 600


@dataclass(frozen=True, slots=True)
class TurnRun:
    """The part of a campaign while its queries run.

    Args:
        directory: its directory.
        kind: the kind of its queries.
        turns: the points and their faults, in order.
        injector: injects them.
        committed: returns the committed offsets.
        creation: creates savepoints meanwhile, if it is one of them.
        report: called with a description of each turn.
        deadline_s: when it ends, by the monotonic clock.
        last_fault_s: when no more faults are injected.
        kills: how often each fault was injected at each point.
        n_ended: returns how many programs have ended by themselves.
        began: the fault of each turn, and ``n_ended`` when it began.
    """

    directory: Path
    kind: str
    turns: Sequence[Turn]
    injector: FaultInjector
    committed: Callable[[], dict[int, int]]
    creation: Creation | None
    report: Callable[[str], None]
    deadline_s: float
    last_fault_s: float
    kills: Counter[Turn]
    n_ended: Callable[[], int]
    began: list[tuple[str, int]] = field(default_factory=list)

    def wait_for_first_batches(self, n_records: int) -> None:
        """Before the first batches are written, a disabled safeguard has no effect, and a savepoint no content."""
        self._wait_until(
            lambda: sum(self.committed().values()) > n_records or self.injector.state_errors(),
            f"the first batches are written; see {self.directory}",
            _STEP_S,
        )

    def inject_all(self) -> None:
        """Injects the faults of all turns, or those until the time of the last fault or an error of a state."""
        if self.kind == "zombies":
            self.injector.until_all_own()
        for turn, (point, victim) in enumerate(self.turns, 1):
            if self.creation:
                self.creation.permit(turn / (len(self.turns) + 1))
            began_s = time.monotonic()
            # Only a start notices the end of a program.
            self.injector.all_are_up()
            self.began.append((victim, self.n_ended()))
            if not self._inject(point, victim):
                break
            self.kills[point, victim] += 1
            self.report(f"{self.kills.total()}: {point}, {victim}, {time.monotonic() - began_s:.1f} s")
            if time.monotonic() > self.last_fault_s:
                break
        if self.creation:
            creation = self.creation
            creation.permit(1)
            self._wait_until(lambda: creation.is_done, "the savepoints are complete")

    def wait_until_all_is_read(self, is_all_read: Callable[[], bool], timeout_s: float) -> None:
        """Waits until the group has read all records, or a state has an error."""
        self._wait_until(
            lambda: is_all_read() or self.injector.state_errors(),
            f"all is read; see {self.directory}",
            timeout_s,
        )

    def _inject(self, point: str, victim: str) -> bool:
        timeout_s = min(_STEP_S, self._left_s())
        if self.kind == "zombies":
            self.injector.inject_zombie(point, with_reset=victim == "zombie-reset", timeout_s=timeout_s)
            return True
        return self.injector.inject(point, victim, timeout_s)

    def _wait_until(self, condition: Callable[[], object], what: str, timeout_s: float = math.inf) -> None:
        wait_until(lambda: self.injector.all_are_up() and condition(), what, min(timeout_s, self._left_s()))

    def _left_s(self) -> float:
        return max(1.0, self.deadline_s - time.monotonic())
