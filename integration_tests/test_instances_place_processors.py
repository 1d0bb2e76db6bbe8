"""P2: a real manager starts real workers, and places processors on them. The workers run no Spark."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.instances import LIGHT, RealInstance
from integration_tests.tiers import LONG
from streamgroups_testkit.waits import wait_until

#: Short, since the tests wait for its end.
LEASE = ("--lease", "5s")


@pytest.fixture
def instance(bootstrap: str, tmp_path: Path) -> Iterator[RealInstance]:
    instance = RealInstance(bootstrap, tmp_path)
    yield instance
    instance.close()


@pytest.mark.parametrize("slots", [pytest.param(1, marks=LONG), 2])
def test_P2_the_example_with_real_processes(instance: RealInstance, slots: int) -> None:
    """The example of the document, with workers of other sizes: two full workers, and a third one for one processor."""
    first, second = (
        [f"proc{n:02}" for n in range(1, slots + 1)],
        [f"proc{n:02}" for n in range(slots + 1, 2 * slots + 1)],
    )
    # With one slot the first worker is idle for a moment, in which it must not end.
    idle = "1m" if slots == 1 else "2s"
    with instance.manager("--slots", str(slots), "--idle", idle, "--worker-command", LIGHT):
        instance.define(*first, *second, "proc09", "proc10")
        instance.start(*first, *second)
        (one,), (two,) = set(instance.workers(*first)), set(instance.workers(*second))
        instance.start("proc09")
        (three,) = instance.workers("proc09")
        assert len({one, two, three}) == 3
        instance.stop(first[-1])
        instance.start("proc10")
        assert instance.workers("proc10") == [one]
        instance.stop("proc10", "proc09")
        instance.start("proc09")
        assert instance.workers("proc09") == [one]
        if slots > 1:
            instance.wait_until(
                lambda state: set(state.workers) == {one, two} and not state.releases, "the third is released"
            )


def test_a_failed_processor_frees_its_slot(instance: RealInstance) -> None:
    with instance.manager("--slots", "1", "--max-workers", "1", "--worker-command", LIGHT):
        instance.define("late", fails=True)
        instance.define("early")
        output = instance.command("processors", "start", "late", code=1)
        assert "late: failed: Records are gone." in output
        instance.start("early")
        assert (instance.view("late").state, instance.view("late").error_code) == ("failed", "data_loss")
        instance.command("processors", "start", "late", "--wait", "0s")
        instance.wait_until(lambda _: "no free slot" in instance.view("late").why, "it waits for a slot")
        assert "streamgroups worker run" in instance.view("late").why
        instance.command("processors", "drop", "early", code=3)


def test_killed_and_frozen_workers_lose_their_processors(instance: RealInstance) -> None:
    with instance.manager("--slots", "2", *LEASE, "--worker-command", LIGHT):
        instance.define("proc01", "proc02", "proc03")
        instance.start("proc01", "proc02", "proc03")
        first, second = instance.worker("proc01"), instance.worker("proc03")
        os.kill(first.pid, signal.SIGKILL)
        moved = instance.wait_for_worker("proc01", lambda it: it.id != first.id)
        # The other worker has a free slot.
        assert moved.id == second.id
        assert instance.workers("proc03") == [second.id]
        os.kill(second.pid, signal.SIGSTOP)
        instance.wait_for_worker("proc03", lambda it: it.id != second.id)
        os.kill(second.pid, signal.SIGCONT)
        wait_until(lambda: "The manager has declared the worker" in instance.text(), "it reports its end")
        instance.wait_until(lambda state: second.id not in state.workers, "its lease is removed")


def test_processors_run_without_a_manager_and_a_second_one_fences_the_first(instance: RealInstance) -> None:
    options = ("--slots", "2", *LEASE, "--worker-command", LIGHT)
    with instance.manager(*options) as first:
        instance.define("proc01", "proc02")
        instance.start("proc01")
        worker = instance.worker("proc01")
        first.kill()
        # A worker stops a processor without a manager, and starts none.
        heartbeat = instance.state().workers[worker.id].heartbeat
        instance.wait_until(lambda state: state.workers[worker.id].heartbeat > heartbeat + 3, "it renews its lease")
        assert instance.workers("proc01") == [worker.id]
    with instance.manager(*options, number=2) as second:
        instance.start("proc02")
        assert instance.workers("proc01", "proc02") == [worker.id] * 2
        with instance.manager(*options, number=3):
            wait_until(second.has_ended, "the second manager ends")
            assert "Another manager" in instance.text("manager-2")
            # SIGTERM of a worker stops its processors in an orderly way, and they start elsewhere.
            os.kill(worker.pid, signal.SIGTERM)
            instance.wait_for_worker("proc01", lambda it: it.id != worker.id)
