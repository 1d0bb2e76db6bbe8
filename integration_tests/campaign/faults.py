"""The injection of faults into the queries of a campaign. Used by ``integration_tests.campaign``."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient, NewPartitions

from integration_tests.campaign.cluster_faults import ClusterFaults
from integration_tests.campaign.history import CampaignHistory
from integration_tests.campaign.members import CampaignMember, all_are_up, waiting_file
from integration_tests.campaign.network_faults import Network, is_of_network
from integration_tests.campaign.resets import RequestedResets
from integration_tests.campaign.single_processes import PARTS, SingleProcesses, processes_of
from integration_tests.campaign.storage import CampaignStorage
from integration_tests.campaign.targets import patiently
from integration_tests.campaign.turns import (
    ABORT_POINTS,
    AT_RANDOM,
    EXECUTOR_VICTIMS,
    STALL,
    needs_rebalance,
    needs_reset,
)
from integration_tests.campaign.windows import Resets
from integration_tests.campaign.zombies import Zombies, frozen
from streamgroups_broker import EmbeddedKafka
from streamgroups_testkit.waits import wait_until

#: Longer than the time without polls after which a member checks its membership, and shorter than the session timeout
#: of 6 s.
_SILENCE_S = 4.0
#: Longer than the time after which the controller replaces a broker that does not respond (6 s here), and than the timeouts of the
#: requests of members, planners and sinks to it.
_HANG_S = 20.0
#: The time for this check while the process still waits at the point.
_AFTER_SILENCE_S = 1.0


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
        seed: the seed of random times and processes.
        network: the connections of the members.
        storage: the storage of the queries, if it is a target of faults.
        cluster: the faults of the cluster, if the campaign has some.
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
        network: Network,
        seed: int = 1,
        storage: CampaignStorage | None = None,
        cluster: ClusterFaults | None = None,
    ) -> None:
        directory.mkdir(parents=True)
        self._history, self._network = history, network
        self._directory, self._kafka, self._sink = directory, kafka, sink
        self._resets, self._ends, self._requested = resets, ends, requested
        self._members = {member.name: member for member in members}
        #: The nodes are killed or paused in turn.
        self._nodes = itertools.cycle(kafka.node_ids if kafka is not None else ())
        self._failed_node = 0
        self._stalled: set[Path] = set()
        self._zombies = Zombies(bootstrap, group, members, self.all_are_up, requested)
        self._single = SingleProcesses(self.all_are_up, seed)
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
            **{f"freeze-{part}": partial(self._freeze, part) for part in (*PARTS, "poll")},
            STALL: lambda _, __: None,
        }
        self._storage, self._cluster = storage, cluster
        if storage is not None:
            self._ways |= {name: partial(_begin, begin) for name, begin in storage.ways.items()}
        self._ways |= cluster.ways if cluster is not None else {}

    def add(self, ways: Mapping[str, Callable[[int, CampaignMember], None]]) -> None:
        """Adds faults by their names. The arguments are the id of the process at the point and its member."""
        self._ways.update(ways)

    def inject(self, point: str, victim: str, timeout_s: float) -> bool:
        """Waits until a process reaches a point, and injects a fault; ``False`` after an error of a state.

        At the point ``at-random`` no process waits. The fault hits a random process at a random time.

        Raises:
            AssertionError: if no process reaches the point in time.
        """
        if self._cluster is not None:
            self._cluster.before(victim)
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
            if is_of_network(victim):
                self._network.begin(victim, name)
            else:
                self._ways[victim](int(pid), self._members[name])
        if victim == STALL:
            # It stays at the point until the end of the campaign.
            self._stalled.add(reached)
        else:
            reached.unlink(missing_ok=True)
        self._restore_node(victim)
        if is_of_network(victim):
            self._network.finish(self.all_are_up, lambda other: self._members[other].kill())
        if self._storage is not None:
            self._storage.finish(victim, self.all_are_up)
        if self._cluster is not None:
            self._cluster.after(point, victim, name)
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

    def _freeze(self, part: str, pid: int, member: CampaignMember) -> None:
        # The process at the point continues while the other one is frozen.
        reached = waiting_file(self._directory, member.name, pid)
        self._single.freeze(part, pid, member, partial(reached.unlink, missing_ok=True))

    def _silence(self, member: CampaignMember) -> None:
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


def _add_partition(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    n_partitions = len(admin.list_topics(topic, timeout=10).topics[topic].partitions)
    admin.create_partitions([NewPartitions(topic, n_partitions + 1)])[topic].result(30)


def _begin(begin: Callable[[], None], _: int, __: CampaignMember) -> None:
    begin()


def _crash_server(conninfo: str) -> None:
    # Imported late: only campaigns with PostgreSQL need psycopg.
    from streamgroups_testkit.postgres import crash_server

    crash_server(conninfo)


def _kill_executor(pid: int, member: CampaignMember) -> None:
    """Kills the JVM of the executor that a Python worker belongs to; for other processes, any executor of the
    member.
    """

    def found() -> list[psutil.Process]:
        return processes_of("executor", [*psutil.Process(pid).parents(), *member.processes()])

    # After a kill, the new executor may still be starting.
    wait_until(found, f"{member.name} has an executor")
    found()[0].kill()
