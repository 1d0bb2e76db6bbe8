"""Processors in one worker of an instance beside drivers of their own, and a small processor beside a large one.

A family of ``benchmarks.command``. Each processor copies a topic, and a Kafka sink writes it exactly once. The drivers are
``streamgroups processors run``, one for each processor, with two task slots. The worker has its default: one for each processor. All
processes have Spark's default memory. The memory of pages that processes share counts once. It is measured under load, after Spark has
ended the Python processes that only a start needs. Source: SEMANTICS P2; Spark's "Job Scheduling", ``PythonWorkerFactory``.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from benchmarks.bench import TASKS, Bench
from benchmarks.figures import MB, MS, RECORDS_PER_S, Cell, Missing, Row, compare, median_of, percentile_of
from benchmarks.paced_producer import produce_request, send
from benchmarks.rounds import Rounds
from benchmarks.sources import STREAMGROUPS
from benchmarks.workload import SteadyLoad, create
from integration_tests.declared_flights import connections
from integration_tests.instances import RealInstance
from integration_tests.programs import running_command
from integration_tests.spark_events import logged_queries
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_testkit.reading import committed_offsets
from streamgroups_testkit.waits import wait_until

DRIVERS, ALONE = "four drivers", "alone"
#: The limit of the machine: both processors, each in a driver of its own.
OWN_DRIVER = "in a driver of its own"
_NAMES = ("copy1", "copy2", "copy3", "copy4")
_PARTITIONS = 4
_MAIN = "from streamgroups_cli import main; main()"
_MIB = 2**20
_SETTINGS = {"spark.master": f"local[{TASKS}]", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": str(TASKS)}
#: The batches of the warm-up, which compile code.
_WARM_UPS = 3
#: Each run starts five processes, or two.
_ROUNDS = Rounds(2, warm_up=0, budget_s=240, slow_s=240)
_SMALL_PER_S = 1_000
_WAIT_S = 300
#: Spark ends Python workers that had no task for a minute. It checks every ten seconds.
_IDLE_WORKERS_S = 75


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of four processors: its speed, and the memory of its processes under load."""

    records_per_s: float
    memory_mib: float


def workers(bench: Bench) -> Iterator[Row]:
    """Speed and memory of four processors, and the triggers of a small processor beside a large one."""
    os.environ["STREAMGROUPS_CONFIG"] = str(connections(bench.directory, bench.bootstrap, "unused"))
    os.environ["STREAMGROUPS_PROCESSORS"] = str(bench.directory / "processors")
    contestants: dict[str, Callable[[], _Run]] = {
        STREAMGROUPS: partial(_copied, bench, _in_one_worker),
        DRIVERS: partial(_copied, bench, _in_own_drivers),
    }
    runs = bench.race("four processors in one worker", contestants, _ROUNDS)

    def cells(figure: Callable[[_Run], float]) -> Mapping[str, Cell]:
        return {n: it if isinstance(it, Missing) else median_of([figure(run) for run in it]) for n, it in runs.items()}

    name = "four processors in one worker"
    yield from compare(name, RECORDS_PER_S, cells(lambda run: run.records_per_s), own=STREAMGROUPS)
    yield from compare(f"{name}, memory", MB, cells(lambda run: run.memory_mib), own=STREAMGROUPS)
    bench.report_step("a small processor beside a large one")
    in_worker, in_driver = (_small_triggers(bench, it) for it in (_in_one_worker, _in_own_drivers))
    alone = percentile_of([in_worker.alone], 99)
    cases = {
        "beside a large one": (in_worker.beside, in_driver.beside),
        "while a large one starts": (in_worker.while_it_starts, in_driver.while_it_starts),
    }
    for when, (own, limit) in cases.items():
        small = {STREAMGROUPS: percentile_of([own], 99), ALONE: alone, OWN_DRIVER: percentile_of([limit], 99)}
        what = f"trigger of a small processor {when}, p99"
        yield from compare(what, MS, small, own=STREAMGROUPS, limits=(OWN_DRIVER,))


def _document(name: str, source: str, output: str) -> dict[str, Any]:
    return {
        "name": name,
        "source": {"connection": "prod", "subscribe": source, "startingOffsets": "earliest"},
        "steps": [{"sql": "SELECT key, value FROM input"}],
        "sink": {"connection": "prod", "topic": output},
    }


def _topic(bench: Bench, name: str) -> str:
    topic = f"bench.workers.{name}.{uuid.uuid4().hex[:8]}"
    create(bench.bootstrap, topic, _PARTITIONS)
    return topic


@dataclass(frozen=True, slots=True)
class _Processors:
    """Processors that can be started.

    Args:
        instance: the name of their instance.
        start: starts a processor, and returns the id of its process.
    """

    instance: str
    start: Callable[[str], int]


#: Prepares processors by their definitions, with a directory of logs and more settings of Spark.
_Prepare = Callable[[Bench, Path, Sequence[dict[str, Any]], Mapping[str, str]], AbstractContextManager[_Processors]]


def _copied(bench: Bench, prepare: _Prepare) -> _Run:
    source = _topic(bench, "source")
    documents = [_document(name, source, _topic(bench, name)) for name in _NAMES]
    directory = bench.directory / uuid.uuid4().hex
    directory.mkdir()
    warm_up, backlog = bench.scale.others // 10, bench.scale.others
    with prepare(bench, directory, documents, {}) as processors:
        pids = {processors.start(name) for name in _NAMES}
        groups = [f"{processors.instance}.{name}" for name in _NAMES]
        written = 0
        for _ in range(_WARM_UPS):
            written += _write(bench, source, warm_up)
            _wait_for(bench, source, groups, written)
        with SteadyLoad(bench.bootstrap, source, partitions=_PARTITIONS, per_s=_SMALL_PER_S) as load:
            time.sleep(_IDLE_WORKERS_S)
        written += load.count
        _wait_for(bench, source, groups, written)
        began_s = time.monotonic()
        more = _write(bench, source, backlog)
        _wait_for(bench, source, groups, written + more)
        took_s = time.monotonic() - began_s
        return _Run(more * len(groups) / took_s, sum(map(_memory_bytes, pids)) / _MIB)


