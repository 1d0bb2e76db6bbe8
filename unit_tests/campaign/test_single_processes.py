"""Faults of single processes, and faults at random times."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import psutil
import pytest

from integration_tests.campaign import single_processes
from integration_tests.campaign.members import CampaignMember
from integration_tests.campaign.single_processes import SingleProcesses, freeze, is_stopped, processes_of
from integration_tests.campaign.turns import AT_RANDOM, REQUEST_POINTS, STATELESS_VICTIMS, all_turns
from integration_tests.killed_commands import Point, run_frozen_command
from streamgroups_testkit.waits import wait_until


@pytest.fixture
def process() -> Iterator[psutil.Process]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as started:
        yield psutil.Process(started.pid)
        started.kill()


def test_a_frozen_process_is_in_the_state_t_and_runs_afterwards(
    process: psutil.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_processes, "_MIN_FROZEN_S", 0.02)
    monkeypatch.setattr(single_processes, "_POLL_S", 0.01)
    seen: list[bool] = []
    assert freeze(process, 0.05, lambda: seen.append(is_stopped(process))) >= 0.05
    assert seen
    assert all(seen)
    wait_until(lambda: not is_stopped(process), "it runs", 10, 0.01)


def test_a_process_that_continues_at_once_was_not_frozen(process: psutil.Process) -> None:
    with pytest.raises(AssertionError, match="was in the state T for"):
        freeze(process, 5, process.resume)


def test_a_process_that_ends_at_once_was_not_frozen(process: psutil.Process) -> None:
    with pytest.raises(AssertionError, match="was in the state T for"):
        freeze(process, 5, process.kill)


class FakeProcess:
    """A process with a command line."""

    def __init__(self, pid: int, parent: int, *command: str) -> None:
        self.pid, self._parent, self._command = pid, parent, list(command)

    def cmdline(self) -> list[str]:
        return self._command

    def ppid(self) -> int:
        return self._parent


class FakeMember:
    """A member with the processes of a query."""

    def __init__(self, name: str) -> None:
        self.name = name

    def processes(self) -> list[psutil.Process]:
        found = [
            FakeProcess(1, 0, "python", "-m", "integration_tests.campaign.query"),
            FakeProcess(2, 1, "java", "org.apache.spark.deploy.SparkSubmit"),
            FakeProcess(3, 2, "python", "-m", "pyspark.sql.streaming.python_streaming_source_runner"),
            FakeProcess(4, 2, "java", "org.apache.spark.executor.CoarseGrainedExecutorBackend"),
            FakeProcess(5, 4, "python", "-m", "pyspark.daemon", "pyspark.worker"),
            FakeProcess(6, 5, "python", "-m", "pyspark.daemon", "pyspark.worker"),
            FakeProcess(7, 5, "python", "-m", "pyspark.daemon", "pyspark.worker"),
        ]
        return cast(list[psutil.Process], found)


@pytest.mark.parametrize(("part", "pids"), [("source", [3]), ("worker", [6, 7]), ("executor", [4]), ("driver", [2])])
def test_the_parts_of_a_query_are_its_processes(part: str, pids: list[int]) -> None:
    assert [it.pid for it in processes_of(part, FakeMember("ann").processes())] == pids


def test_a_random_fault_depends_on_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_processes, "MAX_DELAY_S", 0.01)
    members = cast(list[CampaignMember], [FakeMember("ann"), FakeMember("bob")])

    def chosen(seed: int) -> list[tuple[str, int]]:
        single = SingleProcesses(lambda: True, seed)
        found = [single.choose(members, "worker" if n % 2 else "query") for n in range(8)]
        return [(member.name, pid) for member, pid in found]

    assert chosen(7) == chosen(7) != chosen(8)
    assert {pid for _, pid in chosen(7)} <= {1, 6, 7}
    assert {name for name, _ in chosen(7)} == {"ann", "bob"}


def test_the_delay_of_a_random_fault_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_processes, "MAX_DELAY_S", 0.2)
    began_s = time.monotonic()
    SingleProcesses(lambda: True, 1).choose(cast(list[CampaignMember], [FakeMember("ann")]), "query")
    assert time.monotonic() - began_s < 5


def test_each_fault_is_injected_at_random_and_at_each_request_of_a_transaction() -> None:
    n_turns = (len(STATELESS_VICTIMS) + 1) * 40
    turns = all_turns("kafka", n_turns, STATELESS_VICTIMS)
    for point in (*REQUEST_POINTS, AT_RANDOM):
        assert {victim.partition(":")[0] for it, victim in turns if it == point} == set(STATELESS_VICTIMS)
    assert not {point for point, _ in all_turns("postgres", n_turns, STATELESS_VICTIMS)} & set(REQUEST_POINTS)


def test_each_point_of_a_request_is_reached() -> None:
    """The names of points are those of the steps of a transaction."""
    from streamgroups_kafka.transactions.transaction_errors import Step

    names = {f"{where}-{step.name.lower().replace('_', '-')}" for step in Step for where in ("before", "after")}
    assert set(REQUEST_POINTS) <= names
    assert "step.name.lower()" in (Path(__file__).parents[2] / "integration_tests/dying/sitecustomize.py").read_text()


@pytest.mark.parametrize(
    ("function", "is_after", "is_reached"),
    # The command continues after the call too, without a second stop.
    [("version", False, True), ("version", True, True), ("no_call", False, False)],
)
def test_a_frozen_command_continues_after_its_point(
    tmp_path: Path, function: str, is_after: bool, is_reached: bool
) -> None:
    (tmp_path / "pointed.py").write_text("class Owner:\n    version = no_call = staticmethod(lambda: 'called')\n")
    (tmp_path / "streamgroups_cli.py").write_text(
        "import pointed\ndef main():\n    print(pointed.Owner.version(), pointed.Owner.version())\n"
    )
    point = Point("pointed", "Owner", function, is_after=is_after)
    began_s = time.monotonic()
    result, was_frozen = run_frozen_command(point, seconds=0.2, environment={"PYTHONPATH": str(tmp_path)})
    assert (result.returncode, result.stdout, was_frozen) == (0, "called called\n", is_reached), result.stderr
    assert not was_frozen or time.monotonic() - began_s > 0.2


def test_a_batch_fails_by_the_kill_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[str] = []

    class Worker:
        def __init__(self, name: str) -> None:
            self.name = name

        def kill(self) -> None:
            killed.append(self.name)

    monkeypatch.setattr(single_processes, "processes_of", lambda part, found: [Worker(part), Worker("another")])
    single = SingleProcesses(lambda: True, 1)
    members = cast(list[CampaignMember], [FakeMember("ann"), FakeMember("bob")])
    single.fail_batches(members)
    single.fail_batches(members)
    assert killed == ["worker", "worker"], "the second call comes too early"
    monkeypatch.setattr(single_processes, "FAILURE_S", 0.0)
    single._next_failure_s = 0.0
    single.fail_batches(members)
    assert len(killed) == 4
