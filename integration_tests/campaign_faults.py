"""The queries of a campaign as processes, and the injection of faults into them. Used by ``integration_tests.campaign``."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka.admin import AdminClient, NewPartitions

from integration_tests.campaign_history import CampaignHistory
from integration_tests.campaign_resets import RequestedResets
from integration_tests.campaign_targets import patiently
from integration_tests.campaign_turns import needs_rebalance, needs_reset
from integration_tests.campaign_windows import Resets
from integration_tests.campaign_zombies import Zombies, frozen
from integration_tests.history.events import ProcessEnded, ProcessStarted
from integration_tests.history.outputs_read import now_ms
from streamgroups_broker import EmbeddedKafka
from streamgroups_testkit.spark_sessions import spark_home
from streamgroups_testkit.waits import wait_until

#: The Spark master of the queries with separate executors.
MASTER = "local-cluster[2,1,1024]"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_SOURCE = "python_streaming_source_runner"
#: Longer than the time without polls after which a member checks its membership, and shorter than the session timeout
#: of 6 s.
_SILENCE_S = 4.0
#: Longer than the time after which the controller replaces a broker that does not respond (6 s here), and than the timeouts of the
#: requests of members, planners and sinks to it.
_HANG_S = 20.0
#: An error of a state in the log of a query, with the partition.
_STATE_ERROR = re.compile(r"State(?:Missing|Damaged|Mismatch): [^\s:]+")
#: The time for this check while the process still waits at the point.
_AFTER_SILENCE_S = 1.0
_HERE = Path(__file__).parent


class CampaignMember:
    """A query that restarts after every failure.

    Args:
        directory: the directory of its checkpoint and log.
        name: its name.
        config: the configuration for ``campaign_query``.
        master: the Spark master. Separate executors write their files to ``spark_home``.
        record: stores events of the history.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        config: dict[str, Any],
        master: str = "local[2]",
        record: Callable[..., None] = lambda *_: None,
    ) -> None:
        self.name, self._directory, self._record = name, directory, record
        self._config = {**config, "name": name, "master": master, "checkpoint": str(directory / f"checkpoint-{name}")}
        self._config["options"] = {**config["options"], "kafka.client.id": name}
        self._process: subprocess.Popen[bytes] | None = None
        #: Whether the history has its start, and not its end.
        self._is_started = False
        self._n_lost = 0

    def see_to_it(self) -> None:
        """Starts it if it is not running."""
        if self._process is not None and self._process.poll() is None:
            return
        self._has_ended("ended")
        python_path = [str(_HERE / "dying"), str(_HERE.parent), str(_HERE.parent / "connectors")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(python_path),
            "PYSPARK_PYTHON": sys.executable,
            "STREAMGROUPS_DEATHS": str(self._directory / "deaths"),
            "STREAMGROUPS_MEMBER": self.name,
            "STREAMGROUPS_SABOTAGE": self._config["sabotaged"],
            "STREAMGROUPS_HISTORY": str(self._directory / "history"),
        }
        if self._config["master"] == MASTER:
            environment["SPARK_HOME"] = str(spark_home(self._directory / "spark"))
        with (self._directory / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "integration_tests.campaign_query", json.dumps(self._config)],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        self._is_started = True
        self._record(ProcessStarted(now_ms(), self.name, self._process.pid))

    def _has_ended(self, cause: str) -> None:
        """Records the end of the driver, once."""
        if self._process is not None and self._is_started:
            self._record(ProcessEnded(now_ms(), self.name, self._process.pid, cause))
            self._is_started = False

    def processes(self) -> list[psutil.Process]:
        """All processes of the query, the driver first."""
        assert self._process is not None
        driver = psutil.Process(self._process.pid)
        return [driver, *driver.children(recursive=True)]

    def kill(self) -> None:
        """Kills all its processes with ``kill -9``."""
        processes = self.processes()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        _, left = psutil.wait_procs(processes, 30)
        assert not left, left
        self._has_ended("killed")

    def lose_checkpoint(self) -> None:
        """Deletes its checkpoint, configures another one, or restores the one that was deleted last, in turn."""
        self._n_lost += 1
        checkpoint, deleted = Path(self._config["checkpoint"]), self._directory / f"deleted-{self.name}"
        if self._n_lost % 3 == 2:
            self._config["checkpoint"] += "+"
            return
        if self._n_lost % 3 == 0 and deleted.exists():
            shutil.rmtree(checkpoint, ignore_errors=True)
            deleted.rename(checkpoint)
            return
        shutil.rmtree(deleted, ignore_errors=True)
        # A kill can precede the first write to the checkpoint.
        with suppress(FileNotFoundError):
            checkpoint.rename(deleted)

    def state_errors(self) -> list[str]:
        """The errors of states in its log."""
        log = self._directory / f"{self.name}.log"
        return _STATE_ERROR.findall(log.read_text(errors="replace")) if log.exists() else []

    def stop(self) -> None:
        """Stops it with SIGTERM; kills it after a timeout."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(60)
            self._has_ended("stopped")
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not stop") from None


class FaultInjector:
    """Arms points, and injects faults into the processes that reach them.

    Args:
        bootstrap: the broker.
        directory: the directory of the files that arm points.
        group: the members' group.
        topic: their topic.
        members: the members that a fault can hit.
        kafka: the broker, if it is a target of faults.
        resets: resets of the group.
        ends: returns the end offsets of the partitions.
        requested: resets of the group to known positions.
        sink: the sink of the queries.
        to: its topic, connection string or path.
        history: records the faults.
    """

    def __init__(
        self,
        bootstrap: str,
        directory: Path,
        group: str,
        topic: str,
        members: Sequence[CampaignMember],
        kafka: EmbeddedKafka | None,
        resets: Resets,
        ends: Callable[[], dict[int, int]],
        requested: RequestedResets,
        sink: str,
        to: str,
        history: CampaignHistory,
    ) -> None:
        directory.mkdir(parents=True)
        self._history = history
        self._directory, self._kafka, self._sink = directory, kafka, sink
        self._resets, self._ends, self._requested = resets, ends, requested
        self._members = {member.name: member for member in members}
        #: The nodes are killed or paused in turn.
        self._nodes = itertools.cycle(kafka.node_ids if kafka is not None else ())
        self._failed_node = 0
        self._zombies = Zombies(bootstrap, group, members, self.all_are_up, requested)
        #: The injection by the name of the fault. Its arguments are the id of the process at the point and its member.
        self._ways: dict[str, Callable[[int, CampaignMember], None]] = {
            "worker": lambda pid, _: psutil.Process(pid).kill(),
            "executor": _kill_executor,
            "query": lambda _, member: member.kill(),
            "checkpoint": self._lose_checkpoint,
            "source": _kill_source,
            "broker": lambda _, __: self._fail_node(EmbeddedKafka.kill_node),
            "hang": lambda _, __: self._fail_node(EmbeddedKafka.pause_node),
            "zombie": lambda _, member: self._zombies.freeze(member),
            "silence": lambda _, member: self._silence(member),
            "answer": self._lose_answer,
            "reset": lambda _, __: self._resets.begin(),
            "partitions": lambda _, __: patiently(partial(_add_partition, bootstrap, topic)),
            "server": lambda _, __: _crash_server(to),
        }

    def inject(self, point: str, victim: str, timeout_s: float) -> bool:
        """Waits until a process reaches a point, and injects a fault; ``False`` after an error of a state.

        Raises:
            AssertionError: if no process reaches the point in time.
        """
        # Only the last member has executors.
        self._arm(point, list(self._members)[-1:] if victim == "executor" else list(self._members))
        wait_until(
            lambda: self.all_are_up() and (self._reached() or self.state_errors()),
            f"a member passes {point}; see {self._directory}",
            timeout_s,
        )
        if self.state_errors():
            return False
        (reached,) = self._reached()
        _, name, pid = reached.name.split(".")
        self._history.injected(point, victim, name)
        # The query can end the process at the point in the meantime.
        with suppress(psutil.NoSuchProcess):
            self._ways[victim](int(pid), self._members[name])
        reached.unlink()
        self._restore_node(victim)
        if victim == "reset":
            wait_until(lambda: self.all_are_up() and self._resets.is_applied(self._ends), "the reset is applied", 240)
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

    def _reached(self) -> list[Path]:
        return list(self._directory.glob("reached.*"))

    def state_errors(self) -> list[str]:
        """The errors of states in the logs of all members."""
        return sorted({error for member in self._members.values() for error in member.state_errors()})

    def all_are_up(self) -> bool:
        """Starts the members that are not running."""
        for member in self._members.values():
            member.see_to_it()
        return True

    def give_up(self) -> None:
        """Disarms all points and releases all waiting processes."""
        for left in self._directory.iterdir():
            # A sabotage keeps the number of the last batch of a member.
            if left.suffix != ".last":
                left.unlink()

    def _lose_checkpoint(self, _: int, member: CampaignMember) -> None:
        member.kill()
        member.lose_checkpoint()

    def _fail_node(self, fail: Callable[[EmbeddedKafka, int], None]) -> None:
        assert self._kafka is not None
        self._failed_node = next(self._nodes)
        fail(self._kafka, self._failed_node)

    def _restore_node(self, victim: str) -> None:
        """Restores the node that the fault has killed or paused, after the process has left the point."""
        if victim == "broker":
            assert self._kafka is not None
            self._kafka.restart_node(self._failed_node)
        elif victim == "hang":
            assert self._kafka is not None
            # The members run meanwhile. A member that fails starts again at the next point, as under a supervisor.
            time.sleep(_HANG_S)
            self._kafka.resume_node(self._failed_node)

    def _lose_answer(self, pid: int, member: CampaignMember) -> None:
        (self._directory / f"lost.{member.name}.{pid}").touch()

    def _silence(self, member: CampaignMember) -> None:
        with frozen(member):
            time.sleep(_SILENCE_S)
        time.sleep(_AFTER_SILENCE_S)


def _runs(process: psutil.Process, program: str) -> bool:
    with suppress(psutil.NoSuchProcess):
        return any(program in word for word in process.cmdline())
    return False


def _kill_source(_: int, member: CampaignMember) -> None:
    """Kills the processes of the sources of a member; between two runs of its query, without one, all its processes."""
    found = [it for it in member.processes() if _runs(it, _SOURCE)]
    if not found:
        member.kill()
    for process in found:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _add_partition(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    n_partitions = len(admin.list_topics(topic, timeout=10).topics[topic].partitions)
    admin.create_partitions([NewPartitions(topic, n_partitions + 1)])[topic].result(30)


def _crash_server(conninfo: str) -> None:
    # Imported late: only campaigns with PostgreSQL need psycopg.
    from streamgroups_testkit.postgres import crash_server

    crash_server(conninfo)


def _kill_executor(pid: int, member: CampaignMember) -> None:
    """Kills the JVM of the executor that a Python worker belongs to; for other processes, any executor of the
    member.
    """

    def found() -> list[psutil.Process]:
        return [p for p in (*psutil.Process(pid).parents(), *member.processes()) if _runs(p, _EXECUTOR)]

    # After a kill, the new executor may still be starting.
    wait_until(found, f"{member.name} has an executor")
    found()[0].kill()