@contextmanager
def _in_one_worker(
    bench: Bench, directory: Path, documents: Sequence[dict[str, Any]], more: Mapping[str, str]
) -> Iterator[_Processors]:
    settings = {name: value for name, value in _SETTINGS.items() if name != "spark.master"} | dict(more)
    with closing(RealInstance(bench.bootstrap, directory)) as instance:
        for document in documents:
            instance.define(document["name"], **document)
        confs = " ".join(f"--conf {shlex.quote(f'{name}={value}')}" for name, value in settings.items())
        command = f"{{python}} {{program}} {{arguments}} {confs}"

        def start(name: str) -> int:
            instance.start(name)
            return instance.worker(name).pid

        with instance.manager("--slots", "4", "--max-workers", "1", "--worker-command", command):
            yield _Processors(instance.name, start)


@contextmanager
def _in_own_drivers(
    _bench: Bench, directory: Path, documents: Sequence[dict[str, Any]], more: Mapping[str, str]
) -> Iterator[_Processors]:
    instance = f"bench-{uuid.uuid4().hex[:8]}"
    files = {document["name"]: directory / f"{document['name']}.yaml" for document in documents}
    for document in documents:
        files[document["name"]].write_text(json.dumps(document))
    with ExitStack() as stack:

        def start(name: str) -> int:
            arguments = ["processors", "run", str(files[name]), "--instance", instance]
            confs = [it for pair in {**_SETTINGS, **more}.items() for it in ("--conf", "=".join(pair))]
            command = [sys.executable, "-c", _MAIN, *arguments, *confs]
            return stack.enter_context(running_command(command, files[name].with_suffix(".log"), os.environ)).pid

        yield _Processors(instance, start)


def _write(bench: Bench, topic: str, records: int) -> int:
    """Writes about this number of records in a few requests. Returns the number."""
    each = min(records // _PARTITIONS, 5_000)
    request, count = produce_request(topic, _PARTITIONS, each), max(1, records // (each * _PARTITIONS))
    session = AdminSession(ClientConfig.from_options({"bootstrap.servers": bench.bootstrap}), timeout_s=20)
    with closing(session):
        for _ in range(count):
            session.run("The records cannot be written", send, session, request)
    return count * each * _PARTITIONS


def _wait_for(bench: Bench, topic: str, groups: Sequence[str], records: int) -> None:
    """Waits until each group has committed this number of records."""

    def is_copied(group: str) -> bool:
        return sum(committed_offsets(bench.bootstrap, group, topic).values()) >= records

    wait_until(lambda: all(map(is_copied, groups)), "all records are copied", _WAIT_S)


def _memory_bytes(pid: int) -> int:
    """The memory of a process and its descendants."""
    first = psutil.Process(pid)
    total = 0
    for process in (first, *first.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total


@dataclass(frozen=True, slots=True)
class _SmallTriggers:
    """The durations of the triggers of a small processor in milliseconds: alone, while a large one starts, and while it reads."""

    alone: Sequence[float]
    while_it_starts: Sequence[float]
    beside: Sequence[float]


def _small_triggers(bench: Bench, prepare: _Prepare) -> _SmallTriggers:
    """The triggers of a small processor alone, and beside a large one that starts and then reads a backlog."""
    warm_up, counted = bench.scale.batches, 4 * bench.scale.batches
    directory = bench.directory / uuid.uuid4().hex
    events = directory / "events"
    events.mkdir(parents=True)
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false"}
    documents = [_document(name, _topic(bench, f"{name}.source"), _topic(bench, name)) for name in ("small", "large")]
    small, large = (it["source"]["subscribe"] for it in documents)
    written = _write(bench, large, bench.scale.others // 10)
    with (
        prepare(bench, directory, documents, log) as processors,
        SteadyLoad(bench.bootstrap, small, partitions=_PARTITIONS, per_s=_SMALL_PER_S),
    ):

        def triggers() -> list[tuple[float, int]]:
            found = logged_queries(events).get(f"{processors.instance}.small")
            return [] if found is None else found.triggers

        def copied(records: int) -> int:
            _wait_for(bench, large, [f"{processors.instance}.large"], records)
            return records

        processors.start("small")
        wait_until(lambda: len(triggers()) >= warm_up + counted, "the small one runs", _WAIT_S, interval_s=1)
        starts_s = time.time()
        processors.start("large")
        copied(written)
        for _ in range(_WARM_UPS):
            written = copied(written + _write(bench, large, bench.scale.others // 10))
        reads_s = time.time()
        copied(written + _write(bench, large, 4 * bench.scale.bulk))
        ended_s = time.time()
        # The event log has a trigger soon after its end.
        wait_until(lambda: triggers()[-1][0] > ended_s, "the triggers are in the event log", _WAIT_S)

        def between(begin_s: float, end_s: float) -> list[float]:
            """The triggers that ran between two times, also in part."""
            return [float(ms) for at_s, ms in triggers() if begin_s - ms / 1_000 < at_s < end_s]

        # Without the trigger in which the large one was requested.
        alone = [float(ms) for at_s, ms in triggers()[warm_up:] if at_s + ms / 1_000 < starts_s]
        return _SmallTriggers(alone, between(starts_s, reads_s), between(reads_s, ended_s))
