"""Fault injection campaigns: faults at named points of running queries, and independent readers that count the output.

Run as ``python -m integration_tests.campaign kafka --kills 100``; ``test_killed_in_the_middle_of_a_commit`` runs a
short one. Two queries share a group and write exactly once. ``sg.supervise`` runs each in a separate process, the
second on separate executors, while a producer appends records.

In each turn the campaign arms a point (``dying/sitecustomize.py``). The first process that reaches the point waits
there, and the campaign injects one fault of :data:`VICTIMS`. At the end an independent reader checks that every record
arrived once and in the order of its partition.

A stateful query (``--kind stateful``) is the only member of its group, and drops the records that its state contains. If
its state is ahead of the output, records are lost; if it is behind, records arrive twice. Queries with windows (``--kind
windows``) share a group and its state: ``campaign_windows`` compares their output with a plain count. Source: SEMANTICS
X1-X4, S10.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from integration_tests.campaign_results import Result, here
from integration_tests.campaign_windows import CLOSING, PARTITIONS, Reset, Resets, compare
from streamgroups_broker import EmbeddedKafka
from streamgroups_testkit.producing import Load, produce
from streamgroups_testkit.reading import committed_offsets, end_offsets, read_committed
from streamgroups_testkit.spark_sessions import spark_home
from streamgroups_testkit.waits import wait_until

#: What the queries do with the records. ``stateless``: write them. ``stateful``: drop duplicates. ``windows``: count them
#: in windows whose state follows its partition.
KINDS = ("stateless", "stateful", "windows")
POINTS = (
    "before-offset-log",
    "mid-read",
    "transaction-begun",
    "inside-transaction",
    "before-offsets",
    "before-commit",
    "after-commit",
)
#: A ledger stores the positions in the transaction of the sink.
LEDGER_POINTS = tuple(point for point in POINTS if point != "before-offsets")
#: The points of a task with windows, beside those of its sink.
STATE_POINTS = ("before-state-file", "after-state-file")
#: The faults at a point. ``worker``: kill the Python process that reached the point. ``executor``: kill the JVM of its
#: executor; at a point of the driver, any executor. ``query``: kill the driver and all its processes. ``checkpoint``:
#: the same, and delete the checkpoint, configure another one, or restore an older one, in turn. ``broker``: kill and restart the
#: broker. ``zombie``: freeze the query until other members own its partitions. ``silence``: freeze the query for less
#: than the session timeout. ``answer``: lose the response to a commit that has succeeded.
VICTIMS = ("worker", "executor", "query", "checkpoint", "broker", "zombie", "silence")
#: The faults of a query that is the only member of its group. No other member can own its partitions, and its state
#: needs its checkpoint.
STATEFUL_VICTIMS = ("worker", "executor", "query", "broker", "silence")
#: The faults of queries with windows. ``reset``: a tool resets the group back while the process waits.
WINDOWS_VICTIMS = (*VICTIMS, "reset")
#: The faults of each kind.
VICTIMS_OF = {"stateless": VICTIMS, "stateful": STATEFUL_VICTIMS, "windows": WINDOWS_VICTIMS}
#: The safeguards that a campaign can disable to verify that it detects the fault. ``ledger``: the transaction or the
#: ledger. ``fence``: the check that rejects a batch of a replaced member. ``batch-id``: identify batches by number
#: instead of by offsets. Of windows, ``state-offset``: load the state of the offset. ``state-segment``: name all segments
#: of a state. ``state-file``: name the file of the attempt that has succeeded.
SABOTAGES = ("ledger", "fence", "batch-id")
STATE_SABOTAGES = ("state-offset", "state-segment", "state-file")
#: The Spark master of the queries with separate executors.
_MASTER = "local-cluster[2,1,1024]"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
#: Longer than the time without polls after which a member checks its membership, and shorter than the session timeout
#: of 6 s.
_SILENCE_S = 4.0
#: An error of a state, in the log of a query.
_STATE_ERROR = re.compile(r"State(?:Missing|Damaged|Mismatch): .*")
#: The time for this check while the process still waits at the point.
_AFTER_SILENCE_S = 1.0
_HERE = Path(__file__).parent

#: A point, and the fault to inject there.
Turn = tuple[str, str]
#: Returns (partition, value) of the whole output, in the order of arrival within a partition.
ReadBack = Callable[[], list[tuple[int, str]]]


@dataclass
class Verdict:
    """The result of a campaign.

    Args:
        kills: how often each fault was injected at each point.
        records: the number of records that were produced.
        lost: the records that did not arrive.
        repeated: the records that arrived more than once.
        disordered: partitions whose records did not arrive in order.
        different: of windows: the rows with another result. ``lost`` and ``repeated`` are then rows too.
        errors: the errors of a state.
    """

    kills: Counter[Turn]
    records: int
    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    disordered: list[int] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not (self.lost or self.repeated or self.disordered or self.different or self.errors)

    @property
    def victims(self) -> dict[str, int]:
        """How often each fault was injected."""
        return dict(Counter(victim for _, victim in self.kills.elements()))

    @property
    def points(self) -> dict[str, int]:
        """How often a fault was injected at each point."""
        return dict(Counter(point for point, _ in self.kills.elements()))

    def __str__(self) -> str:
        return (
            f"{self.kills.total()} kills {self.victims} {self.points}, {self.records} records, "
            f"{len(self.lost)} lost{_from_to(self.lost)}, {len(self.repeated)} twice{_from_to(self.repeated)}, "
            f"{len(self.different)} different{_from_to(self.different)}, "
            f"partitions out of order: {self.disordered or 'none'}, errors of states: {self.errors or 'none'}"
        )


def _from_to(values: Sequence[str]) -> str:
    """The first and last of the affected records or rows, for the search in the logs."""
    return f" (between {values[0]} and {values[-1]})" if values else ""


class CampaignMember:
    """A query that restarts after every failure.

    Args:
        directory: the directory of its checkpoint and log.
        name: its name.
        config: the configuration for ``campaign_query``.
        master: the Spark master. Separate executors write their files to ``spark_home``.
    """

    def __init__(self, directory: Path, name: str, config: dict[str, Any], master: str = "local[2]") -> None:
        self.name, self._directory = name, directory
        self._config = {**config, "name": name, "master": master, "checkpoint": str(directory / f"checkpoint-{name}")}
        self._config["options"] = {**config["options"], "kafka.client.id": name}
        self._process: subprocess.Popen[bytes] | None = None
        self._n_lost = 0

    def see_to_it(self) -> None:
        """Starts it if it is not running."""
        if self._process is not None and self._process.poll() is None:
            return
        python_path = [str(_HERE / "dying"), str(_HERE.parent), str(_HERE.parent / "connectors")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(python_path),
            "PYSPARK_PYTHON": sys.executable,
            "STREAMGROUPS_DEATHS": str(self._directory / "deaths"),
            "STREAMGROUPS_MEMBER": self.name,
            "STREAMGROUPS_SABOTAGE": self._config["sabotaged"],
        }
        if self._config["master"] == _MASTER:
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
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not stop") from None


class FaultInjector:
    """Arms points, and injects faults into the processes that reach them.

    Args:
        bootstrap: the broker.
        directory: the directory of the files that arm points.
        group: the members' group.
        members: the members that a fault can hit.
        kafka: the broker, if it is a target of faults.
        resets: resets of the group.
        ends: returns the end offsets of the partitions.
    """

    def __init__(
        self,
        bootstrap: str,
        directory: Path,
        group: str,
        members: Sequence[CampaignMember],
        kafka: EmbeddedKafka | None,
        resets: Resets,
        ends: Callable[[], dict[int, int]],
    ) -> None:
        directory.mkdir(parents=True)
        self._directory, self._group, self._kafka = directory, group, kafka
        self._resets, self._ends = resets, ends
        self._members = {member.name: member for member in members}
        self._bootstrap = bootstrap
        #: The injection by the name of the fault. Its arguments are the process at the point and its member.
        self._ways: dict[str, Callable[[psutil.Process, CampaignMember], None]] = {
            "worker": lambda process, _: process.kill(),
            "executor": _kill_executor,
            "query": lambda _, member: member.kill(),
            "checkpoint": self._lose_checkpoint,
            "broker": self._kill_broker,
            "zombie": lambda _, member: self._freeze(member, self._until_others_have_all),
            "silence": lambda _, member: self._silence(member),
            "answer": self._lose_answer,
            "reset": lambda _, __: self._resets.begin(),
        }

    def inject(self, point: str, victim: str, timeout_s: float) -> None:
        """Waits until a process reaches a point, and injects a fault. An error of a state ends the wait.

        Raises:
            AssertionError: if no process reaches the point in time.
        """
        # Only the last member has executors.
        named = list(self._members)[-1:] if victim == "executor" else list(self._members)
        (self._directory / f".{point}").write_text(" ".join(named))
        (self._directory / f".{point}").rename(self._directory / point)
        wait_until(
            lambda: self.all_are_up() and (list(self._directory.glob("reached.*")) or self.state_errors()),
            f"a member passes {point}; see {self._directory}",
            timeout_s,
        )
        if self.state_errors():
            return
        (reached,) = self._directory.glob("reached.*")
        _, name, pid = reached.name.split(".")
        # The query can end the process at the point in the meantime.
        with suppress(psutil.NoSuchProcess):
            self._ways[victim](psutil.Process(int(pid)), self._members[name])
        reached.unlink()
        if victim == "broker":
            assert self._kafka is not None
            self._kafka.restart_node(1)
        if victim == "reset":
            wait_until(lambda: self.all_are_up() and self._resets.has_ended, "the reset is applied", 150)
            self._resets.finish(self._ends)

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
            if left.name.startswith("reached.") or left.name in (*POINTS, *STATE_POINTS):
                left.unlink()

    def _lose_checkpoint(self, _: psutil.Process, member: CampaignMember) -> None:
        member.kill()
        member.lose_checkpoint()

    def _kill_broker(self, _: psutil.Process, __: CampaignMember) -> None:
        assert self._kafka is not None
        self._kafka.kill_node(1)

    def _lose_answer(self, process: psutil.Process, member: CampaignMember) -> None:
        (self._directory / f"lost.{member.name}.{process.pid}").touch()

    def _silence(self, member: CampaignMember) -> None:
        self._freeze(member, lambda _: time.sleep(_SILENCE_S))
        time.sleep(_AFTER_SILENCE_S)

    def _freeze(self, member: CampaignMember, until: Callable[[CampaignMember], None]) -> None:
        frozen = member.processes()
        for process in frozen:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        try:
            until(member)
        finally:
            for process in frozen:
                with suppress(psutil.NoSuchProcess):
                    process.resume()

    def _until_others_have_all(self, member: CampaignMember) -> None:
        wait_until(lambda: self.all_are_up() and member.name not in self._owners(), f"{member.name} is missed", 90)
        wait_until(
            lambda: self.all_are_up() and sum(self._owners().values()) == PARTITIONS,
            f"the others have all partitions of {self._group}",
            90,
        )

    def _owners(self) -> dict[str, int]:
        """The number of partitions of each member."""
        # A new client for each call. After a failure of the coordinator, an existing client can use the wrong broker
        # for minutes.
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        try:
            found = admin.describe_consumer_groups([self._group])[self._group].result(30).members
        except (KafkaException, TimeoutError):
            # The coordinator of the group can be unavailable for a moment.
            return dict.fromkeys(self._members, 0)
        return {member.client_id: len(member.assignment.topic_partitions) for member in found}


def _kill_executor(process: psutil.Process, member: CampaignMember) -> None:
    """Kills the JVM of the executor that a Python worker belongs to; for other processes, any executor of the
    member.
    """

    def is_executor(candidate: psutil.Process) -> bool:
        with suppress(psutil.NoSuchProcess):
            return _EXECUTOR in candidate.cmdline()
        return False

    def found() -> list[psutil.Process]:
        return [p for p in (*process.parents(), *member.processes()) if is_executor(p)]

    # After a kill, the new executor may still be starting.
    wait_until(found, f"{member.name} has an executor", 60)
    found()[0].kill()


def campaign(
    bootstrap: str,
    directory: Path,
    sink: str,
    to: str,
    read_back: ReadBack,
    *,
    turns: Sequence[Turn],
    timeout_s: float,
    per_second: int = 400,
    protocol: str = "classic",
    sabotaged: str = "",
    n_members: int = 2,
    kind: str = "stateless",
    kafka: EmbeddedKafka | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Runs a campaign.

    Args:
        bootstrap: the broker.
        directory: the directory of checkpoints and logs.
        sink: ``kafka``, ``postgres`` or ``delta``.
        to: the output topic, connection string or table path.
        read_back: the independent reader of the output.
        turns: the points and their faults, in order.
        timeout_s: the timeout of the whole campaign, in seconds.
        per_second: the rate of the producer, in records per second.
        protocol: the group protocol.
        sabotaged: one of :data:`SABOTAGES` or :data:`STATE_SABOTAGES`, or empty.
        n_members: the number of queries, at most four. A single one reaches each point.
        kind: one of :data:`KINDS`. A stateful query is the only member of its group.
        kafka: the broker, if it is a target of faults.
        report: called with a description of each turn.

    Raises:
        AssertionError: if no process reaches a point, or the queries do not read to the end.
    """
    topic, group = f"in-{uuid.uuid4().hex[:8]}", f"g-{uuid.uuid4().hex[:8]}"
    _create(bootstrap, topic)
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "group.id": group,
        "startingPosition": "TRIM_HORIZON",
        "kafka.group.protocol": protocol,
        # With KIP-848 the broker configures the session timeout.
        **({"kafka.session.timeout.ms": "6000"} if protocol == "classic" else {}),
        "kafka.max.poll.interval.ms": "60000",
        "maxOffsetsPerTrigger": "2000",
        "stateLocation": str(directory / "states"),
        **({"membership": "exclusive"} if kind == "stateful" else {}),
    }
    config = {
        "bootstrap": bootstrap,
        "sink": sink,
        "to": to,
        "options": options,
        "sabotaged": sabotaged,
        "kind": kind,
    }
    last = _MASTER if any(victim == "executor" for _, victim in turns) else "local[2]"
    *others, name = ("ann", "bob", "cem", "dan")[: 1 if kind == "stateful" else n_members]
    members = [*(CampaignMember(directory, it, config) for it in others), CampaignMember(directory, name, config, last)]
    reset = [group, "--topic", topic, "-b", bootstrap, "--state-location", options["stateLocation"]]
    resets = Resets(reset, directory)
    ends = partial(end_offsets, bootstrap, topic, PARTITIONS)
    injector = FaultInjector(bootstrap, directory / "deaths", group, members, kafka, resets, ends)
    kills = Counter[Turn]()
    deadline_s = time.monotonic() + timeout_s

    def left_s() -> float:
        return max(1.0, deadline_s - time.monotonic())

    try:
        injector.all_are_up()
        with Load(bootstrap, topic, partitions=PARTITIONS, per_second=per_second) as load:
            if sabotaged:
                # A disabled safeguard has no effect before the first batches are written.
                wait_until(
                    lambda: (
                        injector.all_are_up()
                        and (
                            sum(committed_offsets(bootstrap, group, topic).values()) > 5 * per_second
                            or injector.state_errors()
                        )
                    ),
                    f"the first batches are written; see {directory}",
                    min(300, left_s()),
                )
            for point, victim in turns:
                began_s = time.monotonic()
                injector.inject(point, victim, min(300, left_s()))
                if injector.state_errors():
                    break
                kills[point, victim] += 1
                report(f"{kills.total()}: {point}, {victim}, {time.monotonic() - began_s:.1f} s")
        if kind == "windows":
            produce(bootstrap, topic, PARTITIONS, partitions=PARTITIONS, first=CLOSING)
        wait_until(
            lambda: (
                injector.all_are_up()
                and (committed_offsets(bootstrap, group, topic) == ends() or injector.state_errors())
            ),
            f"all is read; see {directory}",
            min(300, left_s()),
        )
    finally:
        injector.give_up()
        for member in members:
            member.stop()
    verdict = _judged(kind, kills, load.count, read_back(), resets.done)
    return replace(verdict, errors=injector.state_errors())


