"""An instance with two processors, and the injection of faults into its processes. Used by ``integration_tests.campaign.processors``.

``copy`` writes each record to a topic, and ``counts`` has two replicas that count in windows into PostgreSQL. Both read one topic.
With two slots, each of the two workers runs a replica of ``counts``.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient

from integration_tests.campaign.processor_turns import FaultTurn
from integration_tests.campaign.targets import patiently
from integration_tests.campaign.windows import DELAY_MS, LATENESS_MS, PARTITIONS, SIZE_MS
from integration_tests.copying_instance import spark_worker
from integration_tests.instances import RealInstance
from integration_tests.programs import Program
from streamgroups.instances.entries import Worker
from streamgroups.instances.overview import overview
from streamgroups_kafka.client.clock import now_ms
from streamgroups_testkit.reading import committed_offsets, end_offsets
from streamgroups_testkit.waits import wait_until

#: The processors with the number of their replicas.
REPLICAS = {"copy": 1, "counts": 2}
SESSION_TIMEOUT_S = 6
_LEASE_S = 6
#: On a busy machine a worker starts in a minute, and a frozen one is detected before.
_STEP_S = 600
#: The time in which a worker without a lease must end, and a replica must have one member.
_END_S = 90
_HERE = Path(__file__).parent.parent
_SOURCE = "python_streaming_source_runner"
_STATE_ERROR = re.compile(r"State(?:Missing|Damaged|Mismatch): [^\s:]+")


@dataclass
class Recovery:
    """The measured times of one fault.

    Args:
        turn: the fault.
        committed_s: the time until both processors have committed records that were produced after the fault, in seconds.
        running_s: the time until all replicas run, on workers other than a killed one, in seconds. ``None`` if the fault ends no
            replica: of a source, whose query starts again in its worker, or of the manager.
    """

    turn: FaultTurn
    committed_s: float
    running_s: float | None

    def __str__(self) -> str:
        running = "" if self.running_s is None else f", all run after {self.running_s:.1f} s"
        return f"{self.turn.fault} {self.turn.point or 'at any time'}: commits after {self.committed_s:.1f} s{running}"


@dataclass
class FaultyInstance(RealInstance):
    """An instance whose processes are killed and frozen.

    Args:
        source: the topic that both processors read.
        output: the topic of the copy.
        sabotaged: a disabled safeguard, or empty.
    """

    source: str = ""
    output: str = ""
    sabotaged: str = ""
    outdated: list[str] = field(default_factory=list)
    wrong_members: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    _n_managers: int = 0
    _n_victims: int = 0
    _manager: Program | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._deaths = self.directory / "deaths"
        self._deaths.mkdir()
        #: The processes of all processors append their commits and states to files in it.
        self.history = self.directory / "history"
        self.history.mkdir()
        path = [str(_HERE / "dying"), str(_HERE.parent), str(_HERE.parent / "connectors")]
        self.environment = {
            **self.environment,
            "PYTHONPATH": os.pathsep.join(path),
            "PYSPARK_PYTHON": sys.executable,
            "STREAMGROUPS_DEATHS": str(self._deaths),
            "STREAMGROUPS_MEMBER": "worker",
            "STREAMGROUPS_HISTORY": str(self.history),
            "STREAMGROUPS_SABOTAGE": self.sabotaged,
        }

    # ---- processors ------------------------------------------------------------------------------------------------------

    def declare(self) -> None:
        """Writes the files of both processors, and defines them."""
        files = self.directory / "processors"
        files.mkdir()
        (files / "copy.yaml").write_text(copy_text("copy", self.source, self.output, self._members_of("copy")))
        (files / "counts.yaml").write_text(_counts_text(self.source, self._members_of("counts")))
        self.command("processors", "apply", "-f", str(files), "--execute")

    def history_of(self, name: str) -> Path:
        """The directory of the history of a processor."""
        return self.directory / f"history-{name}"

    def _members_of(self, name: str) -> Path:
        return self.history_of(name) / "history" / "members"

    def committed(self) -> dict[str, int]:
        """The number of records before the committed offsets of each processor."""
        return {
            name: sum(patiently(partial(committed_offsets, self.bootstrap, self.group(name), self.source)).values())
            for name in REPLICAS
        }

    def group(self, name: str) -> str:
        return f"{self.name}.{name}"

    def produced(self) -> int:
        return sum(patiently(partial(end_offsets, self.bootstrap, self.source, PARTITIONS)).values())

    def have_committed(self, count: int) -> bool:
        """Whether both processors have committed more than a number of records."""
        return all(it > count for it in self.committed().values())

    def all_run(self, without: str = "") -> bool:
        """Whether all replicas run, on workers other than a lost one. Fails if one has failed."""
        views = overview(self.name, self.state(), now_ms()).replicas
        for it in views:
            assert it.state != "failed" or self.sabotaged, f"{it.replica}: {it.why}; see {self.directory}"
        assert self._manager is None or not self._manager.has_ended(), f"the manager has ended; see {self.directory}"
        return len(views) == sum(REPLICAS.values()) and all(
            it.state == "running" and it.worker != without for it in views
        )

    def state_errors(self) -> list[str]:
        """The errors of states in the logs."""
        texts = (it.read_text(errors="replace") for it in self.directory.glob("manager-*.log"))
        return sorted({error for text in texts for error in _STATE_ERROR.findall(text)})

    # ---- processes -------------------------------------------------------------------------------------------------------

    @contextmanager
    def managed(self) -> Iterator[None]:
        """Runs managers for the duration of the block."""
        self.start_manager()
        try:
            yield
        finally:
            self.kill_manager()

    def start_manager(self) -> None:
        self._n_managers += 1
        options = ("--slots", "2", "--max-workers", "2", "--lease", f"{_LEASE_S}s", "--worker-command", spark_worker())
        self._running = self.manager(*options, number=self._n_managers)
        self._manager = self._running.__enter__()

    def kill_manager(self) -> None:
        if self._manager is not None:
            self._manager = None
            self._running.__exit__(None, None, None)

    def inject(self, turn: FaultTurn, timeout_s: float = _STEP_S) -> Recovery:
        """Injects a fault, and waits until all processors run again.

        Raises:
            AssertionError: if they do not.
        """
        time.sleep(turn.pause_s)
        reached = self._wait_for(turn.point) if turn.point else None
        if turn.fault == "manager":
            return self._without_manager(turn)
        worker = self._victim(reached)
        began_s, produced = time.monotonic(), self.produced()
        frozen: list[psutil.Process] = []
        if turn.fault == "freeze":
            frozen = _frozen(worker.pid)
        elif turn.fault == "hang":
            _hang(worker.pid)
        else:
            _kill(turn.fault, worker.pid)
        if reached is not None and not frozen:
            reached.unlink()
        if turn.fault == "both":
            self.kill_manager()
            time.sleep(turn.outage_s)
            self.start_manager()
        try:
            recovery = self._recovered(turn, began_s, produced, worker.id, timeout_s)
        finally:
            _signal_all(frozen, psutil.Process.resume)
            if frozen and reached is not None:
                reached.unlink()
        if turn.fault != "source":
            self._wait_for_end(worker)
        self._wait_for_members()
        self._wait_for_orphans()
        return recovery

    def _without_manager(self, turn: FaultTurn) -> Recovery:
        began_s, produced = time.monotonic(), self.produced()
        self.kill_manager()
        self._wait(lambda: self.have_committed(produced), "the processors commit without a manager", _STEP_S)
        committed_s = time.monotonic() - began_s
        self.start_manager()
        self._wait(self.all_run, "all processors run", _STEP_S)
        return Recovery(turn, committed_s, None)

    def _recovered(self, turn: FaultTurn, began_s: float, produced: int, worker: str, timeout_s: float) -> Recovery:
        times: dict[str, float] = {}
        ends_replicas = turn.fault != "source"

        def holds() -> bool:
            now_s = time.monotonic() - began_s
            if self.have_committed(produced):
                times.setdefault("committed", now_s)
            if self.all_run(without=worker if ends_replicas else ""):
                times.setdefault("running", now_s)
            return len(times) == 2

        self._wait(holds, f"all processors run after {turn}", timeout_s)
        return Recovery(turn, times["committed"], times["running"] if ends_replicas else None)

    def _victim(self, reached: Path | None) -> Worker:
        """The worker of the process at the point, or one of those with replicas in turn."""
        state = self.state()
        by_pid = {it.pid: it for it in state.workers.values()}
        if reached is not None:
            at_point = psutil.Process(int(reached.name.rsplit(".", 1)[1]))
            (worker,) = (by_pid[it.pid] for it in (at_point, *at_point.parents()) if it.pid in by_pid)
            return worker
        busy = Counter(it.worker for it in state.placements.values()).most_common()
        self._n_victims += 1
        return state.workers[busy[self._n_victims % len(busy)][0]]

    # ---- points and waits ------------------------------------------------------------------------------------------------

    def _wait_for(self, point: str) -> Path:
        """Arms a point, and waits until a process of a worker reaches it."""
        (self._deaths / f".{point}").write_text("worker")
        (self._deaths / f".{point}").rename(self._deaths / point)
        self._wait(lambda: list(self._deaths.glob("reached.*")), f"a process reaches {point}", _STEP_S)
        (reached,) = self._deaths.glob("reached.*")
        return reached

    def _wait_for_end(self, worker: Worker) -> None:
        """A worker that has lost its lease ends."""
        try:
            process = psutil.Process(worker.pid)
            wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE, "it ends", _END_S)
        except psutil.NoSuchProcess:
            pass
        except AssertionError:
            self.outdated.append(worker.id)

    def _wait_for_members(self) -> None:
        """Each replica has one member in its group."""
        for name, count in REPLICAS.items():
            expected = {f"streamgroups-{self.group(name)}-{number}": 1 for number in range(count)}
            try:
                wait_until(lambda it=name, to=expected: self._members(it) == to, "one member", _END_S)  # type: ignore[misc]
            except AssertionError:
                self.wrong_members.append(f"{name}: {dict(self._members(name))}")

    def _wait_for_orphans(self) -> None:
        """All processes that a killed worker has started end too."""
        try:
            wait_until(lambda: not self._orphans(), "no process is left", _END_S, 1)
        except AssertionError:
            self.orphans += sorted(self._orphans())

    def _orphans(self) -> set[str]:
        """The processes of the instance that belong to no worker and no manager, by their numbers and commands."""
        found = set()
        for process in psutil.process_iter(["environ"]):
            if (process.info["environ"] or {}).get("STREAMGROUPS_DEATHS") != str(self._deaths):
                continue
            with suppress(psutil.NoSuchProcess):
                if not any(self.name in _command(it) for it in (process, *process.parents())):
                    found.add(f"{process.pid} {' '.join(process.cmdline())[-100:]}")
        return found

    def _members(self, name: str) -> Counter[str]:
        """The number of members of each replica. The end of a client id is the process."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        found = admin.describe_consumer_groups([self.group(name)])[self.group(name)].result(30).members
        prefix = re.compile(rf"(streamgroups-{re.escape(self.group(name))}-\d+)-")
        return Counter(it[1] if (it := prefix.match(member.client_id)) else member.client_id for member in found)

    def _wait(self, condition: Callable[[], object], what: str, timeout_s: float) -> None:
        wait_until(condition, f"{what}; see {self.directory}", timeout_s, 0.5)


