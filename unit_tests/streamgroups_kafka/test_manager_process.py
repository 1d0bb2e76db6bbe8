"""P2: the loop of the manager, with a topic in memory and workers that are not started."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest

from streamgroups.errors import BrokerUnreachable, DataLoss, FencedMember, NotAuthorized, StreamGroupsError
from streamgroups.fakes.instance_log import FakeEntryReader, FakeEntryWriter, FakeInstanceLog
from streamgroups.instances.entries import Definition, Desired, Entry, Manager, Replica, Worker
from streamgroups.instances.instance_state import InstanceState
from streamgroups.instances.manager import ManagerSettings
from streamgroups_kafka.instances.manager_process import ManagerProcess


@dataclass
class Launcher:
    """Records the workers that start."""

    started: list[Worker] = field(default_factory=list)
    ended: dict[str, str] = field(default_factory=dict)
    error: StreamGroupsError | None = None

    def start(self, worker: Worker) -> None:
        if self.error is not None:
            raise self.error
        self.started.append(worker)

    def exited(self) -> Mapping[str, str]:
        ended, self.ended = self.ended, {}
        return ended


class Stop:
    """Ends the loop after some steps, before which the test can act."""

    def __init__(self, *actions: Callable[[], object]) -> None:
        self._actions = list(actions)

    def __call__(self) -> bool:
        if not self._actions:
            return True
        self._actions.pop(0)()
        return False


def nothing() -> None: ...


def state_of(log: FakeInstanceLog) -> InstanceState:
    reader = log.reader()
    reader.read_to_end(1)
    return reader.state


def started_log() -> FakeInstanceLog:
    log = FakeInstanceLog()
    log.writer().write([Definition("late", '{"name":"late"}'), Desired("late", True, 1)])
    return log


def test_a_worker_starts_after_its_entry_is_written() -> None:
    log, launcher = started_log(), Launcher()
    ManagerProcess(log, ManagerSettings(), launcher, Stop(nothing, nothing)).run()
    (worker,) = launcher.started
    assert state_of(log).workers == {worker.id: worker}
    assert state_of(log).placements[Replica("late", 0)].worker == worker.id


def test_a_worker_that_cannot_start_is_replaced_later() -> None:
    log, launcher = started_log(), Launcher(error=StreamGroupsError("No such program."))
    ManagerProcess(log, ManagerSettings(), launcher, Stop(nothing, nothing)).run()
    assert not state_of(log).workers
    assert not state_of(log).placements


def test_a_second_manager_fences_the_first() -> None:
    log = started_log()
    clock = itertools.count(1_000, 2_000)
    stop = Stop(nothing, log.manager, nothing, nothing)
    process = ManagerProcess(log, ManagerSettings(), Launcher(), stop, clock=lambda: next(clock))
    with pytest.raises(FencedMember, match="Another manager"):
        process.run()


class Unreachable(FakeInstanceLog):
    """A topic whose broker is unreachable for some writes, which can be in the topic nevertheless."""

    failures = 1
    loses_response = False

    def manager(self) -> FakeEntryWriter:
        writer = super().manager()
        write = writer.write

        def failing(entries: Sequence[Entry]) -> None:
            if self.failures:
                self.failures -= 1
                if self.loses_response:
                    write(entries)
                raise BrokerUnreachable("No broker responded.")
            write(entries)

        writer.write = failing  # type: ignore[method-assign]
        return writer


@pytest.mark.parametrize("loses_response", [True, False])
def test_an_outage_is_no_end_and_each_worker_starts_once(loses_response: bool) -> None:
    log, launcher = Unreachable(started_log().records), Launcher()
    log.loses_response = loses_response
    ManagerProcess(log, ManagerSettings(), launcher, Stop(*[nothing] * 4)).run()
    assert {it.id for it in launcher.started} == set(state_of(log).workers)
    assert len(launcher.started) == 1


def test_after_an_outage_a_manager_does_not_replace_a_newer_one() -> None:
    log = Unreachable(started_log().records)
    log.failures = 0
    clock = itertools.count(1_000, 2_000)
    stop = Stop(nothing, lambda: later(log), nothing, nothing)
    process = ManagerProcess(log, ManagerSettings(), Launcher(), stop, clock=lambda: next(clock))
    with pytest.raises(FencedMember, match="Another manager has started"):
        process.run()
    assert log.managers == 2


def later(log: Unreachable) -> None:
    """Another manager starts during an outage."""
    log.failures = 1
    FakeInstanceLog.manager(log).write([Manager(9, 1, 0, 2**41, 6_000, 1, "elsewhere", 7)])


def test_a_missing_permission_ends_the_manager() -> None:
    log = started_log()

    def rejected() -> FakeEntryWriter:
        raise NotAuthorized("This user may not use the transactional id.")

    log.manager = rejected  # type: ignore[method-assign]
    with pytest.raises(NotAuthorized):
        ManagerProcess(log, ManagerSettings(), Launcher(), Stop(nothing, nothing)).run()


def test_P2_a_recreated_topic_ends_the_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    log = started_log()

    def lost(*_: object) -> list[Entry]:
        raise DataLoss("The entries are not in topic 'board' any more.")

    recreate = partial(monkeypatch.setattr, FakeEntryReader, "read_to_end", lost)
    with pytest.raises(DataLoss):
        ManagerProcess(log, ManagerSettings(), Launcher(), Stop(nothing, recreate, nothing)).run()