def all_turns(
    sink: str, n_turns: int, victims: Sequence[str] = VICTIMS, seed: int = 1, kind: str = "stateless"
) -> list[Turn]:
    """Every fault at every point, in a random order that depends on the seed, repeated as needed.

    A short campaign covers as many different faults as possible: consecutive turns use each fault once before one
    repeats.
    """
    points = (POINTS if sink == "kafka" else LEDGER_POINTS) + (STATE_POINTS if kind == "windows" else ())
    choose = random.Random(f"{sink} {seed}")
    turns: list[Turn] = []
    while len(turns) < n_turns:
        order = {victim: choose.sample(points, len(points)) for victim in choose.sample(victims, len(victims))}
        turns += [(order[victim][i], victim) for i in range(len(points)) for victim in order]
        turns.append(("after-commit", "answer"))
    return turns[:n_turns]


def revealing_turns(sink: str, sabotaged: str, n_turns: int) -> list[Turn]:
    """The turns that detect a disabled safeguard."""
    if sabotaged == "ledger":
        # The output is at least once, so no process begins or commits a transaction.
        points = ("inside-transaction",) if sink == "kafka" else ("after-commit",)
        reported = [(point, victim) for point in points for victim in ("worker", "query")]
    elif sabotaged == "fence":
        reported = [("before-offsets" if sink == "kafka" else "before-commit", "zombie")]
    elif sabotaged in STATE_SABOTAGES:
        reported = [("after-commit", "query")]
    else:
        reported = [("before-offset-log", "checkpoint")]
    return [reported[i % len(reported)] for i in range(n_turns)]