def copy_text(name: str, source: str, output: str, history: Path | None = None) -> str:
    """The file of a processor that copies a topic, in the order of its partitions.

    Args:
        name: its name.
        source: the topic.
        output: the topic of the copy.
        history: the directory of the history of its members.
    """
    return (
        f"{_head(name, source, history)}steps:\n  - sql: SELECT key, value, partition FROM input\n"
        f"sink: {{connection: prod, topic: {output}, transaction_timeout: 10 minutes}}\n"
    )


def _counts_text(source: str, history: Path) -> str:
    return (
        f"{_head('counts', source, history)}replicas: {REPLICAS['counts']}\n"
        "steps:\n"
        "  - sql: SELECT topic, partition, offset, timestamp, cast(key AS string) AS place FROM input\n"
        f"  - windows: {{on: timestamp, by: [place], window: {{tumbling: {SIZE_MS // 1_000} seconds}}, "
        f"watermark_delay: {DELAY_MS // 1_000} seconds, allowed_lateness: {LATENESS_MS // 1_000} seconds, "
        "aggregate: {n: count(*), total: sum(offset)}, prepartitioned: true}\n"
        "  - sql: SELECT unix_millis(window_start) AS start, place, revision, n, total FROM input\n"
        "sink: {connection: warehouse, table: counts}\n"
    )


def _head(name: str, source: str, history: Path | None) -> str:
    recorded = "" if history is None else f", historyDir: {history}"
    return (
        f"name: {name}\n"
        f'source: {{connection: prod, subscribe: {source}, startingOffsets: earliest, maxOffsetsPerTrigger: "2000", '
        f'kafka.session.timeout.ms: "{SESSION_TIMEOUT_S * 1_000}"{recorded}}}\n'
        "trigger: {processingTime: 500 milliseconds}\n"
    )


def connections(directory: Path, bootstrap: str, conninfo: str) -> Path:
    """Writes the file of connections."""
    path = directory / "config.toml"
    path.write_text(
        f'[connections.prod]\ntype = "kafka"\nbootstrap-servers = "{bootstrap}"\n'
        f'[connections.warehouse]\ntype = "postgres"\nconninfo = {{ file = "warehouse" }}\n'
    )
    path.chmod(0o600)
    (directory / "warehouse").write_text(conninfo)
    return path


def cold_command(file: Path) -> list[str]:
    """The command that runs a processor in the foreground, with the settings of the workers."""
    settings = shlex.split(spark_worker().split("{arguments}")[1])
    main = "from streamgroups_cli import main; main()"
    return [sys.executable, "-c", main, "processors", "run", str(file), "--instance", file.stem, *settings]