def _judged(
    kind: str, kills: Counter[Turn], n_records: int, arrived: list[tuple[int, str]], resets: Sequence[Reset]
) -> Verdict:
    if kind == "windows":
        found = compare((value for _, value in arrived), n_records, resets)
        return Verdict(kills, n_records, found.missing, found.repeated, different=found.different)
    expected = {str(i) for i in range(n_records)}
    values = Counter(value for _, value in arrived)
    in_order: dict[int, list[int]] = {}
    for partition, value in arrived:
        in_order.setdefault(partition, []).append(int(value))
    return Verdict(
        kills,
        n_records,
        lost=sorted(expected - values.keys(), key=int),
        repeated=sorted((value for value, n in values.items() if n > 1), key=int),
        # Spark processes grouped records in no defined order.
        disordered=sorted(p for p, numbers in in_order.items() if kind != "stateful" and numbers != sorted(numbers)),
    )


def _nothing_is_open(bootstrap: str, topic: str) -> bool:
    """Whether readers of committed records see the whole topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    requested = {TopicPartition(topic, p): latest for p in range(PARTITIONS)}
    stable, all_ = (
        {
            tp.partition: found.result(30).offset
            for tp, found in admin.list_offsets(requested, isolation_level=level).items()
        }
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    )
    return stable == all_


def _create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)


@contextmanager
def target(sink: str, bootstrap: str, directory: Path) -> Iterator[tuple[str, ReadBack]]:
    """The output of a campaign, and its independent reader, which uses no code of this library."""
    if sink == "kafka":
        topic = f"out-{uuid.uuid4().hex[:8]}"
        _create(bootstrap, topic)

        def records() -> list[tuple[int, str]]:
            # An open transaction of a killed query hides later records until it times out, because no process uses its
            # transactional id.
            wait_until(lambda: _nothing_is_open(bootstrap, topic), f"no transaction is open in {topic}", 60)
            return [(m.partition, m.value.decode().rstrip(".")) for m in read_committed(bootstrap, topic)]

        yield topic, records
    elif sink == "postgres":
        import psycopg

        from streamgroups_testkit.postgres import PostgresServer

        with PostgresServer() as server, server.database() as conninfo:

            def rows() -> list[tuple[int, str]]:
                with psycopg.connect(conninfo) as db:
                    found = db.execute(
                        'SELECT "partition", rtrim(value, \'.\') FROM board ORDER BY "partition", "offset"'
                    )
                    return [(int(p), str(v)) for p, v in found.fetchall()]

            yield conninfo, rows
    else:
        from deltalake import DeltaTable

        path = str(directory / "board")

        def table() -> list[tuple[int, str]]:
            found = DeltaTable(path).to_pyarrow_table().sort_by([("partition", "ascending"), ("offset", "ascending")])
            values = found.column("value").to_pylist()
            return [(p, v.rstrip(".")) for p, v in zip(found.column("partition").to_pylist(), values, strict=True)]

        yield path, table


@dataclass(frozen=True)
class Settings:
    """The options of the command line."""

    kills: int
    victims: Sequence[str]
    sabotaged: str
    n_members: int
    seed: int
    timeout_s: float
    results: Path | None


def one(kafka: EmbeddedKafka, settings: Settings, sink: str, protocol: str, kind: str) -> bool:
    """Runs one campaign and stores its result; returns whether the output is right."""
    directory = Path(tempfile.mkdtemp(prefix=f"campaign-{sink}-"))
    if settings.sabotaged:
        turns = revealing_turns(sink, settings.sabotaged, settings.kills)
    else:
        possible = [victim for victim in settings.victims if victim in VICTIMS_OF[kind]]
        turns = all_turns(sink, settings.kills, possible, settings.seed, kind)
    began_s = time.monotonic()
    with target(sink, kafka.bootstrap_servers, directory) as (to, read_back):
        verdict = campaign(
            kafka.bootstrap_servers,
            directory,
            sink,
            to,
            read_back,
            turns=turns,
            timeout_s=settings.timeout_s,
            protocol=protocol,
            sabotaged=settings.sabotaged,
            n_members=settings.n_members,
            kind=kind,
            kafka=kafka,
            report=partial(print, file=sys.stderr, flush=True),
        )
    day, commit, versions = here(kafka.version)
    result = Result(
        day=day,
        commit=commit,
        versions=versions,
        sink=sink,
        protocol=protocol,
        kind=kind,
        sabotaged=settings.sabotaged,
        seed=settings.seed,
        victims=verdict.victims,
        points=verdict.points,
        records=verdict.records,
        lost=len(verdict.lost),
        twice=len(verdict.repeated),
        disordered=len(verdict.disordered),
        different=len(verdict.different),
        errors=len(verdict.errors),
        took_s=round(time.monotonic() - began_s),
    )
    if settings.results is not None:
        with settings.results.open("a") as file:
            file.write(result.to_line() + "\n")
    what = f"{sink}, {kind}, {protocol}, {settings.sabotaged or 'nothing'} taken away"
    print(f"{what}, seed {settings.seed}, {result.took_s} s: {verdict}", flush=True)
    return verdict.holds


def main() -> int:
    from streamgroups_testkit.broker import BROKER_PROPERTIES

    sinks, protocols = ["kafka", "postgres", "delta"], ["classic", "consumer"]
    parser = argparse.ArgumentParser(prog="python -m integration_tests.campaign", description=__doc__)
    parser.add_argument("sinks", nargs="+", choices=sinks)
    parser.add_argument("--kills", type=int, default=100, help="for each sink and protocol")
    parser.add_argument("--protocols", nargs="+", choices=protocols, default=protocols, help="of the group")
    parser.add_argument("--kind", choices=KINDS, default="stateless", help="of the queries")
    parser.add_argument("--members", type=int, choices=(1, 2, 3, 4), default=2, help="the number of queries")
    parser.add_argument(
        "--victims", nargs="+", choices=WINDOWS_VICTIMS, default=WINDOWS_VICTIMS, help="what happens at the points"
    )
    parser.add_argument(
        "--sabotaged", choices=(*SABOTAGES, *STATE_SABOTAGES), default="", help="take it away: the campaign must notice"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the order of turns")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds for each sink and protocol")
    parser.add_argument("--results", type=Path, help="a file; the result of each campaign is added as one line")
    given = parser.parse_args()
    requested = Settings(
        given.kills, given.victims, given.sabotaged, given.members, given.seed, given.timeout, given.results
    )
    holds = []
    with ExitStack() as stack:
        data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="campaign-broker-")))
        kafka = stack.enter_context(EmbeddedKafka(data_dir=data_dir, properties=BROKER_PROPERTIES))
        for sink in given.sinks:
            for protocol in given.protocols:
                holds.append(one(kafka, requested, sink, protocol, given.kind))
    return int(not all(holds))


if __name__ == "__main__":
    sys.exit(main())