def _tree(pid: int) -> list[psutil.Process]:
    """A process and all its descendants."""
    first = psutil.Process(pid)
    return [first, *first.children(recursive=True)]


def _kill(fault: str, pid: int) -> None:
    """Kills the processes of a worker that a fault names."""
    tree = _tree(pid)
    if fault in ("worker", "both"):
        _signal_all(tree, psutil.Process.kill)
        return
    if fault == "driver":
        tree[0].kill()
        return
    required = _SOURCE if fault == "source" else "org.apache.spark.deploy.SparkSubmit"
    found = [it for it in tree if any(required in word for word in _command(it))]
    assert found, [_command(it) for it in tree]
    found[0].kill()


def _hang(pid: int) -> None:
    """Stops the Python process of a worker for longer than its lease, as the manager measures it."""
    process = psutil.Process(pid)
    process.suspend()
    time.sleep(2 * _LEASE_S + SESSION_TIMEOUT_S)
    process.resume()


def _frozen(pid: int) -> list[psutil.Process]:
    """Stops a process and all its descendants, also those that were started meanwhile."""
    frozen: list[psutil.Process] = []
    while new := [it for it in _tree(pid) if it not in frozen]:
        _signal_all(new, psutil.Process.suspend)
        frozen += new
    return frozen


def _signal_all(processes: list[psutil.Process], send: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            send(process)


def _command(process: psutil.Process) -> list[str]:
    with suppress(psutil.NoSuchProcess):
        return list(process.cmdline())
    return []
